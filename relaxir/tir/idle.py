"""Nests of loops, and whole kernels, in which nothing happens, because something that they need has no elements.

Before:
    for i in T.serial(n):
        for j in T.serial(m):
            y[i, j] = x[i, j] + z[j]
After:
    if m > 0:
        for i in T.serial(n):
            for j in T.serial(m):
                y[i, j] = x[i, j] + z[j]

No memory bounds ``n`` where ``m`` is 0: without the test, arrays of shape (2**42, 0) would take hours. A kernel whose
results are all empty does nothing at all, so that its scratch memory, which other extents may size, takes no bytes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, reduce
from operator import and_, or_
from typing import TypeAlias

from relaxir.sym import Dim, DimLike, Facts, Proof, counting_factors, evaluate, free_dims, max_, min_
from relaxir.tir.access import as_dim
from relaxir.tir.buffer import Buffer, Scope
from relaxir.tir.expr import Expr, as_expr
from relaxir.tir.func import PrimFunc
from relaxir.tir.stmt import Alloc, AxisKind, Block, For, ForKind, If, Let, Prefetch, Seq, Stmt, Store, Switch, While
from relaxir.tir.visit import child_stmts, walk

Needs: TypeAlias = frozenset[DimLike]
"""Extents that must all be positive for something to happen."""
Effect: TypeAlias = tuple[Stmt, Needs]
"""Something that happens, and what it needs."""


def without_idle_loops(func: PrimFunc) -> Stmt:
    """A kernel's body without idle nests; one with temporaries in memory is entered only where it does something."""
    body = without_idle_nests(func.body)
    large = func.workspaces or any(isinstance(s, Alloc) and s.buffer.scope is Scope.GLOBAL for s in walk(body))
    needs = needs_of(func) if large else (frozenset(),)
    return body if frozenset() in needs else If(any_met(needs), body)


def needs_of(func: PrimFunc) -> tuple[Needs, ...]:
    """What a kernel does that outlasts it, each as what it needs; one of these is empty where it always does something.

    A store needs that its buffer has elements, anything else what the loops around it need.
    """
    found = _effects(func.body, frozenset(), frozenset(func.scratch))
    return least(positive(s.buffer.shape) if isinstance(s, Store) else needs for s, needs in found) or (frozenset(),)


def effects_besides(func: PrimFunc) -> tuple[Needs, ...]:
    """What a kernel does besides writing its results, such as failing, each as what it needs."""
    if all(isinstance(s, Store | Prefetch) or child_stmts(s) for s in walk(func.body)):
        return ()
    return least(needs for s, needs in _effects(func.body, frozenset(), frozenset()) if not isinstance(s, Store))


def is_idle(func: PrimFunc, sizes: Mapping[str, int]) -> bool:
    """Whether a kernel with temporaries does nothing at these sizes: it touches no scratch memory then."""
    return func.workspaces > 0 and evaluate(happens(needs_of(func)), sizes) < 1


def positive(extents: Sequence[DimLike]) -> Needs:
    """What must be positive for all of the extents to be."""
    return frozenset[DimLike]().union(*map(_open, extents))


def least(found: Iterable[Needs]) -> tuple[Needs, ...]:
    """Those of which no other one needs less."""
    kept: list[Needs] = []
    for needs in dict.fromkeys(found):
        if not any(k <= needs for k in kept):
            kept = [*(k for k in kept if not needs <= k), needs]
    return tuple(kept)


def happens(found: Sequence[Needs]) -> DimLike:
    """1 where one of the needs is met, else at most 0."""
    return max_(*(min_(*sorted(needs, key=str), 1) for needs in found))


def without_idle_nests(stmt: Stmt) -> Stmt:
    """A kernel's body in which a nest of loops is entered only where something happens inside."""
    if isinstance(stmt, Seq):
        parts = tuple(map(without_idle_nests, stmt.stmts))
        return stmt if all(a is b for a, b in zip(parts, stmt.stmts, strict=True)) else Seq(parts)
    if isinstance(stmt, Block):
        return _guarded(stmt, _block_effects(stmt, frozenset(), frozenset(), 1)) or stmt
    if isinstance(stmt, For):
        guarded = _guarded(stmt, _effects(stmt.body, frozenset(), frozenset()))
        if guarded is not None or stmt.kind not in (ForKind.SERIAL, ForKind.PARALLEL):
            return guarded or stmt
    if isinstance(stmt, If):
        then = without_idle_nests(stmt.then)
        other = None if stmt.other is None else without_idle_nests(stmt.other)
        return stmt if then is stmt.then and other is stmt.other else If(stmt.cond, then, other)
    if isinstance(stmt, For | Let | Alloc | Switch):
        body = without_idle_nests(stmt.body)
        return stmt if body is stmt.body else replace(stmt, body=body)
    return stmt


def _block_effects(block: Block, needs: Needs, local: frozenset[Buffer | Dim], first: int) -> Iterator[Effect]:
    """What a block does, and its needs; those of axes before ``first`` do not count."""
    axes = block.axes[first:]
    spatial = needs | positive([a.extent for a in axes if a.kind is AxisKind.SPATIAL])
    if block.init is not None:
        yield from _effects(block.init, spatial, local)
    yield from _effects(block.body, spatial | positive([a.extent for a in axes]), local)


def _effects(stmt: Stmt, needs: Needs, local: frozenset[Buffer | Dim]) -> Iterator[Effect]:
    """What a statement inside loops of these extents does to other memory than its own, and the needs of it."""
    if isinstance(stmt, For):
        extent = as_dim(stmt.extent)
        if extent is not None and local.isdisjoint(free_dims(extent)):
            needs |= _open(extent)
        yield from _effects(stmt.body, needs, local)
    elif isinstance(stmt, Block):
        yield from _block_effects(stmt, needs, local, 0)
    elif isinstance(stmt, Alloc):
        yield from _effects(stmt.body, needs, local | {stmt.buffer})
    elif isinstance(stmt, Switch):
        yield from _effects(stmt.body, needs, local | {stmt.dim})
    elif isinstance(stmt, Seq | Let | If | While):
        for part in child_stmts(stmt):
            yield from _effects(part, needs, local)
    elif not (isinstance(stmt, Prefetch) or (isinstance(stmt, Store) and stmt.buffer in local)):
        yield stmt, needs


@lru_cache(maxsize=4096)
def _open(extent: DimLike) -> Needs:
    """What must be positive for an extent to be: its factors, without those that always are."""
    facts, factors = Facts(free_dims(extent)), counting_factors(extent)
    if len(factors) > 1 and any(facts.prove_le(0, f) is not Proof.PROVED for f in factors):
        factors = (extent,)
    return frozenset(f for f in factors if facts.prove_le(1, f) is not Proof.PROVED)


def _guarded(nest: Stmt, found: Iterator[Effect]) -> Stmt | None:
    """The nest behind a test of what its effects need at least; None where one of them needs nothing."""
    needs = least(needs for _, needs in found)
    return None if not needs or frozenset() in needs else If(any_met(needs), nest)


def any_met(found: Sequence[Needs]) -> Expr:
    """Whether one of the needs, of which none is empty, is met."""
    tests = (reduce(and_, (as_expr(e) > 0 for e in sorted(needs, key=str))) for needs in found)
    return reduce(or_, tests)
