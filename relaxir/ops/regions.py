"""Pooling of regions that are data: roi_align."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import product
from math import inf, nan
from typing import Any, Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.expr import Array
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import FLOATS, check_dtype, check_same_dtype, compute_dtype, load_wide, widen
from relaxir.ops.kernels import assign, cell, extent_of, input_of, let, loop, output_of, scoped, seq, when, within
from relaxir.sym import DimLike, add, mul
from relaxir.tir import (
    Assert,
    Buffer,
    Expr,
    If,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    Stmt,
    Store,
    Var,
    While,
    as_expr,
    call,
    cast,
    const,
    eq,
    maximum,
    minimum,
    select,
)

MOST_SAMPLES: Final = 1 << 12
"""Largest sampling ratio."""
MOST_COUNTED: Final = 1 << 62
"""Samples per bin and axis of a region of any size."""


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


NEAR: Final = ((0.3, 0.2, 3.6, 5.9), (1, 1, 2, 2), (-2, 1, 9, 4), (4, 4, 3, 3))
"""Regions of an example, in the image and around it."""
FAR: Final = ((-1e9, 1, 3e9, 4), (0, 0, 1e30, 1e38), (0, 0, inf, 2), (-inf, 0, inf, 2), (1, nan, 2, 3))
"""Regions with more samples than can be visited."""


class RoiAlign(Op[RoiAlignAttrs]):
    """Pool regions of interest by bilinear sampling.

    x is (N, C, H, W), the result (R, C, output_height, output_width) for R regions.
    A region is (x1, y1, x2, y2) of the image ``indices[r]``; an index out of range fails the call. Samples lie
    evenly in a bin; those more than one element outside x count as 0, others are clamped. With mode max the four
    weighted neighbours of every sample compete, as ONNX defines it. Only samples inside are visited, so regions may be
    of any size; infinite ones and those with NaN give 0. TVM: relax.vision.roi_align, ONNX: RoiAlign.
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
            values=(None, (*NEAR, *FAR), None),
            sizes={"r": len(NEAR) + len(FAR)},
        )
        for ratio, biggest, half in ((0, False, True), (2, False, False), (0, True, False), (2, True, True))
    )
    bad_examples = (
        BadExample(("f32[1, 2, 5, 5]", "f32[3, 5]", "i64[3]"), "shape-mismatch", "axis 1 of rois", RoiAlignAttrs()),
        BadExample(("f32[1, 2, 5, 5]", "f32[3, 4]", "i64[2]"), "shape-mismatch", "indices", RoiAlignAttrs()),
        BadExample(("f32[1, 2, 5]", "f32[3, 4]", "i64[3]"), "rank-mismatch", "x has rank 3", RoiAlignAttrs()),
        BadExample(
            ("f32[1, 2, 5, 5]", "f32[3, 4]", "i64[3]"), "attribute", "sampling_ratio", RoiAlignAttrs(1, 1, 1.0, 1 << 20)
        ),
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
        if attrs.sampling_ratio > MOST_SAMPLES:
            ctx.fail(f"sampling_ratio must be at most {MOST_SAMPLES}, got {attrs.sampling_ratio}", code="attribute")
        ctx.require_equal(rois.shape[1], 4, "axis 1 of rois")
        ctx.require_equal(indices.shape[0], rois.shape[0], "indices and axis 0 of rois")
        for axis in (2, 3):
            ctx.require_at_least(1, x.shape[axis], f"extent of axis {axis} of x")
        return TensorType((rois.shape[0], x.shape[1], attrs.output_height, attrs.output_width), x.dtype)

    def positions(self, args: tuple[GraphExpr, ...], attrs: RoiAlignAttrs) -> Mapping[int, DimLike]:
        """Images of the batch."""
        return {2: extent_of(args[0], 0)}

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
            else lambda r, a: minimum(cast(call(Intrinsic.CEIL, size[r, a]), "int64"), MOST_COUNTED)
        )
        f.compute(samples, count_of)

        def place(axis: int, r: Expr, p: Expr, s: Expr) -> Expr:
            many = cast(samples[r, axis], wide)
            return begin[r, axis] + cast(p, wide) * size[r, axis] + (cast(s, wide) + 0.5) * size[r, axis] / many

        # the samples of each bin that lie inside: the first one, and how many
        first = [f.temp("first", (rois.shape[0], n), "int64") for n in bins]
        inside = [f.temp("inside", (rois.shape[0], n), "int64") for n in bins]
        for axis, extent in enumerate(x.shape[2:]):

            def begins(r: Expr, p: Expr, axis: int = axis) -> Stmt:
                return _search(samples[r, axis], lambda s: place(axis, r, p, s) < -1.0, first[axis], (r, p))

            def ends(r: Expr, p: Expr, axis: int = axis, extent: DimLike = extent) -> Stmt:
                far, low = as_expr(extent, wide), first[axis][r, p]
                seen = minimum(inside[axis][r, p] - low, _most_inside(attrs, extent))
                return seq(
                    _search(samples[r, axis], lambda s: place(axis, r, p, s) <= far, inside[axis], (r, p)),
                    Store(inside[axis], (r, p), maximum(seen, 0)),
                )

            f.block("first", first[axis].shape, begins)
            f.block("inside", inside[axis].shape, ends)

        def body(r: Expr, c: Expr, ph: Expr, pw: Expr) -> Stmt:
            image = cast(indices[r], "int64")
            message = f"{self.name}: index {{}} is out of range for {{}} images"
            check = Assert(within(image, x.shape[0]), "runtime-index", message, (image, as_expr(x.shape[0])))
            total, found = cell("total", wide), cell("found")
            high, across = samples[r, 0], samples[r, 1]
            rows, columns = inside[0][r, ph], inside[1][r, pw]

            def visit(iy: Expr) -> Stmt:
                return loop(
                    "ix",
                    columns,
                    lambda ix: let(
                        "py",
                        place(0, r, ph, first[0][r, ph] + iy),
                        lambda py: let(
                            "px",
                            place(1, r, pw, first[1][r, pw] + ix),
                            lambda px: _sample(x, image, c, py, px, total, found, attrs),
                        ),
                    ),
                )

            many = maximum(cast(high, wide) * cast(across, wide), 1.0)
            # samples outside compete with 0
            all_seen = (rows >= high) & (columns >= across)
            best = select(all_seen | eq(found[()], 0), total[()], maximum(total[()], 0.0))
            result = total[()] / many if attrs.mode == "avg" else best
            work = seq(loop("iy", rows, visit), Store(y, (r, c, ph, pw), cast(result, y.dtype)))
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
            counts = [_count(attrs, s) for s in size]
            for p in np.ndindex(*bins):
                places = [_places(low[a], size[a], counts[a], p[a]) for a in range(2)]
                seen = [
                    _inside(place, count, d, int(_most_inside(attrs, d)))
                    for place, count, d in zip(places, counts, x.shape[2:], strict=True)
                ]
                values = [_neighbours(x[int(image)], [places[0](iy), places[1](ix)]) for iy, ix in product(*seen)]
                total = x.dtype.type(counts[0]) * x.dtype.type(counts[1])
                if values and attrs.mode == "avg":
                    y[(r, slice(None), *p)] = np.sum(values, (0, 1)) / total
                elif values:
                    outside = any(len(s) < c for s, c in zip(seen, counts, strict=True))
                    y[(r, slice(None), *p)] = np.maximum(np.max(values, (0, 1)), 0 if outside else -inf)
        return y.astype(args[0].dtype)


