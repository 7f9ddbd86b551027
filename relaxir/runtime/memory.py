"""Peak memory as a formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relaxir.ir.module import IRModule
from relaxir.runtime.formulas import Formulas, bound, definitions_of, from_texts, to_texts
from relaxir.sym import Dim, DimLike, add, max_, substitute, to_text
from relaxir.tir import CallHost, OpenFrame, PrimFunc
from relaxir.tir.visit import walk


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the frames of one call (weights, inputs and results are not in it).

    Attributes:
        function: whose.
        peak: the formula.
        where: symbols of the formula that are formulas of the function's own, in the order of their definition.
        known: names of symbols of the function that may be given although the formula does not need them.
    """

    function: str
    peak: DimLike
    where: tuple[tuple[Dim, DimLike], ...] = ()
    known: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def formulas(self) -> Formulas:
        """The peak as a formula that can be evaluated."""
        return Formulas(f"memory of {self.function}", (self.peak,), self.where, self.known)

    @property
    def symbols(self) -> tuple[Dim, ...]:
        """Symbols whose sizes have to be given, by name."""
        return self.formulas.symbols

    def __str__(self) -> str:
        return "\n".join([f"{self.function}: {to_text(self.peak)} bytes", *self.formulas.definitions()])

    def __repr__(self) -> str:
        return f"<memory of {self}>"

    def __rich__(self) -> str:
        return str(self)

    def __call__(self, **sizes: int) -> int:
        """Peak in bytes at given sizes of the symbols.

        Raises:
            ArgumentError: a symbol without a size, a size that is none, or a name that is no symbol's.
        """
        return self.formulas.at(sizes)[0]

    def to_json(self) -> dict[str, Any]:
        """Texts for a library's metadata."""
        return {"peak": to_text(self.peak), "where": to_texts(self.where)}

    @staticmethod
    def from_json(function: str, data: Mapping[str, Any]) -> Memory:
        """Inverse of `to_json`."""
        (peak,), where = from_texts((data["peak"],), data["where"])
        return Memory(function, peak, where)


def memory_of(planned: IRModule) -> dict[str, Memory]:
    """The peak of a call of each host program: its frames, which are popped at its end, and those of what it calls.

    A recursive function counts once, since how deep it goes depends on data.
    """
    programs = planned.prim_funcs()
    return {
        name: Memory(name, _peak(name, {}, programs, frozenset()), definitions_of(func))
        for name, func in programs.items()
        if func.is_host
    }


def _peak(name: str, world: Mapping[Dim, DimLike], programs: Mapping[str, PrimFunc], active: frozenset[str]) -> DimLike:
    """Bytes of a host program's frames and of the largest of its callees; ``world`` has its symbols' values."""
    own: DimLike = 0
    called: DimLike = 0
    for s in walk(programs[name].body):
        if isinstance(s, OpenFrame):
            own = add(own, substitute(s.size, world))
        elif isinstance(s, CallHost) and s.callee not in active | {name}:
            shapes = [[substitute(d, world) for d in b.shape] for b in s.args]
            inside = bound(programs[s.callee], shapes)
            called = max_(called, _peak(s.callee, inside, programs, active | {name}))
    return add(own, called)
