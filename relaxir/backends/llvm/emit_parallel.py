"""Parallel loops: the body becomes a function of its own that the thread pool calls for ranges of iterations."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm import emit_ops as ops
from relaxir.backends.llvm.emit_analysis import body_cost, expr_cost, invariant_stores
from relaxir.backends.llvm.emit_env import Bound
from relaxir.backends.llvm.emit_integer import divide
from relaxir.backends.llvm.emit_sites import SiteTable, failures
from relaxir.backends.llvm.emit_stmt import Statements
from relaxir.backends.llvm.emit_stream import LARGE, LINE, fence, streamed_results
from relaxir.backends.llvm.emit_value import Value, int_value
from relaxir.backends.llvm.emit_writer import ModuleText
from relaxir.backends.llvm.ir_text import symbol_text
from relaxir.backends.llvm.symbols import kernel_symbol
from relaxir.backends.llvm.together_ir import RECORD_WORDS
from relaxir.support.dtypes import info
from relaxir.sym import mul, product
from relaxir.tir.expr import Binary, BinOp, Const, Expr, Load, Var
from relaxir.tir.func import PrimFunc
from relaxir.tir.stmt import For, ForKind, Stmt, Store, Switch
from relaxir.tir.visit import child_exprs, child_stmts, walk_expr

GRAIN: Final = 16384
"""Least operations of a chunk (a vector instruction is one): microseconds, many times the cost of handing it out."""
LITTLE: Final = GRAIN // 4
"""Operations that are done before another thread has heard of them."""
MAX_CHUNKS: Final = 64
UNKNOWN_EXTENT: Final = 16
"""Trip count assumed for a loop whose extent depends on an inner variable."""


class Kernel(Statements):
    """Writes a kernel or the body of one of its parallel loops."""

    def __init__(self, module: ModuleText, sites: SiteTable, name: str, parent: Kernel | None = None) -> None:
        super().__init__(module, sites, parent)
        self.name = name
        self.bodies = 0
        self.group: Value | None = None
        """What the caller runs together; null if it runs this kernel alone."""
        self.last: frozenset[For] = frozenset()
        """Parallel loops that may run after the kernel has returned."""

    def large_results(self, func: PrimFunc) -> Value | None:
        """Write whether all results that may be are worth storing past the caches; None if there are none."""
        results = streamed_results(func, self.target)
        large: Value | None = None
        for buffer in results:
            size = self.dim(mul(product(buffer.shape), info(buffer.dtype).bytes))
            address = self.w.pure(f"ptrtoint {self.base(buffer).typed} to i64", "i64", 1, (self.base(buffer),))
            odd = instr.op(self.w, "and", address, int_value(LINE - 1))
            enough = ops.binary(self.w, BinOp.GE, "int64", size, int_value(LARGE))
            fits = instr.both(self.w, instr.compare(self.w, "icmp eq", odd, int_value(0)), enough)
            large = fits if large is None else instr.both(self.w, large, fits)
        return large

    def emit_past(self, func: PrimFunc) -> None:
        """Write the program with its results' stores past the caches."""
        self.streamed = frozenset(streamed_results(func, self.target))
        self.emit(func.body)
        fence(self.w)
        self.streamed = frozenset()

    def parallel_loop(self, stmt: For) -> bool:
        """Outline a parallel loop (with those directly inside it) and write its call; False inside another one."""
        if self.parent is not None or any(invariant_stores(loop) for loop in _nest(stmt)):
            return False
        loops = _nest(stmt)
        extents = [self.eval(loop.extent) for loop in loops]
        total = extents[0]
        for extent in extents[1:]:
            total = ops.binary(self.w, BinOp.MUL, "int64", total, extent)
        later = self.group if stmt in self.last and not self.heap else None
        if later is None and total.number is not None and total.number <= 1:
            return False
        body = kernel_symbol(f"{self.name}.par{self.bodies}")
        self.bodies += 1
        child = Kernel(self.module, self.sites, body, self)
        child.fail_return = "ret void"
        record = self.w.alloca("i64", 0, 16)
        place = len(self.w.allocas) - 1
        count = child.chunk_function(loops, extents, total)
        self.w.allocas[place] = f"{record.text} = alloca [{max(count, 1)} x i64], align 16"
        for index, outer, _ in child.captured.values():
            field = self.w.pure(f"getelementptr i8, ptr {record.text}, i64 {8 * index}", "ptr", 1, (record,))
            self.w.line(f"store {outer.typed}, ptr {field.text}, align 8")
        amount = ops.binary(self.w, BinOp.MUL, "int64", total, self.work(loops[-1].body))
        if later is None or count > RECORD_WORDS or self._on_stack(outer for _, outer, _ in child.captured.values()):
            self._dispatch(body, record, total, amount)
        else:
            self._defer(later, body, record, count, total, amount)
        for loop in loops:
            self.w.touch_all(_stores(loop))
        if any(failures(stmt.body)):
            self._check()
        return True

    def _chunks(self, total: Value, amount: Value) -> Value:
        """Write how many chunks are worth handing out."""
        worth = divide(self.w, BinOp.FLOORDIV, "int64", _positive(amount), int_value(GRAIN))
        most = ops.binary(self.w, BinOp.MIN, "int64", total, int_value(MAX_CHUNKS))
        return ops.binary(self.w, BinOp.MIN, "int64", worth, most)

    def _on_stack(self, values: Iterable[Value]) -> bool:
        """Whether one of these addresses is in this function's own memory."""
        own = {line.split(" ", maxsplit=1)[0] for line in self.w.allocas}
        return any(v.text in own for v in values)

    def _defer(self, group: Value, body: str, record: Value, words: int, total: Value, amount: Value) -> None:
        """Note the loop down for the caller, if there is a group to run it with and more than a little to do."""

        def note() -> None:
            chunks = self._chunks(total, amount)
            operands = [
                group.typed,
                f"ptr {symbol_text(body)}",
                record.typed,
                f"i64 {words}",
                chunks.typed,
                amount.typed,
            ]
            self.w.effect("rx_defer", operands)

        given = self.w.here(f"icmp ne {group.typed}, null", "i1")
        large = ops.binary(self.w, BinOp.GE, "int64", amount, int_value(LITTLE))
        pays = instr.both(self.w, given, large)
        self.branches(pays, note, lambda: self._dispatch(body, record, total, amount))

    def _dispatch(self, body: str, record: Value, total: Value, amount: Value) -> None:
        """Call the body here if there is little to do, else hand ranges of iterations to the pool."""
        chunks = self._chunks(total, amount)
        many = ops.binary(self.w, BinOp.GT, "int64", chunks, int_value(1))

        def here() -> None:
            self.w.line(f"call void {symbol_text(body)}(ptr {record.text}, i64 0, i64 1, i64 0)")

        def pool() -> None:
            self.w.effect("rx_parallel", ["ptr null", f"ptr {symbol_text(body)}", record.typed, chunks.typed])

        if many.number is not None:
            (pool if many.number else here)()
        else:
            self.branches(many, pool, here)

    def _check(self) -> None:
        """Leave if an assertion failed in a parallel body."""
        failed = self.w.here(f"load i32, {self.ws().typed}, align 4", "i32")
        bad, ok = self.w.label("failed"), self.w.label("ok")
        self.w.line(f"{bad}.c = icmp eq i32 {failed.text}, 0".replace(bad, f"%{bad}"))
        self.w.line(f"br i1 %{bad}.c, label %{ok}, label %{bad}, !prof !4")
        self.w.start(bad)
        self.leave()
        self.w.start(ok)
        self.w.scope.guarded = True

    def chunk_function(self, loops: list[For], extents: list[Value], total: Value) -> int:
        """Write the body's function; return how many values it takes from outside."""
        w = self.w
        chunk, chunks = Value("%chunk", "i64", nonneg=True), Value("%chunks", "i64", nonneg=True)
        count = self.capture(total)
        inner = [self.capture(extent) for extent in extents]
        low = self._share(chunk, chunks, count)
        after = w.pure("add nuw nsw i64 %chunk, 1", "i64", 1, (chunk,), nonneg=True)
        high = self._share(after, chunks, count)
        with w.loop(low, high, 1, frozenset().union(*(_stores(loop) for loop in loops))) as i:
            self._bind_nest(loops, inner, i)
        if self.streamed:
            fence(w)
        lines = w.body()
        parameters = "ptr noalias nocapture readonly %arg, i64 %chunk, i64 %chunks, i64 %worker"
        self.module.functions.append(
            f"define internal void {symbol_text(self.name)}({parameters}) {attributes(self)} {{\n"
            f"entry:\n{lines}\n  ret void\n}}"
        )
        return len(self.captured)

    def _share(self, chunk: Value, chunks: Value, count: Value) -> Value:
        product = self.w.pure(f"mul nuw nsw i64 {chunk.text}, {count.text}", "i64", 1, (chunk, count), nonneg=True)
        return self.w.pure(f"udiv i64 {product.text}, {chunks.text}", "i64", 1, (product, chunks), nonneg=True)

    def _bind_nest(self, loops: list[For], extents: list[Value], index: Value) -> None:
        if len(loops) == 1:
            with self.bind(loops[0].var, Bound(index)):
                self.emit(loops[0].body)
            return
        rest = divide(self.w, BinOp.FLOORDIV, "int64", index, _positive(extents[-1]))
        last = divide(self.w, BinOp.MOD, "int64", index, _positive(extents[-1]))
        with self.bind(loops[-1].var, Bound(last)):
            self._bind_outer(loops[:-1], extents[:-1], rest, loops[-1].body)

    def _bind_outer(self, loops: list[For], extents: list[Value], index: Value, body: Stmt) -> None:
        if len(loops) == 1:
            with self.bind(loops[0].var, Bound(index)):
                self.emit(body)
            return
        rest = divide(self.w, BinOp.FLOORDIV, "int64", index, _positive(extents[-1]))
        last = divide(self.w, BinOp.MOD, "int64", index, _positive(extents[-1]))
        with self.bind(loops[-1].var, Bound(last)):
            self._bind_outer(loops[:-1], extents[:-1], rest, body)

    # ---- work

    def work(self, stmt: Stmt) -> Value:
        """Write an estimate of the operations one run of a statement takes."""
        if isinstance(stmt, Switch):
            with self.bind_dim(stmt.dim, int_value(stmt.high - 1)):
                return self.work(stmt.body)
        if isinstance(stmt, For):
            inner = self.work(stmt.body)
            extent = self._known(stmt.extent)
            if stmt.kind is ForKind.VECTOR:
                lanes = max(self.target.vector_bytes // 4, 1)
                extent = divide(
                    self.w,
                    BinOp.FLOORDIV,
                    "int64",
                    _positive(self._plus(extent, int_value(lanes - 1))),
                    int_value(lanes),
                )
            return ops.binary(self.w, BinOp.MUL, "int64", extent, inner)
        children = child_stmts(stmt)
        own = body_cost(stmt) if isinstance(stmt, Store) else sum(expr_cost(e) for e in child_exprs(stmt))
        total = int_value(max(own, 0 if children else 1))
        for child in children:
            total = self._plus(total, self.work(child))
        return total

    def _plus(self, a: Value, b: Value) -> Value:
        return ops.binary(self.w, BinOp.ADD, "int64", a, b)

    def _known(self, extent: Expr) -> Value:
        if isinstance(extent, Binary) and extent.op is BinOp.MIN:  # a block that may be cut short: usually it is not
            extent = next((e for e in (extent.a, extent.b) if isinstance(e, Const)), extent)
        usable = not any(isinstance(e, Load) or (isinstance(e, Var) and e not in self.vars) for e in walk_expr(extent))
        return self.eval(extent) if usable else int_value(UNKNOWN_EXTENT)


def _nest(stmt: For) -> list[For]:
    """Return the parallel loops directly inside each other whose extents do not depend on each other."""
    loops = [stmt]
    while isinstance(loops[-1].body, For) and loops[-1].body.kind is ForKind.PARALLEL:
        inner = loops[-1].body
        outer = {loop.var for loop in loops}
        if any(isinstance(e, Load) or e in outer for e in walk_expr(inner.extent)):
            break
        loops.append(inner)
    return loops


def _stores(loop: For) -> frozenset[object]:
    from_body: frozenset[object] = frozenset(s.buffer for s in _walk_stores(loop))
    return from_body


def _walk_stores(stmt: Stmt) -> list[Store]:
    found = [stmt] if isinstance(stmt, Store) else []
    for child in child_stmts(stmt):
        found += _walk_stores(child)
    return found


def _positive(value: Value) -> Value:
    return Value(value.text, value.type, value.width, value.level, value.number, True)


def attributes(kernel: Kernel) -> str:
    """Return the attributes of a function: full vector width is wanted where the target has it."""
    if kernel.target.vector_bytes < 64:
        return "nounwind"
    return 'nounwind "min-legal-vector-width"="512" "prefer-vector-width"="512"'