def _count(attrs: RoiAlignAttrs, size: Any) -> int:
    """Samples along one axis of a bin."""
    if attrs.sampling_ratio > 0:
        return attrs.sampling_ratio
    return int(np.nan_to_num(np.clip(np.ceil(np.float64(size)), 0, MOST_COUNTED)))


def _places(low: Any, size: Any, count: int, p: int) -> Callable[[int], Any]:
    """Where the samples of one bin lie along an axis."""
    return lambda s: low + p * size + (s + type(size)(0.5)) * size / count


def _inside(place: Callable[[int], Any], count: int, extent: int, most: int) -> range:
    """Samples of a bin that lie inside an axis, at most so many: places rise with the number of the sample."""
    start = bisect_left(range(count), True, key=lambda s: not place(s) < -1)
    stop = bisect_left(range(count), True, key=lambda s: not place(s) <= extent)
    return range(start, max(start, min(stop, start + most)))


def _most_inside(attrs: RoiAlignAttrs, extent: DimLike) -> DimLike:
    """Samples of a bin inside an axis: more than half an element apart, or as many as are asked for.

    Of a region so large that floats do not tell its samples apart no more are visited.
    """
    return attrs.sampling_ratio if attrs.sampling_ratio > 0 else add(mul(extent, 2), 4)


def _search(count: Expr, before: Callable[[Expr], Expr], target: Buffer, at: tuple[Expr, ...]) -> Stmt:
    """Store the first number below ``count`` for which a condition that holds up to some number fails, by bisection."""
    low, high = cell("low"), cell("high")
    middle = low[()] + (high[()] - low[()]) // 2

    def halve(half: Var) -> Stmt:
        return If(before(half), assign(low, half + 1), assign(high, half))

    start = (assign(low, 0), assign(high, maximum(count, 0)))
    turns = While(low[()] < high[()], let("half", middle, halve))
    return scoped((low, high), *start, turns, Store(target, at, low[()]))


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
