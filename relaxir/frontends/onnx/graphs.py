"""Graphs and nodes of a model file: their words in messages, and the graphs inside nodes."""

from __future__ import annotations

from collections.abc import Sequence

from onnx import GraphProto, NodeProto


def subgraphs(node: NodeProto) -> Sequence[GraphProto]:
    """Graphs in a node's attributes."""
    return [a.g for a in node.attribute if a.HasField("g")] + [g for a in node.attribute for g in a.graphs]


def describe(node: NodeProto) -> str:
    """A node in words: ``node `/mlp/Add` (Add)``."""
    label = node.name or next((o for o in node.output if o), "?")
    domain = f"{node.domain}::" if node.domain not in ("", "ai.onnx") else ""
    return f"node `{label}` ({domain}{node.op_type})"
