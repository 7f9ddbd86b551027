"""Resampling of any axes: nearest, linear, cubic, with every coordinate convention of ONNX."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce
from math import ceil, inf, isfinite
from typing import Any, Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import NUMERIC, check_dtype
from relaxir.ops.conv import guarded
from relaxir.ops.indexing import normalize_axes
from relaxir.ops.kernels import assign, cell, input_of, loop, output_of, scoped, seq
from relaxir.ops.resize_axis import (
    FILTER_RADIUS,
    AxisMap,
    clamped,
    coordinate,
    nearest_index,
    resize_matrix,
    tap_weight,
)
from relaxir.ops.slicing import replace_at
from relaxir.support.dtypes import info
from relaxir.support.fractions import simplest
from relaxir.sym import DimLike, add, ceildiv, floordiv, max_, min_, mul
from relaxir.tir import (
    Buffer,
    Combine,
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
    select,
)

Coordinates = Literal[
    "half_pixel",
    "half_pixel_symmetric",
    "pytorch_half_pixel",
    "align_corners",
    "asymmetric",
    "tf_crop_and_resize",
]


@dataclass(frozen=True, slots=True)
class ResizeAttrs(Attrs):
    """Attributes of `Resize`: exactly one of ``sizes`` and ``scales``, an entry per axis of ``axes``."""

    sizes: tuple[DimLike, ...] = ()
    """Extents of the result."""
    scales: tuple[float, ...] = ()
    """Factors, each the simplest fraction that rounds to it; the result has ``floor(extent * scale)`` elements."""
    axes: tuple[int, ...] = ()
    """Resized axes; empty: all."""
    mode: Literal["nearest", "linear", "cubic"] = "nearest"
    """How elements between the grid points are made."""
    coordinate_transformation_mode: Coordinates = "half_pixel"
    """Where an element of the result lies in x, by ONNX's names."""
    nearest_mode: Literal["round_prefer_floor", "round_prefer_ceil", "floor", "ceil"] = "round_prefer_floor"
    """Rounding for ``nearest``."""
    cubic_coeff_a: float = -0.75
    """Coefficient a of the cubic kernel."""
    exclude_outside: bool = False
    """Drop taps outside x and rescale the others, rather than repeat the border."""
    extrapolation_value: float = 0.0
    """Element for places outside x (tf_crop_and_resize)."""
    antialias: bool = False
    """When shrinking, stretch the linear or cubic kernel by the factor."""
    roi: tuple[float, ...] = ()
    """Begins, then ends of the region in units of x (tf_crop_and_resize); empty: all of x."""
    keep_aspect_ratio_policy: Literal["stretch", "not_larger", "not_smaller"] = "stretch"
    """With ``sizes``: stretch to them, or scale all axes alike: the largest result not_larger, the smallest
    not_smaller."""


