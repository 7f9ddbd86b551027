"""What temporaries are needed for: one that only kernels which do nothing would read is neither made nor stored.

Before:
    T.call_kernel(Module.mean, (x, lv), dims=(n, m))
    T.call_kernel(Module.subtract, (x, lv, y), dims=(n, m))
After:
    if n > 0:
        T.call_kernel(Module.mean, (x, lv), dims=(n, m))
    T.call_kernel(Module.subtract, (x, lv, y), dims=(n, m))

So ``x - mean(x, axis=0)`` of shape (0, 2**40), an empty array, takes no memory for 2**40 means.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Final

from relaxir.sym import Dim, DimLike, free_dims, substitute
from relaxir.tir import Alias, AllocFrame, Buffer, CallKernel, For, If, OpenFrame, PrimFunc, Seq, Stmt, Together, While
from relaxir.tir.expr import Load
from relaxir.tir.idle import Needs, any_met, effects_besides, least, positive
from relaxir.tir.visit import buffers_of, child_exprs, child_stmts, symbols_after, walk, walk_expr

ALWAYS: Final = (frozenset[DimLike](),)
"""The needs of what needs nothing."""
MOST_NEEDS: Final = 4
"""Ways of something to be needed that formulas and tests tell apart."""


def known_needs(needs: Iterable[Needs], known: Iterable[Dim]) -> tuple[Needs, ...]:
    """Needs in the symbols that are known, the other ones count as positive; a few ways at most."""
    symbols = frozenset(known)
    found = least(frozenset(n for n in each if symbols.issuperset(free_dims(n))) for each in needs)
    return found if len(found) <= MOST_NEEDS else (frozenset[DimLike].intersection(*found),)


@dataclass(frozen=True)
class _Unit:
    """Kernels that run together, as what they do besides writing results, and the buffers that they read and write."""

    stmt: Stmt
    effects: tuple[Needs, ...]
    reads: frozenset[Buffer]
    writes: tuple[Buffer, ...]
    scratch: tuple[Buffer, ...]


@dataclass(frozen=True)
class Demand:
    """What must be positive for each temporary to be needed, and for a kernel to be called where its results are not.

    Attributes:
        buffers: the needs of temporaries; those that are left out are always needed.
        guards: the needs of kernel calls that would do something for nobody, by the identity of the statement.
    """

    buffers: Mapping[Buffer, tuple[Needs, ...]]
    guards: Mapping[int, tuple[Needs, ...]]

    def guarded(self, stmt: Stmt, known: frozenset[Dim]) -> Stmt:
        """A host program's statement in which such kernels are called where something needs them."""
        if isinstance(stmt, Seq):
            parts: list[Stmt] = []
            for s in stmt.stmts:
                parts.append(self.guarded(s, known))
                known |= symbols_after(s)
            return Seq(tuple(parts))
        if isinstance(stmt, If):
            other = None if stmt.other is None else self.guarded(stmt.other, known)
            return If(stmt.cond, self.guarded(stmt.then, known), other)
        if isinstance(stmt, While | For):
            return replace(stmt, body=self.guarded(stmt.body, known))
        found = known_needs(self.guards.get(id(stmt), ALWAYS), known)
        return stmt if frozenset() in found else If(any_met(found), stmt)


