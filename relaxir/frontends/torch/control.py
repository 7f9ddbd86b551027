"""Converters of higher-order operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import torch
from torch.fx import GraphModule

from relaxir.frontends.torch.node import FARTHEST, Arg, Converter, Node
from relaxir.frontends.values import Value
from relaxir.sym import DimLike, Relation


def cond(n: Node) -> tuple[Arg, ...]:
    """A choice between two graphs; where the test is known, only one of them."""
    test, then, other, operands = (n.args[str(i)] for i in range(4))
    if isinstance(test, bool):
        return n.host.run_graph(then if test else other, operands)
    return n.host.run_branches(condition(n, test), then, other, operands)


def condition(n: Node, test: Arg) -> Value:
    """A test as a bool scalar."""
    if isinstance(test, Relation):
        name = {"==": "equal", "<=": "less_equal", "<": "less"}[test.op]
        return n.emit(name, n.operand(test.left, "int64"), n.operand(test.right, "int64"))
    return n.truth(n.reshape(n.operand(test, "bool"), ()))


def unpacked(n: Node, graph: GraphModule, values: Sequence[Value]) -> tuple[Arg, ...]:
    """Carried tensors as the graph wants them: integers as sizes."""
    formals = [f for f in graph.graph.nodes if f.op == "placeholder"]
    result: list[Arg] = []
    for formal, value in zip(formals, values, strict=False):
        whole = isinstance(formal.meta.get("val"), torch.SymInt | int)
        result.append(n.read(value, FARTHEST, "carried")[0] if whole else value)
    return tuple(result)


def while_loop(n: Node) -> tuple[Arg, ...]:
    """A loop whose condition is tested before every iteration."""
    test, step, carried, more = (n.args[str(i)] for i in range(4))
    init = [n.operand(c, "int64") if not isinstance(c, Value) else c for c in carried]

    def goes_on(values: Sequence[Value]) -> Value:
        (found,) = n.host.run_graph(test, (*unpacked(n, test, values), *more))
        return condition(n, found)

    def body(i: Value, values: tuple[Value, ...]) -> tuple[Value, Sequence[Value], Sequence[Value]]:
        results = n.host.run_graph(step, (*unpacked(n, step, values), *more))
        later = [r if isinstance(r, Value) else n.operand(r, "int64") for r in results]
        return goes_on(later), later, ()

    ends = n.host.run_loop(body, init, None, goes_on(init), more)
    whole = [not isinstance(c, Value) for c in carried]
    return tuple(n.read(e, FARTHEST, "carried")[0] if w else e for e, w in zip(ends, whole, strict=True))


def scan(n: Node) -> tuple[Arg, ...]:
    """A loop over the first axis of some tensors: last states, then the stacked results of the steps."""
    step, init, rows, more = (n.args[str(i)] for i in range(4))
    return over_rows(n, step, init, rows, more)


def mapped(n: Node) -> tuple[Arg, ...]:
    """A graph applied to each slice along the first axis."""
    step, rows, more = (n.args[str(i)] for i in range(3))
    return over_rows(n, step, (), rows, more)


def over_rows(
    n: Node, step: GraphModule, init: Sequence[Value], rows: Sequence[Value], more: Sequence[Arg]
) -> tuple[Arg, ...]:
    """A loop over the first axis of ``rows``."""
    length: DimLike = rows[0].type.shape[0]

    def body(i: Value, states: tuple[Value, ...]) -> tuple[Value, Sequence[Value], Sequence[Value]]:
        slices = [n.emit("take", r, i, axis=0) for r in rows]
        results = n.host.run_graph(step, (*states, *slices, *more))
        return n.scalar(True, "bool"), results[: len(init)], results[len(init) :]

    return n.host.run_loop(body, init, length, None, (*rows, *more))


def inlined(n: Node) -> tuple[Arg, ...]:
    """A graph run under some mode (gradients on or off, autocast, checkpointing): the graph itself."""
    values = list(n.args.values())
    place = next(i for i, a in enumerate(values) if isinstance(a, GraphModule))
    return n.host.run_graph(values[place], values[place + 1 :])


CONTROL: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "higher_order.cond": cond,
        "higher_order.map_impl": mapped,
        "higher_order.scan": scan,
        "higher_order.tag_activation_checkpoint": inlined,
        "higher_order.while_loop": while_loop,
        "higher_order.wrap": inlined,
        "higher_order.wrap_with_autocast": inlined,
        "higher_order.wrap_with_set_grad_enabled": inlined,
    }
)
"""Higher-order operators by name."""
