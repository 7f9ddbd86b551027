"""Layer, RMS and mean-variance normalisation: statistics of rows over any axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import FLOATS, check_dtype, check_same_dtype, compute_dtype, load_wide, tensors_of, widen
from relaxir.ops.reduce import Rows, count_expr, known_axes, reduced_axes
from relaxir.ops.reduce_norm import row_mean
from relaxir.tir import Buffer, Combine, Expr, Intrinsic, PrimFunc, ProgramBuilder, call, cast


@dataclass(frozen=True, slots=True)
class NormAttrs(Attrs):
    """Attributes of normalisations over axes."""

    axes: tuple[int, ...] = (-1,)
    """Axes that form a row, negative from the end."""
    epsilon: float = 1e-5
    """Added to the variance before the root."""


SCALE: Final = Param("scale", "shape of the normalised axes", optional=True)
BIAS: Final = Param("bias", "shape of the normalised axes", optional=True)
NORM_EXAMPLES: Final = (
    Example(("f32[n, m, 8]", "f32[8]", "f32[8]"), "f32[n, m, 8]", NormAttrs()),
    Example(("f64[n, m]", "f64[m]"), "f64[n, m]", NormAttrs(epsilon=1e-3)),
    Example(("f16[n, 4]",), "f16[n, 4]", NormAttrs()),
    Example(("f32[n, 3, m]", "f32[3, m]"), "f32[n, 3, m]", NormAttrs((-2, -1))),
    Example(("bf16[4, n]", "bf16[4]"), "bf16[4, n]", NormAttrs((0,))),
)


def row_square(f: ProgramBuilder, x: Buffer, rows: Rows, mean: Buffer | None) -> Buffer:
    """Emit the sum of squares (of the distances from ``mean``) of every row."""
    square = f.temp("square", rows.outer, compute_dtype(x.dtype))
    k = len(rows.outer)

    def term(*i: Expr) -> Expr:
        v = load_wide(x, rows.full(i))
        v = v if mean is None else v - mean[i[:k]]
        return v * v

    f.reduce(square, rows.inner, Combine.SUM, term)
    return square


def row_inverse(f: ProgramBuilder, square: Buffer, rows: Rows, epsilon: float) -> Buffer:
    """Emit ``1 / sqrt(square / count + epsilon)`` of every row."""
    inverse = f.temp("inverse", rows.outer, square.dtype)
    many = count_expr(rows.count, square.dtype)
    f.compute(inverse, lambda *i: call(Intrinsic.RSQRT, square[i] / many + epsilon))
    return inverse


def affine(v: Expr, at: tuple[Expr, ...], weights: Sequence[Buffer]) -> Expr:
    """``v * scale + bias`` with what is given of them."""
    for k, weight in enumerate(weights):
        w = load_wide(weight, at)
        v = v + w if k else v * w
    return v


class AxesNorm(Op[Any]):
    """Base of layer_norm and rms_norm: rows over ``axes``, weights shaped like a row."""

    Attrs = NormAttrs
    kind = OpKind.OPAQUE
    bad_examples = (
        BadExample(("f32[n, 4]", "f32[5]"), "shape-mismatch", "axis 0 of scale and axis 1 of x", NormAttrs()),
        BadExample(("f32[n, 4]", "f64[4]"), "dtype-mismatch", "x is float32 but scale is float64", NormAttrs()),
        BadExample(("f32[n, 4]", "f32[1, 4]"), "rank-mismatch", "scale must have rank 1, got 2", NormAttrs()),
        BadExample(("i32[n, 4]",), "dtype-mismatch", "x must be one of", NormAttrs()),
        BadExample(("f32[n]",), "axis-range", "axis 1 is out of range for rank 1", NormAttrs((1,))),
    )

    def infer(self, args: tuple[Type, ...], attrs: NormAttrs, ctx: InferCtx) -> Type:
        """Type of the operand."""
        names = tuple(p.name for p in self.params)[: max(1, len(args))]
        tensors = tensors_of(ctx, args, names)
        x = tensors[0]
        check_dtype(ctx, x, "x", FLOATS)
        check_same_dtype(ctx, tensors, names)
        axes = reduced_axes(ctx, attrs.axes, x.rank)
        for weight, name in zip(tensors[1:], names[1:], strict=True):
            if weight.rank != len(axes):
                ctx.fail(f"{name} must have rank {len(axes)}, got {weight.rank}", code="rank-mismatch")
            for k, axis in enumerate(axes):
                ctx.require_equal(weight.shape[k], x.shape[axis], f"axis {k} of {name} and axis {axis} of x")
        return x

    def centre(self, f: ProgramBuilder, x: Buffer, rows: Rows) -> Buffer | None:
        """Emit what is subtracted from every element of a row, or nothing."""
        return None

    def lower(self, args: tuple[TensorType, ...], attrs: NormAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Row statistics, then a stage over the elements."""
        f = ProgramBuilder(self.name)
        x, *weights = (f.input(p.name, t.shape, t.dtype) for p, t in zip(self.params, args, strict=False))
        y = f.output("y", out[0].shape, out[0].dtype)
        rows = Rows(x.shape, known_axes(attrs.axes, args[0].rank))
        mean = self.centre(f, x, rows)
        inverse = row_inverse(f, row_square(f, x, rows, mean), rows, attrs.epsilon)

        def value(*i: Expr) -> Expr:
            v, row = load_wide(x, i), rows.row(i)
            v = v if mean is None else v - mean[row]
            return cast(affine(v * inverse[row], rows.place(i), weights), y.dtype)

        f.compute(y, value)
        return f.build()

    def numpy_centre(self, x: Array, axes: tuple[int, ...]) -> Array:
        """Compute in NumPy what `centre` subtracts."""
        return np.zeros((), x.dtype)

    def reference(self, args: tuple[Array, ...], attrs: NormAttrs) -> Array:
        """By the definition."""
        x, *weights = (widen(a) for a in args)
        axes = known_axes(attrs.axes, x.ndim)
        count = x.dtype.type(np.prod([x.shape[a] for a in axes]))
        d = x - self.numpy_centre(x, axes)
        y = d / np.sqrt(np.sum(d * d, axes, keepdims=True) / count + x.dtype.type(attrs.epsilon))
        shape = tuple(n if a in axes else 1 for a, n in enumerate(x.shape))
        for k, weight in enumerate(weights):
            y = y + weight.reshape(shape) if k else y * weight.reshape(shape)
        return np.asarray(y).astype(args[0].dtype)


