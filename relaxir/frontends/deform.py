"""Convolution whose taps are moved by offsets: ONNX's DeformConv and torchvision's deform_conv2d."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relaxir.frontends.emitter import Emitter
from relaxir.frontends.values import Value
from relaxir.sym import floordiv, mul, product


@dataclass(frozen=True, slots=True)
class Geometry:
    """Steps between results and between taps, elements before each axis, groups of the weight and of the offsets."""

    strides: tuple[int, ...]
    dilations: tuple[int, ...]
    pads: tuple[int, ...]
    groups: int = 1
    offset_groups: int = 1


def deformed(
    n: Emitter, x: Value, w: Value, offset: Value, mask: Value | None, bias: Value | None, g: Geometry
) -> Value:
    """Convolve an image (batch, channels, height, width) whose taps are moved, sampled bilinearly and weighted.

    Offsets are (batch, offset groups * taps * 2, height, width) of the result, rows before columns; masks have one
    weight per tap. Taps are sampled with `grid_sample` (zeros outside), then multiplied by the weight as a convolution
    of 1x1.
    """
    size = w.type.shape[2:]
    taps, groups = product(size), g.offset_groups
    batch, channels, *extents = x.type.shape
    out = offset.type.shape[2:]
    split = n.emit("reshape", offset, shape=(mul(batch, groups), *size, 2, *out))
    coordinates = []
    for a in (1, 0):  # a grid names columns first
        tap, point = (
            n.emit("multiply", n.emit("arange", start=0, stop=d, dtype="float32"), float(step))
            for d, step in ((size[a], g.dilations[a]), (out[a], g.strides[a]))
        )
        tap = n.emit("expand_dims", n.emit("subtract", tap, float(g.pads[a])), axes=tuple(range(1, 4 - a)))
        point = n.emit("expand_dims", point, axes=tuple(range(1, 2 - a)))
        moved = n.emit("take", split, n.literal(np.array(a), "int64"), axis=3)
        coordinates.append(n.emit("add", n.emit("add", moved, in_dtype(n, tap, moved)), in_dtype(n, point, moved)))
    grid = n.emit(
        "reshape", n.emit("stack", *coordinates, axis=-1), shape=(mul(batch, groups), mul(taps, out[0]), out[1], 2)
    )
    image = n.emit("reshape", x, shape=(mul(batch, groups), floordiv(channels, groups), *extents))
    columns = n.emit("grid_sample", image, grid, mode="linear", padding_mode="zeros", normalized=False)
    columns = n.emit("reshape", columns, shape=(batch, groups, floordiv(channels, groups), taps, *out))
    if mask is not None:
        columns = n.emit("multiply", columns, n.emit("reshape", mask, shape=(batch, groups, 1, taps, *out)))
    columns = n.emit("reshape", columns, shape=(batch, mul(channels, taps), *out))
    flat = n.emit("reshape", w, shape=(w.type.shape[0], mul(w.type.shape[1], taps), 1, 1))
    return n.emit("conv", columns, flat, bias, groups=g.groups)


def in_dtype(n: Emitter, value: Value, like: Value) -> Value:
    """A value converted to another's dtype."""
    return value if value.type.dtype == like.type.dtype else n.emit("astype", value, dtype=like.type.dtype)
