"""Statements of tensor programs in both forms, and the outlining of parallel loops."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from math import prod

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm import emit_ops as ops
from relaxir.backends.llvm.emit_access import Place
from relaxir.backends.llvm.emit_analysis import element_bytes, invariant_stores, number_of, register_bytes
from relaxir.backends.llvm.emit_dot import dot4
from relaxir.backends.llvm.emit_env import Bound, Cell, Lane
from relaxir.backends.llvm.emit_reduce import combine
from relaxir.backends.llvm.emit_scan import LEAST, STEPS, Running, prefixes, running
from relaxir.backends.llvm.emit_sites import NO_MEMORY, STACK_LIMIT
from relaxir.backends.llvm.emit_transpose import transposed, transposing_square
from relaxir.backends.llvm.emit_value import MEMORY, Value, constant, int_value
from relaxir.backends.llvm.emit_vector import Vectors
from relaxir.support.dtypes import info
from relaxir.support.errors import InternalError
from relaxir.tir.buffer import Scope
from relaxir.tir.build import identity
from relaxir.tir.expr import Binary, BinOp, Expr, Load, Var
from relaxir.tir.stmt import (
    Alloc,
    Assert,
    Combine,
    For,
    ForKind,
    If,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    Switch,
    While,
)
from relaxir.tir.visit import map_expr, stores_of, walk


class Statements(Vectors):
    """Writes statements."""

    fail_return = "ret i32 1"
    """How this function ends after a failed assertion."""
    heap: tuple[Value, ...] = ()
    """Blocks to free on every way out."""

    def emit(self, stmt: Stmt) -> None:
        """Write a statement."""
        if isinstance(stmt, Seq):
            for s in stmt.stmts:
                self.emit(s)
        elif isinstance(stmt, Store):
            self._store(stmt)
        elif isinstance(stmt, For):
            self._for(stmt)
        elif isinstance(stmt, Let):
            with self.bind(stmt.var, Bound(self.eval(stmt.value))):
                self.emit(stmt.body)
        elif isinstance(stmt, Alloc):
            self._alloc(stmt)
        elif isinstance(stmt, If):
            self._if(stmt)
        elif isinstance(stmt, Switch):
            self._switch(stmt)
        elif isinstance(stmt, While):
            self._while(stmt)
        elif isinstance(stmt, Assert):
            self._assert(stmt)
        elif isinstance(stmt, Prefetch):
            self._prefetch(stmt)
        else:
            self.other_stmt(stmt)

    def other_stmt(self, stmt: Stmt) -> None:
        """Write a statement that only host programs have."""
        raise InternalError(f"statement {type(stmt).__name__} in a kernel")

    # ---- stores

    def _store(self, stmt: Store) -> None:
        cell = self.cells.get(id(stmt))
        if cell is not None and stmt.combine is not None:
            self._update_cell(stmt, stmt.combine, cell)
            return
        place = self.place(stmt.buffer, stmt.indices)
        if stmt.combine is None:
            value = self.eval(stmt.value)
            self.store(place, value if place.stride == 0 else self.widen(value))
        elif place.stride == 0 and self.lane is not None:
            self.store_lanes(place, stmt)
        else:
            self.store(place, self.combined(stmt.combine, stmt, self.load(place)))

    def combined(self, how: Combine, stmt: Store, present: Value) -> Value:
        """Write ``present`` combined with the store's value; a product that is summed becomes a fused multiply-add."""
        value, dtype = stmt.value, stmt.buffer.dtype
        if how is Combine.SUM and isinstance(value, Binary) and value.op is BinOp.MUL and info(dtype).is_float:
            a, b = self.eval(value.a), self.eval(value.b)
            return instr.fma(self.w, self.w.splat(a, present.width), self.w.splat(b, present.width), present)
        if how is Combine.SUM and isinstance(value, Binary) and value.op is BinOp.DOT4:
            a, b = self.eval(value.a), self.eval(value.b)
            return dot4(self.w, present, self.w.splat(a, present.width), self.w.splat(b, present.width))
        number = number_of(stmt)
        if number is not None:
            found = self.w.splat(self.eval(number), present.width)
            return instr.number_extremum(self.w, present, found, maximum=how is Combine.MAX)
        return combine(self.w, how, dtype, present, self.w.splat(self.eval(value), present.width))

    def _update_cell(self, stmt: Store, how: Combine, cell: Cell) -> None:
        if self.lane is not None and cell.width == 1:
            self.add_to_cell(stmt, cell, self.across(stmt))
            return
        present = self.read_cell(stmt, cell)
        result = self.combined(how, stmt, present)
        if self.lane is not None and self.lane.mask is not None and cell.width > 1:
            result = instr.choose(self.w, self.lane.mask, result, present)
        self.write_cell(stmt, cell, result)

    # ---- loops

    def _for(self, stmt: For) -> None:
        kind = stmt.kind
        if kind is ForKind.UNROLL:
            extent = self.number(stmt.extent)
            if extent is None:
                raise InternalError(f"loop `{stmt.var.name}` is to be unrolled but its extent is not constant")
            if self.lane is None and self._transposes(stmt):
                return
            for i in range(extent):
                with self.bind(stmt.var, Bound(int_value(i))):
                    self.emit(stmt.body)
        elif kind is ForKind.VECTOR and self.lane is None:
            self.vector_loop(stmt)
        elif kind is ForKind.PARALLEL and self.lane is None and self.parallel_loop(stmt):
            return
        else:
            self.serial_loop(stmt)

    def _transposes(self, stmt: For) -> bool:
        """Write a tile of a transposition through registers; False if ``stmt`` is none."""
        width = self.target.vector_bytes // 4
        square = transposing_square(stmt, width)
        if square is None:
            return False
        inner, store, load = square.inner, square.store, square.load
        rows: list[Value] = []
        with self.bind(stmt.var, Bound(int_value(0), lane=True)), self._limited(width, square.rows):
            for j in range(width):
                with self.bind(inner.var, Bound(int_value(j))):
                    rows.append(self.widen(self.load(self.place(load.buffer, load.indices))))
        columns = transposed(self.w, rows)
        with self.bind(inner.var, Bound(int_value(0), lane=True)), self._limited(width, square.columns):
            for i, column in enumerate(columns):
                with self.bind(stmt.var, Bound(int_value(i))), self._only_if(square.rows):
                    self.store(self.place(store.buffer, store.indices), column)
        return True

    @contextmanager
    def _limited(self, width: int, limit: Expr | None) -> Iterator[None]:
        """Write for the lanes of a vector that keep a condition."""
        with self.in_lane(Lane(width)):
            if limit is None:
                yield
            else:
                with self._only_if(limit):
                    yield

    @contextmanager
    def _only_if(self, limit: Expr | None) -> Iterator[None]:
        """Write for the present lanes that keep a condition."""
        if limit is None:
            yield
        else:
            with self.in_lane(self.narrowed(self.widened(limit))):
                yield

    def parallel_loop(self, stmt: For) -> bool:
        """Write a loop for several threads; False if it must be serial here."""
        raise NotImplementedError

    def serial_loop(self, stmt: For) -> None:
        """Write ``stmt`` as a plain loop, ``stmt.unroll`` copies of the body at a time."""
        extent = self.eval(stmt.extent)
        if extent.number is not None and extent.number <= 1:
            if extent.number == 1:
                with self.bind(stmt.var, Bound(int_value(0))):
                    self.emit(stmt.body)
            return
        scan = running(stmt) if self.lane is None else None
        if scan is not None and self._scan(scan, extent):
            return
        with self.promoted(stmt):
            self.serial_range(stmt, int_value(0), extent, max(stmt.unroll, 1))

    def _scan(self, scan: Running, extent: Value) -> bool:
        """Write a running total by vectors, the last one with a mask or singly; False where lanes are not worth it."""
        stmt, total = scan.loop, scan.total
        width = self.target.vector_bytes // max(register_bytes(total.buffer.dtype), element_bytes(stmt.body))
        if width < LEAST or (extent.number is not None and extent.number < width):
            return False
        middle, stored = self.rounded_down(extent, width), self.stored(stmt.body)
        carry = self.new_cell(total, width)
        self.write_cell(total, carry, self.w.splat(self.load(self.place(total.buffer, ())), width))
        with self.w.loop(int_value(0), middle, width, stored) as i:
            self._scan_lanes(scan, carry, i, None)
        if scan.rising and self.target.has_masked and middle.text != extent.text:
            with self.w.loop(middle, extent, width, stored) as i:
                self._scan_lanes(scan, carry, i, self.first_lanes(i, extent, width))
            middle = extent
        self.store(self.place(total.buffer, ()), self.w.lane(self.read_cell(total, carry), 0))
        if middle.text != extent.text:
            self.serial_range(stmt, middle, extent, 1)
        return True

    def _scan_lanes(self, scan: Running, carry: Cell, first: Value, mask: Value | None) -> None:
        """Write one vector of a running total."""
        total, width = scan.total, carry.width
        with self.bind(scan.loop.var, Bound(first, lane=True)), self.in_lane(Lane(width, mask)):
            value = self.widened(scan.value)
            if mask is not None:  # the carry is that of the last lane
                neutral = constant(identity(STEPS[scan.op], total.buffer.dtype))
                value = instr.choose(self.w, mask, value, self.w.splat(neutral, width))
            totals, after = prefixes(self.w, scan, value, self.read_cell(total, carry))
            self.write_cell(total, carry, after)
            now, present = Var("total", total.buffer.dtype), Load(total.buffer, ())
            written = map_expr(scan.write.value, lambda e: now if e == present else e)
            with self.bind(now, Bound(totals)):
                self.store(self.place(scan.write.buffer, scan.write.indices), self.widened(written))

    def serial_range(self, stmt: For, low: Value, high: Value, unroll: int) -> None:
        """Write the iterations from ``low`` to ``high``."""
        stored = self.stored(stmt.body)
        if unroll > 1 and low.number == 0:
            middle = self.rounded_down(high, unroll)
            self._copies(stmt, low, middle, unroll, stored)
            if middle.text != high.text:
                self._copies(stmt, middle, high, 1, stored)
        else:
            self._copies(stmt, low, high, 1, stored)

    def _copies(self, stmt: For, low: Value, high: Value, count: int, stored: frozenset[object]) -> None:
        if low.number is not None and high.number is not None and low.number >= high.number:
            return
        with self.w.loop(low, high, count, stored) as i:
            for u in range(count):
                with self.bind(stmt.var, Bound(i, u)):
                    self.emit(stmt.body)

    @contextmanager
    def promoted(self, stmt: For) -> Iterator[None]:
        """Keep in registers what a serial loop accumulates in one element of a buffer."""
        found: list[tuple[Store, Place, Cell]] = []
        lanes = {id(s) for loop in walk(stmt.body) if _is_lanes(loop) for s in stores_of(loop)}
        for store in invariant_stores(stmt):
            if id(store) in self.cells or store.buffer.scope is Scope.REGISTER:
                continue
            if self.lane is None and id(store) in lanes:
                continue  # its vector loop keeps one running value per lane
            place = self.place(store.buffer, store.indices)
            if place.stride is None or (self.lane is not None and (place.stride == 0 or self.lane.guarded)):
                continue
            width = 1 if self.lane is None else self.lane.width
            cell = self.new_cell(store, width)
            self.write_cell(store, cell, self.load(place))
            found.append((store, place, cell))
        for store, _, cell in found:
            self.cells[id(store)] = cell
        yield
        for store, place, cell in found:
            del self.cells[id(store)]
            self.store(place, self.read_cell(store, cell))

    # ---- the rest

    def _alloc(self, stmt: Alloc) -> None:
        buffer = stmt.buffer
        sizes = [self.dim_linear(d).number for d in buffer.shape]
        count = prod(s for s in sizes if s is not None)
        constant = all(s is not None for s in sizes)
        if self.lane is not None:
            if not constant:
                raise InternalError(f"buffer `{buffer.name}` of one lane has no constant size")
            self._alloc_lanes(stmt, count)
        elif constant and (count * info(buffer.dtype).bytes <= STACK_LIMIT or buffer.scope is Scope.REGISTER):
            self.bases[buffer] = self.w.alloca(MEMORY[buffer.dtype], count, 64)
            self.w.touch(buffer)
            self.emit(stmt.body)
        else:
            self._alloc_heap(stmt)

    def _alloc_lanes(self, stmt: Alloc, count: int) -> None:
        if self.lane is None:
            raise InternalError("lanes outside a vector loop")
        lane = replace(self.lane, private=self.lane.private | {stmt.buffer})
        with self.in_lane(lane):
            kind = self.memory_type(stmt.buffer)
            self.bases[stmt.buffer] = self.w.alloca(f"<{lane.width} x {kind}>", count, 64)
            self.w.touch(stmt.buffer)
            self.emit(stmt.body)

    def _alloc_heap(self, stmt: Alloc) -> None:
        """Take a temporary of unknown size from the C heap: only unscheduled programs need this."""
        total = int_value(info(stmt.buffer.dtype).bytes)
        for d in stmt.buffer.shape:
            total = ops.binary(self.w, BinOp.MUL, "int64", total, self.dim(d))
        size = ops.binary(self.w, BinOp.MAX, "int64", total, int_value(1))
        self.module.declare("malloc", "ptr", ["i64"])
        self.module.declare("free", "void", ["ptr"])
        block = self.w.here(f"call ptr @malloc({size.typed})", "ptr")
        code, site = self.sites.add(*NO_MEMORY)
        self.fail_unless(self.w.here(f"icmp ne ptr {block.text}, null", "i1"), code, site, [size])
        self.bases[stmt.buffer] = block
        self.w.touch(stmt.buffer)
        self.heap += (block,)
        self.emit(stmt.body)
        self.heap = self.heap[:-1]
        self.w.line(f"call void @free(ptr {block.text})")

    def _if(self, stmt: If) -> None:
        cond = self.eval(stmt.cond)
        if cond.number is not None:
            chosen = stmt.then if cond.number else stmt.other
            if chosen is not None:
                self.emit(chosen)
        elif cond.width > 1:
            with self.in_lane(self.narrowed(cond)):
                self.emit(stmt.then)
            if stmt.other is not None:
                with self.in_lane(self.narrowed(instr.invert(self.w, cond))):
                    self.emit(stmt.other)
        else:
            other = stmt.other
            self.branches(cond, lambda: self.emit(stmt.then), None if other is None else lambda: self.emit(other))

    def _switch(self, stmt: Switch) -> None:
        value = self.eval(stmt.value)
        if value.number is not None:
            if stmt.low <= value.number < stmt.high:
                with self.bind_dim(stmt.dim, value):
                    self.emit(stmt.body)
            return
        labels = {case: self.w.label("case") for case in range(stmt.low, stmt.high)}
        after = self.w.label("done")
        stored = self.stored(stmt.body)
        with self.w.slot():
            cases = " ".join(f"i64 {case}, label %{label}" for case, label in labels.items())
            self.w.line(f"switch i64 {value.text}, label %{after} [ {cases} ]")
            for case, label in labels.items():
                with self.w.branch(label, after), self.bind_dim(stmt.dim, int_value(case)):
                    self.emit(stmt.body)
        self.w.start(after)
        self.w.touch_all(stored)

    def _while(self, stmt: While) -> None:
        stored = self.stored(stmt.body)
        self.w.touch_all(stored)
        head, body, after = self.w.label("while"), self.w.label("do"), self.w.label("done")
        with self.w.slot():
            self.w.line(f"br label %{head}")
            with self.w.nested("body", stored=stored):
                self.w.start(head)
                cond = self.eval(stmt.cond)
                with self.w.slot():
                    self.w.line(f"br i1 {cond.text}, label %{body}, label %{after}")
                    with self.w.branch(body, head):
                        self.emit(stmt.body)
        self.w.start(after)
        self.w.touch_all(stored)

    def _assert(self, stmt: Assert) -> None:
        cond = self.eval(stmt.cond)
        if cond.number == 1:
            return
        code, site = self.sites.add(stmt.code, stmt.message, stmt.span)
        values = [self.eval(a) for a in stmt.args]
        self.fail_unless(cond, code, site, values)

    def fail_unless(self, cond: Value, code: int, site: int, values: list[Value]) -> None:
        """Leave the function with an error unless ``cond``; what follows keeps behind the test."""
        ok, bad = self.w.label("ok"), self.w.label("fail")
        workspace = self.ws()
        self.w.line(f"br i1 {cond.text}, label %{ok}, label %{bad}, !prof !4")
        self.w.start(bad)
        shown = [*values, *([int_value(0)] * (4 - len(values)))]
        self.w.effect("rx_fail", [workspace.typed, f"i32 {code}", f"i32 {site}", *(v.typed for v in shown)])
        self.leave()
        self.w.start(ok)
        self.w.scope.guarded = True

    def leave(self) -> None:
        """Write the return after a failure."""
        for block in self.heap:
            self.w.line(f"call void @free(ptr {block.text})")
        self.w.line(self.fail_return)

    def _prefetch(self, stmt: Prefetch) -> None:
        place = self.place(stmt.buffer, stmt.indices)
        pointer = place.pointer if place.pointer.width == 1 else self.w.lane(place.pointer, 0)
        locality = 4 - min(max(stmt.level, 1), 3)
        self.w.effect("llvm.prefetch.p0", [pointer.typed, f"i32 {int(stmt.write)}", f"i32 {locality}", "i32 1"])


def _is_lanes(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind is ForKind.VECTOR
