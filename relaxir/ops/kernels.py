"""Small helpers for writing kernels: flat offsets, loops, scalar cells, index guards."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from relaxir.ir.attrs import Attrs
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.expr import Var as GraphVar
from relaxir.ir.op import Op
from relaxir.ir.pending import PendingCall
from relaxir.ir.types import TensorType
from relaxir.sym import DimLike, product
from relaxir.tir import (
    Alloc,
    Assert,
    Buffer,
    Expr,
    For,
    If,
    Let,
    ProgramBuilder,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
    cast,
    const,
    select,
)


def ravel(indices: Sequence[Expr], shape: Sequence[DimLike]) -> Expr:
    """Row-major offset of an element."""
    if not indices:
        return const(0)
    flat, *rest = indices
    for index, extent in zip(rest, shape[1:], strict=True):
        flat = flat * extent + index
    return flat


def unravel(flat: Expr, shape: Sequence[DimLike]) -> tuple[Expr, ...]:
    """Indices of the element at a row-major offset; the leading index needs no remainder."""
    found: tuple[Expr, ...] = ()
    for axis, extent in enumerate(shape):
        inner = flat // product(shape[axis + 1 :])
        found += (const(0) if extent == 1 else inner % extent if axis else inner,)
    return found


def input_of(f: ProgramBuilder, name: str, t: TensorType) -> Buffer:
    """Declare an input of a tensor type."""
    return f.input(name, t.shape, t.dtype)


def output_of(f: ProgramBuilder, name: str, t: TensorType) -> Buffer:
    """Declare a result of a tensor type."""
    return f.output(name, t.shape, t.dtype)


def loop(name: str, extent: Expr | DimLike, body: Callable[[Var], Stmt]) -> For:
    """Serial loop from 0."""
    var = Var(name)
    return For(var, as_expr(extent), body(var))


def nest(name: str, extents: Sequence[Expr | DimLike], body: Callable[..., Stmt]) -> Stmt:
    """Serial loops over a box, outermost first."""
    variables = tuple(Var(f"{name}{n}") for n in range(len(extents)))
    stmt = body(*variables)
    for var, extent in zip(reversed(variables), reversed(extents), strict=True):
        stmt = For(var, as_expr(extent), stmt)
    return stmt


def let(name: str, value: Expr, body: Callable[[Var], Stmt]) -> Let:
    """Name a scalar."""
    var = Var(name, value.dtype)
    return Let(var, value, body(var))


def seq(*stmts: Stmt) -> Stmt:
    """Statements in order."""
    return stmts[0] if len(stmts) == 1 else Seq(stmts)


def when(cond: Expr, *then: Stmt) -> If:
    """Run statements if the condition holds."""
    return If(cond, seq(*then))


def cell(name: str, dtype: str = "int64") -> Buffer:
    """A scalar that a body may overwrite."""
    return Buffer(name, (), dtype, Scope.STACK)


def assign(target: Buffer, value: Expr | int | float | bool) -> Store:
    """Overwrite a scalar cell."""
    return Store(target, (), as_expr(value, target.dtype))


def scoped(buffers: Sequence[Buffer], *stmts: Stmt) -> Stmt:
    """Statements with buffers of their own."""
    body = seq(*stmts)
    for buffer in reversed(buffers):
        body = Alloc(buffer, body)
    return body


def index_of(value: Expr, extent: DimLike) -> Expr:
    """An index as int64, counted from the end where negative."""
    wide = cast(value, "int64")
    return wide + select(wide < 0, as_expr(extent), const(0))


def within(index: Expr, extent: DimLike) -> Expr:
    """``0 <= index < extent``."""
    return (index >= 0) & (index < extent)


def extent_of(x: GraphExpr, axis: int) -> DimLike:
    """One extent of an operand, for `Op.positions`."""
    assert isinstance(x.type, TensorType)
    return x.type.shape[axis]


def check_index(op: str, value: Expr, extent: DimLike, axis: int) -> Assert:
    """Fail the call unless ``-extent <= value < extent``."""
    wide = cast(value, "int64")
    size = as_expr(extent)
    valid = (wide + size >= 0) & (wide < size)
    return Assert(
        valid, "runtime-index", f"{op}: index {{}} is out of range for axis {axis} of extent {{}}", (wide, size)
    )


def emit_op(bb: BlockBuilder, op: Op[Any], *args: GraphExpr, attrs: Attrs | None = None) -> GraphVar:
    """Emit a simpler operator from a decomposition."""
    return bb.emit(PendingCall(op, args, Attrs() if attrs is None else attrs, None))
