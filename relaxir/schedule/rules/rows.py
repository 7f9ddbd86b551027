"""Stages that share their leading axes run in one loop over them: softmax, normalisations, chains of reductions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxir.schedule.loops import Machine
from relaxir.schedule.program import Program
from relaxir.schedule.row_group import find_rows
from relaxir.tir import Stmt


@dataclass(frozen=True, slots=True)
class RowsRule:
    """Consecutive stages with the same leading axes, as one parallel loop over rows."""

    name: str = "rows"

    def take(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> tuple[Stmt, int] | None:
        """Schedule the longest run of at least two stages that can share a loop."""
        found = find_rows(stages)
        return None if found is None else (found.loops(program, stages, machine), len(found.blocks))
