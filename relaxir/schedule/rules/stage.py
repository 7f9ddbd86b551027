"""Rules for single stages: elementwise and injective maps, reductions, and the fallback for everything else."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxir.schedule.inner import checks_together, vectorize_inner
from relaxir.schedule.loops import Machine, nest, parallel, seq
from relaxir.schedule.program import Program
from relaxir.schedule.stage_nest import block_reduces, parallel_nest
from relaxir.tir import Assert, AxisKind, Block, Stmt, Store
from relaxir.tir.classify import plain_store


@dataclass(frozen=True, slots=True)
class InjectiveRule:
    """One plain store per point: outer loops over threads, vectors along the stored axis, transpositions in tiles."""

    name: str = "injective"

    def take(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> tuple[Stmt, int] | None:
        """Schedule the first stage if it is a plain map."""
        block = stages[0]
        if plain_store(block) is None or not isinstance(block, Block):
            return None
        return parallel_nest(block, machine), 1


@dataclass(frozen=True, slots=True)
class ReductionRule:
    """A combining store: lanes along the reduced axis where it is contiguous, else along the kept one."""

    name: str = "reduction"

    def take(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> tuple[Stmt, int] | None:
        """Schedule the first stage if it is a reduction of one combining store."""
        block = stages[0]
        if not isinstance(block, Block) or not block_reduces(block):
            return None
        if not isinstance(block.body, Store) or block.body.combine is None or not isinstance(block.init, Store):
            return None
        return parallel_nest(block, machine), 1


@dataclass(frozen=True, slots=True)
class FallbackRule:
    """Any stage: its independent axes as loops over threads, lanes for its innermost loops where they can be.

    Code outside blocks stays as it is.
    """

    name: str = "fallback"

    def take(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> tuple[Stmt, int] | None:
        """Schedule the first stage."""
        block = stages[0]
        if not isinstance(block, Block):
            return block, 1
        spatial = tuple(a for a in block.axes if a.kind is AxisKind.SPATIAL)
        reduce = tuple(a for a in block.axes if a.kind is AxisKind.REDUCE)
        checks = checks_together(spatial, block.body, machine) if isinstance(block.body, Assert) else None
        if checks is not None:
            return checks, 1
        body = seq(block.init, nest(reduce, block.body))
        return parallel(spatial, vectorize_inner(body), machine), 1
