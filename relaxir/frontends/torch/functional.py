"""Programs made ready for import: without writes that others could see, and without operators that have no converter.

Torch rewrites a program for this, which takes seconds for a large one; so a write into a tensor that nothing else
shares is left to the importer.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Iterator
from typing import Any, Final

import torch
from torch.export import ExportedProgram, default_decompositions
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from relaxir.frontends.torch.nn import NN
from relaxir.frontends.torch.table import converter_for, converter_of
from relaxir.support.errors import UnsupportedError

ROUNDS: Final = 4
"""Rewrites until the parts of operators are operators with converters themselves."""


def prepared(program: ExportedProgram) -> ExportedProgram:
    """The program with writes expressed by values, and decomposed where an operator has no converter.

    Raises:
        UnsupportedError: torch cannot express the writes.
    """
    tried: set[object] = set()
    for _ in range(ROUNDS):
        nodes = tuple(calls(program))
        unknown = {n.target for n in nodes if converter_for(n) is None}
        table = decompositions(unknown)
        must = not all(contained(n) for n in nodes if writes(n.target))
        if not table and not must and not any(composite(t) for t in unknown - tried):
            return program
        tried |= unknown
        try:
            with warnings.catch_warnings():  # torch warns about itself
                warnings.simplefilter("ignore")
                program = program.run_decompositions(table)
        except Exception as error:  # torch raises errors of any kind here
            if not must:
                return program  # the report will name the operators
            message = f"torch cannot express the program without operators that write in place: {error}"
            raise UnsupportedError(message, code="import-unsupported") from error
    return program


def calls(program: ExportedProgram) -> Iterator[FxNode]:
    """Calls in the graph and its subgraphs."""
    for module in program.graph_module.modules():
        if isinstance(module, GraphModule):
            yield from (n for n in module.graph.nodes if n.op == "call_function")


def decompositions(targets: Iterable[object]) -> dict[Any, Any]:
    """Torch's decompositions of some operators, as far as it has any."""
    wanted = {t for t in targets if isinstance(t, torch._ops.OpOverload) and not writes(t)}
    if not wanted:
        return {}
    table: Any = default_decompositions()
    return {op: rule for op, rule in table.items() if op in wanted}


def composite(target: object) -> bool:
    """Whether torch defines an operator by views: these stand in its place after any rewrite."""
    return isinstance(target, torch._ops.OpOverload) and target._can_decompose() and not separate(target)


def writes(target: object) -> bool:
    """Whether an operator changes an argument (`detach_` only forgets history)."""
    if not isinstance(target, torch._ops.OpOverload):
        return False
    return bool(target._schema.is_mutable) and target is not torch.ops.aten.detach_.default


def written(node: FxNode) -> list[FxNode]:
    """Names of the tensor that a write changes: the node itself, what it is called on, and so on to its maker."""
    chain = [node]
    while writes(chain[-1].target) and chain[-1].args and isinstance(chain[-1].args[0], FxNode):
        chain.append(chain[-1].args[0])
    return chain


def contained(node: FxNode) -> bool:
    """Whether a write changes a tensor made by the program that no tensor shares memory with so far.

    Views taken later see the new value, as they do here; a write through one of them is not contained.
    """
    name = node.target._schema.name
    chain = written(node)
    if not name.endswith("_") or converter_of(node.target) is None or writes(chain[-1].target):
        return False
    return owning(chain[-1]) and all(u in chain or u > node or separate(u.target) for n in chain for u in n.users)


def owning(node: FxNode) -> bool:
    """Whether a node makes a tensor with memory of its own."""
    if node.op != "call_function" or not separate(node.target) or not isinstance(node.target, torch._ops.OpOverload):
        return False
    return len(node.target._schema.returns) == 1


def separate(target: object) -> bool:
    """Whether the results of an operator never share memory with its arguments (``output`` is a string)."""
    if not isinstance(target, torch._ops.OpOverload):
        return target == "output"
    schema = target._schema
    if any(a.alias_info is not None for a in (*schema.arguments, *schema.returns)):
        return writes(target)
    return not target._can_decompose() or schema.name.removeprefix("aten::") in NN
