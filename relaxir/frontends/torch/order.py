"""Converters of ranks, running extremes and distinct elements."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.torch.shape import sliced
from relaxir.frontends.torch.tensors import extremes
from relaxir.frontends.values import Value
from relaxir.ops.common import compute_dtype
from relaxir.support.dtypes import info
from relaxir.sym import floordiv, product, sub

# ---- ranks ---------------------------------------------------------------------------------------------------------


def ranked(n: Node, x: Value, axis: int, place: Value, keep: bool) -> tuple[Value, Value]:
    """Elements of a rank along an axis, NaN being last, and their positions; ``place`` broadcasts to the slices."""
    shape = (*x.type.shape[:axis], 1, *x.type.shape[axis + 1 :])
    order = n.emit("argsort", x, axis=axis, descending=False)
    position = n.emit("gather_elements", order, n.broadcast(place, shape), axis=axis)
    value = n.emit("gather_elements", x, position, axis=axis)
    return (value, position) if keep else (dropped(n, value, axis), dropped(n, position, axis))


def dropped(n: Node, x: Value, axis: int) -> Value:
    """Without an axis of extent 1."""
    return n.emit("squeeze", x, axes=(axis,))


def kthvalue(n: Node) -> tuple[Value, ...]:
    """The k-th smallest element."""
    place = n.operand(sub(n.get("k"), 1), "int64")
    return ranked(n, n.value(), n.axis(default=-1), place, n.flag("keepdim"))


def median(skips: bool) -> Converter:
    """The lower one of the middle elements; NaN where there is one, or among the others (``skips``)."""

    def convert(n: Node) -> Value | tuple[Value, ...]:
        x, along = n.value(), n.has("dim")
        line = x if along else n.reshape(x, (product(x.type.shape),))
        axis, keep = n.axis() if along else 0, along and n.flag("keepdim")
        place = n.operand(floordiv(sub(line.type.shape[axis], 1), 2), "int64")
        if info(x.type.dtype).is_float:
            missing = n.emit("isnan", line)
            count = n.emit("sum", n.cast(missing, "int64"), axes=(axis,), keepdims=True)
            last = n.operand(sub(line.type.shape[axis], 1), "int64")
            if skips:
                place = n.emit("floor_divide", n.emit("maximum", n.emit("subtract", last, count), 0), 2)
            else:
                place = n.emit("where", n.truth(count), last, place)
        value, position = ranked(n, line, axis, place, keep)
        return (value, position) if along else value

    return convert


def searchsorted(n: Node) -> Value:
    """Where elements would be put into sorted rows."""
    edges, values = n.value("sorted_sequence"), n.args["self"]
    if n.has("sorter"):
        edges = n.emit("gather_elements", edges, n.value("sorter"), axis=edges.type.rank - 1)
    right = n.flag("right") or n.get("side") == "right"
    values = n.operand(values, edges.type.dtype)
    if edges.type.rank == 1:
        return n.cast(n.emit("searchsorted", edges, values, right=right), n.out_dtype)
    rows, points = n.emit("expand_dims", edges, axes=(-2,)), n.emit("expand_dims", values, axes=(-1,))
    before = n.emit("less_equal" if right else "less", rows, points)
    return n.emit("sum", n.cast(before, n.out_dtype), axes=(-1,))


# ---- running extremes ----------------------------------------------------------------------------------------------


def running_extreme(name: str) -> Converter:
    """Largest or smallest element so far, and the last place of it; a NaN stays. A loop over the axis."""

    def convert(n: Node) -> tuple[Value, ...]:
        x = n.value()
        if not x.type.rank:
            return x, n.scalar(0, "int64")
        dtype = x.type.dtype
        axis, rows = n.axis(), rows_of(n, n.cast(x, "uint8") if dtype == "bool" else x, n.axis())
        shape = rows.type.shape[1:]
        first = n.full(shape, extremes(dtype)[name == "less_equal"], rows.type.dtype)
        step = partial(extreme_step, n, rows, name)
        begin = [first, n.full(shape, 0, "int64")]
        _, _, values, places = n.host.run_loop(step, begin, rows.type.shape[0], None, (rows,))
        return n.cast(back_in_place(n, values, axis), dtype), back_in_place(n, places, axis)

    return convert


def extreme_step(
    n: Node, rows: Value, name: str, i: Value, states: tuple[Value, ...]
) -> tuple[Value, Sequence[Value], Sequence[Value]]:
    """One step of `running_extreme`; see `LoopBody`."""
    best, place = states
    row = n.emit("take", rows, i, axis=0)
    taken = n.emit(name, row, best)
    if info(row.type.dtype).is_float:
        stays = n.emit("logical_and", taken, n.emit("logical_not", n.emit("isnan", best)))
        taken = n.emit("logical_or", stays, n.emit("isnan", row))
    found = n.emit("where", taken, row, best), n.emit("where", taken, n.cast(i, "int64"), place)
    return n.scalar(True, "bool"), found, found


def running_logsumexp(n: Node) -> Value:
    """Logarithm of the sum of exponentials so far. A loop over the axis, at least in float32."""
    dtype = n.out_dtype
    x = n.cast(n.value(), compute_dtype(dtype))
    if not x.type.rank:
        return n.cast(x, dtype)
    axis, rows = n.axis(), rows_of(n, x, n.axis())

    def step(i: Value, states: tuple[Value, ...]) -> tuple[Value, Sequence[Value], Sequence[Value]]:
        row = n.emit("take", rows, i, axis=0)
        total = n.emit("logsumexp", n.emit("stack", states[0], row, axis=0), axes=(0,))
        return n.scalar(True, "bool"), (total,), (total,)

    begin = [n.full(rows.type.shape[1:], -np.inf, x.type.dtype)]
    _, sums = n.host.run_loop(step, begin, rows.type.shape[0], None, (rows,))
    return n.cast(back_in_place(n, sums, axis), dtype)


def rows_of(n: Node, x: Value, axis: int) -> Value:
    """The tensor with an axis moved to the front."""
    return n.permute(x, (axis, *(a for a in range(x.type.rank) if a != axis)))


def back_in_place(n: Node, rows: Value, axis: int) -> Value:
    """The tensor with its first axis moved to where it was."""
    return n.permute(rows, (*range(1, axis + 1), 0, *range(axis + 1, rows.type.rank)))


# ---- distinct elements ----------------------------------------------------------------------------------------------


def unique(n: Node) -> tuple[Value, ...]:
    """Distinct elements or slices, where each one is among them, and how often they occur."""
    x = n.value()
    axis = n.axis() if "dim" in n.args else None
    y, _, inverse, counts = n.emit_tuple("unique", x, axis=axis)
    return y, inverse if axis is not None else n.reshape(inverse, x.type.shape), counts


def unique_consecutive(n: Node) -> tuple[Value, ...]:
    """Elements or slices that differ from the one before; results as of `unique`."""
    x = n.value()
    line = x if n.has("dim") else n.reshape(x, (product(x.type.shape),))
    axis = n.axis() if n.has("dim") else 0
    extent = line.type.shape[axis]
    later = sliced(n, line, axis, (1, extent, 1))
    earlier = sliced(n, line, axis, (0, later.type.shape[axis], 1))
    others = tuple(a for a in range(line.type.rank) if a != axis)
    differs = n.emit("not_equal", later, earlier)
    differs = n.emit("any", differs, axes=others) if others else differs
    start = n.full((sub(extent, later.type.shape[axis]),), True, "bool")
    first = n.emit("concat", start, differs, axis=0)
    group = n.emit("subtract", n.emit("cumsum", n.cast(first, "int64"), axis=0), 1)
    y = n.emit("compress", line, first, axis=axis)
    ones, bins = n.full((extent,), 1, "int64"), n.full((y.type.shape[axis],), 0, "int64")
    counts = n.emit("scatter_nd", bins, n.reshape(group, (extent, 1)), ones, reduction="add")
    return y, group if n.has("dim") else n.reshape(group, x.type.shape), counts


def nonzero_static(n: Node) -> Value:
    """Positions, one row each: cut or filled up to a number of rows."""
    x, size = n.value(), n.get("size")
    rows = n.permute(n.emit("nonzero", x), (1, 0))
    filler = n.full((size, rows.type.shape[1]), n.get("fill_value", -1), "int64")
    both = n.emit("concat", rows, filler, axis=0)
    return sliced(n, both, 0, (0, size, 1))


ORDER: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "cummax": running_extreme("greater_equal"),
        "cummin": running_extreme("less_equal"),
        "kthvalue": kthvalue,
        "logcumsumexp": running_logsumexp,
        "median": median(skips=False),
        "nanmedian": median(skips=True),
        "nonzero_static": nonzero_static,
        "searchsorted": searchsorted,
        "unique_consecutive": unique_consecutive,
        "unique_dim": unique,
        "_unique2": unique,
    }
)
"""Ranks and distinct elements by the name of the ATen packet."""
