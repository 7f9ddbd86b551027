"""The section table of a linked library.

Loading needs none; link editors (``cc main.c model.so``), debuggers, profilers and ``nm`` do. Beside the dynamic
symbols it lists every named function and variable, so that profiles show kernels by name.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from relaxir.backends.llvm.elf_format import SHDR, SHF_ALLOC, SHT_STRTAB, SHT_SYMTAB, STB_GLOBAL, STB_LOCAL, SYM
from relaxir.backends.llvm.elf_read import Symbol


@dataclass(frozen=True)
class OutputSection:
    """One row of the section table; ``link`` names another row."""

    name: str
    kind: int
    flags: int
    address: int
    offset: int
    size: int
    align: int = 1
    entry: int = 0
    link: str = ""
    info: int = 0


def section_of(rows: Sequence[OutputSection], address: int) -> int:
    """Return the row (from 1) of the memory section that ``address`` lies in or just behind; 0 if there is none."""
    found = 0
    for index, row in enumerate(rows, start=1):
        if row.flags & SHF_ALLOC and row.address <= address <= row.address + row.size:
            found = index
    return found


def append_sections(
    out: bytearray, rows: Sequence[OutputSection], symbols: Sequence[Symbol], exported: frozenset[str]
) -> tuple[int, int, int]:
    """Append symbol table, names and the section table.

    Returns the table's offset, its number of rows and the row of names.
    """
    local = [symbol for symbol in symbols if symbol.name not in exported or symbol.bind == STB_LOCAL]
    public = [symbol for symbol in symbols if symbol.name in exported and symbol.bind != STB_LOCAL]
    names, table = bytearray(1), bytearray(SYM.size)
    for symbol in [*local, *public]:
        bind = STB_GLOBAL if symbol.name in exported else STB_LOCAL
        place = section_of(rows, symbol.address)
        table += SYM.pack(len(names), bind << 4 | symbol.kind, 0, place, symbol.address, symbol.size)
        names += symbol.name.encode() + b"\0"
    out += bytes(-len(out) % 8)
    table_offset, names_offset = len(out), len(out) + len(table)
    out += table + names
    rows = [
        *rows,
        OutputSection(".symtab", SHT_SYMTAB, 0, 0, table_offset, len(table), 8, SYM.size, ".strtab", len(local) + 1),
        OutputSection(".strtab", SHT_STRTAB, 0, 0, names_offset, len(names)),
    ]
    headings = bytearray(1)
    starts: list[int] = []
    for name in [*(row.name for row in rows), ".shstrtab"]:
        starts.append(len(headings))
        headings += name.encode() + b"\0"
    rows.append(OutputSection(".shstrtab", SHT_STRTAB, 0, 0, len(out), len(headings)))
    out += headings
    out += bytes(-len(out) % 8)
    start = len(out)
    index = {row.name: position for position, row in enumerate(rows, start=1)}
    out += bytes(SHDR.size)
    for heading, row in zip(starts, rows, strict=True):
        link = index[row.link] if row.link else 0
        out += SHDR.pack(
            heading, row.kind, row.flags, row.address, row.offset, row.size, link, row.info, row.align, row.entry
        )
    return start, len(rows) + 1, len(rows)
