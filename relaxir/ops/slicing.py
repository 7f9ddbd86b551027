"""Operators that select, reorder or surround elements by arithmetic on indices."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.indexing import normalize_axes, require_nonzero
from relaxir.ops.kernels import input_of, output_of, within
from relaxir.sym import DimLike, add, dim, max_, min_, mul, sub
from relaxir.tir import Expr, PrimFunc, ProgramBuilder, as_expr, cast, const, maximum, minimum, select


def replace_at(indices: Sequence[Expr], axis: int, value: Expr) -> tuple[Expr, ...]:
    """Indices with one of them exchanged."""
    return (*indices[:axis], value, *indices[axis + 1 :])


class StridedSlice(Op["StridedSlice.Attrs"]):
    """``y[..., i, ...] = x[..., begin + i * step, ...]`` for ``0 <= i < size``, on each of ``axes``.

    The slice is already normalised: `relaxir.ops.indexing.slice_range` gives begin, size and step of any Python
    slice, with its clamping. Every entry is any dim; steps are of any sign, also one known only at run time. All
    elements must lie inside the axis (checked at run time where unknown). Every dtype. TVM: relax.strided_slice,
    ONNX: Slice.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """One entry per sliced axis; an empty ``step`` means 1 everywhere."""

        axes: tuple[int, ...]
        begin: tuple[DimLike, ...]
        size: tuple[DimLike, ...]
        step: tuple[DimLike, ...] = ()

        def strides(self) -> tuple[DimLike, ...]:
            """Steps with the default filled in."""
            return self.step or (1,) * len(self.axes)

    name = "strided_slice"
    moves = True
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n + 1, 4]",), "f32[n, 2]", Attrs((0, -1), (1, 0), (dim("n"), 2), (1, 2))),
        Example(("i64[n]",), "i64[n]", Attrs((0,), (dim("n") - 1,), (dim("n"),), (-1,))),
        Example(("bool[5]",), "bool[0]", Attrs((0,), (5,), (0,))),
    )
    bad_examples = (
        BadExample(("f32[4]",), "shape-mismatch", "last element", Attrs((0,), (1,), (4,))),
        BadExample(("f32[4]",), "attribute", "step", Attrs((0,), (1,), (1,), (0,))),
    )

    def infer(self, args: tuple[Type, ...], attrs: StridedSlice.Attrs, ctx: InferCtx) -> Type:
        """Extents replaced by the sizes."""
        x = ctx.tensor(args, 0, "x")
        steps = attrs.strides()
        if not len(attrs.axes) == len(attrs.begin) == len(attrs.size) == len(steps):
            ctx.fail("axes, begin, size and step must be of one length", code="attribute")
        shape = list(x.shape)
        for axis, begin, size, step in zip(
            normalize_axes(attrs.axes, x.rank, ctx), attrs.begin, attrs.size, steps, strict=True
        ):
            require_nonzero(step, f"step of axis {axis}", ctx)
            ctx.require_at_least(0, size, f"size of axis {axis}")
            # an empty slice passes both, wherever it begins
            reach = sub(size, 1)
            ctx.require_at_least(0, add(begin, mul(reach, min_(step, 0))), f"first element of axis {axis}")
            ctx.require_le(add(begin, mul(reach, max_(step, 0))), sub(x.shape[axis], 1), f"last element of axis {axis}")
            shape[axis] = size
        return TensorType(tuple(shape), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: StridedSlice.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Indices scaled and shifted."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        at = {a % args[0].rank: p for a, *p in zip(attrs.axes, attrs.begin, attrs.strides(), strict=True)}

        def value(*i: Expr) -> Expr:
            return x.at(tuple(v * at[a][1] + at[a][0] if a in at else v for a, v in enumerate(i)))

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: StridedSlice.Attrs) -> Array:
        """Take at explicit positions."""
        y = args[0]
        for axis, begin, size, step in zip(attrs.axes, attrs.begin, attrs.size, attrs.strides(), strict=True):
            y = np.take(y, int(begin) + int(step) * np.arange(int(size)), axis)
        return y


