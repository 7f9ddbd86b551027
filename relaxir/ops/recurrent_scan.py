"""The recurrence of one direction of a recurrent layer, on inputs that are projected already."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.common import FLOATS, check_dtype, check_same_dtype, tensors_of, widen
from relaxir.ops.recurrent_cells import DEFAULTS, GATES, ArrayAlgebra, check_activations
from relaxir.ops.recurrent_kernel import LANES, Kernel, Operands, ScanAttrs, present_operands
from relaxir.ops.recurrent_product import BYTES, byte_product
from relaxir.sym import mul
from relaxir.tir import PrimFunc

LSTM_FUNCTIONS: Final = (("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("tanh", 0.0, 0.0))
"""An LSTM's usual activations."""


class RecurrentScan(Op[ScanAttrs]):
    """One direction of an LSTM, GRU or RNN: ``h[t], c[t] = cell(gates[t] + h[t-1] @ weights, c[t-1])``.

    ``gates`` (steps, batch, k * hidden) are the projected inputs with their biases, gate by gate in ONNX's order (LSTM:
    i, o, f, c; GRU: z, r, h); ``weights`` (hidden, k * hidden) come in tiles of columns, one after the other:
    (tiles, hidden, columns of a tile), see `tile_lanes`. Further operands by attribute: the first cell state
    (LSTM), the candidate's recurrent bias (GRU with ``linear_before_reset``), the peephole weights (3 * hidden, order
    i, o, f), the lengths (batch, int32; those beyond the number of steps count as it, negative ones as 0). Results: the
    states of all steps (0 behind a sequence's end), the last state, and for LSTM the last cell state. 16-bit floats
    compute in float32. With ``quantized`` the weights are int8, (tiles, words, columns of a tile, 4), zeros behind the
    last element of the state, and every state that is multiplied is rounded to uint8 by its own range, as
    dynamic_quantize_linear has it; ``scale`` and ``sums`` (k * hidden) are the scale and the sum of each column of
    weights. TVM: none, ONNX: the recurrence of LSTM, GRU, RNN and com.microsoft's DynamicQuantizeLSTM.
    """

    name = "recurrent_scan"
    params = (
        Param("gates", "(steps, batch, k * hidden)", FLOATS),
        Param("weights", "(tiles, hidden, lanes), tiles * lanes = k * hidden, lanes divide hidden", (*FLOATS, "int8")),
        Param("h0", "(batch, hidden)", FLOATS),
        Param("more", "by attribute: c0, bias, peephole, lengths, scale, sums", variadic=True),
    )
    Attrs = ScanAttrs
    kind = OpKind.OPAQUE
    examples = (
        Example(("f32[s, b, 3]", "f32[1, 3, 3]", "f32[b, 3]"), ("f32[s, b, 3]", "f32[b, 3]")),
        Example(
            ("f32[s, b, 72]", "f32[4, 18, 18]", "f32[b, 18]", "f32[b, 18]"),
            ("f32[s, b, 18]", "f32[b, 18]", "f32[b, 18]"),
            ScanAttrs(cell="lstm", activations=LSTM_FUNCTIONS, reverse=True),
        ),
        Example(
            ("f32[s, b, 8]", "f32[4, 2, 2]", "f32[b, 2]", "f32[b, 2]", "f32[6]", "i32[b]"),
            ("f32[s, b, 2]", "f32[b, 2]", "f32[b, 2]"),
            ScanAttrs(
                cell="lstm",
                activations=(("hardsigmoid", 0.2, 0.5), ("softsign", 0.0, 0.0), ("elu", 1.0, 0.0)),
                clip=0.7,
                input_forget=True,
                peepholes=True,
                lengths=True,
            ),
        ),
        Example(
            ("f32[s, b, 6]", "f32[3, 2, 2]", "f32[b, 2]", "i32[b]"),
            ("f32[s, b, 2]", "f32[b, 2]"),
            ScanAttrs(
                cell="gru", activations=(("sigmoid", 0.0, 0.0), ("leakyrelu", 0.1, 0.0)), reverse=True, lengths=True
            ),
        ),
        Example(
            ("f16[s, b, 6]", "f16[3, 2, 2]", "f16[b, 2]", "f16[2]"),
            ("f16[s, b, 2]", "f16[b, 2]"),
            ScanAttrs(cell="gru", activations=(("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0)), linear_before_reset=True),
        ),
        Example(
            ("f32[s, b, 96]", "f32[6, 32, 16]", "f32[b, 32]"),
            ("f32[s, b, 32]", "f32[b, 32]"),
            ScanAttrs(cell="gru", activations=(("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0))),
            low=-0.5,
            high=0.5,
        ),
        Example(
            ("f64[s, b, 2]", "f64[1, 2, 2]", "f64[b, 2]"),
            ("f64[s, b, 2]", "f64[b, 2]"),
            ScanAttrs(activations=(("softplus", 0.0, 0.0),)),
            low=-1.0,
            high=0.2,
        ),
        Example(
            ("f32[s, b, 64]", "i8[4, 4, 16, 4]", "f32[b, 16]", "f32[b, 16]", "i32[b]", "f32[64]", "i32[64]"),
            ("f32[s, b, 16]", "f32[b, 16]", "f32[b, 16]"),
            ScanAttrs(cell="lstm", activations=LSTM_FUNCTIONS, reverse=True, lengths=True, quantized=True),
            values=(None, None, None, None, None, (0.004,) * 64, None),
            low=-9.0,
            high=9.0,
        ),
        Example(
            ("f32[s, b, 18]", "i8[3, 2, 6, 4]", "f32[b, 6]", "f32[18]", "i32[18]"),
            ("f32[s, b, 6]", "f32[b, 6]"),
            ScanAttrs(cell="gru", activations=(("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0)), quantized=True),
            values=(None, None, None, (0.01,) * 18, None),
            low=-9.0,
            high=9.0,
        ),
    )
    bad_examples = (
        BadExample(("f32[s, b, 4]", "f32[1, 3, 3]", "f32[b, 3]"), "shape-mismatch", "gates"),
        BadExample(("f32[s, b, 3]", "f64[1, 3, 3]", "f32[b, 3]"), "dtype-mismatch", "weights is float64"),
        BadExample(("f32[s, b, 3]", "f32[1, 3, 3]", "f32[b, 3]", "f32[b, 3]"), "arity", "operands"),
    )

    def infer(self, args: tuple[Type, ...], attrs: ScanAttrs, ctx: InferCtx) -> Type:
        """States of all steps, then the last ones."""
        names = present_operands(attrs)
        check_activations(ctx, attrs.activations, len(DEFAULTS[attrs.cell]))
        if len(args) != len(names):
            ctx.fail(f"expected {len(names)} operands ({', '.join(names)}), got {len(args)}", code="arity")
        types = tensors_of(ctx, args, names)
        _check_kinds(ctx, dict(zip(names, types, strict=True)), attrs)
        given = Operands.of(types, attrs)
        hidden = _hidden_size(ctx, given, attrs)
        _check_extents(ctx, given, attrs, hidden)
        steps, batch, _ = given.gates.shape
        dtype = types[0].dtype
        last = TensorType((batch, hidden), dtype)
        every = TensorType((steps, batch, hidden), dtype)
        return TupleType((every, last, last) if attrs.cell == "lstm" else (every, last))

    def lower(self, args: tuple[TensorType, ...], attrs: ScanAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Groups of sequences in parallel; in each a serial loop over the steps."""
        return Kernel(args, attrs, out).build()

    def reference(self, args: tuple[Array, ...], attrs: ScanAttrs) -> tuple[Array, ...]:
        """Step by step for all sequences at once."""
        given = Operands.of(args, attrs)
        gates, h = widen(given.gates), widen(given.h0)

        def product(source: Array, begin: int, end: int) -> Array:
            if attrs.quantized:
                return byte_product(source, given.weights, given.scale, given.sums)[:, begin:end]
            w = np.swapaxes(widen(given.weights), 0, 1).reshape(h.shape[1], -1)
            return np.asarray(source @ w[:, begin:end])

        c = None if given.c0 is None else widen(given.c0)
        steps, batch, _ = gates.shape
        lengths = np.full(batch, steps) if given.lengths is None else np.clip(given.lengths, 0, steps)
        y = np.zeros((steps, batch, h.shape[1]), given.gates.dtype)
        rows = np.arange(batch)
        for step in range(steps):
            live = step < lengths
            at = np.where(live, lengths - 1 - step if attrs.reverse else step, 0)
            new_h, new_c = _advance(attrs, given, gates[at, rows], product, h, c)
            h = np.where(live[:, None], new_h, h)
            c = None if c is None or new_c is None else np.where(live[:, None], new_c, c)
            y[at[live], rows[live]] = h[live]
        last = (h,) if c is None else (h, c)
        return (y, *(a.astype(given.gates.dtype) for a in last))


def tile_lanes(hidden: int) -> int:
    """Columns of a tile of weights: as many as registers take, where these divide the hidden size."""
    return hidden if hidden % LANES else LANES


def _advance(
    attrs: ScanAttrs,
    given: Operands,
    x: Array,
    product: Callable[[Array, int, int], Array],
    h: Array,
    c: Array | None,
) -> tuple[Array, Array | None]:
    m, cell, size = ArrayAlgebra(), attrs.equations, h.shape[1]

    def part(a: Array, k: int) -> Array:
        return a[..., k * size : (k + 1) * size]

    if attrs.cell == "gru":
        rest = product(h, 0, 2 * size)
        reset = cell.act(m, 0, part(x, 1) + part(rest, 1))
        if attrs.linear_before_reset:
            candidate = part(x, 2) + reset * (product(h, 2 * size, 3 * size) + widen(given.bias))
        else:
            candidate = part(x, 2) + product(reset * h, 2 * size, 3 * size)
        return cell.gru(m, part(x, 0) + part(rest, 0), candidate, h), None
    total = x + product(h, 0, x.shape[-1])
    if attrs.cell == "rnn":
        return cell.rnn(m, total), None
    assert c is not None
    peephole = None if given.peephole is None else [part(widen(given.peephole), k) for k in range(3)]
    gates = [part(total, k) for k in range(4)]
    new = cell.lstm_memory(m, gates, c, peephole)
    return cell.lstm_hidden(m, gates[1], new, peephole), new


def _check_kinds(ctx: InferCtx, types: Mapping[str, TensorType], attrs: ScanAttrs) -> None:
    """Dtypes and ranks of the operands, by name."""
    integers = {
        "lengths": ("int32", "int64"),
        **({"weights": ("int8",), "sums": ("int32",)} if attrs.quantized else {}),
    }
    floats = {n: t for n, t in types.items() if n not in integers}
    check_dtype(ctx, types["gates"], "gates", ("float32",) if attrs.quantized else FLOATS)
    check_same_dtype(ctx, list(floats.values()), list(floats))
    ranks = {"gates": 3, "weights": 4 if attrs.quantized else 3, "h0": 2, "c0": 2}
    for n, t in types.items():
        check_dtype(ctx, t, n, integers.get(n, FLOATS))
        if t.rank != ranks.get(n, 1):
            ctx.fail(f"{n} has rank {t.rank}, expected {ranks.get(n, 1)}", code="rank-mismatch")


def _hidden_size(ctx: InferCtx, given: Operands, attrs: ScanAttrs) -> int:
    """Numbers of a state: whole vectors of the weights' lanes."""
    tiles, depth, lanes = given.weights.shape[:3]
    hidden = given.h0.shape[1] if attrs.quantized else depth
    if not isinstance(hidden, int) or not isinstance(tiles, int) or not isinstance(lanes, int):
        ctx.fail("the hidden size and the tiles of weights must be numbers", code="attribute")
    if not lanes or hidden % lanes:
        ctx.fail(f"axis 2 of weights ({lanes}) does not divide the hidden size {hidden}", code="shape-mismatch")
    return hidden


def _check_extents(ctx: InferCtx, given: Operands, attrs: ScanAttrs, hidden: int) -> None:
    """Extents that operands share."""
    tiles, depth, lanes = given.weights.shape[:3]
    _, batch, width = given.gates.shape
    wanted = GATES[attrs.cell] * hidden
    ctx.require_equal(width, wanted, "axis 2 of gates and the gates of a state")
    ctx.require_equal(mul(tiles, lanes), wanted, "the columns of weights and the gates of a state")
    if attrs.quantized:
        ctx.require_equal(depth, -(-hidden // BYTES), "axis 1 of weights and the words of a state")
        ctx.require_equal(given.weights.shape[3], BYTES, "axis 3 of weights and the bytes of a word")
    for t, n in ((given.h0, "h0"), (given.c0, "c0")):
        if t is not None:
            ctx.require_equal(t.shape[0], batch, f"axis 0 of {n} and axis 1 of gates")
            ctx.require_equal(t.shape[1], hidden, f"axis 1 of {n} and the hidden size")
    vectors = (
        (given.bias, "bias", hidden),
        (given.peephole, "peephole", 3 * hidden),
        (given.lengths, "lengths", batch),
        (given.scale, "scale", wanted),
        (given.sums, "sums", wanted),
    )
    for t, n, extent in vectors:
        if t is not None:
            ctx.require_equal(t.shape[0], extent, f"axis 0 of {n} and what gates and weights ask for")


RECURRENT_SCAN: Final = (RecurrentScan(),)
