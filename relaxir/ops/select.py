"""Choice and conversion: where, clip, prelu, astype, bitcast."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs, DTypeName
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import (
    FLOATS,
    NUMERIC,
    broadcast_read,
    check_dtype,
    check_same_dtype,
    compute_dtype,
    load_wide,
    tensors_of,
    widen,
)
from relaxir.ops.elementwise import Binary, Unary, binary_examples
from relaxir.support.dtypes import info
from relaxir.tir import Bits, Expr, PrimFunc, ProgramBuilder, cast, const, maximum, minimum, select


class Where(Op[Attrs]):
    """``a`` where ``condition`` holds, else ``b``; all three broadcast.

    The condition is bool, both values have one dtype (any). TVM: relax.where, ONNX: Where.
    """

    name = "where"
    moves = True
    params = (
        Param("condition", "bool, broadcasts with a and b", ("bool",)),
        Param("a", "taken where the condition holds"),
        Param("b", "taken elsewhere"),
    )
    kind = OpKind.BROADCAST
    examples = (
        Example(("bool[n, m]", "f32[n, m]", "f32[n, m]"), "f32[n, m]"),
        Example(("bool[n, 1]", "f16[m]", "f16[]"), "f16[n, m]"),
        Example(("bool[]", "i64[n]", "i64[m]"), "i64[broadcast(n, m)]"),
        Example(("bool[n]", "bool[n]", "bool[n]"), "bool[n]"),
        Example(("bool[n]", "bf16[n]", "bf16[1]"), "bf16[n]"),
    )
    bad_examples = (
        BadExample(("f32[n]", "f32[n]", "f32[n]"), "dtype-mismatch", "condition must be one of bool"),
        BadExample(("bool[n]", "f32[n]", "i32[n]"), "dtype-mismatch", "a is float32 but b is int32"),
        BadExample(("bool[3]", "f32[4]", "f32[1]"), "shape-mismatch", "axis 0 is `3`"),
    )

    def infer(self, args: tuple[Type, ...], attrs: Attrs, ctx: InferCtx) -> Type:
        """Broadcast shape, dtype of the values."""
        condition, a, b = tensors_of(ctx, args, ("condition", "a", "b"))
        check_dtype(ctx, condition, "condition", ("bool",))
        check_same_dtype(ctx, (a, b), ("a", "b"))
        return TensorType(ctx.broadcast((condition.shape, a.shape, b.shape)), a.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One stage of selects."""
        f = ProgramBuilder(self.name)
        c, a, b = (f.input(p.name, t.shape, t.dtype) for p, t in zip(self.params, args, strict=True))
        y = f.output("y", out[0].shape, out[0].dtype)
        f.compute(y, lambda *i: select(*(x.at(broadcast_read(x, i, y.shape)) for x in (c, a, b))))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """np.where."""
        return np.where(*args)


@dataclass(frozen=True, slots=True)
class ClipAttrs(Attrs):
    """Attributes of `Clip`; None is no bound."""

    min: float | None = None
    max: float | None = None


