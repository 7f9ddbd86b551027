"""Converters of pooling and resampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from relaxir.frontends.torch.nn import batched, unbatched
from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.values import Value
from relaxir.support.fractions import simplest
from relaxir.sym import DimLike, add, ceildiv, floordiv, mul, product


def window(n: Node, spatial: int) -> dict[str, Any]:
    """Attributes of a pooling window."""
    kernel = n.ints("kernel_size", spatial)
    return {
        "kernel": kernel,
        "strides": n.ints("stride", spatial) or kernel,
        "padding": (n.ints("padding", spatial) or (0,) * spatial) * 2,
        "ceil_mode": n.flag("ceil_mode"),
    }


def max_pool(spatial: int) -> Converter:
    """Largest element of each window; with positions in each plane where they are asked for."""

    def convert(n: Node) -> Value | tuple[Value, ...]:
        x, added = batched(n, n.value(), spatial)
        attrs = window(n, spatial) | {"dilations": n.ints("dilation", spatial) or (1,) * spatial}
        if not n.used(1) or "with_indices" not in str(n.fx.target):
            y = unbatched(n, n.emit("max_pool", x, **attrs), added)
            return (y, y) if "with_indices" in str(n.fx.target) else y
        y, place = n.emit_tuple("max_pool", x, return_indices=True, **attrs)
        plane = n.operand(product(x.type.shape[2:]), "int64")
        return unbatched(n, y, added), unbatched(n, n.emit("floor_mod", place, plane), added)

    return convert


def average_pool(spatial: int) -> Converter:
    """Mean of each window, or its sum by a given divisor."""

    def convert(n: Node) -> Value:
        x, added = batched(n, n.value(), spatial)
        attrs = window(n, spatial)
        divisor = n.get("divisor_override")
        if divisor is None:
            y = n.emit("average_pool", x, count_include_pad=n.flag("count_include_pad", True), **attrs)
            return unbatched(n, y, added)
        y = n.emit("average_pool", x, count_include_pad=True, **attrs)
        if attrs["ceil_mode"]:
            y = whole_windows(n, x, attrs, y.type.shape)
        return unbatched(n, n.emit("multiply", y, product(attrs["kernel"]) / divisor), added)

    return convert


def whole_windows(n: Node, x: Value, attrs: Mapping[str, Any], shape: Sequence[DimLike]) -> Value:
    """Means over windows that reach beyond the padding, with zeros there."""
    spatial = len(attrs["kernel"])
    after = tuple(p + s - 1 for p, s in zip(attrs["padding"][spatial:], attrs["strides"], strict=True))
    pads = ((0, 0), (0, 0), *zip(attrs["padding"][:spatial], after, strict=True))
    padded = n.emit("pad", x, n.scalar(0, x.type.dtype), pads=pads, mode="constant")
    y = n.emit("average_pool", padded, kernel=attrs["kernel"], strides=attrs["strides"], padding=(0,) * (2 * spatial))
    axes = tuple(range(2, 2 + spatial))
    return n.emit("strided_slice", y, axes=axes, begin=(0,) * spatial, size=tuple(shape[2:]))


def adaptive_average(spatial: int) -> Converter:
    """Means of windows that divide each axis as evenly as possible."""

    def convert(n: Node) -> Value:
        x = n.value()
        rank = x.type.rank
        targets = n.dims("output_size")
        targets = targets * (spatial if len(targets) == 1 else 1)
        whole = tuple(rank - spatial + i for i, t in enumerate(targets) if t == 1)
        y = n.emit("mean", x, axes=whole, keepdims=True) if whole else x
        for i, target in enumerate(targets):
            axis = rank - spatial + i
            if target is not None and target != 1 and target != x.type.shape[axis]:
                y = averaged(n, y, axis, target)
        return y

    return convert


def window_bounds(n: Node, extent: DimLike, target: DimLike) -> tuple[Value, Value]:
    """Begins and ends, as columns, of ``target`` windows that divide an axis as evenly as possible.

    Window ``i`` is ``floor(i * extent / target) .. ceil((i + 1) * extent / target)``.
    """
    out = n.reshape(n.emit("arange", start=0, stop=target, step=1, dtype="int64"), (target, 1))
    size, count = n.operand(extent, "int64"), n.operand(target, "int64")
    start = n.emit("floor_divide", n.emit("multiply", out, size), count)
    above = n.emit("multiply", n.emit("add", out, 1), size)
    return start, n.emit("floor_divide", n.emit("subtract", n.emit("add", above, count), 1), count)


def averaged(n: Node, x: Value, axis: int, target: DimLike) -> Value:
    """Means over the windows of `window_bounds` along an axis, by a product with weights."""
    extent = x.type.shape[axis]
    start, end = window_bounds(n, extent, target)
    place = n.emit("arange", start=0, stop=extent, step=1, dtype="int64")
    inside = n.emit("logical_and", n.emit("greater_equal", place, start), n.emit("less", place, end))
    length = n.cast(n.emit("subtract", end, start), x.type.dtype)
    weights = n.emit("divide", n.cast(inside, x.type.dtype), length)
    rank = x.type.rank
    order = (*(a for a in range(rank) if a != axis), axis)
    y = n.emit("linear", n.permute(x, order), weights)
    return n.permute(y, tuple(order.index(a) for a in range(rank)))


def adaptive_max(spatial: int) -> Converter:
    """Largest elements of the windows of `window_bounds`, and their positions in the plane."""

    def convert(n: Node) -> Value | tuple[Value, ...]:
        x, added = batched(n, n.value(), spatial)
        targets = n.dims("output_size")
        targets = targets * (spatial if len(targets) == 1 else 1)
        both = isinstance(n.fx.meta.get("val"), tuple | list)
        if not (both and n.used(1)):
            y = unbatched(n, largest(n, x, targets), added)
            return (y, y) if both else y
        return tuple(unbatched(n, v, added) for v in largest_with_places(n, x, targets))

    return convert


def largest(n: Node, x: Value, targets: Sequence[DimLike]) -> Value:
    """Largest elements alone: by plain pooling where all windows have one size."""
    extents = x.type.shape[2:]
    if all(t == 1 for t in targets):
        return n.emit("max", x, axes=tuple(range(2, x.type.rank)), keepdims=True)
    pairs = [(d, t) for d, t in zip(extents, targets, strict=True) if isinstance(d, int) and isinstance(t, int)]
    if len(pairs) == len(targets) and all(d % t == 0 for d, t in pairs):
        kernel = tuple(d // t for d, t in pairs)
        return n.emit("max_pool", x, kernel=kernel, strides=kernel, padding=(0,) * (2 * len(kernel)))
    for axis, target in enumerate(targets, 2):
        if target != x.type.shape[axis]:
            windows = n.emit("take", x, window_places(n, x.type.shape[axis], target), axis=axis)
            x = n.emit("max", windows, axes=(axis + 1,))
    return x


def window_places(n: Node, extent: DimLike, target: DimLike) -> Value:
    """Places of each window in a row; shorter windows repeat their last one."""
    start, end = window_bounds(n, extent, target)
    tap = n.emit("arange", start=0, stop=add(ceildiv(extent, target), 1), step=1, dtype="int64")
    return n.emit("minimum", n.emit("add", start, tap), n.emit("subtract", end, 1))


def largest_with_places(n: Node, x: Value, targets: Sequence[DimLike]) -> tuple[Value, Value]:
    """Largest elements and the row-major places in their planes, first ones first."""
    extents, spatial = x.type.shape[2:], len(targets)
    place, strides = n.scalar(0, "int64"), [product(extents[k + 1 :]) for k in range(spatial)]
    for k, (extent, target) in enumerate(zip(extents, targets, strict=True)):
        places = window_places(n, extent, target)
        x = n.emit("take", x, places, axis=2 + 2 * k)
        shape = [1] * (2 * spatial)
        wide = n.reshape(places, (*shape[: 2 * k], *places.type.shape, *shape[2 * k + 2 :]))
        place = n.emit("add", place, n.emit("multiply", wide, n.operand(strides[k], "int64")))
    windows, taps = tuple(range(0, 2 * spatial, 2)), tuple(range(1, 2 * spatial, 2))
    width = product([place.type.shape[a] for a in taps])
    place = n.reshape(n.permute(place, (*windows, *taps)), (*targets, width))
    x = n.permute(x, (0, 1, *(2 + a for a in (*windows, *taps))))
    x = n.reshape(x, (*x.type.shape[:2], *targets, width))
    found = n.emit("argmax", x, axis=-1, keepdims=True)
    picked = n.emit("gather_elements", n.broadcast(place, x.type.shape), found, axis=-1)
    return n.emit("max", x, axes=(-1,)), n.emit("squeeze", picked, axes=(-1,))


def resized(mode: str, spatial: int, half_pixel: bool = True, **fixed: object) -> Converter:
    """Resampling to sizes or by factors."""

    def convert(n: Node) -> Value:
        x = n.value("input" if "input" in n.args else "self")
        align = n.flag("align_corners")
        place = "align_corners" if align else "half_pixel" if half_pixel else "asymmetric"
        attrs = {"mode": mode, "axes": tuple(range(2, 2 + spatial)), "coordinate_transformation_mode": place, **fixed}
        if n.has("output_size"):
            return n.emit("resize", x, sizes=n.dims("output_size"), **attrs)
        factors = tuple(float(f) for f in n.get("scale_factors"))
        if not align:
            return n.emit("resize", x, scales=factors, **attrs)
        # corners are aligned by the extents alone
        sizes = (scaled(d, f) for d, f in zip(x.type.shape[2:], factors, strict=True))
        return n.emit("resize", x, sizes=tuple(sizes), **attrs)

    return convert


def scaled(extent: DimLike, factor: float) -> DimLike:
    """``floor(extent * factor)``."""
    exact = simplest(factor)
    return floordiv(mul(extent, exact.numerator), exact.denominator)


def image_to_columns(n: Node) -> Value:
    """Every window of an image as a column."""
    x, added = batched(n, n.value(), 2)
    return unbatched(n, n.emit("im2col", x, **patch(n)), added)


def columns_to_image(n: Node) -> Value:
    """Columns added back into an image."""
    x, added = n.value(), n.value().type.rank == 2
    x = n.reshape(x, (1, *x.type.shape)) if added else x
    return unbatched(n, n.emit("col2im", x, image_shape=n.dims("output_size"), **patch(n)), added)


def patch(n: Node) -> dict[str, Any]:
    """Attributes of windows laid out as columns."""
    names = (("kernel", "kernel_size"), ("strides", "stride"), ("dilations", "dilation"))
    return {k: n.ints(v, 2) for k, v in names} | {"padding": n.ints("padding", 2) * 2}


GRID_MODES: Final = ("linear", "nearest", "cubic")
GRID_PADDING: Final = ("zeros", "border", "reflection")


def grid_sampler(n: Node) -> Value:
    """Elements at places of a grid; where torch keeps them inside, those that are no place are the first element."""
    mode, padding = GRID_MODES[n.integer("interpolation_mode")], GRID_PADDING[n.integer("padding_mode")]
    given = {"padding_mode": padding, "align_corners": n.flag("align_corners")}
    grid = n.value("grid")
    if padding != "zeros" and mode != "cubic":
        nowhere = n.emit("isnan", grid)
        if padding == "reflection":
            nowhere = n.emit("logical_or", nowhere, n.emit("isinf", grid))
        grid = n.emit("where", nowhere, n.scalar(-1, grid.type.dtype), grid)
    return n.emit("grid_sample", n.value("input"), grid, mode=mode, **given)


NAMED: Final = (("1d", 1), ("2d", 2), ("3d", 3))

POOL: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **{f"max_pool{k}": max_pool(d) for k, d in NAMED},
        **{f"max_pool{k}_with_indices": max_pool(d) for k, d in NAMED},
        **{f"avg_pool{k}": average_pool(d) for k, d in NAMED},
        **{f"adaptive_avg_pool{k}": adaptive_average(d) for k, d in NAMED},
        **{f"_adaptive_avg_pool{k}": adaptive_average(d) for k, d in NAMED[1:]},
        **{f"adaptive_max_pool{k}": adaptive_max(d) for k, d in NAMED},
        **{f"upsample_nearest{k}": resized("nearest", d, False, nearest_mode="floor") for k, d in NAMED},
        **{f"_upsample_nearest_exact{k}": resized("nearest", d, nearest_mode="round_prefer_ceil") for k, d in NAMED},
        "col2im": columns_to_image,
        "grid_sampler": grid_sampler,
        "grid_sampler_2d": grid_sampler,
        "grid_sampler_3d": grid_sampler,
        "im2col": image_to_columns,
        "upsample_linear1d": resized("linear", 1),
        "upsample_bilinear2d": resized("linear", 2),
        "upsample_trilinear3d": resized("linear", 3),
        "upsample_bicubic2d": resized("cubic", 2),
        "_upsample_bilinear2d_aa": resized("linear", 2, antialias=True, exclude_outside=True),
        "_upsample_bicubic2d_aa": resized("cubic", 2, antialias=True, exclude_outside=True, cubic_coeff_a=-0.5),
    }
)
"""Pooling and resampling by the name of the ATen packet."""
