"""Operators that read elements at positions given by a tensor of indices."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.expr import Array
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.kernels import check_index, extent_of, index_of, input_of, output_of, within
from relaxir.sym import DimLike, dim, min_, sub
from relaxir.tir import Buffer, Expr, PrimFunc, ProgramBuilder, as_expr, cast, const, eq, maximum, minimum, select

INDICES: Final = ("int32", "int64")


def index_operand(args: tuple[Type, ...], place: int, ctx: InferCtx, name: str = "indices") -> TensorType:
    """An operand of indices: int32 or int64."""
    t = ctx.tensor(args, place, name)
    if t.dtype not in INDICES:
        ctx.fail(f"{name} must be int32 or int64, got {t.dtype}", code="dtype-mismatch")
    return t


class Take(Op["Take.Attrs"]):
    """``y[i..., j..., k...] = x[i..., indices[j...], k...]``: slices along ``axis``, replaced by the shape of indices.

    Modes: ``raise`` counts negative indices from the end and fails the call (``runtime-index``) for indices outside
    ``-d .. d-1``; ``clip`` clamps to ``0 .. d-1`` (negative gives 0); ``wrap`` takes indices modulo d. Every dtype of
    x; int32 or int64 indices. With an empty axis ``clip`` and ``wrap`` give zeros. TVM: relax.take, ONNX: Gather.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Axis, and what happens to indices outside."""

        axis: int = 0
        mode: Literal["raise", "clip", "wrap"] = "raise"

    name = "take"
    moves = True
    params = (Param("x"), Param("indices", "any shape", INDICES))
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[5, n]", "i64[m, 2]"), "f32[m, 2, n]", low=-5, high=4),
        Example(("i8[n, 3]", "i32[]"), "i8[n]", Attrs(1), low=0, high=2),
        Example(("f32[n, 3]", "i64[4]"), "f32[n, 4]", Attrs(-1, "clip"), low=-9, high=9),
        Example(("f32[3]", "i64[m]"), "f32[m]", Attrs(0, "wrap"), low=-9, high=9),
    )
    bad_examples = (
        BadExample(("f32[n]", "f32[m]"), "dtype-mismatch", "indices"),
        BadExample(("f32[n]", "i64[m]"), "axis-range", "axis 1", Attrs(1)),
        BadExample(("f32[]", "i64[m]"), "axis-range", "axis 0"),
    )

    def infer(self, args: tuple[Type, ...], attrs: Take.Attrs, ctx: InferCtx) -> Type:
        """The axis replaced by the shape of indices."""
        x, indices = ctx.tensor(args, 0, "x"), index_operand(args, 1, ctx)
        if not x.rank:
            ctx.fail("axis 0 is out of range for rank 0", code="axis-range")
        axis = ctx.axis(attrs.axis, x.rank)
        return TensorType((*x.shape[:axis], *indices.shape, *x.shape[axis + 1 :]), x.dtype)

    def positions(self, args: tuple[GraphExpr, ...], attrs: Take.Attrs) -> Mapping[int, DimLike]:
        """Indices are along the axis."""
        return {1: extent_of(args[0], attrs.axis)}

    def lower(self, args: tuple[TensorType, ...], attrs: Take.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """A stage that checks every index once, then loads; what other modes make of an empty axis is guarded."""
        f = ProgramBuilder(self.name)
        x, indices = input_of(f, "x", args[0]), input_of(f, "indices", args[1])
        y = output_of(f, "y", out[0])
        axis, count = attrs.axis % args[0].rank, args[1].rank
        extent = x.shape[axis]
        if attrs.mode == "raise":
            f.block("check", indices.shape, lambda *j: check_index(self.name, indices.at(j), extent, axis))

        def value(*i: Expr) -> Expr:
            raw = cast(indices.at(i[axis : axis + count]), "int64")
            if attrs.mode == "clip":
                index: Expr = minimum(maximum(raw, 0), sub(extent, 1))
            elif attrs.mode == "wrap":
                index = raw % maximum(as_expr(extent), 1)
            else:
                index = index_of(raw, extent)
            load: Expr = x.at((*i[:axis], index, *i[axis + count :]))
            return load if attrs.mode == "raise" else select(within(index, extent), load, const(0, y.dtype))

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Take.Attrs) -> Array:
        """np.take of indices that are brought into range here: NumPy wraps step by step, and an empty axis stops it."""
        x, index, extent = args[0], args[1].astype(np.int64), args[0].shape[attrs.axis]
        if attrs.mode == "raise":
            wrong = index[(index < -extent) | (index >= extent)]
            if wrong.size:
                raise IndexError(f"index {wrong[0]} is out of range for axis {attrs.axis} of extent {extent}")
        elif not extent:
            axis = attrs.axis % x.ndim
            return np.zeros((*x.shape[:axis], *index.shape, *x.shape[axis + 1 :]), x.dtype)
        else:
            index = index % extent if attrs.mode == "wrap" else index.clip(0, extent - 1)
        return np.take(x, index, attrs.axis)


class GatherElements(Op["GatherElements.Attrs"]):
    """``y[..., i, ...] = x[..., indices[..., i, ...], ...]`` at the position of ``axis``; y has the shape of indices.

    The other axes of indices may be shorter than those of x (only the front is read). Negative indices count from the
    end; others outside fail the call (``runtime-index``). TVM: relax.gather_elements, ONNX: GatherElements.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """The indexed axis."""

        axis: int = 0

    name = "gather_elements"
    moves = True
    params = (Param("x"), Param("indices", "x's rank", INDICES))
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, 4]", "i64[n, 2]"), "f32[n, 2]", Attrs(1), low=-4, high=3),
        Example(("i64[3, 4]", "i32[m, 2]"), "i64[m, 2]", Attrs(0), low=0, high=2),
    )
    bad_examples = (
        BadExample(("f32[n, 4]", "i64[n]"), "rank-mismatch", "rank"),
        BadExample(("f32[n, 4]", "i64[n, 5]"), "shape-mismatch", "axis 1"),
    )

    def infer(self, args: tuple[Type, ...], attrs: GatherElements.Attrs, ctx: InferCtx) -> Type:
        """Shape of indices."""
        x, indices = ctx.tensor(args, 0, "x"), index_operand(args, 1, ctx)
        element_indices(x, indices, attrs.axis, ctx)
        return TensorType(indices.shape, x.dtype)

    def positions(self, args: tuple[GraphExpr, ...], attrs: GatherElements.Attrs) -> Mapping[int, DimLike]:
        """Indices are along the axis."""
        return {1: extent_of(args[0], attrs.axis)}

    def lower(self, args: tuple[TensorType, ...], attrs: GatherElements.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """A stage that checks the indices, then loads."""
        f = ProgramBuilder(self.name)
        x, indices = input_of(f, "x", args[0]), input_of(f, "indices", args[1])
        y = output_of(f, "y", out[0])
        axis = attrs.axis % args[0].rank
        extent = x.shape[axis]
        f.block("check", indices.shape, lambda *j: check_index(self.name, indices.at(j), extent, axis))

        def value(*i: Expr) -> Expr:
            return x.at((*i[:axis], index_of(indices.at(i), extent), *i[axis + 1 :]))

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: GatherElements.Attrs) -> Array:
        """np.take_along_axis on the front of x."""
        x, indices = args
        axis = attrs.axis % x.ndim
        front = tuple(slice(None) if a == axis else slice(0, n) for a, n in enumerate(indices.shape))
        return np.take_along_axis(x[front], indices.astype(np.int64), axis)


