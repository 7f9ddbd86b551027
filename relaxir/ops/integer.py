"""Products and convolutions of 8-bit integers, summed exactly in int32.

The form that kernels are good at is uint8 times int8 without zero points; `MatMulInteger` decomposes everything else
into it: ``x ^ 0x80`` moves an operand to the other type and its zero point by 128, and

    sum (a - za) * (b - zb) = sum a * b - za * sum (b - zb) - zb * sum a

leaves sums of one operand, which are constants where that operand is a weight.
"""

from __future__ import annotations

from functools import partial
from typing import Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, Constant
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.binary import Multiply, Subtract
from relaxir.ops.common import check_dtype, tensors_of
from relaxir.ops.comparison import BitwiseXor
from relaxir.ops.conv import Conv, ConvAttrs, check_groups, finish, guarded
from relaxir.ops.dynamic import tensor_type
from relaxir.ops.kernels import emit_op, input_of, output_of
from relaxir.ops.matmul import broadcast_batch, product_shape
from relaxir.ops.movement import ExpandDims, PermuteDims, Reshape
from relaxir.ops.patches import PatchAttrs, WindowRows
from relaxir.ops.quantize import one_or_all
from relaxir.ops.reduce import ReduceAttrs, Sum
from relaxir.ops.select import AsType, AsTypeAttrs
from relaxir.ops.windows import check_windows, window_counts, windows_of
from relaxir.sym import floordiv, mul, product
from relaxir.tir import Buffer, Combine, Expr, PrimFunc, ProgramBuilder, bcast, cast, const

BYTES: Final = ("uint8", "int8")
ZERO_A: Final = Param("a_zero_point", "one, per row (m,), or (..., m, 1)", BYTES, optional=True)
ZERO_B: Final = Param("b_zero_point", "one, per column (n,), or (..., 1, n)", BYTES, optional=True)
WHOLE: Final = partial(Example, low=-128.0, high=255.0)
"""An example over all values of both types."""


