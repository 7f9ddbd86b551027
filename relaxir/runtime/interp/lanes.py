"""Lanes: the loops that are evaluated at once, as axes of NumPy arrays.

Every value of a program under evaluation is an array of one fixed rank, with one axis for each loop that became a
batch axis (extent 1 where the value does not depend on it), a NumPy scalar, or an `Affine`: an index that is a base
plus a step along some batch axes, kept symbolic so that loads and stores become strided views of memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

SAFE: Final = 1 << 61  # affine arithmetic beyond this leaves the exact form, so that int64 wraps as it should


@dataclass(frozen=True, slots=True)
class Affine:
    """``base + sum of step * position along axis``; ``terms`` holds (axis, step), sorted, without zero steps."""

    base: int
    terms: tuple[tuple[int, int], ...] = ()

    def plus(self, other: Affine, sign: int = 1) -> Affine:
        """``self + sign * other``."""
        if not self.terms and not other.terms:
            return Affine(self.base + sign * other.base)
        steps = dict(self.terms)
        for axis, step in other.terms:
            steps[axis] = steps.get(axis, 0) + sign * step
        terms = tuple(sorted((a, s) for a, s in steps.items() if s))
        return Affine(self.base + sign * other.base, terms)

    def times(self, factor: int) -> Affine:
        """``self * factor``."""
        return Affine(self.base * factor, tuple((a, s * factor) for a, s in self.terms) if factor else ())

    @property
    def small(self) -> bool:
        """Whether nothing here can wrap an int64."""
        return abs(self.base) < SAFE and all(abs(s) < 1 << 40 for _, s in self.terms)


class Lanes:
    """The active batch axes: their extents, index ranges and conversions of `Affine` values."""

    def __init__(self, rank: int) -> None:
        """Make room for ``rank`` axes, none of them active."""
        self.rank = rank
        self.sizes: list[int] = []
        self._iotas: dict[tuple[int, int], Array] = {}

    def push(self, size: int) -> int:
        """Activate the next axis with an extent; returns its number."""
        self.sizes.append(size)
        return len(self.sizes) - 1

    def pop(self) -> None:
        """Deactivate the last axis."""
        self.sizes.pop()

    @property
    def count(self) -> int:
        """Number of lanes."""
        total = 1
        for size in self.sizes:
            total *= size
        return total

    def iota(self, axis: int) -> Array:
        """``arange`` along one axis."""
        key = (axis, self.sizes[axis])
        if key not in self._iotas:
            shape = [1] * self.rank
            shape[axis] = key[1]
            self._iotas[key] = np.arange(key[1], dtype=np.int64).reshape(shape)
        return self._iotas[key]

    def shape_of(self, value: Affine) -> tuple[int, ...]:
        """Shape of the array that ``value`` stands for."""
        shape = [1] * self.rank
        for axis, _ in value.terms:
            shape[axis] = self.sizes[axis]
        return tuple(shape)

    def bounds(self, value: Affine) -> tuple[int, int]:
        """Smallest and largest value over all lanes."""
        low = high = value.base
        for axis, step in value.terms:
            reach = step * (self.sizes[axis] - 1)
            low, high = low + min(reach, 0), high + max(reach, 0)
        return low, high

    def array(self, value: Affine) -> Array:
        """The int64 array that ``value`` stands for."""
        result: Any = np.int64(value.base)
        for axis, step in value.terms:
            result = result + self.iota(axis) * np.int64(step)
        return np.asarray(result)

    def injective(self, value: Affine) -> bool:
        """Whether different lanes along the axes of ``value`` certainly give different values."""
        reach = 0
        for step, size in sorted((abs(s), self.sizes[a]) for a, s in value.terms):
            if step <= reach and size > 1:
                return False
            reach += step * (size - 1)
        return True


def varying(array: Array) -> tuple[int, ...]:
    """Axes along which an array has more than one element."""
    return tuple(axis for axis, size in enumerate(array.shape) if size > 1)
