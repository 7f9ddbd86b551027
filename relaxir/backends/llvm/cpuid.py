"""Where x86 processors report the features that code may use.

Sources: Intel SDM volume 2A, ``CPUID``; AMD APM volume 3, appendix E.
"""

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, Literal


@dataclass(frozen=True)
class CpuBit:
    """One feature bit of the ``cpuid`` instruction."""

    feature: str
    """LLVM's name of the feature."""
    leaf: int
    """Value of ``eax`` on entry."""
    subleaf: int
    """Value of ``ecx`` on entry."""
    register: Literal["a", "b", "c", "d"]
    """Result register: ``eax``, ``ebx``, ``ecx`` or ``edx``."""
    bit: int
    """Position of the bit in the register."""
    state: int
    """Bits of the XCR0 register the operating system must have enabled for it (6: AVX, 0xe6: AVX-512)."""


_AVX: Final = 0x06
_AVX512: Final = 0xE6

_ROWS: Final[tuple[CpuBit, ...]] = (
    CpuBit("sse3", 1, 0, "c", 0, 0),
    CpuBit("ssse3", 1, 0, "c", 9, 0),
    CpuBit("sse4.1", 1, 0, "c", 19, 0),
    CpuBit("sse4.2", 1, 0, "c", 20, 0),
    CpuBit("popcnt", 1, 0, "c", 23, 0),
    CpuBit("movbe", 1, 0, "c", 22, 0),
    CpuBit("avx", 1, 0, "c", 28, _AVX),
    CpuBit("f16c", 1, 0, "c", 29, _AVX),
    CpuBit("fma", 1, 0, "c", 12, _AVX),
    CpuBit("avx2", 7, 0, "b", 5, _AVX),
    CpuBit("bmi", 7, 0, "b", 3, 0),
    CpuBit("bmi2", 7, 0, "b", 8, 0),
    CpuBit("lzcnt", 0x80000001, 0, "c", 5, 0),
    CpuBit("gfni", 7, 0, "c", 8, 0),
    CpuBit("avx512f", 7, 0, "b", 16, _AVX512),
    CpuBit("avx512dq", 7, 0, "b", 17, _AVX512),
    CpuBit("avx512ifma", 7, 0, "b", 21, _AVX512),
    CpuBit("avx512cd", 7, 0, "b", 28, _AVX512),
    CpuBit("avx512bw", 7, 0, "b", 30, _AVX512),
    CpuBit("avx512vl", 7, 0, "b", 31, _AVX512),
    CpuBit("avx512vbmi", 7, 0, "c", 1, _AVX512),
    CpuBit("avx512vbmi2", 7, 0, "c", 6, _AVX512),
    CpuBit("avx512vnni", 7, 0, "c", 11, _AVX512),
    CpuBit("avx512bitalg", 7, 0, "c", 12, _AVX512),
    CpuBit("avx512vpopcntdq", 7, 0, "c", 14, _AVX512),
    CpuBit("avx512fp16", 7, 0, "d", 23, _AVX512),
    CpuBit("avxvnni", 7, 1, "a", 4, _AVX),
    CpuBit("avx512bf16", 7, 1, "a", 5, _AVX512),
)

X86_BITS: Final = MappingProxyType({row.feature: row for row in _ROWS})
"""Every feature code generation may use beyond plain x86-64, by LLVM's name."""
