"""Converters of matrix products, convolutions, pooling, normalisations, resizing and attention."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from relaxir.frontends.onnx.convert_math import Converter
from relaxir.frontends.onnx.node import Node, Result
from relaxir.frontends.onnx.values import Value


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


def window(n: Node, kernel: Sequence[int]) -> dict[str, object]:
    """Attributes common to convolution and pooling."""
    rank = len(kernel)
    padding = n.ints("pads")
    return {
        "strides": n.ints("strides") or (1,) * rank,
        "padding": padding or (0,) * (2 * rank),
        "dilations": n.ints("dilations") or (1,) * rank,
        "auto_pad": n.attr("auto_pad", "NOTSET"),
    }


def conv(n: Node) -> Result:
    """Convolution over any number of axes."""
    x, w = n.input(0), n.input(1)
    spatial = x.type.rank - 2
    return n.emit("conv", x, w, n.optional(2), groups=n.attr("group", 1), **window(n, (0,) * spatial))


def conv_transpose(n: Node) -> Result:
    """Transposed convolution."""
    x, w = n.input(0), n.input(1)
    spatial = x.type.rank - 2
    attrs = window(n, (0,) * spatial)
    attrs["output_padding"] = n.ints("output_padding") or (0,) * spatial
    attrs["output_shape"] = n.ints("output_shape") or ()
    return n.emit("conv_transpose", x, w, n.optional(2), groups=n.attr("group", 1), **attrs)


def max_pool(n: Node) -> Result:
    """Largest element of each window, optionally with positions."""
    kernel = n.attr("kernel_shape", ())
    attrs = {**window(n, kernel), "kernel": kernel, "ceil_mode": bool(n.attr("ceil_mode", 0))}
    if len(n.proto.output) < 2 or not n.proto.output[1]:
        return n.emit("max_pool", n.input(0), **attrs)
    return n.emit_tuple("max_pool", n.input(0), return_indices=True, storage_order=n.attr("storage_order", 0), **attrs)


def average_pool(n: Node) -> Result:
    """Mean of each window."""
    kernel = n.attr("kernel_shape", ())
    attrs = {**window(n, kernel), "kernel": kernel, "ceil_mode": bool(n.attr("ceil_mode", 0))}
    return n.emit("average_pool", n.input(0), count_include_pad=bool(n.attr("count_include_pad", 0)), **attrs)


def lp_pool(n: Node) -> Result:
    """p-norm of each window."""
    kernel = n.attr("kernel_shape", ())
    attrs = {**window(n, kernel), "kernel": kernel, "ceil_mode": bool(n.attr("ceil_mode", 0))}
    return n.emit("lp_pool", n.input(0), p=n.attr("p", 2), **attrs)


def global_pool(name: str) -> Converter:
    """A reduction over all spatial axes."""

    def convert(n: Node) -> Result:
        return n.emit(name, n.input(0), axes=tuple(range(2, n.rank())), keepdims=True)

    return convert


def batch_norm(n: Node) -> Result:
    """Inference form."""
    if n.attr("training_mode", 0) or (n.opset < 14 and len([o for o in n.proto.output if o]) > 1):
        n.unsupported("training mode")
    return n.emit("batch_norm", *(n.input(i) for i in range(5)), epsilon=n.attr("epsilon", 1e-5))


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


def layer_norm(n: Node) -> Result:
    """Over the trailing axes; mean and inverse deviation on request."""
    x = n.input(0)
    axes = trailing_axes(n)
    epsilon = n.attr("epsilon", 1e-5)
    y = n.emit("layer_norm", x, n.input(1), n.optional(2), axes=axes, epsilon=epsilon)
    wanted = [o for o in n.proto.output[1:] if o]
    if not wanted:
        return y
    mean = n.emit("mean", x, axes=axes, keepdims=True)
    variance = n.emit("variance", x, axes=axes, keepdims=True)
    return y, mean, n.emit("rsqrt", n.emit("add", variance, epsilon))


def rms_norm(n: Node) -> Result:
    """Root mean square over the trailing axes."""
    return n.emit("rms_norm", n.input(0), n.input(1), axes=trailing_axes(n), epsilon=n.attr("epsilon", 1e-5))


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


def resize(n: Node) -> Result:
    """Sizes or scales; nearest, linear, cubic."""
    x = n.input(0)
    roi, scales, sizes = (1, 2, 3) if n.opset >= 11 else (99, 1, 99)
    axes = n.ints("axes")
    chosen = tuple(range(x.type.rank)) if axes is None else tuple(n.axis(a, x.type.rank) for a in axes)
    attrs: dict[str, object] = {
        "mode": n.attr("mode", "nearest"),
        "axes": chosen,
        "coordinate_transformation_mode": n.attr("coordinate_transformation_mode", "half_pixel" if n.opset >= 11 else "asymmetric"),
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
        attrs["sizes"] = n.dims(sizes, low=0, names="size")
    return n.emit("resize", x, **attrs)


def upsample(n: Node) -> Result:
    """Resize of old opsets."""
    x = n.input(0)
    scales = n.attr("scales", ()) if n.opset < 9 else tuple(float(v) for v in n.constant(1, "scales").reshape(-1))
    attrs = {"coordinate_transformation_mode": "asymmetric", "nearest_mode": "floor", "axes": tuple(range(x.type.rank))}
    return n.emit("resize", x, mode=n.attr("mode", "nearest"), scales=scales, **attrs)


def fused_matmul(n: Node) -> Result:
    """com.microsoft FusedMatMul: transposes of the last two axes and a factor."""
    a, b = n.input(0), n.input(1)
    if n.attr("transBatchA", 0) or n.attr("transBatchB", 0):
        n.unsupported("transposed batch axes")
    if n.attr("transA", 0):
        a = swapped(n, a)
    if n.attr("transB", 0):
        b = swapped(n, b)
    y = n.emit("matmul", a, b)
    alpha = n.attr("alpha", 1.0)
    return y if alpha == 1.0 else n.emit("multiply", y, alpha)


def swapped(n: Node, x: Value) -> Value:
    """The last two axes exchanged."""
    rank = x.type.rank
    return n.emit("permute_dims", x, axes=(*range(rank - 2), rank - 1, rank - 2))


def fast_gelu(n: Node) -> Result:
    """com.microsoft FastGelu: tanh form, optional bias."""
    x = n.input(0)
    bias = n.optional(1)
    return n.emit("gelu", x if bias is None else n.emit("add", x, bias), approximate="tanh")


def skip_layer_norm(n: Node) -> Result:
    """com.microsoft SkipLayerNormalization: residual, bias, layer normalisation."""
    total = n.emit("add", n.input(0), n.input(1))
    bias = n.optional(4)
    if bias is not None:
        total = n.emit("add", total, bias)
    y = n.emit("layer_norm", total, n.input(2), n.optional(3), axes=(-1,), epsilon=n.attr("epsilon", 1e-12))
    return y, None, None, total


NN: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "AveragePool": average_pool,
        "BatchNormalization": batch_norm,
        "Conv": conv,
        "ConvTranspose": conv_transpose,
        "Einsum": einsum,
        "Gemm": gemm,
        "GlobalAveragePool": global_pool("mean"),
        "GlobalMaxPool": global_pool("max"),
        "GroupNormalization": group_norm,
        "InstanceNormalization": instance_norm,
        "LRN": lrn,
        "LayerNormalization": layer_norm,
        "LpNormalization": lp_normalization,
        "LpPool": lp_pool,
        "MaxPool": max_pool,
        "MeanVarianceNormalization": mean_variance,
        "RMSNormalization": rms_norm,
        "Resize": resize,
        "Upsample": upsample,
    }
)
"""Neural-network operators by ONNX name."""

MICROSOFT: Final[Mapping[str, Converter]] = MappingProxyType(
    {"FastGelu": fast_gelu, "FusedMatMul": fused_matmul, "SkipLayerNormalization": skip_layer_norm}
)
"""Operators of the domain com.microsoft."""