class Resize(Op[ResizeAttrs]):
    """Resample axes of x, one after the other: ``y[i] = sum over k of weight(k - place(i)) * x[k]``.

    ``place`` follows ``coordinate_transformation_mode`` and is computed in float64; elements beyond the border
    repeat it. Weights: the nearest element, a hat (linear) or Keys' cubic kernel. Floats are summed in float32 or
    wider; integers in floats, rounded half to even and saturated. Extents and ``sizes`` may be symbolic or known
    only at run time; an axis must have an element where the result has one. With tf_crop_and_resize and ``scales``
    the region's extent is what is scaled. Factors and regions known only at run time are operands, beside ``sizes``:
    the factors then say where elements lie, and nothing else. TVM: relax.image.resize2d, ONNX: Resize, Upsample.
    """

    name = "resize"
    params = (
        Param("x", "any shape", NUMERIC),
        Param("factors", "one per axis of ``axes``", ("float32",), optional=True),
        Param("region", "begins, then ends, in units of x", ("float32",), optional=True),
    )
    Attrs = ResizeAttrs
    kind = OpKind.INJECTIVE
    examples = (
        Example(("f32[1, n, m]",), "f32[1, 2*n, 2*m]", ResizeAttrs(scales=(1, 2, 2)), sizes={"m": 3}),
        Example(
            ("f32[2, n, 4]",),
            "f32[2, (n*3)//5, 2]",
            ResizeAttrs(scales=(0.6, 0.6), axes=(1, 2), mode="linear"),
            min_size=2,
        ),
        Example(
            ("f32[n, 3]",),
            "f32[7, 5]",
            ResizeAttrs((7, 5), mode="linear", coordinate_transformation_mode="align_corners"),
            min_size=1,
        ),
        Example(("u8[n, 3]",), "u8[n, 5]", ResizeAttrs((5,), axes=(1,), mode="linear"), low=0, high=255),
        Example(("f64[n, 3]",), "f64[4, 3]", ResizeAttrs((4,), axes=(0,), mode="cubic"), min_size=1),
        Example(
            ("f32[4, n]",),
            "f32[2, n // 2]",
            ResizeAttrs(scales=(0.5, 0.5), mode="cubic", exclude_outside=True, cubic_coeff_a=-0.5),
        ),
        Example(("f32[n, 5]",), "f32[3, 2]", ResizeAttrs((3, 2), mode="linear", antialias=True), min_size=1),
        Example(("f32[7, n]",), "f32[3, 4]", ResizeAttrs((3, 4), mode="cubic", antialias=True), min_size=1),
        Example(("f16[n]",), "f16[n // 4]", ResizeAttrs(scales=(0.25,), mode="linear", antialias=True)),
        Example(
            ("f32[n, 4]",),
            "f32[3, 3]",
            ResizeAttrs(
                (3, 3),
                mode="linear",
                coordinate_transformation_mode="tf_crop_and_resize",
                roi=(0.4, 0.6, 0.6, 1.7),
                extrapolation_value=10.0,
            ),
            min_size=1,
        ),
        Example(
            ("i32[n]",),
            "i32[6]",
            ResizeAttrs((6,), nearest_mode="ceil", coordinate_transformation_mode="pytorch_half_pixel"),
            min_size=1,
        ),
        Example(
            ("f32[n]",),
            "f32[6]",
            ResizeAttrs((6,), nearest_mode="round_prefer_ceil", coordinate_transformation_mode="asymmetric"),
            min_size=1,
        ),
        Example(
            ("bf16[n]",),
            "bf16[2*n + n // 4]",
            ResizeAttrs(scales=(2.25,), mode="linear", coordinate_transformation_mode="half_pixel_symmetric"),
        ),
        Example(
            ("f32[3, 4]",),
            "f32[6, 8]",
            ResizeAttrs((7, 8), keep_aspect_ratio_policy="not_larger"),
        ),
        Example(
            ("f32[3, 4]",), "f32[7, 9]", ResizeAttrs((7, 8), mode="linear", keep_aspect_ratio_policy="not_smaller")
        ),
        Example(("f32[n, 2]",), "f32[n, 2]", ResizeAttrs(scales=(1, 1), mode="cubic")),
        Example(("f32[n, 3]", "f32[1]"), "f32[5, 3]", ResizeAttrs((5,), axes=(0,)), values=(None, (1.3,)), min_size=1),
        Example(
            ("f32[7, n]", "f32[2]"),
            "f32[3, 4]",
            ResizeAttrs((3, 4), mode="linear", antialias=True),
            values=(None, (0.45, 1.9)),
            min_size=1,
        ),
        Example(
            ("f32[n, 4]", "f32[2]", "f32[4]"),
            "f32[3, 3]",
            ResizeAttrs((3, 3), mode="linear", coordinate_transformation_mode="tf_crop_and_resize"),
            values=(None, (1.0, 1.0), (0.4, 0.6, 0.6, 1.7)),
            min_size=1,
        ),
    )
    bad_examples = (
        BadExample(("f32[4]",), "attribute", "exactly one of sizes and scales", ResizeAttrs()),
        BadExample(("f32[4, 4]",), "attribute", "1 values for 2 axes", ResizeAttrs((3,))),
        BadExample(("f32[0]",), "shape-mismatch", "axis 0", ResizeAttrs((3,))),
        BadExample(("f32[4]",), "attribute", "scale", ResizeAttrs(scales=(0.0,))),
        BadExample(("f32[4]", "f32[1]"), "attribute", "factors", ResizeAttrs(scales=(2.0,))),
        BadExample(("f32[4]", "f32[2]"), "shape-mismatch", "factors", ResizeAttrs((3,))),
    )

    def infer(self, args: tuple[Type, ...], attrs: ResizeAttrs, ctx: InferCtx) -> Type:
        """Sizes, or scaled extents."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", NUMERIC)
        check_attrs(ctx, attrs, x.rank)
        check_operands(ctx, args, attrs, x.rank)
        shape = list(x.shape)
        for m in axis_maps(attrs, x.shape):
            out = ctx.facts.simplify(m.out)
            ctx.require_at_least(0, out, f"extent of axis {m.axis} of the result")
            ctx.require_le(min_(out, 1), m.extent, f"elements needed along axis {m.axis} of x")
            shape[m.axis] = out
        return TensorType(tuple(shape), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: ResizeAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Tables of places and weights per axis, then one pass per axis; nearest: one pass for all axes."""
        f = ProgramBuilder(self.name)
        x = input_of(f, "x", args[0])
        operands = tuple(input_of(f, p.name, t) for p, t in zip(self.params[1:], args[1:], strict=False))
        given = tuple(lambda n, b=b: cast(b[n], "float64") for b in operands)
        y = output_of(f, "y", out[0])
        found = with_operands(axis_maps(attrs, x.shape), given)
        maps = tuple(m.with_out(y.shape[m.axis]) for m in found if not m.identity)
        if attrs.mode == "nearest" or not maps:
            _nearest(f, x, y, maps, attrs)
            return f.build()
        wide = "float64" if info(x.dtype).bits > 32 or x.dtype in ("int32", "uint32") else "float32"
        source = x
        for n, m in enumerate(maps):
            last = n == len(maps) - 1
            shape = (*source.shape[: m.axis], m.out, *source.shape[m.axis + 1 :])
            target = y if last else f.temp(f"pass{n}", shape, wide)
            _pass(f, source, target, m, wide, attrs)
            source = target
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ResizeAttrs) -> Array:
        """One matrix per axis, in float64."""
        x = args[0]
        result = x if attrs.mode == "nearest" else x.astype(np.float64)
        given = tuple(lambda n, a=a: float(a[n]) for a in args[1:])
        for m in with_operands(axis_maps(attrs, x.shape), given):
            if m.identity:
                continue
            matrix, outside = resize_matrix(m, attrs)
            if attrs.mode == "nearest":  # a choice: integers beyond 2 ** 53 stay exact
                result = np.take(result, matrix.argmax(1), m.axis) if m.out else result.take([], m.axis)
            else:
                result = np.moveaxis(np.tensordot(matrix, result, (1, m.axis)), 0, m.axis)
            mask = outside.reshape([-1 if a == m.axis else 1 for a in range(x.ndim)])
            result = np.where(mask, np.asarray(attrs.extrapolation_value, result.dtype), result)
        if x.dtype.kind in "iu" and result.dtype.kind == "f":
            limits = np.iinfo(x.dtype)
            result = np.clip(np.rint(result), limits.min, limits.max)
        return np.asarray(result).astype(x.dtype)


