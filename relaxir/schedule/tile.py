"""The register tile of a contraction: accumulators, the loop over the reduced axes, and the stores with their epilogue.

A tile has rows (scalars broadcast to all lanes) and lanes (vectors). Every size is constant within a tile, the number
of rows by a `Switch`, so accumulators live in registers.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass, replace

from relaxir.cost import operations
from relaxir.schedule.loops import loop, seq
from relaxir.sym import DimLike, dim, floordiv, is_const, mod
from relaxir.tir import (
    Alloc,
    Axis,
    Binary,
    BinOp,
    Buffer,
    Combine,
    Const,
    Expr,
    For,
    ForKind,
    If,
    Let,
    Load,
    Scope,
    Select,
    Stmt,
    Store,
    Switch,
    Var,
    as_expr,
    const,
    identity,
)
from relaxir.tir.access import variables_of
from relaxir.tir.visit import map_expr, map_stmt, reads_of, stores_of, walk, walk_expr

SHORT = 8  # operations of an epilogue that is expanded in every tile
CHAINS = 8  # independent multiply-adds that hide their latency: 4 cycles on 2 units

At = Callable[[Expr, Expr, Expr], Expr]


@dataclass(frozen=True, slots=True)
class Epilogue:
    """What happens to a finished element: values in order, each named, and the stores that keep some of them.

    ``values`` are (name, value) pairs over the contraction's own axis variables, a value may use earlier names; the
    first name is the accumulated sum. ``stores`` write names.
    """

    values: tuple[tuple[Var, Expr], ...]
    stores: tuple[Store, ...]


@dataclass(frozen=True, slots=True)
class TileSpec:
    """One contraction ready for tiling.

    Attributes:
        scalar: the factor without the lane axis, over the block's variables.
        vector: the factor with the lane axis.
        at: substitutes row and lane positions into an expression: ``at(expr, row, lane)``.
        reduce: reduce axes, outermost first.
        lanes: vector elements of a row.
        epilogue: what to do with each sum.
        shared: whether all rows of a tile use the same vectors (they are then loaded once per step).
        unroll: steps of the innermost reduce loop per iteration.
        prefetch: a statement per unrolled iteration, given its number, or None.
        product: of scalar and vector, what is summed.
        tail: what is left after the reduced axes: one more axis, scalar, vector; or None.

    """

    scalar: Expr
    vector: Expr
    at: At
    reduce: tuple[Axis, ...]
    lanes: int
    epilogue: Epilogue
    shared: bool = True
    unroll: int = 4
    prefetch: Callable[[Expr], Stmt] | None = None
    product: Callable[[Expr, Expr], Expr] = operator.mul
    tail: tuple[Axis, Expr, Expr] | None = None


def accumulator_sets(rows: int, vectors: int) -> int:
    """How many accumulator sets along the reduced axis keep the multiply-add units busy for few rows."""
    sets = 1
    while rows * vectors * sets < CHAINS and sets < 4:
        sets *= 2
    return sets


def switch_rows(rows: Expr, most: int, vectors: int, make: Callable[[DimLike, int], Stmt], least: int = 1) -> Stmt:
    """Make a tile for each possible number of rows, those with equally many accumulator sets in one `Switch`.

    Args:
        rows: the number of rows at run time, between ``least`` and ``most``.
        most: largest number of rows.
        vectors: vector registers per row, which decides how many accumulator sets are needed.
        make: ``make(rows, sets)`` builds the tile; ``rows`` is an int or a symbol that the `Switch` binds.
        least: smallest number of rows.

    """
    if isinstance(rows, Const):
        count = int(rows.value)
        return make(count, accumulator_sets(count, vectors))
    groups: dict[int, list[int]] = {}
    for count in range(least, most + 1):
        groups.setdefault(accumulator_sets(count, vectors), []).append(count)
    cases = []
    for sets, counts in groups.items():
        symbol = dim("r", min=counts[0], max=counts[-1])
        cases.append(Switch(rows, symbol, counts[0], counts[-1] + 1, make(symbol, sets)))
    return seq(*cases)


def tiles(
    spec: TileSpec, rows: Expr, heights: tuple[int, int], vectors: int, bound: Callable[[Expr, Expr], Expr] | None
) -> Stmt:
    """Make a tile of a run-time number of rows, whose smallest and largest value is known.

    A long epilogue is written once, behind the cases for each height, and works on sums kept on the stack: expanded in
    every case it would fill the instruction cache. A short one works on the registers of each case.
    """
    least, most = heights
    if sum(operations(value) for _, value in spec.epilogue.values) <= SHORT:
        return switch_rows(rows, most, vectors, lambda r, sets: tile(spec, r, sets, bound), least)
    kept = Buffer("sums", (most, spec.lanes), spec.epilogue.values[0][0].dtype, Scope.STACK)
    cases = switch_rows(rows, most, vectors, lambda r, sets: tile(spec, r, sets, bound, kept), least)
    return Alloc(kept, seq(cases, _finish(spec, lambda i, j: kept[i, j], rows, bound, ForKind.SERIAL)))


def tile(
    spec: TileSpec,
    rows: DimLike,
    sets: int,
    bound: Callable[[Expr, Expr], Expr] | None,
    kept: Buffer | None = None,
) -> Stmt:
    """Make the statements of one tile.

    Args:
        spec: the contraction.
        rows: number of rows, an int or a symbol bound by a `Switch` around the tile.
        sets: accumulator sets along the reduced axis.
        bound: for a partial tile, which lanes exist, given row and lane; None when all do.
        kept: where to put the sums instead of finishing them here.
    """
    dtype = spec.epilogue.values[0][0].dtype
    many = is_const(spec.reduce[-1].extent) and int(spec.reduce[-1].extent) < spec.unroll
    sets = 1 if many else min(sets, spec.unroll)
    acc = Buffer("acc", (sets, rows, spec.lanes), dtype, Scope.REGISTER)
    s, i, j = Var("s"), Var("i"), Var("j")
    zero = Store(acc, (s, i, j), identity(Combine.SUM, dtype))
    clear = loop(s, sets, loop(i, rows, _lanes(j, spec, zero), ForKind.UNROLL), ForKind.UNROLL)
    merge: Stmt | None = None
    if sets > 1:
        i, j = Var("i"), Var("j")
        total: Expr = acc[const(0), i, j]
        for n in range(1, sets):
            total = total + acc[const(n), i, j]
        merge = loop(i, rows, _lanes(j, spec, Store(acc, (const(0), i, j), total)), ForKind.UNROLL)
    if kept is None:
        last = _finish(spec, lambda i, j: acc[const(0), i, j], rows, bound, ForKind.UNROLL)
    else:
        i, j = Var("i"), Var("j")
        last = loop(i, rows, _lanes(j, spec, Store(kept, (i, j), acc[const(0), i, j])), ForKind.UNROLL)
    return Alloc(acc, seq(clear, _reduction(spec, acc, rows, sets), merge, last))


def _lanes(var: Var, spec: TileSpec, body: Stmt) -> Stmt:
    return For(var, const(spec.lanes), body, ForKind.VECTOR)


def _step(spec: TileSpec, acc: Buffer, rows: DimLike, number: int, mapping: dict[Var, Expr]) -> Stmt:
    """One value of the reduced axis for all rows: load the vectors once, then one multiply-add per row."""
    i, j = Var("i"), Var("j")
    scalar, vector = _swap(spec.scalar, mapping), _swap(spec.vector, mapping)
    indices = (const(number), i, j)
    if not spec.shared:
        product = spec.product(spec.at(scalar, i, j), spec.at(vector, i, j))
        return loop(i, rows, _lanes(j, spec, Store(acc, indices, product, Combine.SUM)), ForKind.UNROLL)
    held = Buffer("column", (spec.lanes,), vector.dtype, Scope.REGISTER)
    lane = Var("j")
    load = _lanes(lane, spec, Store(held, (lane,), spec.at(vector, const(0), lane)))
    product = spec.product(spec.at(scalar, i, j), held[j])
    body = loop(i, rows, _lanes(j, spec, Store(acc, indices, product, Combine.SUM)), ForKind.UNROLL)
    return Alloc(held, seq(load, body))


def _swap(expr: Expr, mapping: dict[Var, Expr]) -> Expr:
    return map_expr(expr, lambda e: mapping.get(e, e) if isinstance(e, Var) else e)


def _reduction(spec: TileSpec, acc: Buffer, rows: DimLike, sets: int) -> Stmt:
    *outer, last = spec.reduce
    unroll = spec.unroll
    if is_const(last.extent) and int(last.extent) <= unroll:
        steps = [_step(spec, acc, rows, n % sets, {last.var: const(n)}) for n in range(int(last.extent))]
        body = seq(*steps)
    else:
        whole, k = floordiv(last.extent, unroll), Var(last.var.name)
        steps = [_step(spec, acc, rows, n % sets, {last.var: k * unroll + n}) for n in range(unroll)]
        hint = spec.prefetch(k) if spec.prefetch is not None else None
        main = loop(k, whole, seq(hint, *steps))
        rest, t = mod(last.extent, unroll), Var(last.var.name)
        tail = None
        if rest != 0:
            tail = loop(t, rest, _step(spec, acc, rows, 0, {last.var: as_expr(whole) * unroll + t}))
        body = seq(main, tail)
    for axis in reversed(outer):
        body = loop(axis.var, axis.extent, body)
    if spec.tail is None:
        return body
    axis, scalar, vector = spec.tail
    return seq(body, loop(axis.var, axis.extent, _step(replace(spec, scalar=scalar, vector=vector), acc, rows, 0, {})))


def _finish(
    spec: TileSpec,
    total: Callable[[Expr, Expr], Expr],
    rows: DimLike | Expr,
    bound: Callable[[Expr, Expr], Expr] | None,
    kind: ForKind,
) -> Stmt:
    """Epilogue and stores of a tile's rows; ``total`` gives the sum at a row and lane."""
    i, j = Var("i"), Var("j")

    def lanes(guard: Expr | None) -> Stmt:
        body = finish_element(spec.epilogue, total(i, j), lambda e: spec.at(e, i, j), guard)
        return hoisted(_lanes(j, spec, body))

    whole = lanes(None)
    if bound is None:
        return loop(i, rows, whole, kind)
    part, last = lanes(bound(i, j)), const(spec.lanes - 1)
    if spec.shared:  # all rows end at the same lane
        return If(bound(const(0), last), loop(i, rows, whole, kind), loop(i, rows, part, kind))
    return loop(i, rows, If(bound(i, last), whole, part), kind)


