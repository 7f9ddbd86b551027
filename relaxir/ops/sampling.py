"""Sampling at places given as data: grid_sample and the grids of affine maps."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import product as pairs
from typing import Any, Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import FLOATS, check_dtype, compute_dtype, load_wide, widen
from relaxir.ops.conv import guarded
from relaxir.ops.kernels import assign, cell, input_of, nest, output_of, scoped, seq, within
from relaxir.support.saturation import saturated
from relaxir.sym import DimLike, max_, mul, sub
from relaxir.tir import (
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

CUBIC: Final = -0.75
"""Coefficient a of Keys' kernel, PyTorch's choice."""
CUBIC_REACH: Final = 2.0
"""Elements beyond the border from which on all neighbours of a cubic are the one at the border."""
TAPS: Final = (("linear", 2), ("cubic", 4))


@dataclass(frozen=True, slots=True)
class GridSampleAttrs(BaseAttrs):
    """Attributes of `GridSample`."""

    mode: Literal["nearest", "linear", "cubic"] = "linear"
    """Interpolation between elements."""
    padding_mode: Literal["zeros", "border", "reflection"] = "zeros"
    """What lies outside: zeros, the nearest border, or the mirror image."""
    align_corners: bool = False
    """Whether -1 and 1 are the centres of the corner elements, or their outer edges."""
    normalized: bool = True
    """Whether coordinates run from -1 to 1 over the image, or count elements from the first."""


def grid_attrs(mode: Any, padding_mode: Any, align_corners: bool) -> GridSampleAttrs:
    """Attributes from values of a product of choices."""
    return GridSampleAttrs(mode, padding_mode, align_corners)


class GridSample(Op[GridSampleAttrs]):
    """Sample x at places given in -1..1: ``y[n, c, o...] = x[n, c, place(grid[n, o...])]``, interpolated.

    x is (N, C, *spatial) with k spatial axes, grid (N, *out, k) with coordinates of the last axis first. Neighbours
    outside count as 0 (zeros), as the nearest element (border), or as the mirrored one (reflection). Between two
    elements places outside are brought inside first; a cubic reads its four neighbours around the place itself, as
    PyTorch and ONNX Runtime do. Nearest rounds halves to even. TVM: relax.image.grid_sample, ONNX: GridSample, whose
    reference clamps the place of a cubic at the border as well.
    """

    name = "grid_sample"
    params = (Param("x", "(batch, channels, *spatial)", FLOATS), Param("grid", "(batch, *out, axes)", FLOATS))
    Attrs = GridSampleAttrs
    examples = (
        *(
            Example(
                ("f32[n, 2, 3, 4]", "f32[n, h, 2, 2]"),
                "f32[n, 2, h, 2]",
                grid_attrs(m, p, a),
                sizes={"n": 1},
                atol=1e-4,
            )
            for m, p, a in pairs(("nearest", "linear", "cubic"), ("zeros", "border", "reflection"), (False, True))
        ),
        Example(("f64[1, 1, h, 3, 2]", "f64[1, 2, 1, 2, 3]"), "f64[1, 1, 2, 1, 2]", GridSampleAttrs(), min_size=1),
        *(
            Example(
                ("f32[1, 2, h, 4]", "f32[1, 2, 3, 2]"),
                "f32[1, 2, 2, 3]",
                GridSampleAttrs(padding_mode=p, normalized=False),
                low=-3.0,
                high=6.0,
                min_size=1,
            )
            for p in ("zeros", "reflection")
        ),
        Example(("f16[1, 1, 5]", "f16[1, w, 1]"), "f16[1, 1, w]", GridSampleAttrs(), low=-1, high=1, atol=0.02),
    )
    bad_examples = (
        BadExample(("f32[1, 2, 3, 4]", "f32[1, 2, 2, 3]"), "shape-mismatch", "last axis of grid", GridSampleAttrs()),
        BadExample(("f32[1, 2, 3, 4]", "f32[1, 2, 2]"), "rank-mismatch", "grid has rank 3", GridSampleAttrs()),
        BadExample(("f32[1, 2, 3]", "f32[2, 2, 1]"), "shape-mismatch", "axis 0", GridSampleAttrs()),
    )

    def infer(self, args: tuple[Type, ...], attrs: GridSampleAttrs, ctx: InferCtx) -> Type:
        """Batch and channels of x, the grid's extents."""
        x, grid = ctx.tensor(args, 0, "x"), ctx.tensor(args, 1, "grid")
        check_dtype(ctx, x, "x", FLOATS)
        check_dtype(ctx, grid, "grid", FLOATS)
        if x.rank < 3 or grid.rank != x.rank:
            ctx.fail(
                f"x has rank {x.rank} and grid has rank {grid.rank}, expected one of at least 3", code="rank-mismatch"
            )
        ctx.require_equal(grid.shape[0], x.shape[0], "axis 0 of grid and of x")
        ctx.require_equal(grid.shape[-1], x.rank - 2, "last axis of grid and the spatial axes of x")
        if attrs.padding_mode != "zeros":
            for axis, d in enumerate(x.shape[2:]):
                ctx.require_at_least(1, d, f"extent of spatial axis {axis}, padded by {attrs.padding_mode},")
        return TensorType((*x.shape[:2], *grid.shape[1:-1]), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: GridSampleAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """A table of places, then a sum over the neighbours of each."""
        f = ProgramBuilder(self.name)
        x, grid, y = input_of(f, "x", args[0]), input_of(f, "grid", args[1]), output_of(f, "y", out[0])
        extents = x.shape[2:]
        rank, wide = len(extents), compute_dtype(x.dtype)
        places = [f.temp(f"place{a}", (x.shape[0], *y.shape[2:]), wide) for a in range(rank)]
        for axis, (place, d) in enumerate(zip(places, extents, strict=True)):

            def compute(*i: Expr, axis: int = axis, d: DimLike = d) -> Expr:
                return _settled(cast(grid[(*i, rank - 1 - axis)], wide), d, attrs)

            f.compute(place, compute)

        def neighbour(i: tuple[Expr, ...], tap: Sequence[Expr]) -> Expr:
            """Weighted element for one choice of neighbours."""
            at, inside, weight = i[:2], [], None
            for place, d, t in zip(places, extents, tap, strict=True):
                value = place[(i[0], *i[2:])]
                base = call(Intrinsic.FLOOR, value)
                shift = t if attrs.mode != "cubic" else t - 1
                index = cast(base, "int64") + shift
                if attrs.padding_mode == "zeros":
                    inside.append(within(index, d))
                    at += (index,)
                else:
                    at += (_fold(index, d, attrs),)
                if attrs.mode != "nearest":
                    w = _weight(call(Intrinsic.ABS, value - base - cast(shift, wide)), attrs.mode)
                    weight = w if weight is None else weight * w
            element = guarded(inside, load_wide(x, at), const(0, wide))
            return element if weight is None else element * weight

        count = dict(TAPS).get(attrs.mode, 1)
        if count <= 2:
            choices = tuple(tuple(map(const, c)) for c in pairs(range(count), repeat=rank))
            f.compute(y, lambda *i: cast(reduce(lambda a, b: a + b, (neighbour(i, c) for c in choices)), y.dtype))
            return f.build()

        def body(*i: Expr) -> Stmt:
            total = cell("total", wide)
            steps = nest("k", (count,) * rank, lambda *t: assign(total, total[()] + neighbour(i, t)))
            return scoped((total,), seq(assign(total, 0.0), steps, Store(y, i, cast(total[()], y.dtype))))

        f.block("y", y.shape, body)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: GridSampleAttrs) -> Array:
        """Gather with NumPy, neighbour by neighbour."""
        x, grid = widen(args[0]), widen(args[1]).astype(widen(args[0]).dtype)
        count = dict(TAPS).get(attrs.mode, 1)
        y = np.zeros((*x.shape[:2], *grid.shape[1:-1]), np.float64)
        for n in range(x.shape[0]):
            places = [_settled_numpy(grid[n, ..., x.ndim - 3 - a], d, attrs) for a, d in enumerate(x.shape[2:])]
            for tap in pairs(range(count), repeat=len(places)):
                weight: Any = 1.0
                inside: Any = True
                at: tuple[Array, ...] = ()
                for place, d, t in zip(places, x.shape[2:], tap, strict=True):
                    shift = t - 1 if attrs.mode == "cubic" else t
                    base = np.floor(place)
                    index = saturated(base, np.dtype(np.int64)) + shift
                    if attrs.mode != "nearest":
                        weight = weight * _weight_numpy(np.abs(place - base - shift), attrs.mode)
                    inside = inside & (attrs.padding_mode != "zeros" or (index >= 0) & (index < d))
                    at += (_folded(index, d, attrs),)
                if 0 in x.shape[2:]:
                    continue
                y[n] += np.where(inside, x[n][(slice(None), *at)], 0) * weight
        return y.astype(args[0].dtype)


