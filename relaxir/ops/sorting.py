"""Operators that put elements in order."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.expr import Array
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.common import NUMERIC
from relaxir.ops.kernels import assign, cell, check_index, input_of, loop, output_of, scoped, seq, when
from relaxir.ops.leading import find_leading
from relaxir.ops.merge import precedes, sorted_positions
from relaxir.ops.radix import sort_rows
from relaxir.sym import DimLike, dim
from relaxir.tir import Expr, If, PrimFunc, ProgramBuilder, Stmt, Store, as_expr, cast, const


@dataclass(frozen=True, slots=True)
class SortAttrs(BaseAttrs):
    """Sorted axis and direction."""

    axis: int = -1
    descending: bool = False


def _axis(x: TensorType, axis: int, ctx: InferCtx) -> int:
    if not x.rank:
        ctx.fail("a scalar has no axis to sort along", code="axis-range")
    return ctx.axis(axis, x.rank)


def _along(row: tuple[Expr, ...], place: Expr, axis: int) -> tuple[Expr, ...]:
    """Indices of the element at a place of a row along an axis."""
    return (*row[:axis], place, *row[axis:])


class Sort(Op[SortAttrs]):
    """Elements in order along ``axis``: ascending, or descending.

    Stable. NaN counts as larger than every number: last ascending, first descending; -0.0 equals 0.0. Every dtype.
    TVM: relax.sort, ONNX: none (TopK).
    """

    name = "sort"
    moves = True
    Attrs = SortAttrs
    examples = (
        Example(("f32[n, 4]",), "f32[n, 4]", SortAttrs()),
        Example(("i8[n, 3]",), "i8[n, 3]", SortAttrs(0, True), low=-3, high=3),
        Example(("f64[4]",), "f64[4]", SortAttrs(), values=([2.0, float("nan"), -1.0, 0.0],)),
        Example(("bool[n]",), "bool[n]", SortAttrs()),
    )
    bad_examples = (BadExample(("f32[]",), "axis-range", "scalar", SortAttrs()),)

    def infer(self, args: tuple[Type, ...], attrs: SortAttrs, ctx: InferCtx) -> Type:
        """Type of x."""
        x = ctx.tensor(args, 0, "x")
        _axis(x, attrs.axis, ctx)
        return x

    def lower(self, args: tuple[TensorType, ...], attrs: SortAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Sort rows, take the elements."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        axis = attrs.axis % args[0].rank

        def write(row: tuple[Expr, ...], rank: Expr, place: Expr) -> Stmt:
            return Store(y, _along(row, rank, axis), x.at(_along(row, place, axis)))

        sort_rows(f, x, axis, attrs.descending, x.shape[axis], write)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: SortAttrs) -> Array:
        """By the stable order."""
        return np.take_along_axis(args[0], sorted_positions(args[0], attrs.axis, attrs.descending), attrs.axis)


class Argsort(Op[SortAttrs]):
    """Positions (int64) that put the elements along ``axis`` in order; equal elements keep theirs.

    NaN as in `Sort`. TVM: relax.argsort, ONNX: none (TopK).
    """

    name = "argsort"
    Attrs = SortAttrs
    examples = (
        Example(("f32[n, 4]",), "i64[n, 4]", SortAttrs()),
        Example(("i8[n, 3]",), "i64[n, 3]", SortAttrs(0, True), low=-3, high=3),
    )
    bad_examples = (BadExample(("f32[n]",), "axis-range", "axis 1", SortAttrs(1)),)

    def infer(self, args: tuple[Type, ...], attrs: SortAttrs, ctx: InferCtx) -> Type:
        """Shape of x in int64."""
        x = ctx.tensor(args, 0, "x")
        _axis(x, attrs.axis, ctx)
        return TensorType(x.shape, "int64")

    def lower(self, args: tuple[TensorType, ...], attrs: SortAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Sort rows, take the positions."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        axis = attrs.axis % args[0].rank

        def write(row: tuple[Expr, ...], rank: Expr, place: Expr) -> Stmt:
            return Store(y, _along(row, rank, axis), place)

        sort_rows(f, x, axis, attrs.descending, x.shape[axis], write)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: SortAttrs) -> Array:
        """The stable order."""
        return sorted_positions(args[0], attrs.axis, attrs.descending)


class TopK(Op["TopK.Attrs"]):
    """The ``k`` largest (or smallest) elements along ``axis`` in order, and their positions (int64).

    Of equal elements the earlier comes first. NaN counts as larger than every number: it is among the largest, and
    last of the smallest. ``k`` is any dim with ``0 <= k <= d`` (checked at run time where unknown). Results are
    always sorted. TVM: relax.topk, ONNX: TopK.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """How many, where, which end."""

        k: DimLike
        axis: int = -1
        largest: bool = True

    name = "topk"
    params = (Param("x", "numbers", NUMERIC),)
    examples = (
        Example(("f32[n, 7]",), ("f32[n, 3]", "i64[n, 3]"), Attrs(3)),
        Example(("i32[5, n]",), ("i32[2, n]", "i64[2, n]"), Attrs(2, 0, False), low=-2, high=2),
        Example(("f32[n + 1]",), ("f32[n]", "i64[n]"), Attrs(dim("n"))),
        Example(("f32[3]",), ("f32[2]", "i64[2]"), Attrs(2), values=([1.0, float("nan"), 2.0],)),
    )
    bad_examples = (
        BadExample(("f32[n, 2]",), "shape-mismatch", "k and extent", Attrs(3)),
        BadExample(("f32[]",), "axis-range", "scalar", Attrs(1)),
    )

    def infer(self, args: tuple[Type, ...], attrs: TopK.Attrs, ctx: InferCtx) -> Type:
        """Values and positions with the axis cut to k."""
        x = ctx.tensor(args, 0, "x")
        if x.dtype == "bool":
            ctx.fail("x must be numbers, got bool", code="dtype-mismatch")
        axis = _axis(x, attrs.axis, ctx)
        ctx.require_at_least(0, attrs.k, "k")
        ctx.require_le(attrs.k, x.shape[axis], f"k and extent of axis {axis}")
        shape = (*x.shape[:axis], attrs.k, *x.shape[axis + 1 :])
        return TupleType((TensorType(shape, x.dtype), TensorType(shape, "int64")))

    def lower(self, args: tuple[TensorType, ...], attrs: TopK.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """A pass over the row that keeps the best so far: see `relaxir.ops.leading`."""
        f = ProgramBuilder(self.name)
        x = input_of(f, "x", args[0])
        values, positions = output_of(f, "values", out[0]), output_of(f, "positions", out[1])
        find_leading(f, x, attrs.axis % args[0].rank, attrs.largest, values, positions)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: TopK.Attrs) -> tuple[Array, ...]:
        """The front of the stable order."""
        order = sorted_positions(args[0], attrs.axis, attrs.largest)
        front = np.take(order, np.arange(int(attrs.k)), attrs.axis)
        return np.take_along_axis(args[0], front, attrs.axis), front