def finish_element(epilogue: Epilogue, total: Expr, at: Callable[[Expr], Expr], guard: Expr | None = None) -> Stmt:
    """Values and stores of one finished element.

    Args:
        epilogue: what to compute and store.
        total: the sum; it is read outside the guard, so that it may stay in registers.
        at: places the contraction's axes.
        guard: whether the element exists; None if it does.
    """
    (place, _), *values = epilogue.values
    body: Stmt = seq(*(Store(s.buffer, tuple(at(x) for x in s.indices), s.value, s.combine) for s in epilogue.stores))
    for name, value in reversed(values):
        body = Let(name, at(value), body)
    return Let(place, total, body if guard is None else If(guard, body))


def hoisted(stmt: Stmt) -> Stmt:
    """Read what all lanes share in front of the vector loop: a guard on lanes would make each lane read it.

    before: ``vector j: if j < n: y[i, j] = s[j] + b[i]``;
    after: ``let v = b[i]: vector j: if j < n: y[i, j] = s[j] + v``
    """
    bound = {s.var for s in walk(stmt) if isinstance(s, For | Let)}
    written = {s.buffer for s in stores_of(stmt)}
    shared: dict[Load, Var] = {}
    for load in reads_of(stmt):
        free = not variables_of(load) & bound and load.buffer not in written
        if free and not any(isinstance(e, Load) for i in load.indices for e in walk_expr(i)):
            shared.setdefault(load, Var(load.buffer.name, load.dtype))
    body = map_stmt(stmt, on_expr=lambda e: shared.get(e, e) if isinstance(e, Load) else e)
    for load, name in shared.items():
        body = Let(name, load, body)
    return body


