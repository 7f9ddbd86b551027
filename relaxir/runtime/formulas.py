"""Formulas in the symbols of a compiled function: which sizes they need, and their values at given ones."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from relaxir.support.checks import check_count
from relaxir.support.errors import ArgumentError
from relaxir.sym import Dim, DimLike, dim, evaluate, free_dims, max_, parse, substitute, to_text
from relaxir.tir import BindDim, Const, Extent, PrimFunc, Size
from relaxir.tir.visit import walk

FUNCTIONS = frozenset({"min", "max", "ceildiv", "broadcast"})
"""Words of a formula's text that are no symbols."""


@dataclass(frozen=True)
class Formulas:
    """Dimensions with the definitions of their symbols.

    Attributes:
        title: what they are, as messages call them.
        values: the formulas.
        where: symbols that are formulas of the function's own, in the order of their definition.
        known: names of symbols of the function that may be given although no formula needs them.
    """

    title: str
    values: tuple[DimLike, ...]
    where: tuple[tuple[Dim, DimLike], ...] = ()
    known: frozenset[str] = frozenset()

    @cached_property
    def needed(self) -> frozenset[Dim]:
        """Symbols that the formulas need, directly or through definitions."""
        used = {d for v in self.values for d in free_dims(v)}
        for d, value in reversed(self.where):
            if d in used:
                used.update(free_dims(value))
        return frozenset(used)

    @property
    def symbols(self) -> tuple[Dim, ...]:
        """Symbols whose sizes have to be given, by name."""
        defined = {d for d, _ in self.where}
        return tuple(sorted((d for d in self.needed if d not in defined), key=lambda d: d.name))

    def definitions(self) -> list[str]:
        """A line for each definition that the formulas need."""
        return [f"  where {d.name} = {to_text(value)}" for d, value in self.where if d in self.needed]

    def at(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The formulas' values.

        Raises:
            ArgumentError: a symbol without a size, a size that is none, or a name that is no symbol's.
        """
        names = [s.name for s in self.symbols]
        world: dict[str, int] = {}
        for name, size in sizes.items():
            if name not in names and name not in self.known:
                known = ", ".join(f"`{n}`" for n in sorted({*names, *self.known})) or "none"
                raise ArgumentError(f"{self.title}: no symbol `{name}`", code="argument-name", help=f"there is {known}")
            world[name] = check_count(f"{self.title}: size of `{name}`", size, 0, (1 << 63) - 1)
        missing = [n for n in names if n not in sizes]
        if missing:
            raise ArgumentError(f"{self.title}: give a size for `{missing[0]}`")
        for d, value in self.where:
            if d in self.needed:
                world[d.name] = evaluate(value, world)
        return tuple(evaluate(v, world) for v in self.values)


def definitions_of(host: PrimFunc) -> tuple[tuple[Dim, DimLike], ...]:
    """Symbols that a host program computes from others, in order; one that branches join is the larger."""
    found: dict[Dim, DimLike] = {}
    for s in walk(host.body):
        if isinstance(s, BindDim) and isinstance(s.value, Size | Const):
            value = s.value.expr if isinstance(s.value, Size) else int(s.value.value)
            found[s.dim] = max_(found.pop(s.dim, value), value)  # behind what its last value is computed from
    return tuple(found.items())


def bound(callee: PrimFunc, shapes: Sequence[Sequence[DimLike]]) -> dict[Dim, DimLike]:
    """What the symbols of a called host program are, from the shapes of its arguments."""
    world: dict[Dim, DimLike] = {}
    for stmt in walk(callee.body):
        if isinstance(stmt, BindDim) and isinstance(stmt.value, Extent):
            world[stmt.dim] = shapes[callee.inputs.index(stmt.value.buffer)][stmt.value.axis]
    for d, value in definitions_of(callee):
        world[d] = substitute(value, world)
    return world


def to_texts(where: Iterable[tuple[Dim, DimLike]]) -> list[list[str]]:
    """Definitions for a library's metadata."""
    return [[d.name, to_text(v)] for d, v in where]


def from_texts(
    values: Iterable[str], where: Iterable[tuple[str, str]]
) -> tuple[tuple[DimLike, ...], tuple[tuple[Dim, DimLike], ...]]:
    """Formulas and definitions from their texts, over the same symbols."""
    values, where = tuple(values), tuple(where)
    names = {w for t in (*values, *(v for _, v in where)) for w in words(t)} | {n for n, _ in where}
    scope = {n: dim(n) for n in names}
    return tuple(parse(v, scope) for v in values), tuple((scope[n], parse(v, scope)) for n, v in where)


def words(text: str) -> set[str]:
    """Names of symbols in a formula's text."""
    cleaned = "".join(c if c.isalnum() or c == "_" else " " for c in text)
    return {w for w in cleaned.split() if not w[0].isdigit() and w not in FUNCTIONS}
