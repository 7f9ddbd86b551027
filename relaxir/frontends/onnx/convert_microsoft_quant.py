"""Converters of com.microsoft: quantised operators."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.onnx.convert_attention import self_attention
from relaxir.frontends.onnx.convert_math import MATH
from relaxir.frontends.onnx.convert_microsoft import embed_layer_norm
from relaxir.frontends.onnx.convert_pool import POOL
from relaxir.frontends.onnx.convert_quant import as_column, dequantize, quantize, requantized, zero_points
from relaxir.frontends.onnx.convert_recurrent import layer
from relaxir.frontends.onnx.convert_shape import SHAPE
from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.values import Value
from relaxir.sym import DimLike, ceildiv


def quantized(n: Node, convert: Converter, operands: tuple[int, ...], result: int) -> Value:
    """An operator of floats between dequantised operands and a quantised result; the arguments are places of inputs.

    Each operand is followed by its scale and zero point, the result's scale by its zero point.
    """
    scale, zero = n.input(result), n.optional(result + 1)
    n.inputs = [n.emit("dequantize_linear", *(n.optional(i + k) for k in range(3))) for i in operands]
    y = convert(n)
    assert isinstance(y, Value)
    return n.emit("quantize_linear", y, scale, zero)


def on_floats(convert: Converter) -> Converter:
    """QLinear operators of one operand: x, scale, zero point, then the result's scale and zero point."""
    return lambda n: quantized(n, convert, (0,), 3)


def qlinear_concat(n: Node) -> Result:
    """QLinearConcat: the result's scale and zero point, then each operand with its own."""
    return quantized(n, SHAPE["Concat"], tuple(range(2, len(n.inputs), 3)), 0)


def qlinear_where(n: Node) -> Result:
    """QLinearWhere: a choice between two quantised operands."""
    chosen = n.input(0)

    def choose(m: Node) -> Result:
        return m.emit("where", chosen, m.input(0), m.input(1))

    return quantized(n, choose, (1, 4), 7)


def pooled(pool: Converter) -> Converter:
    """A pooling whose images may have their channels last."""

    def convert(n: Node) -> Result:
        if not n.attr("channels_last", 0):
            return pool(n)
        rank = n.rank()
        n.inputs[0] = n.emit("permute_dims", n.input(0), axes=(0, rank - 1, *range(1, rank - 1)))
        y = pool(n)
        assert isinstance(y, Value)
        return n.emit("permute_dims", y, axes=(0, *range(2, rank), 1))

    return convert


def qlinear_softmax(n: Node) -> Result:
    """QLinearSoftmax: along one axis from opset 13 on, before over all axes from it on."""
    n.opset = n.attr("opset", 13)
    return quantized(n, MATH["Softmax"], (0,), 3)


def qlinear_mean(n: Node) -> Result:
    """QLinearReduceMean: axes are an attribute."""
    n.opset = 13
    return quantized(n, MATH["ReduceMean"], (0,), 3)


def qgemm(n: Node) -> Result:
    """QGemm: an integer product with an int32 bias, scaled; quantised again if a scale for the result is given."""
    a, a_scale, a_zero, b, b_scale, b_zero = (n.input(i) for i in range(6))
    a, b = (n.emit("permute_dims", x, axes=(1, 0)) if n.attr(f"trans{s}", 0) else x for x, s in ((a, "A"), (b, "B")))
    total = n.emit("matmul_integer", a, b, a_zero, b_zero)
    bias = n.optional(6)
    total = total if bias is None else n.emit("add", total, bias)
    scale = n.emit("multiply", n.emit("multiply", a_scale, b_scale), n.attr("alpha", 1.0))
    if not n.given(7):
        return scaled_product(n, total, scale, None)
    return requantized(n, total, n.emit("divide", scale, n.input(7)), n.optional(8), -1)


def qattention(n: Node) -> Result:
    """QAttention: the projections are an integer product; what follows is as in Attention, in floats."""
    x, weight, bias, x_scale, w_scale = (n.input(i) for i in range(5))
    total = n.emit("matmul_integer", x, weight, *zero_points(n, 6, 7, (x.type.dtype, weight.type.dtype)))
    packed = scaled_product(n, total, n.emit("multiply", x_scale, w_scale), bias)
    return self_attention(n, packed, mask=5, past=8, bias=0)


