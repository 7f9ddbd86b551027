"""Converters of losses that torch's own decompositions get wrong; it decomposes the others well."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.values import Value
from relaxir.sym import max_

REDUCTION: Final = ("none", "mean", "sum")
"""Torch's numbers of reductions."""


def multilabel_margin(n: Node) -> Value:
    """Sums of ``max(0, 1 - x[t] + x[c]) / classes``: targets ``t`` end before the first -1, ``c`` are no targets."""
    x, target = n.value(), n.cast(n.value("target"), "int64")
    rank, classes = x.type.rank, x.type.shape[-1]
    ended = n.emit("cumsum", n.cast(n.emit("equal", target, -1), "int64"), axis=-1)
    valid = n.emit("equal", ended, 0)
    picked = n.emit("gather_elements", x, n.emit("where", valid, target, n.scalar(0, "int64")), axis=-1)
    column = (*x.type.shape, 1)
    place = n.emit("arange", start=0, stop=classes, step=1, dtype="int64")
    counted = n.reshape(valid, column)
    named = n.emit("logical_and", n.emit("equal", n.reshape(target, column), place), counted)
    named = n.emit("any", named, axes=(rank - 1,), keepdims=True)
    row = n.reshape(x, (*x.type.shape[:-1], 1, classes))
    margin = n.emit("maximum", n.emit("add", n.emit("subtract", row, n.reshape(picked, column)), 1), 0)
    open_ = n.emit("logical_and", counted, n.emit("logical_not", named))
    margin = n.emit("where", open_, margin, n.scalar(0, x.type.dtype))
    total = n.emit("sum", margin, axes=(rank - 1, rank))
    loss = n.emit("divide", total, n.operand(max_(classes, 1), x.type.dtype))
    how = REDUCTION[n.integer("reduction", 1)]
    return loss if how == "none" else n.emit(how, loss, axes=None)


LOSS: Final[Mapping[str, Converter]] = MappingProxyType({"multilabel_margin_loss": multilabel_margin})
"""Losses by the name of the ATen packet."""
