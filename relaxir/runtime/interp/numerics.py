"""Scalar arithmetic of tensor programs on whole NumPy arrays, exactly as `relaxir.tir.expr` states it.

While an expression is evaluated its values are *in flight*: float16 and bfloat16 are held as float32 rounded to what
the narrow type can represent after every operation, all other types as themselves. Functions that NumPy computes with
some error in float32 go through float64, so that this is the accurate side of any comparison.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxir.support.dtypes import info
from relaxir.support.saturation import saturated
from relaxir.tir import BinOp, Combine, Intrinsic, identity

Array = NDArray[Any]
Unary = Callable[[Array], Array]
Binary = Callable[[Array, Array], Array]

NARROW: Final = ("float16", "bfloat16")


def flight_dtype(name: str) -> np.dtype[Any]:
    """How values of a dtype are held while an expression is evaluated."""
    return np.dtype(np.float32) if name in NARROW else info(name).numpy


def wide_dtype(name: str) -> np.dtype[Any]:
    """How sums and products of a dtype are accumulated: floats in float64, integers wrap in their own type."""
    return np.dtype(np.float64) if info(name).is_float else info(name).numpy


def from_memory(stored: Array, name: str) -> Array:
    """Values in flight of stored elements; a view where nothing changes."""
    if name == "float16":
        return stored.astype(np.float32)
    if name == "bfloat16":
        return np.asarray(np.left_shift(stored.astype(np.uint32), np.uint32(16))).view(np.float32)
    return stored


def to_memory(values: Array, name: str) -> Array:
    """Stored elements of values; rounds floats to nearest even."""
    if name == "bfloat16":
        bits = np.ascontiguousarray(values, np.float32).view(np.uint32).reshape(np.shape(values))
        nearest = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
        # rounding up could turn a NaN's payload into infinity, so NaNs are cut and made quiet instead
        quiet = (bits >> np.uint32(16)) | np.uint32(0x40)
        chosen: Array = np.where(np.isnan(values), quiet, nearest)
        return chosen.astype(np.uint16)
    return values.astype(info(name).numpy, copy=False)


def rounded(values: Array, name: str) -> Array:
    """Bring a result of any float or integer type into the in-flight form of a dtype."""
    if name in NARROW:
        return from_memory(to_memory(values, name), name)
    return values.astype(flight_dtype(name), copy=False)


def cast(values: Array, source: str, target: str) -> Array:
    """Convert values in flight: NumPy's ``astype``, but float to integer truncates and saturates, and NaN gives 0."""
    if target == "bool":
        return np.not_equal(values, 0)
    if info(source).is_float and info(target).is_integer:
        return saturated(values, info(target).numpy)
    return rounded(values, target)


def bits(values: Array, source: str, target: str) -> Array:
    """Values in flight whose stored bits are those of other values of the same size."""
    stored: Array = np.ascontiguousarray(to_memory(values, source)).reshape(np.shape(values))
    if target == "bool":
        return np.asarray(stored != 0)
    return from_memory(stored.view(info(target).numpy), target)


# ---- binary operators ------------------------------------------------------------------------------------------------


