"""Stages of one row: what runs in one loop over leading axes that stages share.

Values that live for one row (its maximum, its mean) become small private cells instead of whole temporaries.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass, replace

from relaxir.schedule.lanes import join_lanes
from relaxir.schedule.loops import Machine, parallel, seq
from relaxir.schedule.program import Program, accesses_of, reindex
from relaxir.schedule.stage_nest import block_reduces, choose_lane, parallel_nest, serial_nest
from relaxir.support.dtypes import info
from relaxir.sym import is_const, product
from relaxir.tir import (
    Alloc,
    Axis,
    AxisKind,
    Block,
    Buffer,
    Call,
    Const,
    Expr,
    For,
    ForKind,
    Load,
    Prefetch,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
)
from relaxir.tir.access import is_identity, stride
from relaxir.tir.classify import match_contraction
from relaxir.tir.expr import CHEAP_INTRINSICS
from relaxir.tir.visit import all_exprs, buffers_of, stores_of, substitute_vars

MOST_STAGES = 64  # that share a loop: looking for them takes time with the cube of their number
PRIVATE_BYTES = 16384  # a row-local value up to this size goes to the stack
FETCHED = 256  # least elements of a row for which the next one is asked for


@dataclass(frozen=True, slots=True)
class RowGroup:
    """Consecutive stages that can run in one loop over their first ``leading`` axes."""

    blocks: tuple[Block, ...]
    leading: int

    @property
    def axes(self) -> tuple[Axis, ...]:
        """The axes of the loop; `row` reads their variables."""
        return self.blocks[0].axes[: self.leading]

    @property
    def written(self) -> frozenset[Buffer]:
        """What the stages store."""
        return frozenset(s.buffer for b in self.blocks for s in stores_of(b))

    def stays_in_row(self, buffer: Buffer) -> bool:
        """Whether each row touches only the same row of ``buffer``."""
        return all(_same_row(b, frozenset({buffer}), self.leading) for b in self.blocks)

    def loops(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> Stmt:
        """The group by itself, its rows split over threads; ``stages`` are its own and all later ones."""
        if len(self.blocks) == 1:
            return parallel_nest(self.blocks[0], machine)
        return parallel(self.axes, self.row(program, stages, machine, ahead=True), machine)

    def row(self, program: Program, stages: Sequence[Stmt], machine: Machine, *, ahead: bool) -> Stmt:
        """The stages of one row.

        Args:
            program: whose temporaries may become private.
            stages: the group's and all later ones.
            machine: target and configuration.
            ahead: whether rows come from memory, so that the next one should be asked for.

        """
        nests: list[Stmt] = []
        for block in self.blocks:
            shared: dict[Var, Expr] = {old.var: new.var for old, new in zip(block.axes, self.axes, strict=False)}
            renamed = replace(block, body=substitute_vars(block.body, shared), init=_renamed(block.init, shared))
            nests.append(serial_nest(renamed, machine, self.leading))
        body = join_lanes(nests)
        if ahead:
            body = _fetching(body, self.axes[-1].var, set(program.params))
        for buffer in self._private(program, stages):
            cell = replace(buffer, shape=buffer.shape[self.leading :], scope=Scope.STACK)
            body = Alloc(cell, reindex(body, {buffer: cell}, {buffer: lambda old: old[self.leading :]}))
        return body

    def _private(self, program: Program, stages: Sequence[Stmt]) -> tuple[Buffer, ...]:
        """Temporaries that live within one row and are small: no stage in front of the group or behind it has them."""
        others = (*program.stages[: -len(stages)], *stages[len(self.blocks) :])
        outside = set(program.params) | {b for s in others for b in buffers_of(s)}
        written = self.written
        found: list[Buffer] = []
        for buffer in program.temps:
            size = product(buffer.shape[self.leading :])
            small = is_const(size) and int(size) * info(buffer.dtype).bytes <= PRIVATE_BYTES
            if buffer in written and buffer not in outside and small:
                found.append(buffer)
        return tuple(found)


def find_rows(stages: Sequence[Stmt]) -> RowGroup | None:
    """The longest run of at least two first stages, at most `MOST_STAGES`, that gain by sharing a loop, or None."""
    blocks: list[Block] = []
    for s in stages[:MOST_STAGES]:
        if not isinstance(s, Block) or not isinstance(s.body, Store) or (blocks and match_contraction(s) is not None):
            break
        blocks.append(s)
    writes = [{s.buffer for s in stores_of(b)} for b in blocks]
    reader, alike = _first_reader(blocks, writes), _alike(blocks)
    for count in range(len(blocks), 1, -1):
        if count > reader or count <= alike:  # otherwise nothing is gained
            group = blocks[:count]
            leading = _shared(group, set[Buffer]().union(*writes[:count]))
            if leading:
                return RowGroup(tuple(group), leading)
    return None


def one_reduction(stages: Sequence[Stmt]) -> RowGroup | None:
    """The first stage alone, as a group, if it reduces the last axes of rows; None if it does not."""
    first = stages[0] if stages else None
    if not isinstance(first, Block) or not isinstance(first.body, Store) or not block_reduces(first):
        return None
    leading = _shared((first,), {s.buffer for s in stores_of(first)})
    return RowGroup((first,), leading) if leading and leading == _spatial(first) else None


def _first_reader(blocks: Sequence[Block], writes: Sequence[Set[Buffer]]) -> int:
    """The place of the first stage that accesses what an earlier one wrote, or how many stages there are."""
    written: set[Buffer] = set()
    for place, (block, own) in enumerate(zip(blocks, writes, strict=True)):
        if written & {e.buffer for e in accesses_of(block)}:
            return place
        written |= own
    return len(blocks)


def _alike(blocks: Sequence[Block]) -> int:
    """How many first stages reduce the same operands."""
    reads = [{e.buffer for e in all_exprs(b) if isinstance(e, Load)} for b in blocks]
    return next((n for n, b in enumerate(blocks) if not block_reduces(b) or reads[n] != reads[0]), len(blocks))


def _spatial(block: Block) -> int:
    return sum(a.kind is AxisKind.SPATIAL for a in block.axes)


def _shared(group: Sequence[Block], written: Set[Buffer]) -> int:
    """How many leading axes the stages share, such that each row only uses what the same row wrote."""
    most = min(_spatial(b) for b in group)
    count = 0
    while count < most and all(b.axes[count].extent == group[0].axes[count].extent for b in group):
        count += 1
    while count:
        if all(_same_row(b, written, count) and _keeps_lanes(b, group, count) for b in group):
            return count
        count -= 1
    return 0


def _keeps_lanes(block: Block, group: Sequence[Block], count: int) -> bool:
    """Whether sharing ``count`` axes leaves the block its vector axis, or the block is one value per row of others."""
    if len(block.axes) <= count:
        return any(len(b.axes) > count for b in group)
    lane = choose_lane(block, block.axes)
    return lane is None or lane not in block.axes[:count]


def _same_row(block: Block, written: Set[Buffer], count: int) -> bool:
    own = tuple(a.var for a in block.axes[:count])
    return all(
        is_identity(tuple(access.indices[:count]), own) for access in accesses_of(block) if access.buffer in written
    )


def _fetching(body: Stmt, row: Var, params: set[Buffer]) -> Stmt:
    """Ask for the next row while this one is computed: the first loop over a row, usually a reduction, finds it near.

    Only where a loop computes costly functions (others are as fast as memory, and lose by it), for rows of some length.

    before: ``vector k: y[i, k] = exp(x[i, k] - top)``; after: ``vector k: prefetch x[i + 1, k]; y[i, k] = ...``
    """
    stmts = body.stmts if isinstance(body, Seq) else (body,)
    return seq(*(_fetch_beside(s, row, params) if isinstance(s, For) else s for s in stmts))


def _fetch_beside(loop: For, row: Var, params: set[Buffer]) -> Stmt:
    short = isinstance(loop.extent, Const) and loop.extent.value < FETCHED
    if loop.kind is not ForKind.VECTOR or short or not _costly(loop):
        return loop
    for load in accesses_of(loop.body):
        reads = isinstance(load, Load) and load.buffer in params and stride(load, loop.var) == 1
        if reads and any(i is row for i in load.indices):
            after = tuple(i + 1 if i is row else i for i in load.indices)
            return replace(loop, body=seq(Prefetch(load.buffer, after), loop.body))
    return loop


def _costly(loop: For) -> bool:
    return any(isinstance(e, Call) and e.fn not in CHEAP_INTRINSICS for e in all_exprs(loop.body))


def _renamed(init: Stmt | None, names: Mapping[Var, Expr]) -> Stmt | None:
    return None if init is None else substitute_vars(init, names)
