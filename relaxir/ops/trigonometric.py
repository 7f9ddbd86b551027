"""Trigonometric and hyperbolic functions of one float, in radians."""

from __future__ import annotations

from typing import Final

import numpy as np

from relaxir.ops.common import float_examples
from relaxir.ops.elementwise import FloatUnary
from relaxir.tir import Intrinsic

WIDE: Final = float_examples(-20.0, 20.0)
UNIT: Final = float_examples(-1.1, 1.1)


class Sin(FloatUnary):
    """Sine of ``x`` radians.

    NaN at the infinities. TVM: relax.sin, ONNX: Sin.
    """

    name = "sin"
    intrinsic = Intrinsic.SIN
    ufunc = np.sin
    examples = WIDE


class Cos(FloatUnary):
    """Cosine of ``x`` radians.

    NaN at the infinities. TVM: relax.cos, ONNX: Cos.
    """

    name = "cos"
    intrinsic = Intrinsic.COS
    ufunc = np.cos
    examples = WIDE


class Tan(FloatUnary):
    """Tangent of ``x`` radians.

    Finite everywhere, since no float is an odd multiple of pi / 2; NaN at the infinities. TVM: relax.tan, ONNX: Tan.
    """

    name = "tan"
    intrinsic = Intrinsic.TAN
    ufunc = np.tan


class Asin(FloatUnary):
    """Arc sine, in -pi/2..pi/2.

    NaN outside -1..1. TVM: relax.asin, ONNX: Asin.
    """

    name = "asin"
    intrinsic = Intrinsic.ASIN
    ufunc = np.arcsin
    examples = UNIT


class Acos(FloatUnary):
    """Arc cosine, in 0..pi.

    NaN outside -1..1. TVM: relax.acos, ONNX: Acos.
    """

    name = "acos"
    intrinsic = Intrinsic.ACOS
    ufunc = np.arccos
    examples = UNIT


class Atan(FloatUnary):
    """Arc tangent, in -pi/2..pi/2.

    The bounds at the infinities. TVM: relax.atan, ONNX: Atan.
    """

    name = "atan"
    rising = True
    intrinsic = Intrinsic.ATAN
    ufunc = np.arctan
    examples = WIDE


class Sinh(FloatUnary):
    """Hyperbolic sine ``(e ** x - e ** -x) / 2``.

    Infinite at the infinities. TVM: relax.sinh, ONNX: Sinh.
    """

    name = "sinh"
    rising = True
    intrinsic = Intrinsic.SINH
    ufunc = np.sinh


class Cosh(FloatUnary):
    """Hyperbolic cosine ``(e ** x + e ** -x) / 2``.

    inf at the infinities. TVM: relax.cosh, ONNX: Cosh.
    """

    name = "cosh"
    intrinsic = Intrinsic.COSH
    ufunc = np.cosh


class Asinh(FloatUnary):
    """Inverse hyperbolic sine.

    Infinite at the infinities. TVM: relax.asinh, ONNX: Asinh.
    """

    name = "asinh"
    rising = True
    intrinsic = Intrinsic.ASINH
    ufunc = np.arcsinh
    examples = WIDE


class Acosh(FloatUnary):
    """Inverse hyperbolic cosine, not negative.

    NaN below 1. TVM: relax.acosh, ONNX: Acosh.
    """

    name = "acosh"
    intrinsic = Intrinsic.ACOSH
    ufunc = np.arccosh
    examples = float_examples(0.9, 9.0)


class Atanh(FloatUnary):
    """Inverse hyperbolic tangent.

    Infinite at -1 and 1, NaN outside. TVM: relax.atanh, ONNX: Atanh.
    """

    name = "atanh"
    intrinsic = Intrinsic.ATANH
    ufunc = np.arctanh
    examples = UNIT


TRIGONOMETRIC: Final = (
    Sin(),
    Cos(),
    Tan(),
    Asin(),
    Acos(),
    Atan(),
    Sinh(),
    Cosh(),
    Asinh(),
    Acosh(),
    Atanh(),
)
