"""Python literals in IR text: strings, numbers, attribute values. Every form reads back to the same bits."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from typing import cast

import numpy as np

from relaxir.sym import DimLike, to_text


def string_text(value: str) -> str:
    """A double-quoted Python string; printable characters stay, everything else is escaped."""
    quoted = json.dumps(value, ensure_ascii=False)
    return quoted if quoted.isprintable() else "".join(c if c.isprintable() else _escape(c) for c in quoted)


def _escape(char: str) -> str:
    code = ord(char)
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def float_text(value: float, dtype: str = "float64") -> str | None:
    """Shortest decimal that reads back as ``value`` rounded to ``dtype``; None where none does (inf, NaN, ...)."""
    if not math.isfinite(value):
        return None
    if dtype == "float32":
        rounded = np.float32(value)
        short = str(rounded)
        # through a double, as the reader does; a value that is no float32 has no decimal form
        if float(np.float32(float(short))) == value:
            return short
        return None
    if dtype == "float16" and float(np.float16(value)) != value:
        return None
    return repr(float(value))


def value_text(
    value: object, dim_text: Callable[[DimLike], str] = to_text, other: Callable[[object], str] | None = None
) -> str:
    """An attribute value: None, bool, int, float, str, bytes, dimension, and tuples, lists and mappings of them.

    ``other`` writes what is none of these.

    Raises:
        TypeError: for anything else.
    """
    if value is None or isinstance(value, bool | int | bytes):
        return repr(value)
    if isinstance(value, str):
        return string_text(value)
    if isinstance(value, float):
        return float_text(value) or f'I.float("{value}")'
    if isinstance(value, tuple):
        items = [value_text(v, dim_text, other) for v in value]
        return f"({items[0]},)" if len(items) == 1 else f"({', '.join(items)})"
    if isinstance(value, list):
        return f"[{', '.join(value_text(v, dim_text, other) for v in value)}]"
    if isinstance(value, Mapping):
        pairs = (f"{value_text(k)}: {value_text(v, dim_text, other)}" for k, v in value.items())
        return f"{{{', '.join(pairs)}}}"
    if hasattr(value, "free_symbols"):
        return dim_text(cast(DimLike, value))
    if other is not None:
        return other(value)
    raise TypeError(f"a value of type {type(value).__name__} has no text form")
