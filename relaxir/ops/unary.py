"""Arithmetic, exponential, logarithm and root functions of one element."""

from __future__ import annotations

import math
from typing import Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example
from relaxir.ops.common import FLOATS, NUMERIC, float_examples
from relaxir.ops.elementwise import FloatUnary, Unary
from relaxir.tir import Expr, Intrinsic, call


class Signed(Unary[Attrs]):
    """Base of sign arithmetic on floats and integers."""

    dtypes = NUMERIC
    examples = (
        Example(("f32[n, 4]",), "f32[n, 4]"),
        Example(("i8[n]",), "i8[n]", low=-128, high=127),
        Example(("f16[]",), "f16[]"),
    )
    bad_examples = (BadExample(("bool[n]",), "dtype-mismatch", "x must be one of"),)


class Negative(Signed):
    """``-x``.

    Integers wrap: the most negative value gives itself, unsigned values give ``2**bits - x``.
    TVM: relax.negative, ONNX: Neg.
    """

    name = "negative"

    def monotone(self, attrs: Attrs, dtype: str) -> int:
        """Falls on floats; the most negative integer is its own negative."""
        return -1 if dtype in FLOATS else 0

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Intrinsic neg."""
        return call(Intrinsic.NEG, x)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """np.negative."""
        return np.asarray(np.negative(x))


class Abs(Signed):
    """``|x|``.

    The most negative integer gives itself (it wraps); NaN gives NaN. TVM: relax.abs, ONNX: Abs.
    """

    name = "abs"

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Intrinsic abs."""
        return call(Intrinsic.ABS, x)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """np.abs."""
        return np.asarray(np.abs(x))


class Sign(Signed):
    """-1, 0 or 1 by the sign of ``x``.

    NaN gives NaN, zeros of either sign give 0. TVM: relax.sign, ONNX: Sign.
    """

    name = "sign"
    rising = True

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Intrinsic sign."""
        return call(Intrinsic.SIGN, x)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """np.sign."""
        return np.asarray(np.sign(x))


class Exp(FloatUnary):
    """``e ** x``, elementwise on floats.

    inf for x above the dtype's log-range, 0 for -inf, NaN for NaN. TVM: relax.exp, ONNX: Exp.
    """

    name = "exp"
    rising = True
    intrinsic = Intrinsic.EXP
    ufunc = np.exp


class Expm1(FloatUnary):
    """``e ** x - 1``, accurate near 0.

    -1 for -inf, inf for large x, NaN for NaN. TVM: none, ONNX: none (ELU is made of it).
    """

    name = "expm1"
    rising = True
    intrinsic = Intrinsic.EXPM1
    ufunc = np.expm1


class Log(FloatUnary):
    """Natural logarithm.

    -inf for 0, NaN for negative x, inf for inf. TVM: relax.log, ONNX: Log.
    """

    name = "log"
    intrinsic = Intrinsic.LOG
    ufunc = np.log
    examples = float_examples(-0.1, 9.0)


class Log1p(FloatUnary):
    """``log(1 + x)``, accurate near 0.

    -inf for -1, NaN below -1. TVM: none, ONNX: none.
    """

    name = "log1p"
    intrinsic = Intrinsic.LOG1P
    ufunc = np.log1p
    examples = float_examples(-1.1, 9.0)


class Log2(FloatUnary):
    """Logarithm to base 2.

    -inf for 0, NaN for negative x, exact on powers of two. TVM: none, ONNX: none.
    """

    name = "log2"
    intrinsic = Intrinsic.LOG2
    ufunc = np.log2
    examples = float_examples(-0.1, 9.0)


class Sqrt(FloatUnary):
    """Square root, correctly rounded.

    NaN below 0, -0 for -0. TVM: relax.sqrt, ONNX: Sqrt.
    """

    name = "sqrt"
    intrinsic = Intrinsic.SQRT
    ufunc = np.sqrt
    examples = float_examples(-0.1, 9.0)


class Rsqrt(FloatUnary):
    """``1 / sqrt(x)``.

    inf for 0, -inf for -0, NaN below 0, 0 for inf. TVM: relax.rsqrt, ONNX: none (Sqrt and Reciprocal).
    """

    name = "rsqrt"
    intrinsic = Intrinsic.RSQRT
    examples = float_examples(-0.1, 9.0)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """1 / np.sqrt."""
        return np.asarray(x.dtype.type(1) / np.sqrt(x))


class Reciprocal(FloatUnary):
    """``1 / x``.

    inf and -inf for the zeros, 0 for the infinities. TVM: none (divide), ONNX: Reciprocal.
    """

    name = "reciprocal"
    ufunc = np.reciprocal

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Division."""
        return 1.0 / x


class Erf(FloatUnary):
    """Error function ``2 / sqrt(pi) * integral of exp(-t ** 2) over 0..x``.

    -1 and 1 at the infinities. TVM: relax.erf, ONNX: Erf.
    """

    name = "erf"
    rising = True
    intrinsic = Intrinsic.ERF

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """math.erf of each element."""
        return erf(x)


def erf(x: Array) -> Array:
    """Error function of an array, in float64 (NumPy has none)."""
    flat = np.fromiter(map(math.erf, x.reshape(-1).astype(np.float64).tolist()), np.float64, x.size)
    return np.asarray(flat.reshape(x.shape))


UNARY: Final = (
    Negative(),
    Abs(),
    Sign(),
    Exp(),
    Expm1(),
    Log(),
    Log1p(),
    Log2(),
    Sqrt(),
    Rsqrt(),
    Reciprocal(),
    Erf(),
)
