"""Reductions over any set of axes: sum, product, extrema, means, norms."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.common import BOOL, FLOATS, NUMERIC, check_dtype, compute_dtype, load_wide, widen
from relaxir.sym import DimLike, is_const, product
from relaxir.tir import (
    BinOp,
    Buffer,
    Combine,
    Expr,
    PrimFunc,
    ProgramBuilder,
    as_expr,
    binary,
    cast,
    const,
    eq,
    select,
)


@dataclass(frozen=True, slots=True)
class ReduceAttrs(Attrs):
    """Attributes of reductions; an int for ``axes`` is one axis."""

    axes: tuple[int, ...] | None = None
    """Axes to reduce, negative ones from the end; None is all of them, () none."""
    keepdims: bool = False
    """Keep reduced axes with extent 1."""


def reduced_axes(ctx: InferCtx, axes: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """Normalised axes in increasing order, or an error for one out of range or given twice."""
    if axes is None:
        return tuple(range(rank))
    found = tuple(sorted(ctx.axis(a, rank) for a in axes))
    if len(set(found)) != len(found):
        ctx.fail(f"axes {axes} name one axis twice", code="attribute")
    return found


def known_axes(axes: tuple[int, ...] | None, rank: int) -> tuple[int, ...]:
    """`reduced_axes` after inference has accepted them."""
    return tuple(range(rank)) if axes is None else tuple(sorted(a % rank for a in axes))


def reduced_shape(shape: Sequence[DimLike], axes: Sequence[int], keepdims: bool) -> tuple[DimLike, ...]:
    """Shape without the axes, or with 1 in their place."""
    return tuple(1 if i in axes else d for i, d in enumerate(shape) if keepdims or i not in axes)


class Rows:
    """The split of a tensor's axes into kept and reduced ones: index arithmetic shared by all row-wise operators."""

    def __init__(self, shape: Sequence[DimLike], axes: Sequence[int]) -> None:
        self.shape = tuple(shape)
        self.axes = tuple(axes)
        self.kept = tuple(i for i in range(len(self.shape)) if i not in self.axes)
        self.outer = tuple(self.shape[i] for i in self.kept)
        self.inner = tuple(self.shape[i] for i in self.axes)

    @property
    def count(self) -> DimLike:
        """Elements in one row."""
        return product(self.inner)

    def full(self, vars: Sequence[Expr]) -> tuple[Expr, ...]:
        """Index of the tensor from the kept variables followed by the reduced ones."""
        by_axis = dict(zip((*self.kept, *self.axes), vars, strict=True))
        return tuple(by_axis[i] for i in range(len(self.shape)))

    def row(self, index: Sequence[Expr]) -> tuple[Expr, ...]:
        """Index of the row that an element of the tensor belongs to."""
        return tuple(index[i] for i in self.kept)

    def place(self, index: Sequence[Expr]) -> tuple[Expr, ...]:
        """Index within the row."""
        return tuple(index[i] for i in self.axes)


