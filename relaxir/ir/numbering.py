"""Numbers for constants, equal ones alike, without reading all of their data.

Weights that differ nearly always differ in dtype, shape or a few elements, so only constants that agree in all of these
are compared in full: a digest of every weight would cost more than the rest of a pass.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Final

import numpy as np

from relaxir.ir.expr import Array, Constant

SAMPLES: Final = 64
"""Elements looked at before two constants are compared in full."""


class ConstantNumbers:
    """Gives each distinct value of constants the next number, bit for bit."""

    def __init__(self) -> None:
        self.items: list[Constant] = []
        """The first constant of each number."""
        self._numbers: dict[Constant, int] = {}
        self._alike: dict[Hashable, list[int]] = {}

    def __call__(self, constant: Constant) -> int:
        """The number of a constant."""
        if constant not in self._numbers:
            self._numbers[constant] = self._find(constant)
        return self._numbers[constant]

    def _find(self, constant: Constant) -> int:
        alike = self._alike.setdefault(_sample(constant), [])
        for number in alike:
            if np.array_equal(_bytes(self.items[number].data), _bytes(constant.data)):
                return number
        alike.append(len(self.items))
        self.items.append(constant)
        return alike[-1]


def _bytes(data: Array) -> Array:
    flat: Array = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
    return flat


def _sample(constant: Constant) -> Hashable:
    data = constant.data
    flat = data.reshape(-1)
    some = flat[:: max(1, flat.size // SAMPLES)]
    return constant.type.dtype, data.shape, some.tobytes()
