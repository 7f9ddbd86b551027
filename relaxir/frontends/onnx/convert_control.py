"""Converters of control flow: branches, and loops whose number of turns is known at import."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from onnx import GraphProto

from relaxir.frontends.onnx.convert_math import Converter
from relaxir.frontends.onnx.node import Node, Result
from relaxir.frontends.onnx.values import Value

MOST_TURNS: Final = 128
"""Turns of a loop up to which it is written out."""


def if_(n: Node) -> Result:
    """A known condition takes its branch now; else both are kept."""
    then, other = n.graph("then_branch"), n.graph("else_branch")
    cond = n.input(0)
    known = cond.constant
    if known is not None:
        return tuple(n.host.run_graph(then if bool(known.reshape(-1)[0]) else other, ()))
    return n.host.run_branches(cond, then, other, n)


def turn(n: Node, body: GraphProto, inputs: Sequence[Value]) -> list[Value]:
    """One turn of a loop; nothing if a node of it could not be imported."""
    if len(inputs) != len(body.input):
        n.fail(f"the body takes {len(body.input)} values, {len(inputs)} are given")
    return n.host.run_graph(body, inputs)


def stacked(n: Node, rows: Sequence[Value], axis: int, backward: bool) -> Value:
    """The results of all turns as one tensor."""
    if not rows:
        n.unsupported("a loop without a turn that collects results")
    return n.emit("stack", *(rows[::-1] if backward else rows), axis=axis)


def loop(n: Node) -> Result:
    """A loop of few, known turns, written out."""
    body = n.graph("body")
    carried = [n.input(i) for i in range(2, len(n.inputs))]
    count = n.number(0)
    keep: Value | None = n.optional(1)
    if count is None:
        n.unsupported("the number of turns is known only at run time")
    turns = max(int(count.reshape(-1)[0]), 0)
    collected: list[list[Value]] = [[] for _ in range(len(body.output) - 1 - len(carried))]
    for index in range(turns):
        known = None if keep is None else keep.constant
        if keep is not None and known is None:
            n.unsupported("the condition to go on is known only at run time")
        if known is not None and not bool(known.reshape(-1)[0]):
            break
        if index >= MOST_TURNS:
            n.unsupported(f"a loop of more than {MOST_TURNS} turns")
        results = turn(n, body, (n.scalar(index, "int64"), keep or n.scalar(True, "bool"), *carried))
        if not results:
            return ()
        keep, carried = results[0], results[1 : 1 + len(carried)]
        for rows, value in zip(collected, results[1 + len(carried) :], strict=True):
            rows.append(value)
    return (*carried, *(stacked(n, rows, 0, False) for rows in collected))


def scan(n: Node) -> Result:
    """A scan of few, known elements, written out."""
    if n.opset < 9:
        n.unsupported("the form of opset 8")
    body = n.graph("body")
    count = n.attr("num_scan_inputs", 0)
    states = [n.input(i) for i in range(len(n.inputs) - count)]
    sources = [n.input(i) for i in range(len(n.inputs) - count, len(n.inputs))]
    if not sources:
        n.fail("there is nothing to scan")
    axes = [n.axis(a, x.type.rank) for a, x in zip(n.ints("scan_input_axes") or (0,) * count, sources, strict=True)]
    backward = n.ints("scan_input_directions") or (0,) * count
    length = sources[0].type.shape[axes[0]]
    if not isinstance(length, int):
        n.unsupported("the length is known only at run time")
    if length > MOST_TURNS:
        n.unsupported(f"a scan of more than {MOST_TURNS} elements")
    collected: list[list[Value]] = [[] for _ in range(len(body.output) - len(states))]
    for index in range(length):
        places = (length - 1 - index if back else index for back in backward)
        items = [
            n.emit("take", x, n.scalar(place, "int64"), axis=a)
            for x, place, a in zip(sources, places, axes, strict=True)
        ]
        results = turn(n, body, (*states, *items))
        if not results:
            return ()
        states = results[: len(states)]
        for rows, value in zip(collected, results[len(states) :], strict=True):
            rows.append(value)
    flipped = n.ints("scan_output_directions") or (0,) * len(collected)
    placed = n.ints("scan_output_axes") or (0,) * len(collected)
    made = (stacked(n, rows, a, bool(d)) for rows, a, d in zip(collected, placed, flipped, strict=True))
    return (*states, *made)


def has_element(n: Node) -> Result:
    """Whether an optional holds something: tensors do, an omitted input does not."""
    return n.scalar(n.given(0), "bool")


CONTROL: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "If": if_,
        "Loop": loop,
        "OptionalGetElement": lambda n: n.input(0),
        "OptionalHasElement": has_element,
        "Scan": scan,
    }
)
"""Control flow by ONNX name."""
