"""Normalisations of images and signals by channel: batch, group, instance, and local response.

The layout is (N, C, ...): channels on axis 1, then any number of spatial axes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, Constant
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.expr import const as constant
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.binary import Add, Multiply
from relaxir.ops.common import FLOATS, check_dtype, check_same_dtype, compute_dtype, load_wide, tensors_of, widen
from relaxir.ops.kernels import emit_op
from relaxir.ops.norm import affine, row_inverse, row_square
from relaxir.ops.reduce import Rows, count_expr
from relaxir.ops.reduce_norm import row_mean
from relaxir.sym import DimLike, floordiv, mod
from relaxir.tir import (
    BinOp,
    Combine,
    Expr,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    as_expr,
    binary,
    call,
    cast,
    const,
    select,
)


def channel_operands(ctx: InferCtx, args: tuple[Type, ...], params: tuple[Param, ...], axis: int) -> TensorType:
    """Check a float tensor with its per-channel vectors, and return the tensor's type."""
    names = tuple(p.name for p in params)[: max(len(args), sum(not p.optional for p in params))]
    tensors = tensors_of(ctx, args, names)
    x = tensors[0]
    check_dtype(ctx, x, "x", FLOATS)
    check_same_dtype(ctx, tensors, names)
    channel = ctx.axis(axis, x.rank)
    for vector, name in zip(tensors[1:], names[1:], strict=True):
        if vector.rank != 1:
            ctx.fail(f"{name} must have rank 1, got {vector.rank}", code="rank-mismatch")
        ctx.require_equal(vector.shape[0], x.shape[channel], f"axis 0 of {name} and axis {channel} of x")
    return x


@dataclass(frozen=True, slots=True)
class BatchNormAttrs(Attrs):
    """Attributes of `BatchNorm`."""

    epsilon: float = 1e-5
    axis: int = 1
    """The channel axis."""