class Reduce(Op[Any]):
    """Base of reductions: ``finish(combine over the axes of start(x))``.

    The accumulator is a 32-bit float for 16-bit floats. Rank 0 and an empty list of axes reduce single elements.
    """

    params = (Param("x", "any shape"),)
    Attrs = ReduceAttrs
    kind = OpKind.REDUCE
    dtypes: ClassVar[tuple[str, ...]] = NUMERIC
    combine: ClassVar[Combine] = Combine.SUM

    def infer(self, args: tuple[Type, ...], attrs: ReduceAttrs, ctx: InferCtx) -> Type:
        """Shape without the axes (or 1 in their place), the operand's dtype."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", self.dtypes)
        return TensorType(reduced_shape(x.shape, reduced_axes(ctx, attrs.axes, x.rank), attrs.keepdims), x.dtype)

    def start(self, x: Expr) -> Expr:
        """Map one element to what is combined."""
        return x

    def finish(self, acc: Expr, count: DimLike) -> Expr:
        """Map what was combined of ``count`` elements to the result; return ``acc`` itself for the identity."""
        return acc

    def lower(self, args: tuple[TensorType, ...], attrs: ReduceAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Reduce, then run a stage for `finish` where there is something to do."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        y = f.output("y", out[0].shape, out[0].dtype)
        rows = Rows(x.shape, known_axes(attrs.axes, args[0].rank))
        self.stages(f, x, y, rows, attrs)
        return f.build()

    def stages(self, f: ProgramBuilder, x: Buffer, y: Buffer, rows: Rows, attrs: Any) -> None:
        """Emit the loops."""
        wide = compute_dtype(x.dtype)
        probe = const(0, wide)
        row = kept_of(rows, y)
        if wide == y.dtype and self.finish(probe, rows.count) is probe:
            n = len(y.shape)
            f.reduce(y, rows.inner, self.combine, lambda *i: self.start(x.at(rows.full((*row(i[:n]), *i[n:])))))
            return
        acc = f.temp("acc", rows.outer, wide)
        f.reduce(acc, rows.inner, self.combine, lambda *i: self.start(load_wide(x, rows.full(i))))
        f.compute(y, lambda *i: cast(self.finish(acc.at(row(i)), rows.count), y.dtype))

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """Reduce in NumPy, in the accumulator's type."""
        raise NotImplementedError

    def reference(self, args: tuple[Array, ...], attrs: ReduceAttrs) -> Array:
        """`numpy` over the widened operand."""
        x = args[0]
        axes = known_axes(attrs.axes, x.ndim)
        return np.asarray(self.numpy(widen(x), axes, attrs.keepdims, attrs)).astype(x.dtype)


def kept_of(rows: Rows, y: Buffer) -> Any:
    """Row index from an index of the result, which may have kept the reduced axes as 1."""
    keepdims = len(y.shape) == len(rows.shape)
    return lambda i: tuple(i[a] for a in rows.kept) if keepdims else tuple(i[: len(rows.kept)])


def reduce_examples(*dtypes: str, low: float = -2.0, high: float = 2.0) -> tuple[Example, ...]:
    """Examples: one axis, inner and outer axes, all, none, kept axes, rank 0, each dtype."""
    d, *more = dtypes

    def case(x: str, y: str, dtype: str = d, axes: tuple[int, ...] | None = None, keepdims: bool = False) -> Example:
        return Example((f"{dtype}[{x}]",), f"{dtype}[{y}]", ReduceAttrs(axes, keepdims), low=low, high=high)

    return (
        case("n, m", "n", axes=(-1,)),
        case("n, m, 2", "m", axes=(0, 2)),
        case("n, 3, m", "n, 1, 1", axes=(2, 1), keepdims=True),
        case("n, 4", ""),
        case("n", "n", axes=()),
        case("", ""),
        *(case("n, m", "m", dtype, axes=(0,)) for dtype in more),
    )


BAD_AXES: Final = (
    BadExample(("f32[n, 4]",), "axis-range", "axis 2 is out of range for rank 2", ReduceAttrs((2,))),
    BadExample(("f32[n, 4]",), "attribute", "name one axis twice", ReduceAttrs((0, -2))),
)
NUMBERS: Final = reduce_examples("f32", "f64", "f16", "bf16", "i32", "u8")


class Sum(Reduce):
    """Sum of elements.

    Nothing sums to 0; integers wrap. TVM: relax.sum, ONNX: ReduceSum.
    """

    name = "sum"
    examples = NUMBERS
    bad_examples = (*BAD_AXES, BadExample(("bool[n]",), "dtype-mismatch", "x must be one of"))

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """np.sum in the operand's dtype."""
        return np.asarray(np.sum(x, axes, dtype=x.dtype, keepdims=keepdims))


class Prod(Reduce):
    """Product of elements.

    Nothing gives 1; integers wrap. TVM: relax.prod, ONNX: ReduceProd.
    """

    name = "prod"
    combine = Combine.PROD
    examples = NUMBERS
    bad_examples = BAD_AXES

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """np.prod in the operand's dtype."""
        return np.asarray(np.prod(x, axes, dtype=x.dtype, keepdims=keepdims))


