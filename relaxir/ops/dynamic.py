"""Operators whose result sizes depend on data: one kernel counts, the host reads the count, another kernel fills."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, TupleExpr, TupleGetItem
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.creation import read_size
from relaxir.ops.gathering import Take
from relaxir.ops.kernels import assign, cell, emit_op, input_of, loop, nest, output_of, scoped, seq, when
from relaxir.ops.merge import merge_sort, precedes
from relaxir.ops.movement import Reshape, Squeeze
from relaxir.ops.radix import sort_rows
from relaxir.ops.slicing import StridedSlice
from relaxir.sym import DimLike, product
from relaxir.tir import (
    Assert,
    Buffer,
    Combine,
    Expr,
    If,
    PrimFunc,
    ProgramBuilder,
    Stmt,
    Store,
    as_expr,
    cast,
    const,
    eq,
    ne,
    select,
)


def tensor_type(value: GraphExpr) -> TensorType:
    """Type of an operand that is a tensor."""
    assert isinstance(value.type, TensorType)
    return value.type


def fresh_size(ctx: InferCtx, name: str, most: DimLike) -> DimLike:
    """A fresh size of at most ``most``, as far as a constant bound of it is known; 0 where only that is possible."""
    high = ctx.facts.bounds(most)[1]
    return 0 if high == 0 else ctx.fresh(name, max=high)


def first_of(bb: BlockBuilder, value: GraphExpr, size: DimLike) -> GraphExpr:
    """The first ``size`` elements along axis 0."""
    return emit_op(bb, StridedSlice(), value, attrs=StridedSlice.Attrs((0,), (0,), (size,)))


# ---- nonzero -------------------------------------------------------------------------------------------------------


class CountNonzero(Op[BaseAttrs]):
    """Number of elements that are not 0, as ``i64[]``; NaN counts. TVM: none, ONNX: part of NonZero."""

    name = "count_nonzero"
    examples = (
        Example(("f32[n, 4]",), "i64[]"),
        Example(("bool[n]",), "i64[]"),
        Example(("i8[]",), "i64[]", low=0, high=1),
    )

    def infer(self, args: tuple[Type, ...], attrs: BaseAttrs, ctx: InferCtx) -> Type:
        """A scalar."""
        ctx.tensor(args, 0, "x")
        return TensorType((), "int64")

    def lower(self, args: tuple[TensorType, ...], attrs: BaseAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """A sum."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        f.reduce(y, x.shape, Combine.SUM, lambda *i: select(is_set(x.at(i)), const(1), const(0)))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: BaseAttrs) -> Array:
        """np.count_nonzero."""
        return np.array(np.count_nonzero(args[0]), np.int64)


def is_set(value: Expr) -> Expr:
    """Whether an element is not 0."""
    return value if value.dtype == "bool" else ne(value, const(0, value.dtype))


