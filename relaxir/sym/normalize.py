"""Turn any sympy integer expression into the light form, and evaluate it on Python ints."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from math import gcd
from typing import Any

import sympy

from relaxir.support.errors import SymError
from relaxir.sym.expr import (
    Broadcast,
    CeilDiv,
    Dim,
    DimLike,
    FloorDiv,
    Light,
    Max,
    Min,
    Mod,
    as_dimlike,
    ceildiv,
    floordiv,
    max_,
    min_,
    mod,
    mul,
    product,
    total,
    unwrap,
)


def normalize(expr: Any) -> DimLike:
    """Return the light form of an int, a NumPy integer or any sympy integer expression over ``Dim``s.

    ``floor(n/2 + 1/2)`` becomes ``(n + 1) // 2``; ``Mod``, ``Max``, ``Min`` and ``ceiling`` become the
    light functions.  Raises ``SymError`` where the value is not certainly an integer.
    """
    value = as_dimlike(expr)
    return value if isinstance(value, (int, Dim)) else _normalize(value)


@lru_cache(maxsize=16384)
def _normalize(expr: sympy.Expr) -> DimLike:
    if _is_light(expr):
        return unwrap(expr)
    numerator, denominator = _ratio(expr)
    if denominator != 1:
        raise SymError(f"{expr} is not certainly an integer; use // to round down")
    return numerator


@lru_cache(maxsize=16384)
def _is_light(expr: Any) -> bool:
    if isinstance(expr, (Dim, sympy.Integer)):
        return True
    if isinstance(expr, sympy.Pow):
        base, exponent = expr.args
        return isinstance(exponent, sympy.Integer) and int(exponent) > 0 and _is_light(base)
    return isinstance(expr, (sympy.Add, sympy.Mul, Light)) and all(map(_is_light, expr.args))


def _ratio(expr: Any) -> tuple[DimLike, DimLike]:
    """Return ``expr`` as a numerator and a denominator; a constant denominator is positive and reduced."""
    if isinstance(expr, Dim):
        return expr, 1
    if isinstance(expr, sympy.Rational):
        return int(expr.p), int(expr.q)
    if isinstance(expr, sympy.Add):
        numerators, denominator = _common(expr.args)
        return _reduced(total(numerators), denominator)
    if isinstance(expr, sympy.Mul):
        ratios = [_ratio(arg) for arg in expr.args]
        return _reduced(product(n for n, _ in ratios), product(d for _, d in ratios))
    if isinstance(expr, sympy.Pow) and isinstance(expr.exp, sympy.Integer):
        numerator, denominator = _ratio(expr.base)
        exponent = abs(int(expr.exp))
        powers = product([numerator] * exponent), product([denominator] * exponent)
        return _reduced(*(powers if expr.exp > 0 else powers[::-1]))
    if isinstance(expr, sympy.floor):
        return floordiv(*_ratio(expr.args[0])), 1
    if isinstance(expr, sympy.ceiling):
        return ceildiv(*_ratio(expr.args[0])), 1
    if isinstance(expr, sympy.Mod):
        (a, b), denominator = _common(expr.args)
        return _reduced(mod(a, b), _positive(denominator, expr))
    if isinstance(expr, (sympy.Max, sympy.Min)):
        numerators, denominator = _common(expr.args)
        function = max_ if isinstance(expr, sympy.Max) else min_
        return _reduced(function(*numerators), _positive(denominator, expr))
    if isinstance(expr, Light):
        return type(expr).fold(*map(normalize, expr.args)), 1
    if isinstance(expr, sympy.Symbol):
        raise SymError(f"symbol {expr} is not a dimension; make it with rx.dim({str(expr)!r})")
    raise SymError(f"{type(expr).__name__} is not allowed in a dimension: {expr}")


def _common(args: Any) -> tuple[list[DimLike], DimLike]:
    """Return the numerators of ``args`` over one common denominator."""
    ratios = [_ratio(arg) for arg in args]
    constant, symbolic = 1, []
    for _, d in ratios:
        if isinstance(d, int):
            constant = constant * d // gcd(constant, d)
        elif d not in symbolic:
            symbolic.append(d)
    denominator = mul(constant, product(symbolic))
    result = []
    for n, d in ratios:
        if isinstance(d, int):
            result.append(mul(n, mul(constant // d, product(symbolic))))
        else:
            others = product(s for s in symbolic if s != d)
            result.append(mul(n, mul(constant, others)))
    return result, denominator


def _positive(denominator: DimLike, expr: Any) -> DimLike:
    if isinstance(denominator, int) and denominator > 0:
        return denominator
    raise SymError(f"a fraction with an unknown denominator is not allowed here: {expr}")


def _reduced(numerator: DimLike, denominator: DimLike) -> tuple[DimLike, DimLike]:
    """Cancel a constant denominator where it divides every term, and keep it positive."""
    if denominator == 1:
        return numerator, 1
    if numerator == 0:
        return 0, 1
    if not isinstance(denominator, int):
        n, d = sympy.cancel(sympy.sympify(numerator) / denominator).as_numer_denom()
        return normalize(n), normalize(d)
    if denominator < 0:
        numerator, denominator = mul(numerator, -1), -denominator
    terms = sympy.Add.make_args(sympy.sympify(numerator))
    common = gcd(denominator, *(int(t.as_coeff_Mul()[0]) for t in terms))
    return floordiv(numerator, common), denominator // common


def evaluate(expr: DimLike, env: Mapping[str, int]) -> int:
    """Return the exact value of ``expr`` where the dimensions have the values of ``env``.

    Raises ``SymError`` for a dimension without a value, a division by zero and sizes that do not broadcast.
    """
    if isinstance(expr, int):
        return expr
    try:
        return _evaluate(expr, env)
    except ZeroDivisionError:
        raise SymError(f"division by zero in {expr}") from None


def _evaluate(expr: Any, env: Mapping[str, int]) -> int:
    if isinstance(expr, Dim):
        if expr.name not in env:
            raise SymError(f"no value for dimension {expr.name}")
        return int(env[expr.name])
    if isinstance(expr, sympy.Integer):
        return int(expr)
    if not isinstance(expr, (sympy.Add, sympy.Mul, sympy.Pow, Light)) or not _is_light(expr):
        return evaluate(normalize(expr), env)
    values = [_evaluate(arg, env) for arg in expr.args]
    if isinstance(expr, sympy.Add):
        return sum(values)
    if isinstance(expr, sympy.Mul):
        result = 1
        for value in values:
            result *= value
        return result
    if isinstance(expr, Min):
        return min(values)
    if isinstance(expr, Max):
        return max(values)
    return _evaluate_pair(expr, *values)


def _evaluate_pair(expr: Any, a: int, b: int) -> int:
    if isinstance(expr, FloorDiv):
        return a // b
    if isinstance(expr, Mod):
        return a % b
    if isinstance(expr, CeilDiv):
        return -(-a // b)
    if isinstance(expr, Broadcast):
        if 1 not in (a, b) and a != b:
            raise SymError(f"sizes {a} and {b} do not broadcast")
        return b if a == 1 else a
    return int(a**b)
