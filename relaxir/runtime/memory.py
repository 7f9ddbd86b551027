"""Peak memory as a formula."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from relaxir.ir.module import IRModule
from relaxir.support.checks import check_count
from relaxir.support.errors import ArgumentError
from relaxir.sym import Dim, DimLike, add, dim, evaluate, free_dims, parse, to_text
from relaxir.tir import BindDim, Const, OpenFrame, Size
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

    def __str__(self) -> str:
        lines = [f"{self.function}: {to_text(self.peak)} bytes"]
        used = self.needed()
        lines += [f"  where {d.name} = {to_text(value)}" for d, value in self.where if d in used]
        return "\n".join(lines)

    def __repr__(self) -> str:
        return f"<memory of {self}>"

    def __rich__(self) -> str:
        return str(self)

    def needed(self) -> frozenset[Dim]:
        """Symbols that the formula needs, directly or through definitions."""
        used = set(free_dims(self.peak))
        for d, value in reversed(self.where):
            if d in used:
                used.update(free_dims(value))
        return frozenset(used)

    @property
    def symbols(self) -> tuple[Dim, ...]:
        """Symbols whose sizes have to be given, by name."""
        defined = {d for d, _ in self.where}
        return tuple(sorted((d for d in self.needed() if d not in defined), key=lambda d: d.name))

    def __call__(self, **sizes: int) -> int:
        """Peak in bytes at given sizes of the symbols.

        Raises:
            ArgumentError: a symbol without a size, a size that is none, or a name that is no symbol's.
        """
        names = [s.name for s in self.symbols]
        for name, size in sizes.items():
            if name not in names and name not in self.known:
                known = ", ".join(f"`{n}`" for n in sorted({*names, *self.known})) or "none"
                raise ArgumentError(
                    f"memory of {self.function}: no symbol `{name}`", code="argument-name", help=f"there is {known}"
                )
            sizes[name] = check_count(f"memory of {self.function}: size of `{name}`", size, 0, (1 << 63) - 1)
        missing = [n for n in names if n not in sizes]
        if missing:
            raise ArgumentError(f"memory of {self.function}: give a size for `{missing[0]}`")
        used = self.needed()
        world = dict(sizes)
        for d, value in self.where:
            if d in used:
                world[d.name] = evaluate(value, world)
        return evaluate(self.peak, world)

    def to_json(self) -> dict[str, Any]:
        """Texts for a library's metadata."""
        return {"peak": to_text(self.peak), "where": [[d.name, to_text(v)] for d, v in self.where]}

    @staticmethod
    def from_json(function: str, data: Mapping[str, Any]) -> Memory:
        """Inverse of `to_json`."""
        texts = [data["peak"], *(v for _, v in data["where"])]
        names = {w for t in texts for w in _words(t)} | {n for n, _ in data["where"]}
        scope = {n: dim(n) for n in names}
        where = tuple((scope[n], parse(v, scope)) for n, v in data["where"])
        return Memory(function, parse(data["peak"], scope), where)


def _words(text: str) -> set[str]:
    functions = {"min", "max", "ceildiv", "broadcast"}
    cleaned = "".join(c if c.isalnum() or c == "_" else " " for c in text)
    return {w for w in cleaned.split() if not w[0].isdigit() and w not in functions}


def memory_of(planned: IRModule) -> dict[str, Memory]:
    """Sum of the frames of each host program: the peak of a call, since frames are popped at its end."""
    found: dict[str, Memory] = {}
    for name, func in planned.prim_funcs().items():
        if func.is_host:
            total: DimLike = 0
            where: list[tuple[Dim, DimLike]] = []
            for s in walk(func.body):
                if isinstance(s, OpenFrame):
                    total = add(total, s.size)
                elif isinstance(s, BindDim) and isinstance(s.value, Size | Const):
                    value = s.value.expr if isinstance(s.value, Size) else int(s.value.value)
                    where.append((s.dim, value))
            found[name] = Memory(name, total, tuple(where))
    return found
