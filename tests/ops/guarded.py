"""Arrays whose neighbourhood is watched: an unreadable page right behind, bytes of a known value before."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

PAGE = mmap.PAGESIZE
BEFORE = 256
"""Least number of watched bytes before an array: more than any vector store that begins too early."""
FILL = 0xA5


@dataclass(frozen=True)
class Guarded:
    """An array that ends where an unreadable page begins, and the watched bytes before it."""

    array: np.ndarray
    before: np.ndarray

    def intact(self) -> bool:
        """Whether nothing was written before the array."""
        return bool((self.before == FILL).all())


def guarded(a: np.ndarray) -> Guarded:
    """A copy of an array in guarded memory: reading or writing past its end is a segmentation fault."""
    a = np.asarray(a, order="C")
    end = -(-(a.nbytes + BEFORE) // PAGE) * PAGE
    memory = mmap.mmap(-1, end + PAGE)
    address = ctypes.addressof(ctypes.c_char.from_buffer(memory)) + end
    protect = ctypes.CDLL(None, use_errno=True).mprotect
    if protect(ctypes.c_void_p(address), ctypes.c_size_t(PAGE), 0):
        raise OSError(ctypes.get_errno(), "mprotect")
    before = np.ndarray(end - a.nbytes, np.uint8, memory)
    before[:] = FILL
    copy = np.ndarray(a.shape, a.dtype, memory, end - a.nbytes)
    copy[...] = a
    return Guarded(copy, before)


def call_guarded(
    into: Callable[..., None], inputs: Iterable[np.ndarray], outputs: Iterable[np.ndarray]
) -> tuple[np.ndarray, ...]:
    """Run ``into(outputs, *inputs)`` on guarded copies; results come back as plain arrays.

    Args:
        into: `CompiledFunction.into`.
        inputs: operands.
        outputs: arrays of the results' shapes and dtypes; their content is what the results start from.

    Raises:
        AssertionError: an input was changed, or memory before an array was written.
    """
    ins, outs = [guarded(a) for a in inputs], [guarded(a) for a in outputs]
    kept = [g.array.tobytes() for g in ins]
    into([g.array for g in outs], *(g.array for g in ins))
    for i, (g, bytes_before) in enumerate(zip(ins, kept, strict=True)):
        assert g.array.tobytes() == bytes_before, f"operand {i} was changed"
        assert g.intact(), f"memory before operand {i} was written"
    for i, g in enumerate(outs):
        assert g.intact(), f"memory before result {i} was written"
    return tuple(g.array.copy() for g in outs)
