"""Converters of control flow."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np
from onnx import GraphProto, NodeProto, ValueInfoProto

from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.values import Item, Items, Pieces, Value
from relaxir.sym import DimLike, sub

MOST_TURNS: Final = 1024
"""Turns of a loop beyond which it is not imported turn by turn."""
Source = tuple[Value, int, int]
"""A scan input, the axis that is walked, and whether from its end."""


def if_(n: Node) -> Result:
    """A known condition takes its branch now; else both are kept."""
    then, other = n.graph("then_branch"), n.graph("else_branch")
    cond = n.input(0)
    known = cond.constant
    if known is not None:
        return tuple(n.host.run_graph(then if bool(known.reshape(-1)[0]) else other, ()))
    for squeezed, kept in ((then, other), (other, then)):
        if is_optional_squeeze(squeezed, kept):
            return tuple(n.host.run_graph(squeezed, ()))
    return n.host.run_branches(cond, then, other, n)


def is_optional_squeeze(squeezed: GraphProto, kept: GraphProto) -> bool:
    """Whether a branch drops axes of a value that the other branch leaves as it is.

    PyTorch exports ``x.squeeze(axis)`` so. The rank would depend on data; what follows is written for one rank, nearly
    always that of the squeezed value, and squeezing checks at run time that the axis has one element.
    """
    work = [node for node in squeezed.node if node.op_type != "Constant"]
    single = len(work) == len(kept.node) == len(squeezed.output) == 1
    return (
        single
        and (work[0].op_type, kept.node[0].op_type) == ("Squeeze", "Identity")
        and work[0].input[0] == kept.node[0].input[0]
    )


def loop(n: Node) -> Result:
    """A loop of the IR; one that carries sequences is rid of them, or imported turn by turn."""
    graph = n.graph("body")
    items = tuple(n.item(i) for i in range(2, len(n.proto.input)))
    if len(graph.input) != 2 + len(items) or len(graph.output) < 1 + len(items):
        n.fail(
            f"the body has {len(graph.input)} inputs and {len(graph.output)} outputs for {len(items)} carried values"
        )
    if all(isinstance(v, Value) for v in items):
        return turns(n, graph, n.tensors(items))
    if n.given(0) and n.number(0) is not None:
        return unrolled(n, graph, items)
    inserts: dict[int, NodeProto] = {}
    for k, v in enumerate(items):
        if not isinstance(v, Value):
            node = appending(graph, k)
            if node is None or not isinstance(v, Items) or v.values:
                return unrolled(n, graph, items)  # says what is not supported
            inserts[k] = node
    return collected(n, graph, items, inserts)


def appending(graph: GraphProto, carried: int) -> NodeProto | None:
    """The node of a loop's body that appends to a carried sequence, if nothing else is done with it."""
    given, later = graph.input[2 + carried].name, graph.output[1 + carried].name
    nodes = [node for node in graph.node if given in node.input or later in node.input or later in node.output]
    if len(nodes) != 1 or nodes[0].op_type != "SequenceInsert" or len(nodes[0].input) != 2:
        return None
    inner = any(uses(a.g, given) for node in graph.node for a in node.attribute if a.HasField("g"))
    return None if inner or nodes[0].input[0] != given or nodes[0].output[0] != later else nodes[0]


def uses(graph: GraphProto, name: str) -> bool:
    """Whether a graph or one inside it mentions a name."""
    inner = [a.g for node in graph.node for a in node.attribute if a.HasField("g")]
    return any(name in node.input for node in graph.node) or any(uses(g, name) for g in inner)


def collected(n: Node, graph: GraphProto, items: Sequence[Item], inserts: Mapping[int, NodeProto]) -> Result:
    """A loop whose sequences only grow by one tensor a turn: those are the rows of tensors that it collects."""
    plain = GraphProto()
    plain.CopyFrom(graph)
    for listed, first in ((plain.input, 2), (plain.output, 1)):
        kept = [v for k, v in enumerate(listed) if k - first not in inserts]
        del listed[:]
        listed.extend(kept)
    names = {node.output[0] for node in inserts.values()}
    nodes = [node for node in plain.node if not names.intersection(node.output)]
    del plain.node[:]
    plain.node.extend(nodes)
    plain.output.extend(ValueInfoProto(name=node.input[1]) for node in inserts.values())
    results = list(turns(n, plain, n.tensors([v for k, v in enumerate(items) if k not in inserts])))
    rows = results[len(results) - len(inserts) :]
    del results[len(results) - len(inserts) :]
    found: list[Item | None] = list(results)
    for k, row in zip(inserts, rows, strict=True):
        found.insert(k, Pieces(row, 0, 1, keepdims=False))
    return tuple(found)


def turns(n: Node, graph: GraphProto, init: tuple[Value, ...]) -> tuple[Value, ...]:
    """A loop that carries tensors: last values, then what it collects. A count of sizes becomes a dimension."""
    trips: Value | DimLike | None = None
    if n.given(0):
        known = n.input(0).known
        trips = n.scalar_input(0) if known is None else known.reshape(-1)[0]
    start = n.scalar_input(1) if n.given(1) else None
    number_rank = len(graph.input[0].type.tensor_type.shape.dim)

    def body(i: Value, carried: tuple[Value, ...]) -> tuple[Value, Sequence[Value], Sequence[Value]]:
        number = n.emit("reshape", i, shape=(1,) * number_rank) if number_rank else i
        results = n.tensors(n.host.run_graph(graph, (number, true(n), *carried)))
        return scalar(n, results[0]), results[1 : 1 + len(init)], results[1 + len(init) :]

    return n.host.run_loop(body, init, trips, start, n)


