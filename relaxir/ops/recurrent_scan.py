"""The recurrence of one direction of a recurrent layer, on inputs that are projected already."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.op import Attrs, BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.common import FLOATS, check_dtype, check_same_dtype, compute_dtype, load_wide, tensors_of, widen
from relaxir.ops.kernels import input_of, let, loop, output_of, seq
from relaxir.ops.recurrent_cells import GATES, ArrayAlgebra, Cell, ProgramAlgebra
from relaxir.sym import ceildiv
from relaxir.tir import (
    Alloc,
    BinOp,
    Buffer,
    Combine,
    Expr,
    For,
    ForKind,
    If,
    PrimFunc,
    ProgramBuilder,
    Scope,
    Stmt,
    Store,
    Var,
    as_expr,
    binary,
    cast,
    const,
)

ROWS: Final = 4
"""Sequences whose products share the loads of a weight."""
LANES: Final = 16
"""Columns of a product kept in registers for several sequences; one sequence has more."""


@dataclass(frozen=True, slots=True)
class ScanAttrs(Attrs):
    """Attributes of `RecurrentScan`."""

    cell: str = "rnn"
    """``lstm``, ``gru`` or ``rnn``."""
    activations: tuple[tuple[str, float, float], ...] = (("tanh", 0.0, 0.0),)
    """Name, alpha and beta of each activation, in ONNX's order."""
    reverse: bool = False
    """Each sequence runs from its end."""
    clip: float = 0.0
    """Limit of the arguments of activations; 0: none."""
    linear_before_reset: bool = False
    """A GRU's reset gate scales the product with the state (and its bias), not the state."""
    input_forget: bool = False
    """An LSTM's forget gate is one minus the input gate."""
    peepholes: bool = False
    """An LSTM's gates see the cell state."""
    lengths: bool = False
    """There is an operand with the length of each sequence."""

    @property
    def equations(self) -> Cell:
        """What the cell's equations need."""
        return Cell(self.activations, self.clip, self.input_forget)


@dataclass(frozen=True, slots=True)
class Operands:
    """Operands by role, None where an attribute leaves them out; the order is that of the fields."""

    gates: Any
    weights: Any
    h0: Any
    c0: Any = None
    bias: Any = None
    peephole: Any = None
    lengths: Any = None

    @staticmethod
    def of(args: tuple[Any, ...], attrs: ScanAttrs) -> Operands:
        """Operands of a call."""
        rest = list(args[3:])
        present = present_operands(attrs)
        return Operands(*args[:3], **{name: rest.pop(0) for name in present[3:] if rest})


def present_operands(attrs: ScanAttrs) -> tuple[str, ...]:
    """Names of the operands that a call has."""
    wanted = {
        "c0": attrs.cell == "lstm",
        "bias": attrs.cell == "gru" and attrs.linear_before_reset,
        "peephole": attrs.cell == "lstm" and attrs.peepholes,
        "lengths": attrs.lengths,
    }
    return tuple(f.name for f in fields(Operands) if wanted.get(f.name, True))


