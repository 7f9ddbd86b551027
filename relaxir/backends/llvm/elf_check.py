"""What must hold of a library file before the dynamic linker may map it: it is whole, and for this machine."""

from __future__ import annotations

import os
import platform
import secrets
from pathlib import Path
from types import MappingProxyType
from typing import BinaryIO, Final

from relaxir.backends.llvm.elf_format import EHDR, ET_DYN, PHDR, PT_LOAD
from relaxir.support.errors import LoadError

LIBRARY: Final = (b"\x7fELF\x02\x01", ET_DYN)  # 64 bits, little-endian
MACHINES: Final = MappingProxyType({3: "i386", 40: "arm", 62: "x86-64", 183: "aarch64", 243: "riscv64"})
ALIASES: Final = MappingProxyType({"x86_64": "x86-64", "amd64": "x86-64", "arm64": "aarch64"})


def check_library(file: Path) -> None:
    """Refuse a file that mapping would crash on: the linker does not see a missing end, the first access does.

    Raises:
        LoadError: no ELF library, one for another machine, or a truncated one.
        OSError: the file cannot be read.
    """
    with file.open("rb") as stream:
        size = os.fstat(stream.fileno()).st_size
        head = stream.read(EHDR.size)
        if len(head) < EHDR.size or (head[:6], EHDR.unpack(head)[1]) != LIBRARY:
            raise LoadError(f"`{file}` is not a relaxir library", help="name a file that `export` wrote")
        check_machine(file, EHDR.unpack(head)[2])
        end = end_of_segments(stream, head)
    if end > size:
        raise LoadError(
            f"`{file}` is not a whole relaxir library: it has {size} bytes and needs {end}", help="copy it again"
        )


def check_machine(file: Path, number: int) -> None:
    """Refuse code of another architecture.

    Raises:
        LoadError: naming both.
    """
    here = ALIASES.get(platform.machine().lower(), platform.machine().lower())
    there = MACHINES.get(number, f"ELF machine {number}")
    if here in MACHINES.values() and here != there:
        raise LoadError(
            f"`{file}` is a library for {there}, not a relaxir library for this machine: it is {here}",
            code="load-features",
            help="export with the target of the machine that loads it",
        )


def end_of_segments(stream: BinaryIO, head: bytes) -> int:
    """Least size of a file with its tables and all that its program headers map."""
    start: int
    _, _, _, _, _, start, sections, _, _, each, count, section, section_count, _ = EHDR.unpack(head)
    end: int = max(start + each * count, sections + section * section_count)
    stream.seek(start)
    table = stream.read(each * count)
    if each != PHDR.size or len(table) < each * count:
        return max(end, start + PHDR.size)
    for kind, _, offset, _, _, filled, _, _ in PHDR.iter_unpack(table):
        if kind == PT_LOAD:
            end = max(end, offset + filled)
    return end


def fresh_name(file: Path) -> str:
    """Another spelling of a path: the dynamic linker takes two libraries for one if their names are equal.

    The files decide then: the same one is loaded once, one that replaced another of the same name is new.
    """
    token = "".join("./" if secrets.randbits(1) else "/" for _ in range(64))
    return f"{file.parent}/{token}{file.name}"
