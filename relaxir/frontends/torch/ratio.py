"""Quotients of sizes: what arithmetic in floats on symbolic integers means before it is rounded."""

from __future__ import annotations

from dataclasses import dataclass

from relaxir.support.fractions import simplest
from relaxir.sym import DimLike, add, mul


@dataclass(frozen=True, slots=True)
class Ratio:
    """A numerator over a denominator, kept as they come: nothing is cancelled."""

    numerator: DimLike
    denominator: DimLike = 1

    @staticmethod
    def of(number: float) -> Ratio:
        """The fraction that a float of a program stands for.

        Raises:
            OverflowError, ValueError: an infinite number, or none.
        """
        found = simplest(number)
        return Ratio(found.numerator, found.denominator)

    def __add__(self, other: Ratio) -> Ratio:
        top = add(mul(self.numerator, other.denominator), mul(other.numerator, self.denominator))
        return Ratio(top, mul(self.denominator, other.denominator))

    def __sub__(self, other: Ratio) -> Ratio:
        return self + Ratio(mul(-1, other.numerator), other.denominator)

    def __mul__(self, other: Ratio) -> Ratio:
        return Ratio(mul(self.numerator, other.numerator), mul(self.denominator, other.denominator))

    def __truediv__(self, other: Ratio) -> Ratio:
        return self * Ratio(other.denominator, other.numerator)