def check_attrs(ctx: InferCtx, attrs: ResizeAttrs, rank: int) -> None:
    """Raise unless the attributes make sense for the rank."""
    if bool(attrs.sizes) == bool(attrs.scales):
        ctx.fail("exactly one of sizes and scales is needed", code="attribute")
    axes = normalize_axes(attrs.axes, rank, ctx) if attrs.axes else tuple(range(rank))
    given = len(attrs.sizes or attrs.scales)
    if given != len(axes):
        ctx.fail(f"sizes or scales have {given} values for {len(axes)} axes", code="attribute")
    if not all(0 < s < inf for s in attrs.scales):
        ctx.fail(f"each scale must be a finite number above 0, got {attrs.scales}", code="attribute")
    if not all(isfinite(r) for r in attrs.roi):
        ctx.fail(f"roi must have finite numbers, got {attrs.roi}", code="attribute")
    if attrs.roi and len(attrs.roi) != 2 * len(axes):
        ctx.fail(f"roi has {len(attrs.roi)} values for {len(axes)} axes", code="attribute")
    if attrs.antialias and attrs.mode == "nearest":
        ctx.fail("antialias needs mode linear or cubic", code="attribute")


def axis_maps(attrs: ResizeAttrs, shape: Sequence[DimLike]) -> tuple[AxisMap, ...]:
    """Extent, result and factor of each resized axis."""
    axes = tuple(a % len(shape) for a in attrs.axes) or tuple(range(len(shape)))
    crop = attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    found: tuple[AxisMap, ...] = ()
    ratios = tuple((size, shape[a]) for size, a in zip(attrs.sizes, axes, strict=False))
    for n, axis in enumerate(axes):
        extent = shape[axis]
        roi = (attrs.roi[n], attrs.roi[n + len(axes)]) if attrs.roi and crop else (0.0, 1.0)
        if attrs.scales:
            scale = simplest(attrs.scales[n])
            grown = scale * (simplest(roi[1]) - simplest(roi[0])) if crop else scale
            out = floordiv(mul(extent, grown.numerator), grown.denominator)
            found += (AxisMap(axis, extent, out, scale, (), "stretch", roi),)
            continue
        policy = attrs.keep_aspect_ratio_policy
        out = attrs.sizes[n]
        if policy != "stretch":
            pick = min_ if policy == "not_larger" else max_
            # the rounding is monotonic, so the extreme of the rounded is the rounded extreme
            out = reduce(pick, (floordiv(add(mul(2, mul(s, extent)), e), mul(2, max_(e, 1))) for s, e in ratios))
        used = ((attrs.sizes[n], extent),) if policy == "stretch" else ratios
        found += (AxisMap(axis, extent, out, None, used, policy, roi),)
    return found