class Clip(Op[Any]):
    """``minimum(maximum(x, min), max)``: bounds given as scalar operands, or as attributes.

    An operand wins over the attribute of its name. With ``min > max`` everything becomes ``max``. NaN in ``x`` gives
    NaN; a NaN bound makes everything NaN. Attribute bounds are converted to the dtype of ``x``, saturating.
    TVM: relax.clip, ONNX: Clip.
    """

    name = "clip"
    params = (
        Param("x", "any shape"),
        Param("min", "scalar tensor, dtype of x", optional=True),
        Param("max", "scalar tensor, dtype of x", optional=True),
    )
    Attrs = ClipAttrs
    kind = OpKind.ELEMENTWISE
    examples = (
        Example(("f32[n, 4]",), "f32[n, 4]", ClipAttrs(-1.0, 1.0)),
        Example(("f16[n]",), "f16[n]", ClipAttrs(max=0.5)),
        Example(("i8[n]",), "i8[n]", ClipAttrs(-1000, 1), low=-128, high=127),
        Example(("f32[n, m]", "f32[]", "f32[]"), "f32[n, m]", ClipAttrs()),
        Example(("bf16[]", "bf16[]"), "bf16[]", ClipAttrs(max=1.0)),
    )
    bad_examples = (
        BadExample(("bool[n]",), "dtype-mismatch", "x must be one of", ClipAttrs(0, 1)),
        BadExample(("f32[n]", "f64[]"), "dtype-mismatch", "x is float32 but min is float64", ClipAttrs()),
        BadExample(("f32[n]", "f32[n]"), "rank-mismatch", "min must be a scalar, got rank 1", ClipAttrs()),
    )

    def infer(self, args: tuple[Type, ...], attrs: ClipAttrs, ctx: InferCtx) -> Type:
        """Type of the operand."""
        names = ("x", "min", "max")[: max(1, len(args))]
        tensors = tensors_of(ctx, args, names)
        check_dtype(ctx, tensors[0], "x", NUMERIC)
        check_same_dtype(ctx, tensors, names)
        for bound, name in zip(tensors[1:], names[1:], strict=True):
            if bound.rank:
                ctx.fail(f"{name} must be a scalar, got rank {bound.rank}", code="rank-mismatch")
        return tensors[0]

    def monotone(self, attrs: ClipAttrs, dtype: str) -> int:
        """Rises; asked where there are no operands but ``x``."""
        return 1

    def lower(self, args: tuple[TensorType, ...], attrs: ClipAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One elementwise stage."""
        f = ProgramBuilder(self.name)
        x, *bounds = (f.input(p.name, t.shape, t.dtype) for p, t in zip(self.params, args, strict=False))
        y = f.output("y", out[0].shape, out[0].dtype)
        low, high = (
            load_wide(bounds[k], ()) if k < len(bounds) else _bound(value, x.dtype)
            for k, value in enumerate((attrs.min, attrs.max))
        )

        def value(*i: Expr) -> Expr:
            v = load_wide(x, i)
            v = v if low is None else maximum(v, low)
            return cast(v if high is None else minimum(v, high), y.dtype)

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ClipAttrs) -> Array:
        """np.maximum, then np.minimum."""
        x, *bounds = (widen(a) for a in args)
        low, high = (
            bounds[k] if k < len(bounds) else (None if value is None else cast_array(np.asarray(value), x.dtype))
            for k, value in enumerate((attrs.min, attrs.max))
        )
        y = x if low is None else np.maximum(x, low)
        return np.asarray(y if high is None else np.minimum(y, high)).astype(args[0].dtype)


def _bound(value: float | None, dtype: str) -> Expr | None:
    if value is None:
        return None
    wide = compute_dtype(dtype)
    return const(cast_array(np.asarray(value), info(wide).numpy).item(), wide)


class Prelu(Binary[Attrs]):
    """``x`` where ``x >= 0``, else ``slope * x``; the slope broadcasts to ``x``.

    NaN gives NaN. A slope per channel has shape (C, 1, 1) for ``x`` of shape (N, C, H, W).
    TVM: relax.nn.prelu, ONNX: PRelu.
    """

    name = "prelu"
    params = (Param("x", "any shape"), Param("slope", "broadcasts with x"))
    dtypes = FLOATS
    examples = (
        *binary_examples("f32", "f64", "f16", "bf16"),
        Example(("f32[n, c, h, 2]", "f32[c, 1, 1]"), "f32[n, c, h, 2]"),
    )
    bad_examples = (
        BadExample(("f32[n]", "f64[n]"), "dtype-mismatch", "x is float32 but slope is float64"),
        BadExample(("f32[3]", "f32[4]"), "shape-mismatch", "axis 0 is `3` on the left and `4` on the right"),
        BadExample(("i32[n]", "i32[n]"), "dtype-mismatch", "x must be one of"),
    )

    def scalar(self, a: Expr, b: Expr, attrs: Attrs) -> Expr:
        """Choice by sign."""
        return select(a < 0.0, a * b, a)

    def numpy(self, a: Array, b: Array, attrs: Attrs) -> Array:
        """Choice by sign."""
        return np.where(a < 0, a * b, a)


@dataclass(frozen=True, slots=True)
class AsTypeAttrs(Attrs):
    """Attributes of `AsType`."""

    dtype: DTypeName = "float32"
    """Target type, by any of its names."""


class AsType(Unary[AsTypeAttrs]):
    """Conversion of every element to another dtype.

    Float to integer truncates to zero and saturates, NaN gives 0; integers wrap; to bool is ``!= 0`` (NaN is true);
    bool gives 0 and 1; float to a narrower float rounds to nearest even and overflows to infinity.
    TVM: relax.astype, ONNX: Cast.
    """

    name = "astype"
    moves = True
    Attrs = AsTypeAttrs
    examples = (
        Example(("f32[n, 3]",), "i32[n, 3]", AsTypeAttrs("int32"), low=-9.0, high=9.0),
        Example(("f32[7]",), "u8[7]", AsTypeAttrs("u8"), values=((-1.5, 300.0, 1e20, -1e20, 2.7, 0.0, float("nan")),)),
        Example(("f64[4]",), "i64[4]", AsTypeAttrs("i64"), values=((1e300, -1e300, float("inf"), float("-inf")),)),
        Example(("f32[4]",), "bool[4]", AsTypeAttrs("bool"), values=((-1.5, 0.0, 0.25, float("nan")),)),
        Example(("i32[n]",), "u8[n]", AsTypeAttrs("uint8"), low=-300, high=300),
        Example(("i64[n]",), "f16[n]", AsTypeAttrs("f16"), low=-9000, high=9000),
        Example(("bool[n, m]",), "f32[n, m]", AsTypeAttrs("f32")),
        Example(("f32[n]",), "bf16[n]", AsTypeAttrs("bf16")),
        Example(("bf16[]",), "f64[]", AsTypeAttrs("f64")),
        Example(("u64[n]",), "f32[n]", AsTypeAttrs("f32"), high=1e18),
        Example(("f16[n]",), "f16[n]", AsTypeAttrs("f16")),
    )

    def infer(self, args: tuple[Type, ...], attrs: AsTypeAttrs, ctx: InferCtx) -> Type:
        """Shape of the operand, the dtype asked for."""
        x = ctx.tensor(args, 0, "x")
        return TensorType(x.shape, attrs.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: AsTypeAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One elementwise stage."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        y = f.output("y", out[0].shape, out[0].dtype)
        f.compute(y, lambda *i: cast(x[i], y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: AsTypeAttrs) -> Array:
        """`cast_array`; bfloat16 results stay float32 here (`Op.evaluate` rounds them)."""
        held = np.dtype(np.float32) if attrs.dtype == "bfloat16" else info(attrs.dtype).numpy
        return cast_array(args[0], held)


class BitCast(Op[AsTypeAttrs]):
    """The bits of ``x`` read as another dtype of the same size.

    To bool: ``!= 0``; bool gives 0 and 1. TVM: none, ONNX: BitCast.
    """

    name = "bitcast"
    Attrs = AsTypeAttrs
    examples = (
        Example(("f32[n, 3]",), "i32[n, 3]", AsTypeAttrs("int32")),
        Example(("i32[n]",), "f32[n]", AsTypeAttrs("float32"), low=1 << 29, high=(1 << 30) + (1 << 29)),
        Example(("f64[n]",), "u64[n]", AsTypeAttrs("uint64")),
        Example(("i8[5]",), "u8[5]", AsTypeAttrs("uint8"), low=-128, high=127),
        Example(("bf16[n]",), "i16[n]", AsTypeAttrs("int16")),
        Example(("u16[n]",), "f16[n]", AsTypeAttrs("float16"), low=0, high=0x7BFF),
        Example(("bool[n]",), "u8[n]", AsTypeAttrs("uint8")),
        Example(("u8[n]",), "bool[n]", AsTypeAttrs("bool"), low=0, high=3),
        Example(("f32[]",), "f32[]", AsTypeAttrs("float32")),
    )
    bad_examples = (BadExample(("f32[n]",), "dtype-mismatch", "32 bits", AsTypeAttrs("int64")),)

    def infer(self, args: tuple[Type, ...], attrs: AsTypeAttrs, ctx: InferCtx) -> Type:
        """Shape of the operand, the dtype asked for."""
        x = ctx.tensor(args, 0, "x")
        have, want = info(x.dtype), info(attrs.dtype)
        if want.bits != have.bits:
            ctx.fail(f"{x.dtype} has {have.bits} bits, {attrs.dtype} {want.bits}", code="dtype-mismatch")
        return TensorType(x.shape, attrs.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: AsTypeAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One elementwise stage."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        y = f.output("y", out[0].shape, out[0].dtype)
        f.compute(y, lambda *i: x[i] if x.dtype == y.dtype else Bits(x[i], y.dtype))
        return f.build()

    def evaluate(
        self, args: tuple[Array, ...], types: Sequence[Type], attrs: AsTypeAttrs, out: Type
    ) -> Array | tuple[Array, ...]:
        """On arrays as programs hold them: their bits are what counts."""
        return self.reference(args, attrs)

    def reference(self, args: tuple[Array, ...], attrs: AsTypeAttrs) -> Array:
        """A view."""
        stored = np.ascontiguousarray(args[0]).reshape(args[0].shape)
        target = info(attrs.dtype).numpy
        return stored != 0 if target.kind == "b" else stored.view(target)


def cast_array(x: Array, dtype: np.dtype[Any]) -> Array:
    """Convert as `AsType` does: float to integer truncates, saturates, and maps NaN to 0."""
    if dtype.kind == "b":
        return np.asarray(x != 0)
    if x.dtype.kind != "f" or dtype.kind not in "iu":
        return x.astype(dtype)
    limits = np.iinfo(dtype)
    whole = np.trunc(x.astype(np.float64))
    # limits.max + 1 is a power of two, exact in float64, where limits.max itself may not be
    high, low = whole >= float(limits.max) + (dtype.itemsize < 8), whole <= float(limits.min)
    plain = np.where(high | low | np.isnan(whole), 0, whole).astype(dtype)
    return np.where(high, dtype.type(limits.max), np.where(low, dtype.type(limits.min), plain))


SELECT: Final = (
    Where(),
    Clip(),
    Prelu(),
    AsType(),
    BitCast(),
)