def lowest(dtype: np.dtype[Any], highest: bool) -> Any:
    """Smallest (or largest) value of a dtype: the infinities for floats."""
    if dtype.kind == "f":
        return np.inf if highest else -np.inf
    if dtype.kind == "b":
        return highest
    limits = np.iinfo(dtype)
    return limits.max if highest else limits.min


class Max(Reduce):
    """Largest element.

    A NaN anywhere in a row gives NaN. Nothing gives -inf, or the smallest integer. On bool it is `any`.
    TVM: relax.max, ONNX: ReduceMax.
    """

    name = "max"
    dtypes = (*NUMERIC, *BOOL)
    combine = Combine.MAX
    examples = (*NUMBERS, Example(("bool[n, m]",), "bool[n]", ReduceAttrs((1,))))
    bad_examples = BAD_AXES

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """np.max with an initial value for empty rows."""
        return np.asarray(np.max(x, axes, keepdims=keepdims, initial=lowest(x.dtype, False)))


class Min(Reduce):
    """Smallest element.

    A NaN anywhere in a row gives NaN. Nothing gives inf, or the largest integer. On bool it is `all`.
    TVM: relax.min, ONNX: ReduceMin.
    """

    name = "min"
    dtypes = (*NUMERIC, *BOOL)
    combine = Combine.MIN
    examples = (*NUMBERS, Example(("bool[n, m]",), "bool[n]", ReduceAttrs((1,))))
    bad_examples = BAD_AXES

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """np.min with an initial value for empty rows."""
        return np.asarray(np.min(x, axes, keepdims=keepdims, initial=lowest(x.dtype, True)))


LONG_ROW: Final = 64
"""Elements of a row from which an extremum of everything is found row by row."""


