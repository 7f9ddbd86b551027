"""Reductions made of others: norms, sums of squares and exponentials, variance."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example
from relaxir.ops.common import FLOATS, compute_dtype, load_wide
from relaxir.ops.reduce import BAD_AXES, NUMBERS, Reduce, ReduceAttrs, Rows, count_expr, kept_of, reduce_examples
from relaxir.sym import DimLike
from relaxir.tir import Buffer, Combine, Expr, Intrinsic, ProgramBuilder, call, cast, const, maximum, select

NOT_FLOATS: Final = (*BAD_AXES, BadExample(("i32[n]",), "dtype-mismatch", "x must be one of"))
SOME_FLOATS: Final = reduce_examples("f32", "f64", "f16", "bf16")


class L1Norm(Reduce):
    """Sum of absolute values.

    0 of nothing; integers wrap. TVM: none, ONNX: ReduceL1.
    """

    name = "l1_norm"
    examples = NUMBERS
    bad_examples = BAD_AXES

    def start(self, x: Expr) -> Expr:
        """Absolute value."""
        return call(Intrinsic.ABS, x)

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """By its definition."""
        return np.asarray(np.sum(np.abs(x), axes, dtype=x.dtype, keepdims=keepdims))


class SumSquare(Reduce):
    """Sum of squares.

    0 of nothing; integers wrap. TVM: none, ONNX: ReduceSumSquare.
    """

    name = "sum_square"
    examples = NUMBERS
    bad_examples = BAD_AXES

    def start(self, x: Expr) -> Expr:
        """Square."""
        return x * x

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """By its definition."""
        return np.asarray(np.sum(x * x, axes, dtype=x.dtype, keepdims=keepdims))


class L2Norm(Reduce):
    """Square root of the sum of squares, on floats.

    0 of nothing. Not scaled: squares beyond the float range give inf. TVM: none, ONNX: ReduceL2.
    """

    name = "l2_norm"
    dtypes = FLOATS
    examples = SOME_FLOATS
    bad_examples = NOT_FLOATS

    def start(self, x: Expr) -> Expr:
        """Square."""
        return x * x

    def finish(self, acc: Expr, count: DimLike) -> Expr:
        """Root."""
        return call(Intrinsic.SQRT, acc)

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """By its definition."""
        return np.asarray(np.sqrt(np.sum(x * x, axes, keepdims=keepdims)))


class LogSum(Reduce):
    """Logarithm of the sum, on floats.

    -inf of nothing, NaN of a negative sum. TVM: none, ONNX: ReduceLogSum.
    """

    name = "log_sum"
    dtypes = FLOATS
    examples = reduce_examples("f32", "f64", "f16", low=0.1, high=4.0)
    bad_examples = NOT_FLOATS

    def finish(self, acc: Expr, count: DimLike) -> Expr:
        """Logarithm."""
        return call(Intrinsic.LOG, acc)

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """By its definition."""
        return np.asarray(np.log(np.sum(x, axes, keepdims=keepdims)))


class LogSumExp(Reduce):
    """``log(sum(e ** x))`` on floats, shifted by the largest element so that nothing overflows.

    -inf of nothing and of all -inf; inf if some element is inf; NaN wins. TVM: none, ONNX: ReduceLogSumExp.
    """

    name = "logsumexp"
    dtypes = FLOATS
    examples = (
        *SOME_FLOATS,
        Example(
            ("f32[4, 2]",),
            "f32[4]",
            ReduceAttrs((1,)),
            values=(((1000, 1000), (-np.inf, -np.inf), (np.inf, 0), (np.nan, 0)),),
        ),
    )
    bad_examples = NOT_FLOATS

    def stages(self, f: ProgramBuilder, x: Buffer, y: Buffer, rows: Rows, attrs: Any) -> None:
        """Row maximum, its finite form, sum of shifted exponentials, logarithm."""
        wide = compute_dtype(x.dtype)
        top, shift, total = (f.temp(n, rows.outer, wide) for n in ("top", "shift", "total"))
        k = len(rows.outer)
        f.reduce(top, rows.inner, Combine.MAX, lambda *i: load_wide(x, rows.full(i)))
        # an infinite maximum must not be subtracted: inf - inf is NaN where the answer is inf or -inf
        f.compute(shift, lambda *i: select(call(Intrinsic.ISINF, top[i]), const(0, wide), top[i]))
        f.reduce(
            total,
            rows.inner,
            Combine.SUM,
            lambda *i: call(Intrinsic.EXP_NONPOSITIVE, load_wide(x, rows.full(i)) - shift[i[:k]]),
        )
        row = kept_of(rows, y)
        f.compute(y, lambda *i: cast(call(Intrinsic.LOG, total[row(i)]) + shift[row(i)], y.dtype))

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """By the same shift."""
        top = np.max(x, axes, keepdims=True, initial=-np.inf)
        shift = np.where(np.isinf(top), x.dtype.type(0), top)
        total = np.log(np.sum(np.exp(x - shift), axes, keepdims=True)) + shift
        return np.asarray(total if keepdims else total.squeeze(axes))


@dataclass(frozen=True, slots=True)
class VarianceAttrs(ReduceAttrs):
    """Attributes of `Variance` and `Std`."""

    correction: int = 0
    """Subtracted from the count: 0 for the population's variance, 1 for the sample's."""


class Variance(Reduce):
    """Mean square distance from the mean, in two passes: ``sum((x - mean(x)) ** 2) / (count - correction)``.

    NaN of nothing. TVM: relax.variance, ONNX: none.
    """

    name = "variance"
    Attrs = VarianceAttrs
    dtypes = FLOATS
    examples = (
        Example(("f32[n, m]",), "f32[n]", VarianceAttrs((1,))),
        Example(("f64[n, 3, m]",), "f64[1, 3, 1]", VarianceAttrs((0, 2), keepdims=True)),
        Example(("f16[n, 4]",), "f16[]", VarianceAttrs()),
        Example(("bf16[n, 8]",), "bf16[n]", VarianceAttrs((-1,), correction=1)),
        Example(("f32[]",), "f32[]", VarianceAttrs()),
    )
    bad_examples = (BadExample(("i32[n]",), "dtype-mismatch", "x must be one of", VarianceAttrs()),)

    def last(self, v: Expr) -> Expr:
        """From the variance to the result."""
        return v

    def stages(self, f: ProgramBuilder, x: Buffer, y: Buffer, rows: Rows, attrs: Any) -> None:
        """Mean of rows, then mean of squares of distances."""
        wide = compute_dtype(x.dtype)
        mean = row_mean(f, x, rows)
        square = f.temp("square", rows.outer, wide)
        k = len(rows.outer)

        def distance(*i: Expr) -> Expr:
            d = load_wide(x, rows.full(i)) - mean[i[:k]]
            return d * d

        f.reduce(square, rows.inner, Combine.SUM, distance)
        row = kept_of(rows, y)
        many = count_expr(rows.count, wide) - float(attrs.correction)
        many = maximum(many, 0.0) if attrs.correction else many
        f.compute(y, lambda *i: cast(self.last(square[row(i)] / many), y.dtype))

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """np.var without its warnings."""
        mean = np.sum(x, axes, keepdims=True) / x.dtype.type(np.prod([x.shape[a] for a in axes]))
        count = x.dtype.type(max(0, int(np.prod([x.shape[a] for a in axes])) - attrs.correction))
        return np.asarray(np.sum((x - mean) ** 2, axes, keepdims=keepdims) / count)


class Std(Variance):
    """Square root of the variance.

    NaN of nothing. TVM: relax.std, ONNX: none.
    """

    name = "std"

    def last(self, v: Expr) -> Expr:
        """Root."""
        return call(Intrinsic.SQRT, v)

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """Root of the variance."""
        return np.asarray(np.sqrt(super().numpy(x, axes, keepdims, attrs)))


def row_mean(f: ProgramBuilder, x: Buffer, rows: Rows, name: str = "mean") -> Buffer:
    """Emit the mean of every row into a temporary shaped by the rows, in the compute type."""
    wide = compute_dtype(x.dtype)
    total, mean = (f.temp(n, rows.outer, wide) for n in (f"{name}_sum", name))
    f.reduce(total, rows.inner, Combine.SUM, lambda *i: load_wide(x, rows.full(i)))
    f.compute(mean, lambda *i: total[i] / count_expr(rows.count, wide))
    return mean


REDUCE_NORM: Final = (
    L1Norm(),
    SumSquare(),
    L2Norm(),
    LogSum(),
    LogSumExp(),
    Variance(),
    Std(),
)
