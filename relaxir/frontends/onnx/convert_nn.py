"""Converters of matrix products, convolutions, normalisations and attention."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from onnx import TensorProto

from relaxir.frontends.onnx.convert_pool import kernel_of, window
from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.tensors import element_type
from relaxir.frontends.onnx.values import Value
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, product, sub


def gemm(n: Node) -> Result:
    """``alpha * a @ b + beta * c`` with optional transposes."""
    a, b = n.input(0), n.input(1)
    if n.attr("transA", 0):
        a = n.emit("permute_dims", a, axes=(1, 0))
    if n.attr("transB", 0):
        b = n.emit("permute_dims", b, axes=(1, 0))
    y = n.emit("matmul", a, b)
    alpha, beta = n.attr("alpha", 1.0), n.attr("beta", 1.0)
    if alpha != 1.0:
        y = n.emit("multiply", y, alpha)
    c = n.optional(2)
    if c is None:
        return y
    return n.emit("add", y, c if beta == 1.0 else n.emit("multiply", c, beta))


def conv(n: Node) -> Result:
    """Convolution over any number of axes."""
    x, w = n.input(0), kernel_of(n, 1)
    spatial = x.type.rank - 2
    return n.emit("conv", x, w, n.optional(2), groups=n.attr("group", 1), **window(n, (0,) * spatial))


def causal_conv(n: Node) -> Result:
    """A depthwise convolution of a signal that follows its past: (batch, channels, length)."""
    x, w = n.input(0), n.input(1)
    batch, channels, length = x.type.shape
    taps = w.type.shape[2]
    past = n.optional(3)
    if past is None:
        past = n.emit("full", n.scalar(0.0, x.type.dtype), shape=(batch, channels, sub(taps, 1)))
    whole = n.emit("concat", past, x, axis=2)
    if isinstance(channels, int) and isinstance(taps, int):
        y = n.emit("conv", whole, w, n.optional(2), groups=channels)
    else:  # as many groups as channels, both known only at run time: a sum over windows
        starts = n.emit("expand_dims", n.emit("arange", start=0, stop=length, dtype="int64"), axes=(1,))
        places = n.emit("add", starts, n.emit("arange", start=0, stop=taps, dtype="int64"))
        y = n.emit("sum", n.emit("multiply", n.emit("take", whole, places, axis=2), w), axes=(3,))
        if n.given(2):
            y = n.emit("add", y, n.emit("expand_dims", n.input(2), axes=(1,)))
    name = n.attr("activation", "none")
    if name not in ("none", "silu", "swish"):
        n.unsupported(f"activation {name}")
    state = n.emit("strided_slice", whole, axes=(2,), begin=(length,), size=(sub(taps, 1),))
    return y if name == "none" else n.emit("silu", y), state


def conv_transpose(n: Node) -> Result:
    """Transposed convolution."""
    x, w = n.input(0), kernel_of(n, 1)
    spatial = x.type.rank - 2
    attrs = window(n, (0,) * spatial)
    attrs["output_padding"] = n.ints("output_padding") or (0,) * spatial
    attrs["output_shape"] = n.ints("output_shape") or ()
    return n.emit("conv_transpose", x, w, n.optional(2), groups=n.attr("group", 1), **attrs)


def batch_norm(n: Node) -> Result:
    """With the given statistics, or in training with those of the batch, which move the running ones."""
    x, *stats = (n.input(i) for i in range(5))
    shape = x.type.shape
    if n.opset < 9 and not n.attr("spatial", 1):  # statistics of each element of an image: they become channels
        x = n.emit("reshape", x, shape=(shape[0], product(shape[1:])))
        stats = [n.emit("reshape", v, shape=(product(v.type.shape),)) for v in stats]
    scale, bias, mean, variance = stats
    epsilon, momentum = n.attr("epsilon", 1e-5), n.attr("momentum", 0.9)
    if not in_training(n):
        y = n.emit("batch_norm", x, scale, bias, mean, variance, epsilon=epsilon)
        return n.emit("reshape", y, shape=shape)
    axes = (0, *range(2, x.type.rank))
    found = n.emit("mean", x, axes=axes), n.emit("variance", x, axes=axes)
    y = n.emit("batch_norm", x, scale, bias, *found, epsilon=epsilon)
    moved = (
        n.emit("add", n.emit("multiply", old, momentum), n.emit("multiply", new, 1.0 - momentum))
        for old, new in zip((mean, variance), found, strict=True)
    )
    return n.emit("reshape", y, shape=shape), *moved, *(found if n.opset < 14 else ())


def in_training(n: Node) -> bool:
    """Whether a batch normalisation is in training: by an attribute, from opset 7 to 13 by its number of outputs."""
    if n.opset < 7:
        return not n.attr("is_test", 0)
    return bool(n.attr("training_mode", 0)) or (n.opset < 14 and len([o for o in n.proto.output if o]) > 1)


def instance_norm(n: Node) -> Result:
    """Per instance and channel."""
    return n.emit("instance_norm", n.input(0), n.input(1), n.input(2), epsilon=n.attr("epsilon", 1e-5))


def group_norm(n: Node) -> Result:
    """Per group of channels; before opset 21 scale and bias are per group."""
    x, scale, bias = n.input(0), n.input(1), n.input(2)
    groups = n.attr("num_groups", 1)
    if n.opset < 21:
        channels = x.type.shape[1]
        if not isinstance(channels, int):
            n.unsupported("per-group scale with a dynamic number of channels")
        repeats = channels // groups
        scale, bias = (n.emit("repeat", v, repeats=repeats, axis=0) for v in (scale, bias))
    return n.emit("group_norm", x, scale, bias, num_groups=groups, epsilon=n.attr("epsilon", 1e-5))


def trailing_axes(n: Node, default: int = -1) -> tuple[int, ...]:
    """Axes from ``axis`` to the last."""
    rank = n.rank()
    return tuple(range(n.axis(n.attr("axis", default), rank), rank))


def normalized(n: Node, op: str, scale: Value, shift: Value | None) -> Value:
    """The first input normalised over its trailing axes, then scaled and shifted by what broadcasts to it."""
    x, axes = n.input(0), trailing_axes(n)
    attrs = {"axes": axes, "epsilon": n.attr("epsilon", 1e-5)}
    inner = tuple(x.type.shape[a] for a in axes)
    if all(v is None or fits_axes(v, inner) for v in (scale, shift)):
        return n.emit(op, x, scale, shift, **attrs)
    y = n.emit(op, x, n.emit("full", n.scalar(1.0, x.type.dtype), shape=inner), **attrs)
    y = n.emit("multiply", y, scale)
    return y if shift is None else n.emit("add", y, shift)


def fits_axes(value: Value, inner: tuple[DimLike, ...]) -> bool:
    """Whether a value has the axes that are normalised, and repeats along none of them."""
    shape = value.type.shape
    return len(shape) == len(inner) and not any(d == 1 != e for d, e in zip(shape, inner, strict=True))


def layer_norm(n: Node) -> Result:
    """Over the trailing axes; mean and inverse deviation on request, in the type of the first stage."""
    x, axes = n.input(0), trailing_axes(n)
    y = normalized(n, "layer_norm", n.input(1), n.optional(2))
    if not any(n.proto.output[1:]):
        return y
    stage = element_type(n.attr("stash_type", int(TensorProto.FLOAT)), "the first stage")
    wide = x if info(x.type.dtype).bits >= info(stage).bits else n.emit("astype", x, dtype=stage)
    mean = n.emit("mean", wide, axes=axes, keepdims=True)
    variance = n.emit("variance", wide, axes=axes, keepdims=True)
    deviation = n.emit("rsqrt", n.emit("add", variance, n.attr("epsilon", 1e-5)))
    return y, *(v if v.type.dtype == stage else n.emit("astype", v, dtype=stage) for v in (mean, deviation))


def rms_norm(n: Node) -> Result:
    """Root mean square over the trailing axes."""
    return normalized(n, "rms_norm", n.input(1), None)


def lp_normalization(n: Node) -> Result:
    """Divided by the p-norm along an axis."""
    return n.emit("lp_normalization", n.input(0), axis=n.attr("axis", -1), p=n.attr("p", 2))


def mean_variance(n: Node) -> Result:
    """Zero mean, unit variance."""
    return n.emit("mean_variance_normalization", n.input(0), axes=n.ints("axes") or (0, 2, 3))


def lrn(n: Node) -> Result:
    """Across channels."""
    attrs = {"alpha": n.attr("alpha", 1e-4), "beta": n.attr("beta", 0.75), "bias": n.attr("bias", 1.0)}
    return n.emit("lrn", n.input(0), size=n.attr("size", 1), **attrs)


def einsum(n: Node) -> Result:
    """Sums of products by an equation."""
    return n.emit("einsum", *(n.input(i) for i in range(len(n.inputs))), equation=n.attr("equation", ""))


NN: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "BatchNormalization": batch_norm,
        "CausalConvWithState": causal_conv,
        "Conv": conv,
        "ConvTranspose": conv_transpose,
        "Einsum": einsum,
        "Gemm": gemm,
        "GroupNormalization": group_norm,
        "InstanceNormalization": instance_norm,
        "LRN": lrn,
        "LayerNormalization": layer_norm,
        "LpNormalization": lp_normalization,
        "MeanVarianceNormalization": mean_variance,
        "RMSNormalization": rms_norm,
    }
)
"""Neural-network operators by ONNX name."""
