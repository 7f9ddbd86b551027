"""Walks over dimension expressions for packages that must not see sympy."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache
from typing import TypeVar

import sympy

from relaxir.support.errors import SymError
from relaxir.sym.expr import Broadcast, CeilDiv, Dim, DimLike, FloorDiv, Light, Mod, order_key, unwrap

T = TypeVar("T")


def fold(
    expr: DimLike, constant: Callable[[int], T], symbol: Callable[[Dim], T], node: Callable[[str, Sequence[T]], T]
) -> T:
    """Evaluate an expression bottom-up in any domain.

    Args:
        expr: a light expression.
        constant: the value of an integer.
        symbol: the value of a dimension.
        node: the value of ``add``, ``mul``, ``min``, ``max`` (two operands or more), ``floordiv``, ``mod``, ``ceildiv``
            or ``broadcast`` (two). Operands come in an order that is the same in every process.

    Raises:
        SymError: the expression is not in light form.
    """
    if isinstance(expr, int):
        return constant(expr)
    if isinstance(expr, sympy.Integer):
        return constant(int(expr))
    if isinstance(expr, Dim):
        return symbol(expr)
    if isinstance(expr, sympy.Pow):
        base, exponent = expr.args
        if isinstance(exponent, sympy.Integer) and int(exponent) > 0:
            return node("mul", (fold(base, constant, symbol, node),) * int(exponent))
    if isinstance(expr, (sympy.Add, sympy.Mul)):
        label = "add" if isinstance(expr, sympy.Add) else "mul"
        return node(label, [fold(a, constant, symbol, node) for a in sorted(expr.args, key=order_key)])
    if isinstance(expr, Light):
        return node(expr.label, [fold(a, constant, symbol, node) for a in expr.args])
    raise SymError(f"{expr} is not a dimension expression")


def broadcasts(expr: DimLike) -> Iterator[tuple[DimLike, DimLike]]:
    """Yield the two sides of each ``broadcast`` in an expression, inner ones first."""
    for arg in () if isinstance(expr, int) else sorted(expr.args, key=order_key):
        yield from broadcasts(arg)
    if isinstance(expr, Broadcast):
        a, b = expr.args
        yield unwrap(a), unwrap(b)


@lru_cache(maxsize=4096)
def conditions(expr: DimLike) -> tuple[tuple[tuple[DimLike, DimLike], ...], tuple[DimLike, ...]]:
    """What an expression needs to have a value: pairs that broadcast, and divisors that are not 0; inner ones first."""
    return tuple(dict.fromkeys(broadcasts(expr))), tuple(dict.fromkeys(_divisors(expr)))


def _divisors(expr: DimLike) -> Iterator[DimLike]:
    for arg in () if isinstance(expr, int) else sorted(expr.args, key=order_key):
        yield from _divisors(arg)
    if isinstance(expr, FloorDiv | CeilDiv | Mod):
        divisor = unwrap(expr.args[1])
        if not isinstance(divisor, int):
            yield divisor