def unrolled(n: Node, graph: GraphProto, carried: tuple[Item, ...]) -> Result:
    """A loop that carries sequences: every turn is imported, so how many there are must be known."""
    start = n.number(1)
    turns = int(n.constant(0, "the number of turns of a loop that carries a sequence").reshape(-1)[0])
    if n.given(1) and (start is None or not start.any()):
        n.unsupported("a loop that carries a sequence, with a condition that is not known to hold")
    if turns > MOST_TURNS:
        n.unsupported(f"a loop of {turns} turns that carries a sequence")
    rows: list[tuple[Value, ...]] = []
    for turn in range(turns):
        first, *results = n.host.run_graph(graph, (n.literal(np.array(turn), "int64"), true(n), *carried))
        carried = tuple(results[: len(carried)])
        rows.append(n.tensors(results[len(carried) :]))
        goes_on = first.constant if isinstance(first, Value) else None
        if goes_on is None:
            n.unsupported("a loop that carries a sequence, and ends by a run-time condition")
        if not goes_on.any():
            break
    if not rows and len(graph.output) > 1 + len(carried):
        n.unsupported("a loop without turns that carries a sequence and collects tensors")
    return (*carried, *(n.emit("stack", *column, axis=0) for column in zip(*rows, strict=True)))


def scan(n: Node) -> Result:
    """A loop over one axis of each scan input; reversed ones are read from the end."""
    if n.opset < 9:
        return batched_scan(n)
    graph, count = n.graph("body"), n.attr("num_scan_inputs", 0)
    states = len(n.proto.input) - count
    outputs = len(graph.output) - states
    if count < 1 or min(states, outputs) < 0 or len(graph.input) - states != count:
        n.fail("the body does not fit the scan inputs")
    axes, turned = (n.ints(f"scan_input_{k}", count) or (0,) * count for k in ("axes", "directions"))
    init = tuple(n.input(i) for i in range(states))
    sources = [(n.input(states + i), axes[i], turned[i]) for i in range(count)]
    results = scan_over(n, init, sources)
    rows = list(results[states:])
    for k, flipped in enumerate(n.ints("scan_output_directions", outputs) or ()):
        rows[k] = n.emit("flip", rows[k], axes=(0,)) if flipped else rows[k]
    for k, axis in enumerate(n.ints("scan_output_axes", outputs) or ()):
        order = list(range(1, rows[k].type.rank))
        order.insert(n.axis(axis, rows[k].type.rank), 0)
        rows[k] = n.emit("permute_dims", rows[k], axes=tuple(order)) if order[0] else rows[k]
    return (*results[:states], *rows)


def scan_over(n: Node, init: Sequence[Value], inputs: Sequence[Source]) -> tuple[Value, ...]:
    """States and stacked outputs of the body run over scan inputs of one length."""
    graph = n.graph("body")
    first, along, _ = inputs[0]
    length = first.type.shape[n.axis(along, first.type.rank)]
    sources: list[Source] = []
    for value, given, reverse in inputs:
        axis = n.axis(given, value.type.rank)
        shape = tuple(length if k == axis else d for k, d in enumerate(value.type.shape))
        sources.append((value if shape == value.type.shape else n.cast_shape(value, shape), axis, reverse))

    def body(i: Value, states: tuple[Value, ...]) -> tuple[Value, Sequence[Value], Sequence[Value]]:
        rows = []
        for value, axis, reverse in sources:
            last = Value(i.type, None, np.array([sub(length, 1), 0], object)[:1].reshape(()))
            rows.append(n.emit("take", value, n.emit("subtract", last, i) if reverse else i, axis=axis))
        results = n.tensors(n.host.run_graph(graph, (*states, *rows)))
        return true(n), results[: len(init)], results[len(init) :]

    return n.host.run_loop(body, init, length, None, n)


def batched_scan(n: Node) -> Result:
    """Opset 8: every state and scan input has a leading batch axis; an outer loop runs over it."""
    graph, count = n.graph("body"), n.attr("num_scan_inputs", 0)
    if n.given(0):
        n.unsupported("sequence_lens")
    values = [n.input(i) for i in range(1, len(n.proto.input))]
    states = len(values) - count
    if count < 1 or states < 0 or len(graph.input) != len(values):
        n.fail("the body does not fit the scan inputs")
    turned = n.ints("directions", count) or (0,) * count

    def body(i: Value, _: tuple[Value, ...]) -> tuple[Value, Sequence[Value], Sequence[Value]]:
        rows = [n.emit("take", v, i, axis=0) for v in values]
        inner = [(v, 0, turned[k]) for k, v in enumerate(rows[states:])]
        return true(n), (), scan_over(n, rows[:states], inner)

    return n.host.run_loop(body, (), values[0].type.shape[0], None, n)


def true(n: Node) -> Value:
    """The constant true."""
    return n.literal(np.array(True), "bool")


def scalar(n: Node, value: Value) -> Value:
    """A value of one element without its axes."""
    return n.emit("reshape", value, shape=()) if value.type.rank else value


CONTROL: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "If": if_,
        "Loop": loop,
        "Scan": scan,
    }
)
"""Control flow by ONNX name."""
