"""Choosing a `Config`: the space of choices, the interface of cost models, and the rule of thumb without a model."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Protocol

from relaxir.cost.config import Config
from relaxir.cost.target import TargetInfo
from relaxir.tir import Block, PrimFunc, Store
from relaxir.tir.classify import Pattern, classify_block, stages


def _contraction_dtype(func: PrimFunc) -> str | None:
    for s in stages(func.body):
        if isinstance(s, Block) and classify_block(s) is Pattern.CONTRACTION:
            return s.body.buffer.dtype if isinstance(s.body, Store) else "float32"
    return None


def tile_rows(target: TargetInfo, nr: int, dtype: str) -> int:
    """Rows of a register tile: accumulators, one row of the columns and one broadcast must fit the registers."""
    vectors = max(1, nr // target.lanes(dtype))
    return max(1, min(8, (target.registers - 1 - vectors) // vectors))


def tile_columns(target: TargetInfo, dtype: str) -> int:
    """Columns of a register tile by the rule of thumb: two vectors, more of them where they are short."""
    return max(2 * target.lanes(dtype), min(16, 4 * target.lanes(dtype)))


@dataclass(frozen=True, slots=True)
class ConfigSpace:
    """Every configuration worth trying for a program on a machine.

    Iteration starts with the rule of thumb's choice. Programs without a contraction have one configuration.
    """

    func: PrimFunc
    target: TargetInfo

    def __iter__(self) -> Iterator[Config]:
        best = RuleChooser().choose(self.func, self.target)
        yield best
        dtype = _contraction_dtype(self.func)
        if dtype is None:
            return
        lanes = self.target.lanes(dtype)
        for nr in (lanes, 2 * lanes, 3 * lanes, 4 * lanes):
            most = tile_rows(self.target, nr, dtype)
            rows = sorted({most, max(1, most - 1), max(1, most // 2)}, reverse=True)
            configs = (replace(best, mr=mr, nr=nr, unroll=unroll) for mr in rows for unroll in (4, 2))
            yield from (c for c in configs if c != best)


class CostModel(Protocol):
    """Predicts how long a program takes under a configuration; only the order of the values matters."""

    def cost(self, func: PrimFunc, target: TargetInfo, config: Config) -> float:
        """Predicted time of one call, in any unit."""
        ...


class Chooser(Protocol):
    """Picks the configuration of a program."""

    def choose(self, func: PrimFunc, target: TargetInfo) -> Config:
        """Return the configuration to schedule ``func`` with."""
        ...


@dataclass(frozen=True, slots=True)
class RuleChooser:
    """Chooses by the numbers of the machine alone: two vectors of columns and as many rows as the registers hold."""

    def choose(self, func: PrimFunc, target: TargetInfo) -> Config:
        """Return the configuration to schedule ``func`` with."""
        dtype = _contraction_dtype(func)
        if dtype is None:
            return Config()
        nr = tile_columns(target, dtype)
        return Config(mr=tile_rows(target, nr, dtype), nr=nr)


@dataclass(frozen=True, slots=True)
class ModelChooser:
    """Chooses the configuration of the space with the least predicted cost."""

    model: CostModel

    def choose(self, func: PrimFunc, target: TargetInfo) -> Config:
        """Return the configuration to schedule ``func`` with."""
        return min(ConfigSpace(func, target), key=lambda config: self.model.cost(func, target, config))
