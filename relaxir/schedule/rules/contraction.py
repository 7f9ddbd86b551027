"""Contractions: matrix products and batched ones; convolutions are in `relaxir.schedule.rules.windows`.

One axis gives the lanes of a register tile (contiguous in one factor, absent from the other), one its rows (the other
way round); the rest are loops. A factor that is not contiguous along any usable lane axis is packed panel by panel on
the fly.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from relaxir.schedule.dot import schedule_dot
from relaxir.schedule.epilogue import collect_epilogue
from relaxir.schedule.loops import Machine, loop, nest, parallel, seq
from relaxir.schedule.program import Program
from relaxir.schedule.quads import quad_roles
from relaxir.schedule.roles import Roles, Tail, assign_roles
from relaxir.schedule.row_blocks import ONE_ROW, RowBlocks, Rows, split_rows
from relaxir.schedule.rows_after import RowsAfter, follow_rows
from relaxir.schedule.stage_nest import parallel_nest
from relaxir.schedule.streams import FEW_ROWS, schedule_streams, stream_ranges
from relaxir.schedule.tile import At, Epilogue, TileSpec, accumulator_sets, masked, packed_lanes, panel_at, tiles
from relaxir.schedule.turning import Turned, turn_factors
from relaxir.schedule.variants import Way, variants
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, ceildiv, floordiv, is_const, product
from relaxir.tir import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Const,
    Expr,
    For,
    ForKind,
    If,
    Let,
    Load,
    Prefetch,
    Scope,
    Stmt,
    Store,
    Var,
    as_expr,
    binary,
    const,
    eq,
    minimum,
)
from relaxir.tir.access import loads_of, stride, variables_of
from relaxir.tir.classify import match_contraction
from relaxir.tir.expr import BinOp
from relaxir.tir.visit import substitute_vars

CACHE_BYTES = 262144  # part of the second-level cache that a block of rows may fill
LINE_BYTES = 64  # of a cache line
PACK_BYTES = 65536  # a panel packed on the stack: fits the second-level cache with room


@dataclass(frozen=True, slots=True)
class ContractionRule:
    """Register tiles for a contraction and the elementwise stages that follow it."""

    name: str = "contraction"

    def take(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> tuple[Stmt, int] | None:
        """Schedule the first stage and its epilogue; None if it is no contraction, or has no usable lanes."""
        block = stages[0]
        found = match_contraction(block) if isinstance(block, Block) else None
        if found is None:
            return None
        words = quad_roles(found)
        roles = assign_roles(found) if words is None else _fitting(words, machine)
        if roles is None:
            return None
        dot = words is None and roles.on_the_fly and (_few_rows(roles) or not _fits_stack(roles, machine))
        turned, streams = (turn_factors(roles), stream_ranges(roles)) if words is None else (None, None)
        always = turned is not None and all(r.known for r in turned.pays)
        if dot and not always and not _contiguous(roles):
            return None
        epilogue, taken = collect_epilogue(program, found, stages[1:])
        make = schedule_dot if dot else schedule_contraction
        ways: list[Way] = []
        if streams is not None:
            ways.append((streams, lambda: schedule_streams(roles, epilogue, machine)))
        if turned is not None:
            ways.append((turned.pays, lambda: _on_copies(turned, epilogue, machine)))

        def product() -> Stmt:
            return variants(ways, lambda: make(roles, epilogue, machine))

        after = follow_rows(program, found, roles, epilogue, stages[1 + taken :], machine)
        if after is None or not _same_sums(roles, epilogue, machine, after):
            return product(), 1 + taken
        together = (after.ranges, lambda: schedule_contraction(roles, epilogue, machine, after=after))
        return variants([together], lambda: seq(product(), after.alone)), 1 + taken + len(after.group.blocks)


def _fitting(words: Roles, machine: Machine) -> Roles:
    """Roles of a product of bytes; its vector factor is packed first only where that pays."""
    return replace(words, on_the_fly=words.on_the_fly and not _few_rows(words) and _fits_stack(words, machine))


def _on_copies(turned: Turned, epilogue: Epilogue, machine: Machine) -> Stmt:
    """Fill the copies of the factors, then work on them."""
    fills = (parallel_nest(copy.fill, machine) for copy in turned.copies)
    body = seq(*fills, schedule_contraction(turned.roles, epilogue, machine))
    for copy in turned.copies:
        body = Alloc(copy.buffer, body)
    return body


def _few_rows(roles: Roles) -> bool:
    return roles.row is None or (is_const(roles.row.extent) and int(roles.row.extent) <= FEW_ROWS)


def _contiguous(roles: Roles) -> bool:
    """Whether both factors are contiguous (or constant) along the innermost reduced axis."""
    inner = roles.reduce[-1].var
    return all(stride(e, inner) in (0, 1) for e in (*loads_of(roles.scalar), *loads_of(roles.vector)))


def _width(roles: Roles, machine: Machine) -> int:
    return roles.packed or panel_width(roles.vector.dtype, roles.lane.extent, machine)


def panel_width(dtype: str, extent: DimLike, machine: Machine) -> int:
    """Lanes of a tile along an axis."""
    lanes = machine.target.lanes(dtype)
    width = -(-machine.config.nr // lanes) * lanes
    return max(lanes, min(width, -(-int(extent) // lanes) * lanes)) if is_const(extent) else width


def _fits_stack(roles: Roles, machine: Machine) -> bool:
    deep = product(a.extent for a in roles.reduce)
    size = info(roles.vector.dtype).bytes * _width(roles, machine)
    return is_const(deep) and int(deep) * size <= PACK_BYTES


@dataclass(frozen=True, slots=True)
class Job:
    """One contraction being scheduled: roles, what follows each sum, the machine, and the lanes of a tile."""

    roles: Roles
    epilogue: Epilogue
    machine: Machine
    width: int

    @property
    def vectors(self) -> int:
        """Vector registers of one row of a tile."""
        return max(1, self.width // self.machine.target.lanes(self.roles.vector.dtype))

    @property
    def exact(self) -> bool:
        """Whether every panel is full."""
        return is_const(self.roles.lane.extent) and int(self.roles.lane.extent) % self.width == 0

    @property
    def columns(self) -> Expr:
        """Extent of the lane axis."""
        return as_expr(self.roles.lane.extent)


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
    job = Job(roles, epilogue, machine, _width(roles, machine))
    row = roles.row
    panels = Axis(Var("panel"), ceildiv(roles.lane.extent, job.width))
    one = _one_row(job, panels_first) if roles.packed else None
    if row is None or row.extent == 1:
        if one is not None:
            return one
        return parallel((*roles.outer, panels), _panel(job, panels.var, ONE_ROW), machine)
    dotted = roles.on_the_fly and roles.tail is None and not is_const(row.extent) and _contiguous(roles)
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


def _with_rows(job: Job, panels: Axis, after: RowsAfter, fewest: int) -> Stmt:
    """All panels of a block of rows, then what follows these rows."""
    roles, machine = job.roles, job.machine
    blocks = _blocks_with_rows(job, after, fewest)
    tiles = nest((panels,), _panel(job, panels.var, blocks.rows))
    body = blocks.named(nest(_within(roles), seq(tiles, after.of(blocks.rows))))
    return parallel((*_around(roles), blocks.axis), body, machine)


def _blocks_with_rows(job: Job, after: RowsAfter, fewest: int) -> RowBlocks:
    """Blocks whose rows and results both stay in cache."""
    mr, block = job.machine.config.mr, min(_block_rows(job), after.block)
    if after.threads > 1:  # a thread that is late leaves less to wait for
        block = max(mr, block // 2)
    return split_rows(after.place.extent, block, mr, max(fewest, after.fewest), after.threads)


def _same_sums(roles: Roles, epilogue: Epilogue, machine: Machine, after: RowsAfter) -> bool:
    """Whether sums are the same for any number of threads: blocks depend on it, low tiles sum in another order."""
    job = Job(roles, epilogue, machine, _width(roles, machine))
    lowest = _blocks_with_rows(job, after, 1).rows.least
    return after.threads == 1 or accumulator_sets(lowest, job.vectors) == 1


def _around(roles: Roles) -> tuple[Axis, ...]:
    """Outer axes that move the scalar factor: they stay outside the row blocks."""
    moving = variables_of(roles.scalar)
    return tuple(a for a in roles.outer if a.var in moving)


def _within(roles: Roles) -> tuple[Axis, ...]:
    """Outer axes that leave the scalar factor alone: a block of its rows stays in cache while they run."""
    moving = variables_of(roles.scalar)
    return tuple(a for a in roles.outer if a.var not in moving)


def _block_rows(job: Job) -> int:
    """Rows of the scalar factor that fit the second-level cache, in whole tiles."""
    most, mr = job.machine.config.block, job.machine.config.mr
    depth = product(a.extent for a in job.roles.reduce)
    if not is_const(depth) or job.roles.packed:
        return most
    fitting = CACHE_BYTES // max(1, int(depth) * info(job.roles.scalar.dtype).bytes)
    return max(mr, min(most, fitting // mr * mr))


def _panel(job: Job, panel: Var, rows: Rows) -> Stmt:
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


def _rows(job: Job, panel: Var, rows: Rows, inside: Callable[[Expr, Expr], Expr] | None) -> Stmt:
    """Tiles of some rows of one panel, split as evenly as the tile height allows.

    Seven rows become tiles of three and four, not six and one: both keep the multiply-add units busy.
    """
    roles, config = job.roles, job.machine.config
    first, t, height = Var("first"), Var("tile"), Var("height")
    row = roles.row.var if roles.row is not None and roles.row.extent != 1 else None
    at = panel_at(roles.lane.var, panel, job.width, row, first)
    spec = TileSpec(roles.scalar, roles.vector, at, roles.reduce, job.width, job.epilogue, True, config.unroll)
    spec = _with_product(spec, roles)
    if row is None:
        only = {roles.row.var: const(0)} if roles.row is not None else {}
        return substitute_vars(tiles(spec, const(1), (1, 1), job.vectors, inside), only)
    if roles.packed and len(roles.reduce) == 1 and any(packed_lanes(e, roles.lane) for e in loads_of(roles.vector)):
        spec = replace(spec, prefetch=_prefetcher(job, at, panel, t, rows))

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


def _with_product(spec: TileSpec, roles: Roles) -> TileSpec:
    tail = roles.tail
    left = None if tail is None else (tail.axis, tail.scalar, tail.vector)
    return replace(spec, product=roles.product, tail=left)


def _prefetcher(job: Job, at: At, panel: Var, t: Var, rows: Rows) -> Callable[[Expr], Stmt]:
    """Each tile brings its share of the next panel near.

    Low tiles wait for memory anyway, and asking for much beyond what the processor asks for itself delays them: they
    ask for one line per iteration only (2 to 5 rows of a decoder, measured: 10 to 30 % slower otherwise).
    """
    roles, unroll, mr = job.roles, job.machine.config.unroll, job.machine.config.mr
    load = next(e for e in loads_of(roles.vector) if packed_lanes(e, roles.lane))
    k, following = roles.reduce[-1], panel + 1

    def near(step: Expr, lane: int) -> Stmt:
        moved = (substitute_vars(at(x, const(0), const(lane)), {panel: following, k.var: step}) for x in load.indices)
        return Prefetch(load.buffer, tuple(moved), 2)

    def share(step: Expr, tiles: int) -> Stmt:
        """For one iteration of one of ``tiles`` tiles: ``unroll // tiles`` steps of the next panel, at least one."""
        steps, part = max(1, unroll // tiles), as_expr(floordiv(k.extent, tiles))
        first = binary(BinOp.MOD, t, const(tiles)) * part + step * steps
        return seq(*(near(first + n, lane) for n in range(steps) for lane in _lines(job, load)))

    def hint(step: Expr) -> Stmt:
        one = If(rows.count <= const(mr * 2 // 3), near(step, 0), share(step, 1))
        few = If(rows.count <= const(mr), one, share(step, 2))
        return If(rows.count <= const(2 * mr), few, share(step, unroll))

    return hint


def _lines(job: Job, load: Load) -> range:
    """First lanes of the cache lines of one step of a panel."""
    return range(0, job.width, max(1, LINE_BYTES // info(load.dtype).bytes))


def _one_row(job: Job, panels_first: bool) -> Stmt:
    """One row times packed panels: several panels side by side keep several memory streams busy."""
    roles, count = job.roles, job.machine.config.panels
    total = ceildiv(roles.lane.extent, job.width)
    group, first = Axis(Var("group"), ceildiv(total, count)), Var("first")
    row = roles.row.var if roles.row is not None else None

    def at(expr: Expr, i: Expr, j: Expr) -> Expr:
        return panel_at(roles.lane.var, first + i, job.width, row, const(0))(expr, const(0), j)

    def inside(i: Expr, j: Expr) -> Expr:
        return (first + i) * job.width + j < job.columns

    spec = TileSpec(
        roles.scalar, roles.vector, at, roles.reduce, job.width, job.epilogue, False, job.machine.config.unroll
    )
    spec = _with_product(spec, roles)

    def make(number: Expr) -> Stmt:
        known = int(number.value) if isinstance(number, Const) else 0
        heights = (known, known) if known else (1, count)
        near = replace(spec, prefetch=_ahead(job, at, heights[1]))
        return tiles(near, number, heights, job.vectors, None if job.exact else inside)

    body = _side_by_side(total, first, count, make)
    body = Let(first, group.var * count, body)
    return parallel((group, *roles.outer) if panels_first else (*roles.outer, group), body, job.machine)


def _ahead(job: Job, at: At, count: int) -> Callable[[Expr], Stmt] | None:
    """Each iteration asks for what the same panels hold a few iterations later: the processor's own guesses lag."""
    roles, unroll = job.roles, job.machine.config.unroll
    load = next((e for e in loads_of(roles.vector) if packed_lanes(e, roles.lane)), None)
    if load is None or len(roles.reduce) > 1 or not job.machine.config.ahead:
        return None
    k = roles.reduce[0].var
    distance = max(1, job.machine.config.ahead // (count * job.width * info(load.dtype).bytes))
    places = [(i, u, v) for i in range(count) for u in range(unroll) for v in _lines(job, load)]

    def hint(step: Expr) -> Stmt:
        def place(x: Expr, i: int, u: int, v: int) -> Expr:
            return substitute_vars(at(x, const(i), const(v)), {k: step * unroll + (u + distance)})

        return seq(*(Prefetch(load.buffer, tuple(place(x, *p) for x in load.indices), 2) for p in places))

    return hint


def _side_by_side(total: DimLike, first: Var, count: int, make: Callable[[Expr], Stmt]) -> Stmt:
    """``count`` panels from ``first``, fewer in the last group."""
    if not is_const(total):
        return make(minimum(as_expr(total) - first, const(count)))
    rest = int(total) % count
    if int(total) < count or rest == 0:
        return make(const(min(int(total), count)))
    return If(first + count <= as_expr(total), make(const(count)), make(const(rest)))


def _pack_panel(job: Job, panel: Var, rows: Rows) -> Stmt:
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
