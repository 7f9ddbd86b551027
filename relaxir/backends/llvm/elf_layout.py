"""Layout and tables of a shared library.

This is the body of the linker in :mod:`relaxir.backends.llvm.elf`, whose invariants hold here.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Final

from relaxir.backends.llvm import elf_format as elf
from relaxir.backends.llvm.elf_format import DYN, EHDR, PHDR, RELA, SYM, align_up
from relaxir.backends.llvm.elf_read import Section, Symbol
from relaxir.backends.llvm.elf_resolve import FINI, INIT, PLAIN, Resolution, group_of
from relaxir.backends.llvm.elf_sections import OutputSection, append_sections, section_of
from relaxir.backends.llvm.errors import LinkError

MOST_DYNAMIC: Final = 20
"""Entries that the dynamic section has room for."""
WEIGHTS_ALIGN: Final = 64
SLOT_BYTES: Final = 8


@dataclass(frozen=True)
class Extents:
    """Where the parts of the three segments begin and end, as addresses (which are file offsets too)."""

    read_end: int
    code_start: int
    code_end: int
    data_start: int
    relro_end: int
    """End of what is read-only once it is relocated; pages up to ``plain_start`` are protected."""
    plain_start: int
    file_end: int
    memory_end: int


class Image:
    """One library being linked: assigns addresses and fills in."""

    def __init__(self, resolved: Resolution, ident: bytes, weights_size: int | None) -> None:
        """Link what is resolved; ``weights_size`` is the size of the weights, None where there are none."""
        self.resolved = resolved
        self.arch = resolved.arch
        self.ident = ident
        self.weights_size = weights_size
        self.weights_address = 0

    def build(self, soname: str | None, needed: Sequence[str]) -> bytes:
        """Assign addresses and return the library without its weights."""
        self._name(soname, needed)
        extents = self._place_all()
        out = bytearray(extents.file_end)
        self._fill_content(out)
        left = self._relocate(out)
        for index, entry in enumerate(left):
            RELA.pack_into(out, self.rela_table + RELA.size * index, *entry)
        rows = self._rows(extents)
        self._fill_symbols(out, rows)
        out[self.string_table : self.string_table + len(self.strings)] = self.strings
        out[self.hash_table : self.hash_table + len(self.hashes)] = self.hashes
        dynamic_size = self._fill_dynamic(out, soname, needed, len(left))
        weights_offset = self._add_weights(rows, out)
        table = self._append_sections(out, rows)
        self._fill_headers(out, self._segments(extents, dynamic_size, weights_offset), table)
        return bytes(out)

    # ---- addresses

    def _name(self, soname: str | None, needed: Sequence[str]) -> None:
        """Collect the dynamic string table, the indices of dynamic symbols and their hash table."""
        names = [*self.resolved.imports, *self.resolved.exports]
        strings = bytearray(1)
        self.offsets: dict[str, int] = {}
        for text in [*names, *needed, *([] if soname is None else [soname])]:
            if text not in self.offsets:
                self.offsets[text] = len(strings)
                strings += text.encode() + b"\0"
        self.strings = bytes(strings)
        self.indices = {name: index for index, name in enumerate(names, start=1)}
        self.hashes = _hash_table(self.indices)

    def _place_all(self) -> Extents:
        """Give every table and section its address."""
        resolved, page = self.resolved, self.arch.page
        headers = 6 if self.weights_size is None else 7
        self.symbol_table = align_up(EHDR.size + PHDR.size * headers, 8)
        self.string_table = self.symbol_table + SYM.size * (len(self.indices) + 1)
        self.hash_table = align_up(self.string_table + len(self.strings), 8)
        self.rela_table = align_up(self.hash_table + len(self.hashes), 8)
        self.rela_end = self.rela_table + RELA.size * resolved.dynamic_count
        read_end = _place(resolved.constants, self.rela_end)
        code_start = align_up(read_end, page)
        self.stub_start = align_up(_place(resolved.code, code_start), 16)
        code_end = self.stub_start + self.arch.stub_size * len(resolved.stubs)
        self.dynamic = align_up(code_end, page)
        self.slot_start = self.dynamic + DYN.size * MOST_DYNAMIC
        protected = [section for section in resolved.data if group_of(section) < PLAIN]
        relro_end = _place(protected, self.slot_start + SLOT_BYTES * len(resolved.slots))
        plain_start = align_up(relro_end, page)
        file_end = _place(resolved.data[len(protected) :], plain_start)
        memory_end = _place(resolved.zeroed, file_end)
        self.weights_address = align_up(memory_end, page)
        return Extents(read_end, code_start, code_end, self.dynamic, relro_end, plain_start, file_end, memory_end)

    def _slot(self, key: Symbol | str) -> int:
        return self.slot_start + SLOT_BYTES * self.resolved.slots[key]

    def _address(self, key: Symbol | str) -> int | None:
        """Return the address of what a reference means, or None where it lies outside."""
        if isinstance(key, str):
            return self.weights_address if key == self.resolved.weights else None
        return key.address

    # ---- content

    def _fill_content(self, out: bytearray) -> None:
        resolved = self.resolved
        for section in [*resolved.constants, *resolved.code, *resolved.data]:
            out[section.address : section.address + section.size] = section.data
        for name, index in resolved.stubs.items():
            self.arch.stub(out, self.stub_start + self.arch.stub_size * index, self._slot(name))

    def _relocate(self, out: bytearray) -> list[tuple[int, int, int]]:
        """Apply every relocation and return those left to the dynamic linker."""
        resolved = self.resolved
        left = [self._dynamic_entry(self._slot(key), self.arch.glob_dat, key, 0) for key in resolved.slots]
        for relocation in resolved.relocations:
            place = relocation.section.address + relocation.offset
            key = resolved.meaning(relocation.symbol)
            if relocation.kind == self.arch.absolute:
                if not relocation.section.flags & elf.SHF_WRITE:
                    raise LinkError(
                        f"address of '{relocation.symbol.name}' in the read-only section {relocation.section.name}"
                    )
                left.append(self._dynamic_entry(place, self.arch.absolute, key, relocation.addend))
                continue
            target = self._target(relocation.kind, key)
            if target is None:
                raise LinkError(
                    f"'{relocation.symbol.name}' is undefined and used as data (relocation {relocation.kind})"
                )
            self.arch.apply(out, place, relocation.kind, target + relocation.addend)
        return sorted(left, key=lambda entry: (entry[1] & 0xFFFFFFFF != self.arch.relative, entry[0]))

    def _target(self, kind: int, key: Symbol | str) -> int | None:
        """Return the address a relocation refers to: of a slot, of a stub, or of what is meant."""
        if kind in self.arch.got_kinds:
            return self._slot(key)
        if isinstance(key, str) and key in self.resolved.stubs and kind in self.arch.call_kinds:
            return self.stub_start + self.arch.stub_size * self.resolved.stubs[key]
        return self._address(key)

    def _dynamic_entry(self, place: int, kind: int, key: Symbol | str, addend: int) -> tuple[int, int, int]:
        address = self._address(key)
        if isinstance(key, str) and address is None:
            return (place, self.indices[key] << 32 | kind, addend)
        return (place, self.arch.relative, (address or 0) + addend)

    def _fill_symbols(self, out: bytearray, rows: Sequence[OutputSection]) -> None:
        for name, index in self.indices.items():
            symbol = self.resolved.globals.get(name)
            if symbol is None:
                fields = (self.resolved.imports[name] << 4, 0, 0, 0, 0)
            else:
                info, home = elf.STB_GLOBAL << 4 | symbol.kind, section_of(rows, symbol.address)
                fields = (info, 0, home, symbol.address, symbol.size)
            SYM.pack_into(out, self.symbol_table + SYM.size * index, self.offsets[name], *fields)

    def _fill_dynamic(self, out: bytearray, soname: str | None, needed: Sequence[str], relocations: int) -> int:
        """Write the dynamic section and return its size."""
        entries = [(elf.DT_NEEDED, self.offsets[name]) for name in needed]
        if soname is not None:
            entries.append((elf.DT_SONAME, self.offsets[soname]))
        entries += [
            (elf.DT_HASH, self.hash_table),
            (elf.DT_STRTAB, self.string_table),
            (elf.DT_SYMTAB, self.symbol_table),
            (elf.DT_STRSZ, len(self.strings)),
            (elf.DT_SYMENT, SYM.size),
        ]
        if relocations:
            size = RELA.size * relocations
            entries += [(elf.DT_RELA, self.rela_table), (elf.DT_RELASZ, size), (elf.DT_RELAENT, RELA.size)]
        arrays = ((INIT, elf.DT_INIT_ARRAY, elf.DT_INIT_ARRAYSZ), (FINI, elf.DT_FINI_ARRAY, elf.DT_FINI_ARRAYSZ))
        for group, address_tag, size_tag in arrays:
            array = [section for section in self.resolved.data if group_of(section) == group]
            if array:
                start, end = array[0].address, array[-1].address + array[-1].size
                entries += [(address_tag, start), (size_tag, end - start)]
        entries += [(elf.DT_FLAGS, elf.DF_BIND_NOW), (elf.DT_FLAGS_1, elf.DF_1_NOW), (elf.DT_NULL, 0)]
        if len(entries) > MOST_DYNAMIC:
            raise LinkError(f"{len(needed)} needed libraries are too many")
        for index, entry in enumerate(entries):
            DYN.pack_into(out, self.dynamic + DYN.size * index, *entry)
        return DYN.size * len(entries)

    # ---- tables of segments and sections

    def _rows(self, extents: Extents) -> list[OutputSection]:
        """Return the section table's rows that lie in memory; file offset equals address."""
        strings_end, hashes_end = self.string_table + len(self.strings), self.hash_table + len(self.hashes)

        def row(
            name: str, kind: int, flags: int, start: int, end: int, align: int = 8, entry: int = 0, link: str = ""
        ) -> OutputSection:
            return OutputSection(name, kind, elf.SHF_ALLOC | flags, start, start, end - start, align, entry, link)

        return [
            replace(
                row(".dynsym", elf.SHT_DYNSYM, 0, self.symbol_table, self.string_table, entry=SYM.size, link=".dynstr"),
                info=1,  # the first symbol that is not local
            ),
            row(".dynstr", elf.SHT_STRTAB, 0, self.string_table, strings_end, align=1),
            row(".hash", elf.SHT_HASH, 0, self.hash_table, hashes_end, entry=4, link=".dynsym"),
            row(".rela.dyn", elf.SHT_RELA, 0, self.rela_table, self.rela_end, entry=RELA.size, link=".dynsym"),
            row(".rodata", elf.SHT_PROGBITS, 0, self.rela_end, extents.read_end),
            row(".text", elf.SHT_PROGBITS, elf.SHF_EXECINSTR, extents.code_start, extents.code_end, align=16),
            row(
                ".dynamic",
                elf.SHT_DYNAMIC,
                elf.SHF_WRITE,
                self.dynamic,
                self.slot_start,
                entry=DYN.size,
                link=".dynstr",
            ),
            row(".data.rel.ro", elf.SHT_PROGBITS, elf.SHF_WRITE, self.slot_start, extents.relro_end),
            row(".data", elf.SHT_PROGBITS, elf.SHF_WRITE, extents.plain_start, extents.file_end),
            row(".bss", elf.SHT_NOBITS, elf.SHF_WRITE, extents.file_end, extents.memory_end, align=64),
        ]

    def _add_weights(self, rows: list[OutputSection], out: bytearray) -> int:
        """Add the row of the weights, which lie behind all else, and return their offset in the file."""
        if self.weights_size is None:
            return 0
        row = OutputSection(
            ".rx_weights", elf.SHT_PROGBITS, elf.SHF_ALLOC, self.weights_address, 0, self.weights_size, WEIGHTS_ALIGN
        )
        measured = bytearray(out)  # a first run measures how long the file is without them
        self._append_sections(measured, [*rows, row])
        offset = align_up(len(measured), self.arch.page)
        rows.append(replace(row, offset=offset))
        return offset

    def _append_sections(self, out: bytearray, rows: Sequence[OutputSection]) -> tuple[int, int, int]:
        return append_sections(out, rows, self.resolved.named, frozenset(self.resolved.exports))

    def _segments(self, extents: Extents, dynamic_size: int, weights_offset: int) -> list[tuple[int, ...]]:
        """Return the program headers."""
        e, page = extents, self.arch.page

        def segment(kind: int, flags: int, start: int, filled: int, size: int, align: int) -> tuple[int, ...]:
            return (kind, flags, start, start, start, filled, size, align)

        code, file, memory = e.code_end - e.code_start, e.file_end - e.data_start, e.memory_end - e.data_start
        protected = e.plain_start - e.data_start
        loaded = [
            segment(elf.PT_LOAD, elf.PF_R, 0, e.read_end, e.read_end, page),
            segment(elf.PT_LOAD, elf.PF_RX, e.code_start, code, code, page),
            segment(elf.PT_LOAD, elf.PF_RW, e.data_start, file, memory, page),
        ]
        if self.weights_size is not None:
            at, size = self.weights_address, self.weights_size
            loaded.append((elf.PT_LOAD, elf.PF_R, weights_offset, at, at, size, size, page))
        return [
            *loaded,
            segment(elf.PT_DYNAMIC, elf.PF_RW, e.data_start, dynamic_size, dynamic_size, 8),
            segment(elf.PT_GNU_RELRO, elf.PF_R, e.data_start, protected, protected, 1),
            segment(elf.PT_GNU_STACK, elf.PF_RW, 0, 0, 0, 16),
        ]

    def _fill_headers(self, out: bytearray, segments: Sequence[tuple[int, ...]], table: tuple[int, int, int]) -> None:
        start, rows, names = table
        machine, sizes = self.arch.machine, (EHDR.size, PHDR.size, len(segments), elf.SHDR.size)
        EHDR.pack_into(out, 0, self.ident, elf.ET_DYN, machine, 1, 0, EHDR.size, start, 0, *sizes, rows, names)
        for index, segment in enumerate(segments):
            PHDR.pack_into(out, EHDR.size + PHDR.size * index, *segment)


def _place(sections: Iterable[Section], position: int) -> int:
    """Put sections one behind the other from a position on, and return their end."""
    for section in sections:
        section.address = position = align_up(position, section.align)
        position += section.size
    return position


def _hash_table(indices: dict[str, int]) -> bytes:
    """Return the System V hash table of the dynamic symbols."""
    count = len(indices) + 1
    buckets, chains = [0] * max(1, count // 2), [0] * count
    for name, index in indices.items():
        bucket = _sysv_hash(name) % len(buckets)
        chains[index], buckets[bucket] = buckets[bucket], index
    return struct.pack(f"<{2 + len(buckets) + count}I", len(buckets), count, *buckets, *chains)


def _sysv_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value
