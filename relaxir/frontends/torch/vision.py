"""Converters of torchvision's operators: overlapping boxes, regions pooled, and deformable convolution."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from relaxir.frontends.deform import Geometry, deformed
from relaxir.frontends.torch.elementwise import column
from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.torch.tensors import extremes
from relaxir.frontends.values import Value
from relaxir.sym import DimLike, floordiv, product


def nms(n: Node) -> Value:
    """Boxes that overlap no better one by more than a threshold, best first."""
    boxes, scores = n.value("dets"), n.value("scores")
    dtype, count = boxes.type.dtype, boxes.type.shape[0]
    kind: Any = np.dtype(dtype).type
    # torch compares with the threshold in float64: the greatest number of the boxes' dtype that is not above it
    given = float(n.number("iou_threshold"))
    rounded = kind(given)
    limit = rounded if float(rounded) <= given else np.nextafter(rounded, kind(-np.inf))
    lowest = n.scalar(float(np.finfo(kind).min), dtype)  # scores above minus infinity are kept, whatever they are
    found = n.emit(
        "non_max_suppression",
        n.reshape(boxes, (1, count, 4)),
        n.reshape(n.emit("maximum", n.cast(scores, dtype), lowest), (1, 1, count)),
        n.scalar(float(limit), dtype),
        n.scalar(extremes(dtype)[0], dtype),
        max_boxes=count,
    )
    return column(n, n.permute(found, (1, 0)), 2)


def bins(n: Node) -> tuple[DimLike, DimLike]:
    """Height and width of what a region becomes."""
    return n.dims("pooled_height")[0], n.dims("pooled_width")[0]


def regions(n: Node) -> tuple[Value, Value]:
    """Regions as corners, and the image of each: what the rows of ``rois`` begin with."""
    rois = n.value("rois")
    rows = rois.type.shape[0]
    corners = n.emit("strided_slice", rois, axes=(1,), begin=(1,), size=(4,))
    image = n.emit("strided_slice", rois, axes=(1,), begin=(0,), size=(1,))
    return corners, n.cast(n.reshape(image, (rows,)), "int64")


def aligned(n: Node, half_pixel: bool) -> Value:
    """Means of bilinear samples in each bin."""
    height, width = bins(n)
    return n.emit(
        "roi_align",
        n.value("input"),
        *regions(n),
        output_height=height,
        output_width=width,
        spatial_scale=float(n.number("spatial_scale", 1.0)),
        sampling_ratio=max(n.integer("sampling_ratio"), 0),
        half_pixel=half_pixel,
    )


def roi_align(n: Node) -> Value:
    """Regions pooled by bilinear sampling."""
    return aligned(n, n.flag("aligned"))


def own_channels(n: Node, y: Value) -> Value:
    """Regions whose bins have channels of their own: from (..., channels * bins, height, width) to one per bin."""
    height, width = bins(n)
    rows, channels = y.type.shape[:2]
    y = n.reshape(y, (rows, floordiv(channels, product((height, width))), height, width, height, width))
    return n.emit("einsum", y, equation="rcijij->rcij")


def with_no_places(n: Node, y: Value, what: str) -> tuple[Value, ...]:
    """A result beside places that only gradients need."""
    if n.used(1):
        n.unsupported(what)
    return y, y


def ps_roi_align(n: Node) -> tuple[Value, ...]:
    """Regions pooled by bilinear sampling, every bin from channels of its own."""
    return with_no_places(n, own_channels(n, aligned(n, True)), "the channel of each bin")


def edges(n: Node, low: Value, size: Value, count: DimLike, extent: DimLike) -> Value:
    """Which elements of an axis lie in each bin of each region: (regions, bins, extent)."""
    dtype = size.type.dtype
    rows = size.type.shape[0]
    step = n.reshape(n.emit("divide", size, n.operand(count, dtype)), (rows, 1))
    place = n.emit("arange", start=0, stop=count, step=1, dtype=dtype)
    start = n.emit("floor", n.emit("multiply", place, step))
    stop = n.emit("ceil", n.emit("multiply", n.emit("add", place, 1), step))
    low = n.reshape(low, (rows, 1))
    ends = (n.reshape(n.emit("add", e, low), (rows, count, 1)) for e in (start, stop))
    at = n.emit("arange", start=0, stop=extent, step=1, dtype=dtype)
    first, last = ends
    return n.emit("logical_and", n.emit("greater_equal", at, first), n.emit("less", at, last))


def roi_pool(n: Node) -> tuple[Value, ...]:
    """Largest element of each bin of regions whose corners are rounded; 0 for a bin outside the image."""
    x, (corners, image) = n.value("input"), regions(n)
    dtype, (height, width) = x.type.dtype, bins(n)
    scaled = n.emit("multiply", corners, n.scalar(float(n.number("spatial_scale", 1.0)), dtype))
    half = n.emit("floor", n.emit("add", n.emit("abs", scaled), 0.5))  # halves away from 0, as C rounds
    rounded = n.emit("multiply", n.emit("sign", scaled), half)
    x1, y1, x2, y2 = (column(n, n.permute(rounded, (1, 0)), i) for i in range(4))
    y = n.emit("take", x, image, axis=0)
    lowest = n.scalar(extremes(dtype)[0], dtype)
    for axis, low, high, count in ((2, y1, y2, height), (3, x1, x2, width)):
        size = n.emit("maximum", n.emit("add", n.emit("subtract", high, low), 1), 1)
        inside = edges(n, low, size, count, x.type.shape[axis])
        rows, _, extent = inside.type.shape
        # (regions, channels, [height,] bins, extent [, width])
        inside = n.reshape(inside, (rows, 1, count, extent, 1) if axis == 2 else (rows, 1, 1, count, extent))
        kept = n.emit("where", inside, n.emit("expand_dims", y, axes=(axis,)), lowest)
        y = n.emit("max", kept, axes=(axis + 1,))
    zero = n.scalar(0, dtype)
    return with_no_places(n, n.emit("where", n.emit("equal", y, lowest), zero, y), "the places of largest elements")


def deform_conv2d(n: Node) -> Value:
    """Convolution whose taps are moved by offsets."""
    strides, dilations, pads = ((n.integer(f"{k}_h"), n.integer(f"{k}_w")) for k in ("stride", "dilation", "pad"))
    geometry = Geometry(strides, dilations, pads, n.integer("groups", 1), n.integer("offset_groups", 1))
    mask = n.value("mask") if n.flag("use_mask") else None
    return deformed(n, n.value("input"), n.value("weight"), n.value("offset"), mask, n.value("bias"), geometry)


VISION: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "torchvision::deform_conv2d": deform_conv2d,
        "torchvision::nms": nms,
        "torchvision::ps_roi_align": ps_roi_align,
        "torchvision::roi_align": roi_align,
        "torchvision::roi_pool": roi_pool,
    }
)
"""Operators of torchvision by their full names."""
