"""Rectifiers: activation functions that bend at one point, such as relu, elu and shrink."""

from __future__ import annotations

from dataclasses import dataclass
from math import inf
from typing import Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example
from relaxir.ops.common import FLOATS, NOT_FLOAT, NUMERIC, float_examples, rounded
from relaxir.ops.elementwise import Unary
from relaxir.tir import Expr, Intrinsic, call, maximum, minimum, select


class Relu(Unary[Attrs]):
    """``max(x, 0)``, on floats and integers.

    NaN gives NaN. TVM: relax.nn.relu, ONNX: Relu.
    """

    name = "relu"
    rising = True
    dtypes = NUMERIC
    examples = (*float_examples(), Example(("i8[n, 3]",), "i8[n, 3]"))
    bad_examples = (BadExample(("bool[n]",), "dtype-mismatch", "x must be one of"),)

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Maximum with 0."""
        return maximum(x, 0)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """np.maximum."""
        return np.asarray(np.maximum(x, x.dtype.type(0)))


@dataclass(frozen=True, slots=True)
class LeakyReluAttrs(Attrs):
    """Attributes of `LeakyRelu`."""

    alpha: float = 0.01


class LeakyRelu(Unary[LeakyReluAttrs]):
    """``x`` where ``x >= 0``, else ``alpha * x``.

    NaN gives NaN. TVM: relax.nn.leakyrelu, ONNX: LeakyRelu.
    """

    name = "leaky_relu"
    Attrs = LeakyReluAttrs
    dtypes = FLOATS
    examples = float_examples(attrs=LeakyReluAttrs(0.1))
    bad_examples = NOT_FLOAT

    def monotone(self, attrs: LeakyReluAttrs, dtype: str) -> int:
        """Rises for a positive alpha; 0 times -inf is NaN."""
        return int(0 < rounded(attrs.alpha, dtype) < inf)

    def scalar(self, x: Expr, attrs: LeakyReluAttrs) -> Expr:
        """Choice by sign."""
        return select(x < 0.0, x * attrs.alpha, x)

    def numpy(self, x: Array, attrs: LeakyReluAttrs) -> Array:
        """Choice by sign."""
        return np.where(x < 0, x * attrs.alpha, x)


@dataclass(frozen=True, slots=True)
class AlphaAttrs(Attrs):
    """One slope or scale."""

    alpha: float = 1.0


class Elu(Unary[AlphaAttrs]):
    """``x`` where ``x > 0``, else ``alpha * (e ** x - 1)``.

    -alpha for -inf, NaN for NaN. TVM: none, ONNX: Elu.
    """

    name = "elu"
    Attrs = AlphaAttrs
    dtypes = FLOATS
    examples = float_examples(attrs=AlphaAttrs(1.5))
    bad_examples = NOT_FLOAT

    def monotone(self, attrs: AlphaAttrs, dtype: str) -> int:
        """Rises unless alpha is negative."""
        return int(0 <= rounded(attrs.alpha, dtype) < inf)

    def scalar(self, x: Expr, attrs: AlphaAttrs) -> Expr:
        """Choice by sign."""
        return select(x > 0.0, x, call(Intrinsic.EXPM1, x) * attrs.alpha)

    def numpy(self, x: Array, attrs: AlphaAttrs) -> Array:
        """Choice by sign."""
        return np.where(x > 0, x, attrs.alpha * np.expm1(x))


class Celu(Unary[AlphaAttrs]):
    """``max(0, x) + min(0, alpha * (e ** (x / alpha) - 1))``, smooth at 0 for every alpha.

    -alpha for -inf, NaN for NaN. TVM: none, ONNX: Celu.
    """

    name = "celu"
    Attrs = AlphaAttrs
    dtypes = FLOATS
    examples = float_examples(attrs=AlphaAttrs(2.0))
    bad_examples = NOT_FLOAT

    def monotone(self, attrs: AlphaAttrs, dtype: str) -> int:
        """Rises for a positive alpha."""
        return int(0 < rounded(attrs.alpha, dtype) < inf)

    def scalar(self, x: Expr, attrs: AlphaAttrs) -> Expr:
        """Follow the class's formula."""
        return maximum(x, 0.0) + minimum(call(Intrinsic.EXPM1, x / attrs.alpha) * attrs.alpha, 0.0)

    def numpy(self, x: Array, attrs: AlphaAttrs) -> Array:
        """Follow the class's formula."""
        return np.asarray(np.maximum(x, 0) + np.minimum(attrs.alpha * np.expm1(x / attrs.alpha), 0))


