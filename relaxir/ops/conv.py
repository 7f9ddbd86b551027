"""Convolution over one to three (or more) spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import NUMERIC, check_dtype, check_same_dtype, compute_dtype, load_wide, tensors_of, widen
from relaxir.ops.kernels import input_of, output_of
from relaxir.ops.windows import AutoPad, check_windows, taps, window_counts, windows_of
from relaxir.sym import DimLike, floordiv, mod, mul
from relaxir.tir import Buffer, Combine, Expr, PrimFunc, ProgramBuilder, cast, const, select


@dataclass(frozen=True, slots=True)
class ConvAttrs(Attrs):
    """Attributes of convolutions; empty tuples are the defaults, one value serves every spatial axis."""

    strides: tuple[int, ...] = ()
    """Distance of neighbouring windows."""
    padding: tuple[DimLike, ...] = ()
    """Zeros around x: one for all sides, one per axis, or all begins and then all ends."""
    dilations: tuple[int, ...] = ()
    """Distance of neighbouring taps of the kernel."""
    groups: int = 1
    """Channels are split into this many independent groups."""
    auto_pad: AutoPad = "NOTSET"
    """NOTSET uses ``padding``; SAME_* give ``ceil(extent / stride)`` windows, with an odd zero at the end (UPPER)
    or at the begin (LOWER); VALID pads nothing."""


CONV_PARAMS: Final = (
    Param("x", "(batch, channels, *spatial)", NUMERIC),
    Param("weight", "(out channels, channels / groups, *kernel)", NUMERIC),
    Param("bias", "(out channels,)", NUMERIC, optional=True),
)


def conv_operands(ctx: InferCtx, args: Sequence[Type]) -> tuple[TensorType, TensorType]:
    """Return x and the weight, of one dtype and rank."""
    x, w = tensors_of(ctx, args[:2], ("x", "weight"))
    check_dtype(ctx, x, "x", NUMERIC)
    check_same_dtype(ctx, (x, w), ("x", "weight"))
    if x.rank != w.rank:
        ctx.fail(f"x has rank {x.rank} but weight has rank {w.rank}", code="rank-mismatch")
    if x.rank < 2:
        ctx.fail(f"x has rank {x.rank}, expected (batch, channels, *spatial)", code="rank-mismatch")
    return x, w


def check_groups(ctx: InferCtx, groups: int, channels: DimLike, what: str) -> None:
    """Raise unless the groups divide a number of channels."""
    if groups < 1:
        ctx.fail(f"groups must be at least 1, got {groups}", code="attribute")
    ctx.require_equal(mod(channels, groups), 0, f"{what} modulo groups {groups}")


def check_bias(ctx: InferCtx, args: Sequence[Type], x: TensorType, channels: DimLike) -> None:
    """Raise unless an optional third operand is one value per output channel."""
    if len(args) < 3:
        return
    bias = ctx.tensor(args, 2, "bias")
    check_same_dtype(ctx, (x, bias), ("x", "bias"))
    if bias.rank != 1:
        ctx.fail(f"bias has rank {bias.rank}, expected 1", code="rank-mismatch")
    ctx.require_equal(bias.shape[0], channels, "axis 0 of bias and the output channels")


def conjunction(conditions: Sequence[Expr]) -> Expr | None:
    """All of the conditions; None for none of them."""
    whole: Expr | None = None
    for c in conditions:
        whole = c if whole is None else whole & c
    return whole


def guarded(conditions: Sequence[Expr], value: Expr, other: Expr) -> Expr:
    """``value`` where all conditions hold; no select where there are none."""
    cond = conjunction(conditions)
    return value if cond is None else select(cond, value, other)


def finish(f: ProgramBuilder, total: Buffer, bias: Buffer | None, y: Buffer, split: DimLike | None) -> None:
    """Emit the stage after the contraction: bias, rounding, joining (group, channel) of ``total`` into channels."""
    if total is y:
        return

    def value(*i: Expr) -> Expr:
        at = i if split is None else (i[0], i[1] // split, i[1] % split, *i[2:])
        acc = total[at]
        return cast(acc if bias is None else acc + load_wide(bias, (i[1],)), y.dtype)

    f.compute(y, value)


class Conv(Op[ConvAttrs]):
    """Convolution (cross-correlation) over any number of spatial axes.

    ``y[n, o, p...] = bias[o] + sum over c, k... of x[n, c, p * stride + k * dilation - pad] * weight[o, c, k...]``,
    x being zero outside. With groups, output channel ``o`` reads the ``channels / groups`` channels of group ``o //
    (out channels / groups)``. Windows along an axis: ``(extent + pads - ((kernel - 1) * dilation + 1)) // stride +
    1``; the kernel must fit (checked at run time where unknown). Extents, pads and channels may be symbolic; pads
    of SAME_* are expressions of the extents. 16-bit floats accumulate in float32; integers wrap. TVM:
    relax.nn.conv1d, relax.nn.conv2d, relax.nn.conv3d, ONNX: Conv.
    """

    name = "conv"
    params = CONV_PARAMS
    Attrs = ConvAttrs
    kind = OpKind.OUT_FUSABLE
    examples = (
        Example(("f32[n, 3, h, w]", "f32[4, 3, 3, 3]"), "f32[n, 4, h - 2, w - 2]", min_size=3, sizes={"n": 1, "w": 5}),
        Example(
            ("f32[2, c, 5, w]", "f32[o, c, 3, 3]", "f32[o]"),
            "f32[2, o, 3, (w + 1) // 2]",
            ConvAttrs((2, 2), (1, 1)),
            min_size=1,
            sizes={"w": 6, "c": 3, "o": 2},
        ),
        Example(
            ("f32[1, 4, h, 5]", "f32[4, 1, 3, 2]", "f32[4]"),
            "f32[1, 4, h, 4]",
            ConvAttrs(padding=(1, 0, 1, 0), groups=4),
            min_size=1,
        ),
        Example(("f32[1, 4, h, 4]", "f32[6, 2, 1, 3]"), "f32[1, 6, h, 2]", ConvAttrs(groups=2)),
        Example(
            ("f32[1, 2, h, w]", "f32[3, 2, 3, 2]", "f32[3]"),
            "f32[1, 3, ceildiv(h, 2), w]",
            ConvAttrs((2, 1), auto_pad="SAME_UPPER"),
            sizes={"w": 4},
        ),
        Example(
            ("f64[1, 2, h, 6]", "f64[2, 2, 2, 3]"),
            "f64[1, 2, ceildiv(h, 3), 6]",
            ConvAttrs((3, 1), (), (2, 2), auto_pad="SAME_LOWER"),
        ),
        Example(("f16[n, 2, 9]", "f16[3, 2, 3]", "f16[3]"), "f16[n, 3, 5]", ConvAttrs(dilations=(2,))),
        Example(("bf16[1, 2, n]", "bf16[2, 2, 1]"), "bf16[1, 2, (n + 1) // 2]", ConvAttrs((2,)), min_size=1),
        Example(
            ("f32[1, 2, 3, d, 4]", "f32[2, 1, 2, 2, 2]"),
            "f32[1, 2, 4, d + 1, 5]",
            ConvAttrs((), (1,), groups=2),
            min_size=1,
        ),
        Example(("i32[n, 2, 5]", "i32[3, 2, k]"), "i32[n, 3, 6 - k]", min_size=1, sizes={"k": 4}),
        Example(("f32[0, 2, 5]", "f32[3, 2, 2]"), "f32[0, 3, 4]", ConvAttrs(auto_pad="VALID")),
    )
    bad_examples = (
        BadExample(("f32[n, 3, 8, 8]", "f32[4, 2, 3, 3]"), "shape-mismatch", "channels of x", ConvAttrs()),
        BadExample(
            ("f32[n, 3, 2, 8]", "f32[4, 3, 3, 3]"), "shape-mismatch", "kernel along spatial axis 0", ConvAttrs()
        ),
        BadExample(("f32[n, 3, 8]", "f32[4, 3, 3, 3]"), "rank-mismatch", "x has rank 3", ConvAttrs()),
        BadExample(("f32[n, 3]", "f32[4, 3]"), "rank-mismatch", "spatial axis", ConvAttrs()),
        BadExample(("f32[1, 3, 8]", "f32[4, 3, 3]"), "attribute", "strides", ConvAttrs((1, 2))),
        BadExample(("f32[1, 3, 8]", "f32[4, 3, 3]"), "attribute", "padding", ConvAttrs(padding=(-1,))),
        BadExample(("f32[1, 4, 8]", "f32[3, 2, 3]"), "shape-mismatch", "groups 2", ConvAttrs(groups=2)),
        BadExample(("f32[1, 4, 8]", "f32[3, 4, 3]", "f32[4]"), "shape-mismatch", "axis 0 of bias", ConvAttrs()),
        BadExample(("f32[1, 4, 8]", "f64[3, 4, 3]"), "dtype-mismatch", "x is float32", ConvAttrs()),
    )

    def infer(self, args: tuple[Type, ...], attrs: ConvAttrs, ctx: InferCtx) -> Type:
        """Batch, output channels, windows."""
        x, w = conv_operands(ctx, args)
        check_windows(ctx, attrs, x.rank - 2)
        check_groups(ctx, attrs.groups, w.shape[0], "axis 0 of weight")
        ctx.require_equal(x.shape[1], mul(w.shape[1], attrs.groups), "channels of x and axis 1 of weight times groups")
        check_bias(ctx, args, x, w.shape[0])
        counts = window_counts(ctx, attrs, windows_of(attrs, x.shape[2:], w.shape[2:]))
        return TensorType((x.shape[0], w.shape[0], *counts), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: ConvAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One contraction block whose left factor is a guarded load of x, then bias and rounding.

        Groups of several channels are an axis of their own in the contraction, so that all indices stay affine.
        """
        f = ProgramBuilder(self.name)
        x, w = input_of(f, "x", args[0]), input_of(f, "weight", args[1])
        bias = input_of(f, "bias", args[2]) if len(args) > 2 else None
        y = output_of(f, "y", out[0])
        windows = windows_of(attrs, x.shape[2:], w.shape[2:])
        wide, rank = compute_dtype(y.dtype), len(windows)
        depthwise = attrs.groups == w.shape[0] and w.shape[1] == 1
        split = None if attrs.groups == 1 or depthwise else floordiv(w.shape[0], attrs.groups)
        shape = y.shape if split is None else (y.shape[0], attrs.groups, split, *y.shape[2:])
        total = y if wide == y.dtype and bias is None and split is None else f.temp("total", shape, wide)

        def product(*i: Expr) -> Expr:
            points, c, k = i[-2 * rank - 1 : -rank - 1], i[-rank - 1], i[-rank:]
            if split is None:
                source, o = (i[1] if depthwise else c), i[1]
            else:
                source, o = i[1] * w.shape[1] + c, i[1] * split + i[2]
            at = tuple(window.place(p, t) for window, p, t in zip(windows, points, k, strict=True))
            inside = tuple(g for window, v in zip(windows, at, strict=True) for g in window.guard(v))
            return guarded(inside, load_wide(x, (i[0], source, *at)), const(0, wide)) * load_wide(w, (o, c, *k))

        f.reduce(total, w.shape[1:], Combine.SUM, product)
        finish(f, total, bias, y, split)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ConvAttrs) -> Array:
        """Sum over the taps of the kernel; floats accumulate in double."""
        x, w = (a.astype(np.float64) if a.dtype.kind == "f" else a for a in args[:2])
        g = attrs.groups
        weight = w.reshape(g, w.shape[0] // g, *w.shape[1:])
        total: Any = 0
        for tap, part in taps(x, attrs, w.shape[2:], 0):
            grouped = part.reshape(part.shape[0], g, w.shape[1], *part.shape[2:])
            total = total + np.einsum("ngc...,goc->ngo...", grouped, np.moveaxis(weight, (0, 1, 2), (-3, -2, -1))[tap])
        total = total.reshape(x.shape[0], w.shape[0], *total.shape[3:])
        if len(args) > 2:
            total = total + widen(args[2]).reshape(-1, *(1,) * (x.ndim - 2))
        return np.asarray(total).astype(args[0].dtype)


CONV: Final = (Conv(),)