def element_indices(x: TensorType, indices: TensorType, axis: int, ctx: InferCtx) -> int:
    """Check indices that pair with the elements of x along ``axis``; the axis from 0."""
    if indices.rank != x.rank or not x.rank:
        ctx.fail(f"indices must have the rank of x, {x.rank} and at least 1, got {indices.rank}", code="rank-mismatch")
    found = ctx.axis(axis, x.rank)
    for a, (have, want) in enumerate(zip(indices.shape, x.shape, strict=True)):
        if a != found:
            ctx.require_le(have, want, f"axis {a} of indices and of x")
    return found


class GatherND(Op["GatherND.Attrs"]):
    """``y[b..., j..., k...] = x[b..., indices[b..., j..., :], k...]``: the last axis of indices holds positions.

    The first ``batch_dims`` axes of both operands run together. The last extent of indices is a constant and at most
    the number of x's other axes. Negative positions count from the end; others outside fail the call. TVM:
    relax.gather_nd, ONNX: GatherND.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Leading axes that run together."""

        batch_dims: int = 0

    name = "gather_nd"
    moves = True
    params = (Param("x"), Param("indices", "positions in the last axis", INDICES))
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[3, 3, n]", "i64[m, 2]"), "f32[m, n]", low=-3, high=2),
        Example(("f32[n, 3]", "i64[n, 4, 1]"), "f32[n, 4]", Attrs(1), low=0, high=2),
        Example(("i32[2, 2]", "i64[2]"), "i32[]", low=0, high=1),
    )
    bad_examples = (
        BadExample(("f32[n]", "i64[m, 2]"), "rank-mismatch", "positions"),
        BadExample(("f32[2, n]", "i64[3, 1]"), "shape-mismatch", "batch axis 0", Attrs(1)),
    )

    def infer(self, args: tuple[Type, ...], attrs: GatherND.Attrs, ctx: InferCtx) -> Type:
        """Front of indices, then the axes of x that no position names."""
        x, indices = ctx.tensor(args, 0, "x"), index_operand(args, 1, ctx)
        depth = position_depth(x, indices, attrs.batch_dims, ctx)
        for a in range(attrs.batch_dims):
            ctx.require_equal(x.shape[a], indices.shape[a], f"batch axis {a} of x and of indices")
        return TensorType((*indices.shape[:-1], *x.shape[attrs.batch_dims + depth :]), x.dtype)

    def positions(self, args: tuple[GraphExpr, ...], attrs: GatherND.Attrs) -> Mapping[int, DimLike]:
        """Indices are along the axes after the batch."""
        return least_extent(args, attrs.batch_dims)

    def lower(self, args: tuple[TensorType, ...], attrs: GatherND.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One checking stage per position, then loads."""
        f = ProgramBuilder(self.name)
        x, indices = input_of(f, "x", args[0]), input_of(f, "indices", args[1])
        y = output_of(f, "y", out[0])
        batch, front, depth = attrs.batch_dims, args[1].rank - 1, int(str(indices.shape[-1]))
        check_positions(f, self.name, x, indices, batch)

        def value(*i: Expr) -> Expr:
            places = tuple(index_of(indices[(*i[:front], n)], x.shape[batch + n]) for n in range(depth))
            return x.at((*i[:batch], *places, *i[front:]))

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: GatherND.Attrs) -> Array:
        """Integer indexing."""
        x, indices = args
        batch = np.indices(indices.shape[:-1])[: attrs.batch_dims]
        return np.asarray(x[(*batch, *np.moveaxis(indices, -1, 0))])


def position_depth(x: TensorType, indices: TensorType, batch: int, ctx: InferCtx) -> int:
    """Length of the position vectors in the last axis of indices, checked."""
    depth = indices.shape[-1] if indices.rank else None
    if not isinstance(depth, int):
        ctx.fail("the last extent of indices must be a constant", code="rank-mismatch")
    if not 0 <= batch < indices.rank or batch + depth > x.rank:
        ctx.fail(
            f"positions of {depth} entries after {batch} batch axes do not fit rank {x.rank}", code="rank-mismatch"
        )
    return depth


def least_extent(args: tuple[GraphExpr, ...], first: int) -> Mapping[int, DimLike]:
    """What `Op.positions` gives where the last axis of args[1] has one for each axis of args[0] from ``first``."""
    named = [extent_of(args[0], first + n) for n in range(int(str(extent_of(args[1], -1))))]
    return {1: min_(*named)} if named else {}


def check_positions(f: ProgramBuilder, op: str, x: Buffer, indices: Buffer, batch: int) -> None:
    """Add a stage for each entry of the positions in the last axis of ``indices`` that checks it."""
    for n in range(int(str(indices.shape[-1]))):
        axis = batch + n
        f.block(
            f"check{n}",
            indices.shape[:-1],
            lambda *j, n=n, axis=axis: check_index(op, indices[(*j, n)], x.shape[axis], axis),
        )


class OneHot(Op["OneHot.Attrs"]):
    """``values[1]`` where the position along the new ``axis`` is the index, ``values[0]`` elsewhere.

    Indices in ``-depth .. -1`` count from the end; those outside light nothing. ``depth`` is any dim >= 0.
    TVM: relax.one_hot, ONNX: OneHot.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Extent and place of the new axis."""

        depth: DimLike
        axis: int = -1

    name = "one_hot"
    params = (Param("indices", "any shape", INDICES), Param("values", "off and on: shape (2,)"))
    kind = OpKind.INJECTIVE
    examples = (
        Example(("i64[n]", "f32[2]"), "f32[n, 4]", Attrs(4), low=-5, high=5),
        Example(("i32[2, n]", "i8[2]"), "i8[2, m, n]", Attrs(dim("m"), 1), low=-3, high=3),
    )
    bad_examples = (
        BadExample(("i64[n]", "f32[3]"), "shape-mismatch", "values", Attrs(4)),
        BadExample(("f32[n]", "f32[2]"), "dtype-mismatch", "indices", Attrs(4)),
    )

    def infer(self, args: tuple[Type, ...], attrs: OneHot.Attrs, ctx: InferCtx) -> Type:
        """Shape of indices with depth inserted."""
        indices, values = index_operand(args, 0, ctx), ctx.tensor(args, 1, "values")
        axis = ctx.axis(attrs.axis, indices.rank + 1)
        if values.rank != 1:
            ctx.fail(f"values must have rank 1, got {values.rank}", code="rank-mismatch")
        ctx.require_equal(values.shape[0], 2, "length of values and number of states")
        ctx.require_at_least(0, attrs.depth, "depth")
        return TensorType((*indices.shape[:axis], attrs.depth, *indices.shape[axis:]), values.dtype)

    def positions(self, args: tuple[GraphExpr, ...], attrs: OneHot.Attrs) -> Mapping[int, DimLike]:
        """Indices are along the new axis."""
        return {0: attrs.depth}

    def lower(self, args: tuple[TensorType, ...], attrs: OneHot.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Compare and select."""
        f = ProgramBuilder(self.name)
        indices, values = input_of(f, "indices", args[0]), input_of(f, "values", args[1])
        y = output_of(f, "y", out[0])
        axis = attrs.axis % out[0].rank

        def value(*i: Expr) -> Expr:
            index = index_of(indices.at((*i[:axis], *i[axis + 1 :])), attrs.depth)
            return select(eq(index, i[axis]), values[1], values[0])

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: OneHot.Attrs) -> Array:
        """Comparison with np.arange."""
        depth = int(attrs.depth)
        index = np.expand_dims(args[0].astype(np.int64), attrs.axis)
        index = np.where(index < 0, index + depth, index)
        places = np.arange(depth).reshape([-1 if a == attrs.axis % index.ndim else 1 for a in range(index.ndim)])
        return np.asarray(np.where(index == places, args[1][1], args[1][0]))


GATHERING: Final[tuple[Op[Any], ...]] = (Take(), GatherElements(), GatherND(), OneHot())
