"""Smooth activation functions: tanh, sigmoid, gelu and their kin, and their piecewise linear likenesses."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import Example
from relaxir.ops.common import FLOATS, NOT_FLOAT, float_examples, rounded
from relaxir.ops.elementwise import FloatUnary, Unary
from relaxir.ops.rectifier import AlphaAttrs
from relaxir.ops.unary import erf
from relaxir.tir import Expr, Intrinsic, call, maximum, minimum

SQRT_HALF: Final = math.sqrt(0.5)
SQRT_2_OVER_PI: Final = math.sqrt(2.0 / math.pi)


class Tanh(FloatUnary):
    """Hyperbolic tangent.

    -1 and 1 at the infinities. TVM: relax.tanh, ONNX: Tanh.
    """

    name = "tanh"
    rising = True
    intrinsic = Intrinsic.TANH
    ufunc = np.tanh


class Sigmoid(FloatUnary):
    """``1 / (1 + e ** -x)``.

    0 and 1 at the infinities, never overflows. TVM: relax.sigmoid, ONNX: Sigmoid.
    """

    name = "sigmoid"
    rising = True
    intrinsic = Intrinsic.SIGMOID
    examples = float_examples(-9.0, 9.0)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """By its definition."""
        return sigmoid(x)


def sigmoid(x: Array) -> Array:
    """Logistic function of an array."""
    return np.asarray(1 / (1 + np.exp(-x)))


@dataclass(frozen=True, slots=True)
class GeluAttrs(Attrs):
    """Attributes of `Gelu`."""

    approximate: Literal["none", "tanh"] = "none"
    """``none`` for the error function, ``tanh`` for the approximation by tanh."""


class Gelu(Unary[GeluAttrs]):
    """Gaussian error linear unit ``x * Phi(x)``, ``Phi`` the normal distribution function.

    ``approximate="none"``: ``0.5 * x * (1 + erf(x / sqrt(2)))``; ``"tanh"``: ``0.5 * x * (1 + tanh(sqrt(2 / pi) *
    (x + 0.044715 * x ** 3)))``. -inf gives NaN (it is ``-inf * 0``), as in PyTorch.
    TVM: relax.nn.gelu and gelu_tanh, ONNX: Gelu.
    """

    name = "gelu"
    Attrs = GeluAttrs
    dtypes = FLOATS
    examples = (*float_examples(-5.0, 5.0), Example(("f32[n]",), "f32[n]", GeluAttrs("tanh"), low=-5.0, high=5.0))
    bad_examples = NOT_FLOAT

    def scalar(self, x: Expr, attrs: GeluAttrs) -> Expr:
        """Follow the class's formula."""
        if attrs.approximate == "none":
            return x * call(Intrinsic.NORMAL_CDF, x)
        inner = (x + x * x * x * 0.044715) * SQRT_2_OVER_PI
        return x * 0.5 * (call(Intrinsic.TANH, inner) + 1.0)

    def numpy(self, x: Array, attrs: GeluAttrs) -> Array:
        """Follow the class's formula."""
        if attrs.approximate == "none":
            return np.asarray(0.5 * x * (1 + erf(x * SQRT_HALF)))
        return np.asarray(0.5 * x * (1 + np.tanh(SQRT_2_OVER_PI * (x + 0.044715 * x**3))))


@dataclass(frozen=True, slots=True)
class HardSigmoidAttrs(Attrs):
    """Attributes of `HardSigmoid`."""

    alpha: float = 0.2
    beta: float = 0.5


