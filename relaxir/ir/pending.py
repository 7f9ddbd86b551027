"""Operator calls that have no type yet, nested as the user wrote them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Var
from relaxir.ir.op import Op
from relaxir.support.spans import Span


@dataclass(frozen=True, slots=True)
class PendingCall:
    """An operator call not typed yet: what ``rx.op.f(...)`` returns; `BlockBuilder.emit` types it."""

    op: Op[Attrs]
    args: tuple[object, ...]
    attrs: Attrs
    span: Span | None


def settled(call: PendingCall, emit: Callable[[PendingCall], Var]) -> PendingCall:
    """Return the call with its nested calls emitted, innermost first; however deep, without recursion."""
    frames: list[tuple[PendingCall, list[object]]] = [(call, [])]
    while True:
        current, done = frames[-1]
        if len(done) < len(current.args):
            arg = current.args[len(done)]
            if isinstance(arg, PendingCall):
                frames.append((arg, []))
            else:
                done.append(arg)
            continue
        frames.pop()
        ready = replace(current, args=tuple(done))
        if not frames:
            return ready
        frames[-1][1].append(emit(ready))
