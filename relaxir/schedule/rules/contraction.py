"""Contractions: matrix products and batched ones; convolutions are in `relaxir.schedule.rules.windows`.

One axis gives the lanes of a register tile (contiguous in one factor, absent from the other), one its rows (the other
way round); the rest are loops. A factor that is not contiguous along any usable lane axis is packed panel by panel on
the fly.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relaxir.schedule.dot import schedule_dot
from relaxir.schedule.epilogue import collect_epilogue
from relaxir.schedule.loops import Machine, seq
from relaxir.schedule.panel_job import width_of
from relaxir.schedule.panels import same_sums, schedule_contraction
from relaxir.schedule.program import Program
from relaxir.schedule.quads import quad_roles
from relaxir.schedule.roles import Roles, assign_roles
from relaxir.schedule.rows_after import follow_rows
from relaxir.schedule.stage_nest import parallel_nest
from relaxir.schedule.streams import FEW_ROWS, schedule_streams, stream_ranges
from relaxir.schedule.tile import Epilogue
from relaxir.schedule.turning import Turned, turn_factors
from relaxir.schedule.variants import Way, variants
from relaxir.support.dtypes import info
from relaxir.sym import is_const, product
from relaxir.tir import Alloc, Block, Stmt
from relaxir.tir.classify import match_contraction

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
        if dot and not always and not roles.contiguous:
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
        if after is None or not same_sums(roles, epilogue, machine, after):
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


def _fits_stack(roles: Roles, machine: Machine) -> bool:
    deep = product(a.extent for a in roles.reduce)
    size = info(roles.vector.dtype).bytes * width_of(roles, machine)
    return is_const(deep) and int(deep) * size <= PACK_BYTES
