"""Operators that give the same elements another shape."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind
from relaxir.ir.types import TensorType, Type
from relaxir.ops.indexing import normalize_axes
from relaxir.ops.kernels import input_of, output_of, ravel, unravel
from relaxir.sym import DimLike, Proof, dim, product
from relaxir.tir import Expr, PrimFunc, ProgramBuilder, bcast


class Reshape(Op["Reshape.Attrs"]):
    """The same elements in row-major order under another shape.

    ``shape`` holds any dimensions, already normalised: `relaxir.ops.indexing.reshape_target` turns -1 and 0 into them.
    The number of elements must stay; what cannot be proved is checked at run time. Every dtype; no data is moved
    (a view in host programs). TVM: relax.reshape, ONNX: Reshape, Flatten.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """New shape."""

        shape: tuple[DimLike, ...]

    name = "reshape"
    moves = True
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, 4]",), "f32[4 * n]", Attrs((4 * dim("n"),))),
        Example(("i64[n, 2, m]",), "i64[m, n, 2]", Attrs((dim("m"), dim("n"), 2))),
        Example(("f32[6, n]",), "f32[2, 3, n, 1]", Attrs((2, 3, dim("n"), 1))),
        Example(("bool[1, 1]",), "bool[]", Attrs(())),
    )
    bad_examples = (
        BadExample(("f32[n, 4]",), "shape-mismatch", "number of elements", Attrs((4 * dim("n") + 1,))),
        BadExample(("f32[4]",), "attribute", "negative", Attrs((-2, -2))),
    )

    def infer(self, args: tuple[Type, ...], attrs: Reshape.Attrs, ctx: InferCtx) -> Type:
        """The target shape, if it has as many elements."""
        x = ctx.tensor(args, 0, "x")
        for axis, extent in enumerate(attrs.shape):
            if ctx.facts.prove_le(0, extent) is Proof.REFUTED:
                ctx.fail(
                    f"shape[{axis}] is negative: {extent}", code="attribute", help="normalise -1 with reshape_target"
                )
        ctx.require_equal(product(x.shape), product(attrs.shape), "number of elements before and after")
        for axis, extent in enumerate(attrs.shape):
            if not isinstance(extent, int):
                ctx.require_at_least(0, extent, f"shape[{axis}]")
        return TensorType(attrs.shape, x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Reshape.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """A copy through the row-major offset (where no view is possible)."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        f.compute(y, lambda *i: x.at(unravel(ravel(i, y.shape), x.shape)))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Reshape.Attrs) -> Array:
        """np.reshape."""
        return args[0].reshape([int(d) for d in attrs.shape])


class PermuteDims(Op["PermuteDims.Attrs"]):
    """``y[i0, i1, ...] = x`` with axes reordered: axis ``n`` of the result is axis ``axes[n]`` of x.

    ``axes`` is a permutation (negative entries count from the end); empty reverses all axes, as in NumPy. Every dtype,
    zero extents allowed. TVM: relax.permute_dims, ONNX: Transpose.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Source axis of each result axis."""

        axes: tuple[int, ...] = ()

    name = "permute_dims"
    moves = True
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, m, 4]",), "f32[4, n, m]", Attrs((2, 0, 1))),
        Example(("i8[n, 3]",), "i8[3, n]"),
        Example(("f32[]",), "f32[]"),
        Example(("f64[2, n, 3, m]",), "f64[2, m, 3, n]", Attrs((0, -1, 2, 1))),
    )
    bad_examples = (
        BadExample(("f32[n, m]",), "attribute", "permutation", Attrs((0, 0))),
        BadExample(("f32[n, m]",), "axis-range", "axis 2", Attrs((0, 2))),
    )

    @staticmethod
    def order(attrs: PermuteDims.Attrs, rank: int) -> tuple[int, ...]:
        """The permutation with defaults and negative axes resolved."""
        return tuple(a % rank for a in attrs.axes) if attrs.axes else tuple(reversed(range(rank)))

    def infer(self, args: tuple[Type, ...], attrs: PermuteDims.Attrs, ctx: InferCtx) -> Type:
        """Extents in the new order."""
        x = ctx.tensor(args, 0, "x")
        axes = tuple(ctx.axis(a, x.rank) for a in attrs.axes) or self.order(attrs, x.rank)
        if sorted(axes) != list(range(x.rank)):
            ctx.fail(f"axes {attrs.axes} are not a permutation of {x.rank} axes", code="attribute")
        return TensorType(tuple(x.shape[a] for a in axes), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: PermuteDims.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Load with the indices reordered."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        place = {source: target for target, source in enumerate(self.order(attrs, args[0].rank))}
        f.compute(y, lambda *i: x.at(tuple(i[place[a]] for a in range(len(i)))))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: PermuteDims.Attrs) -> Array:
        """np.transpose."""
        return np.transpose(args[0], attrs.axes or None)


class ExpandDims(Op["ExpandDims.Attrs"]):
    """Insert axes of extent 1 at the places ``axes`` of the *result* (negative ones count from its end).

    Every dtype. TVM: relax.expand_dims, ONNX: Unsqueeze.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Places of the new axes in the result."""

        axes: tuple[int, ...]

    name = "expand_dims"
    moves = True
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, 4]",), "f32[1, n, 4, 1]", Attrs((0, -1))),
        Example(("i64[]",), "i64[1]", Attrs((0,))),
        Example(("bool[n]",), "bool[n]", Attrs(())),
    )
    bad_examples = (
        BadExample(("f32[n]",), "axis-range", "axis 3", Attrs((3,))),
        BadExample(("f32[n]",), "attribute", "twice", Attrs((0, -3))),
    )

    def infer(self, args: tuple[Type, ...], attrs: ExpandDims.Attrs, ctx: InferCtx) -> Type:
        """Shape with the ones inserted."""
        x = ctx.tensor(args, 0, "x")
        rank = x.rank + len(attrs.axes)
        axes = normalize_axes(attrs.axes, rank, ctx)
        rest = iter(x.shape)
        return TensorType(tuple(1 if a in axes else next(rest) for a in range(rank)), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: ExpandDims.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Drop the indices of the new axes."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        new = {a % out[0].rank for a in attrs.axes}
        f.compute(y, lambda *i: x.at(tuple(v for a, v in enumerate(i) if a not in new)))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ExpandDims.Attrs) -> Array:
        """np.expand_dims."""
        return np.expand_dims(args[0], attrs.axes)


class Squeeze(Op["Squeeze.Attrs"]):
    """Remove the axes ``axes``, whose extent must be 1 (a symbolic one is checked at run time).

    `relaxir.ops.indexing.unit_axes` lists all axes that are the constant 1. Every dtype. TVM: relax.squeeze, ONNX:
    Squeeze.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Axes to remove."""

        axes: tuple[int, ...]

    name = "squeeze"
    moves = True
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[1, n, 1]",), "f32[n]", Attrs((0, 2))),
        Example(("f32[1, n, 1]",), "f32[1, n]", Attrs((-1,))),
        Example(("i32[n, 4]",), "i32[4]", Attrs((0,)), sizes=MappingProxyType({"n": 1})),
    )
    bad_examples = (
        BadExample(("f32[4, n]",), "shape-mismatch", "axis 0", Attrs((0,))),
        BadExample(("f32[1, n]",), "axis-range", "axis 2", Attrs((2,))),
    )

    def infer(self, args: tuple[Type, ...], attrs: Squeeze.Attrs, ctx: InferCtx) -> Type:
        """Shape without the removed axes."""
        x = ctx.tensor(args, 0, "x")
        gone = normalize_axes(attrs.axes, x.rank, ctx)
        for axis in gone:
            ctx.require_equal(x.shape[axis], 1, f"extent of axis {axis}, which is removed,")
        return TensorType(tuple(d for a, d in enumerate(x.shape) if a not in gone), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Squeeze.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Index 0 on the removed axes."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        gone = {a % args[0].rank for a in attrs.axes}

        def value(*i: Expr) -> Expr:
            rest = iter(i)
            return x[tuple(0 if a in gone else next(rest) for a in range(args[0].rank))]

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Squeeze.Attrs) -> Array:
        """np.squeeze."""
        return np.squeeze(args[0], attrs.axes)


class BroadcastTo(Op["BroadcastTo.Attrs"]):
    """Repeat axes of extent 1 up to ``shape``; axes align at the end, missing leading ones are added.

    Each extent of x must be 1 or the target's (checked at run time where unknown). ONNX's Expand, where the target may
    be 1 too, is this with `relaxir.ops.indexing.expand_target`. Every dtype. TVM: relax.broadcast_to, ONNX: Expand.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Result shape."""

        shape: tuple[DimLike, ...]

    name = "broadcast_to"
    moves = True
    kind = OpKind.BROADCAST
    examples = (
        Example(("f32[4]",), "f32[n, 4]", Attrs((dim("n"), 4))),
        Example(("f32[n, 1]",), "f32[2, n, m]", Attrs((2, dim("n"), dim("m")))),
        Example(("i64[]",), "i64[n]", Attrs((dim("n"),))),
    )
    bad_examples = (
        BadExample(("f32[3]",), "shape-mismatch", "axis 0", Attrs((4,))),
        BadExample(("f32[n, 3]",), "rank-mismatch", "rank", Attrs((3,))),
    )

    def infer(self, args: tuple[Type, ...], attrs: BroadcastTo.Attrs, ctx: InferCtx) -> Type:
        """The target shape."""
        x = ctx.tensor(args, 0, "x")
        if x.rank > len(attrs.shape):
            ctx.fail(f"x has rank {x.rank}, the target only rank {len(attrs.shape)}", code="rank-mismatch")
        aligned = attrs.shape[len(attrs.shape) - x.rank :]
        for axis, (got, want) in enumerate(zip(x.shape, aligned, strict=True)):
            if got == 1:
                continue
            answer = ctx.facts.broadcast(got, want)
            if answer.verdict is not Proof.PROVED or ctx.facts.prove_equal(answer.dim, want) is not Proof.PROVED:
                merged = ctx.broadcast(((got,), (want,)))[0] if want != 1 else got
                ctx.require_equal(merged, want, f"axis {axis} of x and of the target")
        return TensorType(attrs.shape, x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: BroadcastTo.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Index 0 on repeated axes."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        lead = out[0].rank - args[0].rank

        def value(*i: Expr) -> Expr:
            pairs = zip(i[lead:], args[0].shape, out[0].shape[lead:], strict=True)
            return x.at(tuple(v if have == want else bcast(v, have) for v, have, want in pairs))

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: BroadcastTo.Attrs) -> Array:
        """np.broadcast_to."""
        return np.broadcast_to(args[0], [int(d) for d in attrs.shape]).copy()


MOVEMENT: Final[tuple[Op[Any], ...]] = (Reshape(), PermuteDims(), ExpandDims(), Squeeze(), BroadcastTo())
