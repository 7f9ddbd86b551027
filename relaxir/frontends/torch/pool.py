"""Converters of pooling and resampling."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from relaxir.frontends.torch.nn import batched, unbatched
from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.values import Value
from relaxir.sym import DimLike, product


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
        if attrs["ceil_mode"]:
            n.unsupported("divisor_override with ceil_mode")
        y = n.emit("average_pool", x, count_include_pad=True, **attrs)
        return unbatched(n, n.emit("multiply", y, product(attrs["kernel"]) / divisor), added)

    return convert


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


def averaged(n: Node, x: Value, axis: int, target: DimLike) -> Value:
    """Means over windows ``floor(i * d / t) .. ceil((i + 1) * d / t)`` of an axis, by a product with weights."""
    extent = x.type.shape[axis]
    out = n.reshape(n.emit("arange", start=0, stop=target, step=1, dtype="int64"), (target, 1))
    place = n.emit("arange", start=0, stop=extent, step=1, dtype="int64")
    size, count = n.operand(extent, "int64"), n.operand(target, "int64")
    start = n.emit("floor_divide", n.emit("multiply", out, size), count)
    above = n.emit("multiply", n.emit("add", out, 1), size)
    end = n.emit("floor_divide", n.emit("subtract", n.emit("add", above, count), 1), count)
    inside = n.emit("logical_and", n.emit("greater_equal", place, start), n.emit("less", place, end))
    length = n.cast(n.emit("subtract", end, start), x.type.dtype)
    weights = n.emit("divide", n.cast(inside, x.type.dtype), length)
    rank = x.type.rank
    order = (*(a for a in range(rank) if a != axis), axis)
    y = n.emit("linear", n.permute(x, order), weights)
    return n.permute(y, tuple(order.index(a) for a in range(rank)))


def adaptive_max(spatial: int) -> Converter:
    """Largest elements of windows that divide the axes; with positions only if nobody reads them."""

    def convert(n: Node) -> Value | tuple[Value, ...]:
        x, added = batched(n, n.value(), spatial)
        targets = n.ints("output_size", spatial)
        if n.used(1) and isinstance(n.fx.meta.get("val"), tuple | list) and len(n.fx.users) > 1:
            n.unsupported("positions")
        if all(t == 1 for t in targets):
            y = n.emit("max", x, axes=tuple(range(2, 2 + spatial)), keepdims=True)
        else:
            extents = x.type.shape[2:]
            if not all(isinstance(d, int) and d % t == 0 for d, t in zip(extents, targets, strict=True)):
                n.unsupported("windows of different sizes")
            kernel = tuple(int(str(d)) // t for d, t in zip(extents, targets, strict=True))
            y = n.emit("max_pool", x, kernel=kernel, strides=kernel, padding=(0,) * (2 * spatial))
        y = unbatched(n, y, added)
        return (y, y) if isinstance(n.fx.meta.get("val"), tuple | list) else y

    return convert


def resized(mode: str, spatial: int, half_pixel: bool = True, **fixed: object) -> Converter:
    """Resampling to sizes or by factors."""

    def convert(n: Node) -> Value:
        x = n.value("input" if "input" in n.args else "self")
        align = n.flag("align_corners")
        place = "align_corners" if align else "half_pixel" if half_pixel else "asymmetric"
        attrs = {"mode": mode, "axes": tuple(range(2, 2 + spatial)), "coordinate_transformation_mode": place, **fixed}
        if n.has("output_size"):
            return n.emit("resize", x, sizes=n.dims("output_size"), **attrs)
        factors = n.get("scale_factors")
        return n.emit("resize", x, scales=tuple(float(f) for f in factors), **attrs)

    return convert


GRID_MODES: Final = ("linear", "nearest", "cubic")
GRID_PADDING: Final = ("zeros", "border", "reflection")


def grid_sampler(n: Node) -> Value:
    """Elements at places of a grid."""
    mode, padding = GRID_MODES[n.integer("interpolation_mode")], GRID_PADDING[n.integer("padding_mode")]
    attrs = {"mode": mode, "padding_mode": padding, "align_corners": n.flag("align_corners")}
    return n.emit("grid_sample", n.value("input"), n.value("grid"), **attrs)


NAMED: Final = (("1d", 1), ("2d", 2), ("3d", 3))

POOL: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **{f"max_pool{k}": max_pool(d) for k, d in NAMED},
        **{f"max_pool{k}_with_indices": max_pool(d) for k, d in NAMED},
        **{f"avg_pool{k}": average_pool(d) for k, d in NAMED},
        **{f"adaptive_avg_pool{k}": adaptive_average(d) for k, d in NAMED},
        **{f"_adaptive_avg_pool{k}": adaptive_average(d) for k, d in NAMED},
        **{f"adaptive_max_pool{k}": adaptive_max(d) for k, d in NAMED},
        **{f"upsample_nearest{k}": resized("nearest", d, False, nearest_mode="floor") for k, d in NAMED},
        **{f"_upsample_nearest_exact{k}": resized("nearest", d, nearest_mode="round_prefer_ceil") for k, d in NAMED},
        "grid_sampler": grid_sampler,
        "grid_sampler_2d": grid_sampler,
        "grid_sampler_3d": grid_sampler,
        "upsample_linear1d": resized("linear", 1),
        "upsample_bilinear2d": resized("linear", 2),
        "upsample_trilinear3d": resized("linear", 3),
        "upsample_bicubic2d": resized("cubic", 2),
        "_upsample_bilinear2d_aa": resized("linear", 2, antialias=True),
        "_upsample_bicubic2d_aa": resized("cubic", 2, antialias=True, cubic_coeff_a=-0.5),
    }
)
"""Pooling and resampling by the name of the ATen packet."""