def _trunc_div(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.trunc(a / b)
    quotient = np.floor_divide(a, b)
    inexact = np.fmod(a, b) != 0
    correction: Array = inexact & ((a < 0) != (b < 0))
    result: Array = quotient + correction.astype(a.dtype)
    return result


def _power(a: Array, b: Array) -> Array:
    if a.dtype.kind == "f":
        return np.power(a.astype(np.float64), b.astype(np.float64))
    if a.dtype.kind == "u":
        return np.power(a, b)
    # NumPy refuses negative exponents: the exact result is a fraction, 0 once truncated, unless the base is 1 or -1
    positive = np.power(a, np.maximum(b, 0).astype(a.dtype))
    flipped = np.where(a == 1, 1, np.where(a == -1, np.where(b % 2 == 0, 1, -1), 0)).astype(a.dtype)
    return np.where(b < 0, flipped, positive)


def _subtract(a: Array, b: Array) -> Array:
    return np.logical_xor(a, b) if a.dtype.kind == "b" else np.subtract(a, b)


def _atan2(a: Array, b: Array) -> Array:
    return np.arctan2(a.astype(np.float64), b.astype(np.float64))


def _dot4(a: Array, b: Array) -> Array:
    total: Any = 0
    for n in range(4):
        unsigned = (a >> np.int32(8 * n)) & np.int32(255)
        signed = (b << np.int32(24 - 8 * n)) >> np.int32(24)
        total = total + unsigned * signed
    return np.asarray(total)


BINARY: Final[Mapping[BinOp, Binary]] = MappingProxyType(
    {
        BinOp.ADD: np.add,
        BinOp.SUB: _subtract,
        BinOp.MUL: np.multiply,
        BinOp.DIV: np.true_divide,
        BinOp.FLOORDIV: np.floor_divide,
        BinOp.MOD: np.mod,
        BinOp.TRUNCDIV: _trunc_div,
        BinOp.TRUNCMOD: np.fmod,
        BinOp.POW: _power,
        BinOp.MIN: np.minimum,
        BinOp.MAX: np.maximum,
        BinOp.AND: np.bitwise_and,
        BinOp.OR: np.bitwise_or,
        BinOp.XOR: np.bitwise_xor,
        BinOp.SHL: np.left_shift,
        BinOp.SHR: np.right_shift,
        BinOp.EQ: np.equal,
        BinOp.NE: np.not_equal,
        BinOp.LT: np.less,
        BinOp.LE: np.less_equal,
        BinOp.GT: np.greater,
        BinOp.GE: np.greater_equal,
        BinOp.ATAN2: _atan2,
        BinOp.DOT4: _dot4,
    }
)


def binary(op: BinOp, a: Array, b: Array, result: str) -> Array:
    """Apply ``a op b`` to values in flight, giving dtype ``result``; an integer divided by zero gives 0."""
    return rounded(BINARY[op](a, b), result)


# ---- intrinsics ------------------------------------------------------------------------------------------------------

_ERF: Final = np.frompyfunc(math.erf, 1, 1)


def _erf(x: Array) -> Array:
    return np.asarray(_ERF(x), np.float64)


_ERFC: Final = np.frompyfunc(math.erfc, 1, 1)


def _normal_cdf(x: Array) -> Array:
    return np.asarray(0.5 * _ERFC(-math.sqrt(0.5) * x), np.float64)


def _sigmoid(x: Array) -> Array:
    small = np.exp(-np.abs(x))  # never overflows
    return np.where(x >= 0, 1.0, small) / (1.0 + small)


def _negate(x: Array) -> Array:
    return np.logical_not(x) if x.dtype.kind == "b" else np.negative(x)


def _whole(fn: Unary) -> Unary:
    """A rounding function: nothing to do for integers."""
    return lambda x: fn(x) if x.dtype.kind == "f" else x


def _via_float64(fn: Unary) -> Unary:
    return lambda x: fn(x.astype(np.float64))


UNARY: Final[Mapping[Intrinsic, Unary]] = MappingProxyType(
    {
        Intrinsic.NEG: _negate,
        Intrinsic.ABS: np.abs,
        Intrinsic.NOT: np.invert,
        Intrinsic.SIGN: np.sign,
        Intrinsic.EXP: _via_float64(np.exp),
        Intrinsic.EXP_NONPOSITIVE: _via_float64(np.exp),
        Intrinsic.EXPM1: _via_float64(np.expm1),
        Intrinsic.LOG: _via_float64(np.log),
        Intrinsic.LOG1P: _via_float64(np.log1p),
        Intrinsic.LOG2: _via_float64(np.log2),
        Intrinsic.SQRT: np.sqrt,
        Intrinsic.RSQRT: _via_float64(lambda x: 1.0 / np.sqrt(x)),
        Intrinsic.SIN: _via_float64(np.sin),
        Intrinsic.COS: _via_float64(np.cos),
        Intrinsic.TAN: _via_float64(np.tan),
        Intrinsic.ASIN: _via_float64(np.arcsin),
        Intrinsic.ACOS: _via_float64(np.arccos),
        Intrinsic.ATAN: _via_float64(np.arctan),
        Intrinsic.SINH: _via_float64(np.sinh),
        Intrinsic.COSH: _via_float64(np.cosh),
        Intrinsic.TANH: _via_float64(np.tanh),
        Intrinsic.ASINH: _via_float64(np.arcsinh),
        Intrinsic.ACOSH: _via_float64(np.arccosh),
        Intrinsic.ATANH: _via_float64(np.arctanh),
        Intrinsic.ERF: _via_float64(_erf),
        Intrinsic.NORMAL_CDF: _via_float64(_normal_cdf),
        Intrinsic.SIGMOID: _via_float64(_sigmoid),
        Intrinsic.FLOOR: _whole(np.floor),
        Intrinsic.CEIL: _whole(np.ceil),
        Intrinsic.ROUND: _whole(np.rint),
        Intrinsic.TRUNC: _whole(np.trunc),
        Intrinsic.ISNAN: np.isnan,
        Intrinsic.ISINF: np.isinf,
    }
)


def intrinsic(fn: Intrinsic, x: Array, result: str) -> Array:
    """Apply an intrinsic to values in flight, giving dtype ``result``."""
    return rounded(UNARY[fn](x), result)


# ---- reductions ------------------------------------------------------------------------------------------------------


def combine_ufunc(combine: Combine, name: str) -> np.ufunc:
    """The function behind a combine of elements of a dtype."""
    if name == "bool":
        return np.logical_and if combine in (Combine.AND, Combine.MIN, Combine.PROD) else np.logical_or
    table: dict[Combine, np.ufunc] = {
        Combine.SUM: np.add,
        Combine.PROD: np.multiply,
        Combine.MAX: np.maximum,
        Combine.MIN: np.minimum,
        Combine.AND: np.bitwise_and,
        Combine.OR: np.bitwise_or,
    }
    return table[combine]


def neutral(combine: Combine, name: str) -> Array:
    """The neutral element of a combine, in the dtype that accumulates."""
    if combine is Combine.AND and info(name).is_integer:
        return np.asarray(-1).astype(wide_dtype(name))
    return np.asarray(identity(combine, name).value, wide_dtype(name))
