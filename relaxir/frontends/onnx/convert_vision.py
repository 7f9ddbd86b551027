"""Converters of resampling, regions and image patches."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.deform import Geometry, deformed
from relaxir.frontends.onnx.convert_math import unary
from relaxir.frontends.onnx.convert_pool import kernel_of, window
from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.values import Value
from relaxir.sym import DimLike


def resize(n: Node) -> Result:
    """Sizes or scales; nearest, linear, cubic."""
    x = n.input(0)
    roi, scales, sizes = (1, 2, 3) if n.opset >= 11 else (99, 1, 99)
    axes = n.ints("axes")
    chosen = tuple(range(x.type.rank)) if axes is None else tuple(n.axis(a, x.type.rank) for a in axes)
    attrs: dict[str, object] = {
        "mode": n.attr("mode", "nearest"),
        "axes": chosen,
        "coordinate_transformation_mode": n.attr(
            "coordinate_transformation_mode", "half_pixel" if n.opset >= 11 else "asymmetric"
        ),
        "nearest_mode": n.attr("nearest_mode", "round_prefer_floor" if n.opset >= 11 else "floor"),
        "cubic_coeff_a": n.attr("cubic_coeff_a", -0.75),
        "exclude_outside": bool(n.attr("exclude_outside", 0)),
        "extrapolation_value": n.attr("extrapolation_value", 0.0),
        "antialias": bool(n.attr("antialias", 0)),
        "keep_aspect_ratio_policy": n.attr("keep_aspect_ratio_policy", "stretch"),
    }
    region = n.input(roi) if attrs["coordinate_transformation_mode"] == "tf_crop_and_resize" else None
    given = n.optional(scales)
    if given is not None and given.type.shape == (0,):
        given = None
    sizes_given = () if given is not None else n.dims(sizes, low=0, names="size", count=len(chosen))
    return resampled(n, attrs, given, region, sizes_given)


def resampled(
    n: Node, attrs: Mapping[str, object], scales: Value | None, region: Value | None, sizes: tuple[DimLike, ...]
) -> Value:
    """A resize by scales or to sizes; constant scales and regions are attributes, others operands."""
    x, axes = n.input(0), attrs["axes"]
    assert isinstance(axes, tuple)
    fixed = {k: v for k, v in (("scales", scales), ("roi", region)) if v is not None and v.constant is not None}
    if all(v is None or v.constant is not None for v in (scales, region)):
        known = {k: tuple(float(e) for e in v.constant.reshape(-1)) for k, v in fixed.items() if v.constant is not None}
        return n.emit("resize", x, **attrs, **known, **({} if scales is not None else {"sizes": sizes}))
    ends = None if region is None else in_float32(n, region, 2 * len(axes))
    if scales is None:  # where elements lie is then a matter of the region alone
        factors = n.literal(np.ones(len(axes)), "float32")
    else:
        factors = in_float32(n, scales, len(axes))
        wide = n.emit("astype", factors, dtype="float64")
        if ends is not None:
            low, high = (
                n.emit("strided_slice", ends, axes=(0,), begin=(b,), size=(len(axes),)) for b in (0, len(axes))
            )
            extent = n.emit("subtract", *(n.emit("astype", v, dtype="float64") for v in (high, low)))
            wide = n.emit("multiply", wide, extent)
        extents = n.emit("dims_to_tensor", dims=tuple(x.type.shape[a] for a in axes))
        grown = n.emit("floor", n.emit("multiply", n.emit("astype", extents, dtype="float64"), wide))
        sizes = n.read(n.emit("astype", grown, dtype="int64"), 0, "size")
    return n.emit("resize", x, factors, ends, sizes=sizes, **attrs)


def in_float32(n: Node, value: Value, count: int) -> Value:
    """A vector of a known number of floats."""
    single = value if value.type.dtype == "float32" else n.emit("astype", value, dtype="float32")
    if single.type.rank != 1:
        n.fail(f"scales and regions must be vectors, got rank {single.type.rank}")
    return single if single.type.shape == (count,) else n.cast_shape(single, (count,))


def upsample(n: Node) -> Result:
    """Resize of old opsets."""
    x = n.input(0)
    if n.opset < 7:
        scales = n.literal(np.array((1.0, 1.0, n.attr("height_scale", 1.0), n.attr("width_scale", 1.0))), "float32")
    else:
        scales = n.literal(np.array(n.floats("scales") or ()), "float32") if n.opset < 9 else n.input(1)
    mode = {"bilinear": "linear"}.get(n.attr("mode", "nearest"), n.attr("mode", "nearest"))
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "axes": tuple(range(x.type.rank))}
    return resampled(n, {"mode": mode, **attrs}, scales, None, ())


def grid_sample(n: Node) -> Result:
    """Elements at places of a grid; bilinear and bicubic are the names of opset 16."""
    mode = n.attr("mode", "linear").removeprefix("bi")
    attrs = {"padding_mode": n.attr("padding_mode", "zeros"), "align_corners": bool(n.attr("align_corners", 0))}
    return n.emit("grid_sample", n.input(0), n.input(1), mode=mode, **attrs)


def affine_grid(n: Node) -> Result:
    """Places under affine maps; the size is (N, C, *spatial)."""
    given = n.type(0)
    axes = given.shape[1] if given.rank == 3 else None
    stated = n.declared_rank()
    if not isinstance(axes, int):
        if stated is None:
            n.unsupported("the number of spatial axes is known only at run time")
        axes = stated - 2
        n.inputs[0] = n.cast_shape(n.input(0), (given.shape[0], axes, axes + 1))
    size = n.dims(1, low=0, names="g", count=axes + 2)
    theta = n.cast_shape(n.input(0), (size[0], axes, axes + 1))
    return n.emit("affine_grid", theta, size=size[2:], align_corners=bool(n.attr("align_corners", 0)))


def roi_align(n: Node) -> Result:
    """Regions pooled by bilinear sampling; half-pixel coordinates since opset 16."""
    coordinates = n.attr("coordinate_transformation_mode", "half_pixel") if n.opset >= 16 else "output_half_pixel"
    return n.emit(
        "roi_align",
        n.input(0),
        n.input(1),
        n.input(2),
        output_height=n.attr("output_height", 1),
        output_width=n.attr("output_width", 1),
        spatial_scale=n.attr("spatial_scale", 1.0),
        sampling_ratio=n.attr("sampling_ratio", 0),
        mode=n.attr("mode", "avg"),
        half_pixel=coordinates == "half_pixel",
    )


def col2im(n: Node) -> Result:
    """Columns of patches added up to an image."""
    stated = n.declared_rank()
    kernel = n.dims(2, low=1, names="block", count=None if stated is None else stated - 2)
    image = n.dims(1, low=0, names="image", count=len(kernel))
    geometry = {k: v for k, v in window(n, kernel).items() if k != "auto_pad"}
    return n.emit("col2im", n.input(0), kernel=kernel, image_shape=image, **geometry)


def deform_conv(n: Node) -> Result:
    """Convolution of an image whose taps are moved by offsets and weighted by a mask."""
    x, w, offset, mask = n.input(0), kernel_of(n, 1), n.input(2), n.optional(4)
    if x.type.rank != 4:
        n.unsupported(f"an input of rank {x.type.rank}")
    strides, dilations = (n.ints(a, 2) or (1, 1) for a in ("strides", "dilations"))
    pads = n.ints("pads", 4) or (0, 0)
    geometry = Geometry(strides, dilations, pads, n.attr("group", 1), n.attr("offset_group", 1))
    return deformed(n, x, w, offset, mask, n.optional(3), geometry)


VISION: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "AffineGrid": affine_grid,
        "Col2Im": col2im,
        "DeformConv": deform_conv,
        "Det": unary("det"),
        "GridSample": grid_sample,
        "Resize": resize,
        "RoiAlign": roi_align,
        "Upsample": upsample,
    }
)
"""Images by ONNX name."""
