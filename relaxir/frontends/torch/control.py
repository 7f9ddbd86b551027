"""Converters of higher-order operators."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from torch.fx import GraphModule

from relaxir.frontends.torch.node import Arg, Converter, Node
from relaxir.frontends.values import Value
from relaxir.sym import Relation


def cond(n: Node) -> tuple[Arg, ...]:
    """A choice between two graphs; where the test is known, only one of them."""
    test, then, other, operands = (n.args[str(i)] for i in range(4))
    if isinstance(test, bool):
        return n.host.run_graph(then if test else other, operands)
    if isinstance(test, Relation):
        test = relation_value(n, test)
    if not isinstance(test, Value):
        n.unsupported("a condition of this kind")
    return n.host.run_branches(n.truth(n.reshape(test, ())), then, other, operands)


def relation_value(n: Node, relation: Relation) -> Value:
    """A comparison of sizes as a bool."""
    name = {"==": "equal", "<=": "less_equal", "<": "less"}[relation.op]
    return n.emit(name, n.operand(relation.left, "int64"), n.operand(relation.right, "int64"))


def inlined(n: Node) -> tuple[Arg, ...]:
    """A graph run under some mode (gradients on or off, autocast, checkpointing): the graph itself."""
    place = next(i for i, a in enumerate(n.args.values()) if isinstance(a, GraphModule))
    values = list(n.args.values())
    return n.host.run_graph(values[place], values[place + 1 :])


CONTROL: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "higher_order.cond": cond,
        "higher_order.tag_activation_checkpoint": inlined,
        "higher_order.wrap": inlined,
        "higher_order.wrap_with_autocast": inlined,
        "higher_order.wrap_with_set_grad_enabled": inlined,
    }
)
"""Higher-order operators by name."""
