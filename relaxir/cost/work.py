"""Symbolic cost of tensor programs: operations and bytes, as polynomials in the program's sizes."""

from __future__ import annotations

from relaxir.support.dtypes import info
from relaxir.sym import DimLike, add, mul, product
from relaxir.tir import (
    Alloc,
    Assert,
    Block,
    Call,
    Const,
    Expr,
    For,
    If,
    Intrinsic,
    Let,
    Load,
    PrimFunc,
    Seq,
    Size,
    Stmt,
    Store,
    Switch,
    Var,
)
from relaxir.tir.access import as_dim
from relaxir.tir.visit import child_exprs

CHEAP = frozenset(
    {
        Intrinsic.NEG,
        Intrinsic.ABS,
        Intrinsic.NOT,
        Intrinsic.FLOOR,
        Intrinsic.CEIL,
        Intrinsic.ROUND,
        Intrinsic.TRUNC,
        Intrinsic.SIGN,
    }
)
CALL_COST = 10  # a polynomial of a transcendental function, in elementary operations


def operations(expr: Expr) -> int:
    """Elementary operations of evaluating one expression; index arithmetic of loads is free."""
    if isinstance(expr, Load | Const | Var | Size):
        return 0
    own = (1 if expr.fn in CHEAP else CALL_COST) if isinstance(expr, Call) else 1
    return own + sum(operations(e) for e in child_exprs(expr))


def stmt_flops(stmt: Stmt) -> DimLike:
    """Operations of a statement in either form; a data-dependent loop counts one iteration, an `If` its first side."""
    if isinstance(stmt, Store):
        return max(1, operations(stmt.value) + (stmt.combine is not None))
    if isinstance(stmt, Seq):
        total: DimLike = 0
        for s in stmt.stmts:
            total = add(total, stmt_flops(s))
        return total
    if isinstance(stmt, Block):
        return mul(product(a.extent for a in stmt.axes), stmt_flops(stmt.body))
    if isinstance(stmt, For):
        extent = as_dim(stmt.extent)
        return mul(1 if extent is None else extent, stmt_flops(stmt.body))
    if isinstance(stmt, If):
        return stmt_flops(stmt.then)
    if isinstance(stmt, Let | Alloc | Switch):
        return stmt_flops(stmt.body)
    return 1 if isinstance(stmt, Assert) else 0


def flops(func: PrimFunc) -> DimLike:
    """Elementary operations of one call: 2 per multiply-add, 10 per transcendental function."""
    return stmt_flops(func.body)


def bytes_moved(func: PrimFunc) -> DimLike:
    """Bytes of all parameters, each counted once: what must cross the memory bus at least."""
    total: DimLike = 0
    for b in func.params:
        total = add(total, mul(product(b.shape), info(b.dtype).bytes))
    return total
