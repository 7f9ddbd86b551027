"""Converters of com.microsoft: fused float operators that ONNX Runtime's tools write into models."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.onnx.convert_math import MATH
from relaxir.frontends.onnx.convert_nn import NN, conv, gemm, layer_norm, rms_norm
from relaxir.frontends.onnx.convert_shape import SHAPE
from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.values import Value
from relaxir.sym import product


def fused_matmul(n: Node) -> Result:
    """FusedMatMul: transposes of the last two axes, or of the first axis to behind the batch, and a factor."""
    sides = []
    for index, side in enumerate("AB"):
        x = n.input(index)
        order = list(range(x.type.rank))
        if n.attr(f"transBatch{side}", 0):  # (rows, *batch, columns) to (*batch, rows, columns)
            order = [*order[1:-1], order[0], order[-1]]
        if n.attr(f"trans{side}", 0) and x.type.rank > 1:
            order[-1], order[-2] = order[-2], order[-1]
        sides.append(n.emit("permute_dims", x, axes=tuple(order)) if order != sorted(order) else x)
    y = n.emit("matmul", *sides)
    alpha = n.attr("alpha", 1.0)
    return y if alpha == 1.0 else n.emit("multiply", y, alpha)


def with_bias(n: Node, index: int = 1) -> Value:
    """The first input and an optional bias."""
    bias = n.optional(index)
    return n.input(0) if bias is None else n.emit("add", n.input(0), bias)


def fast_gelu(n: Node) -> Result:
    """FastGelu: tanh form, optional bias."""
    return n.emit("gelu", with_bias(n), approximate="tanh")


def bias_gelu(n: Node) -> Result:
    """BiasGelu: exact form of a sum."""
    return n.emit("gelu", with_bias(n))


def quick_gelu(n: Node) -> Result:
    """QuickGelu: ``x * sigmoid(alpha * x)``."""
    return n.emit("silu", n.input(0), alpha=n.attr("alpha", 1.702))


def residual(n: Node, bias: int) -> Value:
    """The sum of an input, a skipped connection and an optional bias."""
    total = n.emit("add", n.input(0), n.input(1))
    last = n.optional(bias)
    return total if last is None else n.emit("add", total, last)


def skip_layer_norm(n: Node) -> Result:
    """SkipLayerNormalization: residual, bias, layer normalisation; the sum on request."""
    total = residual(n, 4)
    y = n.emit("layer_norm", total, n.input(2), n.optional(3), axes=(-1,), epsilon=n.attr("epsilon", 1e-12))
    return y, None, None, total


def skip_rms_norm(n: Node) -> Result:
    """SkipSimplifiedLayerNormalization: residual, bias, division by the root mean square; the sum on request."""
    total = residual(n, 3)
    return n.emit("rms_norm", total, n.input(2), axes=(-1,), epsilon=n.attr("epsilon", 1e-12)), None, None, total


def embed_layer_norm(n: Node) -> Result:
    """EmbedLayerNormalization: sums of word, position and segment vectors, normalised; lengths from the mask."""
    ids, segments, words, places = n.input(0), n.optional(1), n.input(2), n.input(3)
    total = n.emit("take", words, ids, axis=0)
    position = n.optional(8)
    if position is None:
        position = n.emit("arange", start=0, stop=ids.type.shape[1], dtype="int64")
    total = n.emit("add", total, n.emit("take", places, position, axis=0))
    if segments is not None:
        total = n.emit("add", total, n.emit("take", n.input(4), segments, axis=0))
    y = n.emit("layer_norm", total, n.input(5), n.input(6), axes=(-1,), epsilon=n.attr("epsilon", 1e-12))
    mask = n.optional(7)
    if mask is None:
        lengths = n.emit("full", n.scalar(0, "int32"), shape=(ids.type.shape[0],))
    else:
        lengths = n.emit("sum", n.emit("astype", mask, dtype="int32"), axes=(1,))
    return y, lengths, total


def activated(n: Node, y: Value, name: str, parameters: tuple[float, ...]) -> Value:
    """An activation by name with its parameters in order."""
    if not name:
        return y
    if name == "Clip":
        return n.emit("clip", y, *parameters)
    if name not in ACTIVATIONS:
        n.unsupported(f"activation {name}")
    op, names = ACTIVATIONS[name]
    return n.emit(op, y, **dict(zip(names, parameters, strict=False)))


ACTIVATIONS: Final[Mapping[str, tuple[str, tuple[str, ...]]]] = MappingProxyType(
    {
        "HardSigmoid": ("hard_sigmoid", ("alpha", "beta")),
        "LeakyRelu": ("leaky_relu", ("alpha",)),
        "Relu": ("relu", ()),
        "Sigmoid": ("sigmoid", ()),
        "Tanh": ("tanh", ()),
    }
)
"""Operator and parameters of an activation."""


def fused_conv(n: Node) -> Result:
    """FusedConv: a convolution, then a residual, then an activation."""
    y = conv(n)
    assert isinstance(y, Value)
    more = n.optional(3)
    total = y if more is None else n.emit("add", y, more)
    return activated(n, total, n.attr("activation", ""), n.floats("activation_params") or ())


def fused_gemm(n: Node) -> Result:
    """FusedGemm: a Gemm, then an activation."""
    y = gemm(n)
    assert isinstance(y, Value)
    given = (n.attr(f"activation_{k}", 0.0) for k in ("alpha", "beta", "gamma") if n.has(f"activation_{k}"))
    return activated(n, y, n.attr("activation", ""), tuple(given))


def nhwc_conv(n: Node) -> Result:
    """NhwcConv: a convolution of images and weights with channels last."""
    for index in (0, 1):
        rank = n.rank(index)
        n.inputs[index] = n.emit("permute_dims", n.input(index), axes=(0, rank - 1, *range(1, rank - 1)))
    y = conv(n)
    assert isinstance(y, Value)
    return n.emit("permute_dims", y, axes=(0, *range(2, y.type.rank), 1))


def group_norm_nhwc(n: Node) -> Result:
    """GroupNorm: images with channels last (by default), and an optional SiLU."""
    x, last = n.input(0), n.attr("channels_last", 1)
    rank = x.type.rank
    if last:
        x = n.emit("permute_dims", x, axes=(0, rank - 1, *range(1, rank - 1)))
    y = n.emit("group_norm", x, n.input(1), n.input(2), num_groups=n.attr("groups", 1), epsilon=n.attr("epsilon", 1e-5))
    if n.attr("activation", 0):
        y = n.emit("silu", y)
    return n.emit("permute_dims", y, axes=(0, *range(2, rank), 1)) if last else y


def bias_softmax(n: Node) -> Result:
    """BiasSoftmax: softmax of a sum over the axes from ``axis`` on; the bias broadcasts from inside or around them."""
    x, bias = n.input(0), n.input(1)
    axis, rank = n.axis(n.attr("axis", 1), x.type.rank), x.type.rank
    if not n.attr("is_inner_broadcast", 1):
        lead = bias.type.rank - (rank - axis)
        bias = n.emit("reshape", bias, shape=(*bias.type.shape[:lead], *(1,) * (axis - lead), *bias.type.shape[lead:]))
    total = n.emit("add", x, bias)
    flat = n.emit("reshape", total, shape=(product(x.type.shape[:axis]), product(x.type.shape[axis:])))
    return n.emit("reshape", n.emit("softmax", flat, axis=1), shape=x.type.shape)


def cdist(n: Node) -> Result:
    """CDist: distances, Euclidean or squared, between the rows of two matrices."""
    metric = n.attr("metric", "sqeuclidean")
    if metric not in ("euclidean", "sqeuclidean"):
        n.unsupported(f"metric {metric}")
    rows, columns = n.emit("expand_dims", n.input(0), axes=(1,)), n.emit("expand_dims", n.input(1), axes=(0,))
    squares = n.emit("sum_square", n.emit("subtract", rows, columns), axes=(2,))
    return n.emit("sqrt", squares) if metric == "euclidean" else squares


def expand_dims(n: Node) -> Result:
    """ExpandDims: one new axis, counted from the end of the result where negative."""
    return n.emit("expand_dims", n.input(0), axes=(int(n.constant(1, "axis").reshape(-1)[0]),))


def bias_split_gelu(n: Node) -> Result:
    """BiasSplitGelu: the first half of a sum's last axis times the GELU of the second."""
    total = with_bias(n)
    half = total.type.shape[-1] // 2
    left, right = n.emit_tuple("split", total, sizes=(half, half), axis=-1)
    return n.emit("multiply", left, n.emit("gelu", right))


