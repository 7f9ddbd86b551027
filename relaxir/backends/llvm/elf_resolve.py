"""What the references of objects mean: definitions inside the library, imports, slots of addresses, stubs of calls."""

from collections.abc import Iterable, Sequence

from relaxir.backends.llvm.elf_check import MACHINES
from relaxir.backends.llvm.elf_format import (
    SHF_EXECINSTR,
    SHF_WRITE,
    SHT_FINI_ARRAY,
    SHT_INIT_ARRAY,
    SHT_NOBITS,
    STB_GLOBAL,
    STB_LOCAL,
    STB_WEAK,
    STT_FUNC,
    STT_OBJECT,
)
from relaxir.backends.llvm.elf_read import ObjectFile, Section, Symbol
from relaxir.backends.llvm.elf_reloc import ARCHITECTURES
from relaxir.backends.llvm.errors import LinkError
from relaxir.support.errors import TargetError

INIT, FINI, CONSTANT, PLAIN = 0, 1, 2, 3
"""Groups of writable sections, in their order: arrays of functions, constants with addresses in them, data."""


def group_of(section: Section) -> int:
    """Group of a section in the writable segment."""
    if section.kind == SHT_INIT_ARRAY or section.name.startswith(".init_array"):
        return INIT
    if section.kind == SHT_FINI_ARRAY or section.name.startswith(".fini_array"):
        return FINI
    return CONSTANT if section.name.startswith(".data.rel.ro") else PLAIN


class Resolution:
    """Sections of a library's objects by the segment they go to, and what each reference means.

    Attributes:
        exports: names that are visible outside, sorted.
        imports: names that lie outside, with their binding.
        slots: numbers of the 8-byte slots that hold addresses.
        stubs: numbers of the stubs that calls of what lies outside go through.
        dynamic_count: relocations left to the dynamic linker.
    """

    def __init__(self, objects: Sequence[ObjectFile], exports: Sequence[str], weights: str | None) -> None:
        """Resolve symbols among ``objects``; ``weights`` is the symbol of the weights, which no object defines."""
        machine = objects[0].machine
        if machine not in ARCHITECTURES:
            raise TargetError(
                f"a library cannot be made for {MACHINES.get(machine, f'ELF machine {machine}')}: no linker knows it",
                code="target-features",
                help=f"libraries are made for {', '.join(MACHINES[m] for m in ARCHITECTURES)}",
            )
        self.arch = ARCHITECTURES[machine]
        self.weights = weights
        self.globals: dict[str, Symbol] = {}
        for item in objects:
            self._define(item.symbols)
        self.exports = sorted(set(exports))
        missing = [name for name in self.exports if name not in self.globals]
        if missing:
            raise LinkError(f"exported but not defined: {', '.join(missing)}")
        symbols = [symbol for item in objects for symbol in item.symbols]
        self.named = [s for s in symbols if s.section is not None and s.name and s.kind in (STT_OBJECT, STT_FUNC)]
        self.relocations = [relocation for item in objects for relocation in item.relocations]
        sections = [section for item in objects for section in item.sections]
        writable = [section for section in sections if section.flags & SHF_WRITE]
        self.constants = [section for section in sections if not section.flags & (SHF_WRITE | SHF_EXECINSTR)]
        self.code = [section for section in sections if section.flags & SHF_EXECINSTR]
        filled = (section for section in writable if section.kind != SHT_NOBITS)
        self.data = sorted(filled, key=lambda s: (group_of(s), s.name))
        self.zeroed = [section for section in writable if section.kind == SHT_NOBITS]
        self.slots: dict[Symbol | str, int] = {}
        self.stubs: dict[str, int] = {}
        self.imports: dict[str, int] = {}
        self.dynamic_count = 0
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

    def meaning(self, symbol: Symbol) -> Symbol | str:
        """Return the definition a reference means, or the name where it lies outside (or is that of the weights)."""
        if symbol.bind == STB_LOCAL:
            return symbol
        return self.globals.get(symbol.name, symbol.name)

    def _scan(self) -> None:
        """Find which symbols need a slot, a stub or an entry in the dynamic table."""
        for relocation in self.relocations:
            key = self.meaning(relocation.symbol)
            outside = isinstance(key, str) and key != self.weights
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