def _settled(coordinate: Expr, d: DimLike, attrs: GridSampleAttrs) -> Expr:
    """Place along an axis of extent ``d``, brought inside where the padding mode says so."""
    size, one = as_expr(d, coordinate.dtype), const(1, coordinate.dtype)
    if attrs.align_corners:
        place, low, reach = (coordinate + 1.0) / 2.0 * (size - one), const(0, size.dtype), size - one
    else:
        place, low, reach = ((coordinate + 1.0) * size - 1.0) / 2.0, const(-0.5, size.dtype), size
    if not attrs.normalized:
        place = coordinate
    if attrs.mode == "nearest":
        return call(Intrinsic.ROUND, place)  # the index itself is brought inside
    if attrs.padding_mode == "border" and attrs.mode == "cubic":
        return minimum(maximum(place, -CUBIC_REACH), size + (CUBIC_REACH - 1.0))
    if attrs.padding_mode == "border":
        return select((place < low) | (place > low + reach), minimum(maximum(place, 0.0), size - one), place)
    if attrs.padding_mode == "reflection":
        period = reach * 2.0
        turn = place - low
        turn = turn - period * call(Intrinsic.FLOOR, turn / period)
        return select(eq(period, 0.0), low, low + minimum(turn, period - turn))
    return place


def _fold(index: Expr, d: DimLike, attrs: GridSampleAttrs) -> Expr:
    """Index of the element that stands for one outside."""
    if attrs.padding_mode == "border":
        return minimum(maximum(index, 0), sub(d, 1))
    last = sub(mul(2, d), 2 if attrs.align_corners else 1)
    period = max_(last, 1) if attrs.align_corners else mul(2, d)
    turn = index % period
    return minimum(turn, as_expr(last) - turn)


