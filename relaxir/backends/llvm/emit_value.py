"""Values of LLVM functions as text: SSA names and literals, with their types.

Types in registers: ``bool`` is ``i1``, the 16-bit floats are ``float`` (they are rounded when stored or cast to),
everything else is itself.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from relaxir.support.dtypes import info
from relaxir.tir.expr import Const

REGISTER: Final = MappingProxyType({
    "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double", "bool": "i1",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "i8", "uint16": "i16", "uint32": "i32", "uint64": "i64",
})  # fmt: skip
"""LLVM types of data types in registers."""
MEMORY: Final = MappingProxyType({**REGISTER, "float16": "half", "bfloat16": "i16", "bool": "i8"})
"""LLVM types of data types in memory."""
_MANGLED: Final = MappingProxyType({"float": "f32", "double": "f64", "half": "f16", "ptr": "p0"})


@dataclass(frozen=True, slots=True)
class Value:
    """An SSA value or a literal: a scalar, or a vector of ``width`` > 1 lanes of ``type``."""

    text: str
    type: str
    width: int = 1
    level: int = 0
    """Depth of the scope that defines it."""
    number: int | None = None
    """The value of an integer constant."""
    nonneg: bool = False
    """Certainly not negative, so that division may round to zero."""

    @property
    def full_type(self) -> str:
        """The LLVM type."""
        return vector_type(self.type, self.width)

    @property
    def typed(self) -> str:
        """The value with its type, as operand of a call."""
        return f"{self.full_type} {self.text}"


def is_signed(dtype: str) -> bool:
    """Whether integers of this type have a sign."""
    return dtype.startswith("int")


def is_float(dtype: str) -> bool:
    """Whether this is a floating-point type."""
    return info(dtype).is_float


def vector_type(scalar: str, width: int) -> str:
    """Return ``scalar``, or a vector of it."""
    return scalar if width == 1 else f"<{width} x {scalar}>"


def mangled(scalar: str, width: int) -> str:
    """Return the suffix of an overloaded intrinsic, e.g. ``v8f32``."""
    name = _MANGLED.get(scalar, scalar)
    return name if width == 1 else f"v{width}{name}"


def int_value(number: int, type_: str = "i64") -> Value:
    """Return an integer constant."""
    return Value(str(number), type_, number=number, nonneg=number >= 0)


def bool_value(truth: bool) -> Value:
    """Return an ``i1`` constant."""
    return Value("true" if truth else "false", "i1", number=int(truth))


def float_value(number: float, type_: str = "float") -> Value:
    """Return a floating-point constant (rounded to the type), written by its bits."""
    if type_ == "float" and abs(number) < float("inf"):
        number = struct.unpack("<f", struct.pack("<f", number))[0]
    return Value(f"0x{struct.unpack('<Q', struct.pack('<d', number))[0]:016X}", type_)


def constant(node: Const) -> Value:
    """Return a literal."""
    kind = REGISTER[node.dtype]
    if kind == "i1":
        return bool_value(bool(node.value))
    if kind in ("float", "double"):
        return float_value(float(node.value), kind)
    return int_value(int(node.value), kind)
