"""Converters of gathers, scatters and indexing by tensors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial, reduce
from types import MappingProxyType
from typing import Final

import torch
from torch.fx import Node as FxNode

from relaxir.frontends.torch.elementwise import column
from relaxir.frontends.torch.node import Arg, Converter, Node
from relaxir.frontends.torch.reduction import p_norm
from relaxir.frontends.torch.shape import replaced, scattered
from relaxir.frontends.torch.tensors import extremes
from relaxir.frontends.values import Value
from relaxir.ops.common import compute_dtype
from relaxir.ops.indexing import expand_target
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, product, sub


def embedding(n: Node) -> Value:
    """Rows of a table."""
    return n.emit("take", n.value("weight"), n.indices(n.value("indices")), axis=0)


def embedding_renorm(n: Node) -> Value:
    """The table with those of the given rows shortened that are longer than a norm allows."""
    weight, most = n.value(), float(n.number("max_norm"))
    rows, dtype = weight.type.shape[0], weight.type.dtype
    norm = p_norm(n, weight, float(n.number("norm_type", 2)), (1,), keepdims=True)
    factor = n.emit("divide", n.scalar(most, dtype), n.emit("add", norm, n.scalar(1e-7, dtype)))
    given = n.indices(n.value("indices"))
    places = n.reshape(given, (product(given.type.shape), 1))
    marks = n.full((places.type.shape[0],), True, "bool")
    named = n.emit("scatter_nd", n.full((rows,), False, "bool"), places, marks)
    long = n.emit("logical_and", n.reshape(named, (rows, 1)), n.emit("greater", norm, n.scalar(most, dtype)))
    return n.emit("where", long, n.emit("multiply", weight, factor), weight)


def put(n: Node) -> Value:
    """Elements of the flattened tensor replaced, or added to."""
    x, index = n.value(), n.indices(n.value("index"))
    size, count = product(x.type.shape), product(index.type.shape)
    source = n.reshape(n.cast(n.value("source"), x.type.dtype), (count,))
    how = "add" if n.flag("accumulate") else "none"
    flat = scattered(n, "scatter_nd", n.reshape(x, (size,)), n.reshape(index, (count, 1)), source, how)
    return n.reshape(flat, x.type.shape)


def fill_diagonal(n: Node) -> Value:
    """One value where all indices are equal; with ``wrap`` tall matrices begin again behind a row that stays."""
    x, shape = n.value(), n.shape
    if n.flag("wrap") and x.type.rank == 2 and shape[0] != shape[1]:
        n.unsupported("wrap")
    steps = [n.emit("arange", start=0, stop=d, step=1, dtype="int64") for d in shape]
    first, *others = (
        n.reshape(s, (*(1,) * a, d, *(1,) * (x.type.rank - a - 1)))
        for a, (s, d) in enumerate(zip(steps, shape, strict=True))
    )
    mask = reduce(partial(n.emit, "logical_and"), (n.emit("equal", first, o) for o in others))
    return n.emit("where", mask, n.operand(n.get("fill_value"), x.type.dtype), x)


def index_select(n: Node) -> Value:
    """Slices along an axis."""
    index = n.indices(n.value("index"))
    return n.emit("take", n.value(), n.reshape(index, (1,)) if not index.type.rank else index, axis=n.axis())


def gather(n: Node) -> Value:
    """One element per index."""
    x, index = n.value(), n.indices(n.value("index"))
    if not x.type.rank or not index.type.rank:
        n.unsupported("a scalar")
    return n.emit("gather_elements", x, index, axis=n.axis())


REDUCTIONS: Final = MappingProxyType(
    {"sum": "add", "prod": "mul", "amax": "max", "amin": "min", "add": "add", "multiply": "mul"}
)
"""Names of scatter reductions."""


def scatter(kind: str = "") -> Converter:
    """Elements written at indices, or combined with what is there."""

    def convert(n: Node) -> Value:
        x, index = n.value(), n.indices(n.value("index"))
        reduction = REDUCTIONS.get(n.get("reduce", kind), n.get("reduce", kind)) or "none"
        src = n.operand(n.get("src", n.get("value")), x.type.dtype)
        if not src.type.rank:
            src = n.broadcast(src, index.type.shape)
        elif src.type.shape != index.type.shape:  # only the front of the source is meant
            rank = index.type.rank
            src = n.emit("strided_slice", src, axes=tuple(range(rank)), begin=(0,) * rank, size=index.type.shape)
        return combined(n, x, index, src, reduction)

    return convert


def combined(n: Node, x: Value, index: Value, src: Value, reduction: str) -> Value:
    """Elements of ``src`` combined with those of ``x`` at indices, or among themselves without ``include_self``."""
    axis, dtype = n.axis(), x.type.dtype
    wide = compute_dtype(dtype)
    if reduction == "mean" and wide != dtype:  # its counts are running sums, too
        return n.cast(combined(n, n.cast(x, wide), index, n.cast(src, wide), reduction), dtype)
    alone = "include_self" in n.args and not n.flag("include_self", True)
    if alone:
        neutral = n.full(index.type.shape, neutral_element(reduction, dtype), dtype)
        x = n.emit("scatter_elements", x, index, neutral, axis=axis, reduction="none")
    if reduction != "mean":
        return scattered(n, "scatter_elements", x, index, src, reduction, axis=axis)
    total = n.emit("scatter_elements", x, index, src, axis=axis, reduction="add")
    ones = n.full(index.type.shape, 1, dtype)
    counts = n.full(x.type.shape, 0 if alone else 1, dtype)
    counts = n.emit("scatter_elements", counts, index, ones, axis=axis, reduction="add")
    counts = n.emit("maximum", counts, 1)
    return n.emit("divide" if info(dtype).is_float else "floor_divide", total, counts)


def neutral_element(reduction: str, dtype: str) -> float:
    """What combines with any number to that number."""
    least, most = extremes(dtype)
    return {"max": least, "min": most, "mul": 1}.get(reduction, 0)


def index_reduce(n: Node) -> Value:
    """Slices combined at indices of an axis."""
    x, axis, source = n.value(), n.axis(), n.value("source")
    index = n.indices(n.value("index"))
    shape = tuple(index.type.shape[0] if a == axis else 1 for a in range(x.type.rank))
    places = n.broadcast(n.reshape(index, shape), source.type.shape)
    return combined(n, x, places, n.cast(source, x.type.dtype), REDUCTIONS.get(n.get("reduce"), n.get("reduce")))


def nonzero(n: Node) -> Value:
    """Positions, one row each."""
    x = n.value()
    if not x.type.rank:
        n.unsupported("a scalar")
    return n.permute(n.emit("nonzero", x), (1, 0))


def positions(n: Node, given: Sequence[Value | None]) -> list[tuple[int, Value]]:
    """Indexed axes with their indices; a mask is the positions where it holds."""
    found: list[tuple[int, Value]] = []
    axis = 0
    for index in given:
        if index is None:
            axis += 1
        elif index.type.dtype in ("bool", "uint8"):
            mask = n.truth(index)
            shape = n.value().type.shape[axis : axis + mask.type.rank]
            rows = n.emit("nonzero", n.broadcast(mask, shape))
            found.extend((axis + i, column(n, rows, i)) for i in range(mask.type.rank))
            axis += mask.type.rank
        else:
            found.append((axis, n.indices(index)))
            axis += 1
    return found


def joined(n: Node, indices: Sequence[Value]) -> tuple[Value, tuple[DimLike, ...]]:
    """Indices broadcast together, one position in the last axis; and their common shape."""
    shape: tuple[DimLike, ...] = ()
    for index in indices:
        shape = expand_target(index.type.shape, shape, n.facts)
    wide = [n.cast(n.broadcast(i, shape), "int64") for i in indices]
    return n.emit("stack", *wide, axis=len(shape)), shape


def indexed_order(rank: int, axes: Sequence[int]) -> tuple[int, ...]:
    """Indexed axes first, then the others."""
    return (*axes, *(a for a in range(rank) if a not in axes))


def first_place(axes: Sequence[int]) -> int:
    """Where the indices' axes stand in the result: at the first indexed axis if all are neighbours, else in front."""
    return axes[0] if list(axes) == list(range(axes[0], axes[0] + len(axes))) else 0


