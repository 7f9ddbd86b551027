"""Converters of recurrent layers and cells."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.torch.shape import pick
from relaxir.frontends.values import Value
from relaxir.sym import mul

ORDERS: Final[Mapping[str, tuple[int, ...]]] = MappingProxyType(
    {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2), "rnn_tanh": (0,), "rnn_relu": (0,)}
)
"""Where the operator's gates are among torch's: i, o, f, c of i, f, g, o; z, r, h of r, z, n."""


def reordered(n: Node, weight: Value, order: Sequence[int]) -> Value:
    """Blocks of rows, one per gate, in another order, with an axis of directions in front."""
    if len(order) > 1:
        rows = weight.type.shape[0]
        assert isinstance(rows, int)
        blocks = n.emit_tuple("split", weight, sizes=(rows // len(order),) * len(order), axis=0)
        weight = n.emit("concat", *(blocks[i] for i in order), axis=0)
    return n.emit("expand_dims", weight, axes=(0,))


def layer(kind: str) -> Converter:
    """Stacked layers of one kind, each in one or two directions."""
    order = ORDERS[kind]

    def convert(n: Node) -> tuple[Value, ...]:
        if n.flag("train") and n.number("dropout"):
            n.unsupported("dropout in training mode")
        x, states = n.value("input"), n.args["hx"]
        states = states if isinstance(states, tuple) else (states,)
        ways = 2 if n.flag("bidirectional") else 1
        layers, params = n.integer("num_layers", 1), n.args["params"]
        each = len(params) // (layers * ways)
        single = x.type.rank == 2
        if single:
            x, states = n.emit("expand_dims", x, axes=(1,)), [n.emit("expand_dims", s, axes=(1,)) for s in states]
        elif n.flag("batch_first"):
            x = n.permute(x, (1, 0, 2))
        last: list[list[Value]] = [[] for _ in states]
        for index in range(layers):
            sets = [params[(index * ways + w) * each :][:each] for w in range(ways)]
            begin = index * ways
            first = [n.emit("strided_slice", s, axes=(0,), begin=(begin,), size=(ways,)) for s in states]
            y, *ends = projected(n, x, sets, first) if each % 2 else one_layer(n, kind, order, x, sets, first)
            steps, _, batch, hidden = y.type.shape
            x = n.reshape(n.permute(y, (0, 2, 1, 3)), (steps, batch, mul(ways, hidden)))
            for found, end in zip(last, ends, strict=True):
                found.append(end)
        ends = [f[0] if len(f) == 1 else n.emit("concat", *f, axis=0) for f in last]
        if single:
            return (n.emit("squeeze", x, axes=(1,)), *(n.emit("squeeze", e, axes=(1,)) for e in ends))
        return (n.permute(x, (1, 0, 2)) if n.flag("batch_first") else x, *ends)

    return convert


def one_layer(
    n: Node, kind: str, order: Sequence[int], x: Value, sets: Sequence[Sequence[Value]], first: Sequence[Value]
) -> tuple[Value, ...]:
    """One layer in all its directions: states of all steps, then the last ones."""
    ways = [[reordered(n, p, order) for p in params] for params in sets]
    if len(ways[0]) == 2:
        zero = n.literal(np.zeros((1, 2 * int(str(sets[0][0].type.shape[0])))), x.type.dtype)
        packed = [[w, r, zero] for w, r in ways]
    else:
        packed = [[w, r, n.emit("concat", b, c, axis=1)] for w, r, b, c in ways]
    operands = [
        column[0] if len(ways) == 1 else n.emit("concat", *column, axis=0)
        for column in map(list, zip(*packed, strict=True))
    ]
    attrs: dict[str, object] = {"direction": "bidirectional" if len(ways) == 2 else "forward"}
    if kind == "gru":
        attrs["linear_before_reset"] = True
    if kind == "rnn_relu":
        attrs["activations"] = (("relu", 0.0, 0.0),) * len(ways)
    return n.emit_tuple(kind.partition("_")[0], x, *operands, *first, **attrs)


def projected(n: Node, x: Value, sets: Sequence[Sequence[Value]], first: Sequence[Value]) -> tuple[Value, Value, Value]:
    """An LSTM layer that projects its hidden states, as a loop over the steps; results as of `one_layer`."""
    ways: list[tuple[Value, ...]] = []
    for way, (w_ih, w_hh, *biases, w_hr) in enumerate(sets):
        given, added = biases or (None, None)
        gates = n.emit("linear", x, w_ih, given)
        gates = n.emit("flip", gates, axes=(0,)) if way else gates
        recur = partial(projected_step, n, gates, (w_hh, added, w_hr))
        h, c, y = n.host.run_loop(recur, [pick(n, s, 0, way) for s in first], x.type.shape[0], None, (gates,))
        ways.append((n.emit("flip", y, axes=(0,)) if way else y, h, c))
    outputs, *ends = zip(*ways, strict=True)
    h, c = (n.emit("stack", *e, axis=0) for e in ends)
    return n.emit("stack", *outputs, axis=1), h, c


def projected_step(
    n: Node, gates: Value, weights: tuple[Value, Value | None, Value], i: Value, states: tuple[Value, ...]
) -> tuple[Value, Sequence[Value], Sequence[Value]]:
    """One step of `projected`; see `LoopBody`."""
    w_hh, bias, w_hr = weights
    total = n.emit("add", n.emit("take", gates, i, axis=0), n.emit("linear", states[0], w_hh, bias))
    h, c = lstm_step(n, total, states[1])
    h = n.emit("linear", h, w_hr)
    return n.scalar(True, "bool"), (h, c), (h,)


def lstm_step(n: Node, total: Value, state: Value) -> tuple[Value, Value]:
    """New hidden and cell states from the sums at the gates i, f, g, o."""
    i, f, g, o = n.emit_tuple("split", total, sizes=(state.type.shape[-1],) * 4, axis=-1)
    kept = n.emit("multiply", n.emit("sigmoid", f), state)
    c = n.emit("add", kept, n.emit("multiply", n.emit("sigmoid", i), n.emit("tanh", g)))
    return n.emit("multiply", n.emit("sigmoid", o), n.emit("tanh", c)), c


def cell(kind: str) -> Converter:
    """One step of a layer."""

    def convert(n: Node) -> Value | tuple[Value, ...]:
        x, states = n.value("input"), n.args["hx"]
        states = states if isinstance(states, tuple) else (states,)
        a = n.emit("linear", x, n.value("w_ih"), n.optional("b_ih"))
        b = n.emit("linear", states[0], n.value("w_hh"), n.optional("b_hh"))
        width = states[0].type.shape[-1]
        if kind == "gru":
            (r, z, m), (hr, hz, hm) = (n.emit_tuple("split", v, sizes=(width,) * 3, axis=-1) for v in (a, b))
            r, z = n.emit("sigmoid", n.emit("add", r, hr)), n.emit("sigmoid", n.emit("add", z, hz))
            new = n.emit("tanh", n.emit("add", m, n.emit("multiply", r, hm)))
            return n.emit("add", new, n.emit("multiply", z, n.emit("subtract", states[0], new)))
        total = n.emit("add", a, b)
        if kind != "lstm":
            return n.emit(kind.removeprefix("rnn_"), total)
        return lstm_step(n, total, states[1])

    return convert


RECURRENT: Final[Mapping[str, Converter]] = MappingProxyType(
    {**{k: layer(k) for k in ORDERS}, **{f"{k}_cell": cell(k) for k in ORDERS}}
)
"""Recurrent layers and cells by the name of the ATen packet."""
