"""Attention without the score matrix in memory: a running softmax over blocks of keys.

A block of queries goes through the keys block by block. The scores of a few queries with one block of keys stay in the
first-level cache, and the weighted sums, the maximum and the sum of the weights so far stay on the stack::

    for each batch, head and block of queries (over threads):
      for each block of keys:
        pack the keys with the key axis as lanes            (many queries)
        for a few queries:
          scores = queries x keys                           (register tiles; few queries: dot products)
          scores = scale, mask; top = their maximum         (one pass)
          correction = exp(old top - new top)
          scores = exp(scores - top); sum                   (one pass)
          mixed = mixed * correction + scores x values      (register tiles)
      result = mixed / sum
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaxir.schedule.attention_form import STAGES, AttentionForm, match_attention, replaced
from relaxir.schedule.loops import Machine, loop, parallel, seq
from relaxir.schedule.micro import Micro, ceil_parts, even_share, micro_tile
from relaxir.schedule.program import Program
from relaxir.schedule.tile import accumulator_sets, switch_rows
from relaxir.support.dtypes import info
from relaxir.sym import ceildiv, is_const
from relaxir.tir import (
    Alloc,
    Axis,
    Buffer,
    Call,
    Combine,
    Const,
    Expr,
    For,
    ForKind,
    If,
    Intrinsic,
    Let,
    Scope,
    Select,
    Stmt,
    Store,
    Var,
    as_expr,
    const,
    eq,
    maximum,
    minimum,
    select,
)
from relaxir.tir.access import variables_of
from relaxir.tir.visit import substitute_vars

KEYS_BYTES = 65536  # packed keys of one block: half of the smallest second-level cache
MOST_KEYS = 512  # keys of one block: the scores of a tile's rows stay in the first-level cache
SUMS_BYTES = 32768  # weighted sums of one block of queries
MOST_QUERIES = 128
FEW = 3  # so few queries do not pay for packing the keys
SIDE = 4  # dot products side by side


@dataclass(frozen=True, slots=True)
class AttentionRule:
    """Seven stages that are attention, as one loop over blocks of queries."""

    name: str = "attention"

    def take(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> tuple[Stmt, int] | None:
        """Schedule attention with constant head sizes; None for anything else."""
        form = match_attention(program, stages)
        if form is None or not is_const(form.depth.extent) or not is_const(form.lane.extent):
            return None
        if int(form.lane.extent) < 1 or int(form.depth.extent) < 1:
            return None
        job = plan(form, machine)
        return None if job is None else (job.loops(), STAGES)


def plan(form: AttentionForm, machine: Machine) -> Attention | None:
    """Choose the blocks; None if a panel of keys is too large to pack."""
    dtype = form.raw.dtype
    lanes, size = machine.target.lanes(dtype), info(dtype).bytes
    width = max(1, machine.config.nr // lanes) * lanes
    keys = KEYS_BYTES // (int(form.depth.extent) * size) // width * width
    if keys < width:
        return None
    keys = min(keys, -(-MOST_KEYS // width) * width)
    if is_const(form.key.extent):
        keys = max(width, min(keys, -(-int(form.key.extent) // width) * width))
    padded = -(-int(form.lane.extent) // lanes) * lanes
    rows = max(machine.config.mr, min(MOST_QUERIES, SUMS_BYTES // (padded * size)))
    query = form.rows[-1] if form.rows[-1].var not in variables_of(form.keys) else None
    if query is not None and is_const(query.extent):
        rows = max(1, min(rows, int(query.extent)))
    return Attention(form, machine, query, width, keys, rows, padded)


@dataclass(frozen=True, slots=True)
class Attention:
    """Attention being scheduled.

    Attributes:
        form: what to compute.
        machine: for which machine.
        query: the axis whose elements share keys, None if there is none.
        width: lanes of a panel of keys.
        keys: keys of a block.
        queries: queries of a block.
        padded: lanes of the result, in whole vectors.

    """

    form: AttentionForm
    machine: Machine
    query: Axis | None
    width: int
    keys: int
    queries: int
    padded: int

    @property
    def dtype(self) -> str:
        """Type of scores and sums."""
        return self.form.raw.dtype

    def loops(self) -> Stmt:
        """All of it; few queries and many are told apart at run time where the number is not known."""
        if self.query is None:
            return self.blocks(few=True)
        extent = self.query.extent
        if is_const(extent):
            return self.blocks(few=int(extent) <= FEW)
        return If(as_expr(extent) <= const(FEW), self.blocks(few=True), self.blocks(few=False))

    def blocks(self, few: bool) -> Stmt:
        """Loops over batch, heads and blocks of queries, over threads."""
        outer = tuple(a for a in self.form.rows if a is not self.query)
        if self.query is None:
            return parallel(outer, self.block(const(0), const(1), few), self.machine)
        extent = as_expr(self.query.extent)
        if few or (is_const(self.query.extent) and int(self.query.extent) <= self.queries):
            return parallel(outer, self.block(const(0), extent, few), self.machine)
        number = ceildiv(self.query.extent, self.queries)
        at, start, count = Axis(Var("block"), number), Var("start"), Var("count")
        begin, end = even_share(at.var, extent, as_expr(number))
        body = Let(start, begin, Let(count, end - start, self.block(start, count, few)))
        return parallel((*outer, at), body, self.machine)

    def block(self, start: Expr, count: Expr, few: bool) -> Stmt:
        """One block of queries against all keys."""
        most = FEW if few else self.queries
        if isinstance(count, Const):
            most = int(count.value)
        state = State(
            Buffer("top", (most,), self.dtype, Scope.STACK),
            Buffer("total", (most,), self.dtype, Scope.STACK),
            Buffer("mixed", (most, self.padded), self.dtype, Scope.STACK),
        )
        i, c, lane = Var("i"), Var("i"), Var("j")
        clear = seq(
            For(i, count, seq(state.store("top", i, -np.inf), state.store("total", i, 0.0)), ForKind.VECTOR),
            loop(
                c,
                count,
                For(lane, const(self.padded), Store(state.mixed, (c, lane), const(0.0, self.dtype)), ForKind.VECTOR),
            ),
        )
        keys = as_expr(self.form.key.extent)
        number = ceildiv(self.form.key.extent, self.keys)
        part, first, size = Var("part"), Var("first"), Var("size")
        inner = Steps(self, state, start, count, first, size, min(most, self.machine.config.mr), few).all()
        inner = Let(first, part * self.keys, Let(size, minimum(keys - first, const(self.keys)), inner))
        return state.alive(seq(clear, loop(part, number, inner), self.finish(state, start, count)))

    def finish(self, state: State, start: Expr, count: Expr) -> Stmt:
        """Divide and store."""
        form, i = self.form, Var("i")
        mixed, total = state.mixed[i, form.lane.var], state.total[i]
        value = replaced(replaced(form.result.value, form.mixed, mixed), form.total, total)
        store = self.at_query(Store(form.result.buffer, form.result.indices, value), start + i)
        return loop(i, count, For(form.lane.var, as_expr(form.lane.extent), store, ForKind.VECTOR))

    def at_query(self, node: Stmt, index: Expr) -> Stmt:
        """A statement for one query."""
        return node if self.query is None else substitute_vars(node, {self.query.var: index})

    def query_at(self, expr: Expr, index: Expr) -> Expr:
        """An expression for one query."""
        return expr if self.query is None else substitute_vars(expr, {self.query.var: index})


@dataclass(frozen=True, slots=True)
class State:
    """What a block of queries keeps from one block of keys to the next."""

    top: Buffer
    total: Buffer
    mixed: Buffer

    def store(self, name: str, i: Expr, value: float) -> Stmt:
        """Store a number."""
        buffer: Buffer = getattr(self, name)
        return Store(buffer, (i,), const(value, buffer.dtype))

    def alive(self, body: Stmt) -> Stmt:
        """Allocate the three."""
        return Alloc(self.top, Alloc(self.total, Alloc(self.mixed, body)))


@dataclass(frozen=True, slots=True)
class Steps:
    """A block of queries against a block of keys: ``count`` queries from ``start``, ``size`` keys from ``first``."""

    plan: Attention
    state: State
    start: Expr
    count: Expr
    first: Expr
    size: Expr
    height: int
    few: bool

    def all(self) -> Stmt:
        """Pack the keys, then work through the queries a few at a time."""
        number = ceil_parts(self.count, self.height)
        tile, row, rows = Var("tile"), Var("row"), Var("rows")
        begin, end = even_share(tile, self.count, number)
        buffers = Scratch.make(self.height, self.plan.keys, self.plan.dtype)
        depth = int(self.plan.form.depth.extent)
        panels = self.plan.keys // self.plan.width
        packed = Buffer("packed", (panels, depth, self.plan.width), self.plan.dtype, Scope.STACK)
        scores = self.dots(buffers, row, rows) if self.few else self.tiles(buffers, packed, row, rows)
        body = seq(scores, *self.softmax(buffers, row, rows), self.weigh(buffers, row, rows))
        if isinstance(number, Const) and number.value == 1:
            body = substitute_vars(body, {row: const(0), rows: self.count})
        else:
            body = loop(tile, number, Let(row, begin, Let(rows, end - row, body)))
        body = buffers.alive(body)
        return body if self.few else Alloc(packed, seq(self.pack(packed), body))

    def key_at(self, expr: Expr, index: Expr) -> Expr:
        """An expression for one key of the block."""
        return substitute_vars(expr, {self.plan.form.key.var: self.first + index})

    def pack(self, packed: Buffer) -> Stmt:
        """Copy the keys with the key axis as lanes; lanes past the end hold anything, no one reads their scores."""
        form, width, depth = self.plan.form, self.plan.width, int(self.plan.form.depth.extent)
        lanes = self.plan.machine.target.lanes(self.plan.dtype)
        panel, last = Var("panel"), self.size - 1

        def copy(step: Expr, lane: Expr, whole: bool) -> Stmt:
            at = panel * width + lane
            value = substitute_vars(form.keys, {form.depth.var: step})
            return Store(packed, (panel, step, lane), self.key_at(value, at if whole else minimum(at, last)))

        def fill(whole: bool) -> Stmt:
            i, j = Var("i"), Var("j")
            if depth % lanes or lanes == 1:
                return loop(i, depth, For(j, const(width), copy(i, j, whole), ForKind.VECTOR))
            down, along = Var("down"), Var("along")  # squares that the backend transposes in registers
            square = For(j, const(lanes), copy(down * lanes + i, along * lanes + j, whole), ForKind.VECTOR)
            used = minimum(ceil_parts(self.size - panel * width, lanes), const(width // lanes))
            count = const(width // lanes) if whole else used
            return loop(along, count, loop(down, depth // lanes, For(i, const(lanes), square, ForKind.UNROLL)))

        full = panel * width + width <= self.size
        return loop(panel, ceil_parts(self.size, width), If(full, fill(whole=True), fill(whole=False)))

    def tiles(self, buffers: Scratch, packed: Buffer, row: Var, rows: Var) -> Stmt:
        """Raw scores by register tiles."""
        form, width = self.plan.form, self.plan.width
        panel = Var("panel")
        spec = Micro(
            lambda i, k: substitute_vars(self.plan.query_at(form.query, self.start + row + i), {form.depth.var: k}),
            lambda k, j: packed[panel, k, j],
            as_expr(form.depth.extent),
            width,
            self.plan.dtype,
            lambda i, j, total: Store(buffers.scores, (i, panel * width + j), total),
        )
        cases = self.switch(spec, rows)
        return loop(panel, ceil_parts(self.size, width), cases)

    def switch(self, spec: Micro, rows: Var) -> Stmt:
        """Tiles for every possible number of rows."""
        vectors = max(1, spec.lanes // self.plan.machine.target.lanes(spec.dtype))
        if isinstance(self.count, Const) and int(self.count.value) <= self.height:
            count = int(self.count.value)
            return micro_tile(spec, count, accumulator_sets(count, vectors))
        return switch_rows(rows, self.height, vectors, lambda r, sets: micro_tile(spec, r, sets))

    def dots(self, buffers: Scratch, row: Var, rows: Var) -> Stmt:
        """Raw scores of few queries: several keys side by side, lanes along the depth."""
        form = self.plan.form
        i, group, d = Var("i"), Var("group"), Var("d")
        query = substitute_vars(self.plan.query_at(form.query, self.start + row + i), {form.depth.var: d})
        element = substitute_vars(form.keys, {form.depth.var: d})
        cells = tuple(Buffer(f"sum{n}", (), self.plan.dtype, Scope.STACK) for n in range(SIDE))
        last = self.size - 1
        sums = [
            Store(c, (), query * self.key_at(element, minimum(group * SIDE + n, last)), Combine.SUM)
            for n, c in enumerate(cells)
        ]
        body = seq(
            *(Store(c, (), const(0.0, self.plan.dtype)) for c in cells),
            For(d, as_expr(form.depth.extent), seq(*sums), ForKind.VECTOR),
            *(Store(buffers.scores, (i, group * SIDE + n), c[()]) for n, c in enumerate(cells)),
        )
        for cell in cells:
            body = Alloc(cell, body)
        return loop(i, rows, loop(group, ceil_parts(self.size, SIDE), body))

    def softmax(self, buffers: Scratch, row: Var, rows: Var) -> tuple[Stmt, ...]:
        """Scale, mask, running maximum, exponentials and running sum of some rows."""
        form, dtype, state = self.plan.form, self.plan.dtype, self.state
        zero, low = const(0.0, dtype), const(-np.inf, dtype)
        i, c = Var("i"), Var("c")
        raw = replaced(form.score, form.raw, buffers.scores[i, c])
        value, score = Var("score", dtype), self.plan.query_at(self.key_at(raw, c), self.start + row + i)
        keep = seq(Store(buffers.scores, (i, c), value), Store(buffers.peak, (i,), value, Combine.MAX))
        masked = loop(
            i,
            rows,
            seq(Store(buffers.peak, (i,), low), For(c, self.size, Let(value, score, keep), ForKind.VECTOR)),
        )
        n, old, new = Var("i"), Var("old", dtype), Var("new", dtype)
        ratio = select(eq(old, new), const(1.0, dtype), Call(Intrinsic.EXP_NONPOSITIVE, old - new))
        update = seq(
            Store(state.top, (row + n,), new),
            Store(buffers.ratio, (n,), ratio),
            Store(buffers.peak, (n,), select(eq(new, low), zero, new)),
            Store(buffers.part, (n,), zero),
        )
        step = Let(old, state.top[row + n], Let(new, maximum(old, buffers.peak[n]), update))
        i2, c2, weight, shift = Var("i"), Var("c"), Var("weight", dtype), Var("shift", dtype)
        power = Call(Intrinsic.EXP_NONPOSITIVE, buffers.scores[i2, c2] - shift)
        lanes = seq(Store(buffers.scores, (i2, c2), weight), Store(buffers.part, (i2,), weight, Combine.SUM))
        powers = loop(
            i2, rows, Let(shift, buffers.peak[i2], For(c2, self.size, Let(weight, power, lanes), ForKind.VECTOR))
        )
        m = Var("i")
        total = state.total[row + m] * buffers.ratio[m] + buffers.part[m]
        return (
            masked,
            For(n, rows, step, ForKind.VECTOR),
            powers,
            For(m, rows, Store(state.total, (row + m,), total), ForKind.VECTOR),
        )

    def weigh(self, buffers: Scratch, row: Var, rows: Var) -> Stmt:
        """Weighted sums of the values: whole panels of lanes, then the rest in as few vectors as hold it."""
        form, lanes = self.plan.form, self.plan.machine.target.lanes(self.plan.dtype)
        extent, width, mixed = int(form.lane.extent), self.plan.width, self.state.mixed

        def panel(offset: Expr, size: int, guard: bool) -> Stmt:
            def value(k: Expr, j: Expr) -> Expr:
                element = self.key_at(substitute_vars(form.value, {form.lane.var: offset + j}), k)
                zero = const(0.0, self.plan.dtype)
                return Select(offset + j < const(extent), element, zero) if guard else element

            def finish(i: Expr, j: Expr, total: Expr) -> Stmt:
                place = (row + i, offset + j)
                return Store(mixed, place, mixed.at(place) * buffers.ratio[i] + total)

            spec = Micro(lambda i, k: buffers.scores[i, k], value, self.size, size, self.plan.dtype, finish)
            return self.switch(spec, rows)

        whole, rest = extent // width, extent % width
        at = Var("panel")
        body = loop(at, whole, panel(at * width, width, guard=False)) if whole else None
        tail = panel(const(whole * width), -(-rest // lanes) * lanes, guard=rest % lanes != 0) if rest else None
        return seq(body, tail)


@dataclass(frozen=True, slots=True)
class Scratch:
    """What a few queries need while one block of keys lasts: scores, and one value per query."""

    scores: Buffer
    peak: Buffer
    ratio: Buffer
    part: Buffer

    @staticmethod
    def make(rows: int, keys: int, dtype: str) -> Scratch:
        """Buffers for so many rows and keys."""
        cells = (Buffer(name, (rows,), dtype, Scope.STACK) for name in ("peak", "ratio", "part"))
        return Scratch(Buffer("scores", (rows, keys), dtype, Scope.STACK), *cells)

    def alive(self, body: Stmt) -> Stmt:
        """Allocate them."""
        for buffer in (self.scores, self.peak, self.ratio, self.part):
            body = Alloc(buffer, body)
        return body
