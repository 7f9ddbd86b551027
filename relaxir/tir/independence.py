"""A conservative test that the iterations of a loop do not disturb each other."""

from __future__ import annotations

from collections.abc import Iterator

from relaxir.tir.buffer import Buffer
from relaxir.tir.expr import Binary, BinOp, Expr, Var
from relaxir.tir.stmt import Alloc, If, Let, Stmt, Store
from relaxir.tir.visit import child_stmts, walk_expr


def dependent_stores(var: Var, body: Stmt) -> Iterator[Store]:
    """Stores of a loop body that several iterations may make to one place.

    Harmless are stores to buffers allocated inside, stores that combine, stores with ``var`` in an index (different
    iterations are then taken to hit different places), and stores under a test ``... == ...`` that involves ``var``.
    """
    yield from _search(body, {var}, set())


def _search(s: Stmt, varying: set[Var], own: set[Buffer]) -> Iterator[Store]:
    if isinstance(s, Store):
        harmless = s.combine is not None or s.buffer in own or any(_mentions(i, varying) for i in s.indices)
        if not harmless:
            yield s
        return
    if isinstance(s, Let) and _mentions(s.value, varying):
        varying = varying | {s.var}
    elif isinstance(s, Alloc):
        own = own | {s.buffer}
    elif isinstance(s, If) and _is_equality(s.cond, varying):
        if s.other is not None:
            yield from _search(s.other, varying, own)
        return
    for child in child_stmts(s):
        yield from _search(child, varying, own)


def _mentions(e: Expr, varying: set[Var]) -> bool:
    return any(isinstance(x, Var) and x in varying for x in walk_expr(e))


def _is_equality(e: Expr, varying: set[Var]) -> bool:
    return any(isinstance(x, Binary) and x.op is BinOp.EQ and _mentions(x, varying) for x in walk_expr(e))
