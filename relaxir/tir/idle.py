"""Nests of loops in which nothing happens, because inner loops have no iterations.

Before:
    for i in T.serial(n):
        for j in T.serial(m):
            y[i, j] = x[i, j] + z[j]
After:
    if m > 0:
        for i in T.serial(n):
            for j in T.serial(m):
                y[i, j] = x[i, j] + z[j]

No memory bounds ``n`` where ``m`` is 0: without the test, arrays of shape (2**42, 0) would take hours.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import reduce
from operator import and_, or_
from typing import TypeAlias

from relaxir.sym import Dim, DimLike, Facts, Proof, free_dims
from relaxir.tir.access import as_dim
from relaxir.tir.buffer import Buffer
from relaxir.tir.expr import as_expr
from relaxir.tir.stmt import Alloc, AxisKind, Block, For, ForKind, If, Let, Prefetch, Seq, Stmt, Store, Switch
from relaxir.tir.visit import child_stmts

Needs: TypeAlias = frozenset[DimLike]
"""Extents that must all be positive for something to happen."""


def without_idle_nests(stmt: Stmt) -> Stmt:
    """A kernel's body in which a nest of loops is entered only where something happens inside."""
    if isinstance(stmt, Seq):
        parts = tuple(map(without_idle_nests, stmt.stmts))
        return stmt if all(a is b for a, b in zip(parts, stmt.stmts, strict=True)) else Seq(parts)
    if isinstance(stmt, Block):
        return _guarded(stmt, _block_effects(stmt)) or stmt
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


def _block_effects(block: Block) -> Iterator[Needs]:
    """The needs of what a block does, beside those of its first axis."""
    axes = block.axes[1:]
    spatial = frozenset[DimLike]().union(*(_open(a.extent) for a in axes if a.kind is AxisKind.SPATIAL))
    if block.init is not None:
        yield from _effects(block.init, spatial, frozenset())
    yield from _effects(block.body, spatial.union(*(_open(a.extent) for a in axes)), frozenset())


def _effects(stmt: Stmt, needs: Needs, local: frozenset[Buffer | Dim]) -> Iterator[Needs]:
    """The needs of everything that a statement inside loops of these extents does to other memory than its own."""
    if isinstance(stmt, For):
        extent = as_dim(stmt.extent)
        if extent is not None and local.isdisjoint(free_dims(extent)):
            needs |= _open(extent)
        yield from _effects(stmt.body, needs, local)
    elif isinstance(stmt, Alloc):
        yield from _effects(stmt.body, needs, local | {stmt.buffer})
    elif isinstance(stmt, Switch):
        yield from _effects(stmt.body, needs, local | {stmt.dim})
    elif isinstance(stmt, Seq | Let | If):
        for part in child_stmts(stmt):
            yield from _effects(part, needs, local)
    elif not (isinstance(stmt, Prefetch) or (isinstance(stmt, Store) and stmt.buffer in local)):
        yield needs


def _open(extent: DimLike) -> Needs:
    """An extent, if it may be 0."""
    return frozenset() if Facts(free_dims(extent)).prove_le(1, extent) is Proof.PROVED else frozenset({extent})


def _guarded(nest: Stmt, found: Iterator[Needs]) -> Stmt | None:
    """The nest behind a test of what its effects need at least; None where one of them needs nothing."""
    least: list[Needs] = []
    for needs in found:
        if not any(k <= needs for k in least):
            least = [*(k for k in least if not needs <= k), needs]
    if not least or frozenset() in least:
        return None
    return If(reduce(or_, (reduce(and_, (as_expr(e) > 0 for e in sorted(n, key=str))) for n in least)), nest)