def index(n: Node) -> Value:
    """``self[i, :, j]`` with tensors."""
    x = n.value()
    found = positions(n, n.get("indices"))
    if len(found) == 1:
        return n.emit("take", x, found[0][1], axis=found[0][0])
    axes = [axis for axis, _ in found]
    places, shape = joined(n, [i for _, i in found])
    picked = n.emit("gather_nd", n.permute(x, indexed_order(x.type.rank, axes)), places)
    return n.permute(picked, into_place(picked.type.rank, len(shape), first_place(axes)))


def into_place(rank: int, count: int, first: int) -> tuple[int, ...]:
    """Axes that move the leading ``count`` ones to place ``first``."""
    return (*range(count, count + first), *range(count), *range(count + first, rank))


def index_put(n: Node) -> Value:
    """``self`` with ``self[i, :, j]`` replaced, or added to."""
    x, values = n.value(), n.cast(n.value("values"), n.value().type.dtype)
    given = n.get("indices")
    masks = [i for i in given if i is not None and i.type.dtype == "bool"]
    if len(masks) == 1 == len(given) and product(values.type.shape) == 1 and not n.flag("accumulate"):
        lead = x.type.shape[: masks[0].type.rank]  # a mask is as large as what it masks
        mask = n.reshape(n.broadcast(masks[0], lead), (*lead, *(1,) * (x.type.rank - masks[0].type.rank)))
        return n.emit("where", mask, n.reshape(values, ()), x)
    found = positions(n, given)
    axes = [axis for axis, _ in found]
    places, shape = joined(n, [i for _, i in found])
    order = indexed_order(x.type.rank, axes)
    moved = n.permute(x, order)
    rest = moved.type.shape[len(axes) :]
    first = first_place(axes)
    written = n.broadcast(values, (*rest[:first], *shape, *rest[first:]))
    rank = written.type.rank
    back = into_place(rank, len(shape), first)
    updates = n.permute(written, tuple(back.index(a) for a in range(rank)))
    reduction = "add" if n.flag("accumulate") else "none"
    result = scattered(n, "scatter_nd", moved, places, updates, reduction)
    return n.permute(result, tuple(order.index(a) for a in range(x.type.rank)))


