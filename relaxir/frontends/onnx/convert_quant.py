"""Converters of quantised operators: integers with scales and zero points."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.onnx.convert_pool import kernel_of, window
from relaxir.frontends.onnx.narrow import BY_NAME, NARROW, decoded, encoded
from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.tensors import element_type
from relaxir.frontends.onnx.values import Value


def scale_attrs(n: Node) -> dict[str, int]:
    """Which elements share a scale."""
    return {"axis": n.attr("axis", 1), "block_size": n.attr("block_size", 0)}


def quantize(n: Node) -> Result:
    """The result has the zero point's type, else ``output_dtype``, else uint8."""
    code, zero = n.attr("output_dtype", 0), n.optional(2)
    narrow = NARROW.get(code) or (BY_NAME.get(zero.element) if zero is not None else None)
    if narrow is None:
        dtype = element_type(code, "attribute `output_dtype`") if code else ""
        return n.emit("quantize_linear", n.input(0), n.input(1), zero, dtype=dtype, **scale_attrs(n))
    if narrow.is_float:
        scaled = n.emit("divide", n.input(0), spread(n, n.input(1)))
        return encoded(n, scaled, narrow, bool(n.attr("saturate", 1)))
    plain = None if zero is None else replace(zero, element="")
    y = n.emit("quantize_linear", n.input(0), n.input(1), plain, dtype=narrow.stored, **scale_attrs(n))
    low, high = narrow.bounds
    return replace(n.emit("clip", y, low, high), element=narrow.name)


def spread(n: Node, scale: Value) -> Value:
    """A scale, or zero point, in a shape that broadcasts with the first input."""
    axis, block = n.attr("axis", 1), n.attr("block_size", 0)
    if block:
        shape = n.type().shape
        wide = n.emit("repeat", scale, repeats=block, axis=axis)
        extent = shape[n.axis(axis, len(shape))]
        return n.emit("strided_slice", wide, axes=(axis,), begin=(0,), size=(extent,))
    if scale.type.rank != 1 or scale.type.shape == (1,):
        return n.emit("reshape", scale, shape=()) if scale.type.shape == (1,) else scale
    behind = n.rank() - 1 - n.axis(axis, n.rank())
    return n.emit("expand_dims", scale, axes=tuple(range(1, behind + 1)))


def dequantize(n: Node) -> Result:
    """The result has ``output_dtype``, else the scale's type."""
    x, scale, zero = n.input(0), n.input(1), n.optional(2)
    narrow = BY_NAME.get(x.element)
    if narrow is not None and narrow.is_float:
        y = decoded(n, x) if zero is None else n.emit("subtract", decoded(n, x), spread(n, decoded(n, zero)))
        y = n.emit(
            "astype", n.emit("multiply", y, spread(n, n.emit("astype", scale, dtype="float32"))), dtype=scale.type.dtype
        )
    else:
        plain = None if zero is None else decoded(n, zero)
        y = n.emit("dequantize_linear", decoded(n, x), scale, plain, **scale_attrs(n))
    code = n.attr("output_dtype", 0)
    return n.emit("astype", y, dtype=element_type(code, "attribute `output_dtype`")) if code else y


def dynamic_quantize(n: Node) -> Result:
    """Integers, scale, zero point."""
    return n.emit_tuple("dynamic_quantize_linear", n.input(0))


def zero_points(n: Node, first: int, second: int, types: tuple[str, str]) -> tuple[Value | None, Value | None]:
    """Two optional zero points; the first is made up where only the second is given."""
    a, b = n.optional(first), n.optional(second)
    return (n.literal(np.zeros((), np.int8), types[0]) if a is None and b is not None else a), b


def matmul_integer(n: Node) -> Result:
    """Sums of products less the zero points."""
    a, b = n.input(0), n.input(1)
    return n.emit("matmul_integer", a, b, *zero_points(n, 2, 3, (a.type.dtype, b.type.dtype)))


def conv_integer(n: Node) -> Result:
    """Convolution less the zero points."""
    x, w = n.input(0), kernel_of(n, 1)
    zeros = zero_points(n, 2, 3, (x.type.dtype, w.type.dtype))
    attrs = window(n, (0,) * (x.type.rank - 2))
    return n.emit("conv_integer", x, w, *zeros, groups=n.attr("group", 1), **attrs)


def requantized(n: Node, total: Value, scale: Value, zero: Value | None, axis: int) -> Value:
    """Int32 sums times a scale, back to 8 bits."""
    if scale.type.rank <= 1:
        return n.emit("requantize", total, scale, zero, axis=axis)
    real = n.emit("multiply", n.emit("astype", total, dtype="float32"), n.emit("astype", scale, dtype="float32"))
    return n.emit("quantize_linear", real, n.literal(np.ones(()), "float32"), zero, axis=axis)


def as_column(n: Node, scale: Value) -> Value:
    """A scale per row of a matrix as a column."""
    several = scale.type.rank == 1 and scale.type.shape != (1,)
    return n.emit("expand_dims", scale, axes=(1,)) if several else scale


def qlinear_matmul(n: Node) -> Result:
    """Integer product, then the three scales as one factor."""
    a, a_scale, a_zero, b, b_scale, b_zero, y_scale, y_zero = (n.input(i) for i in range(8))
    total = n.emit("matmul_integer", a, b, a_zero, b_zero)
    both = n.emit("multiply", as_column(n, a_scale), b_scale)
    return requantized(n, total, n.emit("divide", both, as_column(n, y_scale)), y_zero, -1)


def qlinear_conv(n: Node) -> Result:
    """Integer convolution, int32 bias, then the three scales as one factor."""
    x, x_scale, x_zero, _, w_scale, w_zero, y_scale, y_zero = (n.input(i) for i in range(8))
    w, spatial = kernel_of(n, 3), x.type.rank - 2
    attrs = window(n, (0,) * spatial)
    total = n.emit("conv_integer", x, w, x_zero, w_zero, groups=n.attr("group", 1), **attrs)
    bias = n.optional(8)
    if bias is not None:
        total = n.emit("add", total, n.emit("reshape", bias, shape=(bias.type.shape[0], *(1,) * spatial)))
    scale = n.emit("divide", n.emit("multiply", x_scale, w_scale), y_scale)
    return requantized(n, total, scale, y_zero, 1)


QUANT: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "ConvInteger": conv_integer,
        "DequantizeLinear": dequantize,
        "DynamicQuantizeLinear": dynamic_quantize,
        "MatMulInteger": matmul_integer,
        "QLinearConv": qlinear_conv,
        "QLinearMatMul": qlinear_matmul,
        "QuantizeLinear": quantize,
    }
)
"""Quantised operators by ONNX name."""
