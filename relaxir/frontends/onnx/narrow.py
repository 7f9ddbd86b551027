"""Element formats of less than 16 bits: how tensors hold them, and conversions from and to numbers.

The IR has no such types: a tensor holds the bits of a small float in uint8, the value of a small integer in int8 or
uint8, and `Value.element` says what the bytes mean. Only conversions and movements accept such a value. Roundings are
to nearest, ties to even (IEEE 754; OCP 8-bit and microscaling formats).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Final

import ml_dtypes
import numpy as np
from onnx import TensorProto

from relaxir.frontends.emitter import Emitter
from relaxir.frontends.onnx.values import Value
from relaxir.ir.expr import Array


@dataclass(frozen=True)
class Narrow:
    """One format.

    Attributes:
        name: of the type in ml_dtypes.
        stored: dtype that holds an element.
        bits: of an element in a file, where several share a byte.
        largest: code of the largest finite number (floats).
        beyond: code of what is larger still; None: such numbers become the largest.
        nan: code of NaN.
        signed: whether the top bit is a sign (floats: sign and magnitude; integers: two's complement).
        zero_sign: whether there is a negative zero (floats).
    """

    name: str
    stored: str
    bits: int
    largest: int = 0
    beyond: int | None = None
    nan: int = 0
    signed: bool = True
    zero_sign: bool = True

    @property
    def is_float(self) -> bool:
        """Whether the elements are floats."""
        return self.largest > 0

    @property
    def bounds(self) -> tuple[int, int]:
        """Smallest and largest integer."""
        return (-(1 << self.bits - 1), (1 << self.bits - 1) - 1) if self.signed else (0, (1 << self.bits) - 1)


NARROW: Final[Mapping[int, Narrow]] = MappingProxyType(
    {
        TensorProto.FLOAT8E4M3FN: Narrow("float8_e4m3fn", "uint8", 8, 0x7E, 0x7F, 0x7F),
        TensorProto.FLOAT8E4M3FNUZ: Narrow("float8_e4m3fnuz", "uint8", 8, 0x7F, 0x80, 0x80, zero_sign=False),
        TensorProto.FLOAT8E5M2: Narrow("float8_e5m2", "uint8", 8, 0x7B, 0x7C, 0x7E),
        TensorProto.FLOAT8E5M2FNUZ: Narrow("float8_e5m2fnuz", "uint8", 8, 0x7F, 0x80, 0x80, zero_sign=False),
        TensorProto.FLOAT8E8M0: Narrow("float8_e8m0fnu", "uint8", 8, 0xFE, 0xFF, 0xFF, signed=False),
        TensorProto.FLOAT4E2M1: Narrow("float4_e2m1fn", "uint8", 4, 0x07, None, 0x08),
        TensorProto.INT4: Narrow("int4", "int8", 4),
        TensorProto.UINT4: Narrow("uint4", "uint8", 4, signed=False),
        TensorProto.INT2: Narrow("int2", "int8", 2),
        TensorProto.UINT2: Narrow("uint2", "uint8", 2, signed=False),
    }
)
"""Formats by ONNX element type."""
BY_NAME: Final[Mapping[str, Narrow]] = MappingProxyType({f.name: f for f in NARROW.values()})


def numbers(name: str) -> Array:
    """The float32 value of each code of a float format."""
    codes = 1 << BY_NAME[name].bits
    held: Array = np.arange(codes, dtype=np.uint8).view(np.dtype(getattr(ml_dtypes, name)))
    return held.astype(np.float32)


def unpacked(data: Array, narrow: Narrow, count: int) -> Array:
    """Elements of a file's bytes, the first one in the low bits."""
    if narrow.bits < 8:
        shifts = np.arange(0, 8, narrow.bits, dtype=np.uint8)
        data = (data[:, None] >> shifts & ((1 << narrow.bits) - 1)).reshape(-1)[:count]
    if narrow.is_float or not narrow.signed:
        return data
    half = 1 << narrow.bits - 1
    return ((data.astype(np.int16) ^ half) - half).astype(np.int8)


def thresholds(narrow: Narrow, rounding: str) -> Array:
    """The least number, as float64, that rounds to each code from 1 to the one past the largest."""
    values = numbers(narrow.name)[: narrow.largest + 1].astype(np.float64)
    values = np.append(values, 2 * values[-1] - values[-2] if narrow.signed else 2 * values[-1])
    if rounding == "down":
        return values[1:]
    if rounding == "up":
        return np.nextafter(values[:-1], np.inf)
    middle = (values[:-1] + values[1:]) / 2
    # a tie goes to the even code: from an even one it must be passed
    return np.where(np.arange(len(middle)) % 2, middle, np.nextafter(middle, np.inf))


def decoded(n: Emitter, value: Value) -> Value:
    """The numbers of a value: float32 for small floats, the holding integers for small integers."""
    narrow = BY_NAME.get(value.element)
    if narrow is None:
        return value
    if not narrow.is_float:
        return replace(value, element="")
    codes = n.emit("astype", replace(value, element=""), dtype="int32")
    return n.emit("take", n.literal(numbers(narrow.name), "float32"), codes, axis=0)


def encoded(n: Emitter, value: Value, narrow: Narrow, saturate: bool = True, rounding: str = "nearest") -> Value:
    """Numbers in a format; ``saturate`` makes what is too large the largest number, otherwise infinity or NaN."""
    x = decoded(n, value)
    y = small_float(n, x, narrow, saturate, rounding) if narrow.is_float else small_integer(n, x, narrow)
    return replace(y, element=narrow.name)


def small_integer(n: Emitter, x: Value, narrow: Narrow) -> Value:
    """Integers wrapped to a few bits."""
    wide = n.emit("bitwise_and", n.emit("astype", x, dtype="int32"), (1 << narrow.bits) - 1)
    if narrow.signed:
        half = 1 << narrow.bits - 1
        wide = n.emit("subtract", n.emit("bitwise_xor", wide, half), half)
    return n.emit("astype", wide, dtype=narrow.stored)


def small_float(n: Emitter, x: Value, narrow: Narrow, saturate: bool, rounding: str) -> Value:
    """The code of the nearest number: how many thresholds the magnitude has reached, with the sign bit."""
    x = n.emit("astype", x, dtype="float64")
    magnitude = n.emit("abs", x)
    if saturate or narrow.beyond is None:
        magnitude = n.emit("minimum", magnitude, float(numbers(narrow.name)[narrow.largest]))
    code = n.emit("searchsorted", n.literal(thresholds(narrow, rounding), "float64"), magnitude, right=True)
    if narrow.signed:
        negative = n.emit("less", x, 0.0)
        if narrow.zero_sign:
            negative = n.emit("logical_or", negative, n.emit("less", n.emit("divide", 1.0, x), 0.0))
        else:
            negative = n.emit("logical_and", negative, n.emit("greater", code, 0))
        sign = n.emit("where", negative, n.scalar(1 << narrow.bits - 1, "int64"), n.scalar(0, "int64"))
        code = n.emit("bitwise_or", code, sign)
    code = n.emit("where", n.emit("isnan", x), n.scalar(narrow.nan, "int64"), code)
    return n.emit("astype", code, dtype="uint8")
