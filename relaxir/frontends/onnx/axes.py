"""Axes that are known only at run time: they become flags, and the flags choose extents by arithmetic.

An operator over a run-time set of axes is the same operator over fixed axes of a reshaped tensor. For a reduction
each axis ``d`` is seen as ``(d, 1)`` where it stays and ``(1, d)`` where it goes, and the second of each pair is
reduced.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from relaxir.frontends.onnx.node import Node
from relaxir.frontends.onnx.values import Value
from relaxir.ops.indexing import choose, is_zero
from relaxir.sym import DimLike, max_, min_, product, sub


def axis_flags(n: Node, index: int, rank: int) -> Value:
    """``i64[rank]``: 1 for each axis that input ``index`` names, else 0; axes that do not exist fail the call."""
    axes = n.input(index)
    if axes.type.rank != 1:
        axes = n.emit("reshape", axes, shape=(product(axes.type.shape),))
    row = n.emit("expand_dims", axes, axes=(0,))
    places = np.arange(rank).reshape(rank, 1)
    hits = [n.emit("equal", row, n.literal(p, axes.type.dtype)) for p in (places, places - rank)]
    flags = n.emit("astype", n.emit("any", n.emit("logical_or", *hits), axes=(1,)), dtype="int64")
    named = n.read(n.emit("sum", flags, keepdims=True), 0, "axes", rank)
    n.cast_shape(axes, named)
    return flags


def split_axes(n: Node, x: Value, flags: Value) -> Value:
    """Each axis as a pair: the flagged ones ``(1, d)``, the others ``(d, 1)``."""
    known = n.read(Value.of(flags.materialize(n.bb)), 0, "on", 1)  # the flags themselves stay data
    pairs = [(choose(f, 1, d), choose(f, d, 1)) for f, d in zip(known, x.type.shape, strict=True)]
    return n.emit("reshape", x, shape=tuple(d for pair in pairs for d in pair))


def kept_extents(n: Node, shape: Sequence[DimLike], flags: Value, count: int) -> tuple[DimLike, ...]:
    """Extents of the ``count`` axes that are not flagged, in order."""
    stay = n.emit("subtract", 1, flags)
    # a flagged axis writes behind the others
    places = n.emit(
        "where", n.emit("equal", flags, 1), n.scalar(count, "int64"), n.emit("cumsum", stay, axis=0, exclusive=True)
    )
    room = n.literal(np.zeros(count + 1), "int64")
    moved = n.emit("scatter_elements", room, places, n.emit("dims_to_tensor", dims=tuple(shape)), axis=0)
    return n.read(n.emit("strided_slice", moved, axes=(0,), begin=(0,), size=(count,)), 0, "kept")


def widened_extents(n: Node, shape: Sequence[DimLike], flags: Value) -> tuple[DimLike, ...]:
    """Extents with a 1 at each flagged place of the result."""
    rank = int(flags.type.shape[0])  # the number of axes of the result is known
    before = n.emit("cumsum", flags, axis=0, exclusive=True)
    sources = n.emit("subtract", n.literal(np.arange(rank), "int64"), before)
    places = n.emit(
        "where", n.emit("equal", flags, 1), n.scalar(len(shape), "int64"), n.emit("minimum", sources, len(shape))
    )
    return n.read(n.emit("take", n.emit("dims_to_tensor", dims=(*shape, 1)), places, axis=0), 0, "wide")


def spread(n: Node, defaults: Value, values: Value, axes: Value | None) -> Value:
    """One element per axis: those of ``values`` at the places that ``axes`` names, the defaults elsewhere.

    Without axes the values are for the first ones. An axis that does not exist fails the call.
    """
    wide = [
        v if v.type.dtype == "int64" else n.emit("astype", v, dtype="int64") for v in (values, axes) if v is not None
    ]
    if axes is None:
        wide.append(n.emit("arange", start=0, stop=values.type.shape[0], dtype="int64"))
    data, places = wide
    return n.emit("scatter_elements", defaults, places, data, axis=0)


def around(axis: DimLike, shape: Sequence[DimLike]) -> tuple[DimLike, DimLike, DimLike]:
    """Elements before an axis, along it, and after it: a tensor of any rank as one of rank 3."""
    before = product(choose(min_(1, max_(0, sub(axis, a))), d, 1) for a, d in enumerate(shape))
    along = product(choose(is_zero(sub(axis, a)), d, 1) for a, d in enumerate(shape))
    after = product(choose(min_(1, max_(0, sub(a, axis))), d, 1) for a, d in enumerate(shape))
    return before, along, after