class MatMulInteger(Op[Attrs]):
    """Matrix product of 8-bit integers less their zero points, in int32; batching as of matmul.

    ``out[..., i, j] = sum over k of (a[..., i, k] - za) * (b[..., k, j] - zb)``, exact as long as it fits int32 (it
    wraps). Zero points (default 0): one, one per row of ``a`` or per column of ``b``. TVM: relax.matmul with
    out_dtype, ONNX: MatMulInteger.
    """

    name = "matmul_integer"
    params = (Param("a", "(..., m, k) or (k,)", BYTES), Param("b", "(..., k, n) or (k,)", BYTES), ZERO_A, ZERO_B)
    kind = OpKind.OUT_FUSABLE
    examples = (
        WHOLE(("u8[n, 8]", "i8[8, m]"), "i32[n, m]"),
        WHOLE(("u8[n, k]", "i8[k, m]"), "i32[n, m]"),
        WHOLE(("u8[b, n, 70]", "i8[70, 40]", "u8[]"), "i32[b, n, 40]"),
        WHOLE(("i8[n, k]", "u8[k, m]", "i8[]", "u8[]"), "i32[n, m]"),
        WHOLE(("u8[n, 5]", "u8[5, 3]", "u8[1]", "u8[3]"), "i32[n, 3]"),
        WHOLE(("i8[4, k]", "i8[k, m]", "i8[4]", "i8[m]"), "i32[4, m]"),
        WHOLE(("u8[b, 2, 3]", "i8[b, 3, n]", "u8[b, 2, 1]", "i8[b, 1, n]"), "i32[b, 2, n]"),
        WHOLE(("u8[n]", "i8[n, m]", "u8[]"), "i32[m]"),
        WHOLE(("i8[b, n, m]", "i8[m]"), "i32[b, n]"),
    )
    bad_examples = (
        BadExample(("u8[n, 4]", "i8[5, m]"), "shape-mismatch", "axis 1 of a and axis 0 of b"),
        BadExample(("i32[n, 4]", "i8[4, m]"), "dtype-mismatch", "a must be one of"),
        BadExample(("u8[n, 4]", "i8[4, m]", "i8[]"), "dtype-mismatch", "a_zero_point must be"),
        BadExample(("u8[n, 4]", "i8[4, 3]", "u8[]", "i8[4]"), "shape-mismatch", "axis 0 of b_zero_point"),
        BadExample(("u8[2, 4]", "i8[4, 3]", "u8[2, 1, 1]"), "rank-mismatch", "a_zero_point has rank 3"),
    )

    def infer(self, args: tuple[Type, ...], attrs: Attrs, ctx: InferCtx) -> Type:
        """The shape of a matrix product."""
        a, b = tensors_of(ctx, args[:2], ("a", "b"))
        for t, name in ((a, "a"), (b, "b")):
            check_dtype(ctx, t, name, BYTES)
        shape = product_shape(ctx, a, b)
        for n, (operand, axis) in enumerate(((a, -2), (b, -1)), 2):
            if len(args) > n:
                _check_zero(ctx, ctx.tensor(args, n, self.params[n].name), operand, axis, self.params[n].name)
        return TensorType(shape, "int32")

    def decompose(self, args: tuple[GraphExpr, ...], attrs: Attrs, bb: BlockBuilder) -> GraphExpr | None:
        """Bring the operands to uint8 and int8, and the zero points out of the product."""
        a, b, *zeros = args
        types = tensor_type(a), tensor_type(b)
        if min(t.rank for t in types) < 2:
            return None
        za = _widened(bb, zeros[0]) if zeros else None
        zb = _widened(bb, zeros[1]) if len(zeros) > 1 else None
        if not zeros and types[0].dtype == "uint8" and types[1].dtype == "int8":
            return None
        if types[0].dtype == "int8":
            a, za = _flipped(bb, a, "uint8"), _moved(bb, za, 128)
        if types[1].dtype == "uint8":
            b, zb = _flipped(bb, b, "int8"), _moved(bb, zb, -128)
        total: GraphExpr = emit_op(bb, MatMulInteger(), a, b)
        if za is not None:
            wide = emit_op(bb, AsType(), b, attrs=AsTypeAttrs("int32"))
            centred = wide if zb is None else emit_op(bb, Subtract(), wide, zb)
            if tensor_type(za).rank == 1 and tensor_type(za).shape != (1,):
                za = emit_op(bb, ExpandDims(), za, attrs=ExpandDims.Attrs((1,)))
            total = _less(bb, total, za, emit_op(bb, Sum(), centred, attrs=ReduceAttrs((-2,), True)))
        if zb is not None:
            wide = emit_op(bb, AsType(), a, attrs=AsTypeAttrs("int32"))
            total = _less(bb, total, zb, emit_op(bb, Sum(), wide, attrs=ReduceAttrs((-1,), True)))
        return total

    def lower(self, args: tuple[TensorType, ...], attrs: Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One contraction block over int32."""
        f = ProgramBuilder(self.name)
        a, b = input_of(f, "a", args[0]), input_of(f, "b", args[1])
        za = input_of(f, "a_zero_point", args[2]) if len(args) > 2 else None
        zb = input_of(f, "b_zero_point", args[3]) if len(args) > 3 else None
        y = output_of(f, "y", out[0])
        rows, columns = min(len(a.shape) - 1, 1), min(len(b.shape) - 1, 1)
        batch = y.shape[: len(y.shape) - rows - columns]

        def product(*point: Expr) -> Expr:
            i, k = point[:-1], point[-1]
            lead, row, column = i[: len(batch)], i[len(batch) : len(batch) + rows], i[len(batch) + rows :]
            left = (*broadcast_batch(a.shape[:-2], lead, batch), *row, k)
            right = (*broadcast_batch(b.shape[:-2], lead, batch), k, *column)
            x, w = cast(a.at(left), "int32"), cast(b.at(right), "int32")
            if za is not None:
                x = x - cast(za.at(_zero_at(za, left, -2)), "int32")
            if zb is not None:
                w = w - cast(zb.at(_zero_at(zb, right, -1)), "int32")
            return x * w

        f.reduce(y, (a.shape[-1],), Combine.SUM, product)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """np.matmul in int32."""
        a, b = (x.astype(np.int32) for x in args[:2])
        if len(args) > 2:
            z = args[2].astype(np.int32)
            a = a - (z[:, None] if z.ndim == 1 and z.size > 1 else z)
        if len(args) > 3:
            b = b - args[3].astype(np.int32)
        return np.asarray(np.matmul(a, b))


def _check_zero(ctx: InferCtx, zero: TensorType, operand: TensorType, axis: int, name: str) -> None:
    """Raise unless a zero point is one element, one per index of ``axis``, or has the operand's other axes too."""
    check_dtype(ctx, zero, name, (operand.dtype,))
    if zero.rank == 0 or zero.shape == (1,):
        return
    if zero.rank not in (1, operand.rank) or operand.rank < 2:
        ctx.fail(f"{name} has rank {zero.rank}, expected 0, 1 or {operand.rank}", code="rank-mismatch")
    own = operand.rank + axis
    if zero.rank == 1:
        one_or_all(ctx, zero.shape[0], operand.shape[own], f"axis 0 of {name} and axis {own} of its operand")
        return
    reduced = operand.rank - 3 - axis
    for n, (have, extent) in enumerate(zip(zero.shape, operand.shape, strict=True)):
        ctx.require_equal(have, 1 if n == reduced else extent, f"axis {n} of {name}")


def _zero_at(zero: Buffer, index: tuple[Expr, ...], axis: int) -> tuple[Expr, ...]:
    """Indices of the zero point of one element."""
    if not zero.shape or zero.shape == (1,):
        return (const(0),) * len(zero.shape)
    if len(zero.shape) == 1:
        return (bcast(index[axis], zero.shape[0]),)
    reduced = len(index) - 3 - axis
    return tuple(const(0) if n == reduced else i for n, i in enumerate(index))


def _widened(bb: BlockBuilder, zero: GraphExpr) -> GraphExpr | None:
    """A zero point in int32; None for a constant 0, which needs no work."""
    if isinstance(zero, Constant) and not zero.data.any():
        return None
    return emit_op(bb, AsType(), zero, attrs=AsTypeAttrs("int32"))


def _moved(bb: BlockBuilder, zero: GraphExpr | None, by: int) -> GraphExpr:
    """A zero point less or more 128."""
    if zero is None:
        return bb.normalize(np.array(by, np.int32))
    return emit_op(bb, Subtract(), zero, bb.normalize(np.array(-by, np.int32)))


def _flipped(bb: BlockBuilder, x: GraphExpr, dtype: str) -> GraphExpr:
    """The operand 128 higher as uint8, or 128 lower as int8: one bit."""
    bit = np.array(128, np.uint8) if dtype == "int8" else np.array(-128, np.int8)
    return emit_op(bb, AsType(), emit_op(bb, BitwiseXor(), x, bb.normalize(bit)), attrs=AsTypeAttrs(dtype))


def _less(bb: BlockBuilder, total: GraphExpr, zero: GraphExpr, sums: GraphExpr) -> GraphExpr:
    return emit_op(bb, Subtract(), total, emit_op(bb, Multiply(), zero, sums))


class ConvInteger(Op[ConvAttrs]):
    """Convolution of 8-bit integers less their zero points, in int32; attributes as of conv.

    Padding counts as the zero point of ``x``. The weight's zero point is one or one per output channel (default 0).
    TVM: relax.nn.conv2d with out_dtype, ONNX: ConvInteger.
    """

    name = "conv_integer"
    Attrs = ConvAttrs
    params = (
        Param("x", "(batch, channels, *spatial)", BYTES),
        Param("weight", "(out channels, channels / groups, *kernel)", BYTES),
        Param("x_zero_point", "one", BYTES, optional=True),
        Param("weight_zero_point", "one, or (out channels,)", BYTES, optional=True),
    )
    kind = OpKind.OUT_FUSABLE
    examples = (
        WHOLE(("u8[n, 3, 6]", "i8[4, 3, 3]"), "i32[n, 4, 4]"),
        WHOLE(
            ("u8[1, 2, h, 5]", "u8[2, 2, 3, 3]", "u8[]", "u8[2]"),
            "i32[1, 2, h, 5]",
            ConvAttrs(padding=(1,)),
            min_size=1,
        ),
        WHOLE(("i8[2, 4, h]", "i8[4, 1, 2]", "i8[1]", "i8[]"), "i32[2, 4, h - 1]", ConvAttrs(groups=4), min_size=2),
        WHOLE(("u8[1, 4, 7]", "i8[6, 2, 3]", "u8[]"), "i32[1, 6, 4]", ConvAttrs((2,), (1,), groups=2)),
    )
    bad_examples = (
        BadExample(("u8[1, 3, 8]", "i8[4, 2, 3]"), "shape-mismatch", "channels of x", ConvAttrs()),
        BadExample(("u8[1, 3, 8]", "i8[4, 3]"), "rank-mismatch", "x has rank 3", ConvAttrs()),
        BadExample(("u8[1, 3, 8]", "f32[4, 3, 3]"), "dtype-mismatch", "weight must be one of", ConvAttrs()),
        BadExample(("u8[1, 3, 8]", "i8[4, 3, 3]", "u8[2]"), "shape-mismatch", "x_zero_point", ConvAttrs()),
    )

    def infer(self, args: tuple[Type, ...], attrs: ConvAttrs, ctx: InferCtx) -> Type:
        """The shape of a convolution."""
        x, w = tensors_of(ctx, args[:2], ("x", "weight"))
        for t, name in ((x, "x"), (w, "weight")):
            check_dtype(ctx, t, name, BYTES)
        if x.rank != w.rank:
            ctx.fail(f"x has rank {x.rank} but weight has rank {w.rank}", code="rank-mismatch")
        check_windows(ctx, attrs, x.rank - 2)
        check_groups(ctx, attrs.groups, w.shape[0], "axis 0 of weight")
        ctx.require_equal(x.shape[1], mul(w.shape[1], attrs.groups), "channels of x and axis 1 of weight times groups")
        for n, operand in enumerate((x, w), 2):
            if len(args) <= n:
                break
            zero, name = ctx.tensor(args, n), self.params[n].name
            check_dtype(ctx, zero, name, (operand.dtype,))
            if zero.rank > 1:
                ctx.fail(f"{name} has rank {zero.rank}, expected at most 1", code="rank-mismatch")
            if zero.rank == 1 and zero.shape != (1,):
                one_or_all(ctx, zero.shape[0], 1 if n == 2 else w.shape[0], f"axis 0 of {name}")
        counts = window_counts(ctx, attrs, windows_of(attrs, x.shape[2:], w.shape[2:]))
        return TensorType((x.shape[0], w.shape[0], *counts), "int32")

    def decompose(self, args: tuple[GraphExpr, ...], attrs: ConvAttrs, bb: BlockBuilder) -> GraphExpr | None:
        """A matrix product of windows (rows) and the weight, where the kernel's extents are known and groups are 1.

        Windows are copied out, a byte an element: the product then reads them by words.
        """
        x, w = args[:2]
        shape, weight = tensor_type(x).shape, tensor_type(w).shape
        kernel = tuple(k for k in weight[2:] if isinstance(k, int))
        if attrs.groups != 1 or len(kernel) != len(weight) - 2:
            return None
        fill = args[2:3]
        if fill and tensor_type(fill[0]).rank:
            fill = (emit_op(bb, Reshape(), fill[0], attrs=Reshape.Attrs(())),)
        geometry = PatchAttrs(kernel, attrs.strides, attrs.padding, attrs.dilations, attrs.auto_pad)
        found = emit_op(bb, WindowRows(), x, *fill, attrs=geometry)
        counts = tensor_type(found).shape[1 : 1 + len(kernel)]
        depth = product((weight[1], *kernel))
        rows = emit_op(bb, Reshape(), found, attrs=Reshape.Attrs((shape[0], product(counts), depth)))
        inner = emit_op(bb, PermuteDims(), w, attrs=PermuteDims.Attrs((*range(2, len(weight)), 1, 0)))
        right = emit_op(bb, Reshape(), inner, attrs=Reshape.Attrs((depth, weight[0])))
        total = emit_op(bb, MatMulInteger(), rows, right, *args[2:])
        turned = emit_op(bb, PermuteDims(), total, attrs=PermuteDims.Attrs((0, 2, 1)))
        return emit_op(bb, Reshape(), turned, attrs=Reshape.Attrs((shape[0], weight[0], *counts)))

    def lower(self, args: tuple[TensorType, ...], attrs: ConvAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One contraction block, as of conv; a tap in the padding adds nothing."""
        f = ProgramBuilder(self.name)
        x, w = input_of(f, "x", args[0]), input_of(f, "weight", args[1])
        zx = input_of(f, "x_zero_point", args[2]) if len(args) > 2 else None
        zw = input_of(f, "weight_zero_point", args[3]) if len(args) > 3 else None
        y = output_of(f, "y", out[0])
        windows = windows_of(attrs, x.shape[2:], w.shape[2:])
        rank, groups = len(windows), attrs.groups
        split = None if groups == 1 else floordiv(w.shape[0], groups)
        shape = y.shape if split is None else (y.shape[0], groups, split, *y.shape[2:])
        total = y if split is None else f.temp("total", shape, "int32")

        def product(*i: Expr) -> Expr:
            points, c, k = i[-2 * rank - 1 : -rank - 1], i[-rank - 1], i[-rank:]
            source = c if split is None else i[1] * w.shape[1] + c
            o = i[1] if split is None else i[1] * split + i[2]
            at = tuple(window.place(p, t) for window, p, t in zip(windows, points, k, strict=True))
            inside = tuple(g for window, v in zip(windows, at, strict=True) for g in window.guard(v))
            left, right = cast(x.at((i[0], source, *at)), "int32"), cast(w.at((o, c, *k)), "int32")
            if zx is not None:
                left = left - cast(zx.at((const(0),) * len(zx.shape)), "int32")
            if zw is not None:
                right = right - cast(zw.at((bcast(o, zw.shape[0]),) if zw.shape else ()), "int32")
            return guarded(inside, left, const(0, "int32")) * right

        f.reduce(total, w.shape[1:], Combine.SUM, product)
        finish(f, total, None, y, split)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ConvAttrs) -> Array:
        """The reference of conv on the differences."""
        x, w = (a.astype(np.int32) for a in args[:2])
        if len(args) > 2:
            x = x - args[2].astype(np.int32).reshape(())
        if len(args) > 3:
            w = w - args[3].astype(np.int32).reshape(-1, *(1,) * (w.ndim - 1))
        return Conv().reference((x, w), attrs)


INTEGER: Final = (MatMulInteger(), ConvInteger())
