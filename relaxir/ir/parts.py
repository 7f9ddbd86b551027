"""The parts of a graph-level value: operands, bodies inside it, symbols that it introduces."""

from __future__ import annotations

from dataclasses import replace

from relaxir.ir.expr import (
    Binding,
    Body,
    CallDPS,
    CallTIR,
    Check,
    Expr,
    FuncCall,
    If,
    Loop,
    OpCall,
    TupleExpr,
    TupleGetItem,
)
from relaxir.sym import Dim


def operands(expr: Expr) -> tuple[Expr, ...]:
    """Operands of an expression (what its bodies read is not included)."""
    if isinstance(expr, OpCall | FuncCall | CallTIR | CallDPS):
        return expr.args
    if isinstance(expr, TupleExpr):
        return expr.fields
    if isinstance(expr, TupleGetItem):
        return (expr.value,)
    if isinstance(expr, If):
        return (expr.cond,)
    if isinstance(expr, Loop):
        return (*(o for o in (expr.trips, expr.start) if o is not None), *expr.init)
    return ()


def with_operands(loop: Loop, given: tuple[Expr, ...]) -> Loop:
    """A loop with other operands, in the order of `operands`."""
    rest = list(given)
    trips = rest.pop(0) if loop.trips is not None else None
    start = rest.pop(0) if loop.start is not None else None
    return replace(loop, trips=trips, start=start, init=tuple(rest))


def bodies_of(expr: Expr) -> tuple[Body, ...]:
    """Bodies inside an expression: both branches of an `If`, the body of a `Loop`."""
    if isinstance(expr, If):
        return (expr.then, expr.other)
    return (expr.body,) if isinstance(expr, Loop) else ()


def with_bodies(expr: Expr, bodies: tuple[Body, ...]) -> Expr:
    """An expression with other bodies, in the order of `bodies_of`."""
    if all(a is b for a, b in zip(bodies, bodies_of(expr), strict=True)):
        return expr
    if isinstance(expr, If):
        return replace(expr, then=bodies[0], other=bodies[1])
    assert isinstance(expr, Loop)
    return replace(expr, body=bodies[0])


def owned_dims(binding: Binding) -> tuple[Dim, ...]:
    """Symbols that a binding introduces: those of its result, and those that change in its loop."""
    if isinstance(binding, Check):
        return ()
    return (*binding.defines, *binding.value.dims) if isinstance(binding.value, Loop) else binding.defines
