"""Pooling of regions that are data: roi_align."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import FLOATS, check_dtype, check_same_dtype, compute_dtype, load_wide, widen
from relaxir.ops.kernels import assign, cell, input_of, let, loop, output_of, scoped, seq, when, within
from relaxir.sym import DimLike
from relaxir.tir import (
    Assert,
    Buffer,
    Expr,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    Stmt,
    Store,
    as_expr,
    call,
    cast,
    const,
    eq,
    maximum,
    minimum,
    select,
)


@dataclass(frozen=True, slots=True)
class RoiAlignAttrs(BaseAttrs):
    """Attributes of `RoiAlign`."""

    output_height: DimLike = 1
    """Bins along the height of a region."""
    output_width: DimLike = 1
    """Bins along its width."""
    spatial_scale: float = 1.0
    """Factor from the coordinates of regions to those of x."""
    sampling_ratio: int = 0
    """Samples per bin and axis; 0: as many as the bin has elements, rounded up."""
    mode: Literal["avg", "max"] = "avg"
    """Mean, or largest weighted neighbour of any sample."""
    half_pixel: bool = True
    """Shift coordinates by half an element (aligned); otherwise a region is at least one element wide and high."""


class RoiAlign(Op[RoiAlignAttrs]):
    """Pool regions of interest by bilinear sampling.

    x is (N, C, H, W), the result (R, C, output_height, output_width) for R regions.
    A region is (x1, y1, x2, y2) of the image ``indices[r]``; an index out of range fails the call. Samples lie
    evenly in a bin; those more than one element outside x count as 0, others are clamped. With mode max the four
    weighted neighbours of every sample compete, as ONNX defines it. TVM: relax.vision.roi_align, ONNX: RoiAlign.
    """

    name = "roi_align"
    params = (
        Param("x", "(batch, channels, height, width)", FLOATS),
        Param("rois", "(regions, 4)", FLOATS),
        Param("indices", "image of each region", ("int64", "int32")),
    )
    Attrs = RoiAlignAttrs
    examples = tuple(
        Example(
            ("f32[2, 2, 5, 6]", "f32[r, 4]", "i64[r]"),
            "f32[r, 2, 2, 3]",
            RoiAlignAttrs(2, 3, 0.8, ratio, "max" if biggest else "avg", half),
            low=0,
            high=1 if biggest else 0,
            values=(None, ((0.3, 0.2, 3.6, 5.9), (1, 1, 2, 2), (-2, 1, 9, 4), (4, 4, 3, 3)), None),
            sizes={"r": 4},
        )
        for ratio, biggest, half in ((0, False, True), (2, False, False), (0, True, False), (2, True, True))
    )
    bad_examples = (
        BadExample(("f32[1, 2, 5, 5]", "f32[3, 5]", "i64[3]"), "shape-mismatch", "axis 1 of rois", RoiAlignAttrs()),
        BadExample(("f32[1, 2, 5, 5]", "f32[3, 4]", "i64[2]"), "shape-mismatch", "indices", RoiAlignAttrs()),
        BadExample(("f32[1, 2, 5]", "f32[3, 4]", "i64[3]"), "rank-mismatch", "x has rank 3", RoiAlignAttrs()),
    )

    def infer(self, args: tuple[Type, ...], attrs: RoiAlignAttrs, ctx: InferCtx) -> Type:
        """Regions, channels, bins."""
        x, rois, indices = (ctx.tensor(args, n, name) for n, name in enumerate(("x", "rois", "indices")))
        check_dtype(ctx, x, "x", FLOATS)
        check_same_dtype(ctx, (x, rois), ("x", "rois"))
        check_dtype(ctx, indices, "indices", ("int64", "int32"))
        for t, name, rank in ((x, "x", 4), (rois, "rois", 2), (indices, "indices", 1)):
            if t.rank != rank:
                ctx.fail(f"{name} has rank {t.rank}, expected {rank}", code="rank-mismatch")
        ctx.require_equal(rois.shape[1], 4, "axis 1 of rois")
        ctx.require_equal(indices.shape[0], rois.shape[0], "indices and axis 0 of rois")
        for axis in (2, 3):
            ctx.require_at_least(1, x.shape[axis], f"extent of axis {axis} of x")
        return TensorType((rois.shape[0], x.shape[1], attrs.output_height, attrs.output_width), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: RoiAlignAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Begin, bin and sample count of every region, then a serial sum of samples per bin."""
        f = ProgramBuilder(self.name)
        x, rois, indices = (input_of(f, n, t) for n, t in zip(("x", "rois", "indices"), args, strict=True))
        y = output_of(f, "y", out[0])
        wide = compute_dtype(y.dtype)
        begin, size = (f.temp(n, (rois.shape[0], 2), wide) for n in ("begin", "size"))
        samples = f.temp("samples", (rois.shape[0], 2), "int64")
        offset = 0.5 if attrs.half_pixel else 0.0
        bins = (attrs.output_height, attrs.output_width)

        def corner(r: Expr, axis: Expr) -> Expr:
            # regions name x before y
            return load_wide(rois, (r, const(1) - axis)) * attrs.spatial_scale - offset

        def bin_size(r: Expr, axis: Expr) -> Expr:
            extent = load_wide(rois, (r, const(3) - axis)) * attrs.spatial_scale - offset - corner(r, axis)
            extent = extent if attrs.half_pixel else maximum(extent, 1.0)
            return extent / select(eq(axis, 0), as_expr(bins[0], wide), as_expr(bins[1], wide))

        f.compute(begin, corner)
        f.compute(size, bin_size)
        ratio = const(attrs.sampling_ratio)
        count_of = (
            (lambda r, axis: ratio)
            if attrs.sampling_ratio > 0
            else lambda r, a: cast(call(Intrinsic.CEIL, size[r, a]), "int64")
        )
        f.compute(samples, count_of)

        def body(r: Expr, c: Expr, ph: Expr, pw: Expr) -> Stmt:
            image = cast(indices[r], "int64")
            message = f"{self.name}: index {{}} is out of range for {{}} images"
            check = Assert(within(image, x.shape[0]), "runtime-index", message, (image, as_expr(x.shape[0])))
            total, found = cell("total", wide), cell("found")
            high, across = samples[r, 0], samples[r, 1]

            def place(axis: int, p: Expr, s: Expr) -> Expr:
                many = cast(samples[r, axis], wide)
                return begin[r, axis] + cast(p, wide) * size[r, axis] + (cast(s, wide) + 0.5) * size[r, axis] / many

            def visit(iy: Expr) -> Stmt:
                return loop(
                    "ix",
                    across,
                    lambda ix: let(
                        "py",
                        place(0, ph, iy),
                        lambda py: let(
                            "px", place(1, pw, ix), lambda px: _sample(x, image, c, py, px, total, found, attrs)
                        ),
                    ),
                )

            many = maximum(high * across, 1)
            result = total[()] / cast(many, wide) if attrs.mode == "avg" else total[()]
            work = seq(loop("iy", high, visit), Store(y, (r, c, ph, pw), cast(result, y.dtype)))
            start = (assign(total, 0.0), assign(found, 0))
            return scoped((total, found), check, *start, when(within(image, x.shape[0]), work))

        f.block("y", y.shape, body)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: RoiAlignAttrs) -> Array:
        """Sample by sample, all channels at once."""
        x, rois = widen(args[0]), widen(args[1])
        bins = (int(attrs.output_height), int(attrs.output_width))
        y = np.zeros((len(rois), x.shape[1], *bins), x.dtype)
        shift = x.dtype.type(0.5 if attrs.half_pixel else 0)
        scale = x.dtype.type(attrs.spatial_scale)
        for r, (roi, image) in enumerate(zip(rois, args[2], strict=True)):
            low, high = roi[1::-1] * scale - shift, roi[:1:-1] * scale - shift
            extent = high - low if attrs.half_pixel else np.maximum(high - low, 1)
            size = extent / np.array(bins, x.dtype)
            counts = [attrs.sampling_ratio or max(int(np.ceil(s)), 0) for s in size]
            for p in np.ndindex(*bins):
                values = []
                for s in np.ndindex(*counts):
                    at = [low[a] + p[a] * size[a] + (s[a] + x.dtype.type(0.5)) * size[a] / counts[a] for a in range(2)]
                    values.append(_neighbours(x[int(image)], at))
                if values and attrs.mode == "avg":
                    y[(r, slice(None), *p)] = np.sum(values, (0, 1)) / len(values)
                elif values:
                    y[(r, slice(None), *p)] = np.max(values, (0, 1))
        return y.astype(args[0].dtype)


