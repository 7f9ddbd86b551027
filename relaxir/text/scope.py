"""Names that are visible while a function is read."""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TypeVar

from relaxir.sym import Dim
from relaxir.text.source import Source

T = TypeVar("T")


class Scope:
    """Variables, buffers and symbols by name; a visible name is never defined again."""

    def __init__(self, source: Source) -> None:
        self.source = source
        self._frames: list[dict[str, object]] = [{}]
        self._visible: dict[str, object] = {}
        self._dims: dict[str, Dim] = {}

    def define(self, name: str, value: object, node: ast.AST, outermost: bool = False) -> None:
        """Make a name visible until its suite ends, or (``outermost``) until the function ends."""
        if name in self._visible:
            raise self.source.error(f"`{name}` is defined twice", node, "parse-redefined", help="choose another name")
        self._visible[name] = value
        if isinstance(value, Dim):
            self._dims[name] = value
        self._frames[0 if outermost else -1][name] = value

    def get(self, name: str) -> object | None:
        """What a name means here, or None."""
        return self._visible.get(name)

    def find(self, name: str, kind: type[T], what: str, node: ast.AST) -> T:
        """What a name means here; it must be of the given kind."""
        value = self._visible.get(name)
        if isinstance(value, kind):
            return value
        known = self.names(kind)
        if value is not None:
            raise self.source.error(f"`{name}` is not a {what}", node)
        raise self.source.unknown(what, name, known, node)

    def names(self, kind: type) -> list[str]:
        """Visible names of things of a kind."""
        return [k for k, v in self._visible.items() if isinstance(v, kind)]

    @property
    def dims(self) -> Mapping[str, Dim]:
        """Symbols visible here by the name they have in the text."""
        return self._dims

    @contextmanager
    def nested(self) -> Iterator[None]:
        """A suite: names defined in it end with it."""
        self._frames.append({})
        try:
            yield
        finally:
            for name in self._frames.pop():
                del self._visible[name]
                self._dims.pop(name, None)
