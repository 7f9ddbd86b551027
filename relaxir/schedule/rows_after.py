"""Row stages right behind a contraction: each block of its rows goes through them while it lies in the cache.

before::

    for all rows i, all panels of j: c[i, j] = sum over k of a[i, k] * w[k, j]
    for all rows i: top[i] = max over j of c[i, j]

after::

    parallel block of rows:
      for panels of j: tiles of c[block, j]
      for rows i of the block: top[i] = max over j of c[i, j]

It saves a way through memory and a parallel region. Every block reads all weights, and threads share no row, so there
must be enough rows: few of them are split along the columns instead, and the stages follow on their own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxir.schedule.loops import Machine
from relaxir.schedule.program import Program
from relaxir.schedule.roles import Roles
from relaxir.schedule.row_blocks import Rows
from relaxir.schedule.row_group import RowGroup, find_rows, one_reduction
from relaxir.schedule.streams import FEW_ROWS
from relaxir.schedule.tile import Epilogue
from relaxir.schedule.variants import Range
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, is_const
from relaxir.tir import Axis, Expr, Stmt, Var
from relaxir.tir.classify import Contraction
from relaxir.tir.visit import reads_of, substitute_vars

RESULT_BYTES = 524288  # of a block of the product: half of a second-level cache
COLUMNS = 2048  # most columns where they are known only at run time
LEAST_ROWS = 16  # of a block, two tiles: every block reads all weights


@dataclass(frozen=True, slots=True)
class RowsAfter:
    """Stages that can follow each block of a contraction's rows.

    Attributes:
        group: the stages.
        row: them for one row, over the contraction's axes, without ``place``.
        place: the contraction's axis of rows.
        block: most rows of a block.
        fewest: least rows; fewer are better off with the stages ``alone``.
        threads: how many threads share the blocks.
        alone: the stages by themselves, after the whole product.

    """

    group: RowGroup
    row: Stmt
    place: Axis
    columns: DimLike
    block: int
    fewest: int
    threads: int
    alone: Stmt

    @property
    def ranges(self) -> tuple[Range, ...]:
        """For which extents they should follow each block."""
        few = (Range(self.place.extent, self.fewest),) if self.fewest else ()
        return few if is_const(self.columns) else (*few, Range(self.columns, high=COLUMNS))

    def of(self, rows: Rows) -> Stmt:
        """Make the loop over some rows."""
        r = Var("row")
        return rows.each(r, substitute_vars(self.row, {self.place.var: rows.start + r}))


def follow_rows(
    program: Program, found: Contraction, roles: Roles, epilogue: Epilogue, stages: Sequence[Stmt], machine: Machine
) -> RowsAfter | None:
    """Read the first of ``stages`` as stages of the contraction's rows, or None where they are not or cannot gain."""
    group = find_rows(stages) or one_reduction(stages)
    if group is None or roles.row is None or roles.row.extent == 1 or roles.on_the_fly:
        return None
    names = _places(group, found, roles, epilogue)
    block = block_rows(roles.lane.extent, sum(info(s.buffer.dtype).bytes for s in epilogue.stores))
    if names is None or block is None or group.written & {e.buffer for e in reads_of(found.block)}:
        return None
    threads = max(1, machine.target.threads) if machine.config.parallel != "none" else 1
    few = 0 if roles.packed else FEW_ROWS + 1
    fewest = few if threads == 1 else max(few, LEAST_ROWS * threads)
    row = substitute_vars(group.row(program, stages, machine, ahead=False), names)
    alone = group.loops(program, stages, machine)
    return RowsAfter(group, row, roles.row, roles.lane.extent, block, fewest, threads, alone)


def _places(group: RowGroup, found: Contraction, roles: Roles, epilogue: Epilogue) -> Mapping[Var, Expr] | None:
    """The contraction's axis for each axis of the rows; None unless a row is one of the contraction's."""
    points = {s.indices for s in epilogue.stores}
    if len(points) != 1:
        return None
    *rows, last = points.pop()
    axes = {a.var: a.extent for a in found.block.axes if a.var not in found.reduce}
    if last is not roles.lane.var or set(rows) | {last} != set(axes) or len(rows) != len(group.axes):
        return None
    same = all(a.extent == axes[r] for a, r in zip(group.axes, rows, strict=True) if isinstance(r, Var))
    own = all(group.stays_in_row(s.buffer) for s in epilogue.stores)
    return {a.var: r for a, r in zip(group.axes, rows, strict=True)} if same and own else None


def block_rows(columns: DimLike, size: int) -> int | None:
    """Most rows of ``columns`` elements of ``size`` bytes that stay in cache, or None where these are too few."""
    known = int(columns) if is_const(columns) else COLUMNS
    rows = RESULT_BYTES // max(1, known * size)
    return rows if rows >= LEAST_ROWS else None
