"""Converters of pooling, and the attributes shared by everything with sliding windows."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from relaxir.frontends.onnx.convert_math import unary
from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.values import Value
from relaxir.sym import DimLike


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


def kernel_of(n: Node, index: int) -> Value:
    """The weight at an input, whose spatial extents must be those that ``kernel_shape`` states, if it is given."""
    weight, stated = n.input(index), n.ints("kernel_shape")
    if not stated:
        return weight
    if len(stated) != weight.type.rank - 2:
        n.fail(f"`kernel_shape` has {len(stated)} axes, the weight {weight.type.rank - 2} besides its channels")
    for axis, (size, extent) in enumerate(zip(stated, weight.type.shape[2:], strict=True)):
        if isinstance(extent, int) and extent != size:
            n.fail(f"`kernel_shape` states {size} along spatial axis {axis}, the weight has {extent}")
    shape = (*weight.type.shape[:2], *stated)
    return weight if shape == weight.type.shape else n.cast_shape(weight, shape)


def pool_attrs(n: Node) -> dict[str, object]:
    """Attributes common to poolings."""
    kernel = n.ints("kernel_shape") or ()
    if not kernel:
        n.fail("attribute `kernel_shape` is missing")
    return {**window(n, kernel), "kernel": kernel, "ceil_mode": bool(n.attr("ceil_mode", 0))}


def max_pool(n: Node) -> Result:
    """Largest element of each window, optionally with positions."""
    attrs = pool_attrs(n)
    if len(n.proto.output) < 2 or not n.proto.output[1]:
        return n.emit("max_pool", n.input(0), **attrs)
    return n.emit_tuple("max_pool", n.input(0), return_indices=True, storage_order=n.attr("storage_order", 0), **attrs)


def average_pool(n: Node) -> Result:
    """Mean of each window."""
    return n.emit("average_pool", n.input(0), count_include_pad=bool(n.attr("count_include_pad", 0)), **pool_attrs(n))


def lp_pool(n: Node) -> Result:
    """p-norm of each window."""
    return n.emit("lp_pool", n.input(0), p=norm_of(n), **pool_attrs(n))


def global_lp_pool(n: Node) -> Result:
    """p-norm over all spatial axes."""
    return n.emit("global_lp_pool", n.input(0), p=norm_of(n))


def norm_of(n: Node) -> int:
    """The exponent of a norm; opset 1 writes it as a float."""
    p = n.attr("p", 2) if n.opset >= 2 else n.attr("p", 2.0)
    if p != int(p):
        n.unsupported(f"a norm of exponent {p}")
    return int(p)


def max_unpool(n: Node) -> Result:
    """Elements back at the places that max pooling took them from."""
    kernel = n.ints("kernel_shape") or ()
    geometry = {k: v for k, v in window(n, kernel).items() if k in ("strides", "padding")}
    shape: tuple[DimLike, ...] = n.dims(2, low=0, names="u", count=n.rank()) if n.given(2) else ()
    return n.emit("max_unpool", n.input(0), n.input(1), kernel=kernel, output_shape=shape, **geometry)


POOL: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "AveragePool": average_pool,
        "GlobalAveragePool": unary("global_average_pool"),
        "GlobalLpPool": global_lp_pool,
        "GlobalMaxPool": unary("global_max_pool"),
        "LpPool": lp_pool,
        "MaxPool": max_pool,
        "MaxUnpool": max_unpool,
    }
)
"""Pooling by ONNX name."""
