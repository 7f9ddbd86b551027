"""The loop nest of one stage: which axis becomes the vector axis, and where a reduction's init goes."""

from __future__ import annotations

from dataclasses import dataclass

from relaxir.schedule.loops import FEW_POINTS, Machine, chunked_vector, loop, nest, parallel, seq, singly, vector
from relaxir.schedule.parts import down_columns, element_in_parts, rows_in_parts, strip_count, strips
from relaxir.support.dtypes import info
from relaxir.support.errors import InternalError
from relaxir.sym import DimLike, ceildiv, is_const, product
from relaxir.tir import (
    Alloc,
    Axis,
    AxisKind,
    Bcast,
    Binary,
    Block,
    Buffer,
    Call,
    Const,
    Expr,
    For,
    ForKind,
    If,
    Load,
    Scope,
    Select,
    Stmt,
    Store,
    Var,
    as_expr,
    const,
    eq,
    minimum,
)
from relaxir.tir.access import loads_of, stride
from relaxir.tir.expr import Size
from relaxir.tir.visit import all_exprs, child_exprs, map_stmt, substitute_vars

SHORT = 8  # a reduced axis shorter than this makes poor lanes
LIGHT = 2  # operations on looked-up elements that are not worth lanes
TILE = 16  # edge of a transposition tile: 16 cache lines in, 16 out


@dataclass(frozen=True, slots=True)
class Split:
    """Axes of a stage by role: ``outer`` spatial loops, the vector axis (or None), reduce loops around or inside it."""

    outer: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    lane: Axis | None
    tile: Axis | None = None

    @property
    def lane_reduces(self) -> bool:
        """Whether lanes are combined with each other."""
        return self.lane is not None and self.lane.kind is AxisKind.REDUCE


def _strides(store: Store, var: Var) -> tuple[DimLike | None, tuple[DimLike | None, ...]]:
    loads = loads_of(store.value)
    return stride(store, var), tuple(stride(e, var) for e in loads)


def choose_lane(block: Block, axes: tuple[Axis, ...]) -> Axis | None:
    """Choose the axis to vectorise, or None.

    In this order: a kept axis along which all memory is contiguous or constant; a long reduced axis of that kind; a
    kept axis along which at least the result is contiguous (loads are gathered); any reduced axis.
    """
    store = block.body
    if not isinstance(store, Store):
        return None
    kept: list[Axis] = []
    loose: list[Axis] = []
    long: list[Axis] = []
    short: list[Axis] = []
    for axis in reversed(axes):
        written, read = _strides(store, axis.var)
        even = all(s in (0, 1) for s in read)
        if axis.kind is AxisKind.SPATIAL and written == 1:
            (kept if even or not block_reduces(block) else loose).append(axis)
        elif axis.kind is AxisKind.REDUCE and written == 0 and read and even:
            (short if is_const(axis.extent) and int(axis.extent) < SHORT else long).append(axis)
    return next(iter((*kept, *long, *loose, *short)), None)


def block_reduces(block: Block) -> bool:
    """Whether the block has reduce axes."""
    return any(a.kind is AxisKind.REDUCE for a in block.axes)


def split_axes(block: Block, leading: int = 0) -> Split:
    """Sort a block's axes after the first ``leading`` ones by role."""
    axes = block.axes[leading:]
    lane = choose_lane(block, axes)
    outer = tuple(a for a in axes if a.kind is AxisKind.SPATIAL and a is not lane)
    reduce = tuple(a for a in axes if a.kind is AxisKind.REDUCE and a is not lane)
    return Split(outer, reduce, lane, _tile_axis(block, outer, lane))


def _tile_axis(block: Block, outer: tuple[Axis, ...], lane: Axis | None) -> Axis | None:
    """For a transposition: the outer axis along which a load is contiguous while it strides along the lanes."""
    if lane is None or not isinstance(block.body, Store) or block_reduces(block):
        return None
    for load in loads_of(block.body.value):
        if stride(load, lane.var) in (0, 1, None):
            continue
        for axis in outer:
            if stride(load, axis.var) == 1:
                return axis
    return None


def inner_body(block: Block, split: Split, machine: Machine) -> Stmt:
    """Everything below the outer loops: init, reduce loops, vector loop."""
    init, body = block.init, block.body
    if split.lane is None:
        return seq(init, nest(split.reduce, body))
    if not block_reduces(block):
        return singly(split.lane, body) if _looked_up(body, split.lane) else vector(split.lane, body)
    if split.lane_reduces:
        return seq(init, nest(split.reduce, vector(split.lane, body)))
    return _column_tiles(block, split, machine)


