"""Converters of matrix products, convolutions, normalisations and attention."""

from __future__ import annotations

from collections.abc import Mapping
from string import ascii_lowercase
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.values import Value
from relaxir.sym import DimLike, product


def matmul(first: str = "self", second: str = "other") -> Converter:
    """Matrix product with NumPy's batching."""
    return lambda n: n.emit("matmul", n.value(first), n.value(second))


def addmm(first: str, second: str) -> Converter:
    """``beta * self + alpha * (first @ second)``."""
    return lambda n: with_self(n, n.emit("matmul", n.value(first), n.value(second)))


def addbmm(n: Node) -> Value:
    """``beta * self + alpha * sum(batch1 @ batch2)`` over the batch."""
    return with_self(n, n.emit("einsum", n.value("batch1"), n.value("batch2"), equation="bij,bjk->ik"))


def with_self(n: Node, y: Value) -> Value:
    """``beta * self + alpha * y``; without ``self`` the product alone, as one term of several has it."""
    dtype = y.type.dtype
    alpha, beta = n.get("alpha", 1), n.get("beta", 1)
    if alpha != 1:
        y = n.emit("multiply", y, n.operand(alpha, dtype))
    if beta == 0 or not n.has("self"):
        return y
    c = n.value()
    return n.emit("add", y, c if beta == 1 else n.emit("multiply", c, n.operand(beta, dtype)))


def linear(n: Node) -> Value:
    """``input @ weight.T + bias``."""
    x, weight, bias = n.value("input"), n.value("weight"), n.optional("bias")
    if weight.type.rank == 1:
        y = n.emit("matmul", x, weight)
        return y if bias is None else n.emit("add", y, bias)
    return n.emit("linear", x, weight, bias)


def bilinear(n: Node) -> Value:
    """``input1 @ weight[o] @ input2`` for each output."""
    y = n.emit("einsum", n.value("input1"), n.value("weight"), n.value("input2"), equation="...i,oij,...j->...o")
    bias = n.optional("bias")
    return y if bias is None else n.emit("add", y, bias)


def trilinear(n: Node) -> Value:
    """Sum over axes of a product of three tensors, each with axes of extent 1 put in: what `bilinear` is made of."""
    factors = [(n.value(f"i{k}"), n.ints(f"expand{k}")) for k in (1, 2, 3)]
    rank = factors[0][0].type.rank + len(factors[0][1])
    letters = ascii_lowercase[:rank]
    terms = ["".join(c for axis, c in enumerate(letters) if axis not in added) for _, added in factors]
    result = "".join(c for axis, c in enumerate(letters) if axis not in n.ints("sumdim"))
    return n.emit("einsum", *(x for x, _ in factors), equation=f"{','.join(terms)}->{result}")


def outer(n: Node) -> Value:
    """All products of two vectors, in their common dtype."""
    a, b = (n.operand(n.args[k], n.out_dtype) for k in ("self", "vec2"))
    return n.emit("multiply", n.reshape(a, (a.type.shape[0], 1)), b)


def einsum(n: Node) -> Value:
    """Sums of products by an equation."""
    tensors = [n.cast(t, n.out_dtype) for t in n.get("tensors")]
    return n.emit("einsum", *tensors, equation=n.get("equation").replace(" ", ""))


def determinant(n: Node) -> Value | tuple[Value, ...]:
    """Determinants of square matrices; the factors that torch keeps beside are for gradients."""
    x = n.value("self" if "self" in n.args else "A")
    y = n.emit("det", x)
    if not isinstance(n.fx.meta.get("val"), tuple | list):
        return y
    if n.used(1) or n.used(2):
        n.unsupported("the factors of a matrix")
    return y, x, x


# ---- convolution ---------------------------------------------------------------------------------------------------


def batched(n: Node, x: Value, spatial: int) -> tuple[Value, bool]:
    """The image with a batch axis, and whether it was added."""
    if x.type.rank == spatial + 2:
        return x, False
    return n.reshape(x, (1, *x.type.shape)), True


