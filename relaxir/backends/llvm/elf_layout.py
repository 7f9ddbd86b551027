"""Layout and tables of a shared library.

This is the body of the linker in :mod:`relaxir.backends.llvm.elf`, whose invariants hold here.
"""

import struct
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from relaxir.backends.llvm.elf_read import (
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_FINI_ARRAY,
    SHT_INIT_ARRAY,
    SHT_NOBITS,
    STB_GLOBAL,
    STB_LOCAL,
    STB_WEAK,
    ObjectFile,
    Section,
    Symbol,
)
from relaxir.backends.llvm.elf_reloc import ARCHITECTURES
from relaxir.backends.llvm.elf_sections import (
    ALLOC,
    EXECUTE,
    SHT_DYNAMIC,
    SHT_DYNSYM,
    SHT_HASH,
    SHT_PROGBITS,
    SHT_RELA_TABLE,
    SHT_STRTAB,
    WRITE,
    OutputSection,
    append_sections,
    section_of,
)
from relaxir.backends.llvm.errors import LinkError

EHDR: Final = struct.Struct("<16sHHIQQQIHHHHHH")
PHDR: Final = struct.Struct("<IIQQQQQQ")
_DYNSYM: Final = struct.Struct("<IBBHQQ")
_RELA: Final = struct.Struct("<QQq")
_DYN: Final = struct.Struct("<QQ")
_MAX_DYNAMIC: Final = 20

_PT_LOAD, _PT_DYNAMIC, _PT_GNU_STACK, _PT_GNU_RELRO = 1, 2, 0x6474E551, 0x6474E552
_R, _RX, _RW = 4, 5, 6