def _sample(
    x: Buffer, image: Expr, c: Expr, py: Expr, px: Expr, total: Buffer, found: Buffer, attrs: RoiAlignAttrs
) -> Stmt:
    """Add the weighted neighbours of one place to the total."""
    wide = total.dtype
    inside: Expr | None = None
    parts: list[tuple[tuple[Expr, Expr], tuple[Expr, Expr]]] = []
    for place, d in ((py, x.shape[2]), (px, x.shape[3])):
        near = (place >= -1.0) & (place <= as_expr(d, wide))
        inside = near if inside is None else inside & near
        clamped = maximum(place, 0.0)
        low = minimum(maximum(cast(clamped, "int64"), 0), as_expr(d) - 1)
        last = low >= as_expr(d) - 1
        high = select(last, low, low + 1)
        rest = select(last, const(0, wide), clamped - cast(low, wide))
        parts.append(((low, as_expr(1.0, wide) - rest), (high, rest)))
    assert inside is not None
    values = [
        select(inside, load_wide(x, (image, c, iy, ix)) * (wy * wx), const(0, wide))
        for iy, wy in parts[0]
        for ix, wx in parts[1]
    ]
    result = values[0]
    for v in values[1:]:
        result = result + v if attrs.mode == "avg" else maximum(result, v)
    if attrs.mode == "avg":
        return assign(total, total[()] + result)
    return seq(assign(total, select(eq(found[()], 0), result, maximum(total[()], result))), assign(found, 1))


def _neighbours(x: Array, at: list[Any]) -> list[Array]:
    """Weighted neighbours of a place in (C, H, W): four arrays (C,)."""
    if any(v < -1 or v > d for v, d in zip(at, x.shape[1:], strict=True)):
        return [np.zeros(x.shape[0], x.dtype)] * 4
    parts = []
    for value, d in zip(at, x.shape[1:], strict=True):
        v = max(value, x.dtype.type(0))
        low = min(int(v), d - 1)
        high, rest = (low, x.dtype.type(0)) if low == d - 1 else (low + 1, v - low)
        parts.append(((low, 1 - rest), (high, rest)))
    return [x[:, iy, ix] * (wy * wx) for iy, wy in parts[0] for ix, wx in parts[1]]


REGIONS: Final = (RoiAlign(),)