def unbatched(n: Node, y: Value, added: bool) -> Value:
    """Without the batch axis that was added."""
    return n.reshape(y, y.type.shape[1:]) if added else y


def convolution(n: Node) -> Value:
    """Convolution, or its transpose."""
    weight, bias = n.value("weight"), n.optional("bias")
    spatial = weight.type.rank - 2
    x, added = batched(n, n.value("input"), spatial)
    attrs: dict[str, object] = {
        "strides": n.ints("stride", spatial) or (1,) * spatial,
        "dilations": n.ints("dilation", spatial) or (1,) * spatial,
        "groups": n.integer("groups", 1),
    }
    padding = n.get("padding", 0)
    if isinstance(padding, str):
        attrs["auto_pad"] = {"same": "SAME_UPPER", "valid": "VALID"}[padding]
    else:
        attrs["padding"] = n.ints("padding", spatial) * 2 or (0,) * (2 * spatial)
    if not (n.flag("transposed") or "conv_transpose" in str(n.fx.target)):
        return unbatched(n, n.emit("conv", x, weight, bias, **attrs), added)
    attrs["output_padding"] = n.ints("output_padding", spatial) or (0,) * spatial
    return unbatched(n, n.emit("conv_transpose", x, weight, bias, **attrs), added)


def convolution_by_time(n: Node) -> Value:
    """Convolution of (time, batch, channels) by a kernel of (time, in, out)."""
    x, kernel = n.permute(n.value("self"), (1, 2, 0)), n.permute(n.value("weight"), (2, 1, 0))
    y = n.emit("conv", x, kernel, n.value("bias"), padding=(n.integer("pad"),) * 2)
    return n.permute(y, (2, 0, 1))


# ---- normalisation -------------------------------------------------------------------------------------------------


def constant_vector(n: Node, value: Value | None, number: float, size: DimLike, dtype: str) -> Value:
    """A given vector, or one of equal numbers."""
    if value is not None:
        return value
    return n.literal(np.full(size, number), dtype) if isinstance(size, int) else n.full((size,), number, dtype)


def batch_norm(n: Node) -> Value | tuple[Value, ...]:
    """With stored statistics; without any, with those of the batch (how torch computes instance norms)."""
    x = n.value("input")
    if n.flag("training") and n.has("running_mean"):
        n.unsupported("training mode")
    single = not isinstance(n.fx.meta.get("val"), tuple | list)
    if not n.has("running_mean"):
        found = batch_statistics(n, x)
        return found[0] if single else found
    size, dtype = x.type.shape[1], x.type.dtype
    scale = constant_vector(n, n.optional("weight"), 1.0, size, dtype)
    bias = constant_vector(n, n.optional("bias"), 0.0, size, dtype)
    stats = n.value("running_mean"), n.value("running_var")
    y = n.emit("batch_norm", x, scale, bias, *stats, epsilon=float(n.number("eps", 1e-5)))
    if single:
        return y
    empty = n.full((0,), 0, dtype)
    return y, empty, empty


def batch_statistics(n: Node, x: Value) -> tuple[Value, ...]:
    """Every channel made to have mean 0 and variance 1, then scaled."""
    axes = (0, *range(2, x.type.rank))
    mean, inverse = statistics(n, x, axes, float(n.number("eps", 1e-5)), True)
    y = n.emit("multiply", n.emit("subtract", x, mean), inverse)
    column = (1, x.type.shape[1], *(1,) * (x.type.rank - 2))
    for name, op in (("weight", "multiply"), ("bias", "add")):
        if n.has(name):
            y = n.emit(op, y, n.reshape(n.value(name), column))
    return y, n.reshape(mean, (x.type.shape[1],)), n.reshape(inverse, (x.type.shape[1],))


