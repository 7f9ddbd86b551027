"""Peak memory as a formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relaxir.ir.module import IRModule
from relaxir.runtime.formulas import Formulas, definitions_of, from_texts, to_texts
from relaxir.sym import Dim, DimLike, to_text, total
from relaxir.tir import OpenFrame
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
    """Sum of the frames of each host program: the peak of a call, since frames are popped at its end."""
    return {
        name: Memory(name, total(s.size for s in walk(func.body) if isinstance(s, OpenFrame)), definitions_of(func))
        for name, func in planned.prim_funcs().items()
        if func.is_host
    }