def _looked_up(body: Stmt, lane: Axis) -> bool:
    """Whether elements are copied, or little more, from places that are read themselves.

    Processors collect the lanes of a vector one by one: plain loads and stores do it in fewer instructions, unless what
    is computed from the elements gains by lanes.
    """
    if not isinstance(body, Store):
        return False
    found, work, todo = False, 0, [body.value]
    while todo:
        e = todo.pop()
        if isinstance(e, Load):
            found = found or (stride(e, lane.var) is None and any(loads_of(i) for i in e.indices))
        else:
            work += isinstance(e, Binary | Call | Select)
            todo += child_exprs(e)
    return found and work <= LIGHT


def _column_tiles(block: Block, split: Split, machine: Machine) -> Stmt:
    """A reduction with its lanes along a kept axis: few columns accumulate in registers, many in the result's memory.

    Memory is read in its own order then, row by row, which the processor's prefetching follows; a strip of the result
    stays in the first-level cache.

    before: ``vector j < n: y[j] = 0; for k: vector j < n: y[j] += x[k, j]``; after, for constant n up to 256::

        alloc s[n]: vector j: s[j] = 0; for k: vector j: s[j] += x[k, j]; vector j: y[j] = s[j]

    and else, in strips::

        for t < (n + 511) // 512: vector j < min(n - t*512, 512): y[t*512+j] = 0; for k: vector j: y[...] += x[...]
    """
    lane, store, init = split.lane, block.body, block.init
    if lane is None or not isinstance(store, Store) or not isinstance(init, Store):
        raise InternalError("column tiles of a stage that is no reduction")
    extent, j = lane.extent, lane.var
    if is_const(extent) and int(extent) <= _register_lanes(store.buffer, machine):
        acc = Buffer(store.buffer.name, (extent,), store.buffer.dtype, Scope.REGISTER)
        return Alloc(
            acc,
            seq(
                vector(lane, Store(acc, (j,), init.value)),
                nest(split.reduce, vector(lane, Store(acc, (j,), store.value, store.combine))),
                vector(lane, Store(store.buffer, store.indices, acc[j])),
            ),
        )
    return strips(
        lane,
        store.buffer,
        lambda at, width: down_columns(
            For(j, width, substitute_vars(store, at), ForKind.VECTOR), substitute_vars(init, at), split.reduce, machine
        ),
    )


def serial_nest(block: Block, machine: Machine, leading: int = 0) -> Stmt:
    """Write the stage as one thread's loops, its first ``leading`` axes being bound outside."""
    split = split_axes(block, leading)
    return guard_broadcast(nest(split.outer, inner_body(block, split, machine)), split.lane)


def parallel_nest(block: Block, machine: Machine) -> Stmt:
    """Write the stage with its independent loops split over threads."""
    split = split_axes(block)
    if split.tile is not None and split.lane is not None:
        return _tiled(block, split, machine)
    body = inner_body(block, split, machine)
    whole = machine.target.threads > 1 and split.lane is not None and not split.outer
    if whole and split.lane is not None and split.lane_reduces and not split.reduce:
        return guard_broadcast(element_in_parts(block, split.lane, body), split.lane)
    points = product(a.extent for a in split.outer)
    few = is_const(points) and int(points) <= FEW_POINTS
    if few and split.lane is not None and not block_reduces(block):
        return guard_broadcast(chunked_vector(split.lane, nest(split.outer, body), machine), split.lane)
    if split.lane is not None and split.reduce and isinstance(body, For) and isinstance(block.body, Store):
        count = Axis(body.var, strip_count(split.lane, block.body.buffer))
        plain = parallel((*split.outer, count), body.body, machine)
        if whole and len(split.reduce) == 1:
            plain = rows_in_parts(block, split.lane, split.reduce[0], plain, machine)
        return guard_broadcast(plain, split.lane)
    return guard_broadcast(parallel(split.outer, body, machine), split.lane)