def check_operands(ctx: InferCtx, args: tuple[Type, ...], attrs: ResizeAttrs, rank: int) -> None:
    """Raise unless factors and region fit the axes and nothing is given twice."""
    axes = len(attrs.axes) or rank
    for index, (name, given, most) in enumerate((("factors", attrs.scales, 1), ("region", attrs.roi, 2)), 1):
        if index < len(args):
            t = ctx.tensor(args, index, name)
            check_dtype(ctx, t, name, ("float32",))
            if given:
                ctx.fail(f"{name} are given twice, as an operand and as an attribute", code="attribute")
            if t.rank != 1:
                ctx.fail(f"{name} must have rank 1, got {t.rank}", code="rank-mismatch")
            ctx.require_equal(t.shape[0], most * axes, f"{name} and {axes} axes")


def with_operands(maps: Sequence[AxisMap], given: Sequence[Callable[[int], Any]]) -> tuple[AxisMap, ...]:
    """Maps with the elements of factors and region, as far as these are operands."""
    factors, region = (*given, None, None)[:2]
    return tuple(
        m.with_operands(factors and factors(n), region and (region(n), region(n + len(maps))))
        for n, m in enumerate(maps)
    )


def tap_count(m: AxisMap, attrs: ResizeAttrs) -> DimLike:
    """Taps of the kernel: twice its radius, stretched when an antialiased axis shrinks."""
    radius = FILTER_RADIUS[attrs.mode]
    if not attrs.antialias:
        return 2 * radius
    if m.scale is not None:
        return 2 * max(radius, ceil(radius / m.scale))
    counts = tuple(ceildiv(mul(radius, e), max_(s, 1)) for s, e in m.ratios)
    # not_larger has the smallest factor and so the widest kernel
    return mul(2, max_(radius, reduce(max_ if m.policy == "not_larger" else min_, counts)))


