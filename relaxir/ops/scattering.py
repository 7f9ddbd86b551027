"""Operators that write elements at positions given by a tensor of indices, and blocks of pixels into channels."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import compute_dtype
from relaxir.ops.dynamic import tensor_type
from relaxir.ops.gathering import INDICES, check_positions, element_indices, index_operand, least_extent, position_depth
from relaxir.ops.kernels import check_index, emit_op, extent_of, index_of, input_of, loop, nest, output_of
from relaxir.ops.select import AsType, AsTypeAttrs
from relaxir.sym import DimLike, floordiv, mod, mul
from relaxir.tir import Combine, Expr, PrimFunc, ProgramBuilder, Store, as_expr

Reduction = Literal["none", "add", "mul", "max", "min"]
COMBINES: Final = MappingProxyType(
    {"none": None, "add": Combine.SUM, "mul": Combine.PROD, "max": Combine.MAX, "min": Combine.MIN}
)
UFUNCS: Final = MappingProxyType({"add": np.add, "mul": np.multiply, "max": np.maximum, "min": np.minimum})


def check_updates(x: TensorType, updates: TensorType, reduction: str, ctx: InferCtx) -> None:
    """Dtype of the updates, and whether the reduction exists for it."""
    if updates.dtype != x.dtype:
        ctx.fail(f"updates are {updates.dtype}, x is {x.dtype}", code="dtype-mismatch")
    if x.dtype == "bool" and reduction != "none":
        ctx.fail(f"reduction `{reduction}` needs numbers, got bool", code="dtype-mismatch")


def write_at(x: Array, places: tuple[Array, ...], updates: Array, reduction: str) -> Array:
    """NumPy's unbuffered write to a copy: the last of equal places wins, or all combine, 16-bit floats in float32."""
    if reduction == "none":
        y = x.copy()
        y[places] = updates
        return y
    y = x.astype(np.float32 if x.dtype == np.float16 else x.dtype)
    UFUNCS[reduction].at(y, places, updates)
    return y.astype(x.dtype)


def in_single(
    op: Op[Any], args: tuple[GraphExpr, ...], reduction: str, attrs: BaseAttrs, bb: BlockBuilder
) -> GraphExpr | None:
    """Running sums and products of 16-bit floats in float32: rounded at each step, they would stand still."""
    x, indices, updates = args
    dtype = tensor_type(x).dtype
    wide = compute_dtype(dtype)
    if wide == dtype or reduction not in ("add", "mul"):
        return None
    start, terms = (emit_op(bb, AsType(), v, attrs=AsTypeAttrs(wide)) for v in (x, updates))
    return emit_op(bb, AsType(), emit_op(bb, op, start, indices, terms, attrs=attrs), attrs=AsTypeAttrs(dtype))


