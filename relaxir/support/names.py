"""Names that are taken, and free ones like them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from keyword import iskeyword


class UniqueNames:
    """Names of one function or program: ``x``, then ``x_1``, ``x_2``, ...

    The search for the next number of a stem goes on where the last one ended, so that n names of one stem take n steps.

    >>> names = UniqueNames(["x"])
    >>> names.add("x"), names.add("x"), names.add("y")
    ('x_1', 'x_2', 'y')
    """

    def __init__(self, taken: Iterable[str] = (), separator: str = "_", first: int = 1) -> None:
        """Start with the names ``taken``; numbers begin with ``first`` and stand after ``separator``."""
        self.taken = set(taken)
        self._separator = separator
        self._first = first
        self._next: dict[str, int] = {}

    def add(self, stem: str) -> str:
        """Take ``stem``, or a free name like it."""
        name = stem
        if stem in self.taken:
            number = self._next.get(stem, self._first)
            while (name := f"{stem}{self._separator}{number}") in self.taken:
                number += 1
            self._next[stem] = number + 1
        self.taken.add(name)
        return name

    def release(self, added: Iterable[tuple[str, str]]) -> None:
        """Free names that `add` gave, as ``(stem, name)``."""
        for stem, name in added:
            self.taken.discard(name)
            if name != stem:
                number = int(name[len(stem) + len(self._separator) :])
                self._next[stem] = min(number, self._next[stem])

    def copy(self) -> UniqueNames:
        """Names that go on from here on their own."""
        other = UniqueNames(self.taken, self._separator, self._first)
        other._next.update(self._next)
        return other


def symbol_name(text: str) -> str:
    """What the symbol of a dimension is called that a model names ``text``; nothing for a number or a mark.

    >>> symbol_name("batch size"), symbol_name("2n"), symbol_name("class"), symbol_name("?"), symbol_name("-1")
    ('batch_size', 'd_2n', 'class_', '', '')
    """
    word = text if re.fullmatch(r"[^\W\d]\w*", text) else ""
    if not word and not text.lstrip("-").isdecimal():
        word = cleaned(text, "d_")
    if not word.isidentifier():
        return ""
    return f"{word}_" if iskeyword(word) else word


def cleaned(text: str, prefix: str) -> str:
    """A text as an identifier, with ``prefix`` before a leading digit; nothing where nothing of it can stay."""
    word = re.sub(r"\W+", "_", text).strip("_")
    return prefix + word if word[:1].isdigit() else word
