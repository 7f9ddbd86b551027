"""Converters of resampling, regions, image patches and spectra."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.onnx.convert_math import Converter, unary
from relaxir.frontends.onnx.convert_pool import window
from relaxir.frontends.onnx.node import Node, Result
from relaxir.frontends.onnx.tensors import element_type
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
    if attrs["coordinate_transformation_mode"] == "tf_crop_and_resize":
        attrs["roi"] = tuple(float(v) for v in n.constant(roi, "roi").reshape(-1))
    given = n.optional(scales)
    if given is not None and given.type.shape != (0,):
        attrs["scales"] = tuple(float(v) for v in n.constant(scales, "scales").reshape(-1))
    else:
        attrs["sizes"] = n.dims(sizes, low=0, names="size", count=len(chosen))
    return n.emit("resize", x, **attrs)


def upsample(n: Node) -> Result:
    """Resize of old opsets."""
    x = n.input(0)
    scales = n.attr("scales", ()) if n.opset < 9 else tuple(float(v) for v in n.constant(1, "scales").reshape(-1))
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "axes": tuple(range(x.type.rank))}
    return n.emit("resize", x, mode=n.attr("mode", "nearest"), scales=scales, **attrs)


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
    block = n.number(2)
    if block is None:
        n.unsupported("block_shape (input 2) is known only at run time")
    kernel = tuple(map(int, block.reshape(-1)))
    image = n.dims(1, low=0, names="image", count=len(kernel))
    geometry = {k: v for k, v in window(n, kernel).items() if k != "auto_pad"}
    return n.emit("col2im", n.input(0), kernel=kernel, image_shape=image, **geometry)


def known_parts(n: Node) -> None:
    """Whether a signal is real or complex (its last extent, 1 or 2) must be known."""
    if not n.rank() or not isinstance(n.type().shape[-1], int):
        n.unsupported("whether the signal is real or complex is known only at run time")


def dft(n: Node) -> Result:
    """Fourier transform along one axis: an attribute until opset 19, an input after."""
    known_parts(n)
    axis = n.attr("axis", 1)
    if n.opset >= 20:
        axis = int(n.constant(2, "axis").reshape(-1)[0]) if n.given(2) else -2
    length: DimLike = n.dims(1, low=0, names="length", count=1)[0] if n.given(1) else 0
    flags = {k: bool(n.attr(k, 0)) for k in ("inverse", "onesided")}
    return n.emit("dft", n.input(0), axis=axis, length=length, **flags)


def stft(n: Node) -> Result:
    """Fourier transforms of the frames of a signal."""
    known_parts(n)
    (step,) = n.dims(1, low=1, names="step", count=1)
    length: DimLike = n.dims(3, low=1, names="frame", count=1)[0] if n.given(3) else 0
    attrs = {"frame_step": step, "frame_length": length, "onesided": bool(n.attr("onesided", 1))}
    return n.emit("stft", n.input(0), n.optional(2), **attrs)


def window_function(function: str) -> Converter:
    """A window of a size given as an input."""

    def convert(n: Node) -> Result:
        (size,) = n.dims(0, low=0, names="size", count=1)
        dtype = element_type(n.attr("output_datatype", 1), "attribute `output_datatype`")
        periodic = bool(n.attr("periodic", 1))
        return n.emit("window_function", function=function, size=size, periodic=periodic, dtype=dtype)

    return convert


VISION: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "AffineGrid": affine_grid,
        "BlackmanWindow": window_function("blackman"),
        "Col2Im": col2im,
        "DFT": dft,
        "Det": unary("det"),
        "GridSample": grid_sample,
        "HammingWindow": window_function("hamming"),
        "HannWindow": window_function("hann"),
        "Resize": resize,
        "RoiAlign": roi_align,
        "STFT": stft,
        "Upsample": upsample,
    }
)
"""Images and spectra by ONNX name."""