class Pad(Op["Pad.Attrs"]):
    """Surround the tensor by ``pads[axis] = (before, after)`` elements; negative counts crop.

    ``mode``: ``constant`` fills with the scalar operand ``value`` (0 if absent); ``edge`` repeats the border;
    ``reflect`` mirrors without repeating the border (bouncing as often as needed); ``wrap`` goes round. All but
    ``constant`` copy from what is left after cropping, at least one element of a padded axis. Every dtype. TVM:
    relax.nn.pad, ONNX: Pad.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """One pair per axis, and where the new elements come from."""

        pads: tuple[tuple[DimLike, DimLike], ...]
        mode: Literal["constant", "reflect", "edge", "wrap"] = "constant"

    name = "pad"
    params = (Param("x"), Param("value", "scalar of x's dtype", optional=True))
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, 4]", "f32[]"), "f32[n + 3, 3]", Attrs(((1, 2), (0, -1)))),
        Example(("i64[n]",), "i64[n + m]", Attrs(((dim("m"), 0),))),
        Example(("f32[n]",), "f32[n + 7]", Attrs(((3, 4),), "reflect"), min_size=1),
        Example(("f32[n, 1]",), "f32[n + 1, 3]", Attrs(((0, 1), (1, 1)), "edge"), min_size=1),
        Example(("f32[n]",), "f32[n + 4]", Attrs(((3, 1),), "wrap"), min_size=1),
        Example(("f32[n]",), "f32[n + 3]", Attrs(((4, -1),), "wrap"), min_size=2),
    )
    bad_examples = (
        BadExample(("f32[2]",), "attribute", "pads", Attrs(())),
        BadExample(("f32[2]",), "shape-mismatch", "padded extent", Attrs(((-2, -1),))),
        BadExample(("f32[2]", "f64[]"), "dtype-mismatch", "value", Attrs(((1, 1),))),
    )

    def infer(self, args: tuple[Type, ...], attrs: Pad.Attrs, ctx: InferCtx) -> Type:
        """Extents plus both pads."""
        x = ctx.tensor(args, 0, "x")
        if len(attrs.pads) != x.rank:
            ctx.fail(f"{x.rank} pairs of pads expected, got {len(attrs.pads)}", code="attribute")
        if len(args) > 1:
            value = ctx.tensor(args, 1, "value")
            if value.dtype != x.dtype:
                ctx.fail(f"value is {value.dtype}, x is {x.dtype}", code="dtype-mismatch")
            if value.rank:
                ctx.fail(f"value must be a scalar, got rank {value.rank}", code="rank-mismatch")
        shape: tuple[DimLike, ...] = ()
        for axis, (extent, (before, after)) in enumerate(zip(x.shape, attrs.pads, strict=True)):
            total = add(add(extent, before), after)
            ctx.require_at_least(0, total, f"padded extent of axis {axis}")
            if attrs.mode != "constant" and (before, after) != (0, 0):
                _, kept = self.kept(extent, before, after)
                ctx.require_at_least(1, kept, f"extent of axis {axis}, padded by {attrs.mode},")
            shape += (total,)
        return TensorType(shape, x.dtype)

    @staticmethod
    def kept(extent: DimLike, before: DimLike, after: DimLike) -> tuple[DimLike, DimLike]:
        """First element and number of elements of an axis that negative pads leave."""
        first, last = (max_(0, mul(-1, p)) for p in (before, after))
        return first, sub(sub(extent, first), last)

    @staticmethod
    def source(index: Expr, extent: DimLike, mode: str) -> Expr:
        """Index into what is left of x of an element outside, for the modes that copy."""
        if mode == "edge":
            return minimum(maximum(index, 0), sub(extent, 1))
        if mode == "wrap":
            return index % extent
        period = mul(2, sub(extent, 1))
        turn = index % max_(period, 1)
        return minimum(turn, as_expr(period) - turn)

    def lower(self, args: tuple[TensorType, ...], attrs: Pad.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Guarded loads, or mapped indices."""
        f = ProgramBuilder(self.name)
        x = input_of(f, "x", args[0])
        fill: Expr = input_of(f, "value", args[1])[()] if len(args) > 1 else const(0, args[0].dtype)
        y = output_of(f, "y", out[0])

        def value(*i: Expr) -> Expr:
            found: tuple[Expr, ...] = ()
            inside: Expr | None = None
            for v, extent, (before, after) in zip(i, x.shape, attrs.pads, strict=True):
                index = v - as_expr(before)
                if (before, after) != (0, 0) and attrs.mode == "constant":
                    test = within(index, extent)
                    inside = test if inside is None else inside & test
                elif (before, after) != (0, 0):
                    first, kept = self.kept(extent, before, after)
                    index = self.source(index - as_expr(first), kept, attrs.mode) + as_expr(first)
                found += (index,)
            return x.at(found) if inside is None else select(inside, x.at(found), fill)

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Pad.Attrs) -> Array:
        """Crop where negative, then np.pad."""
        pads = [(int(b), int(e)) for b, e in attrs.pads]
        grow = [(max(b, 0), max(e, 0)) for b, e in pads]
        if attrs.mode != "constant":
            return np.pad(args[0][_cut(args[0].shape, pads)], grow, attrs.mode)
        fill = args[1] if len(args) > 1 else 0
        y = np.pad(args[0], grow, "constant", constant_values=fill)
        return y[_cut(y.shape, pads)]


