"""Converters of quantised operators, written with the plain ones in int32 and float32."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.onnx.convert_math import Converter
from relaxir.frontends.onnx.convert_pool import window
from relaxir.frontends.onnx.node import Node, Result
from relaxir.frontends.onnx.tensors import element_type
from relaxir.frontends.onnx.values import Value
from relaxir.support.dtypes import info

NARROW: Final = ("int8", "uint8", "int16", "uint16")
"""Types of quantised values."""


def along(n: Node, v: Value, rank: int, axis: int) -> Value:
    """A scale or zero point, of one element or one per slice of an axis, in a shape that broadcasts."""
    if v.type.rank == 0 or v.type.shape == (1,):
        return n.emit("reshape", v, shape=()) if v.type.rank else v
    if v.type.rank != 1:
        n.unsupported("quantisation by blocks")
    place = n.axis(axis, rank)
    return n.emit("reshape", v, shape=tuple(v.type.shape[0] if a == place else 1 for a in range(rank)))


def as_type(n: Node, v: Value, dtype: str) -> Value:
    """The value in a dtype."""
    return v if v.type.dtype == dtype else n.emit("astype", v, dtype=dtype)


def rounded(n: Node, scaled: Value, zero: Value | None, dtype: str) -> Value:
    """Round half to even, add the zero point, saturate."""
    if dtype not in NARROW:
        n.unsupported(f"quantisation to {dtype}")
    bits = info(dtype).bits
    low, high = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if dtype.startswith("int") else (0, 2**bits - 1)
    whole = n.emit("round", scaled)
    if zero is not None:
        whole = n.emit("add", whole, as_type(n, zero, "float32"))
    return n.emit("astype", n.emit("clip", whole, float(low), float(high)), dtype=dtype)


def quantize(n: Node) -> Result:
    """``saturate(round(x / scale) + zero)``."""
    x, zero = n.input(0), n.optional(2)
    if n.attr("block_size", 0):
        n.unsupported("quantisation by blocks")
    axis, rank = n.attr("axis", 1), x.type.rank
    scale = as_type(n, along(n, n.input(1), rank, axis), "float32")
    stated = n.attr("output_dtype", 0)
    dtype = element_type(stated, "attribute `output_dtype`") if stated else "uint8"
    if zero is not None:
        dtype = zero.type.dtype
    shifted = None if zero is None else along(n, zero, rank, axis)
    return rounded(n, n.emit("divide", as_type(n, x, "float32"), scale), shifted, dtype)


def dequantize(n: Node) -> Result:
    """``(x - zero) * scale``, in the scale's dtype."""
    x, scale = n.input(0), n.input(1)
    if n.attr("block_size", 0):
        n.unsupported("quantisation by blocks")
    axis, rank = n.attr("axis", 1), x.type.rank
    wide = as_type(n, x, "float32")
    if n.given(2):
        wide = n.emit("subtract", wide, as_type(n, along(n, n.input(2), rank, axis), "float32"))
    y = n.emit("multiply", wide, as_type(n, along(n, scale, rank, axis), "float32"))
    return as_type(n, y, scale.type.dtype)


def centred(n: Node, index: int, zero: int, axis: int) -> Value:
    """An integer operand minus its zero point, as int32."""
    x = n.input(index)
    wide = as_type(n, x, "int32")
    if not n.given(zero):
        return wide
    return n.emit("subtract", wide, as_type(n, along(n, n.input(zero), x.type.rank, axis), "int32"))


def matmul_integer(n: Node) -> Result:
    """Products of integers, summed as int32; zero points per row of a and per column of b."""
    return n.emit("matmul", centred(n, 0, 2, -2), centred(n, 1, 3, -1))


def conv_integer(n: Node) -> Result:
    """Convolution of integers, summed as int32; padding stands for the zero point."""
    x, w = centred(n, 0, 2, 1), centred(n, 1, 3, 0)
    return n.emit("conv", x, w, groups=n.attr("group", 1), **window(n, (0,) * (x.type.rank - 2)))


def requantized(n: Node, total: Value, scales: tuple[Value, Value, Value], zero: Value) -> Value:
    """An int32 sum under the scales of both operands, in the scale of the result."""
    a, b, y = (as_type(n, s, "float32") for s in scales)
    factor = n.emit("divide", n.emit("multiply", a, b), y)
    return rounded(n, n.emit("multiply", as_type(n, total, "float32"), factor), zero, zero.type.dtype)


def qlinear_matmul(n: Node) -> Result:
    """Quantised matrix product: a, its scale and zero point, b with both, those of the result."""
    total = n.emit("matmul", centred(n, 0, 2, -2), centred(n, 3, 5, -1))
    rank = total.type.rank
    scales = along(n, n.input(1), rank, -2), along(n, n.input(4), rank, -1), n.scalar_input(6)
    return requantized(n, total, scales, n.scalar_input(7))


def qlinear_conv(n: Node) -> Result:
    """Quantised convolution with an int32 bias in the scale of the products."""
    x, w = centred(n, 0, 2, 1), centred(n, 3, 5, 0)
    geometry = window(n, (0,) * (x.type.rank - 2))
    total = n.emit("conv", x, w, n.optional(8), groups=n.attr("group", 1), **geometry)
    scales = n.scalar_input(1), along(n, n.input(4), x.type.rank, 1), n.scalar_input(6)
    return requantized(n, total, scales, n.scalar_input(7))


QUANT: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "ConvInteger": conv_integer,
        "DequantizeLinear": dequantize,
        "MatMulInteger": matmul_integer,
        "QLinearConv": qlinear_conv,
        "QLinearMatMul": qlinear_matmul,
        "QuantizeLinear": quantize,
    }
)
"""Quantised operators by ONNX name."""