def index_write(reduction: str) -> Converter:
    """Slices at indices of an axis replaced, or added to."""

    def convert(n: Node) -> Value:
        x, axis = n.value(), n.axis()
        places = n.indices(n.value("index"))
        src = n.operand(n.get("source", n.get("value")), x.type.dtype)
        alpha = n.get("alpha", 1)
        if alpha != 1:
            src = n.emit("multiply", src, n.operand(alpha, x.type.dtype))
        shape = (*x.type.shape[:axis], places.type.shape[0], *x.type.shape[axis + 1 :])
        return replaced(n, x, axis, places, n.broadcast(src, shape), reduction)

    return convert


def masked_select(n: Node) -> Value:
    """Elements where the mask holds, as a vector."""
    x, mask = n.value(), n.truth(n.value("mask"))
    shape = expand_target(x.type.shape, mask.type.shape, n.facts)
    flat = [n.reshape(n.broadcast(v, shape), (product(shape),)) for v in (x, mask)]
    return n.emit("compress", flat[0], flat[1], axis=0)


def take(n: Node) -> Value:
    """Elements of the flattened tensor."""
    x = n.value()
    return n.emit("take", n.reshape(x, (product(x.type.shape),)), n.indices(n.value("index")), axis=0)


def take_along(n: Node) -> Value:
    """One element per index, other axes broadcast."""
    x, places = n.value(), n.indices(n.value("indices"))
    if not n.has("dim"):
        flat = [n.reshape(v, (product(v.type.shape),)) for v in (x, places)]
        return n.emit("gather_elements", *flat, axis=0)
    axis = n.axis()
    alone = [tuple(1 if a == axis else d for a, d in enumerate(v.type.shape)) for v in (x, places)]
    shape = n.ctx().broadcast(alone)
    wide = [n.broadcast(v, (*shape[:axis], v.type.shape[axis], *shape[axis + 1 :])) for v in (x, places)]
    return n.emit("gather_elements", *wide, axis=axis)


def masked_scatter(n: Node) -> Value:
    """Elements of a source, in order, where the mask holds."""
    x, mask = n.value(), n.truth(n.value("mask"))
    shape = expand_target(x.type.shape, mask.type.shape, n.facts)
    count = product(shape)
    x, mask = n.broadcast(x, shape), n.broadcast(mask, shape)
    flat = n.cast(n.reshape(mask, (count,)), "int64")
    place = n.emit("maximum", n.emit("subtract", n.emit("cumsum", flat, axis=0), 1), 0)
    source = n.value("source")
    # one element more, so that an empty source serves an empty mask
    line = n.emit("concat", n.reshape(source, (product(source.type.shape),)), n.full((1,), 0, x.type.dtype), axis=0)
    total = n.emit("sum", flat, axes=None)
    n.read(n.cast(n.emit("less_equal", total, n.operand(product(source.type.shape), "int64")), "int64"), 1, "enough", 1)
    return n.emit("where", mask, n.reshape(n.emit("take", line, place, axis=0), shape), x)