def bias_add(n: Node) -> Result:
    """BiasAdd: an input, a bias of its channels and a residual."""
    return n.emit("add", with_bias(n), n.input(2))


def complex_mul(n: Node, conjugated: bool) -> Result:
    """ComplexMul and ComplexMulConj: products of numbers held as (real, imaginary) in the last axis."""
    (a, b), (c, d) = (
        [n.emit("take", n.input(i), n.literal(np.array(k), "int64"), axis=-1) for k in range(2)] for i in range(2)
    )
    d = n.emit("negative", d) if conjugated else d
    real = n.emit("subtract", n.emit("multiply", a, c), n.emit("multiply", b, d))
    return n.emit("stack", real, n.emit("add", n.emit("multiply", a, d), n.emit("multiply", b, c)), axis=-1)


MICROSOFT: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "BiasAdd": bias_add,
        "BiasGelu": bias_gelu,
        "BiasSoftmax": bias_softmax,
        "BiasSplitGelu": bias_split_gelu,
        "CDist": cdist,
        "ComplexMul": lambda n: complex_mul(n, conjugated=False),
        "ComplexMulConj": lambda n: complex_mul(n, conjugated=True),
        "EmbedLayerNormalization": embed_layer_norm,
        "ExpandDims": expand_dims,
        "FastGelu": fast_gelu,
        "FusedConv": fused_conv,
        "FusedGemm": fused_gemm,
        "FusedMatMul": fused_matmul,
        "Gelu": MATH["Gelu"],
        "GroupNorm": group_norm_nhwc,
        "LayerNormalization": NN["LayerNormalization"],
        "NhwcConv": nhwc_conv,
        "QuickGelu": quick_gelu,
        "SkipLayerNormalization": skip_layer_norm,
        "SkipSimplifiedLayerNormalization": skip_rms_norm,
        "TransposeMatMul": fused_matmul,
        "Trilu": SHAPE["Trilu"],
    }
)
"""Float operators of the domain com.microsoft."""
BESIDE_STANDARD: Final[Mapping[str, Converter]] = MappingProxyType(
    {"SimplifiedLayerNormalization": rms_norm, "LayerNormalization": layer_norm}
)
"""Operators that ONNX Runtime writes into the default domain, also in opsets that have none of that name."""