def demand(func: PrimFunc, programs: Mapping[str, PrimFunc]) -> Demand:
    """What a host program's temporaries are needed for."""
    roots = _roots(func.body)
    called = {c.callee for c in walk(func.body) if isinstance(c, CallKernel)}
    kernels = {name: (programs[name], effects_besides(programs[name])) for name in called}
    units = tuple(_units(func.body, kernels))
    read = {r for u in units for b in (*u.reads, *u.scratch) for r in roots.get(b, ())}
    elsewhere = {r for b in _used_elsewhere(func.body) for r in roots.get(b, ())}
    used: dict[Buffer, tuple[Needs, ...]] = {}
    for r in {r for found in roots.values() for r in found}:
        used[r] = ALWAYS if r in elsewhere or r not in read else ()

    def active(u: _Unit) -> tuple[Needs, ...]:
        results = (positive(b.shape) | needs for b in u.writes for needs in _of(b, roots, used))
        return least((*u.effects, *results))

    changed = True
    while changed:
        changed = False
        for u in reversed(units):
            changed |= _note(used, u.reads, active(u), roots)
        if not changed:  # values that go round in loops, and that nothing reads in the end, are made all the same
            for u in units:
                changed |= not active(u) and _note(used, u.writes, ALWAYS, roots)
    needed = dict(used)
    guards: dict[int, tuple[Needs, ...]] = {}
    for u in units:
        now = active(u)
        if set(now) != set(least((*u.effects, *(positive(b.shape) for b in u.writes)))):
            guards[id(u.stmt)] = now
        _note(needed, (*u.writes, *u.scratch), now, roots)
    return Demand(needed, guards)


def _note(
    used: dict[Buffer, tuple[Needs, ...]],
    buffers: Iterable[Buffer],
    needs: tuple[Needs, ...],
    roots: Mapping[Buffer, frozenset[Buffer]],
) -> bool:
    """Add a use of buffers to those of the temporaries in whose memory they may lie; whether that is new."""
    new = False
    for r in dict.fromkeys(r for b in buffers for r in roots.get(b, ())):
        more = least((*used[r], *needs))
        new |= set(more) != set(used[r])
        used[r] = more
    return new


def _of(
    buffer: Buffer, roots: Mapping[Buffer, frozenset[Buffer]], used: Mapping[Buffer, tuple[Needs, ...]]
) -> tuple[Needs, ...]:
    """What must be positive for a buffer's contents to be used; those of results always are."""
    found = roots.get(buffer)
    return least(n for r in found for n in used[r]) if found else ALWAYS


def _roots(body: Stmt) -> dict[Buffer, frozenset[Buffer]]:
    """The temporaries in whose memory each buffer may lie."""
    found: dict[Buffer, frozenset[Buffer]] = {}
    for s in walk(body):
        if isinstance(s, AllocFrame):
            found[s.buffer] = frozenset({s.buffer})
        elif isinstance(s, Alias):
            found[s.buffer] = found.get(s.buffer, frozenset()) | found.get(s.source, frozenset())
    return found


def _units(stmt: Stmt, kernels: Mapping[str, tuple[PrimFunc, tuple[Needs, ...]]]) -> Iterator[_Unit]:
    """The kernel calls of a host program, in its order; ``kernels`` with what they do besides writing results."""
    if not isinstance(stmt, CallKernel | Together):
        for s in child_stmts(stmt):
            yield from _units(s, kernels)
        return
    effects: list[Needs] = []
    reads: list[Buffer] = []
    writes: list[Buffer] = []
    scratch: list[Buffer] = []
    for call in stmt.calls if isinstance(stmt, Together) else (stmt,):
        kernel, others = kernels[call.callee]
        values = dict(zip(kernel.dims, call.dims, strict=True))
        effects += (positive([substitute(e, values) for e in n]) for n in others)
        inputs = len(kernel.inputs)
        reads += call.args[:inputs]
        writes += call.args[inputs : inputs + kernel.outputs]
        scratch += call.args[inputs + kernel.outputs :]
    yield _Unit(stmt, tuple(effects), frozenset(reads), tuple(writes), tuple(scratch))


def _used_elsewhere(body: Stmt) -> Iterator[Buffer]:
    """Buffers that other statements than kernel calls look at, or fill."""
    for s in walk(body):
        if child_stmts(s):
            if not isinstance(s, Together):
                yield from (x.buffer for e in child_exprs(s) for x in walk_expr(e) if isinstance(x, Load))
        elif not isinstance(s, CallKernel | AllocFrame | OpenFrame | Alias):
            yield from buffers_of(s)