class BatchNorm(Op[BatchNormAttrs]):
    """``(x - mean) / sqrt(variance + epsilon) * scale + bias`` with given statistics of each channel (inference).

    Computed as ``x * w + b`` with ``w = scale / sqrt(variance + epsilon)`` and ``b = bias - mean * w``, once a channel.
    TVM: relax.nn.batch_norm (training=False), ONNX: BatchNormalization.
    """

    name = "batch_norm"
    params = (
        Param("x", "rank 1 or more"),
        Param("scale", "(C,)"),
        Param("bias", "(C,)"),
        Param("mean", "(C,)"),
        Param("variance", "(C,), not negative"),
    )
    Attrs = BatchNormAttrs
    kind = OpKind.OPAQUE
    examples = (
        Example(("f32[n, 3, h, 2]", *("f32[3]",) * 4), "f32[n, 3, h, 2]", BatchNormAttrs(), low=0.1, high=2.0),
        Example(("f64[n, c]", *("f64[c]",) * 4), "f64[n, c]", BatchNormAttrs(1e-3), low=0.1, high=2.0),
        Example(("f16[n, 2, c]", *("f16[c]",) * 4), "f16[n, 2, c]", BatchNormAttrs(axis=-1), low=0.1, high=2.0),
    )
    bad_examples = (
        BadExample(
            ("f32[n, 3]", "f32[3]", "f32[4]", "f32[3]", "f32[3]"),
            "shape-mismatch",
            "axis 0 of bias and axis 1 of x: `4` is not `3`",
            BatchNormAttrs(),
        ),
        BadExample(("f32[n, 3]", "f32[3]"), "arity", "operand 2 bias is missing", BatchNormAttrs()),
    )

    def infer(self, args: tuple[Type, ...], attrs: BatchNormAttrs, ctx: InferCtx) -> Type:
        """Type of the operand."""
        return channel_operands(ctx, args, self.params, attrs.axis)

    def lower(self, args: tuple[TensorType, ...], attrs: BatchNormAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Two stages over the channels, one over the elements."""
        f = ProgramBuilder(self.name)
        x, scale, bias, mean, variance = (
            f.input(p.name, t.shape, t.dtype) for p, t in zip(self.params, args, strict=True)
        )
        y = f.output("y", out[0].shape, out[0].dtype)
        wide, axis = compute_dtype(x.dtype), attrs.axis % args[0].rank
        w, b = (f.temp(n, scale.shape, wide) for n in ("w", "b"))
        f.compute(w, lambda *c: load_wide(scale, c) * call(Intrinsic.RSQRT, load_wide(variance, c) + attrs.epsilon))
        f.compute(b, lambda *c: load_wide(bias, c) - load_wide(mean, c) * w[c])
        f.compute(y, lambda *i: cast(load_wide(x, i) * w[i[axis]] + b[i[axis]], y.dtype))
        return f.build()

    def decompose(self, args: tuple[GraphExpr, ...], attrs: BatchNormAttrs, bb: BlockBuilder) -> GraphExpr | None:
        """With constant statistics: ``x * w + b``, w and b constants that a convolution before may take in."""
        x, *vectors = args
        if not all(isinstance(v, Constant) for v in vectors) or not isinstance(x.type, TensorType):
            return None
        scale, bias, mean, variance = (np.asarray(v.data, np.float64) for v in vectors if isinstance(v, Constant))
        if x.type.dtype not in ("float32", "float64"):  # narrow weights would round twice
            return None
        w = scale / np.sqrt(variance + attrs.epsilon)
        shape = [1] * x.type.rank
        shape[attrs.axis] = -1
        slope, shift = (constant(v.reshape(shape), x.type.dtype) for v in (w, bias - mean * w))
        return emit_op(bb, Add(), emit_op(bb, Multiply(), x, slope), shift)

    def reference(self, args: tuple[Array, ...], attrs: BatchNormAttrs) -> Array:
        """By the definition."""
        x, *vectors = (widen(a) for a in args)
        shape = [1] * x.ndim
        shape[attrs.axis] = -1
        scale, bias, mean, variance = (v.reshape(shape) for v in vectors)
        y = (x - mean) / np.sqrt(variance + x.dtype.type(attrs.epsilon)) * scale + bias
        return np.asarray(y).astype(args[0].dtype)


@dataclass(frozen=True, slots=True)
class EpsilonAttrs(Attrs):
    """Attributes of `InstanceNorm`."""

    epsilon: float = 1e-5


SCALE: Final = Param("scale", "(C,)", optional=True)
BIAS: Final = Param("bias", "(C,)", optional=True)


class InstanceNorm(Op[EpsilonAttrs]):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` with statistics over the spatial axes of each (n, c).

    TVM: relax.nn.instance_norm, ONNX: InstanceNormalization.
    """

    name = "instance_norm"
    params = (Param("x", "(N, C, ...), rank 2 or more"), SCALE, BIAS)
    Attrs = EpsilonAttrs
    kind = OpKind.OPAQUE
    examples = (
        Example(("f32[n, 3, h, 4]", "f32[3]", "f32[3]"), "f32[n, 3, h, 4]", EpsilonAttrs(1e-2)),
        Example(("f64[n, c, m]",), "f64[n, c, m]", EpsilonAttrs(1e-2)),
        Example(("f16[n, c, 4]", "f16[c]"), "f16[n, c, 4]", EpsilonAttrs(1e-2)),
    )
    bad_examples = (
        BadExample(("f32[n]",), "rank-mismatch", "x must have rank 2 or more, got 1", EpsilonAttrs()),
        BadExample(("f32[n, 3, 4]", "f32[4]"), "shape-mismatch", "axis 0 of scale and axis 1 of x", EpsilonAttrs()),
    )

    def infer(self, args: tuple[Type, ...], attrs: EpsilonAttrs, ctx: InferCtx) -> Type:
        """Type of the operand."""
        need_channels(ctx, args)
        return channel_operands(ctx, args, self.params, 1)

    def lower(self, args: tuple[TensorType, ...], attrs: EpsilonAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Row statistics, then a stage over the elements."""
        f = ProgramBuilder(self.name)
        x, *weights = (f.input(p.name, t.shape, t.dtype) for p, t in zip(self.params, args, strict=False))
        y = f.output("y", out[0].shape, out[0].dtype)
        rows = Rows(x.shape, tuple(range(2, len(x.shape))))
        mean = row_mean(f, x, rows)
        inverse = row_inverse(f, row_square(f, x, rows, mean), rows, attrs.epsilon)

        def value(*i: Expr) -> Expr:
            v = (load_wide(x, i) - mean[i[:2]]) * inverse[i[:2]]
            return cast(affine(v, i[1:2], weights), y.dtype)

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: EpsilonAttrs) -> Array:
        """One group for every channel."""
        return group_reference(args, args[0].shape[1], attrs.epsilon)


def need_channels(ctx: InferCtx, args: tuple[Type, ...]) -> TensorType:
    """Operand 0 as a tensor with a batch and a channel axis."""
    x = ctx.tensor(args, 0, "x")
    if x.rank < 2:
        ctx.fail(f"x must have rank 2 or more, got {x.rank}", code="rank-mismatch")
    return x


def group_reference(args: tuple[Array, ...], groups: int, epsilon: float) -> Array:
    """Group normalisation in NumPy, with per-channel weights where given."""
    x, *weights = (widen(a) for a in args)
    n, c = x.shape[:2]
    inner = (c // groups if groups else 0) * int(np.prod(x.shape[2:]))
    g = x.reshape(n, groups, inner)
    d = g - np.sum(g, 2, keepdims=True) / x.dtype.type(inner)
    variance = np.sum(d * d, 2, keepdims=True) / x.dtype.type(inner)
    y = (d / np.sqrt(variance + x.dtype.type(epsilon))).reshape(x.shape)
    for k, weight in enumerate(weights):
        w = weight.reshape(c, *(1,) * (x.ndim - 2))
        y = y + w if k else y * w
    return np.asarray(y).astype(args[0].dtype)


@dataclass(frozen=True, slots=True)
class GroupNormAttrs(Attrs):
    """Attributes of `GroupNorm`."""

    num_groups: int
    """Must divide the number of channels."""
    epsilon: float = 1e-5


class GroupNorm(Op[Any]):
    """``(x - mean) / sqrt(var + epsilon) * scale + bias`` with statistics over groups of adjacent channels.

    Each of ``num_groups`` groups spans C / num_groups channels and all spatial axes. A symbolic number of channels is
    checked at run time to be a multiple. TVM: relax.nn.group_norm, ONNX: GroupNormalization.
    """

    name = "group_norm"
    params = (Param("x", "(N, C, ...), rank 2 or more"), SCALE, BIAS)
    Attrs = GroupNormAttrs
    kind = OpKind.OPAQUE
    examples = (
        Example(("f32[n, 6, h, 2]", "f32[6]", "f32[6]"), "f32[n, 6, h, 2]", GroupNormAttrs(3, 1e-2)),
        Example(("f64[n, 2 * c, m]", "f64[2 * c]"), "f64[n, 2 * c, m]", GroupNormAttrs(2, 1e-2)),
        Example(("f16[n, c, 5]",), "f16[n, c, 5]", GroupNormAttrs(2, 1e-2), sizes={"c": 4}),
    )
    bad_examples = (
        BadExample(("f32[n, 6]",), "shape-mismatch", "the channels of x must be a multiple of 4", GroupNormAttrs(4)),
        BadExample(("f32[n]",), "rank-mismatch", "x must have rank 2 or more, got 1", GroupNormAttrs(1)),
        BadExample(("f32[n, 6]",), "attribute", "num_groups must be at least 1, got 0", GroupNormAttrs(0)),
    )

    def infer(self, args: tuple[Type, ...], attrs: GroupNormAttrs, ctx: InferCtx) -> Type:
        """Type of the operand."""
        if attrs.num_groups < 1:
            ctx.fail(f"num_groups must be at least 1, got {attrs.num_groups}", code="attribute")
        x = need_channels(ctx, args)
        rest = mod(x.shape[1], attrs.num_groups)
        ctx.require_equal(rest, 0, f"the channels of x must be a multiple of {attrs.num_groups}, the remainder")
        return channel_operands(ctx, args, self.params, 1)

    def lower(self, args: tuple[TensorType, ...], attrs: GroupNormAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Group statistics, then a stage over the elements."""
        f = ProgramBuilder(self.name)
        x, *weights = (f.input(p.name, t.shape, t.dtype) for p, t in zip(self.params, args, strict=False))
        y = f.output("y", out[0].shape, out[0].dtype)
        wide = compute_dtype(x.dtype)
        width: DimLike = floordiv(x.shape[1], attrs.num_groups)
        rows = Rows((x.shape[0], attrs.num_groups, width, *x.shape[2:]), tuple(range(2, len(x.shape) + 1)))
        total, mean, square = (f.temp(n, rows.outer, wide) for n in ("mean_sum", "mean", "square"))

        def load(i: tuple[Expr, ...]) -> Expr:
            return load_wide(x, (i[0], i[1] * as_expr(width) + i[2], *i[3:]))

        def distance(*i: Expr) -> Expr:
            d = load(i) - mean[i[:2]]
            return d * d

        f.reduce(total, rows.inner, Combine.SUM, lambda *i: load(i))
        f.compute(mean, lambda *i: total[i] / count_expr(rows.count, wide))
        f.reduce(square, rows.inner, Combine.SUM, distance)
        inverse = row_inverse(f, square, rows, attrs.epsilon)

        def value(*i: Expr) -> Expr:
            row = (i[0], binary(BinOp.FLOORDIV, i[1], as_expr(width)))
            return cast(affine((load_wide(x, i) - mean[row]) * inverse[row], i[1:2], weights), y.dtype)

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: GroupNormAttrs) -> Array:
        """By the definition, on a view split into groups."""
        return group_reference(args, attrs.num_groups, attrs.epsilon)


@dataclass(frozen=True, slots=True)
class LrnAttrs(Attrs):
    """Attributes of `Lrn`."""

    size: int
    """Channels in the window."""
    alpha: float = 1e-4
    beta: float = 0.75
    bias: float = 1.0


class Lrn(Op[Any]):
    """Local response normalisation: ``x / (bias + alpha / size * s) ** beta``, s the sum of squares of near channels.

    The window of channel c is ``c - (size - 1) // 2 ... c + size // 2``, cut at the ends. TVM: none, ONNX: LRN.
    """

    name = "lrn"
    params = (Param("x", "(N, C, ...), rank 2 or more"),)
    Attrs = LrnAttrs
    kind = OpKind.OPAQUE
    examples = (
        Example(("f32[n, 5, h]",), "f32[n, 5, h]", LrnAttrs(3, 0.1, 0.7, 0.9)),
        Example(("f64[n, c]",), "f64[n, c]", LrnAttrs(4, 0.1)),
        Example(("f16[2, c, 2]",), "f16[2, c, 2]", LrnAttrs(1)),
    )
    bad_examples = (
        BadExample(("f32[n]",), "rank-mismatch", "x must have rank 2 or more, got 1", LrnAttrs(3)),
        BadExample(("f32[n, 4]",), "attribute", "size must be at least 1, got 0", LrnAttrs(0)),
        BadExample(("i32[n, 4]",), "dtype-mismatch", "x must be one of", LrnAttrs(3)),
    )

    def infer(self, args: tuple[Type, ...], attrs: LrnAttrs, ctx: InferCtx) -> Type:
        """Type of the operand."""
        if attrs.size < 1:
            ctx.fail(f"size must be at least 1, got {attrs.size}", code="attribute")
        x = need_channels(ctx, args)
        check_dtype(ctx, x, "x", FLOATS)
        return x

    def lower(self, args: tuple[TensorType, ...], attrs: LrnAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Window sums with guarded loads, then a stage over the elements."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        y = f.output("y", out[0].shape, out[0].dtype)
        wide = compute_dtype(x.dtype)
        total = f.temp("total", x.shape, wide)

        def square(*i: Expr) -> Expr:
            channel = i[1] + i[-1] - (attrs.size - 1) // 2
            inside = binary(BinOp.AND, channel >= 0, channel < as_expr(x.shape[1]))
            v = select(inside, load_wide(x, (i[0], channel, *i[2:-1])), const(0, wide))
            return v * v

        f.reduce(total, (attrs.size,), Combine.SUM, square)

        def value(*i: Expr) -> Expr:
            base = total[i] * (attrs.alpha / attrs.size) + attrs.bias
            return cast(load_wide(x, i) / binary(BinOp.POW, base, attrs.beta), y.dtype)

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: LrnAttrs) -> Array:
        """By the definition, on padded squares."""
        x = widen(args[0])
        low = (attrs.size - 1) // 2
        padded = np.pad(x * x, [(0, 0), (low, attrs.size - 1 - low), *[(0, 0)] * (x.ndim - 2)])
        total = np.sum([padded[:, k : k + x.shape[1]] for k in range(attrs.size)], 0)
        base = x.dtype.type(attrs.bias) + x.dtype.type(attrs.alpha / attrs.size) * total
        return np.asarray(x / base**attrs.beta).astype(args[0].dtype)


CHANNEL_NORM: Final = (
    BatchNorm(),
    InstanceNorm(),
    GroupNorm(),
    Lrn(),
)