def statistics(n: Node, x: Value, axes: tuple[int, ...], epsilon: float, keepdims: bool) -> tuple[Value, Value]:
    """Mean, and inverse of the deviation."""
    spread = n.emit("variance", x, axes=axes, keepdims=keepdims)
    inverse = n.emit("rsqrt", n.emit("add", spread, epsilon))
    return n.emit("mean", x, axes=axes, keepdims=keepdims), inverse


def layer_norm(n: Node) -> Value | tuple[Value, ...]:
    """Over the trailing axes; the native form also gives mean and inverse deviation."""
    x = n.value("input")
    axes = tuple(range(-len(n.dims("normalized_shape")), 0))
    epsilon = float(n.number("eps", 1e-5))
    scale, bias = n.optional("weight"), n.optional("bias")
    if scale is None and bias is not None:
        y = n.emit("add", n.emit("layer_norm", x, axes=axes, epsilon=epsilon), bias)
    else:
        y = n.emit("layer_norm", x, scale, bias, axes=axes, epsilon=epsilon)
    if "native" not in str(n.fx.target):
        return y
    return (y, *statistics(n, x, axes, epsilon, True)) if n.used(1) or n.used(2) else (y, y, y)


def rms_norm(n: Node) -> Value | tuple[Value, ...]:
    """Root mean square over the trailing axes."""
    x = n.value("input")
    axes = tuple(range(-len(n.dims("normalized_shape")), 0))
    default = float(np.finfo(np.float64 if x.type.dtype == "float64" else np.float32).eps)  # halves compute in float32
    epsilon = float(n.number("eps", default))
    y = n.emit("rms_norm", x, n.optional("weight"), axes=axes, epsilon=epsilon)
    if not isinstance(n.fx.meta.get("val"), tuple | list):
        return y
    mean = n.emit("mean", n.emit("multiply", x, x), axes=axes, keepdims=True)
    return y, n.emit("rsqrt", n.emit("add", mean, epsilon))


