"""Cells of recurrent networks: their equations, written once for arrays and for tensor programs."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final, Literal, Protocol

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.op import InferCtx
from relaxir.tir import BinOp, Expr, Intrinsic, as_expr, binary, call, select

Number = Any
"""An array or an expression of a tensor program."""


class Algebra(Protocol):
    """Functions beyond arithmetic operators."""

    def apply(self, name: str, x: Number) -> Number:
        """``sigmoid``, ``tanh``, ``exp``, ``log1p`` or ``abs``."""

    def choose(self, x: Number, low: float, strict: bool, below: Number, above: Number) -> Number:
        """``below`` where ``x < low`` (``strict``: or equal), else ``above``."""

    def clamp(self, x: Number, low: float | None, high: float | None) -> Number:
        """Limit to a range; NaN stays."""


class ArrayAlgebra:
    """The functions of arrays."""

    def apply(self, name: str, x: Number) -> Number:
        """One function of NumPy; sigmoid by tanh, which does not overflow."""
        if name == "sigmoid":
            half = np.asarray(x).dtype.type(0.5)
            return np.tanh(x * half) * half + half
        return getattr(np, name)(x)

    def choose(self, x: Number, low: float, strict: bool, below: Number, above: Number) -> Number:
        """np.where."""
        return np.where(x <= low if strict else x < low, below, above)

    def clamp(self, x: Number, low: float | None, high: float | None) -> Number:
        """np.clip."""
        return np.clip(x, low, high)


class ProgramAlgebra:
    """The functions of tensor programs."""

    def apply(self, name: str, x: Number) -> Number:
        """One intrinsic."""
        return call(Intrinsic(name), x)

    def choose(self, x: Number, low: float, strict: bool, below: Number, above: Number) -> Number:
        """A selection."""
        edge = as_expr(low, x.dtype)
        return select(x <= edge if strict else x < edge, as_expr(below, x.dtype), as_expr(above, x.dtype))

    def clamp(self, x: Number, low: float | None, high: float | None) -> Number:
        """Minimum and maximum."""
        out: Expr = x
        if low is not None:
            out = binary(BinOp.MAX, out, as_expr(low, x.dtype))
        return out if high is None else binary(BinOp.MIN, out, as_expr(high, x.dtype))


Function = Callable[[Algebra, Number, float, float], Number]

ACTIVATIONS: Final[Mapping[str, tuple[Function, float, float]]] = MappingProxyType(
    {
        "sigmoid": (lambda m, x, a, b: m.apply("sigmoid", x), 0.0, 0.0),
        "tanh": (lambda m, x, a, b: m.apply("tanh", x), 0.0, 0.0),
        "relu": (lambda m, x, a, b: m.clamp(x, 0.0, None), 0.0, 0.0),
        "affine": (lambda m, x, a, b: x * a + b, 1.0, 0.0),
        "leakyrelu": (lambda m, x, a, b: m.choose(x, 0.0, False, x * a, x), 0.01, 0.0),
        "thresholdedrelu": (lambda m, x, a, b: m.choose(x, a, True, 0.0, x), 1.0, 0.0),
        "scaledtanh": (lambda m, x, a, b: m.apply("tanh", x * b) * a, 1.0, 1.0),
        "hardsigmoid": (lambda m, x, a, b: m.clamp(x * a + b, 0.0, 1.0), 0.2, 0.5),
        "elu": (lambda m, x, a, b: m.choose(x, 0.0, False, (m.apply("exp", x) - 1.0) * a, x), 1.0, 0.0),
        "softsign": (lambda m, x, a, b: x / (m.apply("abs", x) + 1.0), 0.0, 0.0),
        "softplus": (lambda m, x, a, b: m.clamp(x, 0.0, None) + m.apply("log1p", m.apply("exp", -m.apply("abs", x))),
                     0.0, 0.0),
    }
)  # fmt: skip
"""For each activation its function of (algebra, x, alpha, beta) and the default alpha and beta."""

Activation = tuple[str, float, float]
"""Name, alpha, beta."""


CellName = Literal["lstm", "gru", "rnn"]
"""Which equations."""


@dataclass(frozen=True, slots=True)
class CellAttrs(Attrs):
    """What the attributes of layers and of the recurrence of one direction share."""

    clip: float = 0.0
    """Limit of the sums of the gates; 0: none."""
    linear_before_reset: bool = False
    """A GRU's reset gate scales the product with the state (and its bias), not the state."""
    input_forget: bool = False
    """An LSTM's forget gate is one minus the input gate."""
    peepholes: bool = False
    """An LSTM's gates see the cell state, by weights that are an operand."""
    lengths: bool = False
    """There is an operand with the length of each sequence; it comes last."""


@dataclass(frozen=True, slots=True)
class Cell:
    """What the equations of one direction depend on.

    Attributes:
        activations: of the gates and the state, in ONNX's order.
        clip: limit of the sums of the gates; 0: none.
        input_forget: an LSTM's forget gate is one minus the input gate.
    """

    activations: tuple[Activation, ...]
    clip: float = 0.0
    input_forget: bool = False

    def act(self, m: Algebra, which: int, x: Number) -> Number:
        """One activation; sums of gates are clipped, an LSTM's cell state is not (as onnxruntime has it)."""
        name, alpha, beta = self.activations[which]
        x = m.clamp(x, -self.clip, self.clip) if self.clip and which < 2 else x
        return ACTIVATIONS[name][0](m, x, alpha, beta)

    def lstm_memory(self, m: Algebra, gates: Sequence[Number], c: Number, peephole: Sequence[Number] | None) -> Number:
        """New cell state from the sums of the gates i, o, f, c and the old one."""
        i, _, f, g = gates
        if peephole is not None:
            i, f = i + peephole[0] * c, f + peephole[2] * c
        i = self.act(m, 0, i)
        forget = (i * -1.0) + 1.0 if self.input_forget else self.act(m, 0, f)
        return forget * c + i * self.act(m, 1, g)

    def lstm_hidden(self, m: Algebra, o: Number, c: Number, peephole: Sequence[Number] | None) -> Number:
        """New hidden state from the sum of the gate o and the new cell state."""
        o = self.act(m, 0, o if peephole is None else o + peephole[1] * c)
        return o * self.act(m, 2, c)

    def gru(self, m: Algebra, z: Number, candidate: Number, h: Number) -> Number:
        """New hidden state from the sums of the gate z and the candidate, and the old state."""
        z = self.act(m, 0, z)
        new = self.act(m, 1, candidate)
        return new + z * (h - new)

    def rnn(self, m: Algebra, total: Number) -> Number:
        """New hidden state from the sum."""
        return self.act(m, 0, total)


GATES: Final[Mapping[str, int]] = MappingProxyType({"lstm": 4, "gru": 3, "rnn": 1})
"""Gates of each kind of cell."""
DEFAULTS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"lstm": ("sigmoid", "tanh", "tanh"), "gru": ("sigmoid", "tanh"), "rnn": ("tanh",)}
)
"""Default activations of each kind of cell."""


def check_activations(ctx: InferCtx, given: Sequence[Activation], count: int) -> None:
    """Raise unless there are as many as the equations have, all known by name."""
    if len(given) != count:
        ctx.fail(f"expected {count} activations, got {len(given)}", code="attribute")
    for name, _, _ in given:
        if name not in ACTIVATIONS:
            ctx.fail(f"activation must be one of {', '.join(ACTIVATIONS)}, got '{name}'", code="attribute")
