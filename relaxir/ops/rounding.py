"""Rounding of floats, and questions about them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import Example
from relaxir.ops.common import FLOATS, NOT_FLOAT, float_examples
from relaxir.ops.elementwise import FloatUnary, Unary
from relaxir.tir import Expr, Intrinsic, call, const, eq

WIDE: Final = float_examples(-9.0, 9.0)
HALVES: Final = Example(("f32[6]",), "f32[6]", values=((-2.5, -1.5, -0.5, 0.5, 1.5, 2.5),))
SPECIAL: Final = (float("nan"), float("inf"), float("-inf"), 0.0, 1.0)


class Floor(FloatUnary):
    """Largest whole number not above ``x``.

    Infinities and NaN stay, -0 stays -0. TVM: relax.floor, ONNX: Floor.
    """

    name = "floor"
    rising = True
    intrinsic = Intrinsic.FLOOR
    ufunc = np.floor
    examples = WIDE


class Ceil(FloatUnary):
    """Smallest whole number not below ``x``.

    Infinities and NaN stay. TVM: relax.ceil, ONNX: Ceil.
    """

    name = "ceil"
    rising = True
    intrinsic = Intrinsic.CEIL
    ufunc = np.ceil
    examples = WIDE


class Round(FloatUnary):
    """Nearest whole number; halves go to the even one.

    0.5 gives 0, 1.5 gives 2, 2.5 gives 2. Infinities and NaN stay. TVM: relax.round, ONNX: Round.
    """

    name = "round"
    rising = True
    intrinsic = Intrinsic.ROUND
    ufunc = np.rint
    examples = (*WIDE, HALVES)


class Trunc(FloatUnary):
    """Whole part, rounding to zero.

    Infinities and NaN stay. TVM: relax.trunc, ONNX: none.
    """

    name = "trunc"
    rising = True
    intrinsic = Intrinsic.TRUNC
    ufunc = np.trunc
    examples = WIDE


class IsNan(FloatUnary):
    """Whether ``x`` is not a number; the result is bool.

    TVM: relax.isnan, ONNX: IsNaN.
    """

    name = "isnan"
    intrinsic = Intrinsic.ISNAN
    ufunc = np.isnan
    result = "bool"
    examples = (
        Example(("f32[5]",), "bool[5]", values=(SPECIAL,)),
        Example(("f16[n, 3]",), "bool[n, 3]"),
        Example(("f64[]",), "bool[]"),
    )


@dataclass(frozen=True, slots=True)
class IsInfAttrs(Attrs):
    """Attributes of `IsInf`."""

    detect_negative: bool = True
    detect_positive: bool = True


class IsInf(Unary[IsInfAttrs]):
    """Whether ``x`` is infinite, of a sign that is asked for; the result is bool.

    NaN is not infinite; with both attributes off the answer is always false. TVM: relax.isinf, ONNX: IsInf.
    """

    name = "isinf"
    Attrs = IsInfAttrs
    dtypes = FLOATS
    result = "bool"
    examples = (
        Example(("f32[5]",), "bool[5]", IsInfAttrs(), values=(SPECIAL,)),
        Example(("f32[5]",), "bool[5]", IsInfAttrs(detect_negative=False), values=(SPECIAL,)),
        Example(("f64[5]",), "bool[5]", IsInfAttrs(detect_positive=False), values=(SPECIAL,)),
        Example(("f16[n]",), "bool[n]", IsInfAttrs(detect_negative=False, detect_positive=False)),
    )
    bad_examples = NOT_FLOAT

    def scalar(self, x: Expr, attrs: IsInfAttrs) -> Expr:
        """Comparison with the infinities asked for."""
        if attrs.detect_negative and attrs.detect_positive:
            return call(Intrinsic.ISINF, x)
        if attrs.detect_negative:
            return eq(x, float("-inf"))
        return eq(x, float("inf")) if attrs.detect_positive else const(False, "bool")

    def numpy(self, x: Array, attrs: IsInfAttrs) -> Array:
        """np.isneginf and np.isposinf."""
        negative, positive = np.isneginf(x), np.isposinf(x)
        return np.asarray((negative & attrs.detect_negative) | (positive & attrs.detect_positive))


ROUNDING: Final = (
    Floor(),
    Ceil(),
    Round(),
    Trunc(),
    IsNan(),
    IsInf(),
)
