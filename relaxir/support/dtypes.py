"""The data types of tensors and scalars: one table, and the function that canonicalises what users write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.support.errors import UnsupportedError


class Kind(Enum):
    """The families of data types; the value is the name in messages."""

    FLOAT = "float"
    INT = "int"
    UINT = "uint"
    BOOL = "bool"


@dataclass(frozen=True, slots=True)
class DType:
    """What the compiler knows of a data type."""

    name: str
    """Canonical name, as types hold it: ``float32``."""
    short: str
    """Name in IR text: ``f32``."""
    kind: Kind
    bits: int
    """Size in memory; a bool takes a whole byte."""
    numpy: np.dtype[np.generic]
    """How arrays hold it; NumPy has no bfloat16, so that one is held as the bit pattern in uint16."""
    dlpack: int
    """DLDataTypeCode of DLPack 1.0."""

    @property
    def bytes(self) -> int:
        """Size of one element in memory."""
        return self.bits // 8

    @property
    def is_float(self) -> bool:
        """True for the floating-point types, bfloat16 included."""
        return self.kind is Kind.FLOAT

    @property
    def is_integer(self) -> bool:
        """True for signed and unsigned integers; bool is not one."""
        return self.kind in (Kind.INT, Kind.UINT)


def _row(name: str, short: str, kind: Kind, bits: int, dlpack: int, stored: str = "") -> tuple[str, DType]:
    return name, DType(name, short, kind, bits, np.dtype(stored or name), dlpack)


DTYPES: Final[Mapping[str, DType]] = MappingProxyType(
    dict(
        (
            _row("float16", "f16", Kind.FLOAT, 16, 2),
            _row("bfloat16", "bf16", Kind.FLOAT, 16, 4, stored="uint16"),
            _row("float32", "f32", Kind.FLOAT, 32, 2),
            _row("float64", "f64", Kind.FLOAT, 64, 2),
            _row("int8", "i8", Kind.INT, 8, 0),
            _row("int16", "i16", Kind.INT, 16, 0),
            _row("int32", "i32", Kind.INT, 32, 0),
            _row("int64", "i64", Kind.INT, 64, 0),
            _row("uint8", "u8", Kind.UINT, 8, 1),
            _row("uint16", "u16", Kind.UINT, 16, 1),
            _row("uint32", "u32", Kind.UINT, 32, 1),
            _row("uint64", "u64", Kind.UINT, 64, 1),
            _row("bool", "bool", Kind.BOOL, 8, 6),
        )
    )
)
"""All data types by canonical name."""

_CANONICAL: Final[Mapping[str, str]] = MappingProxyType(
    {alias: d.name for d in DTYPES.values() for alias in (d.name, d.short)}
)


def dtype(x: object) -> str:
    """Return the canonical name of a data type given by long or short name, NumPy dtype or scalar type.

    Raises UnsupportedError (``dtype-unsupported``) for anything else, foreign byte order included.

    >>> dtype("f32"), dtype("float32"), dtype(np.int64), dtype(np.dtype(bool))
    ('float32', 'float32', 'int64', 'bool')
    """
    if isinstance(x, str):
        if name := _CANONICAL.get(x):
            return name
    elif isinstance(x, (np.dtype, type)) and (name := _numpy_name(x)):
        return name
    raise UnsupportedError(
        f"data type `{x.__name__ if isinstance(x, type) else x}` is not supported",
        code="dtype-unsupported",
        help=f"use one of {', '.join(DTYPES)}",
    )


def _numpy_name(x: np.dtype[np.generic] | type) -> str | None:
    try:
        stored = np.dtype(x)
    except TypeError:  # an abstract scalar type, such as np.generic
        return None
    # By name, because ml_dtypes registers its bfloat16 with NumPy under ours.
    return stored.name if stored.isnative and stored.name in DTYPES else None


def info(x: object) -> DType:
    """Return the table row of a data type given in any form that `dtype` takes.

    >>> info("bf16").bytes
    2
    """
    return DTYPES[x] if isinstance(x, str) and x in DTYPES else DTYPES[dtype(x)]


def short(x: object) -> str:
    """Return the name of a data type in IR text.

    >>> short("float32")
    'f32'
    """
    return info(x).short
