"""The query entry of a host program: shapes of its results and its working memory, from the shapes of its inputs."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from relaxir.backends.llvm import emit_ops as ops
from relaxir.backends.llvm.emit_value import int_value
from relaxir.backends.llvm.host_emit import Host
from relaxir.backends.llvm.ir_text import symbol_text
from relaxir.backends.llvm.symbols import query_symbol
from relaxir.sym import Dim, free_dims
from relaxir.tir.expr import BinOp, Load, Size
from relaxir.tir.func import PrimFunc
from relaxir.tir.host import AllocOutput, BindDim, CallHost, OpenFrame
from relaxir.tir.stmt import Assert, If, Seq, Stmt
from relaxir.tir.visit import all_exprs, child_stmts, symbols_after

KEPT: Final = (BindDim, Assert, OpenFrame, AllocOutput)


def query_program(func: PrimFunc) -> PrimFunc | None:
    """The part of a host program that reads no data; None where a result's shape or a frame depends on data.

    Frames inside branches count as if every branch were taken: the memory is an upper bound then.
    """
    kept: list[Stmt] = []
    known: set[Dim] = set()
    outputs = 0

    def visit(stmt: Stmt) -> bool:
        nonlocal outputs
        if isinstance(stmt, If) and symbols_after(stmt):
            return False
        children = child_stmts(stmt)
        if children:
            return all(visit(c) for c in children)
        exprs = tuple(all_exprs(stmt))
        if not isinstance(stmt, KEPT) or any(isinstance(e, Load) for e in exprs):
            return not isinstance(stmt, BindDim | CallHost)
        if isinstance(stmt, BindDim):
            known.add(stmt.dim)
        elif isinstance(stmt, OpenFrame):
            if not set(free_dims(stmt.size)) <= known:
                return False
        elif isinstance(stmt, AllocOutput):
            outputs += 1
            if not {s for d in stmt.buffer.shape for s in free_dims(d)} <= known:
                return False
        elif not {s for e in exprs if isinstance(e, Size) for s in free_dims(e.expr)} <= known:
            return True  # a check of something that a call computes
        kept.append(stmt)
        return True

    complete = visit(func.body)
    return replace(func, body=Seq(tuple(kept))) if complete and outputs == func.outputs else None


class Query(Host):
    """Writes the query entry ``i32 @query_<name>(ctx, ws, inputs, outputs, bytes)`` of a `query_program`."""

    def write(self) -> str:
        """Return the definition."""
        self.begin()
        self.w.line("store i64 0, ptr %bytes, align 8")
        for i, buffer in enumerate(self.func.inputs):
            self.check_tensor(self.tensor("%inputs", i), buffer)
        self.emit(self.func.body)
        self.end()
        symbol = symbol_text(query_symbol(self.name))
        return (
            f"define i32 {symbol}(ptr %ctx, ptr %ws, ptr %inputs, ptr %outputs, ptr %bytes) "
            f"nounwind {{\nentry:\n{self.w.body()}\n}}"
        )

    def other_stmt(self, stmt: Stmt) -> None:
        """Sum frames up, write shapes, bind dimensions."""
        if isinstance(stmt, OpenFrame):
            before = self.w.here("load i64, ptr %bytes, align 8", "i64")
            total = ops.binary(self.w, BinOp.ADD, "int64", before, self.checked_size(stmt.size))
            self.w.line(f"store {total.typed}, ptr %bytes, align 8")
        elif isinstance(stmt, AllocOutput):
            shape = self.field(self.tensor("%outputs", stmt.index), "DL_SHAPE", "ptr")
            for axis, d in enumerate(stmt.buffer.shape):
                place = self.at(shape, int_value(8 * axis))
                self.w.line(f"store {self.dim(d).typed}, ptr {place.text}, align 8")
        else:
            super().other_stmt(stmt)
