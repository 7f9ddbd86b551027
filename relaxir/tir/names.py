"""Names in IR text: unique per function, valid Python, the same in every process."""

from __future__ import annotations

import keyword
import re
import unicodedata
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Final

from relaxir.support.names import UniqueNames
from relaxir.sym import Dim, DimLike, free_dims, substitute, to_text

RESERVED: Final = frozenset(keyword.kwlist) | frozenset(
    {"I", "R", "T", "Module", "range", "min", "max", "ceildiv", "broadcast", "floordiv", "mod"}
)
"""Names that mean something in IR text, so nothing else may have them."""


def is_plain(name: str) -> bool:
    """Whether a name can stand in IR text as it is."""
    return name.isidentifier() and name not in RESERVED and unicodedata.normalize("NFKC", name) == name


def identifier(name: str) -> str:
    """A valid name that resembles ``name``: ``lambda`` gives ``lambda_``, ``a.b`` gives ``a_b``."""
    cleaned = re.sub(r"\W", "_", unicodedata.normalize("NFKC", name))
    if not cleaned.isidentifier():
        cleaned = re.sub(r"[^0-9A-Za-z_]", "_", f"_{cleaned}")
    return f"{cleaned}_" if cleaned in RESERVED else cleaned


class Names:
    """Unique names for the variables of one function; names of a closed scope are free again."""

    def __init__(self, canonical: bool = False) -> None:
        """``canonical`` ignores the hints, so that functions equal up to renaming get one text."""
        self._names: dict[object, str] = {}
        self._unique = UniqueNames()
        self._opened: list[list[tuple[str, str]]] = []
        self._canonical = canonical

    def add(self, key: object, hint: str, keep: bool = False) -> str:
        """Name a new object in the current scope; ``keep`` makes the hint count in canonical naming too."""
        stem = identifier(hint) if keep or not self._canonical else "v"
        name = self._unique.add(stem)
        self._names[key] = name
        if self._opened:
            self._opened[-1].append((stem, name))
        return name

    def get(self, key: object, hint: str) -> str:
        """Name of an object; one never defined (a broken program) is named where it is met."""
        return self._names[key] if key in self._names else self.add(key, hint)

    def get_global(self, key: object, hint: str) -> str:
        """Like `get`, but a new name stays taken until the function ends."""
        if key not in self._names:
            opened, self._opened = self._opened, []
            self.add(key, hint)
            self._opened = opened
        return self._names[key]

    def __contains__(self, key: object) -> bool:
        return key in self._names

    @contextmanager
    def scope(self) -> Iterator[None]:
        """Free the names added inside the ``with`` at its end."""
        self._opened.append([])
        try:
            yield
        finally:
            self._unique.release(self._opened.pop())


class DimNames:
    """How dimensions are written in one function: their own names wherever these are plain and unique."""

    def __init__(self, names: Names, dims: Iterable[Dim] = ()) -> None:
        self._names = names
        self._shown: dict[Dim, Dim] = {}
        self._plain = True
        for d in dims:
            self.add(d)

    def add(self, dim: Dim) -> str:
        """Reserve a name for a dimension (nothing happens the second time)."""
        if dim not in self._shown:
            name = self._names.add(dim, dim.name, keep=True)
            self._shown[dim] = Dim(name, dim.min, dim.max, dim.multiple_of)
            self._plain = self._plain and name == dim.name
        return str(self._shown[dim].name)

    def text(self, expr: DimLike) -> str:
        """A dimension expression in the names of the text."""
        for d in free_dims(expr):
            if d not in self._shown:
                self.add(d)
        return to_text(expr if self._plain else substitute(expr, self._shown))

    def shown(self, expr: DimLike) -> DimLike:
        """A dimension expression over the shown symbols."""
        return expr if self._plain else substitute(expr, self._shown)

    def declaration(self, dim: Dim) -> str:
        """Arguments that rebuild a dimension: ``"n", min=4, max=64``."""
        return ", ".join([f'"{dim.name}"', *dim_ranges(dim)])


def dim_ranges(dim: Dim, low: int = 0, high: int | None = None) -> tuple[str, ...]:
    """Keyword arguments for what differs from the defaults."""
    parts = [f"min={dim.min}"] if dim.min != low else []
    parts += [f"max={dim.max}"] if dim.max != high else []
    return (*parts, *([f"multiple_of={dim.multiple_of}"] if dim.multiple_of != 1 else []))


def tuple_text(items: Iterable[str]) -> str:
    """``(a, b)``, ``(a,)`` for one."""
    parts = list(items)
    return f"({parts[0]},)" if len(parts) == 1 else f"({', '.join(parts)})"
