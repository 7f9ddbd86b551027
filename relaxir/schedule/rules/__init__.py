"""Rules from block form to loop form, most specific first; each takes a run of stages from the front."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, Protocol

from relaxir.schedule.loops import Machine
from relaxir.schedule.program import Program
from relaxir.schedule.rules.attention import AttentionRule
from relaxir.schedule.rules.contraction import ContractionRule
from relaxir.schedule.rules.extremum import ExtremumRule
from relaxir.schedule.rules.lanes import LanesRule
from relaxir.schedule.rules.rows import RowsRule
from relaxir.schedule.rules.stage import FallbackRule, InjectiveRule, ReductionRule
from relaxir.schedule.rules.windows import WindowsRule
from relaxir.tir import Stmt


class Rule(Protocol):
    """Turns a run of stages into loops."""

    @property
    def name(self) -> str:
        """Name in logs and tests."""
        ...

    def take(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> tuple[Stmt, int] | None:
        """Loops for the first stages and how many stages they cover, or None if the rule does not apply."""
        ...


RULES: Final[tuple[Rule, ...]] = (
    AttentionRule(),
    WindowsRule(),
    ContractionRule(),
    ExtremumRule(),
    RowsRule(),
    InjectiveRule(),
    ReductionRule(),
    LanesRule(),
    FallbackRule(),
)
"""Tried in order at each stage; the last applies to everything."""
