"""Axes that are known only at run time: they become flags, and the flags choose extents by arithmetic.

An operator over a run-time set of axes is the same operator over fixed axes of a reshaped tensor. For a reduction
each axis ``d`` is seen as ``(d, 1)`` where it stays and ``(1, d)`` where it goes, and the second of each pair is
reduced.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import numpy as np

from relaxir.frontends.onnx.node import Node
from relaxir.frontends.onnx.values import Value
from relaxir.ops.indexing import choose, is_zero
from relaxir.sym import DimLike, add, max_, min_, mul, product, sub


def total(items: Sequence[DimLike]) -> DimLike:
    """Sum of dims."""
    return reduce(add, items, 0)


def axis_flags(n: Node, index: int, rank: int) -> tuple[DimLike, ...]:
    """1 for each of ``rank`` axes that input ``index`` names, else 0; axes that do not exist fail the call."""
    axes = n.input(index)
    if axes.type.rank != 1:
        axes = n.emit("reshape", axes, shape=(product(axes.type.shape),))
    row = n.emit("expand_dims", axes, axes=(0,))
    places = np.arange(rank).reshape(rank, 1)
    hits = [n.emit("equal", row, n.literal(p, axes.type.dtype)) for p in (places, places - rank)]
    found = n.emit("any", n.emit("logical_or", *hits), axes=(1,))
    flags = n.read(n.emit("astype", found, dtype="int64"), 0, "on", 1)
    n.cast_shape(axes, (total(flags),))
    return flags


def split_axes(n: Node, x: Value, flags: Sequence[DimLike]) -> Value:
    """Each axis as a pair: the flagged ones ``(1, d)``, the others ``(d, 1)``."""
    pairs = [(choose(f, 1, d), choose(f, d, 1)) for f, d in zip(flags, x.type.shape, strict=True)]
    return n.emit("reshape", x, shape=tuple(d for pair in pairs for d in pair))


def kept_extents(shape: Sequence[DimLike], flags: Sequence[DimLike], count: int) -> tuple[DimLike, ...]:
    """Extents of the ``count`` axes that are not flagged, in order."""
    extents: tuple[DimLike, ...] = ()
    for place in range(count):
        terms = []
        for axis, (d, flag) in enumerate(zip(shape, flags, strict=True)):
            here = is_zero(sub(axis - place, total(flags[:axis])))
            terms.append(mul(mul(sub(1, flag), here), d))
        extents += (total(terms),)
    return extents


def widened_extents(shape: Sequence[DimLike], flags: Sequence[DimLike]) -> tuple[DimLike, ...]:
    """Extents with a 1 at each flagged place of the result."""
    extents: tuple[DimLike, ...] = ()
    for place, flag in enumerate(flags):
        source = sub(place, total(flags[:place]))
        old = total([mul(is_zero(sub(source, axis)), d) for axis, d in enumerate(shape)])
        extents += (choose(flag, 1, old),)
    return extents


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
