"""Reading relocatable ELF64 objects as LLVM writes them, little-endian."""

from dataclasses import dataclass

from relaxir.backends.llvm.elf_format import (
    EHDR,
    ET_REL,
    RELA,
    SHDR,
    SHF_ALLOC,
    SHF_TLS,
    SHN_ABS,
    SHN_COMMON,
    SHT_NOBITS,
    SHT_REL,
    SHT_RELA,
    SHT_SYMTAB,
    SHT_X86_64_UNWIND,
    SYM,
)
from relaxir.backends.llvm.errors import LinkError


@dataclass(slots=True, eq=False)
class Section:
    """A section that takes memory at run time. ``address`` is set by the layout."""

    name: str
    kind: int
    flags: int
    size: int
    align: int
    data: memoryview
    address: int = 0


@dataclass(frozen=True, slots=True, eq=False)
class Symbol:
    """A symbol of one object; ``section`` is None when it is undefined (or absolute: then ``absolute`` is true)."""

    name: str
    bind: int
    kind: int
    section: Section | None
    value: int
    size: int
    absolute: bool

    @property
    def defined(self) -> bool:
        """Whether this object gives the symbol its meaning."""
        return self.section is not None or self.absolute

    @property
    def address(self) -> int:
        """The symbol's address, once its section has one."""
        return self.value if self.section is None else self.section.address + self.value


@dataclass(frozen=True, slots=True)
class Relocation:
    """Place ``offset`` of ``section`` depends on ``symbol + addend`` in the way ``kind`` says."""

    section: Section
    offset: int
    kind: int
    symbol: Symbol
    addend: int


@dataclass(frozen=True)
class ObjectFile:
    """One relocatable object: only what ends up in memory."""

    machine: int
    ident: bytes
    sections: tuple[Section, ...]
    symbols: tuple[Symbol, ...]
    relocations: tuple[Relocation, ...]


def read_object(data: bytes, label: str) -> ObjectFile:
    """Parse a relocatable object. ``label`` names it in messages.

    Raises:
        LinkError: not a little-endian ELF64 relocatable file, or one with features generated code never has
            (thread-local storage, common symbols, relocations without addends).
    """
    if data[:6] != b"\x7fELF\x02\x01" or len(data) < EHDR.size:
        raise LinkError(f"{label} is not a little-endian ELF64 object")
    ident, kind, machine, _, _, _, offset, _, _, _, _, entry, count, names = EHDR.unpack_from(data)
    if kind != ET_REL or entry != SHDR.size:
        raise LinkError(f"{label} is not a relocatable object")
    view = memoryview(data)
    headers = [SHDR.unpack_from(data, offset + index * entry) for index in range(count)]
    name_base = headers[names][4]
    sections: dict[int, Section] = {}
    for index, (name, type_, flags, _, start, size, _, _, align, _) in enumerate(headers):
        if flags & SHF_TLS:
            raise LinkError(f"{label} uses thread-local storage")
        text = _string(data, name_base + name)
        if not flags & SHF_ALLOC or type_ == SHT_X86_64_UNWIND or text == ".eh_frame":
            continue
        content = view[0:0] if type_ == SHT_NOBITS else view[start : start + size]
        sections[index] = Section(text, type_, flags, size, max(1, align), content)
    symbols = _read_symbols(data, headers, sections, label)
    relocations: list[Relocation] = []
    for _, type_, _, _, start, size, _, target, _, _ in headers:
        if type_ == SHT_REL and target in sections:
            raise LinkError(f"{label} has relocations without addends")
        if type_ != SHT_RELA or target not in sections:
            continue
        for place, info, addend in RELA.iter_unpack(view[start : start + size]):
            relocations.append(Relocation(sections[target], place, info & 0xFFFFFFFF, symbols[info >> 32], addend))
    return ObjectFile(machine, ident, tuple(sections.values()), tuple(symbols), tuple(relocations))


def _read_symbols(
    data: bytes, headers: list[tuple[int, ...]], sections: dict[int, Section], label: str
) -> list[Symbol]:
    symbols: list[Symbol] = []
    for _, type_, _, _, start, size, link, _, _, _ in headers:
        if type_ != SHT_SYMTAB:
            continue
        strings = headers[link][4]
        for name, info, _, index, value, length in SYM.iter_unpack(memoryview(data)[start : start + size]):
            text = _string(data, strings + name)
            if index == SHN_COMMON:
                raise LinkError(f"{label} has the common symbol '{text}'")
            symbols.append(Symbol(text, info >> 4, info & 15, sections.get(index), value, length, index == SHN_ABS))
    return symbols


def _string(data: bytes, start: int) -> str:
    return data[start : data.index(b"\0", start)].decode()
