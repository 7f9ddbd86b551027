"""Operators that make tensors from little or nothing."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.attrs import DTypeName
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, const
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import ShapeType, TensorType, Type
from relaxir.ops.indexing import range_size, require_nonzero
from relaxir.ops.kernels import emit_op, input_of, output_of
from relaxir.ops.shapes import TensorToShape
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, dim
from relaxir.tir import (
    Assert,
    BinOp,
    Expr,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    Seq,
    Store,
    as_expr,
    binary,
    call,
    cast,
    eq,
    maximum,
    ne,
    select,
)
from relaxir.tir import const as literal


def _require_shape(shape: tuple[DimLike, ...], ctx: InferCtx) -> None:
    for axis, extent in enumerate(shape):
        ctx.require_at_least(0, extent, f"shape[{axis}]")


class Full(Op["Full.Attrs"]):
    """A tensor of the given shape with every element the scalar operand.

    Every dtype; any dims >= 0. TVM: relax.full, ONNX: ConstantOfShape.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Result shape."""

        shape: tuple[DimLike, ...]

    name = "full"
    params = (Param("value", "scalar"),)
    kind = OpKind.BROADCAST
    examples = (
        Example(("f32[]",), "f32[n, 4]", Attrs((dim("n"), 4))),
        Example(("i64[]",), "i64[]", Attrs(())),
        Example(("bf16[]",), "bf16[n]", Attrs((dim("n"),))),
    )
    bad_examples = (
        BadExample(("f32[2]",), "rank-mismatch", "scalar", Attrs((4,))),
        BadExample(("f32[]",), "shape-mismatch", "shape[0]", Attrs((-1,))),
    )

    def infer(self, args: tuple[Type, ...], attrs: Full.Attrs, ctx: InferCtx) -> Type:
        """The shape with the scalar's dtype."""
        value = ctx.tensor(args, 0, "value")
        if value.rank:
            ctx.fail(f"value must be a scalar, got rank {value.rank}", code="rank-mismatch")
        _require_shape(attrs.shape, ctx)
        return TensorType(attrs.shape, value.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Full.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One fill."""
        f = ProgramBuilder(self.name)
        value, y = input_of(f, "value", args[0]), output_of(f, "y", out[0])
        f.compute(y, lambda *i: value[()])
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Full.Attrs) -> Array:
        """np.full."""
        return np.full([int(d) for d in attrs.shape], args[0], args[0].dtype)


class Filled(Op["Filled.Attrs"]):
    """Base of `Zeros` and `Ones`: a constant under a shape, by `Full`."""

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Result shape and dtype."""

        shape: tuple[DimLike, ...] = ()
        dtype: DTypeName = "float32"

    params = ()
    kind = OpKind.BROADCAST
    number = 0
    examples = (
        Example((), "f32[n, 4]", Attrs((dim("n"), 4))),
        Example((), "i64[3]", Attrs((3,), "int64")),
    )
    bad_examples = (BadExample((), "shape-mismatch", "shape[0]", Attrs((-1,))),)

    def infer(self, args: tuple[Type, ...], attrs: Filled.Attrs, ctx: InferCtx) -> Type:
        """Shape and dtype of the attributes."""
        _require_shape(attrs.shape, ctx)
        return TensorType(attrs.shape, attrs.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Filled.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One fill."""
        f = ProgramBuilder(self.name)
        y = output_of(f, "y", out[0])
        f.compute(y, lambda *i: literal(self.number, y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Filled.Attrs) -> Array:
        """np.full."""
        return np.full([int(d) for d in attrs.shape], self.number, held_dtype(attrs.dtype))

    def decompose(self, args: tuple[GraphExpr, ...], attrs: Filled.Attrs, bb: BlockBuilder) -> GraphExpr | None:
        """`Full` of a constant."""
        return emit_op(bb, Full(), const(self.number, attrs.dtype), attrs=Full.Attrs(attrs.shape))


def held_dtype(name: str) -> np.dtype[Any]:
    """Dtype of reference arrays; bfloat16 results are given as float32."""
    return np.dtype(np.float32) if name == "bfloat16" else info(name).numpy


class Zeros(Filled):
    """A tensor of zeros. TVM: relax.zeros, ONNX: ConstantOfShape."""

    name = "zeros"


class Ones(Filled):
    """A tensor of ones. TVM: relax.ones, ONNX: ConstantOfShape."""

    name = "ones"
    number = 1


class Arange(Op["Arange.Attrs"]):
    """``start, start + step, ...`` before ``stop``: element i is ``start + i * step``.

    Integer entries are any dims; the sign of ``step`` may be unknown until run time. With a float among them all
    three are numbers, and elements are computed in float64. `Range` takes scalar operands. TVM: relax.arange, ONNX:
    Range.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Bounds, step, dtype of the result."""

        start: DimLike | float
        stop: DimLike | float
        step: DimLike | float = 1
        dtype: DTypeName = "int64"

    name = "arange"
    params = ()
    kind = OpKind.INJECTIVE
    examples = (
        Example((), "i64[n]", Attrs(0, dim("n"))),
        Example((), "f32[4]", Attrs(3, -5, -2, "float32")),
        Example((), "f64[5]", Attrs(0.5, 1.5, 0.2, "float64")),
        Example((), "i32[n + 1]", Attrs(dim("n"), -1, -1, "int32")),
        Example((), "bf16[n]", Attrs(0, dim("n"), 1, "bfloat16")),
    )
    bad_examples = (
        BadExample((), "attribute", "step", Attrs(0, 4, 0)),
        BadExample((), "attribute", "numbers", Attrs(0.5, dim("n"), 1)),
        BadExample((), "attribute", "number of elements", Attrs(0.0, math.inf, 1.0)),
    )

    @staticmethod
    def is_float(attrs: Arange.Attrs) -> bool:
        """Whether the values are floats."""
        return any(isinstance(v, float) for v in (attrs.start, attrs.stop, attrs.step))

    def infer(self, args: tuple[Type, ...], attrs: Arange.Attrs, ctx: InferCtx) -> Type:
        """One axis."""
        values = (attrs.start, attrs.stop, attrs.step)
        kind = attrs.dtype
        if not isinstance(attrs.step, float) or attrs.step == 0:
            require_nonzero(0 if attrs.step == 0 else attrs.step, "step", ctx)
        if not self.is_float(attrs):
            return TensorType((range_size(*values, ctx.facts),), kind)
        if not all(isinstance(v, int | float) for v in values):
            ctx.fail("with a float, start, stop and step must all be numbers", code="attribute", help="use range")
        try:
            return TensorType((float_count(*map(float, values)),), kind)
        except (ValueError, OverflowError) as error:
            ctx.fail(str(error), code="attribute")

    def lower(self, args: tuple[TensorType, ...], attrs: Arange.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Affine in the index."""
        f = ProgramBuilder(self.name)
        y = output_of(f, "y", out[0])
        wide = "float64" if self.is_float(attrs) else "int64"
        start, step = as_expr(attrs.start, wide), as_expr(attrs.step, wide)
        f.compute(y, lambda i: cast(start + cast(i, wide) * step, y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Arange.Attrs) -> Array:
        """By its definition."""
        if self.is_float(attrs):
            count = float_count(float(attrs.start), float(attrs.stop), float(attrs.step))
        else:
            count = len(range(int(attrs.start), int(attrs.stop), int(attrs.step)))
        return np.asarray(attrs.start + np.arange(count) * attrs.step).astype(held_dtype(attrs.dtype))


FARTHEST: Final = 2.0**62
"""Numbers of elements, and distances of integers, that fit 64 bits with all that is computed of them."""


def float_count(start: float, stop: float, step: float) -> int:
    """Number of elements of a range of floats.

    Raises:
        ValueError: it is not finite, or too large.
    """
    size = (stop - start) / step
    if not abs(size) < FARTHEST:
        raise ValueError(f"the number of elements of the range {start}, {stop}, {step} is {size}")
    return max(0, int(np.ceil(size)))


class RangeCount(Op[BaseAttrs]):
    """Number of elements of `Range`, as ``i64[]``; fails the call for a step of 0, and where it is not finite.

    TVM: none, ONNX: part of Range.
    """

    name = "range_count"
    params = (Param("start", "scalar"), Param("stop", "scalar"), Param("step", "scalar"))
    examples = (
        Example(("i64[]", "i64[]", "i64[]"), "i64[]", values=(0, 7, 2)),
        Example(("i32[]", "i32[]", "i32[]"), "i64[]", values=(5, -4, -3)),
        Example(("f32[]", "f32[]", "f32[]"), "i64[]", values=(0.0, 1.0, 0.3)),
    )

    def infer(self, args: tuple[Type, ...], attrs: BaseAttrs, ctx: InferCtx) -> Type:
        """A scalar."""
        range_operands(args, ctx)
        return TensorType((), "int64")

    def lower(self, args: tuple[TensorType, ...], attrs: BaseAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Check, then the quotient rounded up."""
        f = ProgramBuilder(self.name)
        start, stop, step = (input_of(f, p.name, t)[()] for p, t in zip(self.params, args, strict=True))
        y = output_of(f, "y", out[0])
        a, b, s = (cast(v, "float64") for v in (start, stop, step))
        if info(args[0].dtype).is_float:
            size, count = (b - a) / s, cast(call(Intrinsic.CEIL, (b - a) / s), "int64")
        else:
            low, high, by = (cast(v, "int64") for v in (start, stop, step))
            size, count = b - a, literal(0) - binary(BinOp.FLOORDIV, low - high, by)
        nonzero = Assert(ne(s, 0), "runtime-shape", "range: step must not be 0")
        fits = call(Intrinsic.ABS, size) < FARTHEST
        finite = Assert(fits, "runtime-shape", "range: the number of elements is not finite, or too large")
        f.block("count", (), lambda: Seq((nonzero, finite, Store(y, (), maximum(count, 0)))))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: BaseAttrs) -> Array:
        """By its definition."""
        start, stop, step = (a.item() for a in args)
        if isinstance(step, float):
            return np.array(float_count(start, stop, step), np.int64)
        return np.array(len(range(start, stop, step)), np.int64)


class RangeFill(Op["RangeFill.Attrs"]):
    """``start + i * step`` for ``i < count``: the second half of `Range`. TVM: none, ONNX: part of Range."""

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Number of elements."""

        count: DimLike

    name = "range_fill"
    params = (Param("start", "scalar"), Param("step", "scalar"))
    kind = OpKind.INJECTIVE
    examples = (
        Example(("i64[]", "i64[]"), "i64[n]", Attrs(dim("n"))),
        Example(("f32[]", "f32[]"), "f32[4]", Attrs(4)),
    )

    def infer(self, args: tuple[Type, ...], attrs: RangeFill.Attrs, ctx: InferCtx) -> Type:
        """One axis."""
        return TensorType((attrs.count,), range_operands(args, ctx).dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: RangeFill.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Affine in the index, floats in float64."""
        f = ProgramBuilder(self.name)
        start, step = input_of(f, "start", args[0]), input_of(f, "step", args[1])
        y = output_of(f, "y", out[0])
        wide = "float64" if info(y.dtype).is_float else "int64"

        def value(i: Expr) -> Expr:
            return cast(cast(start[()], wide) + cast(i, wide) * cast(step[()], wide), y.dtype)

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: RangeFill.Attrs) -> Array:
        """By its definition."""
        wide = np.float64 if args[0].dtype.kind == "f" else np.int64
        values = args[0].astype(wide) + np.arange(int(attrs.count)) * args[1].astype(wide)
        return np.asarray(values).astype(args[0].dtype)


def range_operands(args: tuple[Type, ...], ctx: InferCtx) -> TensorType:
    """The first operand, all being scalars of one numeric dtype."""
    first = ctx.tensor(args, 0, "start")
    for n in range(len(args)):
        t = ctx.tensor(args, n)
        if t.rank:
            ctx.fail(f"operand {n} must be a scalar, got rank {t.rank}", code="rank-mismatch")
        if t.dtype != first.dtype or t.dtype == "bool":
            ctx.fail(f"operand {n} is {t.dtype}, start is {first.dtype}", code="dtype-mismatch")
    return first


class Range(Op[BaseAttrs]):
    """`Arange` of scalar operands: the number of elements is known at run time only.

    Numbers of one dtype. A step of 0 fails the call (``runtime-shape``). TVM: none, ONNX: Range.
    """

    name = "range"
    params = RangeCount.params
    examples = (Example(("i64[]", "i64[]", "i64[]"), "i64[r]", values=(0, 7, 2)),)
    bad_examples = (
        BadExample(("i64[1]", "i64[]", "i64[]"), "rank-mismatch", "operand 0"),
        BadExample(("i64[]", "i32[]", "i64[]"), "dtype-mismatch", "operand 1"),
    )

    def infer(self, args: tuple[Type, ...], attrs: BaseAttrs, ctx: InferCtx) -> Type:
        """One axis of a fresh extent."""
        return TensorType((ctx.fresh("r"),), range_operands(args, ctx).dtype)

    def reference(self, args: tuple[Array, ...], attrs: BaseAttrs) -> Array:
        """By its two halves."""
        count = int(RangeCount().reference(args, attrs))
        return RangeFill().reference((args[0], args[2]), RangeFill.Attrs(count))

    def decompose(self, args: tuple[GraphExpr, ...], attrs: BaseAttrs, bb: BlockBuilder) -> GraphExpr | None:
        """Count, read the count, fill."""
        count = emit_op(bb, RangeCount(), *args)
        return emit_op(bb, RangeFill(), args[0], args[2], attrs=RangeFill.Attrs(read_size(bb, count, "r", None)))


def read_size(bb: BlockBuilder, count: GraphExpr, name: str, most: DimLike | None) -> DimLike:
    """The value of an ``i64[]`` as a fresh dimension of at most ``most``; plain 0 where only that is possible."""
    if most == 0:
        return 0
    shape = emit_op(bb, TensorToShape(), count, attrs=TensorToShape.Attrs((0,), (most,), (name,))).type
    assert isinstance(shape, ShapeType)
    return shape.dims[0]


class Eye(Op["Eye.Attrs"]):
    """Ones on diagonal ``k`` (``column - row == k``), zeros elsewhere, of shape ``(n, m)``.

    Every entry is any dim; ``k`` of any sign. TVM: relax.eye, ONNX: EyeLike.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Rows, columns, diagonal, dtype."""

        n: DimLike
        m: DimLike
        k: DimLike = 0
        dtype: DTypeName = "float32"

    name = "eye"
    params = ()
    kind = OpKind.INJECTIVE
    examples = (
        Example((), "f32[n, 4]", Attrs(dim("n"), 4)),
        Example((), "i64[3, m]", Attrs(3, dim("m"), -1, "int64")),
    )
    bad_examples = (BadExample((), "shape-mismatch", "shape[0]", Attrs(-1, 2)),)

    def infer(self, args: tuple[Type, ...], attrs: Eye.Attrs, ctx: InferCtx) -> Type:
        """Two axes."""
        _require_shape((attrs.n, attrs.m), ctx)
        return TensorType((attrs.n, attrs.m), attrs.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Eye.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One comparison."""
        f = ProgramBuilder(self.name)
        y = output_of(f, "y", out[0])
        f.compute(y, lambda i, j: select(eq(j - i, attrs.k), literal(1, y.dtype), literal(0, y.dtype)))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Eye.Attrs) -> Array:
        """np.eye."""
        return np.eye(int(attrs.n), int(attrs.m), int(attrs.k)).astype(held_dtype(attrs.dtype))


CREATION: Final[tuple[Op[Any], ...]] = (
    Full(),
    Zeros(),
    Ones(),
    Arange(),
    Range(),
    RangeCount(),
    RangeFill(),
    Eye(),
)