def group_norm(n: Node) -> Value | tuple[Value, ...]:
    """Per group of channels; the native form also gives mean and inverse deviation of each group."""
    x = n.value("input")
    native = "native" in str(n.fx.target)
    groups = n.integer("group" if native else "num_groups")
    epsilon = float(n.number("eps", 1e-5))
    scale = n.optional("weight")
    if scale is None and n.has("bias"):
        scale = constant_vector(n, None, 1.0, x.type.shape[1], x.type.dtype)
    y = n.emit("group_norm", x, scale, n.optional("bias"), num_groups=groups, epsilon=epsilon)
    if not native:
        return y
    if not (n.used(1) or n.used(2)):
        return y, y, y
    batch, channels, *image = x.type.shape
    grouped = n.reshape(x, (batch, groups, product((channels // groups, *image))))
    return (y, *statistics(n, grouped, (2,), epsilon, False))


def instance_norm(n: Node) -> Value:
    """Per instance and channel; with stored statistics like a batch norm."""
    x = n.value("input")
    size, dtype = x.type.shape[1], x.type.dtype
    scale = constant_vector(n, n.optional("weight"), 1.0, size, dtype)
    bias = constant_vector(n, n.optional("bias"), 0.0, size, dtype)
    epsilon = float(n.number("eps", 1e-5))
    if n.flag("use_input_stats", True):
        return n.emit("instance_norm", x, scale, bias, epsilon=epsilon)
    return n.emit("batch_norm", x, scale, bias, n.value("running_mean"), n.value("running_var"), epsilon=epsilon)


# ---- attention -----------------------------------------------------------------------------------------------------


def attention(n: Node) -> Value | tuple[Value, ...]:
    """Scaled dot-product attention of any rank; rows without any key give 0, as in torch."""
    if n.number("dropout_p", 0.0):
        n.unsupported("dropout")
    q, k, v = (n.value(name) for name in ("query", "key", "value"))
    mask = n.optional("attn_mask") or n.optional("attn_bias")
    lead = q.type.shape[:-2]
    q, k, v = (heads(n, t, lead) for t in (q, k, v))
    if mask is not None:
        if mask.type.dtype not in ("bool", q.type.dtype):
            mask = n.cast(mask, q.type.dtype)
        if len(lead) != 2:
            rank = mask.type.rank
            mask = heads(n, n.broadcast(mask, (*lead, *mask.type.shape[-2:])) if rank > 2 else mask, lead)
    scale = float(n.number("scale", 0.0))
    attrs = {"scale": scale, "causal": n.flag("is_causal"), "empty_rows": "zero"}
    y = n.emit("attention", q, k, v, mask, **attrs)
    y = n.reshape(y, (*lead, *y.type.shape[-2:]))
    return y if not isinstance(n.fx.meta.get("val"), tuple | list) else (y,)


def heads(n: Node, x: Value, lead: tuple[DimLike, ...]) -> Value:
    """A tensor as (batch, heads, rows, columns), given the leading axes of the queries."""
    shape = x.type.shape
    if len(lead) == 2:
        if len(shape) == 4 and shape[0] == 1 != lead[0]:
            return n.broadcast(x, (lead[0], *shape[1:]))
        return x
    if len(shape) == 2 and lead:
        return x
    flat = product(shape[:-2])
    return n.reshape(x, (1, flat, *shape[-2:]) if len(lead) < 2 else (flat, 1, *shape[-2:]))


def weight_norm(n: Node) -> Value | tuple[Value, Value]:
    """Directions ``v`` at lengths ``g``; the lengths of ``v`` too where they are asked for."""
    v, g, dim = n.value("v"), n.value("g"), n.integer("dim")
    others = tuple(a for a in range(v.type.rank) if dim == -1 or a != dim % v.type.rank)
    norms = n.emit("sqrt", n.emit("sum", n.emit("multiply", v, v), axes=others, keepdims=True))
    w = n.emit("multiply", v, n.emit("divide", g, norms))
    return (w, norms) if isinstance(n.fx.meta.get("val"), tuple | list) else w


NN: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **dict.fromkeys(
            (
                "convolution",
                "_convolution",
                "conv1d",
                "conv2d",
                "conv3d",
                "conv_transpose1d",
                "conv_transpose2d",
                "conv_transpose3d",
            ),
            convolution,
        ),
        **dict.fromkeys(
            ("batch_norm", "_native_batch_norm_legit_no_training", "native_batch_norm", "_native_batch_norm_legit"),
            batch_norm,
        ),
        **dict.fromkeys(("layer_norm", "native_layer_norm"), layer_norm),
        **dict.fromkeys(("group_norm", "native_group_norm"), group_norm),
        **dict.fromkeys(("rms_norm", "_fused_rms_norm"), rms_norm),
        **dict.fromkeys(("_weight_norm", "_weight_norm_interface"), weight_norm),
        **dict.fromkeys(
            (
                "scaled_dot_product_attention",
                "_scaled_dot_product_efficient_attention",
                "_scaled_dot_product_flash_attention",
                "_scaled_dot_product_flash_attention_for_cpu",
                "_scaled_dot_product_attention_math",
            ),
            attention,
        ),
        "addbmm": addbmm,
        "addmm": addmm("mat1", "mat2"),
        "addmv": addmm("mat", "vec"),
        "baddbmm": addmm("batch1", "batch2"),
        "bilinear": bilinear,
        "bmm": matmul(second="mat2"),
        "conv_tbc": convolution_by_time,
        **dict.fromkeys(("_linalg_det", "det", "linalg_det"), determinant),
        "dot": matmul(second="tensor"),
        "einsum": einsum,
        "instance_norm": instance_norm,
        "linear": linear,
        "matmul": matmul(),
        "mm": matmul(second="mat2"),
        "mv": matmul(second="vec"),
        "outer": outer,
        "_trilinear": trilinear,
    }
)
"""Neural-network operators by the name of the ATen packet."""
