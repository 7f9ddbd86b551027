"""Contractions in panels of lanes and blocks of rows, split over threads, around register tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from relaxir.schedule.dot import schedule_dot
from relaxir.schedule.loops import Machine, loop, nest, parallel, seq
from relaxir.schedule.one_row import one_row
from relaxir.schedule.panel_job import PanelJob, width_of
from relaxir.schedule.prefetch import next_panel
from relaxir.schedule.roles import Roles, Tail
from relaxir.schedule.row_blocks import ONE_ROW, RowBlocks, Rows, split_rows
from relaxir.schedule.rows_after import RowsAfter
from relaxir.schedule.streams import FEW_ROWS
from relaxir.schedule.tile import Epilogue, accumulator_sets, masked, packed_lanes, panel_at, tiles
from relaxir.support.dtypes import info
from relaxir.sym import ceildiv, is_const, product
from relaxir.tir import (
    Alloc,
    Axis,
    Buffer,
    Expr,
    For,
    ForKind,
    If,
    Let,
    Load,
    Scope,
    Stmt,
    Store,
    Var,
    as_expr,
    binary,
    const,
    eq,
)
from relaxir.tir.access import loads_of, variables_of
from relaxir.tir.expr import BinOp
from relaxir.tir.visit import substitute_vars

CACHE_BYTES = 262144  # part of the second-level cache that a block of rows may fill


def schedule_contraction(
    roles: Roles, epilogue: Epilogue, machine: Machine, panels_first: bool = False, after: RowsAfter | None = None
) -> Stmt:
    """Loops over outer axes, row blocks and panels, split over threads, around register tiles.

    Args:
        roles: which axis plays which part.
        epilogue: what follows each sum.
        machine: target and configuration.
        panels_first: a panel stays in cache while the outer axes run, not the rows while the panels do.
        after: what follows each block of rows (there is an axis of rows then, with as many as it asks for).

    """
    job = PanelJob(roles, epilogue, machine, width_of(roles, machine))
    row = roles.row
    panels = Axis(Var("panel"), ceildiv(roles.lane.extent, job.width))
    one = one_row(job, panels_first) if roles.packed else None
    if row is None or row.extent == 1:
        if one is not None:
            return one
        return parallel((*roles.outer, panels), _panel(job, panels.var, ONE_ROW), machine)
    dotted = roles.on_the_fly and roles.tail is None and not is_const(row.extent) and roles.contiguous
    fewest = 2 if one is not None else FEW_ROWS + 1 if dotted else 1
    if after is not None:
        many = _with_rows(job, panels, after, fewest)
    else:
        blocks = split_rows(row.extent, _block_rows(job), machine.config.mr, fewest)
        body = blocks.named(_panel(job, panels.var, blocks.rows))
        order = (*_around(roles), blocks.axis, *_within(roles), panels)
        many = parallel((panels, *order[:-1]) if panels_first else order, body, machine)
    if dotted:
        return If(as_expr(row.extent) <= const(FEW_ROWS), schedule_dot(roles, epilogue, machine), many)
    if one is None or is_const(row.extent) or (after is not None and after.fewest > 1):
        return many
    return If(eq(as_expr(row.extent), const(1)), one if after is None else seq(one, after.alone), many)


def same_sums(roles: Roles, epilogue: Epilogue, machine: Machine, after: RowsAfter) -> bool:
    """Whether sums are the same for any number of threads: blocks depend on it, low tiles sum in another order."""
    job = PanelJob(roles, epilogue, machine, width_of(roles, machine))
    lowest = _blocks_with_rows(job, after, 1).rows.least
    return after.threads == 1 or accumulator_sets(lowest, job.vectors) == 1


def _with_rows(job: PanelJob, panels: Axis, after: RowsAfter, fewest: int) -> Stmt:
    """All panels of a block of rows, then what follows these rows."""
    roles, machine = job.roles, job.machine
    blocks = _blocks_with_rows(job, after, fewest)
    tiles = nest((panels,), _panel(job, panels.var, blocks.rows))
    body = blocks.named(nest(_within(roles), seq(tiles, after.of(blocks.rows))))
    return parallel((*_around(roles), blocks.axis), body, machine)


def _blocks_with_rows(job: PanelJob, after: RowsAfter, fewest: int) -> RowBlocks:
    """Blocks whose rows and results both stay in cache."""
    mr, block = job.machine.config.mr, min(_block_rows(job), after.block)
    if after.threads > 1:  # a thread that is late leaves less to wait for
        block = max(mr, block // 2)
    return split_rows(after.place.extent, block, mr, max(fewest, after.fewest), after.threads)


def _around(roles: Roles) -> tuple[Axis, ...]:
    """Outer axes that move the scalar factor: they stay outside the row blocks."""
    moving = variables_of(roles.scalar)
    return tuple(a for a in roles.outer if a.var in moving)


def _within(roles: Roles) -> tuple[Axis, ...]:
    """Outer axes that leave the scalar factor alone: a block of its rows stays in cache while they run."""
    moving = variables_of(roles.scalar)
    return tuple(a for a in roles.outer if a.var not in moving)


def _block_rows(job: PanelJob) -> int:
    """Rows of the scalar factor that fit the second-level cache, in whole tiles."""
    most, mr = job.machine.config.block, job.machine.config.mr
    depth = product(a.extent for a in job.roles.reduce)
    if not is_const(depth) or job.roles.packed:
        return most
    fitting = CACHE_BYTES // max(1, int(depth) * info(job.roles.scalar.dtype).bytes)
    return max(mr, min(most, fitting // mr * mr))


def _panel(job: PanelJob, panel: Var, rows: Rows) -> Stmt:
    """All tiles of some rows of one panel."""
    if job.roles.on_the_fly:
        return _pack_panel(job, panel, rows)
    if job.exact:
        return _rows(job, panel, rows, None)

    def inside(_: Expr, j: Expr) -> Expr:
        return panel * job.width + j < job.columns

    in_range = job.roles.lane.var < job.columns
    roles = job.roles
    if roles.lane.var in variables_of(roles.scalar):  # a batch axis as lanes: both factors have a tail
        roles = replace(roles, scalar=masked(roles.scalar, in_range))
    if roles.packed or roles.padded:
        return _rows(replace(job, roles=roles), panel, rows, inside)
    roles = replace(roles, vector=masked(roles.vector, in_range), tail=_masked_tail(roles.tail, in_range))
    partial = _rows(replace(job, roles=roles), panel, rows, inside)
    if is_const(job.roles.lane.extent) and int(job.roles.lane.extent) < job.width:
        return partial
    full = job.columns >= panel * job.width + job.width
    return If(full, _rows(job, panel, rows, None), partial)


def _masked_tail(tail: Tail | None, inside: Expr) -> Tail | None:
    return None if tail is None else replace(tail, vector=masked(tail.vector, inside))


def _rows(job: PanelJob, panel: Var, rows: Rows, inside: Callable[[Expr, Expr], Expr] | None) -> Stmt:
    """Tiles of some rows of one panel, split as evenly as the tile height allows.

    Seven rows become tiles of three and four, not six and one: both keep the multiply-add units busy.
    """
    roles, config = job.roles, job.machine.config
    first, t, height = Var("first"), Var("tile"), Var("height")
    row = roles.row.var if roles.row is not None and roles.row.extent != 1 else None
    at = panel_at(roles.lane.var, panel, job.width, row, first)
    spec = job.spec(at, shared=True)
    if row is None:
        only = {roles.row.var: const(0)} if roles.row is not None else {}
        return substitute_vars(tiles(spec, const(1), (1, 1), job.vectors, inside), only)
    if roles.packed and len(roles.reduce) == 1 and any(packed_lanes(e, roles.lane) for e in loads_of(roles.vector)):
        spec = replace(spec, prefetch=next_panel(job, at, panel, t, rows))

    count = rows.count
    number = binary(BinOp.FLOORDIV, count + (config.mr - 1), const(config.mr))
    begin = binary(BinOp.FLOORDIV, t * count, number)
    heights = (rows.least, rows.most)
    if rows.least == rows.most:
        cases = tiles(spec, const(rows.most), heights, job.vectors, inside)
    else:
        size = binary(BinOp.FLOORDIV, (t + 1) * count, number) - begin
        cases = Let(height, size, tiles(spec, height, heights, job.vectors, inside))
    return loop(t, number, Let(first, rows.start + begin, cases))


def _pack_panel(job: PanelJob, panel: Var, rows: Rows) -> Stmt:
    """Copy one panel of the vector factor to the stack, lanes contiguous, then run the tiles on it."""
    roles, width, j = job.roles, job.width, Var("j")
    lane = roles.lane
    store = Buffer("packed", (*(a.extent for a in roles.reduce), width), roles.vector.dtype, Scope.STACK)
    reduce = tuple(replace(a, var=Var(a.var.name)) for a in roles.reduce)
    rename: dict[Var, Expr] = {a.var: b.var for a, b in zip(roles.reduce, reduce, strict=True)}
    at = panel_at(lane.var, panel, width, None, const(0))

    def fill(value: Expr) -> Stmt:
        copy = Store(store, (*(a.var for a in reduce), j), at(substitute_vars(value, rename), const(0), j))
        return nest(reduce, For(j, const(width), copy, ForKind.VECTOR))

    copied = fill(roles.vector)
    if not job.exact:
        full = panel * width + width <= job.columns
        copied = If(full, copied, fill(masked(roles.vector, lane.var < job.columns)))
    lanes = binary(BinOp.MOD, lane.var, const(width))
    tail = roles.tail if job.exact else _masked_tail(roles.tail, lane.var < job.columns)
    packed = replace(roles, vector=Load(store, (*(a.var for a in roles.reduce), lanes)), on_the_fly=False, tail=tail)

    def inside(_: Expr, lane_index: Expr) -> Expr:
        return panel * width + lane_index < job.columns

    tiles = _rows(replace(job, roles=packed), panel, rows, None if job.exact else inside)
    return Alloc(store, seq(copied, tiles))
