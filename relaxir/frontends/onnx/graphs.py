"""Graphs and nodes of a model file: their words in messages, graphs inside nodes, and ranks that are stated."""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from onnx import GraphProto, NodeProto


def subgraphs(node: NodeProto) -> Sequence[GraphProto]:
    """Graphs in a node's attributes."""
    return [a.g for a in node.attribute if a.HasField("g")] + [g for a in node.attribute for g in a.graphs]


def describe(node: NodeProto) -> str:
    """A node in words: ``node `/mlp/Add` (Add)``."""
    label = node.name or next((o for o in node.output if o), "?")
    domain = f"{node.domain}::" if node.domain not in ("", "ai.onnx") else ""
    return f"node `{label}` ({domain}{node.op_type})"


def stated_ranks(graph: GraphProto) -> Mapping[str, int]:
    """Ranks that the model states for its values, and what follows from them for operands of the same rank."""
    typed = ((i.name, i.type.tensor_type) for i in (*graph.value_info, *graph.output))
    ranks = {name: len(t.shape.dim) for name, t in typed if t.HasField("shape")}
    constants = ((n.output[0], a) for n in graph.node if n.op_type == "Constant" for a in n.attribute)
    scalars = {
        name for name, a in constants if a.name in ("value_float", "value_int") or (a.HasField("t") and not a.t.dims)
    }
    scalars |= {t.name for t in graph.initializer if not t.dims}
    for node in reversed(graph.node):
        for name in same_rank_operands(node, scalars) if node.output and node.output[0] in ranks else ():
            ranks.setdefault(name, ranks[node.output[0]])
    return MappingProxyType(ranks)


def same_rank_operands(node: NodeProto, scalars: Container[str]) -> Sequence[str]:
    """Inputs of the rank of the first output, where the operator alone tells."""
    if node.op_type in RANK_OF_FIRST:
        return list(node.input[:1])
    if node.op_type == "Concat":
        return list(node.input)
    tensors = [name for name in node.input if name not in scalars]
    return tensors if node.op_type in BROADCAST and len(tensors) == 1 else ()


RANK_OF_FIRST: Final = frozenset(
    "Abs Cast Clip Elu Erf Exp HardSigmoid HardSwish Identity LeakyRelu Log LogSoftmax Neg Not Pad Relu Round Sigmoid"
    " Slice Softmax Softplus Sqrt Tanh Tile Transpose".split()
)
"""Operators whose result has the rank of their first input."""

BROADCAST: Final = frozenset(("Add", "Div", "Mul", "Pow", "Sub"))
"""Operators whose result has the rank of the input that is no scalar."""