class NonzeroFill(Op["NonzeroFill.Attrs"]):
    """Indices of the first ``count`` elements that are not 0: ``i64[rank, count]``; with fewer of them the call fails.

    TVM: -, ONNX: part of NonZero.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """How many there are."""

        count: DimLike

    name = "nonzero_fill"
    examples = (
        Example(("bool[3]",), "i64[1, 2]", Attrs(2), values=([True, False, True],)),
        Example(("f32[2, 2]",), "i64[2, 3]", Attrs(3), values=([[1, 0], [2, 3]],)),
    )
    bad_examples = (BadExample(("bool[]",), "rank-mismatch", "x is a scalar", Attrs(0)),)

    def infer(self, args: tuple[Type, ...], attrs: NonzeroFill.Attrs, ctx: InferCtx) -> Type:
        """One row per axis."""
        x = ctx.tensor(args, 0, "x")
        if not x.rank:
            ctx.fail("x is a scalar, expected at least one axis", code="rank-mismatch")
        ctx.require_at_least(0, attrs.count, "count")
        return TensorType((x.rank, attrs.count), "int64")

    def lower(self, args: tuple[TensorType, ...], attrs: NonzeroFill.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One serial pass, which writes every place and lets the next one take its room where it does not count."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])

        def scan() -> Stmt:
            found = cell("found")

            def visit(*i: Expr) -> Stmt:
                rows = (Store(y, (const(axis), found[()]), index) for axis, index in enumerate(i))
                counted = assign(found, found[()] + cast(is_set(x.at(i)), "int64"))
                return when(found[()] < attrs.count, *rows, counted)

            wanted = as_expr(attrs.count)
            message = f"{self.name}: {{}} elements are not 0, fewer than {{}}"
            enough = Assert(found[()] >= wanted, "runtime-shape", message, (found[()], wanted))
            return scoped((found,), assign(found, 0), nest("i", x.shape, visit), enough)

        f.block("scan", (), scan)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: NonzeroFill.Attrs) -> Array:
        """np.nonzero."""
        found = np.stack(np.nonzero(args[0]))
        if found.shape[1] < int(attrs.count):
            raise ValueError(f"{found.shape[1]} elements are not 0, fewer than {attrs.count}")
        return found[:, : int(attrs.count)].astype(np.int64)


class Nonzero(Op[BaseAttrs]):
    """Indices of the elements that are not 0, in row-major order: ``i64[rank, m]`` with ``0 <= m <= size``.

    A scalar counts as a vector of one element. NaN is not 0. TVM: relax.nonzero, ONNX: NonZero.
    """

    name = "nonzero"
    examples = (
        Example(("f32[n, 4]",), "i64[2, nz]"),
        Example(("bool[]",), "i64[1, nz]"),
    )
    bad_examples = (BadExample(("shape(n)",), "type-kind", "tensor"),)

    def infer(self, args: tuple[Type, ...], attrs: BaseAttrs, ctx: InferCtx) -> Type:
        """A fresh number of columns."""
        x = ctx.tensor(args, 0, "x")
        return TensorType((max(x.rank, 1), fresh_size(ctx, "nz", product(x.shape))), "int64")

    def reference(self, args: tuple[Array, ...], attrs: BaseAttrs) -> Array:
        """np.nonzero."""
        return np.stack(np.nonzero(np.atleast_1d(args[0]))).astype(np.int64)

    def decompose(self, args: tuple[GraphExpr, ...], attrs: BaseAttrs, bb: BlockBuilder) -> GraphExpr | None:
        """Count, read the count, fill."""
        x = args[0]
        if not tensor_type(x).rank:
            x = emit_op(bb, Reshape(), x, attrs=Reshape.Attrs((1,)))
        count = read_size(bb, emit_op(bb, CountNonzero(), x), "nz", product(tensor_type(x).shape))
        return emit_op(bb, NonzeroFill(), x, attrs=NonzeroFill.Attrs(count))


class Compress(Op["Compress.Attrs"]):
    """Slices along ``axis`` (elements in row-major order for None) where the vector ``condition`` holds.

    A shorter condition is false for the rest; a longer one that holds beyond the axis fails the call
    (``runtime-index``). TVM: none, ONNX: Compress.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """The axis, or None for the flattened tensor."""

        axis: int | None = None

    name = "compress"
    moves = True
    params = (Param("x"), Param("condition", "vector", ("bool",)))
    examples = (
        Example(("f32[n, 4]", "bool[n]"), "f32[nz, 4]", Attrs(0)),
        Example(("i64[n, 4]", "bool[m]"), "i64[nz]"),
    )
    bad_examples = (
        BadExample(("f32[n]", "i64[n]"), "dtype-mismatch", "condition"),
        BadExample(("f32[n]", "bool[n, 1]"), "rank-mismatch", "condition"),
    )

    def infer(self, args: tuple[Type, ...], attrs: Compress.Attrs, ctx: InferCtx) -> Type:
        """A fresh extent."""
        x, condition = ctx.tensor(args, 0, "x"), ctx.tensor(args, 1, "condition")
        if condition.dtype != "bool":
            ctx.fail(f"condition must be bool, got {condition.dtype}", code="dtype-mismatch")
        if condition.rank != 1:
            ctx.fail(f"condition must have rank 1, got {condition.rank}", code="rank-mismatch")
        count = fresh_size(ctx, "nz", condition.shape[0])
        if attrs.axis is None:
            return TensorType((count,), x.dtype)
        axis = ctx.axis(attrs.axis, x.rank)
        return TensorType((*x.shape[:axis], count, *x.shape[axis + 1 :]), x.dtype)

    def reference(self, args: tuple[Array, ...], attrs: Compress.Attrs) -> Array:
        """np.compress."""
        return np.compress(args[1], args[0], attrs.axis)

    def decompose(self, args: tuple[GraphExpr, ...], attrs: Compress.Attrs, bb: BlockBuilder) -> GraphExpr | None:
        """`Nonzero` of the condition, then `Take`."""
        x = args[0]
        if attrs.axis is None:
            x = emit_op(bb, Reshape(), x, attrs=Reshape.Attrs((product(tensor_type(x).shape),)))
        rows = emit_op(bb, Nonzero(), args[1])
        places = emit_op(bb, Squeeze(), rows, attrs=Squeeze.Attrs((0,)))
        return emit_op(bb, Take(), x, places, attrs=Take.Attrs(attrs.axis or 0))


