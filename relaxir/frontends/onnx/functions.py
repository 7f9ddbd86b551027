"""Functions that a model defines itself: replaced by their nodes, after what they expand to was counted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from onnx import ModelProto, NodeProto
from onnx.checker import ValidationError
from onnx.inliner import inline_local_functions

from relaxir.frontends.onnx.graphs import describe, subgraphs
from relaxir.support.errors import LoadError

MOST_NODES: Final = 1_000_000
"""Nodes after expansion beyond which a model is refused: forty functions that call each other twice make 2**40."""
DEEPEST: Final = 100
"""Calls of functions inside each other; the expander of the package onnx has this limit."""

Key = tuple[str, str, str]
"""Domain, name and overload of a function."""


def inlined(model: ModelProto, name: str) -> ModelProto:
    """The model without functions of its own.

    Raises:
        LoadError: functions that call themselves, are defined twice, or expand to too much; names the node that calls.
    """
    if not model.functions:
        return model
    bodies: dict[Key, Iterable[NodeProto]] = {}
    for f in model.functions:
        key = (f.domain, f.name, f.overload)
        if key in bodies:
            raise LoadError(f"`{name}` defines the function `{f.domain}::{f.name}` twice")
        bodies[key] = f.node
    Expansion(bodies).of_nodes(model.graph.node, ())
    try:
        return inline_local_functions(model)
    except (RuntimeError, ValueError, ValidationError) as error:
        raise LoadError(f"`{name}`: its functions cannot be expanded: {error}") from error


class Expansion:
    """Counts the nodes that calls expand to, each function once."""

    def __init__(self, bodies: Mapping[Key, Iterable[NodeProto]]) -> None:
        self.bodies = bodies
        self.sizes: dict[Key, int] = {}

    def of_nodes(self, nodes: Iterable[NodeProto], active: tuple[Key, ...]) -> int:
        """Nodes that these expand to, inside the functions ``active``.

        Raises:
            LoadError: recursion, or too many.
        """
        total = 0
        for node in nodes:
            total += 1 + sum(self.of_nodes(g.node, active) for g in subgraphs(node))
            key = (node.domain, node.op_type, node.overload)
            if key in self.bodies:
                total += self.of_call(node, key, active)
            if total > MOST_NODES:
                raise LoadError(f"{describe(node)}: functions expand to more than {MOST_NODES} nodes")
        return total

    def of_call(self, node: NodeProto, key: Key, active: tuple[Key, ...]) -> int:
        """Nodes that one call expands to."""
        if key in active:
            raise LoadError(f"{describe(node)}: the function calls itself", help="write a Loop instead")
        if len(active) == DEEPEST:
            raise LoadError(f"{describe(node)}: functions call each other more than {DEEPEST} deep")
        if key not in self.sizes:
            self.sizes[key] = self.of_nodes(self.bodies[key], (*active, key))
        return self.sizes[key]