class RecurrentScan(Op[ScanAttrs]):
    """One direction of an LSTM, GRU or RNN: ``h[t], c[t] = cell(gates[t] + h[t-1] @ weights, c[t-1])``.

    ``gates`` (steps, batch, k * hidden) are the projected inputs with their biases, gate by gate in ONNX's order (LSTM:
    i, o, f, c; GRU: z, r, h); ``weights`` are (hidden, k * hidden). Further operands by attribute: the first cell state
    (LSTM), the candidate's recurrent bias (GRU with ``linear_before_reset``), the peephole weights (3 * hidden, order
    i, o, f), the lengths (batch, int32; those beyond the number of steps count as it, negative ones as 0). Results: the
    states of all steps (0 behind a sequence's end), the last state, and for LSTM the last cell state. 16-bit floats
    compute in float32. TVM: none, ONNX: the recurrence of LSTM, GRU and RNN.
    """

    name = "recurrent_scan"
    params = (
        Param("gates", "(steps, batch, k * hidden)", FLOATS),
        Param("weights", "(hidden, k * hidden)", FLOATS),
        Param("h0", "(batch, hidden)", FLOATS),
        Param("more", "by attribute: c0, bias, peephole, lengths", variadic=True),
    )
    Attrs = ScanAttrs
    kind = OpKind.OPAQUE
    examples = (
        Example(("f32[s, b, 3]", "f32[3, 3]", "f32[b, 3]"), ("f32[s, b, 3]", "f32[b, 3]")),
        Example(
            ("f32[s, b, 72]", "f32[18, 72]", "f32[b, 18]", "f32[b, 18]"),
            ("f32[s, b, 18]", "f32[b, 18]", "f32[b, 18]"),
            ScanAttrs("lstm", (("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("tanh", 0.0, 0.0)), reverse=True),
        ),
        Example(
            ("f32[s, b, 8]", "f32[2, 8]", "f32[b, 2]", "f32[b, 2]", "f32[6]", "i32[b]"),
            ("f32[s, b, 2]", "f32[b, 2]", "f32[b, 2]"),
            ScanAttrs(
                "lstm",
                (("hardsigmoid", 0.2, 0.5), ("softsign", 0.0, 0.0), ("elu", 1.0, 0.0)),
                clip=0.7,
                input_forget=True,
                peepholes=True,
                lengths=True,
            ),
        ),
        Example(
            ("f32[s, b, 6]", "f32[2, 6]", "f32[b, 2]", "i32[b]"),
            ("f32[s, b, 2]", "f32[b, 2]"),
            ScanAttrs("gru", (("sigmoid", 0.0, 0.0), ("leakyrelu", 0.1, 0.0)), reverse=True, lengths=True),
        ),
        Example(
            ("f16[s, b, 6]", "f16[2, 6]", "f16[b, 2]", "f16[2]"),
            ("f16[s, b, 2]", "f16[b, 2]"),
            ScanAttrs("gru", (("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0)), linear_before_reset=True),
        ),
        Example(
            ("f64[s, b, 2]", "f64[2, 2]", "f64[b, 2]"),
            ("f64[s, b, 2]", "f64[b, 2]"),
            ScanAttrs(activations=(("softplus", 0.0, 0.0),)),
            low=-1.0,
            high=0.2,
        ),
    )
    bad_examples = (
        BadExample(("f32[s, b, 4]", "f32[3, 3]", "f32[b, 3]"), "shape-mismatch", "gates"),
        BadExample(("f32[s, b, 3]", "f64[3, 3]", "f32[b, 3]"), "dtype-mismatch", "weights is float64"),
        BadExample(("f32[s, b, 3]", "f32[3, 3]", "f32[b, 3]", "f32[b, 3]"), "arity", "operands"),
    )

    def infer(self, args: tuple[Type, ...], attrs: ScanAttrs, ctx: InferCtx) -> Type:
        """States of all steps, then the last ones."""
        names = present_operands(attrs)
        if attrs.cell not in GATES:
            ctx.fail(f"cell must be one of {', '.join(GATES)}, got {attrs.cell!r}", code="attribute")
        if len(args) != len(names):
            ctx.fail(f"expected {len(names)} operands ({', '.join(names)}), got {len(args)}", code="arity")
        types = tensors_of(ctx, args, names)
        floats = [(t, n) for t, n in zip(types, names, strict=True) if n != "lengths"]
        check_dtype(ctx, types[0], "gates", FLOATS)
        check_same_dtype(ctx, [t for t, _ in floats], [n for _, n in floats])
        given = Operands.of(types, attrs)
        ranks = {"gates": 3, "weights": 2, "h0": 2, "c0": 2, "bias": 1, "peephole": 1, "lengths": 1}
        for t, n in zip(types, names, strict=True):
            if t.rank != ranks[n]:
                ctx.fail(f"{n} has rank {t.rank}, expected {ranks[n]}", code="rank-mismatch")
        hidden = given.weights.shape[0]
        if not isinstance(hidden, int):
            ctx.fail("the hidden size must be a number", code="attribute")
        steps, batch, width = given.gates.shape
        wanted = GATES[attrs.cell] * hidden
        ctx.require_equal(width, wanted, "axis 2 of gates and the gates of a state")
        ctx.require_equal(given.weights.shape[1], wanted, "axis 1 of weights and the gates of a state")
        for t, n in ((given.h0, "h0"), (given.c0, "c0")):
            if t is not None:
                ctx.require_equal(t.shape[0], batch, f"axis 0 of {n} and axis 1 of gates")
                ctx.require_equal(t.shape[1], hidden, f"axis 1 of {n} and the hidden size")
        if given.bias is not None:
            ctx.require_equal(given.bias.shape[0], hidden, "axis 0 of bias and the hidden size")
        if given.peephole is not None:
            ctx.require_equal(given.peephole.shape[0], 3 * hidden, "axis 0 of peephole and three hidden sizes")
        if given.lengths is not None:
            check_dtype(ctx, given.lengths, "lengths", ("int32", "int64"))
            ctx.require_equal(given.lengths.shape[0], batch, "axis 0 of lengths and axis 1 of gates")
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
        gates, w, h = (widen(a) for a in (given.gates, given.weights, given.h0))
        c = None if given.c0 is None else widen(given.c0)
        steps, batch, _ = gates.shape
        lengths = np.full(batch, steps) if given.lengths is None else np.clip(given.lengths, 0, steps)
        y = np.zeros((steps, batch, h.shape[1]), given.gates.dtype)
        rows = np.arange(batch)
        for step in range(steps):
            live = step < lengths
            at = np.where(live, lengths - 1 - step if attrs.reverse else step, 0)
            new_h, new_c = _advance(attrs, given, gates[at, rows], w, h, c)
            h = np.where(live[:, None], new_h, h)
            c = None if c is None or new_c is None else np.where(live[:, None], new_c, c)
            y[at[live], rows[live]] = h[live]
        last = (h,) if c is None else (h, c)
        return (y, *(a.astype(given.gates.dtype) for a in last))


def _advance(
    attrs: ScanAttrs, given: Operands, x: Array, w: Array, h: Array, c: Array | None
) -> tuple[Array, Array | None]:
    m, cell, size = ArrayAlgebra(), attrs.equations, h.shape[1]

    def part(a: Array, k: int) -> Array:
        return a[..., k * size : (k + 1) * size]

    if attrs.cell == "gru":
        rest = h @ w[:, : 2 * size]
        reset = cell.act(m, 0, part(x, 1) + part(rest, 1))
        last = w[:, 2 * size :]
        if attrs.linear_before_reset:
            candidate = part(x, 2) + reset * (h @ last + widen(given.bias))
        else:
            candidate = part(x, 2) + (reset * h) @ last
        return cell.gru(m, part(x, 0) + part(rest, 0), candidate, h), None
    total = x + h @ w
    if attrs.cell == "rnn":
        return cell.rnn(m, total), None
    assert c is not None
    peephole = None if given.peephole is None else [part(widen(given.peephole), k) for k in range(3)]
    gates = [part(total, k) for k in range(4)]
    new = cell.lstm_memory(m, gates, c, peephole)
    return cell.lstm_hidden(m, gates[1], new, peephole), new


class Kernel:
    """The tensor program of one call."""

    def __init__(self, args: tuple[TensorType, ...], attrs: ScanAttrs, out: tuple[TensorType, ...]) -> None:
        self.f = ProgramBuilder("recurrent_scan")
        self.attrs = attrs
        self.cell, self.m = attrs.equations, ProgramAlgebra()
        names = present_operands(attrs)
        self.given = Operands.of(tuple(input_of(self.f, n, t) for n, t in zip(names, args, strict=True)), attrs)
        self.outs = [output_of(self.f, n, t) for n, t in zip(("y", "h", "c"), out, strict=False)]
        self.steps, self.batch, _ = out[0].shape
        self.size = int(args[1].shape[0])
        self.wide = compute_dtype(out[0].dtype)
        self.state = self.f.temp("state", (self.batch, self.size), self.wide)
        self.memory = self.f.temp("memory", (self.batch, self.size), self.wide) if attrs.cell == "lstm" else None
        self.sums = self.f.temp("sums", (self.batch, GATES[attrs.cell] * self.size), self.wide)
        before = attrs.cell == "gru" and not attrs.linear_before_reset
        self.scaled = self.f.temp("scaled", (self.batch, self.size), self.wide) if before else None

    def build(self) -> PrimFunc:
        """Groups of sequences in parallel."""
        group = Var("group")
        first = group * ROWS
        count = as_expr(self.batch) - first
        whole, part = self.sequences(first, const(ROWS), True), self.sequences(first, count, False)
        self.f.emit(For(group, as_expr(ceildiv(self.batch, ROWS)), If(count >= ROWS, whole, part), ForKind.PARALLEL))
        return self.f.build()

    def sequences(self, first: Expr, count: Expr, whole: bool) -> Stmt:
        """A group of sequences from the first step to the last; a whole group shares the loads of the weights."""

        def product(source: Buffer, low: int, high: int) -> Stmt:
            if whole:
                return self.product(source, first, ROWS, LANES, low, high)
            return loop("row", count, lambda r: self.product(source, first + r, 1, 4 * LANES, low, high))

        def rows(body: Callable[[Expr], Stmt]) -> Stmt:
            return loop("row", count, lambda r: body(first + r))

        def one_step(step: Var) -> Stmt:
            update = rows(lambda n: self.at_step(n, step, lambda at: self.update(n, at), lambda: self.clear(n, step)))
            if self.scaled is None:
                return seq(product(self.state, 0, int(self.sums.shape[1])), update)
            reset = rows(lambda n: self.at_step(n, step, lambda at: self.lanes(lambda j: self.reset(n, j, at))))
            gates = product(self.state, 0, 2 * self.size)
            return seq(gates, reset, product(self.scaled, 2 * self.size, 3 * self.size), update)

        begin = rows(lambda n: self.lanes(lambda j: self.begin(n, j)))
        end = rows(lambda n: self.lanes(lambda j: self.end(n, j)))
        return seq(begin, loop("step", self.steps, one_step), end)

    def at_step(
        self, n: Expr, step: Expr, body: Callable[[Expr], Stmt], other: Callable[[], Stmt] | None = None
    ) -> Stmt:
        """What a sequence does in a step, at its own place in time; ``other`` after its end."""
        if self.given.lengths is None:
            return body(as_expr(self.steps) - 1 - step if self.attrs.reverse else step)
        given = cast(self.given.lengths[n], "int64")
        length = binary(BinOp.MIN, given, as_expr(self.steps))
        place = length - 1 - step if self.attrs.reverse else step
        return If(step < length, let("at", place, body), None if other is None else other())

    def lanes(self, body: Callable[[Var], Stmt]) -> Stmt:
        """A vector loop over the elements of a state."""
        j = Var("j")
        return For(j, const(self.size), body(j), ForKind.VECTOR)

    def begin(self, n: Expr, j: Expr) -> Stmt:
        """First states."""
        stores: list[Stmt] = [Store(self.state, (n, j), load_wide(self.given.h0, (n, j)))]
        if self.memory is not None:
            stores.append(Store(self.memory, (n, j), load_wide(self.given.c0, (n, j))))
        if self.scaled is not None:
            stores.append(Store(self.scaled, (n, j), const(0.0, self.wide)))
        return seq(*stores)

    def end(self, n: Expr, j: Expr) -> Stmt:
        """Last states."""
        sources = [self.state] if self.memory is None else [self.state, self.memory]
        pairs = zip(self.outs[1:], sources, strict=True)
        return seq(*(Store(o, (n, j), cast(s[n, j], o.dtype)) for o, s in pairs))

    def product(self, source: Buffer, first: Expr, rows: int, lanes: int, low: int, high: int) -> Stmt:
        """``sums[:, low:high] = source @ weights[:, low:high]`` for some sequences, tile by tile in registers."""
        whole, rest = divmod(high - low, lanes)
        stmts: list[Stmt] = []
        if whole:
            stmts.append(loop("tile", whole, lambda t: self.tile(source, first, rows, lanes, t * lanes + low)))
        if rest:
            stmts.append(self.tile(source, first, rows, rest, const(low + whole * lanes)))
        return seq(*stmts)

    def tile(self, source: Buffer, first: Expr, rows: int, lanes: int, column: Expr) -> Stmt:
        """One tile of a product."""
        acc = Buffer("acc", (rows, lanes), self.wide, Scope.REGISTER)

        def each(body: Callable[[Var, Var], Stmt]) -> Stmt:
            r, j = Var("r"), Var("j")
            return For(r, const(rows), For(j, const(lanes), body(r, j), ForKind.VECTOR), ForKind.UNROLL)

        def term(k: Expr, r: Expr, j: Expr) -> Stmt:
            value = source[first + r, k] * load_wide(self.given.weights, (k, column + j))
            return Store(acc, (r, j), value, Combine.SUM)

        return Alloc(
            acc,
            seq(
                each(lambda r, j: Store(acc, (r, j), const(0.0, self.wide))),
                loop("k", self.size, lambda k: each(lambda r, j: term(k, r, j))),
                each(lambda r, j: Store(self.sums, (first + r, column + j), acc[r, j])),
            ),
        )

    def gate(self, n: Expr, j: Expr, at: Expr, k: int) -> Expr:
        """The sum of a gate: its input and its product."""
        column = j + k * self.size
        return load_wide(self.given.gates, (at, n, column)) + self.sums[n, column]

    def reset(self, n: Expr, j: Expr, at: Expr) -> Stmt:
        """The state scaled by a GRU's reset gate."""
        assert self.scaled is not None
        return Store(self.scaled, (n, j), self.cell.act(self.m, 0, self.gate(n, j, at, 1)) * self.state[n, j])

    def clear(self, n: Expr, step: Expr) -> Stmt:
        """A step after the end of a sequence."""
        y = self.outs[0]
        return self.lanes(lambda j: Store(y, (step, n, j), const(0.0, y.dtype)))

    def update(self, n: Expr, at: Expr) -> Stmt:
        """New states of a sequence."""
        return self.lanes(lambda j: self.advance(n, j, at))

    def advance(self, n: Expr, j: Expr, at: Expr) -> Stmt:
        """New states of one element."""
        y = self.outs[0]

        def keep(h: Expr) -> Stmt:
            return let(
                "h", h, lambda v: seq(Store(self.state, (n, j), v), Store(y, (at, n, j), cast(v, y.dtype)))
            )

        if self.attrs.cell == "rnn":
            return keep(self.cell.rnn(self.m, self.gate(n, j, at, 0)))
        if self.attrs.cell == "gru":
            candidate = self.gate(n, j, at, 2)
            if self.scaled is None:
                column = j + 2 * self.size
                reset = self.cell.act(self.m, 0, self.gate(n, j, at, 1))
                product = self.sums[n, column] + load_wide(self.given.bias, (j,))
                candidate = load_wide(self.given.gates, (at, n, column)) + reset * product
            gate = self.gate(n, j, at, 0)
            return let("z", gate, lambda z: keep(self.cell.gru(self.m, z, candidate, self.state[n, j])))
        assert self.memory is not None
        memory = self.memory
        peephole = None
        if self.given.peephole is not None:
            peephole = [load_wide(self.given.peephole, (j + k * self.size,)) for k in range(3)]
        gates = [self.gate(n, j, at, k) for k in range(4)]
        new = self.cell.lstm_memory(self.m, gates, memory[n, j], peephole)
        return let(
            "c",
            new,
            lambda c: seq(keep(self.cell.lstm_hidden(self.m, gates[1], c, peephole)), Store(memory, (n, j), c)),
        )


RECURRENT_SCAN: Final = (RecurrentScan(),)
