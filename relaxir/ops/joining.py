"""Operators that put tensors together, cut them apart, or repeat them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.kernels import input_of, output_of
from relaxir.sym import DimLike, Proof, add, ceildiv, dim, floordiv, max_, min_, mul, sub
from relaxir.tir import Buffer, Expr, PrimFunc, ProgramBuilder, Store, as_expr


def _parts(args: tuple[Type, ...], ctx: InferCtx) -> tuple[TensorType, ...]:
    parts = tuple(ctx.tensor(args, n, f"part {n}") for n in range(max(len(args), 1)))
    for n, part in enumerate(parts):
        if part.dtype != parts[0].dtype:
            ctx.fail(f"part {n} is {part.dtype}, part 0 is {parts[0].dtype}", code="dtype-mismatch")
        if part.rank != parts[0].rank:
            ctx.fail(f"part {n} has rank {part.rank}, part 0 has rank {parts[0].rank}", code="rank-mismatch")
    return parts


def _insert(indices: Sequence[Expr], axis: int, value: Expr) -> tuple[Expr, ...]:
    return (*indices[:axis], value, *indices[axis:])


def _copy_part(f: ProgramBuilder, source: Buffer, target: Buffer, place: Any) -> None:
    """One stage that copies all of ``source`` to ``place(indices)`` of ``target``."""
    f.block(source.name, source.shape, lambda *i: Store(target, place(i), source.at(i)))


MOST_PARTS: Final = 1 << 16
"""Results of one split."""


class Concat(Op["Concat.Attrs"]):
    """Tensors one after the other along ``axis``.

    All parts have one dtype and rank; the other extents must agree (checked at run time where unknown). Parts may be
    empty. TVM: relax.concat, ONNX: Concat.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Where the parts are joined."""

        axis: int = 0

    name = "concat"
    moves = True
    params = (Param("parts", "at least one tensor", variadic=True),)
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, 4]", "f32[m, 4]"), "f32[n + m, 4]"),
        Example(("i64[2, n]", "i64[2, 3]", "i64[2, n]"), "i64[2, 2 * n + 3]", Attrs(-1)),
        Example(("bool[n]",), "bool[n]"),
    )
    bad_examples = (
        BadExample(("f32[n, 4]", "f32[m, 5]"), "shape-mismatch", "axis 1"),
        BadExample(("f32[n]", "f64[n]"), "dtype-mismatch", "part 1"),
        BadExample(("f32[]",), "axis-range", "axis 0"),
    )

    def infer(self, args: tuple[Type, ...], attrs: Concat.Attrs, ctx: InferCtx) -> Type:
        """Sum of the extents along the axis."""
        parts = _parts(args, ctx)
        axis = ctx.axis(attrs.axis, parts[0].rank)
        if not parts[0].rank:
            ctx.fail("axis 0 is out of range for rank 0", code="axis-range", help="use stack for scalars")
        shape = list(parts[0].shape)
        for n, part in enumerate(parts[1:], 1):
            for a, (x, y) in enumerate(zip(parts[0].shape, part.shape, strict=True)):
                if a == axis:
                    shape[a] = add(shape[a], y)
                else:
                    ctx.require_equal(x, y, f"axis {a} of part 0 and of part {n}")
                    shape[a] = y if isinstance(y, int) else shape[a]
        return TensorType(tuple(shape), parts[0].dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Concat.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One copying stage per part."""
        f = ProgramBuilder(self.name)
        axis = attrs.axis % out[0].rank
        parts = tuple(input_of(f, f"x{n}", t) for n, t in enumerate(args))
        y = output_of(f, "y", out[0])
        offset: DimLike = 0
        for part in parts:
            start = as_expr(offset)
            _copy_part(f, part, y, lambda i, s=start: (*i[:axis], i[axis] + s, *i[axis + 1 :]))
            offset = add(offset, part.shape[axis])
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Concat.Attrs) -> Array:
        """np.concatenate."""
        return np.concatenate(args, attrs.axis)