class HardSigmoid(Unary[HardSigmoidAttrs]):
    """``max(0, min(1, alpha * x + beta))``.

    NaN gives NaN. TVM: none, ONNX: HardSigmoid.
    """

    name = "hard_sigmoid"
    Attrs = HardSigmoidAttrs
    dtypes = FLOATS
    examples = float_examples(-5.0, 5.0, attrs=HardSigmoidAttrs())
    bad_examples = NOT_FLOAT

    def monotone(self, attrs: HardSigmoidAttrs, dtype: str) -> int:
        """As the sign of alpha; 0 times infinity is NaN."""
        slope = rounded(attrs.alpha, dtype)
        return (slope > 0) - (slope < 0) if math.isfinite(slope) and math.isfinite(rounded(attrs.beta, dtype)) else 0

    def scalar(self, x: Expr, attrs: HardSigmoidAttrs) -> Expr:
        """Clipped line."""
        return maximum(minimum(x * attrs.alpha + attrs.beta, 1.0), 0.0)

    def numpy(self, x: Array, attrs: HardSigmoidAttrs) -> Array:
        """Clipped line."""
        return np.asarray(np.clip(x * attrs.alpha + attrs.beta, 0, 1))


class HardSwish(FloatUnary):
    """``x * max(0, min(1, x / 6 + 0.5))``.

    -inf gives NaN (it is ``-inf * 0``). TVM: none, ONNX: HardSwish.
    """

    name = "hard_swish"
    examples = float_examples(-5.0, 5.0)

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Follow the class's formula."""
        return x * maximum(minimum(x * (1.0 / 6.0) + 0.5, 1.0), 0.0)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """Follow the class's formula."""
        return np.asarray(x * np.clip(x / 6 + 0.5, 0, 1))


class Silu(Unary[AlphaAttrs]):
    """``x * sigmoid(alpha * x)``; with alpha other than 1 also called Swish.

    -inf gives NaN (it is ``-inf * 0``). TVM: relax.nn.silu, ONNX: Swish.
    """

    name = "silu"
    Attrs = AlphaAttrs
    dtypes = FLOATS
    examples = (*float_examples(-5.0, 5.0), *float_examples(attrs=AlphaAttrs(1.702)))
    bad_examples = NOT_FLOAT

    def scalar(self, x: Expr, attrs: AlphaAttrs) -> Expr:
        """Follow the class's formula."""
        return x * call(Intrinsic.SIGMOID, x if attrs.alpha == 1.0 else x * attrs.alpha)

    def numpy(self, x: Array, attrs: AlphaAttrs) -> Array:
        """Follow the class's formula."""
        return np.asarray(x * sigmoid(attrs.alpha * x))


def softplus(x: Expr) -> Expr:
    """``log(1 + e ** x)`` without overflow: the exponent is never positive."""
    return maximum(x, 0.0) + call(Intrinsic.LOG1P, call(Intrinsic.EXP, -call(Intrinsic.ABS, x)))


class Softplus(FloatUnary):
    """``log(1 + e ** x)``, computed without overflow.

    0 for -inf, inf for inf, NaN for NaN. TVM: relax.nn.softplus, ONNX: Softplus.
    """

    name = "softplus"
    rising = True
    examples = float_examples(-30.0, 30.0)

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Stable form."""
        return softplus(x)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """np.logaddexp."""
        return np.asarray(np.logaddexp(x.dtype.type(0), x))


class Softsign(FloatUnary):
    """``x / (1 + |x|)``.

    NaN at the infinities (inf / inf), as the formula says. TVM: none, ONNX: Softsign.
    """

    name = "softsign"

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Follow the class's formula."""
        return x / (call(Intrinsic.ABS, x) + 1.0)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """Follow the class's formula."""
        return np.asarray(x / (1 + np.abs(x)))


class Mish(FloatUnary):
    """``x * tanh(softplus(x))``.

    -inf gives NaN (it is ``-inf * 0``). TVM: none, ONNX: Mish.
    """

    name = "mish"
    examples = float_examples(-5.0, 5.0)

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Follow the class's formula."""
        return x * call(Intrinsic.TANH, softplus(x))

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """Follow the class's formula."""
        return np.asarray(x * np.tanh(np.logaddexp(x.dtype.type(0), x)))


ACTIVATION: Final = (
    Tanh(),
    Sigmoid(),
    Gelu(),
    HardSigmoid(),
    HardSwish(),
    Silu(),
    Softplus(),
    Softsign(),
    Mish(),
)
