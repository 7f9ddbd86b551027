"""Converters of gathers, scatters, orders, and operators whose sizes depend on data."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.values import Value
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, max_

LOWEST: Final = float("-inf")
"""Score threshold that lets every box pass."""


def gather(n: Node) -> Result:
    """Elements along one axis."""
    axis = n.axis(n.attr("axis", 0), n.rank())
    within_extent(n, axis)
    return n.emit("take", n.input(0), n.input(1), axis=axis)


def gather_elements(n: Node) -> Result:
    """One element per index."""
    axis = n.axis(n.attr("axis", 0), n.rank())
    within_extent(n, axis)
    return n.emit("gather_elements", n.input(0), n.input(1), axis=axis)


def within_extent(n: Node, axis: int) -> None:
    """Refuse constant indices (input 1) that no element of a constant extent has; others are checked at run time."""
    shape, indices = n.type().shape, n.number(1)
    extent = shape[axis] if shape else None
    if not isinstance(extent, int) or indices is None:
        return
    wrong = indices[(indices < -extent) | (indices >= extent)]
    if wrong.size:
        n.fail(f"index {wrong[0]} is out of range for axis {axis} of extent {extent}")


def gather_nd(n: Node) -> Result:
    """Slices at positions."""
    batch = n.attr("batch_dims", 0)
    rank = n.declared_rank()
    depth = None if rank is None else n.rank(1) - 1 + n.rank() - batch - rank
    return n.emit("gather_nd", n.input(0), positions(n, depth), batch_dims=batch)


def scatter_elements(n: Node) -> Result:
    """Elements written, or combined, at indices."""
    attrs = {"axis": n.attr("axis", 0), "reduction": n.attr("reduction", "none")}
    return n.emit("scatter_elements", n.input(0), n.input(1), n.input(2), **attrs)


def scatter_nd(n: Node) -> Result:
    """Slices written, or combined, at positions."""
    depth = n.rank(1) - 1 + n.rank() - n.rank(2)
    return n.emit("scatter_nd", n.input(0), positions(n, depth), n.input(2), reduction=n.attr("reduction", "none"))


def tensor_scatter(n: Node) -> Result:
    """A cache with ``update`` written from an index of each batch on along an axis, around the end if circular."""
    cache, update = n.input(0), n.input(1)
    axis = n.axis(n.attr("axis", -2), cache.type.rank)
    places = n.emit("arange", start=0, stop=update.type.shape[axis], dtype="int64")
    places = n.emit("expand_dims", places, axes=tuple(range(1, cache.type.rank - axis)))
    if n.given(2):
        begin = n.emit("astype", n.input(2), dtype="int64")
        places = n.emit(
            "add", n.emit("reshape", begin, shape=(*begin.type.shape, *(1,) * (cache.type.rank - 1))), places
        )
    if n.attr("mode", "linear") == "circular":
        extent = n.emit("dims_to_tensor", dims=(cache.type.shape[axis],))
        places = n.emit("floor_mod", places, extent)
    places = n.emit("broadcast_to", places, shape=update.type.shape)
    return n.emit("scatter_elements", cache, places, update, axis=axis)


def positions(n: Node, depth: int | None) -> Value:
    """Input 1 as positions of ``depth`` indices each, where the ranks of the other tensors tell it."""
    indices = n.input(1)
    if not indices.type.rank:
        n.fail("indices must have at least one axis")
    extent = indices.type.shape[-1]
    if isinstance(extent, int):
        return indices
    if depth is None or not 0 <= depth <= n.rank():
        n.unsupported("the number of indices in a position is known only at run time")
    return n.cast_shape(indices, (*indices.type.shape[:-1], depth))


def one_hot(n: Node) -> Result:
    """Off and on values at indices; a depth of floats is truncated."""
    indices, depth = n.input(0), n.input(1)
    if not info(indices.type.dtype).is_integer or indices.type.dtype not in ("int32", "int64"):
        indices = n.emit("astype", indices, dtype="int64")
    if not info(depth.type.dtype).is_integer:
        n.inputs[1] = n.emit("astype", depth, dtype="int64")
    (size,) = n.dims(1, low=0, names="depth", count=1)
    return n.emit("one_hot", indices, n.input(2), depth=size, axis=n.attr("axis", -1))


def nonzero(n: Node) -> Result:
    """Positions of the elements that are not 0."""
    return n.emit("nonzero", n.input(0))


def topk(n: Node) -> Result:
    """The k largest or smallest, with positions; sorted also where the node does not ask for it."""
    k: DimLike = n.attr("k", 0) if n.opset < 10 else n.dims(1, low=0, names="k", count=1)[0]
    return n.emit_tuple("topk", n.input(0), k=k, axis=n.attr("axis", -1), largest=bool(n.attr("largest", 1)))


def unique(n: Node) -> Result:
    """Distinct elements, first positions, inverse, counts."""
    axis = n.attr("axis", 0) if n.has("axis") else None
    return n.emit_tuple("unique", n.input(0), axis=axis, sorted=bool(n.attr("sorted", 1)))


def compress(n: Node) -> Result:
    """Slices whose condition holds."""
    axis = n.attr("axis", 0) if n.has("axis") else None
    return n.emit("compress", n.input(0), n.input(1), axis=axis)


def reverse_sequence(n: Node) -> Result:
    """The first elements of each sequence reversed."""
    axes = {"batch_axis": n.attr("batch_axis", 1), "time_axis": n.attr("time_axis", 0)}
    return n.emit("reverse_sequence", n.input(0), n.input(1), **axes)


def depth_to_space(n: Node) -> Result:
    """Blocks of channels to blocks of space."""
    return n.emit("depth_to_space", n.input(0), size=n.attr("blocksize", 1), mode=n.attr("mode", "DCR"))


def space_to_depth(n: Node) -> Result:
    """Blocks of space to blocks of channels."""
    return n.emit("space_to_depth", n.input(0), size=n.attr("blocksize", 1), mode=n.attr("mode", "DCR"))


def non_max_suppression(n: Node) -> Result:
    """Boxes that no better box covers; left-out inputs mean 0."""
    most = n.places(2, "boxes", count=1)[0] if n.given(2) else 0
    boxes = n.input(0)
    limits = [
        n.scalar_input(i) if n.given(i) else n.scalar(value, boxes.type.dtype) for i, value in ((3, 0.0), (4, LOWEST))
    ]
    attrs = {"max_boxes": max_(0, most), "center": bool(n.attr("center_point_box", 0))}
    return n.emit("non_max_suppression", boxes, n.input(1), *limits, **attrs)


DATA: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "Compress": compress,
        "DepthToSpace": depth_to_space,
        "Gather": gather,
        "GatherElements": gather_elements,
        "GatherND": gather_nd,
        "NonMaxSuppression": non_max_suppression,
        "NonZero": nonzero,
        "OneHot": one_hot,
        "ReverseSequence": reverse_sequence,
        "Scatter": scatter_elements,
        "ScatterElements": scatter_elements,
        "ScatterND": scatter_nd,
        "SpaceToDepth": space_to_depth,
        "TensorScatter": tensor_scatter,
        "TopK": topk,
        "Unique": unique,
    }
)
"""Gathers, scatters, orders and data-dependent sizes by ONNX name."""
