"""Errors of an import: about one node, about nodes that no converter knows, and all of a model's as one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from onnx import GraphProto, NodeProto

from relaxir.frontends.onnx.expand import has_function
from relaxir.frontends.onnx.graphs import describe, subgraphs
from relaxir.frontends.onnx.table import CONVERTERS
from relaxir.frontends.onnx.values import Item, Value
from relaxir.ir.types import describe as type_text
from relaxir.support.errors import RelaxirError, UnsupportedError

MAX_SHOWN: Final = 1000
"""Problems listed in one report; the rest is counted."""


class ReportedError(Exception):
    """A graph has no results because of problems that are noted already: the node that holds it is skipped."""


def named(error: RelaxirError, proto: NodeProto, inputs: Sequence[Item | None]) -> RelaxirError:
    """The error with the node's name in its message, and a note of the tensors that the node reads and writes."""
    if describe(proto) not in error.message:
        error.message = f"{describe(proto)}: {error.message}"
    given = (f"`{i}` {_kind(v)}" for i, v in zip(proto.input, inputs, strict=True) if v)
    made = (f"`{o}`" for o in proto.output if o)
    both = f"{', '.join(given) or 'nothing'} and gives {', '.join(made) or 'nothing'}"
    error.notes = (*error.notes, f"the node reads {both}")
    return error


def _kind(item: Item) -> str:
    return type_text(item.type) if isinstance(item, Value) else "a sequence or optional"


def unknown(node: NodeProto) -> UnsupportedError:
    """The error about a node without a converter."""
    return UnsupportedError(f"{describe(node)}: the operator is not supported", code="import-unsupported")


def unknown_nodes(graph: GraphProto, opsets: Mapping[str, int]) -> list[RelaxirError]:
    """An error for each node, in subgraphs too, that has neither a converter nor a definition by simpler operators."""
    found: list[RelaxirError] = []
    for node in graph.node:
        domain = "" if node.domain == "ai.onnx" else node.domain
        if (domain, node.op_type) not in CONVERTERS and not has_function(node, opsets.get(domain, 1)):
            found.append(unknown(node))
        for sub in subgraphs(node):
            found.extend(unknown_nodes(sub, opsets))
    return found


def report(problems: Sequence[RelaxirError], model: str) -> RelaxirError:
    """All problems as one error; malformed nodes weigh more than unsupported ones."""
    broken = [p for p in problems if not isinstance(p, UnsupportedError)]
    if len(problems) == 1:
        return problems[0]
    shown = tuple(p.message for p in problems[:MAX_SHOWN])
    rest = len(problems) - len(shown)
    notes = (*shown, f"... and {rest} more") if rest else shown
    if broken:
        return type(broken[0])(f"`{model}` has {len(problems)} problems, first: {broken[0].message}", notes=notes)
    return UnsupportedError(
        f"`{model}` has {len(problems)} nodes that cannot be imported", code="import-unsupported", notes=notes
    )
