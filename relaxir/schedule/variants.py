"""Variants of a kernel: which one runs is decided by its extents, ahead where they are known, else at run time."""

from __future__ import annotations

import operator
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

from relaxir.sym import DimLike, is_const
from relaxir.tir import Expr, If, Stmt, as_expr, const


@dataclass(frozen=True, slots=True)
class Range:
    """A claim about an extent: that it is not below ``low``, and not above ``high`` unless that is None."""

    extent: DimLike
    low: int = 0
    high: int | None = None

    @property
    def known(self) -> bool | None:
        """Whether the claim holds, None while the extent is not known."""
        if not is_const(self.extent):
            return None
        return int(self.extent) >= self.low and (self.high is None or int(self.extent) <= self.high)

    def test(self) -> Expr:
        """The claim as an expression; one of its two ends must be open."""
        extent = as_expr(self.extent)
        return extent >= const(self.low) if self.high is None else extent <= const(self.high)


Way = tuple[Sequence[Range], Callable[[], Stmt]]
"""A statement that is better than the usual one where claims about extents hold."""


def variants(ways: Sequence[Way], usual: Callable[[], Stmt]) -> Stmt:
    """The first of several ways whose claims all hold, the usual one where none does."""
    if not ways:
        return usual()
    (ranges, special), *rest = ways
    return variant(ranges, special, lambda: variants(rest, usual))


def variant(ranges: Sequence[Range], special: Callable[[], Stmt], usual: Callable[[], Stmt]) -> Stmt:
    """The special statement where all claims hold, the usual one elsewhere; a known decision makes only one of them."""
    if any(r.known is False for r in ranges):
        return usual()
    tests = [r.test() for r in ranges if r.known is None]
    return If(reduce(operator.and_, tests), special(), usual()) if tests else special()
