"""Recurrent layers: LSTM, GRU, RNN."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Final, Literal

import numpy as np

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, Expr, TupleExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.binary import BINARY
from relaxir.ops.common import FLOATS, check_dtype, check_same_dtype, tensors_of
from relaxir.ops.joining import JOINING
from relaxir.ops.kernels import emit_op
from relaxir.ops.matmul import MATMUL, wide_matmul
from relaxir.ops.movement import MOVEMENT
from relaxir.ops.recurrent_cells import ACTIVATIONS, DEFAULTS, GATES, Activation, CellAttrs, CellName, check_activations
from relaxir.ops.recurrent_kernel import ScanAttrs
from relaxir.ops.recurrent_scan import RECURRENT_SCAN, tile_lanes
from relaxir.ops.slicing import SLICING
from relaxir.sym import DimLike

Direction = Literal["forward", "reverse", "bidirectional"]
PARTS: Final[Mapping[str, Op[Any]]] = MappingProxyType(
    {o.name: o for o in (*BINARY, *JOINING, *MATMUL, *MOVEMENT, *RECURRENT_SCAN, *SLICING)}
)
"""Operators of the decomposition by name."""


@dataclass(frozen=True, slots=True)
class LayerAttrs(CellAttrs):
    """Attributes of recurrent layers."""

    direction: Direction = "forward"
    """Which ways the sequences are read."""
    activations: tuple[Activation, ...] = ()
    """Name, alpha and beta of each activation, direction after direction; empty: sigmoid for gates, else tanh."""

    @property
    def reversed(self) -> tuple[bool, ...]:
        """For each direction whether sequences run from their end."""
        return {"forward": (False,), "reverse": (True,), "bidirectional": (False, True)}[self.direction]


class Way:
    """One direction of a decomposition."""

    def __init__(self, given: dict[str, Expr], attrs: ScanAttrs, way: int, bb: BlockBuilder) -> None:
        self.given = given
        self.bb = bb
        self.way = way
        self.attrs = attrs

    def emit(self, name: str, *args: Expr, **attrs: Any) -> Expr:
        """One operator."""
        op = PARTS[name]
        return emit_op(self.bb, op, *args, attrs=op.Attrs(**attrs))

    def own(self, name: str) -> Expr:
        """The part of an operand for one direction, without the axis of directions."""
        x = self.given[name]
        assert isinstance(x.type, TensorType)
        part = x
        if x.type.shape[0] != 1:
            part = self.emit("strided_slice", x, axes=(0,), begin=(self.way,), size=(1,))
        return self.emit("reshape", part, shape=x.type.shape[1:])

    def cut(self, x: Expr, begin: int, size: int) -> Expr:
        """A part of a vector."""
        return self.emit("strided_slice", x, axes=(0,), begin=(begin,), size=(size,))

    def scan_operands(self) -> tuple[Expr, ...]:
        """Operands of the recurrence: the projection of all steps, weights in tiles, first states and the rest."""
        recurrent = self.own("r")
        hidden = self.depth(recurrent)
        width = GATES[self.attrs.cell] * hidden
        weights, *scales = self.weights(recurrent, hidden, width)
        both = self.own("b")
        own, rest = self.cut(both, 0, width), self.cut(both, width, width)
        more: list[Expr] = [self.own("c0")] if "c0" in self.given else []
        if self.attrs.linear_before_reset:
            shared = self.emit("add", self.cut(own, 0, 2 * hidden), self.cut(rest, 0, 2 * hidden))
            bias = self.emit("concat", shared, self.cut(own, 2 * hidden, hidden))
            more.append(self.cut(rest, 2 * hidden, hidden))
        else:
            bias = self.emit("add", own, rest)
        if self.attrs.peepholes:
            more.append(self.own("peephole"))
        if self.attrs.lengths:
            more.append(self.given["lengths"])
        return self.projected(bias), weights, self.own("h0"), *more, *scales

    def states(self, operands: tuple[Expr, ...]) -> list[Expr]:
        """States of all steps and last states."""
        call = emit_op(self.bb, RECURRENT_SCAN[0], *operands, attrs=self.attrs)
        assert isinstance(call.type, TupleType)
        return [self.bb.item(call, k) for k in range(len(call.type.fields))]

    def depth(self, recurrent: Expr) -> int:
        """The hidden size, from one direction's recurrent weights."""
        assert isinstance(recurrent.type, TensorType)
        return int(recurrent.type.shape[1])

    def weights(self, recurrent: Expr, hidden: int, width: int) -> tuple[Expr, ...]:
        """What `recurrent_scan` multiplies states with: tiles of columns."""
        lanes = tile_lanes(hidden)
        tiled = self.emit("reshape", recurrent, shape=(width // lanes, lanes, hidden))
        return (self.emit("permute_dims", tiled, axes=(0, 2, 1)),)

    def projected(self, bias: Expr) -> Expr:
        """The inputs of all steps, for all gates."""
        return self.emit("linear", self.given["x"], self.own("w"), bias)


class Layer(Op[LayerAttrs]):
    """Base of recurrent layers: the projection of all steps at once, then a recurrence for each direction."""

    Attrs = LayerAttrs
    kind = OpKind.OPAQUE
    cell: ClassVar[CellName]
    inputs_last: ClassVar[bool] = True  # w is (directions, gates, in), r likewise; else (directions, in, gates)
    integers: ClassVar[tuple[str, ...]] = ("lengths",)  # operands that are not floats
    extra: ClassVar[tuple[str, ...]] = ()  # further operands, behind the states
    way: ClassVar[type[Way]] = Way

    def names(self, attrs: LayerAttrs) -> tuple[str, ...]:
        """Names of the operands that a call has."""
        states = ("h0", "c0") if self.cell == "lstm" else ("h0",)
        more = (("peephole", attrs.peepholes), ("lengths", attrs.lengths))
        return ("x", "w", "r", "b", *states, *self.extra, *(name for name, there in more if there))

    def shapes(self, ways: int, batch: DimLike, width: DimLike, hidden: int) -> dict[str, tuple[DimLike, ...]]:
        """Shapes of all operands but x."""
        gates = GATES[self.cell] * hidden
        weights = {"w": (gates, width), "r": (gates, hidden)}
        return {
            **{n: (ways, *(s if self.inputs_last else s[::-1])) for n, s in weights.items()},
            "b": (ways, 2 * gates),
            "h0": (ways, batch, hidden),
            "c0": (ways, batch, hidden),
            "peephole": (ways, 3 * hidden),
            "lengths": (batch,),
            **dict.fromkeys(self.extra, (ways, gates)),
        }

    def infer(self, args: tuple[Type, ...], attrs: LayerAttrs, ctx: InferCtx) -> Type:
        """States of all steps, then the last ones."""
        names = self.names(attrs)
        ways = len(attrs.reversed)
        if attrs.activations:
            check_activations(ctx, attrs.activations, ways * len(DEFAULTS[self.cell]))
        if len(args) != len(names):
            ctx.fail(f"expected {len(names)} operands ({', '.join(names)}), got {len(args)}", code="arity")
        types = dict(zip(names, tensors_of(ctx, args, names), strict=True))
        check_dtype(ctx, types["x"], "x", FLOATS)
        floats = [n for n in names if n not in self.integers]
        check_same_dtype(ctx, [types[n] for n in floats], floats)
        if types["x"].rank != 3 or types["r"].rank != 3:
            ctx.fail(f"x has rank {types['x'].rank} and r rank {types['r'].rank}, expected 3", code="rank-mismatch")
        (steps, batch, width), hidden = types["x"].shape, types["r"].shape[2 if self.inputs_last else 1]
        if not isinstance(hidden, int):
            ctx.fail("the hidden size must be a number", code="attribute")
        shapes = self.shapes(ways, batch, width, hidden)
        for n in names[1:]:
            if types[n].rank != len(shapes[n]):
                ctx.fail(f"{n} has rank {types[n].rank}, expected {len(shapes[n])}", code="rank-mismatch")
            for axis, (have, want) in enumerate(zip(types[n].shape, shapes[n], strict=True)):
                ctx.require_equal(have, want, f"axis {axis} of {n} and what x, r and the direction ask for")
        dtype = types["x"].dtype
        last = TensorType((ways, batch, hidden), dtype)
        every = TensorType((steps, ways, batch, hidden), dtype)
        return TupleType((every, last, last) if self.cell == "lstm" else (every, last))

    def scan_attrs(self, attrs: LayerAttrs, way: int) -> ScanAttrs:
        """Attributes of one direction's recurrence."""
        each = len(DEFAULTS[self.cell])
        default = tuple((name, *ACTIVATIONS[name][1:]) for name in DEFAULTS[self.cell])
        chosen = attrs.activations[way * each : (way + 1) * each] or default
        return ScanAttrs(
            clip=attrs.clip,
            linear_before_reset=attrs.linear_before_reset and self.cell == "gru",
            input_forget=attrs.input_forget,
            peepholes=attrs.peepholes,
            lengths=attrs.lengths,
            cell=self.cell,
            activations=chosen,
            reverse=attrs.reversed[way],
        )

    def decompose(self, args: tuple[Expr, ...], attrs: LayerAttrs, bb: BlockBuilder) -> Expr | None:
        """For each direction a linear layer and a `recurrent_scan`; weights are turned at compile time if known.

        The scans of both directions stand next to one another, so that they may run side by side.
        """
        given = dict(zip(self.names(attrs), args, strict=True))
        ways = [self.way(given, self.scan_attrs(attrs, way), way, bb) for way in range(len(attrs.reversed))]
        calls = [way.scan_operands() for way in ways]
        states = [way.states(operands) for way, operands in zip(ways, calls, strict=True)]
        stacked = [_stack(bb, [s[k] for s in states], 1 if k == 0 else 0) for k in range(len(states[0]))]
        return TupleExpr(tuple(stacked))

    def reference(self, args: tuple[Array, ...], attrs: LayerAttrs) -> tuple[Array, ...]:
        """`projection`, then the reference of the recurrence."""
        given = dict(zip(self.names(attrs), args, strict=True))
        hidden, found = given["h0"].shape[2], []
        for way in range(len(attrs.reversed)):
            own = {n: a if n in ("x", "lengths") else a[way] for n, a in given.items()}
            bias, rest = np.split(own["b"], 2)
            scan = self.scan_attrs(attrs, way)
            if scan.linear_before_reset:
                own["bias"] = rest[2 * hidden :]
                rest = np.concatenate((rest[: 2 * hidden], np.zeros_like(own["bias"])))
            gates, tiles, *scales = self.projection(own, bias + rest)
            more = (own[n] for n in ("c0", "bias", "peephole", "lengths") if n in own)
            found.append(RECURRENT_SCAN[0].reference((gates, tiles, own["h0"], *more, *scales), scan))
        return tuple(np.stack([f[k] for f in found], 1 if k == 0 else 0) for k in range(len(found[0])))

    def projection(self, own: dict[str, Array], bias: Array) -> tuple[Array, ...]:
        """For the reference: the inputs of one direction projected (in double), and its weights for the recurrence."""
        hidden = own["h0"].shape[1]
        gates = (wide_matmul(own["x"], own["w"].T) + bias).astype(own["x"].dtype)
        return gates, np.swapaxes(own["r"].reshape(-1, tile_lanes(hidden), hidden), 1, 2)


def _stack(bb: BlockBuilder, parts: list[Expr], axis: int) -> Expr:
    """Directions along a new axis; one direction is a view."""
    (first, *_) = parts
    assert isinstance(first.type, TensorType)
    if len(parts) > 1:
        op = PARTS["stack"]
        return emit_op(bb, op, *parts, attrs=op.Attrs(axis))  # type: ignore[call-arg]  # attributes of stack
    shape = (*first.type.shape[:axis], 1, *first.type.shape[axis:])
    op = PARTS["reshape"]
    return emit_op(bb, op, first, attrs=op.Attrs(shape))  # type: ignore[call-arg]  # attributes of reshape


MORE: Final = Param("more", "by attribute: peephole (directions, 3 * hidden), lengths (batch,)", variadic=True)


def _params(*extra: Param) -> tuple[Param, ...]:
    return (
        Param("x", "(steps, batch, in)", FLOATS),
        Param("w", "(directions, gates * hidden, in)", FLOATS),
        Param("r", "(directions, gates * hidden, hidden)", FLOATS),
        Param("b", "(directions, 2 * gates * hidden)", FLOATS),
        Param("h0", "(directions, batch, hidden)", FLOATS),
        *extra,
        MORE,
    )


class LSTM(Layer):
    """Long short-term memory, gates in the order i, o, f, c.

    ``i, f = sigmoid(x @ Wi + h @ Ri + bi [+ Pi * c]), ...``; ``c' = f * c + i * tanh(x @ Wc + h @ Rc + bc)``;
    ``h' = sigmoid(x @ Wo + h @ Ro + bo [+ Po * c']) * tanh(c')``. The bias holds that of the inputs, then that of the
    state. Steps after a sequence's length give 0, and the last states are those of its last step. Results:
    y (steps, directions, batch, hidden), h and c (directions, batch, hidden). TVM: none, ONNX: LSTM with layout 0.
    """

    name = "lstm"
    cell = "lstm"
    params = _params(Param("c0", "(directions, batch, hidden)", FLOATS))
    examples = (
        Example(
            ("f32[s, b, 5]", "f32[2, 12, 5]", "f32[2, 12, 3]", "f32[2, 24]", "f32[2, b, 3]", "f32[2, b, 3]",
             "f32[2, 9]", "i32[b]"),
            ("f32[s, 2, b, 3]", "f32[2, b, 3]", "f32[2, b, 3]"),
            LayerAttrs(direction="bidirectional", peepholes=True, lengths=True),
        ),
        Example(
            ("f32[s, b, n]", "f32[1, 8, n]", "f32[1, 8, 2]", "f32[1, 16]", "f32[1, b, 2]", "f32[1, b, 2]"),
            ("f32[s, 1, b, 2]", "f32[1, b, 2]", "f32[1, b, 2]"),
            LayerAttrs(direction="reverse", clip=0.5),
        ),
    )  # fmt: skip
    bad_examples = (
        BadExample(
            ("f32[s, b, 5]", "f32[1, 12, 4]", "f32[1, 12, 3]", "f32[1, 24]", "f32[1, b, 3]", "f32[1, b, 3]"),
            "shape-mismatch",
            "axis 2 of w",
        ),
    )


class GRU(Layer):
    """Gated recurrent unit, gates in the order z, r, h.

    ``z, r = sigmoid(x @ W + h @ R + b)``; the candidate is ``n = tanh(x @ Wh + (r * h) @ Rh + bh)``, with
    ``linear_before_reset`` ``tanh(x @ Wh + bh + r * (h @ Rh + rh))``; ``h' = (1 - z) * n + z * h``. Lengths, bias and
    results as those of lstm, without c. TVM: none, ONNX: GRU with layout 0.
    """

    name = "gru"
    cell = "gru"
    params = _params()
    examples = (
        Example(
            ("f32[s, b, 5]", "f32[2, 9, 5]", "f32[2, 9, 3]", "f32[2, 18]", "f32[2, b, 3]"),
            ("f32[s, 2, b, 3]", "f32[2, b, 3]"),
            LayerAttrs(direction="bidirectional", linear_before_reset=True),
        ),
        Example(
            ("f32[s, b, 5]", "f32[1, 9, 5]", "f32[1, 9, 3]", "f32[1, 18]", "f32[1, b, 3]", "i32[b]"),
            ("f32[s, 1, b, 3]", "f32[1, b, 3]"),
            LayerAttrs(lengths=True),
        ),
    )
    bad_examples = (
        BadExample(("f32[s, b, 5]", "f32[1, 9, 5]", "f32[1, 9, 3]", "f32[1, 18]"), "arity", "operands"),
        BadExample(
            ("f32[s, b, 5]", "f32[1, 9, 5]", "f32[1, 9, 3]", "f32[1, 18]", "f32[1, b, 3]"),
            "attribute",
            "activation",
            LayerAttrs(activations=(("none", 0.0, 0.0), ("tanh", 0.0, 0.0))),
        ),
    )


class RNN(Layer):
    """Plain recurrent layer: ``h' = tanh(x @ W + h @ R + b)``.

    Lengths, bias and results as those of lstm, without c. TVM: none, ONNX: RNN with layout 0.
    """

    name = "rnn"
    cell = "rnn"
    params = _params()
    examples = (
        Example(
            ("f32[s, b, 5]", "f32[2, 3, 5]", "f32[2, 3, 3]", "f32[2, 6]", "f32[2, b, 3]", "i32[b]"),
            ("f32[s, 2, b, 3]", "f32[2, b, 3]"),
            LayerAttrs(direction="bidirectional", activations=(("relu", 0.0, 0.0), ("affine", 0.5, 0.1)), lengths=True),
        ),
    )
    bad_examples = (
        BadExample(
            ("f32[s, b]", "f32[1, 3, 5]", "f32[1, 3, 3]", "f32[1, 6]", "f32[1, b, 3]"), "rank-mismatch", "x has rank 2"
        ),
    )


RECURRENT: Final = (GRU(), LSTM(), RNN(), *RECURRENT_SCAN)
