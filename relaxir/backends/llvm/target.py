"""Compilation targets: what the code generator may assume about a processor.

A :class:`Target` is plain data. Named levels (``x86-64-v3``, ``aarch64``) are rows of a table; ``native`` asks LLVM
once for the processor of this machine and keeps only the features that code generation can use, so that the same
machine always gives the same target. Nothing here starts LLVM at import.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm.cpuid import X86_BITS, CpuBit
from relaxir.support.optional import load


@dataclass(frozen=True)
class Target:
    """A processor and operating system to generate code for."""

    name: str
    """The spelling the target was asked for, e.g. ``x86-64-v3``."""
    triple: str
    """The LLVM triple, e.g. ``x86_64-unknown-linux-gnu``."""
    cpu: str
    """LLVM's processor name (instruction set and tuning)."""
    features: tuple[str, ...]
    """Features added to or taken from the processor's, each ``+name`` or ``-name``, in a fixed order."""
    vector_bytes: int
    """Bytes of the widest vector register: 16, 32 or 64."""
    num_vector_registers: int
    """Architectural vector registers: 16 or 32."""
    has_fma: bool
    """Whether ``llvm.fma`` on float vectors is one instruction (otherwise it becomes a library call per lane)."""
    has_masked: bool
    """Whether masked vector loads and stores are single instructions with mask registers (AVX-512)."""
    page_size: int = 4096
    """The largest page a system of this kind may use, in bytes: alignment of segments in a library."""
    abi: str = ""
    """LLVM's name of the calling convention where there is a choice (``lp64d`` on riscv64)."""
    required: tuple[str, ...] = ()
    """Names of the processor features a library built for this target checks when it is loaded (keys of
    ``X86_BITS``)."""

    @staticmethod
    def parse(text: str) -> "Target":
        """Return the target called ``text``: ``native``, a named level, or an LLVM triple of a known architecture.

        Raises:
            ValueError: the name is unknown; the message lists what is known.
        """
        if text == "native":
            return _native()
        if text in _NAMED:
            return _NAMED[text]
        arch = text.split("-", 1)[0]
        if "-" in text and arch in _TRIPLE_BASE:
            return replace(_NAMED[_TRIPLE_BASE[arch]], name=text, triple=text)
        known = ", ".join(["native", *_NAMED])
        raise ValueError(f"unknown target '{text}': known are {known}, and LLVM triples of {', '.join(_TRIPLE_BASE)}")

    @property
    def arch(self) -> str:
        """The architecture as LLVM spells it in the triple: ``x86_64``, ``aarch64``, ..."""
        return self.triple.split("-", 1)[0]

    @property
    def required_cpu_bits(self) -> tuple[CpuBit, ...]:
        """The cpuid bits that must be set at load, in a fixed order; empty where the baseline suffices."""
        return tuple(X86_BITS[name] for name in self.required)

    def vector_lanes(self, element_bytes: int) -> int:
        """Return how many elements of ``element_bytes`` bytes one vector register holds."""
        return self.vector_bytes // element_bytes


MADE_FOR: Final = "libraries are made for Linux on x86-64 and aarch64"
"""The way out where a target has no library."""
_LINUX_X86: Final = "x86_64-unknown-linux-gnu"
_V2: Final = ("sse3", "ssse3", "sse4.1", "sse4.2", "popcnt")
_V3: Final = (*_V2, "movbe", "avx", "f16c", "fma", "avx2", "bmi", "bmi2", "lzcnt")
_V4: Final = (*_V3, "avx512f", "avx512dq", "avx512cd", "avx512bw", "avx512vl")


def _x86(name: str, vector_bytes: int, registers: int, required: tuple[str, ...]) -> Target:
    fma, masked = "fma" in required, "avx512vl" in required
    return Target(name, _LINUX_X86, name, (), vector_bytes, registers, fma, masked, required=required)


_ARM: Final = Target(
    "aarch64", "aarch64-unknown-linux-gnu", "generic", ("+neon",), 16, 32, True, False, page_size=65536
)
_RISCV_FEATURES: Final = ("+m", "+a", "+f", "+d", "+c")
_RISCV: Final = Target(
    "riscv64", "riscv64-unknown-linux-gnu", "generic-rv64", _RISCV_FEATURES, 16, 32, True, False, abi="lp64d"
)
_WASM_FEATURES: Final = ("+simd128", "+bulk-memory")
_WASM_TRIPLE: Final = "wasm32-unknown-unknown"
_WASM: Final = Target("wasm32", _WASM_TRIPLE, "generic", _WASM_FEATURES, 16, 16, False, False, page_size=65536)
_LEVELS: Final = (
    _x86("x86-64", 16, 16, ()),
    _x86("x86-64-v2", 16, 16, _V2),
    _x86("x86-64-v3", 32, 16, _V3),
    _x86("x86-64-v4", 64, 32, _V4),
)

_NAMED: Final = MappingProxyType({target.name: target for target in (*_LEVELS, _ARM, _RISCV, _WASM)})

_TRIPLE_BASE: Final = MappingProxyType(
    {"x86_64": "x86-64", "aarch64": "aarch64", "riscv64": "riscv64", "wasm32": "wasm32"}
)

# A processor's name implies features that a hypervisor may hide: those are taken away by name.
_X86_DENIABLE: Final = (
    "aes",
    "pclmul",
    "sha",
    "vaes",
    "vpclmulqdq",
    "adx",
    "prfchw",
    "xop",
    "fma4",
    "tbm",
    "avx10.1",
    "avx10.2",
)


@lru_cache(maxsize=1)
def _native() -> Target:
    machine = load("relaxir.backends.llvm.machine").this_machine()
    arch = machine.triple.split("-", 1)[0]
    if arch != "x86_64":
        return replace(Target.parse(machine.triple), name="native", cpu=machine.cpu)
    return native_x86(machine.triple, machine.cpu, machine.features)


def native_x86(triple: str, cpu: str, host: Mapping[str, bool]) -> Target:
    """Return the target of an x86-64 machine.

    ``host`` is LLVM's report of its processor: feature name to presence.
    """
    usable = tuple(X86_BITS)
    present = tuple(name for name in usable if host.get(name, False))
    absent = tuple(name for name in (*usable, *_X86_DENIABLE) if not host.get(name, False))
    avx512 = all(name in present for name in ("avx512f", "avx512dq", "avx512bw", "avx512vl"))
    avx2 = "avx2" in present
    return Target(
        name="native",
        triple=triple,
        cpu=cpu,
        features=tuple(f"+{name}" for name in present) + tuple(f"-{name}" for name in absent),
        vector_bytes=64 if avx512 else 32 if avx2 else 16,
        num_vector_registers=32 if avx512 else 16,
        has_fma="fma" in present,
        has_masked=avx512,
        required=present,
    )
