"""The tensor program of a recurrence: operands, attributes and loops."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields
from typing import Any, Final

from relaxir.cost import CALL_COST
from relaxir.ir.types import TensorType
from relaxir.ops.common import compute_dtype, load_wide
from relaxir.ops.kernels import input_of, let, loop, output_of, seq
from relaxir.ops.recurrent_cells import GATES, Activation, Cell, CellAttrs, CellName, ProgramAlgebra
from relaxir.ops.recurrent_product import ByteProduct, FloatProduct, Product
from relaxir.sym import DimLike, ceildiv, dim, product, to_text
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
TILES: Final = (4, 2)
"""Tiles at a time, of one sequence and of several: so many sums hide the latency of a multiplication."""
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
    quantized: bool = False
    """Weights are int8 in words of four; there are operands with the scale of each column and its sum of weights."""

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
    scale: Any = None
    sums: Any = None

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
        "scale": attrs.quantized,
        "sums": attrs.quantized,
    }
    return tuple(f.name for f in fields(Operands) if wanted.get(f.name, True))


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
        self.size = int(args[2].shape[1] if attrs.quantized else args[1].shape[1])
        self.wide = compute_dtype(out[0].dtype)
        self.state = self.f.temp("state", (self.batch, self.size), self.wide)
        self.memory = self.f.temp("memory", (self.batch, self.size), self.wide) if attrs.cell == "lstm" else None
        self.sums = self.f.temp("sums", (self.batch, GATES[attrs.cell] * self.size), self.wide)
        self.factors = self.product_of(self.given)
        before = attrs.cell == "gru" and not attrs.linear_before_reset
        self.scaled = self.f.temp("scaled", (self.batch, self.size), self.wide) if before else None

    def product_of(self, given: Operands) -> Product:
        """How states and weights are multiplied."""
        if self.attrs.quantized:
            return ByteProduct(self.f, given.weights, given.scale, given.sums, self.batch, self.size)
        return FloatProduct(given.weights, self.wide)

    def build(self) -> PrimFunc:
        """Groups of sequences in parallel."""
        group = Var("group")
        first = group * ROWS
        count = binary(BinOp.MIN, as_expr(self.batch) - first, const(ROWS))
        body = let("count", count, lambda n: self.sequences(first, n))
        self.f.emit(For(group, as_expr(ceildiv(self.batch, ROWS)), body, ForKind.PARALLEL))
        return self.f.build(flops=to_text(self.flops()))

    def flops(self) -> DimLike:
        """Operations of a call: loops over sequences with lengths and tiles hide them."""
        gates = GATES[self.attrs.cell]
        activations = gates + (self.attrs.cell == "lstm")  # each gate has one, and so has an LSTM's cell state
        each = 2 * gates * self.size + gates + CALL_COST * activations
        return product((self.steps, self.batch, self.size * each))

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
        sums = If(eq(count, const(1)), self.columns(source, first, 1, (low, high)), several)
        row = Var("row")
        before = self.factors.prepare(source, first + row)
        return sums if before is None else seq(For(row, count, before), sums)

    def columns(self, source: Buffer, first: Expr, rows: DimLike, bounds: tuple[int, int]) -> Stmt:
        """Tiles of columns for a number of sequences, parts of wide tiles one after the other."""
        lanes = int(self.given.weights.shape[2])
        stmts: list[Stmt] = []
        for start in range(0, lanes, LANES):
            stmts.extend(self.tiles(source, first, rows, bounds, range(start, min(start + LANES, lanes))))
        return seq(*stmts)

    def tiles(self, source: Buffer, first: Expr, rows: DimLike, bounds: tuple[int, int], part: range) -> Iterator[Stmt]:
        """One part of each tile, several tiles at a time."""
        (low, high), together = bounds, TILES[0 if rows == 1 else 1]
        many, rest = divmod(high - low, together)
        if many:
            yield loop("tile", many, lambda t: self.tile(source, first, (rows, together), t * together + low, part))
        if rest:
            begin = low + many * together
            yield loop("tile", rest, lambda t: self.tile(source, first, (rows, 1), t + begin, part))

    def tile(self, source: Buffer, first: Expr, counts: tuple[DimLike, int], tile: Expr, part: range) -> Stmt:
        """Accumulators of ``counts`` sequences and tiles."""
        factors, lanes = self.factors, int(self.given.weights.shape[2])
        acc = Buffer("acc", (*counts, len(part)), factors.dtype, Scope.REGISTER)

        def each(body: Callable[[tuple[Expr, ...], Expr, Expr, Expr], Stmt]) -> Stmt:
            r, t, j = Var("r"), Var("t"), Var("j")
            stmt: Stmt = For(j, const(len(part)), body((r, t, j), first + r, tile + t, j + part.start), VECTOR)
            for var, count in ((t, counts[1]), (r, counts[0])):
                stmt = For(var, as_expr(count), stmt, ForKind.UNROLL)
            return stmt

        def term(k: Expr) -> Stmt:
            return each(lambda at, n, t, j: Store(acc, at, factors.term(source, n, t, k, j), Combine.SUM))

        def finish(at: tuple[Expr, ...], n: Expr, t: Expr, j: Expr) -> Stmt:
            column = t * lanes + j
            return Store(self.sums, (n, column), factors.total(acc[at], n, column))

        return Alloc(
            acc,
            seq(
                each(lambda at, *_: Store(acc, at, const(0, factors.dtype))),
                loop("k", factors.steps, term),
                each(finish),
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
