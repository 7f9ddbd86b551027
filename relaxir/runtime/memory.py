"""Peak memory as a formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from relaxir.ir.module import IRModule
from relaxir.support.errors import ArgumentError
from relaxir.sym import Dim, DimLike, add, dim, evaluate, free_dims, parse, to_text
from relaxir.tir import OpenFrame
from relaxir.tir.visit import walk


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of the largest frame of one call (weights, inputs and results are not in it)."""

    function: str
    peak: DimLike

    def __str__(self) -> str:
        return f"{self.function}: {to_text(self.peak)} bytes"

    def __repr__(self) -> str:
        return f"<memory of {self}>"

    def __rich__(self) -> str:
        return str(self)

    def __call__(self, **sizes: int) -> int:
        """Peak in bytes at given sizes of the symbols.

        Raises:
            ArgumentError: a symbol without a size.
        """
        missing = [s.name for s in free_dims(self.peak) if s.name not in sizes]
        if missing:
            raise ArgumentError(f"memory of {self.function}: give a size for `{missing[0]}`")
        return evaluate(self.peak, sizes)

    @property
    def symbols(self) -> tuple[Dim, ...]:
        """Symbols of the formula."""
        return free_dims(self.peak)

    @staticmethod
    def parse_formulas(data: Mapping[str, Any]) -> dict[str, DimLike]:
        """Formulas from a library's metadata."""
        scope: dict[str, Dim] = {}
        for f in data["functions"]:
            for n, r in f["symbols"].items():
                scope[n] = dim(n, min=r[0], max=r[1], multiple_of=r[2])
        formulas: dict[str, DimLike] = {}
        for name, text in data["memory"].items():
            words = {w for w in _words(text) if w not in scope}
            formulas[name] = parse(text, {**scope, **{w: dim(w) for w in words}})
        return formulas


def _words(text: str) -> set[str]:
    functions = {"min", "max", "ceildiv", "broadcast"}
    cleaned = "".join(c if c.isalnum() or c == "_" else " " for c in text)
    return {w for w in cleaned.split() if not w[0].isdigit() and w not in functions}


def frame_formulas(planned: IRModule) -> dict[str, DimLike]:
    """Sum of the frames of each host program: the peak of a call, since frames are popped at its end."""
    formulas: dict[str, DimLike] = {}
    for name, func in planned.prim_funcs().items():
        if func.is_host:
            total: DimLike = 0
            for s in walk(func.body):
                if isinstance(s, OpenFrame):
                    total = add(total, s.size)
            formulas[name] = total
    return formulas
