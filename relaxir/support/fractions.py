"""Which fraction a float stands for."""

from __future__ import annotations

from fractions import Fraction
from math import floor
from typing import Any

import numpy as np


def simplest(number: float) -> Fraction:
    """The fraction of least denominator that rounds to ``number``: 23/10 for 2.3, which no float is exactly.

    A number that 32 bits hold is taken for a float of 32 bits, so 23/10 also stands for ``float(np.float32(2.3))``.
    Sizes are scaled by it as people mean them, and as arithmetic in floats has them: ``floor(10 * 2.3)`` is 23.

    >>> simplest(2.3), simplest(float(np.float32(1 / 3))), simplest(-0.5)
    (Fraction(23, 10), Fraction(1, 3), Fraction(-1, 2))

    Raises:
        OverflowError, ValueError: ``number`` is infinite or no number.
    """
    if number < 0:
        return -simplest(-number)
    kind: type[np.floating[Any]] = np.float64
    if number <= float(np.finfo(np.float32).max) and float(np.float32(number)) == number:
        kind = np.float32
    exact, value = Fraction(number), kind(number)
    below, above = (Fraction(float(np.nextafter(value, kind(end)))) for end in (0, np.inf))
    found = between((below + exact) / 2, (exact + above) / 2)
    return found if float(kind(float(found))) == number else exact


def between(low: Fraction, high: Fraction) -> Fraction:
    """The fraction of least denominator in ``low .. high``, neither negative, by their continued fractions."""
    whole = floor(low)
    if whole == low:
        return low
    if whole + 1 <= high:
        return Fraction(whole + 1)
    return whole + 1 / between(1 / (high - whole), 1 / (low - whole))