class Searchsorted(Op["Searchsorted.Attrs"]):
    """Position of each of ``values`` in the ascending vector ``edges``, by bisection: ``edges[p - 1] < v <= edges[p]``.

    With ``right`` equal edges stay on the left: ``edges[p - 1] <= v < edges[p]``. NaN counts as larger than every
    number. One dtype; int64 result. TVM: relax.bucketize, ONNX: none.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Side of equal edges."""

        right: bool = False

    name = "searchsorted"
    params = (Param("edges", "ascending vector"), Param("values", "any shape"))
    examples = (
        Example(("f32[4]", "f32[n]"), "i64[n]", values=([-1.0, 0.0, 0.0, 1.0], None)),
        Example(("i64[3]", "i64[n, 2]"), "i64[n, 2]", Attrs(True), values=([-1, 0, 1], None)),
        Example(("f32[0]", "f32[]"), "i64[]"),
    )
    bad_examples = (
        BadExample(("f32[2, 2]", "f32[n]"), "rank-mismatch", "edges"),
        BadExample(("f32[2]", "f64[n]"), "dtype-mismatch", "values"),
    )

    def infer(self, args: tuple[Type, ...], attrs: Searchsorted.Attrs, ctx: InferCtx) -> Type:
        """Shape of values in int64."""
        edges, values = ctx.tensor(args, 0, "edges"), ctx.tensor(args, 1, "values")
        if edges.rank != 1:
            ctx.fail(f"edges must have rank 1, got {edges.rank}", code="rank-mismatch")
        if edges.dtype != values.dtype:
            ctx.fail(f"values are {values.dtype}, edges {edges.dtype}", code="dtype-mismatch")
        return TensorType(values.shape, "int64")

    def lower(self, args: tuple[TensorType, ...], attrs: Searchsorted.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Bisection: 63 halvings end for every size."""
        f = ProgramBuilder(self.name)
        edges, values, y = input_of(f, "edges", args[0]), input_of(f, "values", args[1]), output_of(f, "y", out[0])

        def search(*i: Expr) -> Any:
            low, high = cell("low"), cell("high")
            middle = (low[()] + high[()]) // 2

            def halve(_: Expr) -> Any:
                edge, value = edges[middle], values.at(i)
                up, down = assign(low, middle + 1), assign(high, middle)
                turn = If(precedes(value, edge), down, up) if attrs.right else If(precedes(edge, value), up, down)
                return when(low[()] < high[()], turn)

            start = (assign(low, 0), assign(high, as_expr(edges.shape[0])))
            return scoped((low, high), *start, loop("step", 63, halve), Store(y, i, low[()]))

        f.block("search", y.shape, search)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Searchsorted.Attrs) -> Array:
        """np.searchsorted."""
        return np.asarray(np.searchsorted(args[0], args[1], "right" if attrs.right else "left"))


class Bincount(Op["Bincount.Attrs"]):
    """How often each of ``0 .. size-1`` occurs in a tensor of indices, as int64.

    Others fail the call (``runtime-index``), negative ones count from the end. TVM: none, ONNX: none (NumPy bincount).
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Number of bins; any dim."""

        size: DimLike

    name = "bincount"
    params = (Param("x", "vector of indices", ("int32", "int64")),)
    examples = (
        Example(("i64[n]",), "i64[4]", Attrs(4), low=0, high=3),
        Example(("i32[n]",), "i64[n + 9]", Attrs(dim("n") + 9), low=0, high=8),
    )
    bad_examples = (BadExample(("f32[n]",), "dtype-mismatch", "int32 or int64", Attrs(4)),)

    def infer(self, args: tuple[Type, ...], attrs: Bincount.Attrs, ctx: InferCtx) -> Type:
        """One count per bin."""
        x = ctx.tensor(args, 0, "x")
        if x.dtype not in ("int32", "int64"):
            ctx.fail(f"x must be int32 or int64, got {x.dtype}", code="dtype-mismatch")
        if x.rank != 1:
            ctx.fail(f"x must have rank 1, got {x.rank}", code="rank-mismatch")
        ctx.require_at_least(0, attrs.size, "size")
        return TensorType((attrs.size,), "int64")

    def positions(self, args: tuple[GraphExpr, ...], attrs: Bincount.Attrs) -> Mapping[int, DimLike]:
        """The bins."""
        return {0: attrs.size}

    def lower(self, args: tuple[TensorType, ...], attrs: Bincount.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Zeros, then one serial pass."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        f.compute(y, lambda i: const(0), "zero")

        def count(i: Expr) -> Any:
            wide = cast(x[i], "int64")
            at = wide % as_expr(attrs.size)
            return seq(check_index(self.name, x[i], attrs.size, 0), Store(y, (at,), y[at] + 1))

        f.block("count", (), lambda: loop("i", x.shape[0], count))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Bincount.Attrs) -> Array:
        """np.bincount."""
        return np.bincount(args[0] % max(int(attrs.size), 1), minlength=int(attrs.size)).astype(np.int64)


SORTING: Final[tuple[Op[Any], ...]] = (Sort(), Argsort(), TopK(), Searchsorted(), Bincount())
