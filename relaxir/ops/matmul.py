"""Matrix products."""

from __future__ import annotations

from typing import Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import (
    NUMERIC,
    broadcast_read,
    check_dtype,
    check_same_dtype,
    compute_dtype,
    load_wide,
    tensors_of,
    widen,
)
from relaxir.sym import DimLike
from relaxir.tir import Buffer, Combine, Expr, PrimFunc, ProgramBuilder, cast


class MatMul(Op[Attrs]):
    """Matrix product with NumPy's batching: ``out[..., i, j] = sum over k of a[..., i, k] * b[..., k, j]``.

    Leading axes broadcast. A rank-1 operand is a row on the left and a column on the right, and its axis is dropped
    from the result. 16-bit floats accumulate in float32; integers wrap. An empty ``k`` gives 0. TVM: relax.matmul,
    ONNX: MatMul.
    """

    name = "matmul"
    params = (Param("a", "(..., m, k) or (k,)", NUMERIC), Param("b", "(..., k, n) or (k,)", NUMERIC))
    kind = OpKind.OUT_FUSABLE
    examples = (
        Example(("f32[n, 8]", "f32[8, m]"), "f32[n, m]"),
        Example(("f32[b, n, k]", "f32[b, k, m]"), "f32[b, n, m]"),
        Example(("f32[b, 1, n, 4]", "f32[3, 4, m]"), "f32[b, 3, n, m]"),
        Example(("f32[n]", "f32[n, m]"), "f32[m]"),
        Example(("f32[b, n, m]", "f32[m]"), "f32[b, n]"),
        Example(("f64[n]", "f64[n]"), "f64[]"),
        Example(("i32[n, k]", "i32[k, 3]"), "i32[n, 3]"),
        Example(("f16[n, 4]", "f16[4, m]"), "f16[n, m]"),
    )
    bad_examples = (
        BadExample(("f32[n, 4]", "f32[5, m]"), "shape-mismatch", "axis 1 of a and axis 0 of b"),
        BadExample(("f32[]", "f32[n]"), "rank-mismatch", "a has rank 0"),
        BadExample(("f32[n]", "f64[n]"), "dtype-mismatch", "a is float32 but b is float64"),
    )

    def infer(self, args: tuple[Type, ...], attrs: Attrs, ctx: InferCtx) -> Type:
        """Batch axes broadcast, the reduced extents must agree."""
        a, b = tensors_of(ctx, args, ("a", "b"))
        for t, name in ((a, "a"), (b, "b")):
            check_dtype(ctx, t, name, NUMERIC)
        check_same_dtype(ctx, (a, b), ("a", "b"))
        return TensorType(product_shape(ctx, a, b), a.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One contraction block, and a rounding one for 16-bit floats."""
        f = ProgramBuilder(self.name)
        a = f.input("a", args[0].shape, args[0].dtype)
        b = f.input("b", args[1].shape, args[1].dtype)
        y = f.output("y", out[0].shape, out[0].dtype)
        wide = compute_dtype(out[0].dtype)
        total = y if wide == y.dtype else f.temp("total", y.shape, wide)
        rows, columns = min(len(a.shape) - 1, 1), min(len(b.shape) - 1, 1)
        batch = y.shape[: len(y.shape) - rows - columns]

        def product(*point: Expr) -> Expr:
            i, k = point[:-1], point[-1]
            lead = i[: len(batch)]
            left = (*broadcast_batch(a.shape[:-2], lead, batch), *i[len(batch) : len(batch) + rows], k)
            right = (*broadcast_batch(b.shape[:-2], lead, batch), k, *i[len(batch) + rows :])
            return load_wide(a, left) * load_wide(b, right)

        f.reduce(total, (a.shape[-1],), Combine.SUM, product)
        if total is not y:
            f.compute(y, lambda *i: cast(total[i], y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """np.matmul, floats accumulated in double and rounded once."""
        return wide_matmul(args[0], args[1])


def product_shape(ctx: InferCtx, a: TensorType, b: TensorType) -> tuple[DimLike, ...]:
    """Shape of a matrix product: batch axes broadcast, the reduced extents must agree."""
    for t, name in ((a, "a"), (b, "b")):
        if not t.rank:
            ctx.fail(f"{name} has rank 0, a matrix product needs at least rank 1", code="rank-mismatch")
    row = max(b.rank - 2, 0)
    ctx.require_equal(a.shape[-1], b.shape[row], f"axis {a.rank - 1} of a and axis {row} of b")
    batch = ctx.broadcast((a.shape[:-2], b.shape[:-2]))
    return (*batch, *a.shape[-2:-1], *(b.shape[-1:] if b.rank > 1 else ()))


def broadcast_batch(have: tuple[DimLike, ...], index: tuple[Expr, ...], want: tuple[DimLike, ...]) -> tuple[Expr, ...]:
    """Indices of the leading axes of an operand for one point of the batch."""
    return broadcast_read(Buffer("batch", have, "float32"), index, want)  # only the shape is read


def wide_matmul(a: Array, b: Array) -> Array:
    """Product with float32 and narrower floats accumulated in double; the result has the operands' dtype."""
    if a.dtype.kind != "f":
        return np.asarray(np.matmul(a, b))
    with np.errstate(all="ignore"):
        return np.asarray(np.matmul(a.astype(np.float64), b.astype(np.float64))).astype(a.dtype)


class Linear(Op[Attrs]):
    """``x @ transpose(weight) + bias``: ``out[..., o] = sum over i of x[..., i] * weight[o, i] + bias[o]``.

    The weight has PyTorch's layout (out, in). TVM: relax.linear, ONNX: Gemm with transB.
    """

    name = "linear"
    params = (
        Param("x", "(..., in)", NUMERIC),
        Param("weight", "(out, in)", NUMERIC),
        Param("bias", "(out,)", NUMERIC, optional=True),
    )
    kind = OpKind.OUT_FUSABLE
    examples = (
        Example(("f32[n, 8]", "f32[6, 8]", "f32[6]"), "f32[n, 6]"),
        Example(("f32[b, n, 8]", "f32[m, 8]"), "f32[b, n, m]"),
    )
    bad_examples = (BadExample(("f32[n, 4]", "f32[6, 5]"), "shape-mismatch", "last axis of x and axis 1 of weight"),)

    def infer(self, args: tuple[Type, ...], attrs: Attrs, ctx: InferCtx) -> Type:
        """The last axis is replaced by the weight's first."""
        x, w = tensors_of(ctx, args[:2], ("x", "weight"))
        check_dtype(ctx, x, "x", NUMERIC)
        if w.rank != 2 or not x.rank:
            ctx.fail(f"x has rank {x.rank} and weight rank {w.rank}, expected at least 1 and 2", code="rank-mismatch")
        check_same_dtype(ctx, (x, w), ("x", "weight"))
        ctx.require_equal(x.shape[-1], w.shape[1], "last axis of x and axis 1 of weight")
        if len(args) > 2:
            bias = ctx.tensor(args, 2, "bias")
            if bias.rank != 1:
                ctx.fail(f"bias has rank {bias.rank}, expected 1", code="rank-mismatch")
            check_same_dtype(ctx, (x, bias), ("x", "bias"))
            ctx.require_equal(bias.shape[0], w.shape[0], "axis 0 of bias and axis 0 of weight")
        return TensorType((*x.shape[:-1], w.shape[0]), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """A contraction block, then the bias."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        w = f.input("weight", args[1].shape, args[1].dtype)
        bias = f.input("bias", args[2].shape, args[2].dtype) if len(args) > 2 else None
        y = f.output("y", out[0].shape, out[0].dtype)
        wide = compute_dtype(y.dtype)
        total = y if wide == y.dtype and bias is None else f.temp("total", y.shape, wide)
        f.reduce(total, (w.shape[1],), Combine.SUM, lambda *i: load_wide(x, (*i[:-2], i[-1])) * load_wide(w, i[-2:]))
        if total is not y:
            f.compute(y, lambda *i: cast(total[i] if bias is None else total[i] + load_wide(bias, i[-1:]), y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """Product in double, bias added in the compute type."""
        product = wide_matmul(args[0], np.swapaxes(args[1], 0, 1))
        return product if len(args) < 3 else (widen(product) + widen(args[2])).astype(product.dtype)


MATMUL: Final = (MatMul(), Linear())