def masked(vector: Expr, inside: Expr) -> Expr:
    """Guard a value so that a lane that does not exist contributes nothing and reads nothing."""
    return Select(inside, vector, identity(Combine.SUM, vector.dtype))


def packed_lanes(load: Load, lane: Axis) -> int:
    """Lanes of a packed panel ``w[..., lane // n, ..., lane % n]``, or 0 if the load is not of this form.

    The panel index may be missing where the axis has one panel only.
    """
    if not load.indices:
        return 0
    last = load.indices[-1]
    if not (isinstance(last, Binary) and last.op is BinOp.MOD and last.a is lane.var and isinstance(last.b, Const)):
        return 0
    width = int(last.b.value)
    single = is_const(lane.extent) and int(lane.extent) <= width
    panel = single or any(_is_panel(x, lane.var, width) for x in load.indices[:-1])
    return width if panel and load.buffer.shape[-1] == width else 0


def _is_panel(x: Expr, lane: Var, width: int) -> bool:
    return (
        isinstance(x, Binary)
        and x.op is BinOp.FLOORDIV
        and x.a is lane
        and isinstance(x.b, Const)
        and int(x.b.value) == width
    )


def panel_at(lane: Var, panel: Expr, width: int, row: Var | None, first: Expr) -> At:
    """Substitution for tiles: lane axis = ``panel * width + j``, row axis = ``first + i``; packed indices simplify."""

    def at(expr: Expr, i: Expr, j: Expr) -> Expr:
        def swap(e: Expr) -> Expr:
            if isinstance(e, Binary) and isinstance(e.b, Const) and e.b.value == width and e.a is marker:
                if e.op is BinOp.FLOORDIV:
                    return panel
                if e.op is BinOp.MOD:
                    return j
            return e

        marker = panel * width + j
        mapping: dict[Var, Expr] = {lane: marker}
        if row is not None:
            mapping[row] = first + i
        return map_expr(_swap(expr, mapping), swap)

    return at