class ScatterElements(Op["ScatterElements.Attrs"]):
    """A copy of x with ``y[..., indices[..., i, ...], ...] = updates[..., i, ...]`` at the position of ``axis``.

    ``reduction`` combines with what is there: add, mul, max or min (numbers only); without one, the last of equal
    places along the axis wins. Negative indices count from the end; others outside fail the call (``runtime-index``).
    TVM: relax.scatter_elements, ONNX: ScatterElements.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """The indexed axis, and how updates combine."""

        axis: int = 0
        reduction: Reduction = "none"

    name = "scatter_elements"
    params = (Param("x"), Param("indices", "x's rank", INDICES), Param("updates", "shape of indices"))
    examples = (
        Example(("f32[4, n]", "i64[2, n]", "f32[2, n]"), "f32[4, n]", low=-4, high=3),
        Example(("i64[n, 3]", "i32[n, 5]", "i64[n, 5]"), "i64[n, 3]", Attrs(-1, "add"), low=0, high=2),
        Example(("f32[3]", "i64[m]", "f32[m]"), "f32[3]", Attrs(0, "max"), low=0, high=2),
        Example(("i32[3]", "i64[m]", "i32[m]"), "i32[3]", Attrs(0, "mul"), low=0, high=2),
        Example(("f16[3]", "i64[m]", "f16[m]"), "f16[3]", Attrs(0, "add"), low=0, high=2),
    )
    bad_examples = (
        BadExample(("f32[n]", "i64[m]", "f64[m]"), "dtype-mismatch", "updates"),
        BadExample(("f32[n]", "i64[2]", "f32[3]"), "shape-mismatch", "axis 0"),
        BadExample(("bool[n]", "i64[2]", "bool[2]"), "dtype-mismatch", "needs numbers", Attrs(0, "add")),
    )

    def infer(self, args: tuple[Type, ...], attrs: ScatterElements.Attrs, ctx: InferCtx) -> Type:
        """Type of x."""
        x, indices, updates = ctx.tensor(args, 0, "x"), index_operand(args, 1, ctx), ctx.tensor(args, 2, "updates")
        check_updates(x, updates, attrs.reduction, ctx)
        element_indices(x, indices, attrs.axis, ctx)
        if updates.rank != indices.rank:
            ctx.fail(f"updates have rank {updates.rank}, indices rank {indices.rank}", code="rank-mismatch")
        for a, (have, want) in enumerate(zip(updates.shape, indices.shape, strict=True)):
            ctx.require_equal(have, want, f"axis {a} of updates and of indices")
        return x

    def decompose(
        self, args: tuple[GraphExpr, ...], attrs: ScatterElements.Attrs, bb: BlockBuilder
    ) -> GraphExpr | None:
        """`in_single`."""
        return in_single(self, args, attrs.reduction, attrs, bb)

    def positions(self, args: tuple[GraphExpr, ...], attrs: ScatterElements.Attrs) -> Mapping[int, DimLike]:
        """Indices are along the axis."""
        return {1: extent_of(args[0], attrs.axis)}

    def lower(
        self, args: tuple[TensorType, ...], attrs: ScatterElements.Attrs, out: tuple[TensorType, ...]
    ) -> PrimFunc:
        """Checks, a copy, then one serial line along the axis for each point of the others."""
        f = ProgramBuilder(self.name)
        x, indices, updates = (input_of(f, p.name, t) for p, t in zip(self.params, args, strict=True))
        y = output_of(f, "y", out[0])
        axis = attrs.axis % args[0].rank
        extent, combine = x.shape[axis], COMBINES[attrs.reduction]
        f.block("check", indices.shape, lambda *j: check_index(self.name, indices.at(j), extent, axis))
        f.compute(y, lambda *i: x.at(i), "copy")

        def line(*i: Expr) -> Any:
            def write(j: Expr) -> Any:
                at = (*i[:axis], j, *i[axis:])
                return Store(y, (*i[:axis], index_of(indices.at(at), extent), *i[axis:]), updates.at(at), combine)

            return loop("j", indices.shape[axis], write)

        f.block("scatter", (*indices.shape[:axis], *indices.shape[axis + 1 :]), line)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ScatterElements.Attrs) -> Array:
        """`write_at` of explicit places."""
        x, indices, updates = args
        axis, places = attrs.axis % x.ndim, np.indices(indices.shape)
        at = (*places[:axis], indices.astype(np.int64), *places[axis + 1 :])
        return write_at(x, at, updates, attrs.reduction)


class ScatterND(Op["ScatterND.Attrs"]):
    """A copy of x with ``y[indices[j..., :], k...] = updates[j..., k...]``: the last axis of indices holds positions.

    ``reduction`` as in `ScatterElements`; without one, the last of equal positions in row-major order wins. Negative
    entries count from the end; others outside fail the call (``runtime-index``). TVM: relax.scatter_nd, ONNX:
    ScatterND.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """How updates combine."""

        reduction: Reduction = "none"

    name = "scatter_nd"
    params = (Param("x"), Param("indices", "positions in the last axis", INDICES), Param("updates"))
    examples = (
        Example(("f32[4, n]", "i64[m, 1]", "f32[m, n]"), "f32[4, n]", low=-4, high=3),
        Example(("i64[3, 3]", "i32[m, 2]", "i64[m]"), "i64[3, 3]", Attrs("add"), low=0, high=2),
        Example(("f32[3]", "i64[2, m, 1]", "f32[2, m]"), "f32[3]", Attrs("min"), low=0, high=2),
        Example(("bf16[3]", "i64[2, m, 1]", "bf16[2, m]"), "bf16[3]", Attrs("add"), low=0, high=2),
    )
    bad_examples = (
        BadExample(("f32[n]", "i64[m, 2]", "f32[m]"), "rank-mismatch", "positions"),
        BadExample(("f32[n, 3]", "i64[2, 1]", "f32[2, 4]"), "shape-mismatch", "axis 1 of updates"),
    )

    def infer(self, args: tuple[Type, ...], attrs: ScatterND.Attrs, ctx: InferCtx) -> Type:
        """Type of x."""
        x, indices, updates = ctx.tensor(args, 0, "x"), index_operand(args, 1, ctx), ctx.tensor(args, 2, "updates")
        check_updates(x, updates, attrs.reduction, ctx)
        depth = position_depth(x, indices, 0, ctx)
        want = (*indices.shape[:-1], *x.shape[depth:])
        if updates.rank != len(want):
            ctx.fail(f"updates must have rank {len(want)}, got {updates.rank}", code="rank-mismatch")
        for a, (u, w) in enumerate(zip(updates.shape, want, strict=True)):
            ctx.require_equal(u, w, f"axis {a} of updates and of what indices address")
        return x

    def decompose(self, args: tuple[GraphExpr, ...], attrs: ScatterND.Attrs, bb: BlockBuilder) -> GraphExpr | None:
        """`in_single`."""
        return in_single(self, args, attrs.reduction, attrs, bb)

    def positions(self, args: tuple[GraphExpr, ...], attrs: ScatterND.Attrs) -> Mapping[int, DimLike]:
        """Indices are along the first axes."""
        return least_extent(args, 0)

    def lower(self, args: tuple[TensorType, ...], attrs: ScatterND.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Checks, a copy, then all positions in order for each element of a slice."""
        f = ProgramBuilder(self.name)
        x, indices, updates = (input_of(f, p.name, t) for p, t in zip(self.params, args, strict=True))
        y = output_of(f, "y", out[0])
        depth = int(str(indices.shape[-1]))
        combine = COMBINES[attrs.reduction]
        check_positions(f, self.name, x, indices, 0)
        f.compute(y, lambda *i: x.at(i), "copy")

        def element(*k: Expr) -> Any:
            def write(*j: Expr) -> Any:
                target = tuple(index_of(indices[(*j, n)], x.shape[n]) for n in range(depth))
                return Store(y, (*target, *k), updates.at((*j, *k)), combine)

            return nest("j", indices.shape[:-1], write)

        f.block("scatter", x.shape[depth:], element)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ScatterND.Attrs) -> Array:
        """`write_at` with the positions as index arrays."""
        x, indices, updates = args
        return write_at(x, tuple(np.moveaxis(indices.astype(np.int64), -1, 0)), updates, attrs.reduction)


class Blocks(Op["Blocks.Attrs"]):
    """Base of `DepthToSpace` and `SpaceToDepth`: images in NCHW, square blocks of ``size`` pixels."""

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Block size, and whether the block's place varies slowest (DCR) or fastest (CRD) in the channels."""

        size: int
        mode: Literal["DCR", "CRD"] = "DCR"

    kind = OpKind.INJECTIVE

    def image(self, args: tuple[Type, ...], attrs: Blocks.Attrs, ctx: InferCtx) -> TensorType:
        """The operand, checked with the attributes."""
        x = ctx.tensor(args, 0, "x")
        if x.rank != 4:
            ctx.fail(f"x must have rank 4, got {x.rank}", code="rank-mismatch")
        if attrs.size < 1:
            ctx.fail(f"size must be at least 1, got {attrs.size}", code="attribute")
        return x

    @staticmethod
    def channel(attrs: Blocks.Attrs, channels: DimLike) -> Callable[[Expr, Expr, Expr], Expr]:
        """Deep channel from (channel, row, column) of the block; ``channels`` are those of the flat side."""
        s = attrs.size
        if attrs.mode == "DCR":
            return lambda c, row, column: (row * s + column) * as_expr(channels) + c
        return lambda c, row, column: c * (s * s) + row * s + column


class DepthToSpace(Blocks):
    """Channels moved into blocks of pixels: ``y[b, c, h*s + i, w*s + j] = x[b, (i*s + j)*C + c, h, w]`` (DCR).

    The channels must be a multiple of ``size**2``. TVM: relax.nn.pixel_shuffle (CRD), ONNX: DepthToSpace.
    """

    name = "depth_to_space"
    examples = (
        Example(("f32[n, 8, 2, m]",), "f32[n, 2, 4, 2 * m]", Blocks.Attrs(2)),
        Example(("f32[1, 9, n, m]",), "f32[1, 1, 3 * n, 3 * m]", Blocks.Attrs(3, "CRD")),
        Example(("i8[1, 4 * n, 2, 2]",), "i8[1, n, 4, 4]", Blocks.Attrs(2, "CRD")),
    )
    bad_examples = (
        BadExample(("f32[1, 6, 2, 2]",), "shape-mismatch", "channels", Blocks.Attrs(2)),
        BadExample(("f32[4, 2, 2]",), "rank-mismatch", "rank 4", Blocks.Attrs(2)),
    )

    def infer(self, args: tuple[Type, ...], attrs: Blocks.Attrs, ctx: InferCtx) -> Type:
        """Fewer channels, larger images."""
        x = self.image(args, attrs, ctx)
        batch, channels, height, width = x.shape
        square = attrs.size**2
        ctx.require_equal(mod(channels, square), 0, f"remainder of the channels by {square}")
        shape = (batch, ctx.facts.simplify(floordiv(channels, square)), mul(height, attrs.size), mul(width, attrs.size))
        return TensorType(shape, x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Blocks.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One mapped load."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        s, deep = attrs.size, self.channel(attrs, out[0].shape[1])
        f.compute(y, lambda b, c, h, w: x[b, deep(c, h % s, w % s), h // s, w // s])
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Blocks.Attrs) -> Array:
        """Reshape, transpose, reshape."""
        b, c, h, w = args[0].shape
        s, flat = attrs.size, c // attrs.size**2
        if attrs.mode == "DCR":
            y = args[0].reshape(b, s, s, flat, h, w).transpose(0, 3, 4, 1, 5, 2)
        else:
            y = args[0].reshape(b, flat, s, s, h, w).transpose(0, 1, 4, 2, 5, 3)
        return y.reshape(b, flat, h * s, w * s)


class SpaceToDepth(Blocks):
    """Blocks of pixels moved into channels: ``y[b, (i*s + j)*C + c, h, w] = x[b, c, h*s + i, w*s + j]`` (DCR).

    Height and width must be multiples of ``size``. TVM: none, ONNX: SpaceToDepth.
    """

    name = "space_to_depth"
    examples = (
        Example(("f32[n, 3, 2 * m, 4]",), "f32[n, 12, m, 2]", Blocks.Attrs(2)),
        Example(("f32[1, n, 3, 3]",), "f32[1, 9 * n, 1, 1]", Blocks.Attrs(3, "CRD")),
    )
    bad_examples = (BadExample(("f32[1, 1, 3, 4]",), "shape-mismatch", "axis 2", Blocks.Attrs(2)),)

    def infer(self, args: tuple[Type, ...], attrs: Blocks.Attrs, ctx: InferCtx) -> Type:
        """More channels, smaller images."""
        x = self.image(args, attrs, ctx)
        batch, channels, *image = x.shape
        for axis, extent in enumerate(image, 2):
            ctx.require_equal(mod(extent, attrs.size), 0, f"remainder of axis {axis} by {attrs.size}")
        smaller = (ctx.facts.simplify(floordiv(d, attrs.size)) for d in image)
        return TensorType((batch, mul(channels, attrs.size**2), *smaller), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Blocks.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One mapped load."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        s, channels = attrs.size, args[0].shape[1]

        def value(b: Expr, d: Expr, h: Expr, w: Expr) -> Expr:
            if attrs.mode == "DCR":
                c, place = d % channels, d // channels
            else:
                c, place = d // (s * s), d % (s * s)
            return x[b, c, h * s + place // s, w * s + place % s]

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Blocks.Attrs) -> Array:
        """Reshape, transpose, reshape."""
        b, c, h, w = args[0].shape
        s = attrs.size
        order = (0, 3, 5, 1, 2, 4) if attrs.mode == "DCR" else (0, 1, 3, 5, 2, 4)
        return args[0].reshape(b, c, h // s, s, w // s, s).transpose(order).reshape(b, c * s * s, h // s, w // s)


SCATTERING: Final[tuple[Op[Any], ...]] = (ScatterElements(), ScatterND(), DepthToSpace(), SpaceToDepth())
