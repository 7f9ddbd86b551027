"""Converters of products whose rows are in groups, a matrix for each: the experts of a mixture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.values import Value
from relaxir.sym import DimLike, Relation, sub


def product_of_groups(rows: str, matrices: str, ends: str) -> Converter:
    """Rows ``ends[i - 1]..ends[i]`` times the i-th matrix, by the names of the arguments.

    One iteration of a loop for each matrix, so that a group costs what its rows cost; rows after the last group are 0.
    """

    def convert(n: Node) -> Value:
        x, w = n.value(rows), n.value(matrices)
        stops = n.optional(ends)
        if stops is None or (x.type.rank, w.type.rank) != (2, 3) or n.has("bias"):
            n.unsupported("a product of groups other than rows (2 axes) by a matrix each (3 axes), without a bias")
        total, width = x.type.shape[0], w.type.shape[2]
        stops = n.cast(stops, "int64")

        def body(i: Value, carried: tuple[Value, ...]) -> tuple[Value, Sequence[Value], Sequence[Value]]:
            start, y = carried
            stop = n.emit("take", stops, i, axis=0)
            (low, high) = n.read(n.emit("stack", start, stop, axis=0), 0, "group")
            n.check(Relation("<=", low, high), "the ends of groups must not fall")
            n.check(Relation("<=", high, total), "a group must not end after the last row")
            part = n.emit("matmul", rows_of(n, x, low, high), n.emit("take", w, i, axis=0))
            joined = n.emit("concat", rows_of(n, y, 0, low), part, rows_of(n, y, high, total), axis=0)
            return n.scalar(True, "bool"), (stop, n.reshape(joined, (total, width))), ()

        first = (n.scalar(0, "int64"), n.full((total, width), 0, x.type.dtype))
        return n.host.run_loop(body, first, w.type.shape[0], None, (x, w, stops))[1]

    return convert


def rows_of(n: Node, x: Value, low: DimLike, high: DimLike) -> Value:
    """Rows ``low..high``."""
    return n.emit("strided_slice", x, axes=(0,), begin=(low,), size=(sub(high, low),))


GROUPED: Final[Mapping[str, Converter]] = MappingProxyType(
    {"_grouped_mm": product_of_groups("self", "mat2", "offs")},
)
"""Products of groups by the name of the ATen packet."""
CUSTOM: Final[Mapping[str, Converter]] = MappingProxyType(
    {"transformers.grouped_mm_fallback.default": product_of_groups("input", "weight", "offs")},
)
"""The same of the package transformers, by the name of the target."""