def _weight(distance: Expr, mode: str) -> Expr:
    if mode == "linear":
        return as_expr(1.0, distance.dtype) - distance
    a, d = CUBIC, distance
    near = (d * (a + 2) - (a + 3)) * d * d + 1.0
    far = ((d * a - 5 * a) * d + 8 * a) * d - 4 * a
    return select(d <= 1.0, near, far)


def _settled_numpy(coordinate: Array, d: int, attrs: GridSampleAttrs) -> Array:
    low, high = (0.0, d - 1.0) if attrs.align_corners else (-0.5, d - 0.5)
    place: Any = (coordinate + 1) / 2 * (d - 1) if attrs.align_corners else ((coordinate + 1) * d - 1) / 2
    if not attrs.normalized:
        place = coordinate
    if attrs.mode == "nearest":
        return np.asarray(np.rint(place))
    if attrs.padding_mode == "border" and attrs.mode == "cubic":
        return np.asarray(np.clip(place, -CUBIC_REACH, d - 1 + CUBIC_REACH))
    if attrs.padding_mode == "border":
        place = np.where((place < low) | (place > high), np.clip(place, 0, d - 1), place)
    if attrs.padding_mode == "reflection":
        turn = np.mod(place - low, 2 * (high - low)) if high > low else np.zeros_like(place)
        place = low + np.minimum(turn, 2 * (high - low) - turn)
    return np.asarray(place)


def _folded(index: Array, d: int, attrs: GridSampleAttrs) -> Array:
    if attrs.padding_mode != "reflection":
        return np.clip(index, 0, max(d - 1, 0))
    last = 2 * d - (2 if attrs.align_corners else 1)
    turn = np.mod(index, max(last, 1) if attrs.align_corners else 2 * d)
    return np.asarray(np.minimum(turn, last - turn))