@dataclass(frozen=True, slots=True)
class SeluAttrs(Attrs):
    """Attributes of `Selu`."""

    alpha: float = 1.6732632423543772
    gamma: float = 1.0507009873554805


class Selu(Unary[SeluAttrs]):
    """``gamma * x`` where ``x > 0``, else ``gamma * alpha * (e ** x - 1)``.

    The defaults keep mean 0 and variance 1. TVM: relax.nn.selu, ONNX: Selu.
    """

    name = "selu"
    Attrs = SeluAttrs
    dtypes = FLOATS
    examples = float_examples(attrs=SeluAttrs())
    bad_examples = NOT_FLOAT

    def monotone(self, attrs: SeluAttrs, dtype: str) -> int:
        """Rises for a positive gamma unless alpha is negative; 0 times infinity is NaN."""
        return int(0 <= rounded(attrs.alpha, dtype) < inf and 0 < rounded(attrs.gamma, dtype) < inf)

    def scalar(self, x: Expr, attrs: SeluAttrs) -> Expr:
        """Choice by sign."""
        return select(x > 0.0, x, call(Intrinsic.EXPM1, x) * attrs.alpha) * attrs.gamma

    def numpy(self, x: Array, attrs: SeluAttrs) -> Array:
        """Choice by sign."""
        return np.asarray(attrs.gamma * np.where(x > 0, x, attrs.alpha * np.expm1(x)))


class ThresholdedRelu(Unary[AlphaAttrs]):
    """``x`` where ``x > alpha``, else 0.

    NaN gives 0, since it is not above alpha. TVM: none, ONNX: ThresholdedRelu.
    """

    name = "thresholded_relu"
    Attrs = AlphaAttrs
    dtypes = FLOATS
    examples = float_examples(attrs=AlphaAttrs(0.5))
    bad_examples = NOT_FLOAT

    def scalar(self, x: Expr, attrs: AlphaAttrs) -> Expr:
        """Choice by threshold."""
        return select(x > attrs.alpha, x, 0.0)

    def numpy(self, x: Array, attrs: AlphaAttrs) -> Array:
        """Choice by threshold."""
        return np.where(x > attrs.alpha, x, 0)


@dataclass(frozen=True, slots=True)
class ShrinkAttrs(Attrs):
    """Attributes of `Shrink`."""

    bias: float = 0.0
    lambd: float = 0.5


class Shrink(Unary[ShrinkAttrs]):
    """``x + bias`` where ``x < -lambd``, ``x - bias`` where ``x > lambd``, else 0.

    Soft shrink has bias = lambd, hard shrink bias = 0. NaN gives 0. TVM: none, ONNX: Shrink.
    """

    name = "shrink"
    Attrs = ShrinkAttrs
    dtypes = FLOATS
    examples = float_examples(attrs=ShrinkAttrs(0.25, 0.5))
    bad_examples = NOT_FLOAT

    def scalar(self, x: Expr, attrs: ShrinkAttrs) -> Expr:
        """Choice of three."""
        return select(x < -attrs.lambd, x + attrs.bias, select(x > attrs.lambd, x - attrs.bias, 0.0))

    def numpy(self, x: Array, attrs: ShrinkAttrs) -> Array:
        """Choice of three."""
        return np.where(x < -attrs.lambd, x + attrs.bias, np.where(x > attrs.lambd, x - attrs.bias, 0))


RECTIFIER: Final = (
    Relu(),
    LeakyRelu(),
    Elu(),
    Celu(),
    Selu(),
    ThresholdedRelu(),
    Shrink(),
)