def _cut(shape: Sequence[int], pads: Sequence[tuple[int, int]]) -> tuple[slice, ...]:
    """What negative pads leave."""
    return tuple(slice(max(-b, 0), size - max(-e, 0)) for size, (b, e) in zip(shape, pads, strict=True))


class Flip(Op["Flip.Attrs"]):
    """Reverse the order along ``axes`` (all axes where empty). TVM: relax.flip, ONNX: Slice with step -1."""

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Reversed axes."""

        axes: tuple[int, ...] = ()

    name = "flip"
    moves = True
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, 3]",), "f32[n, 3]", Attrs((0,))),
        Example(("i64[n, m]",), "i64[n, m]"),
    )
    bad_examples = (BadExample(("f32[n]",), "axis-range", "axis 1", Attrs((1,))),)

    def infer(self, args: tuple[Type, ...], attrs: Flip.Attrs, ctx: InferCtx) -> Type:
        """Type of x."""
        x = ctx.tensor(args, 0, "x")
        normalize_axes(attrs.axes, x.rank, ctx)
        return x

    def lower(self, args: tuple[TensorType, ...], attrs: Flip.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Mirrored indices."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        rank = args[0].rank
        axes = {a % rank for a in attrs.axes} or set(range(rank))
        f.compute(
            y, lambda *i: x.at(tuple(as_expr(sub(x.shape[a], 1)) - v if a in axes else v for a, v in enumerate(i)))
        )
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Flip.Attrs) -> Array:
        """np.flip."""
        return np.flip(args[0], attrs.axes or None)


class Roll(Op["Roll.Attrs"]):
    """Move elements by ``shifts`` along ``axes``, those that leave coming in again: ``y[i] = x[(i - s) % d]``.

    Shifts are any dims of any sign. TVM: none, ONNX: none (NumPy roll).
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """One shift per axis."""

        shifts: tuple[DimLike, ...]
        axes: tuple[int, ...]

    name = "roll"
    moves = True
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, 3]",), "f32[n, 3]", Attrs((2, -1), (0, 1))),
        Example(("i64[n]",), "i64[n]", Attrs((dim("n") + 1,), (0,))),
    )
    bad_examples = (BadExample(("f32[n]",), "attribute", "shift", Attrs((1, 2), (0,))),)

    def infer(self, args: tuple[Type, ...], attrs: Roll.Attrs, ctx: InferCtx) -> Type:
        """Type of x."""
        x = ctx.tensor(args, 0, "x")
        normalize_axes(attrs.axes, x.rank, ctx)
        if len(attrs.shifts) != len(attrs.axes):
            ctx.fail("one shift per axis is needed", code="attribute")
        return x

    def lower(self, args: tuple[TensorType, ...], attrs: Roll.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Indices modulo the extents."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        shift = {a % args[0].rank: s for a, s in zip(attrs.axes, attrs.shifts, strict=True)}

        def value(*i: Expr) -> Expr:
            return x.at(tuple((v - as_expr(shift[a])) % x.shape[a] if a in shift else v for a, v in enumerate(i)))

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Roll.Attrs) -> Array:
        """np.roll."""
        return np.roll(args[0], [int(s) for s in attrs.shifts], attrs.axes)


