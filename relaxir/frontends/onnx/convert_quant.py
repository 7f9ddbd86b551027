"""Converters of quantised operators: integers with scales and zero points."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.onnx.convert_math import Converter
from relaxir.frontends.onnx.convert_pool import kernel_of, window
from relaxir.frontends.onnx.convert_recurrent import layer
from relaxir.frontends.onnx.narrow import BY_NAME, NARROW, decoded, encoded
from relaxir.frontends.onnx.node import Node, Result
from relaxir.frontends.onnx.tensors import element_type
from relaxir.frontends.onnx.values import Value
from relaxir.sym import ceildiv


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


def through_floats(name: str, operands: int, **attrs: object) -> Converter:
    """com.microsoft QLinear*: dequantise, compute in float32, quantise again: what the kernels of ONNX Runtime do."""

    def convert(n: Node) -> Result:
        reals = [n.emit("dequantize_linear", *(n.optional(3 * i + k) for k in range(3))) for i in range(operands)]
        y = n.emit(name, *reals, **attrs)
        return n.emit("quantize_linear", y, n.input(3 * operands), n.optional(3 * operands + 1))

    return convert


def qlinear_leaky_relu(n: Node) -> Result:
    """com.microsoft QLinearLeakyRelu."""
    return through_floats("leaky_relu", 1, alpha=n.attr("alpha", 0.01))(n)


def matmul_integer_to_float(n: Node) -> Result:
    """com.microsoft MatMulIntegerToFloat: A, B, scales, zero points, bias; a float result."""
    a, b, a_scale, b_scale = (n.input(i) for i in range(4))
    total = n.emit("matmul_integer", a, b, *zero_points(n, 4, 5, (a.type.dtype, b.type.dtype)))
    return scaled_product(n, total, n.emit("multiply", as_column(n, a_scale), b_scale), n.optional(6))


def dynamic_quantize_matmul(n: Node) -> Result:
    """com.microsoft DynamicQuantizeMatMul: A is quantised by its range, B is given as integers."""
    a, a_scale, a_zero = n.emit_tuple("dynamic_quantize_linear", n.input(0))
    total = n.emit("matmul_integer", a, n.input(1), a_zero, n.optional(3))
    return scaled_product(n, total, n.emit("multiply", a_scale, n.input(2)), n.optional(4))


def scaled_product(n: Node, total: Value, scale: Value, bias: Value | None) -> Value:
    """Int32 sums as floats, with a bias."""
    y = n.emit("multiply", n.emit("astype", total, dtype=scale.type.dtype), scale)
    return y if bias is None else n.emit("add", y, bias)


def unpacked(n: Node, x: Value, bits: int) -> Value:
    """Bytes of 8 or two 4-bit values, low half first, as one value per byte along the last axis."""
    if bits == 8:
        return x
    low = n.emit("bitwise_and", x, 15)
    halves = n.emit("stack", low, n.emit("right_shift", x, 4), axis=-1)
    *front, last = x.type.shape
    return n.emit("reshape", halves, shape=(*front, last * 2))


def front_of(n: Node, x: Value, count: int) -> Value:
    """The first elements of the last axis."""
    return n.emit("strided_slice", x, axes=(x.type.rank - 1,), begin=(0,), size=(count,))


def matmul_nbits(n: Node) -> Result:
    """com.microsoft MatMulNBits: a weight of 4 or 8 bits, (N, blocks, bytes), dequantised, then a product."""
    bits, block = n.attr("bits", 4), n.attr("block_size", 32)
    depth, width = n.attr("K", 0), n.attr("N", 0)
    if bits not in (4, 8) or n.optional(4) is not None:
        n.unsupported(f"{bits} bits" if bits not in (4, 8) else "reordered groups (g_idx)")
    if depth < 1 or width < 1 or block < 1:
        n.fail(f"K, N and block_size must be at least 1, got {depth}, {width} and {block}")
    blocks = int(ceildiv(depth, block))
    weight = n.emit("reshape", unpacked(n, n.input(1), bits), shape=(width, blocks * block))
    if blocks * block != depth:
        weight = front_of(n, weight, depth)
    scale = n.emit("reshape", n.input(2), shape=(width, blocks))
    zero = n.optional(3)
    if zero is None:
        zero = n.literal(np.full((width, blocks), 1 << (bits - 1)), "uint8")
    elif zero.type.dtype != "uint8":
        n.unsupported("zero points that are not packed integers")
    else:
        stored = n.emit("reshape", zero, shape=(width, -(-blocks * bits // 8)))
        zero = front_of(n, unpacked(n, stored, bits), blocks)
    real = n.emit("dequantize_linear", weight, scale, zero, axis=1, block_size=block)
    y = n.emit("matmul", n.input(0), n.emit("permute_dims", real, axes=(1, 0)))
    bias = n.optional(5)
    return y if bias is None else n.emit("add", y, bias)


def dynamic_quantize_lstm(n: Node) -> Result:
    """com.microsoft DynamicQuantizeLSTM: weights of 8 bits, (directions, in, 4 * hidden), dequantised; floats between.

    ONNX Runtime also rounds x and the hidden state to 8 bits before each product; results agree to that rounding.
    """
    for index, scale in ((1, 8), (2, 10)):
        real = lstm_weight(n, n.input(index), n.input(scale), n.input(scale + 1))
        n.inputs[index] = n.emit("permute_dims", real, axes=(0, 2, 1))
    del n.inputs[8:]
    return layer("lstm")(n)


def lstm_weight(n: Node, weight: Value, scale: Value, zero: Value) -> Value:
    """A weight with a scale for each direction, or for each direction and column."""
    if scale.type.rank < 2:
        return n.emit("dequantize_linear", weight, scale, zero, axis=0)
    depth = weight.type.shape[1]
    if not isinstance(depth, int):
        n.unsupported("a weight whose size is known only at run time")
    columns = [n.emit("expand_dims", v, axes=(1,)) for v in (scale, zero)]
    return n.emit("dequantize_linear", weight, *columns, axis=1, block_size=depth)


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

MICROSOFT_QUANT: Final[Mapping[str, Callable[[Node], Result]]] = MappingProxyType(
    {
        "DequantizeLinear": dequantize,
        "DynamicQuantizeLSTM": dynamic_quantize_lstm,
        "DynamicQuantizeMatMul": dynamic_quantize_matmul,
        "MatMulIntegerToFloat": matmul_integer_to_float,
        "MatMulNBits": matmul_nbits,
        "QLinearAdd": through_floats("add", 2),
        "QLinearLeakyRelu": qlinear_leaky_relu,
        "QLinearMul": through_floats("multiply", 2),
        "QLinearSigmoid": through_floats("sigmoid", 1),
        "QuantizeLinear": quantize,
    }
)
"""Quantised operators of the domain com.microsoft."""