class Stack(Op["Stack.Attrs"]):
    """Tensors of one shape joined along a new axis ``axis`` of the result.

    TVM: relax.stack, ONNX: SequenceInsert/ConcatFromSequence with new_axis.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Place of the new axis in the result."""

        axis: int = 0

    name = "stack"
    moves = True
    params = (Param("parts", "tensors of one shape", variadic=True),)
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n]", "f32[n]", "f32[n]"), "f32[3, n]"),
        Example(("i32[n, 2]", "i32[n, 2]"), "i32[n, 2, 2]", Attrs(-1)),
        Example(("i64[]", "i64[]"), "i64[2]"),
    )
    bad_examples = (BadExample(("f32[2]", "f32[3]"), "shape-mismatch", "axis 0"),)

    def infer(self, args: tuple[Type, ...], attrs: Stack.Attrs, ctx: InferCtx) -> Type:
        """The parts' shape with their count inserted."""
        parts = _parts(args, ctx)
        axis = ctx.axis(attrs.axis, parts[0].rank + 1)
        shape = list(parts[0].shape)
        for n, part in enumerate(parts[1:], 1):
            for a, (x, y) in enumerate(zip(parts[0].shape, part.shape, strict=True)):
                ctx.require_equal(x, y, f"axis {a} of part 0 and of part {n}")
                shape[a] = y if isinstance(y, int) else shape[a]
        return TensorType((*shape[:axis], len(parts), *shape[axis:]), parts[0].dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Stack.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One copying stage per part."""
        f = ProgramBuilder(self.name)
        axis = attrs.axis % out[0].rank
        parts = tuple(input_of(f, f"x{n}", t) for n, t in enumerate(args))
        y = output_of(f, "y", out[0])
        for n, part in enumerate(parts):
            _copy_part(f, part, y, lambda i, n=n: _insert(i, axis, as_expr(n)))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Stack.Attrs) -> Array:
        """np.stack."""
        return np.stack(args, attrs.axis)


class Split(Op["Split.Attrs"]):
    """Cut along ``axis`` into a tuple of parts.

    ``sizes`` gives the parts' extents, which must add up (checked at run time where unknown); or ``sections`` gives the
    number of parts of extent ``ceil(d / sections)``, the last ones smaller (ONNX num_outputs). TVM: relax.split,
    ONNX: Split.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Parts and axis."""

        sections: int = 0
        sizes: tuple[DimLike, ...] = ()
        axis: int = 0

    name = "split"
    moves = True
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[2 * n, 4]",), ("f32[n, 4]", "f32[n, 4]"), Attrs(2)),
        Example(("i64[n, 7]",), ("i64[n, 3]", "i64[n, 3]", "i64[n, 1]"), Attrs(3, axis=-1)),
        Example(("f32[n + 3]",), ("f32[n]", "f32[3]"), Attrs(sizes=(dim("n"), 3))),
    )
    bad_examples = (
        BadExample(("f32[n]",), "attribute", "sections", Attrs()),
        BadExample(("f32[n]",), "attribute", "at most", Attrs(1 << 60)),
        BadExample(("f32[4]",), "shape-mismatch", "sum of the sizes", Attrs(sizes=(1, 2))),
    )

    @staticmethod
    def sizes(attrs: Split.Attrs, extent: DimLike) -> tuple[DimLike, ...]:
        """Extents of the parts."""
        if attrs.sizes:
            return attrs.sizes
        part = ceildiv(extent, attrs.sections)
        if mul(part, attrs.sections) == extent:
            return (part,) * attrs.sections
        return tuple(max_(0, min_(part, sub(extent, mul(part, n)))) for n in range(attrs.sections))

    def infer(self, args: tuple[Type, ...], attrs: Split.Attrs, ctx: InferCtx) -> Type:
        """A tuple of the parts' types."""
        x = ctx.tensor(args, 0, "x")
        axis = ctx.axis(attrs.axis, x.rank)
        if not x.rank:
            ctx.fail("axis 0 is out of range for rank 0", code="axis-range")
        if (attrs.sections < 1) == (not attrs.sizes):
            ctx.fail("give either sections >= 1 or sizes", code="attribute")
        if attrs.sections > MOST_PARTS:
            ctx.fail(f"sections is {attrs.sections}, at most {MOST_PARTS} are possible", code="attribute")
        sizes = self.sizes(attrs, x.shape[axis])
        if attrs.sizes:
            total: DimLike = 0
            for n, size in enumerate(sizes):
                ctx.require_at_least(0, size, f"sizes[{n}]")
                total = add(total, size)
            ctx.require_equal(total, x.shape[axis], f"sum of the sizes and extent of axis {axis}")
        elif ctx.facts.divides(attrs.sections, x.shape[axis]) is Proof.PROVED:
            sizes = (ctx.facts.simplify(floordiv(x.shape[axis], attrs.sections)),) * attrs.sections
        return TupleType(tuple(TensorType((*x.shape[:axis], s, *x.shape[axis + 1 :]), x.dtype) for s in sizes))

    def lower(self, args: tuple[TensorType, ...], attrs: Split.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One copying stage per part."""
        f = ProgramBuilder(self.name)
        axis = attrs.axis % args[0].rank
        x = input_of(f, "x", args[0])
        parts = tuple(output_of(f, f"y{n}", t) for n, t in enumerate(out))
        offset: DimLike = 0
        for part in parts:
            start = as_expr(offset)
            f.compute(part, lambda *i, s=start: x.at((*i[:axis], i[axis] + s, *i[axis + 1 :])))
            offset = add(offset, part.shape[axis])
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Split.Attrs) -> tuple[Array, ...]:
        """np.split at the running sums."""
        sizes = [int(s) for s in self.sizes(attrs, args[0].shape[attrs.axis])]
        return tuple(np.split(args[0], np.cumsum(sizes)[:-1], attrs.axis))


class Tile(Op["Tile.Attrs"]):
    """The whole tensor repeated ``repeats[a]`` times along each axis: ``y[i] = x[i % d]``.

    Fewer repeats than axes count for the last axes, more add leading axes (np.tile). Repeats are any dims >= 0.
    TVM: relax.tile, ONNX: Tile.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Copies along each axis."""

        repeats: tuple[DimLike, ...]

    name = "tile"
    moves = True
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, 2]",), "f32[3 * n, 4]", Attrs((3, 2))),
        Example(("i8[3]",), "i8[2, 3 * n]", Attrs((2, dim("n")))),
        Example(("f32[2, n]",), "f32[2, 0]", Attrs((0,))),
    )
    bad_examples = (BadExample(("f32[n]",), "shape-mismatch", "repeats[0]", Attrs((-1,))),)

    def infer(self, args: tuple[Type, ...], attrs: Tile.Attrs, ctx: InferCtx) -> Type:
        """Extents times repeats."""
        x = ctx.tensor(args, 0, "x")
        for n, r in enumerate(attrs.repeats):
            ctx.require_at_least(0, r, f"repeats[{n}]")
        rank = max(x.rank, len(attrs.repeats))
        shape = (1,) * (rank - x.rank) + x.shape
        repeats = (1,) * (rank - len(attrs.repeats)) + attrs.repeats
        return TensorType(tuple(mul(d, r) for d, r in zip(shape, repeats, strict=True)), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Tile.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Index modulo extent, where the axis is repeated."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        lead = out[0].rank - args[0].rank

        def value(*i: Expr) -> Expr:
            pairs = zip(i[lead:], x.shape, y.shape[lead:], strict=True)
            return x.at(tuple(v if d == total else v % d for v, d, total in pairs))

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Tile.Attrs) -> Array:
        """np.tile."""
        return np.tile(args[0], [int(r) for r in attrs.repeats])


class Repeat(Op["Repeat.Attrs"]):
    """Each element repeated ``repeats`` times along ``axis``: ``y[i] = x[i // repeats]``.

    ``repeats`` is any dim >= 0. TVM: relax.repeat, ONNX: none.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Copies and axis."""

        repeats: DimLike
        axis: int = 0

    name = "repeat"
    moves = True
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, 2]",), "f32[3 * n, 2]", Attrs(3)),
        Example(("i64[2, m]",), "i64[2, m * n]", Attrs(dim("n"), -1)),
    )
    bad_examples = (BadExample(("f32[n]",), "shape-mismatch", "repeats", Attrs(-2)),)

    def infer(self, args: tuple[Type, ...], attrs: Repeat.Attrs, ctx: InferCtx) -> Type:
        """One extent multiplied."""
        x = ctx.tensor(args, 0, "x")
        axis = ctx.axis(attrs.axis, x.rank)
        ctx.require_at_least(0, attrs.repeats, "repeats")
        return TensorType((*x.shape[:axis], mul(x.shape[axis], attrs.repeats), *x.shape[axis + 1 :]), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Repeat.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Index divided by the count (positive wherever the result has elements)."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        axis = attrs.axis % args[0].rank
        count = as_expr(attrs.repeats)
        f.compute(y, lambda *i: x.at((*i[:axis], i[axis] // count, *i[axis + 1 :])))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Repeat.Attrs) -> Array:
        """np.repeat."""
        return np.repeat(args[0], int(attrs.repeats), attrs.axis)


JOINING: Final[tuple[Op[Any], ...]] = (Concat(), Stack(), Split(), Tile(), Repeat())
