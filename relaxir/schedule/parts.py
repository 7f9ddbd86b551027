"""Reductions in pieces: parts for threads, whose results are combined, and strips of columns that stay in cache.

Parts depend on extents alone, so that the result is the same for any number of threads.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

from relaxir.schedule.loops import Machine, nest, parallel, seq, vector
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, ceildiv, floordiv, is_const, mod
from relaxir.tir import (
    Alloc,
    Axis,
    BinOp,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    If,
    Scope,
    Stmt,
    Store,
    Var,
    as_expr,
    binary,
    const,
    identity,
    minimum,
)
from relaxir.tir.visit import substitute_vars

PARTS = 64  # of a reduction to one element: more than threads, so that they stay busy
LONG = 65536  # elements from which parts pay
ROW_PARTS = 8  # of a reduction over rows
TALL = 64  # rows from which such parts pay
NARROW = 2  # vectors of columns that stay in registers while the rows go by
STRIP_BYTES = 8192  # of a result while rows are added to it: it stays in the first-level cache

Strip = Callable[[Mapping[Var, Expr], Expr], Stmt]


def strip_lanes(lane: Axis, result: Buffer) -> int:
    """Columns of a strip."""
    size = STRIP_BYTES // info(result.dtype).bytes
    return min(size, max(1, int(lane.extent))) if is_const(lane.extent) else size


def strip_count(lane: Axis, result: Buffer) -> DimLike:
    """Number of strips of a column axis."""
    return ceildiv(lane.extent, strip_lanes(lane, result))


def strips(lane: Axis, result: Buffer, make: Strip) -> For:
    """A loop over strips of columns; ``make`` gets the column in terms of strip and ``lane.var``, and the width."""
    size, strip = strip_lanes(lane, result), Var("strip")
    whole = is_const(lane.extent) and int(lane.extent) % size == 0
    width = const(size) if whole else minimum(as_expr(lane.extent) - strip * size, const(size))
    return For(strip, as_expr(strip_count(lane, result)), make({lane.var: strip * size + lane.var}, width))


def down_columns(add: For, init: Stmt, over: Sequence[Axis], machine: Machine) -> Stmt:
    """Reduce rows into a row of results; what fits a vector or two stays in registers while the rows go by.

    before: ``y = init; for k: vector j < n: y[j] += x[k, j]``;
    after: ``if n <= 32: vector j < n: y[j] = init; for k: y[j] += x[k, j] else: vector j < n: y[j] = init; for k: ...``
    """
    many = seq(replace(add, body=init), nest(over, add))
    if isinstance(add.extent, Const) or not isinstance(add.body, Store):
        return many
    few = NARROW * machine.target.lanes(add.body.buffer.dtype)
    return If(add.extent <= const(few), replace(add, body=seq(init, nest(over, add.body))), many)


def element_in_parts(block: Block, lane: Axis, plain: Stmt) -> Stmt:
    """A reduction to one element; a short one stays ``plain``.

    before: ``y = 0; vector k < n: y += x[k]``;
    after: ``parallel p < 64: part[p] = 0; vector k < n // 64: part[p] += x[...]``, ``vector p < 64: y += part[p]``,
    and what is left of ``n``
    """
    store = block.body
    if not isinstance(store, Store) or store.combine is None or (is_const(lane.extent) and int(lane.extent) < LONG):
        return plain
    each, left = floordiv(lane.extent, PARTS), mod(lane.extent, PARTS)
    p, q, k, r = Axis(Var("part"), PARTS), Axis(Var("part"), PARTS), Axis(Var("k"), each), Axis(Var("k"), left)
    part = Buffer("parts", (PARTS,), store.buffer.dtype, Scope.STACK)

    def at(place: Expr) -> Expr:
        return substitute_vars(store.value, {lane.var: place})

    inner = vector(k, Store(part, (p.var,), at(p.var * as_expr(each) + k.var), store.combine))
    clear = Store(part, (p.var,), identity(store.combine, part.dtype))
    last = vector(q, Store(store.buffer, store.indices, part[q.var], store.combine))
    rest = vector(r, Store(store.buffer, store.indices, at(as_expr(each) * PARTS + r.var), store.combine))
    shared = For(p.var, const(PARTS), seq(clear, inner), ForKind.PARALLEL)
    parted = Alloc(part, seq(shared, block.init, last, rest if left != 0 else None))
    return parted if is_const(lane.extent) else If(as_expr(lane.extent) >= const(LONG), parted, plain)


def rows_in_parts(block: Block, lane: Axis, reduce: Axis, plain: Stmt, machine: Machine) -> Stmt:
    """A reduction over rows, by eighths of the rows for threads; few rows or elements stay ``plain``.

    Each thread reads its rows from end to end: halves of rows for each would be twice the way through memory.

    before: ``vector j: y[j] = 0; for k < n: vector j: y[j] += x[k, j]``; after::

        parallel p < 8: vector j: part[p, j] = 0; for k < n // 8: vector j: part[p, j] += x[p*(n//8)+k, j]
        parallel strips: y[j] = 0; for p < 8: y[j] += part[p, j]; for k < n % 8: y[j] += x[(n//8)*8+k, j]
    """
    store, init, j = block.body, block.init, lane.var
    if not isinstance(store, Store) or not isinstance(init, Store) or store.combine is None:
        return plain
    how = store.combine
    each, left = floordiv(reduce.extent, ROW_PARTS), mod(reduce.extent, ROW_PARTS)
    part = Buffer("parts", (ROW_PARTS, lane.extent), store.buffer.dtype)
    p, q, k, r = Axis(Var("part"), ROW_PARTS), Axis(Var("part"), ROW_PARTS), Axis(Var("k"), each), Axis(Var("k"), left)

    def lanes(width: Expr, body: Stmt) -> For:
        return For(j, width, body, ForKind.VECTOR)

    def own(at: Mapping[Var, Expr], width: Expr) -> Stmt:
        place = (p.var, at[j])
        clear = Store(part, place, identity(how, part.dtype))
        value = substitute_vars(store.value, {**at, reduce.var: p.var * as_expr(each) + k.var})
        return down_columns(lanes(width, Store(part, place, value, how)), clear, (k,), machine)

    def total(at: Mapping[Var, Expr], width: Expr) -> Stmt:
        indices = tuple(substitute_vars(i, at) for i in store.indices)
        value = substitute_vars(store.value, {**at, reduce.var: as_expr(each) * ROW_PARTS + r.var})
        return seq(
            lanes(width, substitute_vars(init, at)),
            nest((q,), lanes(width, Store(store.buffer, indices, part[q.var, at[j]], how))),
            nest((r,), lanes(width, Store(store.buffer, indices, value, how))) if left != 0 else None,
        )

    shared = parallel((p,), strips(lane, part, own), machine)
    last = strips(lane, part, total)
    parted = Alloc(part, seq(shared, parallel((Axis(last.var, strip_count(lane, part)),), last.body, machine)))
    rows, columns = as_expr(reduce.extent), as_expr(lane.extent)
    worth = binary(BinOp.AND, rows >= const(TALL), rows * columns >= const(LONG))
    return (parted if worth.value else plain) if isinstance(worth, Const) else If(worth, parted, plain)