def as_strided(n: Node) -> Value:
    """Elements of a compact tensor at the places that strides and an offset give."""
    x, sizes, strides = n.value(), n.dims("size"), n.dims("stride")
    source = n.fx.args[0]
    meta = source.meta.get("val") if isinstance(source, FxNode) else None
    if not isinstance(meta, torch.Tensor) or not meta.is_contiguous() or meta.storage_offset() != 0:
        n.unsupported("strides over a tensor that is a view of another")
    place = n.operand(n.get("storage_offset", 0), "int64")
    for axis, (size, stride) in enumerate(zip(sizes, strides, strict=True)):
        steps = n.emit("arange", start=0, stop=size, step=1, dtype="int64")
        steps = n.emit("multiply", steps, n.operand(stride, "int64"))
        place = n.emit("add", place, n.reshape(steps, (size, *(1,) * (len(sizes) - 1 - axis))))
    return n.emit("take", n.reshape(x, (product(x.type.shape),)), place, axis=0)


def one_hot(n: Node) -> Value:
    """1 at the index, 0 elsewhere."""
    depth: Arg = n.get("num_classes", -1)
    if depth == -1:
        n.unsupported("a number of classes that depends on the data")
    values = n.emit("arange", start=0, stop=2, step=1, dtype="int64")
    return n.emit("one_hot", n.indices(n.value()), values, depth=depth, axis=-1)


def embedding_bag(n: Node) -> Value | tuple[Value | None, ...]:
    """Sums, means or maxima of rows of a table, one bag of rows for each offset."""
    weight, rows = n.value("weight"), n.indices(n.value("indices"))
    offsets = n.cast(n.value("offsets"), "int64")
    mode = n.integer("mode")
    # what comes after the last offset, if that is an end, makes one bag more, which is left out at last
    count, bags, width = rows.type.shape[0], offsets.type.shape[0], weight.type.shape[1]
    dtype = compute_dtype(weight.type.dtype)
    place = n.emit("arange", start=0, stop=count, step=1, dtype="int64")
    bag = n.emit("subtract", n.emit("searchsorted", offsets, place, right=True), 1)
    where = n.reshape(bag, (count, 1))
    taken = n.cast(n.emit("take", weight, rows, axis=0), dtype)
    share = n.full((count,), 1, dtype)
    skipped = n.integer("padding_idx", -1)
    if skipped >= 0:
        share = n.cast(n.emit("not_equal", rows, skipped), dtype)
    if n.has("per_sample_weights"):
        taken = n.emit("multiply", taken, n.cast(n.reshape(n.value("per_sample_weights"), (count, 1)), dtype))
    sizes = n.emit("scatter_nd", n.full((bags,), 0, dtype), where, share, reduction="add")
    column = n.reshape(share, (count, 1))
    if mode == 2:
        low = n.emit("where", n.truth(column), taken, n.scalar(float("-inf"), dtype))
        most = n.emit("scatter_nd", n.full((bags, width), float("-inf"), dtype), where, low, reduction="max")
        filled = n.reshape(n.truth(sizes), (bags, 1))
        result = n.emit("where", filled, most, n.scalar(0, dtype))
    else:
        kept = n.emit("multiply", taken, column) if skipped >= 0 else taken
        result = n.emit("scatter_nd", n.full((bags, width), 0, dtype), where, kept, reduction="add")
        if mode == 1:
            result = n.emit("divide", result, n.reshape(n.emit("maximum", sizes, 1), (bags, 1)))
    if n.flag("include_last_offset"):
        front = {"axes": (0,), "begin": (0,), "size": (sub(bags, 1),)}
        result, sizes = n.emit("strided_slice", result, **front), n.emit("strided_slice", sizes, **front)
    return n.cast(result, weight.type.dtype), bag, n.cast(sizes, "int64"), None


INDEX: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **dict.fromkeys(("embedding_bag", "_embedding_bag", "_embedding_bag_forward_only"), embedding_bag),
        "as_strided": as_strided,
        "embedding": embedding,
        "embedding_renorm": embedding_renorm,
        "fill_diagonal_": fill_diagonal,
        "gather": gather,
        "index": index,
        "index_add": index_write("add"),
        "index_copy": index_write("none"),
        "index_fill": index_write("none"),
        "index_put": index_put,
        "index_reduce": index_reduce,
        "index_select": index_select,
        "_unsafe_index": index,
        "_unsafe_index_put": index_put,
        "masked_scatter": masked_scatter,
        "masked_select": masked_select,
        "nonzero": nonzero,
        "one_hot": one_hot,
        "put": put,
        "scatter": scatter(),
        "scatter_add": scatter("add"),
        "scatter_reduce": scatter(),
        "take": take,
        "take_along_dim": take_along,
    }
)
"""Gathers and scatters by the name of the ATen packet."""
