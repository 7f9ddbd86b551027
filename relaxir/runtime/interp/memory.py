"""Memory of buffers under evaluation: a flat array, element strides, and a private copy for each lane where needed."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxir.runtime.interp.lanes import Affine, Lanes
from relaxir.support.dtypes import info
from relaxir.support.errors import InternalError
from relaxir.sym import check_bytes

Array = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Memory:
    """Where a buffer's elements are.

    Attributes:
        flat: one-dimensional contiguous array of stored elements (bfloat16 as uint16 bits).
        shape: extents of the buffer.
        private: offset of a lane's own copy; 0 for memory that all lanes share.
    """

    flat: Array
    shape: tuple[int, ...]
    private: Affine = field(default_factory=lambda: Affine(0))
    strides: tuple[int, ...] = field(init=False)

    def __post_init__(self) -> None:
        steps = [1] * len(self.shape)
        for axis in range(len(self.shape) - 2, -1, -1):
            steps[axis] = steps[axis + 1] * self.shape[axis + 1]
        object.__setattr__(self, "strides", tuple(steps))

    def array(self) -> Array:
        """The elements in the buffer's shape, as a view."""
        return self.flat.reshape(self.shape)

    def view(self, offset: Affine, lanes: Lanes) -> Array:
        """The elements at an affine offset, one for each position along the axes it uses, as a view."""
        size = self.flat.itemsize
        strides = [0] * lanes.rank
        for axis, step in offset.terms:
            strides[axis] = step * size
        return np.ndarray(lanes.shape_of(offset), self.flat.dtype, self.flat, offset.base * size, tuple(strides))


def of_array(array: Array, name: str, shape: Sequence[int], what: str) -> Memory:
    """Memory of a caller's array, in place; its element type and count must fit the buffer."""
    if array.dtype != info(name).numpy or array.size != math.prod(shape):
        raise InternalError(
            f"{what} of {name} and shape {tuple(shape)} was given an array of {array.dtype} and shape {array.shape}"
        )
    flat = array.reshape(-1)
    if array.size and not np.may_share_memory(flat, array):
        raise InternalError(f"{what} was given an array that is not contiguous")
    return Memory(flat, tuple(shape))


def undefined(count: int, name: str) -> Array:
    """Elements whose content is undefined: NaN and extreme integers, so that reading them shows in results."""
    kind = info(name)
    fill: Any = 0
    if name == "bfloat16":
        fill = 0x7FC0
    elif kind.is_float:
        fill = np.nan
    elif kind.is_integer:
        fill = np.iinfo(kind.numpy.name).max - 1
    return np.full(count, fill, kind.numpy)


def allocate(name: str, shape: Sequence[int], lanes: Lanes | None = None) -> Memory:
    """A fresh buffer with undefined content; under lanes, one for each lane."""
    if any(extent < 0 for extent in shape):
        raise InternalError(f"a buffer has the negative extent {min(shape)}")
    check_bytes(shape, info(name).bytes)
    count = math.prod(shape)
    terms: list[tuple[int, int]] = []
    if lanes is not None:
        for axis in range(len(lanes.sizes) - 1, -1, -1):
            if lanes.sizes[axis] > 1:
                terms.append((axis, count))
                count *= lanes.sizes[axis]
    return Memory(undefined(count, name), tuple(shape), Affine(0, tuple(sorted(t for t in terms if t[1]))))
