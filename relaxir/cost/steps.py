"""How many steps the loops of a tensor program take at most: what tells a long call from one that never ends."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import Final

from relaxir.sym import Dim, DimLike, evaluate, free_dims, magnitude, split_factors, substitute
from relaxir.tir import Alloc, Binary, BinOp, Block, Expr, For, If, Let, PrimFunc, Seq, Stmt, Switch, While
from relaxir.tir.access import as_dim
from relaxir.tir.idle import happens, needs_of

MOST_STEPS: Final = 1 << 56
"""Steps of one kernel beyond which a call is refused: a day at a million millions each second."""
COVER: Final = 1 << 8
"""Steps for each element of a tensor in memory that need no check: no memory has `MOST_STEPS` / `COVER` bytes."""


@dataclass(frozen=True, slots=True)
class Steps:
    """A number of steps: the product of a number and of extents that have symbols.

    Attributes:
        number: the constant factor.
        factors: the others, in the order of their loops, then whether anything happens at all, 1 or at most 0.
    """

    number: float
    factors: tuple[DimLike, ...]

    @property
    def dims(self) -> tuple[Dim, ...]:
        """Symbols of the factors."""
        return tuple(dict.fromkeys(s for f in self.factors for s in free_dims(f)))

    def within(self, other: Steps, times: float) -> bool:
        """Whether ``other`` has all of these factors, and at least one ``times``-th of the number."""
        return not Counter(self.factors) - Counter(other.factors) and self.number <= other.number * times


def steps_of(func: PrimFunc) -> tuple[Steps, ...]:
    """What each nest of loops takes, without those that are bounded by others, by a tensor in memory or by ranges.

    Loops whose extents depend on data or on other loops count one step, blocks that may be cut short as whole ones.
    A program that does nothing, since its results are empty, takes no steps.
    """
    memory = [_steps(b.shape) for b in func.params]
    kept: list[Steps] = []
    for found in dict.fromkeys(_nests(func.body, ())):
        if found.number * prod(map(magnitude, found.factors)) <= MOST_STEPS or any(
            found.within(m, COVER) for m in memory
        ):
            continue
        if not any(found.within(k, 1) for k in kept):
            kept = [*(k for k in kept if not k.within(found, 1)), found]
    once = happens(needs_of(func)) if kept else 1
    return tuple(kept) if once == 1 else tuple(replace(k, factors=(*k.factors, once)) for k in kept)


def ends(func: PrimFunc, sizes: Mapping[str, int]) -> bool:
    """Whether one call comes to its end, as far as `steps_of` tells."""
    return all(s.number * prod(evaluate(f, sizes) for f in s.factors) <= MOST_STEPS for s in steps_of(func))


def too_long(name: str) -> str:
    """What an error says of a kernel that would not end."""
    return f"the loops of `{name}` would take more than 2**{MOST_STEPS.bit_length() - 1} steps"


def _nests(stmt: Stmt, extents: tuple[DimLike, ...]) -> Iterator[Steps]:
    """Steps of the innermost loops of a statement that stands inside loops of these extents."""
    if isinstance(stmt, Seq):
        for s in stmt.stmts:
            yield from _nests(s, extents)
    elif isinstance(stmt, Block):
        yield from _nests(stmt.body, (*extents, *(a.extent for a in stmt.axes)))
    elif isinstance(stmt, For):
        extent = _most(stmt.extent)
        yield from _nests(stmt.body, extents if extent is None else (*extents, extent))
    elif isinstance(stmt, If):
        yield from _nests(stmt.then, extents)
        if stmt.other is not None:
            yield from _nests(stmt.other, extents)
    elif isinstance(stmt, Switch):
        for steps in _nests(stmt.body, extents):
            most = _steps([substitute(f, {stmt.dim: stmt.high - 1}) for f in steps.factors])
            yield replace(most, number=most.number * steps.number)
    elif isinstance(stmt, Let | Alloc | While):
        yield from _nests(stmt.body, extents)
    else:
        yield _steps(extents)


def _most(extent: Expr) -> DimLike | None:
    """The extent of a loop, of a block that may be cut short the whole block; None if neither is known."""
    if isinstance(extent, Binary) and extent.op is BinOp.MIN:
        return next((d for d in map(as_dim, (extent.b, extent.a)) if d is not None), None)
    return as_dim(extent)


def _steps(extents: Sequence[DimLike]) -> Steps:
    """The product of extents."""
    parts = [split_factors(e) for e in extents]
    return Steps(prod(n for n, _ in parts), tuple(f for _, factors in parts for f in factors))
