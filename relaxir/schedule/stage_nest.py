"""The loop nest of one stage: which axis becomes the vector axis, and where a reduction's init goes."""

from __future__ import annotations

from dataclasses import dataclass

from relaxir.schedule.loops import FEW_POINTS, Machine, chunked_vector, loop, nest, parallel, seq, vector
from relaxir.sym import DimLike, ceildiv, is_const, product
from relaxir.tir import Axis, AxisKind, Bcast, Block, Expr, ForKind, If, Stmt, Store, Var, as_expr, const, eq, minimum
from relaxir.tir.access import loads_of, stride
from relaxir.tir.expr import Size
from relaxir.tir.visit import all_exprs, map_stmt, substitute_vars

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
    """Choose the axis whose neighbours are adjacent in what is written and read, else in what is written, else none."""
    store = block.body
    if not isinstance(store, Store):
        return None
    fallback: Axis | None = None
    for axis in reversed(axes):
        written, read = _strides(store, axis.var)
        if axis.kind is AxisKind.SPATIAL:
            if written != 1:
                continue
            if not block_reduces(block) or all(s in (0, 1) for s in read):
                return axis
            fallback = fallback or axis
        elif written == 0 and read and all(s in (0, 1) for s in read):
            return axis
    return fallback


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


def inner_body(block: Block, split: Split) -> Stmt:
    """Everything below the outer loops: init, reduce loops, vector loop."""
    init, body = block.init, block.body
    if split.lane is None:
        return seq(init, nest(split.reduce, body))
    if not block_reduces(block):
        return vector(split.lane, body)
    if split.lane_reduces:
        return seq(init, nest(split.reduce, vector(split.lane, body)))
    start = vector(split.lane, init) if init is not None else None
    return seq(start, nest(split.reduce, vector(split.lane, body)))


def serial_nest(block: Block, leading: int = 0) -> Stmt:
    """Write the stage as one thread's loops, its first ``leading`` axes being bound outside."""
    split = split_axes(block, leading)
    return guard_broadcast(nest(split.outer, inner_body(block, split)), split.lane)


def parallel_nest(block: Block, machine: Machine) -> Stmt:
    """Write the stage with its independent loops split over threads."""
    split = split_axes(block)
    if split.tile is not None and split.lane is not None:
        return _tiled(block, split, machine)
    body = inner_body(block, split)
    points = product(a.extent for a in split.outer)
    few = is_const(points) and int(points) <= FEW_POINTS
    if few and split.lane is not None and not split.lane_reduces:
        return guard_broadcast(chunked_vector(split.lane, nest(split.outer, body), machine), split.lane)
    return guard_broadcast(parallel(split.outer, body, machine), split.lane)


def _tiled(block: Block, split: Split, machine: Machine) -> Stmt:
    """Write a transposition in square tiles, so that cache lines read with a stride are used whole.

    before: ``for i: vector j: y[i, j] = x[j, i]``; after: ``for it, jt: for i < 16: vector j < 16: y[...] = x[...]``
    """
    tile, lane = split.tile, split.lane
    assert tile is not None and lane is not None  # the caller looked
    blocks: list[Axis] = []
    body: Stmt = block.body
    for axis, kind in ((lane, ForKind.VECTOR), (tile, ForKind.SERIAL)):
        at, inner = Var(f"{axis.var.name}t"), Var(axis.var.name)
        whole = is_const(axis.extent) and int(axis.extent) % TILE == 0
        extent: Expr = const(TILE) if whole else minimum(as_expr(axis.extent) - at * TILE, const(TILE))
        body = substitute_vars(body, {axis.var: at * TILE + inner})
        body = loop(inner, extent, body, kind)
        blocks.append(Axis(at, ceildiv(axis.extent, TILE)))
    outer = tuple(a for a in split.outer if a is not tile)
    return guard_broadcast(parallel((*outer, blocks[1], blocks[0]), body, machine), lane)


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
