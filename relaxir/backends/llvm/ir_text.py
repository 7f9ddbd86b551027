"""Three abbreviations for hand-written LLVM IR that works on records.

===============================  ==========================================================
``%x = at %base FIELD``          ``%x`` is the address of a field
``%x = get TYPE %base FIELD``    ``%x`` is the field's value
``put TYPE VALUE %base FIELD``   the field becomes ``VALUE``
===============================  ==========================================================

A field is a name for a byte offset. ``$NAME`` stands for a number anywhere else. One line, one abbreviation.
"""

import re
from collections.abc import Mapping, Sequence
from string import Template
from typing import Final

_AT: Final = re.compile(r"^  (%[\w.]+) = at ([%@][\w.]+) (\w+)$", re.MULTILINE)
_GET: Final = re.compile(r"^  (%[\w.]+) = get (\w+) ([%@][\w.]+) (\w+)$", re.MULTILINE)
_PUT: Final = re.compile(r"^  put (\w+) (\S+) ([%@][\w.]+) (\w+)$", re.MULTILINE)


def expand(text: str, names: Mapping[str, int | str]) -> str:
    """Return plain LLVM IR for ``text``; ``names`` gives fields and ``$NAME`` constants.

    Raises:
        KeyError: a field or a constant has no value.
    """
    count = 0

    def put(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        kind, value, base, field = match.groups()
        address = f"%put.{count}"
        return f"  {address} = getelementptr i8, ptr {base}, i64 {names[field]}\n  store {kind} {value}, ptr {address}"

    def get(match: re.Match[str]) -> str:
        name, kind, base, field = match.groups()
        return f"  {name}.at = getelementptr i8, ptr {base}, i64 {names[field]}\n  {name} = load {kind}, ptr {name}.at"

    def at(match: re.Match[str]) -> str:
        name, base, field = match.groups()
        return f"  {name} = getelementptr i8, ptr {base}, i64 {names[field]}"

    return Template(_PUT.sub(put, _GET.sub(get, _AT.sub(at, text)))).substitute(names)


def c_string(name: str, text: str) -> str:
    """Return the definition of a private constant ``name`` (``@...``) holding ``text`` and a final zero byte.

    Raises:
        ValueError: ``text`` contains a zero byte.
    """
    data = text.encode()
    if 0 in data:
        raise ValueError("text with a zero byte cannot be a C string")
    return f'{name} = private unnamed_addr constant [{len(data) + 1} x i8] c"{_escaped(text)}\\00"\n'


def c_table(name: str, texts: Sequence[str]) -> str:
    """Return a constant array ``name`` of pointers to ``texts`` (one null if there are none)."""
    strings = "".join(c_string(f"{name}.{index}", text) for index, text in enumerate(texts))
    items = ", ".join(f"ptr {name}.{index}" for index in range(len(texts))) or "ptr null"
    return f"{strings}{name} = internal constant [{max(1, len(texts))} x ptr] [{items}]\n"


def symbol_text(name: str) -> str:
    """Return ``@name`` in LLVM's spelling, quoted where ``name`` is not a plain identifier."""
    return f"@{name}" if re.fullmatch(r"[A-Za-z_.][\w.]*", name, re.ASCII) else f'@"{_escaped(name)}"'


def _escaped(text: str) -> str:
    plain = (chr(byte) if 32 <= byte < 127 and byte not in b'"\\' else f"\\{byte:02X}" for byte in text.encode())
    return "".join(plain)
