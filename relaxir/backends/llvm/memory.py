"""Anonymous memory with huge pages, for weights used in this process."""

import ctypes
import mmap
from contextlib import suppress
from typing import Final

HUGE_PAGE: Final = 2 << 20


class HugeMemory:
    """``size`` zeroed bytes, aligned to 2 MB, for which the kernel is asked to use huge pages.

    The memory is private to the process (a forked child gets its own copy on write) and lives as long as this object
    or any view of it.
    """

    def __init__(self, size: int) -> None:
        """Map the memory.

        Raises:
            OSError: the system has not that much.
            ValueError: ``size`` is negative.
        """
        if size < 0:
            raise ValueError(f"a size of {size} bytes")
        self.size = size
        self._map = mmap.mmap(-1, size + HUGE_PAGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        base = ctypes.addressof(ctypes.c_char.from_buffer(self._map))
        offset = -base % HUGE_PAGE
        self.address = base + offset
        """Address of the first byte."""
        self.view = memoryview(self._map)[offset : offset + size]
        """The bytes, writable."""
        if size >= HUGE_PAGE:
            with suppress(AttributeError, OSError):
                self._map.madvise(mmap.MADV_HUGEPAGE, offset, size)

    @staticmethod
    def holding(data: bytes | memoryview) -> "HugeMemory":
        """Return memory with a copy of ``data`` (any contiguous buffer)."""
        source = memoryview(data)
        memory = HugeMemory(source.nbytes)
        memory.view[:] = source.cast("B") if source.nbytes else b""
        return memory
