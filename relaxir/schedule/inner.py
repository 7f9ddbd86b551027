"""Lanes in stages whose bodies are written by hand: their innermost loops, where iterations are independent.

Checks of whole rows of values are made together too, and looked at singly only where one of them fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relaxir.schedule.legality import dependence
from relaxir.schedule.loops import BLOCK, Machine, parallel, seq
from relaxir.schedule.program import accesses_of
from relaxir.sym import ceildiv, is_const
from relaxir.tir import (
    Alloc,
    Assert,
    Axis,
    Buffer,
    Combine,
    Const,
    Expr,
    For,
    ForKind,
    If,
    Intrinsic,
    Let,
    Load,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
    call,
    const,
    minimum,
)
from relaxir.tir.access import loads_of, stride
from relaxir.tir.visit import map_stmt, substitute_vars, walk

FEW = 4  # iterations that are not worth lanes


def vectorize_inner(stmt: Stmt) -> Stmt:
    """Make vector loops of innermost loops that walk memory in order, or reduce what they read in order.

    before: ``for j < 64: any |= x[i*64 + j] > worst``; after: ``vector j < 64: any |= x[i*64 + j] > worst``
    """
    return map_stmt(stmt, on_stmt=lambda s: _as_lanes(s) if isinstance(s, For) else s)


def _as_lanes(stmt: For) -> For:
    return replace(stmt, kind=ForKind.VECTOR) if stmt.kind is ForKind.SERIAL and _makes_lanes(stmt) else stmt


def _makes_lanes(stmt: For) -> bool:
    if isinstance(stmt.extent, Const) and stmt.extent.value < FEW:
        return False
    if not all(isinstance(s, Seq | Let | Store) for s in walk(stmt.body)):
        return False
    steps = [stride(a, stmt.var) for a in accesses_of(stmt.body) if isinstance(a, Load | Store)]
    return bool(steps) and all(s in (0, 1) for s in steps) and dependence(stmt, lanes=True) is None


def checks_together(axes: Sequence[Axis], check: Assert, machine: Machine) -> Stmt | None:
    """Check the values along the last axis by lanes, a block at a time; None where they are not neighbours.

    before: ``for i < n: assert ok(x[i])``; after::

        parallel b < (n + 4095) // 4096: some = false; vector i < min(n - b*4096, 4096): some |= not ok(x[b*4096+i])
                                         if some: for i < ...: assert ok(x[b*4096+i])
    """
    if not axes or any(stride(a, axes[-1].var) not in (0, 1) for a in loads_of(check.cond)):
        return None
    axis, block, i = axes[-1], Var("block"), Var("i")
    one = is_const(axis.extent) and int(axis.extent) <= BLOCK
    start: Expr = const(0) if one else block * BLOCK
    size = as_expr(axis.extent) if one else minimum(as_expr(axis.extent) - start, const(BLOCK))
    here = substitute_vars(check, {axis.var: start + i})
    assert isinstance(here, Assert)  # substitution keeps the kind
    some = Buffer("some", (), "bool", Scope.STACK)
    test = Store(some, (), call(Intrinsic.NOT, here.cond), Combine.OR)
    body = Alloc(
        some,
        seq(
            Store(some, (), const(False, "bool")),
            For(i, size, test, ForKind.VECTOR),
            If(some[()], For(i, size, here)),
        ),
    )
    blocks = () if one else (Axis(block, ceildiv(axis.extent, BLOCK)),)
    return parallel((*axes[:-1], *blocks), body, machine)