def _nearest(f: ProgramBuilder, x: Buffer, y: Buffer, maps: Sequence[AxisMap], attrs: ResizeAttrs) -> None:
    tables: dict[int, Buffer] = {}
    crop = attrs.coordinate_transformation_mode == "tf_crop_and_resize"
    for m in maps:
        if m.repeats(attrs.coordinate_transformation_mode, attrs.nearest_mode):
            continue
        table = f.temp(f"index{m.axis}", (m.out,), "int64")
        tables[m.axis] = table

        def index(i: Expr, m: AxisMap = m) -> Expr:
            place = coordinate(m, attrs.coordinate_transformation_mode, i)
            found = clamped(nearest_index(place, attrs.nearest_mode), m.extent)
            return select(m.outside(place), const(-1), found) if crop else found

        f.compute(table, index)

    def value(*i: Expr) -> Expr:
        at, inside = i, []
        for m in maps:
            if m.axis not in tables:
                at = replace_at(at, m.axis, i[m.axis] // m.factor)
                continue
            index = tables[m.axis][i[m.axis]]
            at = replace_at(at, m.axis, index)
            inside.append(index >= 0)
        return guarded(inside if crop else (), x.at(at), const(attrs.extrapolation_value, y.dtype))

    f.compute(y, value)


def _pass(f: ProgramBuilder, x: Buffer, y: Buffer, m: AxisMap, wide: str, attrs: ResizeAttrs) -> None:
    """Resize one axis: tables of places, first elements and weights, then weighted sums."""
    mode = attrs.coordinate_transformation_mode
    count = tap_count(m, attrs)
    places = f.temp(f"place{m.axis}", (m.out,), "float64")
    weights = f.temp(f"weight{m.axis}", (m.out, count), wide)
    f.compute(places, lambda i: coordinate(m, mode, i))

    def base(i: Expr) -> Expr:
        # so that the distance of the place from its base lies in (0, 1]
        return cast(call(Intrinsic.CEIL, places[i]), "int64") - 1

    def source(i: Expr, k: Expr) -> Expr:
        return base(i) + (k + 1 - as_expr(floordiv(count, 2)))

    def weight(i: Expr, k: Expr) -> Expr:
        at = source(i, k)
        value = tap_weight(m, attrs, cast(at, "float64") - places[i])
        if attrs.exclude_outside:
            value = select((at >= 0) & (at < m.extent), value, const(0, "float64"))
        return value

    if attrs.exclude_outside or attrs.antialias:
        sums = f.temp(f"sum{m.axis}", (m.out,), "float64")
        f.reduce(sums, (count,), Combine.SUM, weight)
        f.compute(
            weights,
            lambda i, k: cast(
                weight(i, k) / select(call(Intrinsic.ABS, sums[i]) > 0.0, sums[i], const(1, "float64")), wide
            ),
        )
    else:
        f.compute(weights, lambda i, k: cast(weight(i, k), wide))

    def term(i: tuple[Expr, ...], k: Expr) -> Expr:
        at = replace_at(i, m.axis, clamped(source(i[m.axis], k), m.extent))
        return cast(x.at(at), wide) * weights[i[m.axis], k]

    def done(total: Expr, i: tuple[Expr, ...]) -> Expr:
        if mode == "tf_crop_and_resize":
            total = select(m.outside(places[i[m.axis]]), const(attrs.extrapolation_value, wide), total)
        return cast(total if info(y.dtype).is_float else call(Intrinsic.ROUND, total), y.dtype)

    if not attrs.antialias:
        taps = tuple(const(k) for k in range(int(count)))
        f.compute(y, lambda *i: done(reduce(lambda a, b: a + b, (term(i, k) for k in taps)), i))
        return

    def body(*i: Expr) -> Stmt:
        total = cell("total", wide)
        step = loop("k", count, lambda k: assign(total, total[()] + term(i, k)))
        return scoped((total,), seq(assign(total, 0.0), step, Store(y, i, done(total[()], i))))

    f.block(y.name, y.shape, body)


RESIZE: Final = (Resize(),)