class MinMax(Op[ReduceAttrs]):
    """Smallest and largest element, found in one pass: results (low, high).

    Each is what `Min` and `Max` give, NaN and nothing included. TVM: none (relax.min and relax.max), ONNX: none
    (DynamicQuantizeLinear is made of it).
    """

    name = "min_max"
    params = (Param("x", "any shape", NUMERIC),)
    Attrs = ReduceAttrs
    kind = OpKind.REDUCE
    examples = (
        Example(("f32[n, m]",), ("f32[n]", "f32[n]"), ReduceAttrs((-1,))),
        Example(("f32[n, 3, m]",), ("f32[n, 1, 1]", "f32[n, 1, 1]"), ReduceAttrs((2, 1), keepdims=True)),
        Example(("f32[n, m, 70]",), ("f32[]", "f32[]")),
        Example(("f16[n, 3, 65]",), ("f16[3]", "f16[3]"), ReduceAttrs((0, 2))),
        Example(("i8[n]",), ("i8[]", "i8[]"), low=-128, high=127),
        Example(("bf16[n, 2]",), ("bf16[n, 2]", "bf16[n, 2]"), ReduceAttrs(())),
        Example(("f64[]",), ("f64[]", "f64[]")),
    )
    bad_examples = (*BAD_AXES, BadExample(("bool[n]",), "dtype-mismatch", "x must be one of"))

    def infer(self, args: tuple[Type, ...], attrs: ReduceAttrs, ctx: InferCtx) -> Type:
        """Two of what `Min` gives."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", NUMERIC)
        shape = reduced_shape(x.shape, reduced_axes(ctx, attrs.axes, x.rank), attrs.keepdims)
        return TupleType((TensorType(shape, x.dtype),) * 2)

    def lower(self, args: tuple[TensorType, ...], attrs: ReduceAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Two reductions over the same elements; long rows first, where more axes than the last are reduced."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        outs = [f.output(n, t.shape, t.dtype) for n, t in zip(("low", "high"), out, strict=True)]
        rows, ends = Rows(x.shape, known_axes(attrs.axes, args[0].rank)), (Combine.MIN, Combine.MAX)
        row, n, wide = kept_of(rows, outs[0]), len(outs[0].shape), compute_dtype(x.dtype)
        totals = outs if wide == x.dtype else [f.temp(f"{y.name}_wide", y.shape, wide) for y in outs]
        *front, last = rows.axes or (-1,)
        long = is_const(x.shape[last]) and int(x.shape[last]) >= LONG_ROW if front else False
        if long and last == len(x.shape) - 1:
            parts = [f.temp(f"{y.name}s", x.shape[:-1], wide) for y in outs]
            for part, how in zip(parts, ends, strict=True):
                f.reduce(part, x.shape[-1:], how, lambda *i: load_wide(x, i))
            within = Rows(x.shape[:-1], front)
            for y, part, how in zip(totals, parts, ends, strict=True):
                f.reduce(y, within.inner, how, lambda *i, part=part: part.at(within.full((*row(i[:n]), *i[n:]))))
        else:
            for y, how in zip(totals, ends, strict=True):
                f.reduce(y, rows.inner, how, lambda *i: load_wide(x, rows.full((*row(i[:n]), *i[n:]))))
        if totals is not outs:
            for y, total in zip(outs, totals, strict=True):
                f.compute(y, lambda *i, y=y, total=total: cast(total.at(i), y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ReduceAttrs) -> tuple[Array, ...]:
        """`Min` and `Max`."""
        return Min().reference(args, attrs), Max().reference(args, attrs)


class All(Reduce):
    """Whether every element is true.

    True of nothing. TVM: none (relax.min), ONNX: ReduceMin on bool.
    """

    name = "all"
    dtypes = BOOL
    combine = Combine.AND
    examples = reduce_examples("bool")
    bad_examples = (BadExample(("f32[n]",), "dtype-mismatch", "x must be one of"),)

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """np.all."""
        return np.asarray(np.all(x, axes, keepdims=keepdims))


class Any_(Reduce):  # noqa: N801  # `Any` is the type
    """Whether some element is true.

    False of nothing. TVM: none (relax.max), ONNX: ReduceMax on bool.
    """

    name = "any"
    dtypes = BOOL
    combine = Combine.OR
    examples = reduce_examples("bool")
    bad_examples = (BadExample(("f32[n]",), "dtype-mismatch", "x must be one of"),)

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """np.any."""
        return np.asarray(np.any(x, axes, keepdims=keepdims))


def count_expr(count: DimLike, dtype: str) -> Expr:
    """Return the number of elements as a scalar of ``dtype``."""
    return const(count, dtype) if isinstance(count, int) else as_expr(count, dtype)


class Mean(Reduce):
    """Arithmetic mean.

    The mean of nothing is NaN (0 / 0), as in NumPy. Integers: the sum wraps, the quotient rounds to zero, and the mean
    of nothing is 0. TVM: relax.mean, ONNX: ReduceMean.
    """

    name = "mean"
    examples = NUMBERS
    bad_examples = BAD_AXES

    def finish(self, acc: Expr, count: DimLike) -> Expr:
        """Quotient by the count."""
        if acc.dtype in FLOATS:
            return acc / count_expr(count, acc.dtype)
        # counted in int64: a count does not fit every integer type
        total, many = cast(acc, "int64"), as_expr(count)
        return cast(select(eq(many, 0), const(0), binary(BinOp.TRUNCDIV, total, many)), acc.dtype)

    def numpy(self, x: Array, axes: tuple[int, ...], keepdims: bool, attrs: Any) -> Array:
        """Sum over count."""
        total = np.sum(x, axes, dtype=x.dtype, keepdims=keepdims)
        count = int(np.prod([x.shape[a] for a in axes]))
        if x.dtype.kind == "f":
            return np.asarray(total / x.dtype.type(count))
        return np.asarray(np.trunc(total / max(count, 1)))


REDUCE: Final = (Sum(), Prod(), Max(), Min(), MinMax(), All(), Any_(), Mean())