class Triangle(Op["Triangle.Attrs"]):
    """Base of `Tril` and `Triu`: keep one side of diagonal ``k`` of the last two axes, zero elsewhere."""

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Diagonal: 0 is the main one, positive ones lie above; any dim."""

        k: DimLike = 0

    kind = OpKind.INJECTIVE

    def infer(self, args: tuple[Type, ...], attrs: Triangle.Attrs, ctx: InferCtx) -> Type:
        """Type of x, which has at least two axes."""
        x = ctx.tensor(args, 0, "x")
        if x.rank < 2:
            ctx.fail(f"x must have at least 2 axes, got rank {x.rank}", code="rank-mismatch")
        return x

    def keep(self, distance: Expr, k: DimLike) -> Expr:
        """Whether an element at column - row = ``distance`` stays."""
        raise NotImplementedError

    def lower(self, args: tuple[TensorType, ...], attrs: Triangle.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One guarded copy."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        f.compute(y, lambda *i: select(self.keep(i[-1] - i[-2], attrs.k), x.at(i), const(0, y.dtype)))
        return f.build()


class Tril(Triangle):
    """Lower triangle: elements with ``column - row <= k``, the rest 0. TVM: relax.tril, ONNX: Trilu(upper=0)."""

    name = "tril"
    examples = (
        Example(("f32[n, m]",), "f32[n, m]"),
        Example(("i64[2, n, 3]",), "i64[2, n, 3]", Triangle.Attrs(-1)),
    )
    bad_examples = (BadExample(("f32[n]",), "rank-mismatch", "at least 2 axes"),)

    def keep(self, distance: Expr, k: DimLike) -> Expr:
        """On or below the diagonal."""
        return distance <= k

    def reference(self, args: tuple[Array, ...], attrs: Triangle.Attrs) -> Array:
        """np.tril."""
        return np.tril(args[0], int(attrs.k))


class Triu(Triangle):
    """Upper triangle: elements with ``column - row >= k``, the rest 0. TVM: relax.triu, ONNX: Trilu(upper=1)."""

    name = "triu"
    examples = (
        Example(("f32[n, m]",), "f32[n, m]", Triangle.Attrs(1)),
        Example(("bool[n, n]",), "bool[n, n]", Triangle.Attrs(dim("n") - 1)),
    )
    bad_examples = (BadExample(("f32[n]",), "rank-mismatch", "at least 2 axes"),)

    def keep(self, distance: Expr, k: DimLike) -> Expr:
        """On or above the diagonal."""
        return distance >= k

    def reference(self, args: tuple[Array, ...], attrs: Triangle.Attrs) -> Array:
        """np.triu."""
        return np.triu(args[0], int(attrs.k))


class ReverseSequence(Op["ReverseSequence.Attrs"]):
    """Reverse the first ``lengths[b]`` elements along ``time_axis`` for each ``b`` of ``batch_axis``; the rest stays.

    Lengths beyond the axis count as its extent, negative ones as 0. TVM: none, ONNX: ReverseSequence.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """The two axes."""

        batch_axis: int = 1
        time_axis: int = 0

    name = "reverse_sequence"
    moves = True
    params = (Param("x"), Param("lengths", "one per batch", ("int32", "int64")))
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[4, 3]", "i64[3]"), "f32[4, 3]", values=(None, [0, 2, 4])),
        Example(("f32[n, 3, m]", "i32[n]"), "f32[n, 3, m]", Attrs(0, 1), low=0, high=3),
    )
    bad_examples = (BadExample(("f32[4, 3]", "i64[4]"), "shape-mismatch", "lengths"),)

    def infer(self, args: tuple[Type, ...], attrs: ReverseSequence.Attrs, ctx: InferCtx) -> Type:
        """Type of x."""
        x, lengths = ctx.tensor(args, 0, "x"), ctx.tensor(args, 1, "lengths")
        batch, time = ctx.axis(attrs.batch_axis, x.rank), ctx.axis(attrs.time_axis, x.rank)
        if batch == time:
            ctx.fail("batch_axis and time_axis must differ", code="attribute")
        if lengths.rank != 1:
            ctx.fail(f"lengths must have rank 1, got {lengths.rank}", code="rank-mismatch")
        ctx.require_equal(lengths.shape[0], x.shape[batch], f"lengths and axis {batch} of x")
        return x

    def lower(
        self, args: tuple[TensorType, ...], attrs: ReverseSequence.Attrs, out: tuple[TensorType, ...]
    ) -> PrimFunc:
        """Mirrored index inside the length."""
        f = ProgramBuilder(self.name)
        x, lengths = input_of(f, "x", args[0]), input_of(f, "lengths", args[1])
        y = output_of(f, "y", out[0])
        batch, time = attrs.batch_axis % args[0].rank, attrs.time_axis % args[0].rank

        def value(*i: Expr) -> Expr:
            length = minimum(cast(lengths[i[batch]], "int64"), x.shape[time])
            return x.at(replace_at(i, time, select(i[time] < length, length - 1 - i[time], i[time])))

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ReverseSequence.Attrs) -> Array:
        """Flip the head of each batch."""
        y = np.moveaxis(args[0], (attrs.batch_axis, attrs.time_axis), (0, 1)).copy()
        for b, length in enumerate(args[1]):
            head = max(int(length), 0)
            y[b, :head] = y[b, :head][::-1]
        return np.moveaxis(y, (0, 1), (attrs.batch_axis, attrs.time_axis))


SLICING: Final[tuple[Op[Any], ...]] = (StridedSlice(), Pad(), Flip(), Roll(), Tril(), Triu(), ReverseSequence())
