"""Modules for tests of passes: one function, made of what a Python function emits."""

from __future__ import annotations

from collections.abc import Callable

from relaxir.ir import BlockBuilder, IRModule, Var

Emit = Callable[..., Var]


def dataflow(make: Callable[..., object], *params: Var) -> IRModule:
    """A function ``main`` of one dataflow block with what ``make(emit, *params)`` gives: a value, or several."""
    bb = BlockBuilder()
    with bb.function("main", params):
        with bb.dataflow():
            made = make(bb.emit, *params)
            several = isinstance(made, list | tuple)
            outputs = tuple(bb.emit_output(v) for v in (made if several else (made,)))
        bb.emit_func_output(outputs if several else outputs[0])
    return bb.get()