def _weight_numpy(d: Array, mode: str) -> Array:
    if mode == "linear":
        return 1 - d
    a = CUBIC
    return np.where(d <= 1, (a + 2) * d**3 - (a + 3) * d**2 + 1, a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a)


class AffineGrid(Op["AffineGrid.Attrs"]):
    """Places for `grid_sample` under affine maps: ``y[n, i...] = theta[n] @ (base(i)..., 1)``.

    ``theta`` is (N, k, k + 1), the result (N, *size, k); ``base`` runs over -1..1 along each axis, last axis first:
    element centres, or with ``align_corners`` from the first to the last element (0 for an axis of one element).
    TVM: relax.image.affine_grid, ONNX: AffineGrid.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Spatial extents of the grid and its convention."""

        size: tuple[DimLike, ...]
        align_corners: bool = False

    name = "affine_grid"
    params = (Param("theta", "(batch, axes, axes + 1)", FLOATS),)
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[n, 2, 3]",), "f32[n, 3, 4, 2]", Attrs((3, 4))),
        Example(("f64[2, 2, 3]",), "f64[2, 1, 5, 2]", Attrs((1, 5), True)),
        Example(("f32[n, 3, 4]",), "f32[n, 2, 3, 1, 3]", Attrs((2, 3, 1))),
    )
    bad_examples = (
        BadExample(("f32[n, 2, 4]",), "shape-mismatch", "axis 2 of theta", Attrs((3, 4))),
        BadExample(("f32[2, 3]",), "rank-mismatch", "theta has rank 2", Attrs((3, 4))),
    )

    def infer(self, args: tuple[Type, ...], attrs: AffineGrid.Attrs, ctx: InferCtx) -> Type:
        """Batch, extents, one coordinate per axis."""
        theta = ctx.tensor(args, 0, "theta")
        check_dtype(ctx, theta, "theta", FLOATS)
        axes = len(attrs.size)
        if theta.rank != 3:
            ctx.fail(f"theta has rank {theta.rank}, expected 3", code="rank-mismatch")
        ctx.require_equal(theta.shape[1], axes, "axis 1 of theta and the number of axes")
        ctx.require_equal(theta.shape[2], axes + 1, "axis 2 of theta and the number of axes plus 1")
        for axis, d in enumerate(attrs.size):
            ctx.require_at_least(0, d, f"extent of axis {axis} of the grid")
        return TensorType((theta.shape[0], *attrs.size, axes), theta.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: AffineGrid.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One expression per coordinate."""
        f = ProgramBuilder(self.name)
        theta, y = input_of(f, "theta", args[0]), output_of(f, "y", out[0])
        wide = compute_dtype(y.dtype)

        def base(i: Expr, d: DimLike) -> Expr:
            place, size = cast(i, wide) * 2.0, as_expr(d, wide)
            if not attrs.align_corners:
                return (place + 1.0) / size - 1.0
            return select(eq(size, 1.0), const(0, wide), place / (size - 1.0) - 1.0)

        def value(*i: Expr) -> Expr:
            n, *inner, r = i
            total = load_wide(theta, (n, r, const(len(inner))))
            for c, (v, d) in enumerate(zip(reversed(inner), reversed(attrs.size), strict=True)):
                total = total + load_wide(theta, (n, r, const(c))) * base(v, d)
            return cast(total, y.dtype)

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: AffineGrid.Attrs) -> Array:
        """By its definition, in double."""
        theta = args[0].astype(np.float64)
        size = tuple(int(d) for d in attrs.size)
        lines = [
            np.array(
                [
                    (2 * i / (d - 1) - 1 if d > 1 else 0.0) if attrs.align_corners else (2 * i + 1) / d - 1
                    for i in range(d)
                ]
            )
            for d in size
        ]
        grids = np.meshgrid(*lines, indexing="ij")
        base = np.stack([*reversed(grids), np.ones(size)], -1)
        return np.asarray(np.einsum("...c,nrc->n...r", base, theta)).astype(args[0].dtype)


SAMPLING: Final[tuple[Op[Any], ...]] = (GridSample(), AffineGrid())
