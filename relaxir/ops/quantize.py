"""Between real numbers and the integers that stand for them: ``real = (integer - zero point) * scale``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import ClassVar, Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.attrs import DTypeName
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, TupleExpr
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.binary import Maximum, Minimum, Subtract
from relaxir.ops.common import check_dtype, check_same_dtype, load_wide, widen
from relaxir.ops.comparison import Equal
from relaxir.ops.division import Divide
from relaxir.ops.kernels import emit_op, input_of, output_of
from relaxir.ops.reduce import MinMax, ReduceAttrs
from relaxir.ops.select import Where
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, Proof, ceildiv, mul, sub
from relaxir.tir import (
    Buffer,
    Expr,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    bcast,
    call,
    cast,
    const,
    maximum,
    minimum,
)

QUANTISED: Final = ("int8", "uint8", "int16", "uint16")
SCALES: Final = ("float32", "float16", "bfloat16")
SPREAD: Final = ((0.25, 0.75, 1.25, 1.75, -0.25, -0.75, 1000.0, -1000.0), 0.5)
"""Ties of both signs and values beyond every 8-bit range, at scale one half."""


@dataclass(frozen=True, slots=True)
class ScaleAttrs(BaseAttrs):
    """Which elements share a scale. A scale of rank 0 or of one element serves them all."""

    axis: int = 1
    """Axis of a scale of rank 1: one for each of its positions."""
    block_size: int = 0
    """If not 0, the scale has the rank of x, and one element for so many neighbours along the axis."""


@dataclass(frozen=True, slots=True)
class QuantizeAttrs(ScaleAttrs):
    """Attributes of what gives integers."""

    dtype: DTypeName | Literal[""] = ""
    """Type of the result; empty: the zero point's, or uint8 if there is none."""


def check_scale(ctx: InferCtx, x: TensorType, scale: TensorType, name: str, attrs: ScaleAttrs) -> None:
    """Raise unless a scale (or zero point) fits x: one element, one per position of an axis, or one per block."""
    if scale.rank == 0 or (scale.shape == (1,) and not attrs.block_size):
        return
    axis = ctx.axis(attrs.axis, x.rank)
    if not attrs.block_size:
        if scale.rank != 1:
            ctx.fail(f"{name} has rank {scale.rank}, expected at most 1", code="rank-mismatch")
        one_or_all(ctx, scale.shape[0], x.shape[axis], f"axis 0 of {name} and axis {axis} of x")
        return
    if attrs.block_size < 0:
        ctx.fail(f"block_size must be at least 0, got {attrs.block_size}", code="attribute")
    if scale.rank != x.rank:
        ctx.fail(f"x has rank {x.rank} but {name} has rank {scale.rank}", code="rank-mismatch")
    for n, (have, extent) in enumerate(zip(scale.shape, x.shape, strict=True)):
        want = ceildiv(extent, attrs.block_size) if n == axis else extent
        ctx.require_equal(have, want, f"axis {n} of {name} and the blocks of x" if n == axis else f"axis {n} of {name}")


def one_or_all(ctx: InferCtx, have: DimLike, extent: DimLike, what: str) -> None:
    """Raise unless an extent is 1 or the given one; what is not known is checked at run time."""
    if ctx.facts.prove_equal(have, 1) is Proof.PROVED:
        return
    if ctx.facts.prove_equal(have, extent) is Proof.UNKNOWN:
        ctx.require_equal(mul(sub(have, 1), sub(have, extent)), 0, f"{what}, or 1")
    else:
        ctx.require_equal(have, extent, what)


