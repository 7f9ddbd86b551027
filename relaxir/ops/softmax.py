"""Softmax and its kin: row-wise operators that normalise exponentials along one axis."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.arg_reduce import find_places
from relaxir.ops.common import FLOATS, check_dtype, compute_dtype, load_wide, widen
from relaxir.ops.reduce import Rows
from relaxir.tir import (
    Buffer,
    Combine,
    Expr,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    call,
    cast,
    const,
    eq,
    identity,
    select,
)

ROWS_OF_H11: Final = ((1000, 1000), (-np.inf, 0), (-np.inf, -np.inf), (0, np.nan), (np.inf, 0))


@dataclass(frozen=True, slots=True)
class AxisAttrs(Attrs):
    """One axis."""

    axis: int = -1
    """The axis along which a row runs, negative from the end."""


class RowWise(Op[Any]):
    """Base of operators that map each row along one axis to a row; computed in float32 for 16-bit floats."""

    params = (Param("x", "rank 1 or more"),)
    Attrs = AxisAttrs
    kind = OpKind.OPAQUE
    examples: ClassVar[tuple[Example, ...]] = (
        Example(("f32[n, m]",), "f32[n, m]", AxisAttrs(), low=-9.0, high=9.0),
        Example(("f64[n, 3, m]",), "f64[n, 3, m]", AxisAttrs(1)),
        Example(("f16[n, 4]",), "f16[n, 4]", AxisAttrs(0)),
        Example(("bf16[n]",), "bf16[n]", AxisAttrs()),
        Example(("f32[5, 2]",), "f32[5, 2]", AxisAttrs(), values=(ROWS_OF_H11,)),
    )
    bad_examples: ClassVar[tuple[BadExample, ...]] = (
        BadExample(("f32[n, 4]",), "axis-range", "axis 2 is out of range for rank 2", AxisAttrs(2)),
        BadExample(("f32[]",), "axis-range", "axis -1 is out of range for rank 0", AxisAttrs()),
        BadExample(("i32[n]",), "dtype-mismatch", "x must be one of", AxisAttrs()),
    )

    def infer(self, args: tuple[Type, ...], attrs: Any, ctx: InferCtx) -> Type:
        """Type of the operand."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", FLOATS)
        ctx.axis(attrs.axis, x.rank)
        return x

    def stages(self, f: ProgramBuilder, x: Buffer, y: Buffer, rows: Rows, attrs: Any) -> None:
        """Emit the loops."""
        raise NotImplementedError

    def lower(self, args: tuple[TensorType, ...], attrs: Any, out: tuple[TensorType, ...]) -> PrimFunc:
        """Row reductions, then a stage over the elements."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        y = f.output("y", out[0].shape, out[0].dtype)
        self.stages(f, x, y, Rows(x.shape, (attrs.axis % args[0].rank,)), attrs)
        return f.build()

    def numpy(self, x: Array, axis: int, attrs: Any) -> Array:
        """Map rows in NumPy, in the compute type."""
        raise NotImplementedError

    def reference(self, args: tuple[Array, ...], attrs: Any) -> Array:
        """`numpy` of the widened operand."""
        return np.asarray(self.numpy(widen(args[0]), attrs.axis, attrs)).astype(args[0].dtype)


def row_max(f: ProgramBuilder, x: Buffer, rows: Rows) -> Buffer:
    """Emit the largest number of every row, in the compute type; -inf if there is none.

    NaN is passed over, which saves two of three instructions: the exponential of its difference is NaN, and the row's
    sum takes it up.
    """
    top = f.temp("top", rows.outer, compute_dtype(x.dtype))

    def number(*i: Expr) -> Expr:
        value = load_wide(x, rows.full(i))
        return select(call(Intrinsic.ISNAN, value), identity(Combine.MAX, value.dtype), value)

    f.reduce(top, rows.inner, Combine.MAX, number)
    return top


class Softmax(RowWise):
    """``e ** (x - max(x)) / sum(e ** (x - max(x)))`` along an axis.

    The shift by the row's maximum prevents overflow. A row that holds NaN, inf, or only -inf becomes NaN throughout
    (inf - inf and 0 / 0); a -inf beside finite values becomes 0. TVM: relax.nn.softmax, ONNX: Softmax.
    """

    name = "softmax"

    def stages(self, f: ProgramBuilder, x: Buffer, y: Buffer, rows: Rows, attrs: Any) -> None:
        """Row maximum; exponentials into the result (or a float32 temporary); row sum, its reciprocal; product."""
        wide = compute_dtype(x.dtype)
        top = row_max(f, x, rows)
        power = y if y.dtype == wide else f.temp("power", x.shape, wide)
        f.compute(power, lambda *i: call(Intrinsic.EXP_NONPOSITIVE, load_wide(x, i) - top[rows.row(i)]), "power")
        total, inverse = (f.temp(n, rows.outer, wide) for n in ("total", "inverse"))
        f.reduce(total, rows.inner, Combine.SUM, lambda *i: power.at(rows.full(i)))
        f.compute(inverse, lambda *i: const(1.0, wide) / total[i])  # one division per row: they are slow
        f.compute(y, lambda *i: cast(power.at(i) * inverse[rows.row(i)], y.dtype))

    def numpy(self, x: Array, axis: int, attrs: Any) -> Array:
        """By its definition."""
        power = np.exp(x - np.max(x, axis, keepdims=True, initial=-np.inf))
        return np.asarray(power / np.sum(power, axis, keepdims=True))


class LogSoftmax(RowWise):
    """``x - max(x) - log(sum(e ** (x - max(x))))`` along an axis: the logarithm of softmax, accurate for small ones.

    A row that holds NaN, inf, or only -inf becomes NaN throughout; a -inf beside finite values stays -inf.
    TVM: relax.nn.log_softmax, ONNX: LogSoftmax.
    """

    name = "log_softmax"

    def stages(self, f: ProgramBuilder, x: Buffer, y: Buffer, rows: Rows, attrs: Any) -> None:
        """Row maximum, row sum of exponentials, its logarithm, difference."""
        top = row_max(f, x, rows)
        total, log = (f.temp(n, rows.outer, top.dtype) for n in ("total", "log"))
        f.reduce(
            total,
            rows.inner,
            Combine.SUM,
            lambda *i: call(Intrinsic.EXP_NONPOSITIVE, load_wide(x, rows.full(i)) - top[i[:-1]]),
        )
        f.compute(log, lambda *i: call(Intrinsic.LOG, total[i]))
        f.compute(y, lambda *i: cast(load_wide(x, i) - top[rows.row(i)] - log[rows.row(i)], y.dtype))

    def numpy(self, x: Array, axis: int, attrs: Any) -> Array:
        """By its definition."""
        shifted = x - np.max(x, axis, keepdims=True, initial=-np.inf)
        return np.asarray(shifted - np.log(np.sum(np.exp(shifted), axis, keepdims=True)))


class Hardmax(RowWise):
    """1 at the first largest element along an axis, 0 elsewhere.

    A NaN counts as the largest, as in `argmax`. TVM: none, ONNX: Hardmax.
    """

    name = "hardmax"

    def stages(self, f: ProgramBuilder, x: Buffer, y: Buffer, rows: Rows, attrs: Any) -> None:
        """Place of the maximum, then a comparison."""
        place = f.temp("place", rows.outer, "int64")
        find_places(f, x, place, rows, Combine.MAX, last=False)
        one, zero = const(1, y.dtype), const(0, y.dtype)
        f.compute(y, lambda *i: select(eq(i[rows.axes[0]], place[rows.row(i)]), one, zero))

    def numpy(self, x: Array, axis: int, attrs: Any) -> Array:
        """Comparison with np.argmax."""
        if not x.size:
            return x
        places = np.arange(x.shape[axis]).reshape([-1 if a == axis % x.ndim else 1 for a in range(x.ndim)])
        return np.asarray(places == np.expand_dims(np.argmax(x, axis), axis))


@dataclass(frozen=True, slots=True)
class LpNormAttrs(AxisAttrs):
    """Attributes of `LpNormalization`."""

    p: int = 2
    """1 for the sum of absolute values, 2 for the Euclidean norm."""


class LpNormalization(RowWise):
    """``x / norm(x)`` along an axis, with the L1 or L2 norm.

    A row of zeros stays zero. TVM: none, ONNX: LpNormalization.
    """

    name = "lp_normalization"
    Attrs = LpNormAttrs
    examples = (
        Example(("f32[n, m]",), "f32[n, m]", LpNormAttrs()),
        Example(("f64[n, 3]",), "f64[n, 3]", LpNormAttrs(0, 1)),
        Example(("f16[n, 4]",), "f16[n, 4]", LpNormAttrs(1, 1)),
        Example(("f32[2, 2]",), "f32[2, 2]", LpNormAttrs(), values=(((0, 0), (3, 4)),)),
    )
    bad_examples = (
        BadExample(("f32[n]",), "attribute", "p must be 1 or 2, got 3", LpNormAttrs(p=3)),
        BadExample(("i32[n]",), "dtype-mismatch", "x must be one of", LpNormAttrs()),
    )

    def infer(self, args: tuple[Type, ...], attrs: Any, ctx: InferCtx) -> Type:
        """Type of the operand."""
        if attrs.p not in (1, 2):
            ctx.fail(f"p must be 1 or 2, got {attrs.p}", code="attribute")
        return super().infer(args, attrs, ctx)

    def stages(self, f: ProgramBuilder, x: Buffer, y: Buffer, rows: Rows, attrs: Any) -> None:
        """Row sum, norm, quotient."""
        total, norm = (f.temp(n, rows.outer, compute_dtype(x.dtype)) for n in ("total", "norm"))

        def term(*i: Expr) -> Expr:
            v = load_wide(x, rows.full(i))
            return v * v if attrs.p == 2 else call(Intrinsic.ABS, v)

        f.reduce(total, rows.inner, Combine.SUM, term)

        def length(*i: Expr) -> Expr:
            value = total[i] if attrs.p == 1 else call(Intrinsic.SQRT, total[i])
            return select(eq(total[i], 0.0), const(1, norm.dtype), value)

        f.compute(norm, length)
        f.compute(y, lambda *i: cast(load_wide(x, i) / norm[rows.row(i)], y.dtype))

    def numpy(self, x: Array, axis: int, attrs: Any) -> Array:
        """By its definition."""
        total = np.sum(np.abs(x) ** attrs.p, axis, keepdims=True)
        norm = total if attrs.p == 1 else np.sqrt(total)
        return np.asarray(x / np.where(norm == 0, 1, norm))


SOFTMAX: Final = (
    Softmax(),
    LogSoftmax(),
    Hardmax(),
    LpNormalization(),
)