# ---- unique --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class UniqueAttrs(BaseAttrs):
    """The axis whose slices are compared (None: all elements), and the order of the result."""

    axis: int | None = None
    sorted: bool = True


class UniquePlan(Op[UniqueAttrs]):
    """Groups of equal slices along ``axis``: ``(first, inverse, counts, count)``.

    ``first[g]`` is the first position of group g, ``counts[g]`` its size, ``inverse[p]`` the group of position p; the
    first ``count`` entries of first and counts are meant, the rest are 0. TVM: none, ONNX: part of Unique.
    """

    name = "unique_plan"
    Attrs = UniqueAttrs
    examples = (
        Example(("i64[n]",), ("i64[n]", "i64[n]", "i64[n]", "i64[]"), UniqueAttrs(0)),
        Example(
            ("f32[n]",),
            ("i64[n]", "i64[n]", "i64[n]", "i64[]"),
            UniqueAttrs(0, False),
            values=([2.0, 1.0, 2.0],),
            sizes=MappingProxyType({"n": 3}),
        ),
        Example(("i8[2, n]",), ("i64[n]", "i64[n]", "i64[n]", "i64[]"), UniqueAttrs(-1), low=0, high=1),
        Example(("i8[n, 2]",), ("i64[n]", "i64[n]", "i64[n]", "i64[]"), UniqueAttrs(0, False), low=0, high=1),
    )
    bad_examples = (BadExample(("f32[n]",), "axis-range", "axis 1", UniqueAttrs(1)),)

    def infer(self, args: tuple[Type, ...], attrs: UniqueAttrs, ctx: InferCtx) -> Type:
        """Three vectors along the axis, and a scalar."""
        x = ctx.tensor(args, 0, "x")
        if attrs.axis is None:
            ctx.fail("axis must be given", code="attribute")
        line = TensorType((x.shape[ctx.axis(attrs.axis, x.rank)],), "int64")
        return TupleType((line, line, line, TensorType((), "int64")))

    def lower(self, args: tuple[TensorType, ...], attrs: UniqueAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Sort positions, number the groups in one pass; a second pass renumbers by first appearance."""
        f = ProgramBuilder(self.name)
        x = input_of(f, "x", args[0])
        first, inverse, counts, count = (
            output_of(f, n, t) for n, t in zip(("first", "inverse", "counts", "count"), out, strict=True)
        )
        axis = (attrs.axis or 0) % args[0].rank
        extent = x.shape[axis]
        if args[0].rank == 1:
            order = f.temp("order", (extent,), "int64")
            sort_rows(f, x, 0, False, extent, lambda _, rank, place: Store(order, (rank,), place))
        else:
            order = merge_sort(f, (), extent, lambda row, a, b, flag: compare_slices(x, axis, a, b, flag))
        f.compute(first, lambda i: const(0), "clear_first")
        f.compute(counts, lambda i: const(0), "clear_counts")
        if attrs.sorted:
            f.block("number", (), lambda: number_groups(x, axis, order, first, inverse, counts, count))
            return f.build()
        parts = tuple(f.temp(n, (extent,), "int64") for n in ("first_sorted", "group", "size", "renumbered"))
        f.block("number", (), lambda: number_groups(x, axis, order, parts[0], parts[1], parts[2], count))
        f.block("renumber", (), lambda: renumber_groups(extent, parts, first, inverse, counts))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: UniqueAttrs) -> tuple[Array, ...]:
        """np.unique, padded."""
        first, inverse, counts = unique_groups(args[0], attrs)
        rest = len(inverse) - len(first)
        padded = (np.pad(v, (0, rest)) for v in (first, counts))
        return next(padded), inverse, next(padded), np.array(len(first), np.int64)


def unique_groups(x: Array, attrs: UniqueAttrs) -> tuple[Array, Array, Array]:
    """First positions, inverse and counts by np.unique, in the order asked for."""
    if x.shape[attrs.axis or 0] == 0:
        empty = np.zeros(0, np.int64)
        return empty, empty, empty
    if x.dtype == np.float16:  # NumPy sorts rows of it with NaN first
        x = x.astype(np.float32)
    _, first, inverse, counts = np.unique(
        x, return_index=True, return_inverse=True, return_counts=True, axis=attrs.axis if x.ndim > 1 else None
    )
    inverse = inverse.reshape(-1)
    if not attrs.sorted:
        order = np.argsort(first, kind="stable")
        rank = np.argsort(order, kind="stable")
        first, counts, inverse = first[order], counts[order], rank[inverse]
    return first.astype(np.int64), inverse.astype(np.int64), counts.astype(np.int64)


def compare_slices(x: Buffer, axis: int, a: Expr, b: Expr, flag: Buffer) -> Stmt:
    """Set ``flag`` where slice ``a`` comes before slice ``b`` in lexicographic order."""
    open_ = cell("open", "bool")

    def element(*i: Expr) -> Stmt:
        left, right = x.at((*i[:axis], a, *i[axis:])), x.at((*i[:axis], b, *i[axis:]))
        decided = seq(assign(flag, True), assign(open_, False))
        return when(open_[()], If(precedes(left, right), decided, when(precedes(right, left), assign(open_, False))))

    others = (*x.shape[:axis], *x.shape[axis + 1 :])
    return scoped((open_,), assign(open_, True), assign(flag, False), nest("e", others, element))


def number_groups(
    x: Buffer, axis: int, order: Buffer, first: Buffer, group: Buffer, size: Buffer, count: Buffer
) -> Stmt:
    """One pass over sorted positions: a new group wherever a slice comes after the one before it."""
    found, flag = cell("found"), cell("flag", "bool")

    def visit(n: Expr) -> Stmt:
        here, at = order[n], found[()] - 1
        start = seq(Store(first, (found[()],), here), Store(size, (found[()],), const(0)), assign(found, found[()] + 1))
        return seq(
            assign(flag, True),
            when(n > 0, compare_slices(x, axis, order[n - 1], here, flag)),
            when(flag[()], start),
            Store(group, (here,), at),
            Store(size, (at,), size[at] + 1),
        )

    return scoped((found, flag), assign(found, 0), loop("n", order.shape[0], visit), Store(count, (), found[()]))


def renumber_groups(extent: DimLike, parts: tuple[Buffer, ...], first: Buffer, inverse: Buffer, counts: Buffer) -> Stmt:
    """Number groups by their first positions instead of by value."""
    first_sorted, group, size, renumbered = parts
    found = cell("found")

    def visit(p: Expr) -> Stmt:
        old = group[p]
        start = seq(
            Store(renumbered, (old,), found[()]),
            Store(first, (found[()],), p),
            Store(counts, (found[()],), size[old]),
            assign(found, found[()] + 1),
        )
        return seq(when(eq(first_sorted[old], p), start), Store(inverse, (p,), renumbered[old]))

    return scoped((found,), assign(found, 0), loop("p", extent, visit))


class Unique(Op[UniqueAttrs]):
    """Distinct elements, or slices along ``axis``: ``(y, indices, inverse, counts)``, the last three int64.

    ``y`` is in ascending (lexicographic) order, or in order of first appearance if not ``sorted``; ``indices[u]`` is
    the first position of y[u], ``inverse`` maps positions to rows of y, ``counts`` says how often each occurs. All
    NaN are equal and last. TVM: relax.unique, ONNX: Unique.
    """

    name = "unique"
    Attrs = UniqueAttrs
    examples = (
        Example(("i64[n, 3]",), ("i64[u]", "i64[u]", "i64[3 * n]", "i64[u]")),
        Example(("f32[n, 3]",), ("f32[n, u]", "i64[u]", "i64[3]", "i64[u]"), UniqueAttrs(1)),
    )
    bad_examples = (BadExample(("f32[n]",), "axis-range", "axis 1", UniqueAttrs(1)),)

    def infer(self, args: tuple[Type, ...], attrs: UniqueAttrs, ctx: InferCtx) -> Type:
        """A fresh number of groups."""
        x = ctx.tensor(args, 0, "x")
        shape = (product(x.shape),) if attrs.axis is None else x.shape
        axis = 0 if attrs.axis is None else ctx.axis(attrs.axis, x.rank)
        count = fresh_size(ctx, "u", shape[axis])
        groups = TensorType((count,), "int64")
        y = TensorType((*shape[:axis], count, *shape[axis + 1 :]), x.dtype)
        return TupleType((y, groups, TensorType((shape[axis],), "int64"), groups))

    def reference(self, args: tuple[Array, ...], attrs: UniqueAttrs) -> tuple[Array, ...]:
        """By np.unique."""
        x = args[0].reshape(-1) if attrs.axis is None else args[0]
        known = UniqueAttrs(attrs.axis or 0, attrs.sorted)
        first, inverse, counts = unique_groups(x, known)
        return np.take(x, first, attrs.axis or 0), first, inverse, counts

    def decompose(self, args: tuple[GraphExpr, ...], attrs: UniqueAttrs, bb: BlockBuilder) -> GraphExpr | None:
        """Plan, read the count, cut and take."""
        x = args[0]
        if attrs.axis is None:
            x = emit_op(bb, Reshape(), x, attrs=Reshape.Attrs((product(tensor_type(x).shape),)))
        axis = (attrs.axis or 0) % tensor_type(x).rank
        plan = emit_op(bb, UniquePlan(), x, attrs=UniqueAttrs(axis, attrs.sorted))
        first, inverse, counts, total = (bb.normalize(TupleGetItem(plan, n)) for n in range(4))
        count = read_size(bb, total, "u", tensor_type(x).shape[axis])
        indices = first_of(bb, first, count)
        y = emit_op(bb, Take(), x, indices, attrs=Take.Attrs(axis))
        return TupleExpr((y, indices, inverse, first_of(bb, counts, count)))


DYNAMIC: Final[tuple[Op[Any], ...]] = (CountNonzero(), NonzeroFill(), Nonzero(), Compress(), UniquePlan(), Unique())
