"""Vector loops: strip-mining, tails, versions for broadcast axes, reductions over lanes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm import emit_linear as lin
from relaxir.backends.llvm import emit_ops as ops
from relaxir.backends.llvm.emit_access import Place
from relaxir.backends.llvm.emit_analysis import LoopFacts, invariant_stores, loop_facts, number_of, stored_in
from relaxir.backends.llvm.emit_cast import from_memory, to_memory
from relaxir.backends.llvm.emit_env import Bound, Cell, Lane
from relaxir.backends.llvm.emit_expr import Expressions
from relaxir.backends.llvm.emit_reduce import combine, four_sums, horizontal
from relaxir.backends.llvm.emit_value import MEMORY, REGISTER, Value, constant, int_value, vector_type
from relaxir.sym import DimLike
from relaxir.tir.build import identity
from relaxir.tir.expr import BinOp, Const
from relaxir.tir.stmt import Combine, For, Stmt, Store

MAX_VERSIONS: Final = 2
"""Symbolic broadcast extents a vector loop is specialised for; further ones use gathers."""
WIDE: Final = 4
"""A constant extent of up to this many native vectors is one wide vector, which LLVM splits."""
SIDE: Final = 4
"""Sums over lanes that are reduced together."""
HALF_LINE: Final = 32
"""Bytes of a vector in loops that only move memory: arrays that begin anywhere make every longer one cross a line."""
UNROLL_LIMIT: Final = 8
"""Vectors of a constant extent that are written one after the other instead of in a loop."""


class Vectors(Expressions):
    """Writes vector loops."""

    def emit(self, stmt: Stmt) -> None:
        """Write a statement."""
        raise NotImplementedError

    def serial_loop(self, stmt: For) -> None:
        """Write a plain loop."""
        raise NotImplementedError

    def serial_range(self, stmt: For, low: Value, high: Value, unroll: int) -> None:
        """Write some iterations of a plain loop."""
        raise NotImplementedError

    def stored(self, stmt: Stmt) -> frozenset[object]:
        """Return the memories a statement writes."""
        return frozenset(map(self.memory, stored_in(stmt)))

    # ---- reductions

    def new_cell(self, store: Store, width: int) -> Cell:
        """Reserve a slot for the running value of an accumulating store."""
        return Cell(self.w.alloca(vector_type(_cell_kind(store), width), 1, 64), width)

    def write_cell(self, store: Store, cell: Cell, value: Value) -> None:
        """Set a running value."""
        raw = to_memory(self.w, value, "bool") if store.buffer.dtype == "bool" else value
        self.w.line(f"store {raw.typed}, ptr {cell.pointer.text}, align 4")

    def read_cell(self, store: Store, cell: Cell) -> Value:
        """Get a running value."""
        kind = _cell_kind(store)
        text = f"load {vector_type(kind, cell.width)}, ptr {cell.pointer.text}, align 4"
        raw = self.w.here(text, kind, cell.width)
        return from_memory(self.w, raw, "bool") if store.buffer.dtype == "bool" else raw

    def add_to_cell(self, store: Store, cell: Cell, value: Value) -> None:
        """Combine a scalar with a running value."""
        if store.combine is not None:
            present = self.read_cell(store, cell)
            self.write_cell(store, cell, combine(self.w, store.combine, store.buffer.dtype, present, value))

    def across(self, store: Store) -> Value:
        """Reduce the active lanes of what ``store`` combines."""
        how, dtype, number = store.combine or Combine.SUM, store.buffer.dtype, number_of(store)
        value = self.widened(store.value if number is None else number)
        neutral = self.w.splat(_neutral(how, dtype), value.width)
        if self.lane is not None and self.lane.mask is not None:
            value = instr.choose(self.w, self.lane.mask, value, neutral)
        if number is not None:
            value = instr.number_extremum(self.w, neutral, value, maximum=how is Combine.MAX)
        return horizontal(self.w, how, dtype, value, numbers=number is not None)

    def store_lanes(self, place: Place, store: Store) -> None:
        """Reduce the active lanes of what ``store`` combines into its one element."""
        single, how = self.across(store), store.combine or Combine.SUM
        lane = self.lane
        guarded = lane is not None and lane.guarded
        with self.in_lane(None):
            if guarded and lane is not None and lane.mask is not None:
                some = horizontal(self.w, Combine.OR, "bool", lane.mask)
                self.branches(some, lambda: self._add_to(place, how, single), None)
            else:
                self._add_to(place, how, single)

    def _add_to(self, place: Place, how: Combine, value: Value) -> None:
        self.store(place, combine(self.w, how, place.buffer.dtype, self.load(place), value))

    def branches(self, cond: Value, then: Callable[[], None], other: Callable[[], None] | None) -> None:
        """Write ``if cond: then() else: other()``."""
        yes, after = self.w.label("then"), self.w.label("after")
        no = after if other is None else self.w.label("else")
        with self.w.slot():
            self.w.line(f"br i1 {cond.text}, label %{yes}, label %{no}")
            with self.w.branch(yes, after):
                then()
            if other is not None:
                with self.w.branch(no, after):
                    other()
        self.w.start(after)

    # ---- loops

    def vector_loop(self, stmt: For) -> None:
        """Write a vector loop, or a plain one where lanes are not possible."""
        extent = self.eval(stmt.extent)
        if extent.number is not None and extent.number <= 0:
            return
        facts = loop_facts(stmt)
        if not facts.fits or extent.number == 1:
            self.serial_loop(stmt)
            return
        unknown = self._unknown_broadcasts(facts)
        if unknown:
            self._versions(stmt, unknown[0])
            return
        # whole lines are best where a store goes past the caches, and registers are used whole
        moving = facts.light and not self.streamed and not facts.registers
        size = min(self.target.vector_bytes, HALF_LINE) if moving else self.target.vector_bytes
        width = max(size // facts.element_bytes, 2)
        if extent.number is not None and (facts.registers or extent.number <= UNROLL_LIMIT * width):
            self._pieces(stmt, extent.number, width)
        else:
            self._strips(stmt, extent, width)

    def _unknown_broadcasts(self, facts: LoopFacts) -> Sequence[DimLike]:
        """Return the symbolic broadcast extents to make versions for: 1, or not 1."""
        found = [d for d in facts.broadcasts if self.dim_linear(d).number is None]
        undecided = [d for d in found if self.fixed_one(d) is None]
        return undecided if len(found) - len(undecided) < MAX_VERSIONS else ()

    def _versions(self, stmt: For, extent: DimLike) -> None:
        single = ops.binary(self.w, BinOp.EQ, "int64", self.dim(extent), int_value(1))

        def version(one: bool) -> None:
            self.ones[extent] = one
            self.epoch += 1
            self.vector_loop(stmt)
            self.epoch += 1
            del self.ones[extent]

        self.branches(single, lambda: version(True), lambda: version(False))

    def _pieces(self, stmt: For, extent: int, width: int) -> None:
        """Write a short constant extent as straight-line vectors."""
        if extent <= 0:
            return
        step = extent if extent <= WIDE * width and (extent % width == 0 or extent < width) else width
        if extent % width == 0 and sum(s.combine is not None for s in invariant_stores(stmt)) >= SIDE:
            step = width  # running values of one vector each: their lanes are then summed together
        starts = range(0, extent, step)
        if len(starts) > 1 and extent % step == 0:
            with self._lane_cells(stmt, step, 1) as use:
                use(0)
                for start in starts:
                    self._piece(stmt, int_value(start), step, 0)
            return
        for start in starts:
            self._piece(stmt, int_value(start), min(step, extent - start), 0)

    def _piece(self, stmt: For, base: Value, width: int, offset: int, mask: Value | None = None) -> None:
        if width == 1:
            with self.bind(stmt.var, Bound(base, offset)):
                self.emit(stmt.body)
            return
        private = set() if self.lane is None else self.lane.private
        with self.bind(stmt.var, Bound(base, offset, lane=True)), self.in_lane(Lane(width, mask, private=private)):
            self.emit(stmt.body)

    def _strips(self, stmt: For, extent: Value, width: int) -> None:
        """Write full vectors in a loop, a few at a time where the body is small, then the rest."""
        copies = loop_facts(stmt).copies
        stored = self.stored(stmt.body)
        with self._lane_cells(stmt, width, copies) as use:
            middle = self.rounded_down(extent, width * copies)
            with self.w.loop(int_value(0), middle, width * copies, stored) as i:
                self.multiples[i.text] = width * copies
                for u in range(copies):
                    use(u)
                    self._piece(stmt, i, width, u * width)
            use(0)
            masks = self.masks_fit(stmt)
            if copies > 1 and not (masks and self.target.has_masked):
                end = self.rounded_down(extent, width)
                self._more_strips(stmt, middle, end, width)
                middle = end
            if masks:
                self._masked_tail(stmt, middle, extent, width)
        if not masks:
            self._plain_tail(stmt, middle, extent)

    def _more_strips(self, stmt: For, low: Value, high: Value, width: int) -> None:
        if low.text == high.text:
            return
        with self.w.loop(low, high, width, self.stored(stmt.body)) as i:
            self.multiples[i.text] = width
            self._piece(stmt, i, width, 0)

    def _masked_tail(self, stmt: For, low: Value, high: Value, width: int) -> None:
        """Write what is left as vectors with a mask: at most one, or a few where masks cost nothing."""
        if low.text == high.text:
            return
        stored = self.stored(stmt.body)
        with self.w.loop(low, high, width, stored) as i:
            self._piece(stmt, i, width, 0, self.first_lanes(i, high, width))

    def first_lanes(self, low: Value, high: Value, width: int) -> Value:
        """Return the mask of the lanes from ``low`` on that are below ``high``."""
        left = ops.binary(self.w, BinOp.MIN, "int64", instr.op(self.w, "sub nsw", high, low), int_value(width))
        kind = "i32" if width <= 16 else "i8"
        narrow = instr.convert(self.w, "trunc", left, kind)
        return instr.compare(self.w, "icmp ult", lin.iota(width, kind=kind), self.w.splat(narrow, width))

    def _plain_tail(self, stmt: For, low: Value, high: Value) -> None:
        if low.text != high.text:
            self.serial_range(stmt, low, high, 1)

    def rounded_down(self, value: Value, step: int) -> Value:
        """Return the largest multiple of ``step`` that is not above ``value`` (not negative)."""
        if value.number is not None:
            return int_value(value.number - value.number % step)
        if step & (step - 1) == 0:
            return self.w.pure(f"and i64 {value.text}, {-step}", "i64", 1, (value,), nonneg=True)
        rest = self.w.pure(f"urem i64 {value.text}, {step}", "i64", 1, (value,), nonneg=True)
        return self.w.pure(f"sub nsw i64 {value.text}, {rest.text}", "i64", 1, (value, rest), nonneg=True)

    def masks_fit(self, stmt: For) -> bool:
        """Whether the target's masked loads and stores serve all of a loop's accesses."""
        if self.target.has_masked:
            return True
        if self.target.vector_bytes < 32:
            return False
        return all(MEMORY[d] in ("float", "double", "i32", "i64") for d in loop_facts(stmt).dtypes)

    @contextmanager
    def _lane_cells(self, stmt: For, width: int, copies: int) -> Iterator[Callable[[int], None]]:
        """Give the loop's reductions over lanes slots of their own, one per copy; afterwards reduce and store them."""
        slots: list[tuple[Store, Place | Cell, list[Cell]]] = []
        for store in invariant_stores(stmt):
            if store.combine is None:
                continue
            place = self.cells.get(id(store)) or self.place(store.buffer, store.indices)
            cells = [self.new_cell(store, width) for _ in range(copies)]
            for cell in cells:
                self.write_cell(store, cell, self.w.splat(_neutral(store.combine, store.buffer.dtype), width))
            slots.append((store, place, cells))

        def use(copy: int) -> None:
            for store, _, cells in slots:
                self.cells[id(store)] = cells[copy]

        yield use
        for store, _, _ in slots:
            del self.cells[id(store)]
        totals = [self._added([self.read_cell(store, cell) for cell in cells], store) for store, _, cells in slots]
        for (store, place, _), single in zip(slots, self._singles([s for s, _, _ in slots], totals), strict=True):
            if isinstance(place, Cell):
                self.cells[id(store)] = place
                self.add_to_cell(store, place, single)
            elif store.combine is not None:
                self._add_to(place, store.combine, single)

    def _added(self, parts: list[Value], store: Store) -> Value:
        """Combine running values pairwise."""
        how, dtype = store.combine or Combine.SUM, store.buffer.dtype
        if number_of(store) is not None:

            def both(a: Value, b: Value) -> Value:
                return instr.number_extremum(self.w, a, b, maximum=how is Combine.MAX)
        else:

            def both(a: Value, b: Value) -> Value:
                return combine(self.w, how, dtype, a, b)

        while len(parts) > 1:
            half = (len(parts) + 1) // 2
            parts = [both(parts[i], parts[i + half]) if i + half < len(parts) else parts[i] for i in range(half)]
        return parts[0]

    def _singles(self, stores: list[Store], totals: list[Value]) -> list[Value]:
        """Reduce the lanes of each vector; four sums of floats at a time share their shuffles."""
        done: list[Value] = []
        while len(done) < len(totals):
            at = len(done)
            four = totals[at : at + SIDE]
            sums = all(s.combine is Combine.SUM and s.buffer.dtype == "float32" for s in stores[at : at + SIDE])
            if len(four) == SIDE and sums and all(v.width in (4, 8, 16) and v.width == four[0].width for v in four):
                done.extend(four_sums(self.w, four))
            else:
                how = stores[at].combine or Combine.SUM
                numbers = number_of(stores[at]) is not None
                done.append(horizontal(self.w, how, stores[at].buffer.dtype, totals[at], numbers=numbers))
        return done


def _neutral(how: Combine, dtype: str) -> Value:
    node = identity(how, dtype)
    if dtype == "bool":
        node = Const(how in (Combine.AND, Combine.PROD, Combine.MIN), "bool")
    return constant(node)


def _cell_kind(store: Store) -> str:
    """How the running value of an accumulating store is kept: bools in bytes, all else as in registers."""
    return "i8" if store.buffer.dtype == "bool" else REGISTER[store.buffer.dtype]
