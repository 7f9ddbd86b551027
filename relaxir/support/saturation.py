"""Floats as integers, as tensor programs convert them."""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Array: TypeAlias = NDArray[Any]


def saturated(values: Array, target: np.dtype[Any]) -> Array:
    """Integers without the fraction of floats: the nearest that there is, and 0 for NaN."""
    limits = np.iinfo(target)
    whole = np.trunc(np.asarray(values, np.float64))
    # compare against powers of two: the largest 64-bit integers are not floats
    below, above = whole < float(limits.min), whole >= float(limits.max) + (1.0 if limits.bits < 64 else 0.0)
    safe = np.where(below | above | np.isnan(whole), 0.0, whole).astype(target)
    result: Array = np.where(above, limits.max, np.where(below, limits.min, safe))
    return result.astype(target)