def scale_at(scale: Buffer, index: Sequence[Expr], attrs: ScaleAttrs) -> tuple[Expr, ...]:
    """Indices of the scale (or zero point) of one element of x."""
    if not scale.shape or not index or scale.shape == (1,):
        return (const(0),) * len(scale.shape)
    if attrs.block_size:
        axis = attrs.axis % len(index)
        return tuple(i // attrs.block_size if n == axis else i for n, i in enumerate(index))
    return (bcast(index[attrs.axis % len(index)], scale.shape[0]),)


def spread(scale: Array, shape: Sequence[int], attrs: ScaleAttrs) -> Array:
    """For references: a scale or zero point that broadcasts with x."""
    if scale.ndim == 0 or (scale.shape == (1,) and not attrs.block_size):
        return scale.reshape(())
    axis = attrs.axis % len(shape)
    if attrs.block_size:
        return np.repeat(scale, attrs.block_size, axis).take(np.arange(shape[axis]), axis)
    return scale.reshape(tuple(-1 if n == axis else 1 for n in range(len(shape))))


def saturate(x: Expr, dtype: str, zero: Expr | None = None) -> Expr:
    """A whole float plus a zero point as a narrower integer; NaN counts as 0.

    The limits are applied to int32, before the zero point: one instruction a side, and no float that is too large.
    """
    limits = np.iinfo(info(dtype).numpy.name)
    low, high = const(limits.min, "int32"), const(limits.max, "int32")
    if zero is None:
        return cast(minimum(maximum(cast(x, "int32"), low), high), dtype)
    shift = cast(zero, "int32")
    return cast(minimum(maximum(cast(x, "int32"), low - shift), high - shift) + shift, dtype)


def saturated(x: Array, dtype: str, zero: Array | None = None) -> Array:
    """Array counterpart of `saturate`."""
    limits = np.iinfo(dtype)
    shift = np.int64(0) if zero is None else zero.astype(np.int64)
    whole = np.nan_to_num(np.clip(x.astype(np.float64), -(2.0**31), 2.0**31), nan=0.0).astype(np.int64)
    return np.asarray(np.clip(whole + shift, limits.min, limits.max)).astype(dtype)


class Quantizing(Op[QuantizeAttrs]):
    """Base of what turns numbers into integers by a scale and an optional zero point."""

    Attrs = QuantizeAttrs
    kind = OpKind.BROADCAST
    sources: ClassVar[tuple[str, ...]] = ()

    def infer(self, args: tuple[Type, ...], attrs: QuantizeAttrs, ctx: InferCtx) -> Type:
        """Shape of x."""
        x, scale = ctx.tensor(args, 0, "x"), ctx.tensor(args, 1, "scale")
        check_dtype(ctx, x, "x", self.sources)
        check_dtype(ctx, scale, "scale", SCALES)
        check_scale(ctx, x, scale, "scale", attrs)
        dtype = attrs.dtype
        if len(args) > 2:
            zero = ctx.tensor(args, 2, "zero_point")
            check_dtype(ctx, zero, "zero_point", (dtype,) if dtype else QUANTISED)
            check_scale(ctx, x, zero, "zero_point", attrs)
            dtype = zero.dtype
        dtype = dtype or "uint8"
        if dtype not in QUANTISED:
            ctx.fail(f"the result must be one of {', '.join(QUANTISED)}, got {dtype}", code="dtype-mismatch")
        return TensorType(x.shape, dtype)

    def scaled(self, x: Expr, scale: Expr) -> Expr:
        """The value in units of the result."""
        raise NotImplementedError

    def scaled_array(self, x: Array, scale: Array) -> Array:
        """Array counterpart of `scaled`."""
        raise NotImplementedError

    def lower(self, args: tuple[TensorType, ...], attrs: QuantizeAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One stage: scale, round, shift, saturate; in float32."""
        f = ProgramBuilder(self.name)
        x, scale = input_of(f, "x", args[0]), input_of(f, "scale", args[1])
        zero = input_of(f, "zero_point", args[2]) if len(args) > 2 else None
        y = output_of(f, "y", out[0])

        def value(*i: Expr) -> Expr:
            wide = cast(load_wide(x, i), "float32")
            whole = call(Intrinsic.ROUND, self.scaled(wide, load_wide(scale, scale_at(scale, i, attrs))))
            return saturate(whole, y.dtype, None if zero is None else zero.at(scale_at(zero, i, attrs)))

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: QuantizeAttrs) -> Array:
        """np.rint, then the zero point, then saturation."""
        x = widen(args[0]).astype(np.float32)
        whole = np.rint(self.scaled_array(x, spread(widen(args[1]), x.shape, attrs)))
        if len(args) < 3:
            return saturated(whole, attrs.dtype or "uint8")
        return saturated(whole, args[2].dtype.name, spread(args[2], x.shape, attrs))


def quantising_examples(source: str) -> tuple[Example, ...]:
    """Examples of every way to share a scale."""
    half = 0.5 if source == "f32" else 0.25
    wide = partial(Example, low=-90.0, high=90.0)
    first = (SPREAD[0], half) if source == "f32" else ((1, 3, 5, 7, -1, -3, 4000, -4000), half)
    return (
        Example((f"{source}[8]", "f32[]", "i8[]"), "i8[8]", values=(*first, 0)),
        Example((f"{source}[8]", "f32[]", "u8[]"), "u8[8]", values=(*first, 128)),
        Example((f"{source}[8]", "f32[1]"), "u8[8]", values=(first[0], (half,))),
        wide((f"{source}[n, 3, m]", "f32[3]", "i8[3]"), "i8[n, 3, m]", values=(None, (0.5, 1.5, 7.0), (1, -5, 0))),
        wide((f"{source}[2, n]", "f32[2]", "u16[]"), "u16[2, n]", QuantizeAttrs(0), values=(None, (0.5, 0.25), 300)),
        wide((f"{source}[n, 3]", "f32[]"), "i16[n, 3]", QuantizeAttrs(dtype="int16"), values=(None, 0.01)),
        wide(
            (f"{source}[2, 5]", "f32[2, 3]", "i8[2, 3]"),
            "i8[2, 5]",
            QuantizeAttrs(1, 2),
            values=(None, ((0.5, 1.0, 2.0), (4.0, 1.0, 0.25)), ((0, 1, 2), (3, -4, -5))),
        ),
    )


class QuantizeLinear(Quantizing):
    """``saturate(round(x / scale) + zero_point)``, ties to even, in float32.

    The zero point (default 0) has the scale's shape and the result's type. One scale for all, one per position of an
    axis, or one per block of neighbours. NaN counts as 0. TVM: relax.quantize, ONNX: QuantizeLinear.
    """

    name = "quantize_linear"
    sources = ("float32", "float16", "bfloat16", "int32")
    params = (
        Param("x", "any shape", sources),
        Param("scale", "one, per position of an axis, or per block", SCALES),
        Param("zero_point", "like scale", QUANTISED, optional=True),
    )
    examples = (
        *quantising_examples("f32"),
        Example(("f16[n, 2]", "f16[2]", "i8[2]"), "i8[n, 2]", values=(None, (0.5, 0.25), (0, 3))),
        Example(("i32[n]", "f32[]"), "u8[n]", values=(None, 3.0), low=-90, high=900),
        Example(("f32[3]", "f32[]", "u8[]"), "u8[3]", values=((float("nan"), float("inf"), float("-inf")), 1.0, 7)),
    )
    bad_examples = (
        BadExample(("f32[n, 4]", "f32[5]"), "shape-mismatch", "axis 0 of scale", QuantizeAttrs()),
        BadExample(("f32[n, 4]", "f32[2, 2]"), "rank-mismatch", "scale has rank 2", QuantizeAttrs()),
        BadExample(("f32[n, 4]", "f32[4]"), "rank-mismatch", "but scale has rank 1", QuantizeAttrs(1, 2)),
        BadExample(("f32[n]", "f32[n]"), "axis-range", "axis 1", QuantizeAttrs()),
        BadExample(("f32[n]", "f32[]"), "dtype-mismatch", "the result must be", QuantizeAttrs(dtype="int64")),
        BadExample(("f32[n]", "f32[]", "i32[]"), "dtype-mismatch", "zero_point must be", QuantizeAttrs()),
        BadExample(("i64[n]", "f32[]"), "dtype-mismatch", "x must be one of", QuantizeAttrs()),
    )

    def scaled(self, x: Expr, scale: Expr) -> Expr:
        """Divide: multiplying by the reciprocal would move ties."""
        return x / scale

    def scaled_array(self, x: Array, scale: Array) -> Array:
        """Divide."""
        return np.asarray(x / scale)


class Requantize(Quantizing):
    """``saturate(round(x * scale) + zero_point)`` of int32 sums, ties to even, in float32.

    What follows an integer product: ``scale`` is the product of the operands' scales over the result's. ``axis`` and
    ``block_size`` as of quantize_linear. TVM: relax.qdq (none of its own), ONNX: inside QLinearMatMul and QLinearConv.
    """

    name = "requantize"
    sources = ("int32",)
    params = (
        Param("x", "any shape", sources),
        Param("scale", "one, or per position of an axis", SCALES),
        Param("zero_point", "like scale", QUANTISED, optional=True),
    )
    examples = quantising_examples("i32")
    bad_examples = (BadExample(("f32[n]", "f32[]"), "dtype-mismatch", "x must be one of", QuantizeAttrs()),)

    def scaled(self, x: Expr, scale: Expr) -> Expr:
        """Multiply."""
        return x * scale

    def scaled_array(self, x: Array, scale: Array) -> Array:
        """Multiply."""
        return np.asarray(x * scale)


class DequantizeLinear(Op[ScaleAttrs]):
    """``(x - zero_point) * scale``: the difference in int32, the product in float32, the result in the scale's type.

    The zero point (default 0) has the scale's shape and the operand's type. TVM: relax.dequantize,
    ONNX: DequantizeLinear.
    """

    name = "dequantize_linear"
    Attrs = ScaleAttrs
    kind = OpKind.BROADCAST
    params = (
        Param("x", "any shape", (*QUANTISED, "int32")),
        Param("scale", "one, per position of an axis, or per block", SCALES),
        Param("zero_point", "like scale, type of x", (*QUANTISED, "int32"), optional=True),
    )
    examples = (
        Example(("u8[n, 3]", "f32[]", "u8[]"), "f32[n, 3]", values=(None, 0.25, 128), low=0, high=255),
        Example(
            ("i8[n, 3, m]", "f32[3]", "i8[3]"), "f32[n, 3, m]", values=(None, None, (1, -128, 127)), low=-128, high=127
        ),
        Example(("i8[2, n]", "f16[2]"), "f16[2, n]", ScaleAttrs(0), low=-8, high=8),
        Example(("u16[n]", "bf16[1]", "u16[1]"), "bf16[n]", values=(None, None, (300,)), low=290, high=310),
        Example(("i32[n]", "f32[]"), "f32[n]", low=-9999, high=9999),
        Example(("i16[4, n]", "f32[2, n]", "i16[2, n]"), "f32[4, n]", ScaleAttrs(0, 2), low=-99, high=99),
    )
    bad_examples = (
        BadExample(("i8[n, 4]", "f32[5]"), "shape-mismatch", "axis 0 of scale", ScaleAttrs()),
        BadExample(("i8[n]", "f32[]", "u8[]"), "dtype-mismatch", "x is int8 but zero_point is uint8", ScaleAttrs()),
        BadExample(("f32[n]", "f32[]"), "dtype-mismatch", "x must be one of", ScaleAttrs()),
        BadExample(("i8[n]", "f64[]"), "dtype-mismatch", "scale must be one of", ScaleAttrs()),
        BadExample(("i8[n]", "f32[n]"), "attribute", "block_size", ScaleAttrs(0, -1)),
    )

    def infer(self, args: tuple[Type, ...], attrs: ScaleAttrs, ctx: InferCtx) -> Type:
        """Shape of x, type of the scale."""
        x, scale = ctx.tensor(args, 0, "x"), ctx.tensor(args, 1, "scale")
        check_dtype(ctx, x, "x", (*QUANTISED, "int32"))
        check_dtype(ctx, scale, "scale", SCALES)
        check_scale(ctx, x, scale, "scale", attrs)
        if len(args) > 2:
            zero = ctx.tensor(args, 2, "zero_point")
            check_same_dtype(ctx, (x, zero), ("x", "zero_point"))
            check_scale(ctx, x, zero, "zero_point", attrs)
        return TensorType(x.shape, scale.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: ScaleAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One stage."""
        f = ProgramBuilder(self.name)
        x, scale = input_of(f, "x", args[0]), input_of(f, "scale", args[1])
        zero = input_of(f, "zero_point", args[2]) if len(args) > 2 else None
        y = output_of(f, "y", out[0])

        def value(*i: Expr) -> Expr:
            whole = cast(x.at(i), "int32")
            if zero is not None:
                whole = whole - cast(zero.at(scale_at(zero, i, attrs)), "int32")
            return cast(cast(whole, "float32") * load_wide(scale, scale_at(scale, i, attrs)), y.dtype)

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ScaleAttrs) -> Array:
        """The formula, by NumPy."""
        whole = args[0].astype(np.int32)
        if len(args) > 2:
            whole = whole - spread(args[2], whole.shape, attrs).astype(np.int32)
        scale = spread(widen(args[1]), whole.shape, attrs)
        return np.asarray(whole.astype(np.float32) * scale).astype(args[1].dtype)


class DynamicQuantizeLinear(Op[BaseAttrs]):
    """Quantise to uint8 by the range of the values themselves: results (y, scale, zero_point).

    ``low = min(0, min x)``, ``high = max(0, max x)``, ``scale = (high - low) / 255`` (``1 / 255`` where both are 0 or x
    is empty), ``zero_point = saturate(round(-low / scale))``, ``y = saturate(round(x / scale) + zero_point)``.
    TVM: none, ONNX: DynamicQuantizeLinear.
    """

    name = "dynamic_quantize_linear"
    params = (Param("x", "any shape", ("float32",)),)
    examples = (
        Example(("f32[n, m]",), ("u8[n, m]", "f32[]", "u8[]")),
        Example(("f32[n]",), ("u8[n]", "f32[]", "u8[]"), low=0.5, high=3.0),
        Example(("f32[n]",), ("u8[n]", "f32[]", "u8[]"), low=-3.0, high=-0.5),
        Example(("f32[3]",), ("u8[3]", "f32[]", "u8[]"), values=((0.0, 0.0, 0.0),)),
        Example(("f32[]",), ("u8[]", "f32[]", "u8[]")),
    )
    bad_examples = (BadExample(("f64[n]",), "dtype-mismatch", "x must be one of"),)

    def infer(self, args: tuple[Type, ...], attrs: BaseAttrs, ctx: InferCtx) -> Type:
        """Integers of x's shape, and two scalars."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", ("float32",))
        scalars = TensorType((), "float32"), TensorType((), "uint8")
        return TupleType((TensorType(x.shape, "uint8"), *scalars))

    def decompose(self, args: tuple[GraphExpr, ...], attrs: BaseAttrs, bb: BlockBuilder) -> GraphExpr:
        """The range, two scalars of it, and `QuantizeLinear`, which then fuse with what is before and behind them."""
        none = bb.normalize(np.zeros((), np.float32))
        ends = emit_op(bb, MinMax(), *args, attrs=ReduceAttrs())
        low = emit_op(bb, Minimum(), bb.item(ends, 0), none)
        high = emit_op(bb, Maximum(), bb.item(ends, 1), none)
        size = emit_op(bb, Subtract(), high, low)
        one = bb.normalize(np.ones((), np.float32))
        some = emit_op(bb, Where(), emit_op(bb, Equal(), high, low), one, size)
        scale = emit_op(bb, Divide(), some, bb.normalize(np.full((), 255, np.float32)))
        below = emit_op(bb, Subtract(), none, low)
        zero = emit_op(bb, QuantizeLinear(), below, scale, attrs=QuantizeAttrs())
        whole = emit_op(bb, QuantizeLinear(), *args, scale, zero, attrs=QuantizeAttrs())
        return TupleExpr((whole, scale, zero))

    def reference(self, args: tuple[Array, ...], attrs: BaseAttrs) -> tuple[Array, ...]:
        """The formulas in float32."""
        x = args[0]
        low, high = (fn(x, initial=np.float32(0)) for fn in (np.min, np.max))
        scale = np.float32(1.0 if high == low else high - low) / np.float32(255)
        zero = saturated(np.rint((np.float32(0) - low) / scale), "uint8")
        return saturated(np.rint(x / scale), "uint8", zero), np.asarray(scale), zero


QUANTIZE: Final = (QuantizeLinear(), Requantize(), DequantizeLinear(), DynamicQuantizeLinear())