class LayerNorm(AxesNorm):
    """``(x - mean(x)) / sqrt(var(x) + epsilon) * scale + bias`` over the rows formed by ``axes``.

    The variance is the population's, in two passes; 16-bit floats are computed in float32. Scale and bias are optional
    and have the shape of the normalised axes. TVM: relax.nn.layer_norm, ONNX: LayerNormalization.
    """

    name = "layer_norm"
    params = (Param("x", "rank 1 or more"), SCALE, BIAS)
    examples = NORM_EXAMPLES

    def centre(self, f: ProgramBuilder, x: Buffer, rows: Rows) -> Buffer:
        """Row mean."""
        return row_mean(f, x, rows)

    def numpy_centre(self, x: Array, axes: tuple[int, ...]) -> Array:
        """Row mean."""
        return np.asarray(np.sum(x, axes, keepdims=True) / x.dtype.type(np.prod([x.shape[a] for a in axes])))


class RmsNorm(AxesNorm):
    """``x / sqrt(mean(x ** 2) + epsilon) * scale`` over the rows formed by ``axes``.

    16-bit floats are computed in float32. The scale is optional and has the shape of the normalised axes.
    TVM: relax.nn.rms_norm, ONNX: RMSNormalization.
    """

    name = "rms_norm"
    params = (Param("x", "rank 1 or more"), SCALE)
    examples = NORM_EXAMPLES[1:]


@dataclass(frozen=True, slots=True)
class MeanVarianceAttrs(Attrs):
    """Attributes of `MeanVarianceNormalization`."""

    axes: tuple[int, ...] = (0, 2, 3)


class MeanVarianceNormalization(Op[MeanVarianceAttrs]):
    """``(x - mean(x)) / (std(x) + 1e-9)`` over the rows formed by ``axes``.

    The deviation is the population's. TVM: none, ONNX: MeanVarianceNormalization.
    """

    name = "mean_variance_normalization"
    params = (Param("x", "any shape that has the axes"),)
    Attrs = MeanVarianceAttrs
    kind = OpKind.OPAQUE
    examples = (
        Example(("f32[n, 3, h, 2]",), "f32[n, 3, h, 2]", MeanVarianceAttrs(), rtol=1e-3, min_size=2),
        Example(("f64[n, m]",), "f64[n, m]", MeanVarianceAttrs((1,)), rtol=1e-6, min_size=2),
        Example(("f16[n, 4]",), "f16[n, 4]", MeanVarianceAttrs((-1,))),
    )
    bad_examples = (
        BadExample(("f32[n, 4]",), "axis-range", "axis 2 is out of range for rank 2", MeanVarianceAttrs()),
        BadExample(("i32[n]",), "dtype-mismatch", "x must be one of", MeanVarianceAttrs((0,))),
    )

    def infer(self, args: tuple[Type, ...], attrs: MeanVarianceAttrs, ctx: InferCtx) -> Type:
        """Type of the operand."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", FLOATS)
        reduced_axes(ctx, attrs.axes, x.rank)
        return x

    def lower(self, args: tuple[TensorType, ...], attrs: MeanVarianceAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Row statistics, then a stage over the elements."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        y = f.output("y", out[0].shape, out[0].dtype)
        rows = Rows(x.shape, known_axes(attrs.axes, args[0].rank))
        mean = row_mean(f, x, rows)
        square = row_square(f, x, rows, mean)
        scale = f.temp("scale", rows.outer, square.dtype)
        many = count_expr(rows.count, square.dtype)
        f.compute(scale, lambda *i: 1.0 / (call(Intrinsic.SQRT, square[i] / many) + 1e-9))
        f.compute(y, lambda *i: cast((load_wide(x, i) - mean[rows.row(i)]) * scale[rows.row(i)], y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: MeanVarianceAttrs) -> Array:
        """By the definition."""
        x = widen(args[0])
        axes = known_axes(attrs.axes, x.ndim)
        count = x.dtype.type(np.prod([x.shape[a] for a in axes]))
        d = x - np.sum(x, axes, keepdims=True) / count
        y = d / (np.sqrt(np.sum(d * d, axes, keepdims=True) / count) + x.dtype.type(1e-9))
        return np.asarray(y).astype(args[0].dtype)


NORM: Final = (
    LayerNorm(),
    RmsNorm(),
    MeanVarianceNormalization(),
)
