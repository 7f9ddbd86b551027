"""Running a library with an allocator that fills memory with a known byte, to see what a call touches."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence

import numpy as np

from relaxir.backends.llvm.layout import CHUNK_HEAD
from relaxir.backends.llvm.library import LoadedLibrary, RxOptions
from relaxir.runtime.records import CallRecord
from relaxir.runtime.signature import Signature

ALLOC = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
FREE = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)


class CanaryContext:
    """A context whose every block starts out as ``fill`` bytes and is kept until the end."""

    def __init__(self, library: LoadedLibrary, fill: int) -> None:
        self.library = library
        self.fill = fill
        self.blocks: dict[int, np.ndarray] = {}
        self._alloc, self._free = ALLOC(self._give), FREE(lambda user, block: None)
        weights = None if library.weights is None else library.weights.address
        options = RxOptions(
            ctypes.sizeof(RxOptions),
            weights,
            ctypes.cast(self._alloc, ctypes.c_void_p),
            ctypes.cast(self._free, ctypes.c_void_p),
            None,
        )
        self.address = library.cdll.rx_create(ctypes.byref(options))
        assert self.address, library.cdll.rx_create_error()

    def _give(self, user: int, size: int, alignment: int) -> int:
        memory = np.full(size + alignment, self.fill, np.uint8)
        base = memory.__array_interface__["data"][0]
        start = -base % alignment
        self.blocks[base + start] = memory[start : start + size]
        return base + start

    def touched(self, signature: Signature, index: int, arrays: Sequence[np.ndarray]) -> int:
        """Run once; the number of bytes up to the highest one changed in the frame stack."""
        record = CallRecord(signature, self.address, index)
        for i, a in enumerate(arrays):
            record.set(i, a)
        known = set(self.blocks)
        status = self.library.cdll.rx_invoke(record.address)
        assert not status, self.library.last_error(self.address)
        results = {record.data(len(arrays) + i) for i in range(len(signature.outputs))}
        frames = [b for a, b in self.blocks.items() if a not in known and not any(a <= r < a + b.size for r in results)]
        highest = 0
        for block in frames:
            changed = np.flatnonzero(block[CHUNK_HEAD:] != self.fill)
            highest = max(highest, int(changed[-1]) + 1 if changed.size else 0)
        return highest


def frame_bytes(library: LoadedLibrary, signature: Signature, index: int, arrays: Sequence[np.ndarray]) -> int:
    """Highest frame byte written by a call, whatever value was written: the maximum over two fills."""
    return max(CanaryContext(library, fill).touched(signature, index, arrays) for fill in (0xA5, 0x5A))
