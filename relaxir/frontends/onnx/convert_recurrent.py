"""Converters of recurrent layers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.values import Value
from relaxir.ops.recurrent_cells import ACTIVATIONS, DEFAULTS, GATES, Activation
from relaxir.sym import DimLike

WITH_ALPHA: Final = frozenset({"affine", "leakyrelu", "thresholdedrelu", "scaledtanh", "hardsigmoid", "elu"})
WITH_BETA: Final = frozenset({"affine", "scaledtanh", "hardsigmoid"})


def layer(kind: str, name: str = "", extra: tuple[int, ...] = ()) -> Converter:
    """The converter of one kind of layer: as operator ``name``, with inputs ``extra`` behind the states."""

    def convert(n: Node) -> Result:
        """Defaults filled in; layout 1 by transposing to layout 0 and back."""
        direction = n.attr("direction", "forward").lower()
        ways = 2 if direction == "bidirectional" else 1
        x = turned(n, n.input(0), (1, 0, 2), batch_first(n))
        batch, dtype = x.type.shape[1], x.type.dtype
        stated = n.type(2).shape[-1:]
        hidden = n.attr("hidden_size", stated[0] if stated and isinstance(stated[0], int) else 0)
        if hidden < 1:
            n.unsupported("a hidden size that is known only at run time")
        if hidden > MOST_HIDDEN:
            n.unsupported(f"a hidden size of {hidden}, more than {MOST_HIDDEN}")
        width = GATES[kind] * hidden
        bias = weights(n, 3, (ways, 2 * width)) if n.given(3) else n.literal(np.zeros((ways, 2 * width)), dtype)
        turn = -1 if name else 1  # an operator of its own has its inputs in front of its gates
        own = [weights(n, i, (ways, *(width, size)[::turn])) for i, size in ((1, x.type.shape[2]), (2, hidden))]
        states = [state(n, i, (ways, batch, hidden), dtype) for i in ((5, 6) if kind == "lstm" else (5,))]
        peepholes = kind == "lstm" and n.given(7)
        operands = [x, *own, bias, *states, *(weights(n, index, (ways, width)) for index in extra)]
        operands += [weights(n, 7, (ways, 3 * hidden))] if peepholes else []
        operands += [n.input(4)] if n.given(4) else []
        y, *last = n.emit_tuple(
            name or kind,
            *operands,
            direction=direction,
            activations=tuple(activations(n, kind, ways)),
            clip=n.attr("clip", 0.0),
            linear_before_reset=bool(n.attr("linear_before_reset", 0)),
            input_forget=bool(n.attr("input_forget", 0)),
            peepholes=peepholes,
            lengths=n.given(4),
        )
        return (turned(n, y, (2, 0, 1, 3), batch_first(n)), *(turned(n, v, (1, 0, 2), batch_first(n)) for v in last))

    return convert


MOST_HIDDEN: Final = 1 << 20
"""Hidden size beyond which a file is taken for damaged."""


def batch_first(n: Node) -> bool:
    """Whether tensors have the batch in front of the steps, or of the directions."""
    return bool(n.attr("layout", 0) == 1)


def weights(n: Node, index: int, shape: tuple[DimLike, ...]) -> Value:
    """An input, whose shape must be this one."""
    value = n.input(index)
    if value.type.rank != len(shape):
        n.fail(f"input {index} has rank {value.type.rank}, expected {len(shape)}")
    return value if value.type.shape == shape else n.cast_shape(value, shape)


def state(n: Node, index: int, shape: tuple[DimLike, ...], dtype: str) -> Value:
    """A state before the first step; zeros where none is given."""
    if n.given(index):
        return turned(n, n.input(index), (1, 0, 2), batch_first(n))
    return n.emit("broadcast_to", n.literal(np.zeros((1, 1, 1)), dtype), shape=shape)


def turned(n: Node, value: Value, axes: tuple[int, ...], needed: bool) -> Value:
    """A value with its axes in another order."""
    if value.type.rank != len(axes):
        n.fail(f"expected {len(axes)} axes, got {value.type.rank}")
    return n.emit("permute_dims", value, axes=axes) if needed else value


def activations(n: Node, kind: str, ways: int) -> Iterator[Activation]:
    """Activations with their parameters: each list is used up by the functions that have one."""
    names = n.texts("activations") or DEFAULTS[kind] * ways
    alphas, betas = (iter(n.floats(a) or ()) for a in ("activation_alpha", "activation_beta"))
    for given in names:
        name = given.lower()
        if name not in ACTIVATIONS:
            n.unsupported(f"activation {given}")
        _, alpha, beta = ACTIVATIONS[name]
        alpha = next(alphas, alpha) if name in WITH_ALPHA else alpha
        yield name, alpha, next(betas, beta) if name in WITH_BETA else beta


RECURRENT: Final[Mapping[str, Converter]] = MappingProxyType({k.upper(): layer(k) for k in GATES})
"""Recurrent layers by ONNX name."""
