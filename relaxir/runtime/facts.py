"""What is known of a compiled module before any call: memory, cost, and where a profiling build has time stamps."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Any

from relaxir.ir.module import IRModule
from relaxir.runtime.costs import Cost, costs_of
from relaxir.runtime.events import Place
from relaxir.runtime.memory import Memory, memory_of

Costs = Mapping[str, Cost]


@dataclass(frozen=True, slots=True)
class Facts:
    """Formulas by function name.

    Attributes:
        memory: peak of a call.
        costs: gives operations and bytes of a call; those of a loaded library are read when they are asked for.
        places: where time stamps are, in the order of their numbers; None where nothing was compiled for profiling.
    """

    memory: Mapping[str, Memory] = field(default_factory=lambda: MappingProxyType({}))
    costs: Callable[[], Costs] = field(default=lambda: MappingProxyType({}))
    places: tuple[Place, ...] | None = None

    def to_json(self) -> dict[str, Any]:
        """Texts for a library's metadata."""
        return {
            "memory": {name: m.to_json() for name, m in self.memory.items()},
            "cost": {name: c.to_json() for name, c in self.costs().items()},
            "places": None if self.places is None else [p.to_json() for p in self.places],
        }

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Facts:
        """Inverse of `to_json`."""
        memory = {n: Memory.from_json(n, d) for n, d in data["memory"].items()}
        places = data["places"]
        return Facts(
            memory, partial(read_costs, data["cost"]), None if places is None else tuple(map(Place.from_json, places))
        )


def facts_of(planned: IRModule) -> Facts:
    """What a planned module tells."""
    costs = costs_of(planned.prim_funcs())
    return Facts(memory_of(planned), lambda: costs)


def read_costs(data: Mapping[str, Any]) -> Costs:
    """Costs from a library's metadata."""
    return {n: Cost.from_json(n, d) for n, d in data.items()}