def qembed_layer_norm(n: Node) -> Result:
    """QEmbedLayerNormalization: tables, scale and shift of 8 bits; five scales, then five zero points at the end."""
    for k, index in enumerate((2, 3, 4, 5, 6)):
        if n.given(index):
            n.inputs[index] = n.emit("dequantize_linear", n.input(index), n.input(8 + k), n.optional(13 + k))
    del n.inputs[8:]
    return embed_layer_norm(n)


def matmul_integer_to_float(n: Node) -> Result:
    """MatMulIntegerToFloat: A, B, scales, zero points, bias; a float result."""
    a, b, a_scale, b_scale = (n.input(i) for i in range(4))
    total = n.emit("matmul_integer", a, b, *zero_points(n, 4, 5, (a.type.dtype, b.type.dtype)))
    return scaled_product(n, total, n.emit("multiply", as_column(n, a_scale), b_scale), n.optional(6))


def dynamic_quantize_matmul(n: Node) -> Result:
    """DynamicQuantizeMatMul: A is quantised by its range, B is given as integers."""
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
    """MatMulNBits: a weight of 4 or 8 bits, (N, blocks, bytes), dequantised, then a product."""
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
    """DynamicQuantizeLSTM: weights of 8 bits, (directions, in, 4 * hidden).

    With a zero point other than 0 (which unsigned weights may have) they are dequantised, with floats between.
    """
    if all(n.input(i).type.dtype == "int8" and is_zero(n, zero) for i, zero in ((1, 9), (2, 11))):
        for index in (8, 10):
            n.inputs[index] = scale_of_columns(n, n.input(index), n.input(2).type.shape[-1])
        return layer("lstm", "quantized_lstm", (8, 10))(n)
    for index, scale in ((1, 8), (2, 10)):
        real = lstm_weight(n, n.input(index), n.input(scale), n.optional(scale + 1))
        n.inputs[index] = n.emit("permute_dims", real, axes=(0, 2, 1))
    del n.inputs[8:]
    return layer("lstm")(n)


def is_zero(n: Node, index: int) -> bool:
    """Whether a zero point is left out or known to be 0."""
    known = n.number(index) if n.given(index) else np.zeros(())
    return known is not None and not known.any()


def scale_of_columns(n: Node, scale: Value, width: DimLike) -> Value:
    """A scale for each direction, or for each direction and column, as the latter."""
    if scale.type.rank > 1:
        return scale
    return n.emit("broadcast_to", n.emit("expand_dims", scale, axes=(1,)), shape=(*scale.type.shape, width))


def lstm_weight(n: Node, weight: Value, scale: Value, zero: Value | None) -> Value:
    """A weight with a scale for each direction, or for each direction and column."""
    if scale.type.rank < 2:
        return n.emit("dequantize_linear", weight, scale, zero, axis=0)
    depth = weight.type.shape[1]
    if not isinstance(depth, int):
        n.unsupported("a weight whose size is known only at run time")
    columns = [None if v is None else n.emit("expand_dims", v, axes=(1,)) for v in (scale, zero)]
    return n.emit("dequantize_linear", weight, *columns, axis=1, block_size=depth)


MICROSOFT_QUANT: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "DequantizeLinear": dequantize,
        "DynamicQuantizeLSTM": dynamic_quantize_lstm,
        "DynamicQuantizeMatMul": dynamic_quantize_matmul,
        "MatMulIntegerToFloat": matmul_integer_to_float,
        "MatMulNBits": matmul_nbits,
        "QAttention": qattention,
        "QEmbedLayerNormalization": qembed_layer_norm,
        "QGemm": qgemm,
        "QLinearAdd": lambda n: quantized(n, MATH["Add"], (0, 3), 6),
        "QLinearAveragePool": on_floats(pooled(POOL["AveragePool"])),
        "QLinearConcat": qlinear_concat,
        "QLinearGlobalAveragePool": on_floats(pooled(POOL["GlobalAveragePool"])),
        "QLinearLeakyRelu": on_floats(MATH["LeakyRelu"]),
        "QLinearMul": lambda n: quantized(n, MATH["Mul"], (0, 3), 6),
        "QLinearReduceMean": qlinear_mean,
        "QLinearSigmoid": on_floats(MATH["Sigmoid"]),
        "QLinearSoftmax": qlinear_softmax,
        "QLinearWhere": qlinear_where,
        "QuantizeLinear": quantize,
    }
)
"""Quantised operators of the domain com.microsoft."""