def align_up(value: int, alignment: int) -> int:
    """Round ``value`` up to a multiple of ``alignment``."""
    return -(-value // alignment) * alignment


def _kind_order(section: Section) -> int:
    """Group of a section in the writable segment: arrays of functions, relocated constants, data."""
    if section.kind == SHT_INIT_ARRAY or section.name.startswith(".init_array"):
        return 0
    if section.kind == SHT_FINI_ARRAY or section.name.startswith(".fini_array"):
        return 1
    return 2 if section.name.startswith(".data.rel.ro") else 3


class Image:
    """One library being linked: resolve symbols, assign addresses, fill in."""

    def __init__(self, objects: Sequence[ObjectFile], exports: Sequence[str], weights: tuple[str, int] | None) -> None:
        """Resolve symbols among ``objects``; ``weights`` is the symbol and the size of the weights."""
        machine = objects[0].machine
        if machine not in ARCHITECTURES:
            raise LinkError(f"no linker for ELF machine {machine}")
        self.arch = ARCHITECTURES[machine]
        self.ident = objects[0].ident
        self.weights = weights
        self.weights_address = 0
        self.globals: dict[str, Symbol] = {}
        for item in objects:
            self._define(item.symbols)
        self.exports = sorted(set(exports))
        missing = [name for name in self.exports if name not in self.globals]
        if missing:
            raise LinkError(f"exported but not defined: {', '.join(missing)}")
        sections = [section for item in objects for section in item.sections]
        self.named = [
            s for item in objects for s in item.symbols if s.section is not None and s.name and s.kind in (1, 2)
        ]
        self.relocations = [relocation for item in objects for relocation in item.relocations]
        writable = [section for section in sections if section.flags & SHF_WRITE]
        self.constants = [section for section in sections if not section.flags & (SHF_WRITE | SHF_EXECINSTR)]
        self.code = [section for section in sections if section.flags & SHF_EXECINSTR]
        self.data = sorted(
            (section for section in writable if section.kind != SHT_NOBITS), key=lambda s: (_kind_order(s), s.name)
        )
        self.zeroed = [section for section in writable if section.kind == SHT_NOBITS]
        self._scan()

    def _define(self, symbols: Iterable[Symbol]) -> None:
        for symbol in symbols:
            if symbol.bind == STB_LOCAL or not symbol.defined:
                continue
            old = self.globals.get(symbol.name)
            if old is not None and old.bind == STB_GLOBAL and symbol.bind == STB_GLOBAL:
                raise LinkError(f"'{symbol.name}' is defined twice")
            if old is None or symbol.bind == STB_GLOBAL:
                self.globals[symbol.name] = symbol

    def _key(self, symbol: Symbol) -> Symbol | str:
        """Return the definition a reference means, or the name where it lies outside."""
        if symbol.bind == STB_LOCAL:
            return symbol
        return self.globals.get(symbol.name, symbol.name)

    def _is_weights(self, key: Symbol | str) -> bool:
        return self.weights is not None and key == self.weights[0]

    def _scan(self) -> None:
        """Find which symbols need a slot, a stub or an entry in the dynamic table."""
        self.slots: dict[Symbol | str, int] = {}
        self.stubs: dict[str, int] = {}
        self.imports: dict[str, int] = {}
        self.dynamic_count = 0
        for relocation in self.relocations:
            key = self._key(relocation.symbol)
            outside = isinstance(key, str) and not self._is_weights(key)
            if isinstance(key, str) and outside:
                weak = relocation.symbol.bind == STB_WEAK
                self.imports[key] = min(self.imports.get(key, STB_WEAK), STB_WEAK if weak else STB_GLOBAL)
            if relocation.kind in self.arch.got_kinds:
                self.slots.setdefault(key, len(self.slots))
            elif isinstance(key, str) and outside and relocation.kind in self.arch.call_kinds:
                self.stubs.setdefault(key, len(self.stubs))
                self.slots.setdefault(key, len(self.slots))
            elif relocation.kind == self.arch.absolute:
                self.dynamic_count += 1
        self.dynamic_count += len(self.slots)

    def _tables(self, soname: str | None, needed: Sequence[str]) -> None:
        """Collect the dynamic string table and the indices of dynamic symbols."""
        strings = bytearray(1)
        self.offsets: dict[str, int] = {}
        for text in [*self.imports, *self.exports, *needed, *([] if soname is None else [soname])]:
            if text not in self.offsets:
                self.offsets[text] = len(strings)
                strings += text.encode() + b"\0"
        self.strings = bytes(strings)
        self.indices = {name: index for index, name in enumerate([*self.imports, *self.exports], start=1)}

    def _place(self, sections: Iterable[Section], position: int) -> int:
        for section in sections:
            section.address = position = align_up(position, section.align)
            position += section.size
        return position

    def build(self, soname: str | None, needed: Sequence[str]) -> bytes:
        """Assign addresses and return the library without its weights."""
        self._tables(soname, needed)
        page = self.arch.page
        count = len(self.indices) + 1
        headers = 7 if self.weights is not None else 6
        self.symbol_table = align_up(EHDR.size + PHDR.size * headers, 8)
        self.string_table = self.symbol_table + _DYNSYM.size * count
        self.hash_table = align_up(self.string_table + len(self.strings), 8)
        self.rela_table = align_up(self.hash_table + len(self._hash()), 8)
        read_end = self._place(self.constants, self.rela_table + _RELA.size * self.dynamic_count)
        code_start = align_up(read_end, page)
        self.stub_start = align_up(self._place(self.code, code_start), 16)
        code_end = self.stub_start + self.arch.stub_size * len(self.stubs)
        self.dynamic = data_start = align_up(code_end, page)
        self.slot_start = self.dynamic + _DYN.size * _MAX_DYNAMIC
        protected = [section for section in self.data if _kind_order(section) < 3]
        position = self._place(protected, self.slot_start + 8 * len(self.slots))
        protected_end = align_up(position, page)
        file_end = self._place(self.data[len(protected) :], protected_end)
        memory_end = self._place(self.zeroed, file_end)
        self.weights_address = align_up(memory_end, page)

        out = bytearray(file_end)
        for section in [*self.constants, *self.code, *self.data]:
            out[section.address : section.address + section.size] = section.data
        for name, index in self.stubs.items():
            self.arch.stub(out, self.stub_start + self.arch.stub_size * index, self._slot(name))
        dynamic_relocations = self._relocate(out)
        for index, entry in enumerate(dynamic_relocations):
            _RELA.pack_into(out, self.rela_table + _RELA.size * index, *entry)
        rows = self._rows(read_end, (code_start, code_end), position, (protected_end, file_end, memory_end))
        self._fill_symbols(out, rows)
        out[self.string_table : self.string_table + len(self.strings)] = self.strings
        table = self._hash()
        out[self.hash_table : self.hash_table + len(table)] = table
        size = self._fill_dynamic(out, soname, needed, len(dynamic_relocations))
        exported = frozenset(self.exports)
        weights_offset = 0
        if self.weights is not None:  # a first run measures how long the file is without them
            row = OutputSection(".rx_weights", SHT_PROGBITS, ALLOC, self.weights_address, 0, self.weights[1], 64)
            measured = bytearray(out)
            append_sections(measured, [*rows, row], self.named, exported)
            weights_offset = align_up(len(measured), page)
            rows.append(replace(row, offset=weights_offset))
        sections = append_sections(out, rows, self.named, exported)
        segments = [
            (_PT_LOAD, _R, 0, 0, 0, read_end, read_end, page),
            (_PT_LOAD, _RX, code_start, code_start, code_start, code_end - code_start, code_end - code_start, page),
            (_PT_LOAD, _RW, data_start, data_start, data_start, file_end - data_start, memory_end - data_start, page),
            (_PT_DYNAMIC, _RW, data_start, data_start, data_start, size, size, 8),
            (
                _PT_GNU_RELRO,
                _R,
                data_start,
                data_start,
                data_start,
                protected_end - data_start,
                protected_end - data_start,
                1,
            ),
            (_PT_GNU_STACK, _RW, 0, 0, 0, 0, 0, 16),
        ]
        if self.weights is not None:
            length = self.weights[1]
            segments.insert(
                3, (_PT_LOAD, _R, weights_offset, self.weights_address, self.weights_address, length, length, page)
            )
        self._fill_headers(out, segments, sections)
        return bytes(out)

    def _fill_headers(self, out: bytearray, segments: Sequence[tuple[int, ...]], table: tuple[int, int, int]) -> None:
        sizes = (EHDR.size, PHDR.size, len(segments), 64)
        EHDR.pack_into(out, 0, self.ident, 3, self.arch.machine, 1, 0, EHDR.size, table[0], 0, *sizes, *table[1:])
        for index, segment in enumerate(segments):
            PHDR.pack_into(out, EHDR.size + PHDR.size * index, *segment)

    def _rows(
        self, read_end: int, code: tuple[int, int], protected_end: int, data: tuple[int, int, int]
    ) -> list[OutputSection]:
        """Return the section table's rows that lie in memory; file offset equals address."""

        def row(
            name: str,
            kind: int,
            flags: int,
            start: int,
            end: int,
            align: int,
            entry: int = 0,
            link: str = "",
            info: int = 0,
        ) -> OutputSection:
            return OutputSection(name, kind, ALLOC | flags, start, start, end - start, align, entry, link, info)

        constants = self.rela_table + _RELA.size * self.dynamic_count
        data_start, file_end, memory_end = data
        dynamic_end = self.slot_start
        return [
            row(
                ".dynsym",
                SHT_DYNSYM,
                0,
                self.symbol_table,
                self.string_table,
                align=8,
                entry=24,
                link=".dynstr",
                info=1,
            ),
            row(".dynstr", SHT_STRTAB, 0, self.string_table, self.string_table + len(self.strings), align=1),
            row(
                ".hash",
                SHT_HASH,
                0,
                self.hash_table,
                self.hash_table + len(self._hash()),
                align=8,
                entry=4,
                link=".dynsym",
            ),
            row(".rela.dyn", SHT_RELA_TABLE, 0, self.rela_table, constants, align=8, entry=24, link=".dynsym"),
            row(".rodata", SHT_PROGBITS, 0, constants, read_end, align=8),
            row(".text", SHT_PROGBITS, EXECUTE, *code, align=16),
            row(".dynamic", SHT_DYNAMIC, WRITE, self.dynamic, dynamic_end, align=8, entry=16, link=".dynstr"),
            row(".data.rel.ro", SHT_PROGBITS, WRITE, dynamic_end, protected_end, align=8),
            row(".data", SHT_PROGBITS, WRITE, data_start, file_end, align=8),
            OutputSection(".bss", SHT_NOBITS, ALLOC | WRITE, file_end, file_end, memory_end - file_end, 64),
        ]

    def _slot(self, key: Symbol | str) -> int:
        return self.slot_start + 8 * self.slots[key]

    def _address(self, key: Symbol | str) -> int | None:
        """Return the address of what a reference means, or None where it lies outside."""
        if isinstance(key, str):
            return self.weights_address if self._is_weights(key) else None
        return key.address

    def _dynamic_entry(self, place: int, kind: int, key: Symbol | str, addend: int) -> tuple[int, int, int]:
        address = self._address(key)
        if isinstance(key, str) and address is None:
            return (place, self.indices[key] << 32 | kind, addend)
        return (place, self.arch.relative, (address or 0) + addend)

    def _relocate(self, out: bytearray) -> list[tuple[int, int, int]]:
        """Apply every relocation and return those left to the dynamic linker."""
        left = [self._dynamic_entry(self._slot(key), self.arch.glob_dat, key, 0) for key in self.slots]
        for relocation in self.relocations:
            place = relocation.section.address + relocation.offset
            key = self._key(relocation.symbol)
            if relocation.kind == self.arch.absolute:
                if not relocation.section.flags & SHF_WRITE:
                    raise LinkError(
                        f"address of '{relocation.symbol.name}' in the read-only section {relocation.section.name}"
                    )
                left.append(self._dynamic_entry(place, self.arch.absolute, key, relocation.addend))
                continue
            if relocation.kind in self.arch.got_kinds:
                target: int | None = self._slot(key)
            elif isinstance(key, str) and key in self.stubs and relocation.kind in self.arch.call_kinds:
                target = self.stub_start + self.arch.stub_size * self.stubs[key]
            else:
                target = self._address(key)
            if target is None:
                raise LinkError(
                    f"'{relocation.symbol.name}' is undefined and used as data (relocation {relocation.kind})"
                )
            self.arch.apply(out, place, relocation.kind, target + relocation.addend)
        return sorted(left, key=lambda entry: (entry[1] & 0xFFFFFFFF != self.arch.relative, entry[0]))

    def _fill_symbols(self, out: bytearray, rows: Sequence[OutputSection]) -> None:
        for name, index in self.indices.items():
            place = self.symbol_table + _DYNSYM.size * index
            if name in self.globals:
                symbol = self.globals[name]
                fields = (
                    STB_GLOBAL << 4 | symbol.kind,
                    0,
                    section_of(rows, symbol.address),
                    symbol.address,
                    symbol.size,
                )
            else:
                fields = (self.imports[name] << 4, 0, 0, 0, 0)
            _DYNSYM.pack_into(out, place, self.offsets[name], *fields)

    def _hash(self) -> bytes:
        """Return the System V hash table of the dynamic symbols."""
        count = len(self.indices) + 1
        buckets, chains = [0] * max(1, count // 2), [0] * count
        for name, index in self.indices.items():
            bucket = _sysv_hash(name) % len(buckets)
            chains[index], buckets[bucket] = buckets[bucket], index
        return struct.pack(f"<{2 + len(buckets) + count}I", len(buckets), count, *buckets, *chains)

    def _fill_dynamic(self, out: bytearray, soname: str | None, needed: Sequence[str], relocations: int) -> int:
        entries = [(1, self.offsets[name]) for name in needed]
        if soname is not None:
            entries.append((14, self.offsets[soname]))
        entries += [
            (4, self.hash_table),
            (5, self.string_table),
            (6, self.symbol_table),
            (10, len(self.strings)),
            (11, _DYNSYM.size),
        ]
        if relocations:
            entries += [(7, self.rela_table), (8, _RELA.size * relocations), (9, _RELA.size)]
        for order, address_tag, size_tag in ((0, 25, 27), (1, 26, 28)):
            array = [section for section in self.data if _kind_order(section) == order]
            if array:
                end = array[-1].address + array[-1].size
                entries += [(address_tag, array[0].address), (size_tag, end - array[0].address)]
        entries += [(0x1E, 8), (0x6FFFFFFB, 1), (0, 0)]  # FLAGS: BIND_NOW; FLAGS_1: NOW
        if len(entries) > _MAX_DYNAMIC:
            raise LinkError(f"{len(needed)} needed libraries are too many")
        for index, entry in enumerate(entries):
            _DYN.pack_into(out, self.dynamic + _DYN.size * index, *entry)
        return _DYN.size * len(entries)


def _sysv_hash(name: str) -> int:
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ (high >> 24)) & ~high & 0xFFFFFFFF
    return value
