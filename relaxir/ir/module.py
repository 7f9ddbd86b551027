"""Modules: graph functions and tensor programs by name."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from os import PathLike
from types import MappingProxyType

from relaxir.ir.expr import Function
from relaxir.ir.files import write_module
from relaxir.ir.printer import module_text
from relaxir.tir import PrimFunc

AnyFunc = Function | PrimFunc


@dataclass(frozen=True, slots=True, eq=False)
class IRModule:
    """A frozen mapping from names to functions; changes give new modules."""

    functions: Mapping[str, AnyFunc]
    attrs: Mapping[str, object] = field(default_factory=lambda: MappingProxyType({}))

    def __post_init__(self) -> None:
        object.__setattr__(self, "functions", MappingProxyType(dict(self.functions)))

    def __str__(self) -> str:
        return module_text(self.functions, self.attrs)

    def __getitem__(self, name: str) -> AnyFunc:
        return self.functions[name]

    def __contains__(self, name: str) -> bool:
        return name in self.functions

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the text to ``path``, and large constants into an ``.npz`` file beside it; each whole or not at all.

        Raises:
            LoadError: when a file cannot be written.
        """
        write_module(self.functions, self.attrs, path)

    def graph_functions(self) -> dict[str, Function]:
        """The graph functions, in order."""
        return {k: f for k, f in self.functions.items() if isinstance(f, Function)}

    def prim_funcs(self) -> dict[str, PrimFunc]:
        """The tensor programs, in order."""
        return {k: f for k, f in self.functions.items() if isinstance(f, PrimFunc)}

    def with_functions(self, changes: Mapping[str, AnyFunc | None]) -> IRModule:
        """Replace or add functions; None removes one."""
        merged: dict[str, AnyFunc | None] = {**self.functions, **changes}
        return IRModule({k: f for k, f in merged.items() if f is not None}, self.attrs)

    def unique_name(self, stem: str) -> str:
        """``stem``, or ``stem_1``, ... whichever is free."""
        if stem not in self.functions:
            return stem
        n = 1
        while f"{stem}_{n}" in self.functions:
            n += 1
        return f"{stem}_{n}"