def _tiled(block: Block, split: Split, machine: Machine) -> Stmt:
    """Write a transposition in square tiles, so that cache lines read with a stride are used whole.

    before: ``for i: vector j: y[i, j] = x[j, i]``; after: ``for it, jt: for i < 16: vector j < 16: y[...] = x[...]``,
    where a copy of 4-byte elements in a whole tile is unrolled squares of one vector, which stay in registers.
    """
    tile, lane = split.tile, split.lane
    assert tile is not None and lane is not None  # the caller looked
    starts: dict[Var, Expr] = {}
    blocks: list[Axis] = []
    rest: list[Expr] = []
    for axis in (tile, lane):
        at = Var(f"{axis.var.name}t")
        whole = is_const(axis.extent) and int(axis.extent) % TILE == 0
        rest.append(const(TILE) if whole else minimum(as_expr(axis.extent) - at * TILE, const(TILE)))
        blocks.append(Axis(at, ceildiv(axis.extent, TILE)))
        starts[axis.var] = at * TILE
    i, j = Var(tile.var.name), Var(lane.var.name)
    moved = substitute_vars(block.body, {tile.var: starts[tile.var] + i, lane.var: starts[lane.var] + j})
    body = loop(i, rest[0], loop(j, rest[1], moved, ForKind.VECTOR))
    store, lanes = block.body, machine.target.lanes("float32")
    copies = isinstance(store, Store) and isinstance(store.value, Load) and info(store.buffer.dtype).bytes == 4
    if isinstance(store, Store) and copies and 1 < lanes <= TILE:
        full = _squares(store, (tile, lane), starts, lanes)
        cut = tuple(a for a, r in zip((tile, lane), rest, strict=True) if not isinstance(r, Const))
        edge = _squares(store, (tile, lane), starts, lanes, cut) if cut else full
        for r in rest:
            full = full if isinstance(r, Const) else If(eq(r, const(TILE)), full, edge)
        body = full
    outer = tuple(a for a in split.outer if a is not tile)
    return guard_broadcast(parallel((*outer, *blocks), body, machine), lane)


def _squares(
    store: Store, axes: tuple[Axis, Axis], starts: dict[Var, Expr], lanes: int, cut: tuple[Axis, ...] = ()
) -> Stmt:
    """A tile in squares that the backend transposes in registers; along the axes ``cut`` it may be a part of one.

    before: ``for i < min(m - it*16, 16): vector j < min(n - jt*16, 16): y[i', j'] = x[j', i']``; after, at the edges,
    ``unroll i < 16: vector j < 16: if i' < m: if j' < n: y[i', j'] = x[min(j', n - 1), i']``
    """
    down, along, i, j = Var("down"), Var("along"), Var("i"), Var("j")
    tile, lane = axes
    at = {tile.var: starts[tile.var] + (down * lanes + i), lane.var: starts[lane.var] + (along * lanes + j)}
    read = {**at, lane.var: minimum(at[lane.var], as_expr(lane.extent) - 1)} if lane in cut else at
    indices = tuple(substitute_vars(e, at) for e in store.indices)
    body: Stmt = Store(store.buffer, indices, substitute_vars(store.value, read))
    for axis in (lane, tile):
        if axis in cut:
            body = If(at[axis.var] < as_expr(axis.extent), body)
    square = For(i, const(lanes), For(j, const(lanes), body, ForKind.VECTOR), ForKind.UNROLL)
    return loop(down, TILE // lanes, loop(along, TILE // lanes, square))


def _register_lanes(result: Buffer, machine: Machine) -> int:
    """Most columns that accumulate in registers: half of them."""
    return max(1, machine.target.vector_bytes * machine.target.registers // 2 // info(result.dtype).bytes)


def guard_broadcast(stmt: Stmt, lane: Axis | None) -> Stmt:
    """Two versions of a nest whose vector axis runs over a buffer axis that may be 1, so that lanes stay contiguous.

    before: ``vector j: y[j] = x[bcast(j, m)]``; after: ``if m == 1: ... x[0] ... else: ... x[j] ...``
    """
    if lane is None:
        return stmt
    found: dict[DimLike, None] = {}
    for e in all_exprs(stmt):
        if isinstance(e, Bcast):
            found.setdefault(e.extent)
    if not found or len(found) > 2:
        return stmt
    extent = next(iter(found))

    def version(one: bool) -> Stmt:
        def pick(e: Expr) -> Expr:
            if isinstance(e, Bcast) and e.extent == extent:
                return const(0) if one else e.index
            return e

        return guard_broadcast(map_stmt(stmt, on_expr=pick), lane)

    return If(eq(Size(extent), const(1)), version(True), version(False))
