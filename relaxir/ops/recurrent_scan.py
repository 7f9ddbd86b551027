"""The recurrence of one direction of a recurrent layer, on inputs that are projected already."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.common import FLOATS, check_dtype, check_same_dtype, compute_dtype, load_wide, tensors_of, widen
from relaxir.ops.kernels import input_of, let, loop, output_of, seq
from relaxir.ops.recurrent_cells import (
    DEFAULTS,
    GATES,
    Activation,
    ArrayAlgebra,
    Cell,
    CellAttrs,
    CellName,
    ProgramAlgebra,
    check_activations,
)
from relaxir.sym import DimLike, ceildiv, dim
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
    Switch,
    Var,
    as_expr,
    binary,
    cast,
    const,
    eq,
)

ROWS: Final = 4
"""Sequences whose products share the loads of a weight."""
LANES: Final = 16
"""Columns of a tile of weights, and at most of those kept in registers."""
VECTOR: Final = ForKind.VECTOR


@dataclass(frozen=True, slots=True)
class ScanAttrs(CellAttrs):
    """Attributes of `RecurrentScan`."""

    cell: CellName = "rnn"
    """Which equations."""
    activations: tuple[Activation, ...] = (("tanh", 0.0, 0.0),)
    """Name, alpha and beta of each activation, in ONNX's order."""
    reverse: bool = False
    """Each sequence runs from its end."""

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
    i, o, f, c; GRU: z, r, h); ``weights`` (hidden, k * hidden) come in tiles of columns, one after the other:
    (tiles, hidden, columns of a tile), see `tile_lanes`. Further operands by attribute: the first cell state
    (LSTM), the candidate's recurrent bias (GRU with ``linear_before_reset``), the peephole weights (3 * hidden, order
    i, o, f), the lengths (batch, int32; those beyond the number of steps count as it, negative ones as 0). Results: the
    states of all steps (0 behind a sequence's end), the last state, and for LSTM the last cell state. 16-bit floats
    compute in float32. TVM: none, ONNX: the recurrence of LSTM, GRU and RNN.
    """

    name = "recurrent_scan"
    params = (
        Param("gates", "(steps, batch, k * hidden)", FLOATS),
        Param("weights", "(tiles, hidden, lanes), tiles * lanes = k * hidden, lanes divide hidden", FLOATS),
        Param("h0", "(batch, hidden)", FLOATS),
        Param("more", "by attribute: c0, bias, peephole, lengths", variadic=True),
    )
    Attrs = ScanAttrs
    kind = OpKind.OPAQUE
    examples = (
        Example(("f32[s, b, 3]", "f32[1, 3, 3]", "f32[b, 3]"), ("f32[s, b, 3]", "f32[b, 3]")),
        Example(
            ("f32[s, b, 72]", "f32[4, 18, 18]", "f32[b, 18]", "f32[b, 18]"),
            ("f32[s, b, 18]", "f32[b, 18]", "f32[b, 18]"),
            ScanAttrs(
                cell="lstm", activations=(("sigmoid", 0.0, 0.0), ("tanh", 0.0, 0.0), ("tanh", 0.0, 0.0)), reverse=True
            ),
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
        floats = [(t, n) for t, n in zip(types, names, strict=True) if n != "lengths"]
        check_dtype(ctx, types[0], "gates", FLOATS)
        check_same_dtype(ctx, [t for t, _ in floats], [n for _, n in floats])
        given = Operands.of(types, attrs)
        ranks = {"gates": 3, "weights": 3, "h0": 2, "c0": 2, "bias": 1, "peephole": 1, "lengths": 1}
        for t, n in zip(types, names, strict=True):
            if t.rank != ranks[n]:
                ctx.fail(f"{n} has rank {t.rank}, expected {ranks[n]}", code="rank-mismatch")
        tiles, hidden, lanes = given.weights.shape
        if not isinstance(hidden, int) or not isinstance(tiles, int) or not isinstance(lanes, int):
            ctx.fail("the hidden size and the tiles of weights must be numbers", code="attribute")
        if not lanes or hidden % lanes:
            ctx.fail(f"axis 2 of weights ({lanes}) does not divide the hidden size {hidden}", code="shape-mismatch")
        steps, batch, width = given.gates.shape
        wanted = GATES[attrs.cell] * hidden
        ctx.require_equal(width, wanted, "axis 2 of gates and the gates of a state")
        ctx.require_equal(tiles * lanes, wanted, "the columns of weights and the gates of a state")
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
        gates, tiles, h = (widen(a) for a in (given.gates, given.weights, given.h0))
        w = np.swapaxes(tiles, 0, 1).reshape(h.shape[1], -1)
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


def tile_lanes(hidden: int) -> int:
    """Columns of a tile of weights: as many as registers take, where these divide the hidden size."""
    return hidden if hidden % LANES else LANES


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
        self.size = int(args[1].shape[1])
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
        count = binary(BinOp.MIN, as_expr(self.batch) - first, const(ROWS))
        body = let("count", count, lambda n: self.sequences(first, n))
        self.f.emit(For(group, as_expr(ceildiv(self.batch, ROWS)), body, ForKind.PARALLEL))
        return self.f.build()

    def sequences(self, first: Expr, count: Expr) -> Stmt:
        """A group of sequences from the first step to the last; they share the loads of the weights."""

        def product(source: Buffer, low: int, high: int) -> Stmt:
            return self.product(source, first, count, low, high)

        def rows(body: Callable[[Expr], Stmt]) -> Stmt:
            return loop("row", count, lambda r: body(first + r))

        def one_step(step: Var) -> Stmt:
            update = rows(lambda n: self.at_step(n, step, lambda at: self.update(n, at), lambda: self.clear(n, step)))
            every, gate = int(self.given.weights.shape[0]), self.size // int(self.given.weights.shape[2])
            if self.scaled is None:
                return seq(product(self.state, 0, every), update)
            reset = rows(lambda n: self.at_step(n, step, lambda at: self.lanes(lambda j: self.reset(n, j, at))))
            return seq(product(self.state, 0, 2 * gate), reset, product(self.scaled, 2 * gate, every), update)

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

    def product(self, source: Buffer, first: Expr, count: Expr, low: int, high: int) -> Stmt:
        """The sums of some tiles of columns, in registers: of several sequences, or of one with several tiles."""
        rows = dim("r", min=2, max=ROWS)
        several = Switch(count, rows, 2, ROWS + 1, self.columns(source, first, rows, (low, high)))
        return If(eq(count, const(1)), self.columns(source, first, 1, (low, high)), several)

    def columns(self, source: Buffer, first: Expr, rows: DimLike, bounds: tuple[int, int]) -> Stmt:
        """Tiles of columns for a number of sequences, parts of wide tiles one after the other."""
        lanes = int(self.given.weights.shape[2])
        stmts: list[Stmt] = []
        for start in range(0, lanes, LANES):
            stmts.extend(self.tiles(source, first, rows, bounds, range(start, min(start + LANES, lanes))))
        return seq(*stmts)

    def tiles(self, source: Buffer, first: Expr, rows: DimLike, bounds: tuple[int, int], part: range) -> Iterator[Stmt]:
        """One part of each tile; one sequence takes several tiles at a time."""
        (low, high), together = bounds, ROWS if rows == 1 else 1
        many, rest = divmod(high - low, together)
        if many:
            yield loop("tile", many, lambda t: self.tile(source, first, (rows, together), t * together + low, part))
        if rest:
            begin = low + many * together
            yield loop("tile", rest, lambda t: self.tile(source, first, (rows, 1), t + begin, part))

    def tile(self, source: Buffer, first: Expr, counts: tuple[DimLike, int], tile: Expr, part: range) -> Stmt:
        """Accumulators of ``counts`` sequences and tiles, one of which is 1."""
        weights, several = self.given.weights, counts[1] > 1
        lanes = int(weights.shape[2])
        number = counts[1] if several else counts[0]
        acc = Buffer("acc", (number, len(part)), self.wide, Scope.REGISTER)

        def each(body: Callable[[Var, Expr, Expr, Var], Stmt]) -> Stmt:
            r, j = Var("r"), Var("j")
            row, at = (first, tile + r) if several else (first + r, tile)
            return For(r, as_expr(number), For(j, const(len(part)), body(r, row, at, j), VECTOR), ForKind.UNROLL)

        def term(k: Expr) -> Stmt:
            return each(
                lambda r, row, at, j: Store(
                    acc, (r, j), source[row, k] * load_wide(weights, (at, k, j + part.start)), Combine.SUM
                )
            )

        return Alloc(
            acc,
            seq(
                each(lambda r, row, at, j: Store(acc, (r, j), const(0.0, self.wide))),
                loop("k", self.size, term),
                each(lambda r, row, at, j: Store(self.sums, (row, at * lanes + part.start + j), acc[r, j])),
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
            return let("h", h, lambda v: seq(Store(self.state, (n, j), v), Store(y, (at, n, j), cast(v, y.dtype))))

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
