"""Relocations, one class per architecture.

Sources: psABI x86-64, section 4.4; ELF for the Arm 64-bit architecture, section 5.7.
"""

import struct
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from relaxir.backends.llvm.errors import LinkError


class Architecture(ABC):
    """What the linker must know about an instruction set."""

    machine: ClassVar[int]
    """``e_machine``."""
    page: ClassVar[int]
    """Alignment of segments in bytes: the largest page size in use."""
    absolute: ClassVar[int]
    """The 64-bit absolute relocation, in objects and for the dynamic linker."""
    relative: ClassVar[int]
    """The dynamic relocation "load address + addend"."""
    glob_dat: ClassVar[int]
    """The dynamic relocation that fills a slot of the global offset table."""
    got_kinds: ClassVar[frozenset[int]]
    """Relocations that refer to the symbol's slot in the global offset table."""
    call_kinds: ClassVar[frozenset[int]]
    """Relocations of calls and jumps, which may go through a stub."""
    stub_size: ClassVar[int] = 16
    """Bytes of a stub that jumps through a slot."""

    @abstractmethod
    def apply(self, out: bytearray, place: int, kind: int, target: int) -> None:
        """Patch the bytes at ``place`` (offset and address) to refer to ``target`` (symbol + addend).

        Raises:
            LinkError: an unknown relocation, or a target out of reach.
        """

    @abstractmethod
    def stub(self, out: bytearray, place: int, slot: int) -> None:
        """Write a stub at ``place`` that jumps to the address kept in ``slot``."""


class X86(Architecture):
    """x86-64."""

    machine = 62
    page = 0x1000
    absolute = 1
    relative = 8
    glob_dat = 6
    got_kinds = frozenset((9, 41, 42))
    call_kinds = frozenset((4,))

    def apply(self, out: bytearray, place: int, kind: int, target: int) -> None:
        """Patch one place.

        PC32 (2), PLT32 (4), GOTPCREL (9), GOTPCRELX (41), REX_GOTPCRELX (42), PC64 (24).
        """
        if kind in (2, 4, 9, 41, 42):
            struct.pack_into("<i", out, place, _signed(target - place, 32, kind))
        elif kind == 24:
            struct.pack_into("<q", out, place, target - place)
        else:
            raise LinkError(f"unknown x86-64 relocation {kind}")

    def stub(self, out: bytearray, place: int, slot: int) -> None:
        """``jmp *slot(%rip)``, filled up with ``int3``."""
        out[place : place + 16] = b"\xff\x25" + struct.pack("<i", _signed(slot - place - 6, 32, 0)) + b"\xcc" * 10


@dataclass(frozen=True)
class _Field:
    """``width`` bits at ``low`` of an AArch64 instruction, for a displacement counted in ``1 << shift`` bytes."""

    width: int
    low: int
    shift: int


class AArch64(Architecture):
    """AArch64 (little-endian)."""

    machine = 183
    page = 0x10000
    absolute = 257
    relative = 1027
    glob_dat = 1025
    got_kinds = frozenset((311, 312))
    call_kinds = frozenset((282, 283, 314))

    _BRANCHES: ClassVar[Mapping[int, _Field]] = {
        273: _Field(19, 5, 2),  # LD_PREL_LO19
        279: _Field(14, 5, 2),  # TSTBR14
        280: _Field(19, 5, 2),  # CONDBR19
        282: _Field(26, 0, 2),  # JUMP26
        283: _Field(26, 0, 2),  # CALL26
    }
    _LOW12: ClassVar[Mapping[int, int]] = {277: 0, 278: 0, 284: 1, 285: 2, 286: 3, 299: 4, 312: 3}
    """ADD_ABS_LO12, LDST8/16/32/64/128, LD64_GOT_LO12: scale of the immediate."""

    def apply(self, out: bytearray, place: int, kind: int, target: int) -> None:
        """Patch one place: page-relative pairs (ADRP + low 12 bits), branches, PREL32/64 data."""
        if kind in (275, 311):
            pages = (target >> 12) - (place >> 12)
            _adr(out, place, _signed(pages, 21, kind))
        elif kind == 274:
            _adr(out, place, _signed(target - place, 21, kind))
        elif kind in self._LOW12:
            scale = self._LOW12[kind]
            if target & ((1 << scale) - 1):
                raise LinkError(f"aarch64 relocation {kind} to the unaligned address {target:#x}")
            _insert(out, place, (target & 0xFFF) >> scale, 12, 10)
        elif kind in self._BRANCHES:
            field = self._BRANCHES[kind]
            _insert(out, place, _signed((target - place) >> field.shift, field.width, kind), field.width, field.low)
        elif kind in (261, 314):
            struct.pack_into("<i", out, place, _signed(target - place, 32, kind))
        elif kind == 260:
            struct.pack_into("<q", out, place, target - place)
        else:
            raise LinkError(f"unknown aarch64 relocation {kind}")

    def stub(self, out: bytearray, place: int, slot: int) -> None:
        """``adrp x16, slot; ldr x17, [x16, low]; br x17; nop`` (x16 and x17 are the linker's scratch registers)."""
        struct.pack_into("<IIII", out, place, 0x90000010, 0xF9400211, 0xD61F0220, 0xD503201F)
        self.apply(out, place, 275, slot)
        self.apply(out, place + 4, 286, slot)


def _signed(value: int, bits: int, kind: int) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise LinkError(f"relocation {kind} reaches {value:#x}, more than {bits} bits away")
    return value


def _insert(out: bytearray, place: int, value: int, width: int, low: int) -> None:
    mask = (1 << width) - 1
    (word,) = struct.unpack_from("<I", out, place)
    struct.pack_into("<I", out, place, (word & ~(mask << low)) | ((value & mask) << low))


def _adr(out: bytearray, place: int, value: int) -> None:
    _insert(out, place, value & 3, 2, 29)
    _insert(out, place, value >> 2, 19, 5)


ARCHITECTURES: Final = MappingProxyType({arch.machine: arch for arch in (X86(), AArch64())})
"""By ``e_machine``."""
