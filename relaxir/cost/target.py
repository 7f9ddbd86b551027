"""What the scheduler knows about a machine: a handful of numbers, made by each backend from its own target."""

from __future__ import annotations

from dataclasses import dataclass

from relaxir.support.dtypes import info


@dataclass(frozen=True, slots=True)
class TargetInfo:
    """The machine as the schedule rules see it.

    Attributes:
        vector_bytes: width of a vector register in bytes (AVX2 32, AVX-512 64, NEON and wasm 16, scalar 4).
        registers: how many vector registers there are.
        masked: whether masked vector loads and stores are cheap.
        threads: how many threads a loop may be split over; 1 keeps every loop serial.
        cache_bytes: size of the last-level cache; weights beyond it come from memory at every call.

    """

    vector_bytes: int = 32
    registers: int = 16
    masked: bool = False
    threads: int = 4
    cache_bytes: int = 32 << 20

    def lanes(self, dtype: str) -> int:
        """Elements of a dtype in one vector register, at least 1."""
        return max(1, self.vector_bytes // info(dtype).bytes)
