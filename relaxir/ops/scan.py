"""Running sums and products along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import NUMERIC, check_dtype, compute_dtype, load_wide, widen
from relaxir.ops.reduce import Rows
from relaxir.tir import (
    Alloc,
    BinOp,
    Buffer,
    Expr,
    For,
    PrimFunc,
    ProgramBuilder,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
    binary,
    cast,
    const,
)


@dataclass(frozen=True, slots=True)
class ScanAttrs(Attrs):
    """Attributes of running reductions."""

    axis: int = 0
    exclusive: bool = False
    """Leave the element itself out: the first result is the neutral element."""
    reverse: bool = False
    """Run from the end of the axis."""


class Scan(Op[Any]):
    """Base of running reductions: a serial loop along the axis, independent for all others.

    The accumulator is a 32-bit float for 16-bit floats.
    """

    params = (Param("x", "rank 1 or more"),)
    Attrs = ScanAttrs
    kind = OpKind.OPAQUE
    op: ClassVar[BinOp]
    start: ClassVar[int]
    ufunc: ClassVar[np.ufunc]
    examples = (
        Example(("f32[n, m]",), "f32[n, m]", ScanAttrs(1), low=-1.0, high=1.0),
        Example(("i32[n, 2, m]",), "i32[n, 2, m]", ScanAttrs(-3, exclusive=True)),
        Example(("u8[n, 3]",), "u8[n, 3]", ScanAttrs(0, reverse=True)),
        Example(("f16[n]",), "f16[n]", ScanAttrs(0, exclusive=True, reverse=True), low=-1.0, high=1.0),
        Example(("bf16[n, 2]",), "bf16[n, 2]", ScanAttrs(0), low=-1.0, high=1.0),
        Example(("f64[n]",), "f64[n]", ScanAttrs(), low=-1.0, high=1.0),
    )
    bad_examples = (
        BadExample(("f32[n]",), "axis-range", "axis 1 is out of range for rank 1", ScanAttrs(1)),
        BadExample(("f32[]",), "axis-range", "axis 0 is out of range for rank 0", ScanAttrs(0)),
        BadExample(("bool[n]",), "dtype-mismatch", "x must be one of", ScanAttrs()),
    )

    def infer(self, args: tuple[Type, ...], attrs: ScanAttrs, ctx: InferCtx) -> Type:
        """Type of the operand."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", NUMERIC)
        ctx.axis(attrs.axis, x.rank)
        return x

    def lower(self, args: tuple[TensorType, ...], attrs: ScanAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One stage over the other axes, whose body walks the axis."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        y = f.output("y", out[0].shape, out[0].dtype)
        rows = Rows(x.shape, (attrs.axis % args[0].rank,))

        def line(*i: Expr) -> Stmt:
            acc = Buffer("acc", (), compute_dtype(x.dtype), Scope.STACK)
            k = Var("k")
            extent = as_expr(rows.inner[0])
            at = rows.full((*i, extent - 1 - k if attrs.reverse else k))
            update = Store(acc, (), binary(self.op, acc[()], load_wide(x, at)))
            write = Store(y, at, cast(acc[()], y.dtype))
            steps = (write, update) if attrs.exclusive else (update, write)
            return Alloc(acc, Seq((Store(acc, (), const(self.start, acc.dtype)), For(k, extent, Seq(steps)))))

        f.block("y", rows.outer, line)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ScanAttrs) -> Array:
        """ufunc.accumulate of the axis, turned and shifted as asked."""
        x = widen(args[0])
        line = np.flip(x, attrs.axis) if attrs.reverse else x
        done = np.asarray(self.ufunc.accumulate(line, attrs.axis, dtype=x.dtype))
        if attrs.exclusive and x.shape[attrs.axis]:
            done = np.roll(done, 1, attrs.axis)
            np.moveaxis(done, attrs.axis, 0)[0] = self.start
        return (np.flip(done, attrs.axis) if attrs.reverse else done).astype(args[0].dtype)


class CumSum(Scan):
    """Running sum along an axis: ``y[k] = x[0] + ... + x[k]``.

    ``exclusive`` leaves x[k] out, ``reverse`` sums from the end. Integers wrap. TVM: relax.cumsum, ONNX: CumSum.
    """

    name = "cumsum"
    op = BinOp.ADD
    start = 0
    ufunc = np.add


class CumProd(Scan):
    """Running product along an axis: ``y[k] = x[0] * ... * x[k]``.

    ``exclusive`` leaves x[k] out, ``reverse`` multiplies from the end. Integers wrap.
    TVM: relax.cumprod, ONNX: CumProd.
    """

    name = "cumprod"
    op = BinOp.MUL
    start = 1
    ufunc = np.multiply


SCAN: Final = (
    CumSum(),
    CumProd(),
)
