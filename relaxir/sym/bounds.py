"""Bounds of a light expression by interval arithmetic along its own structure.

The canonical form forgets that ``n - n // 8 * 8`` is a remainder; the expression still knows.
"""

from __future__ import annotations

from math import inf
from typing import Any

import sympy

from relaxir.sym.canonical import Canonical
from relaxir.sym.expr import Broadcast, Max, Min, Mod
from relaxir.sym.order import Bound, plus, times


def interval(expr: Any, forms: Canonical) -> tuple[Bound, Bound]:
    """Return bounds of ``expr``: the tighter of its canonical form's and its structure's."""
    return _interval(expr, forms, {})


def _interval(expr: Any, forms: Canonical, memo: dict[Any, tuple[Bound, Bound]]) -> tuple[Bound, Bound]:
    if expr not in memo:
        low, high = forms.interval(forms.poly(expr))
        if low != high and not isinstance(expr, int) and expr.args:
            a, b = _structural(expr, [_interval(arg, forms, memo) for arg in expr.args])
            low, high = max(low, a), min(high, b)
        memo[expr] = low, high
    return memo[expr]


def _structural(expr: Any, args: list[tuple[Bound, Bound]]) -> tuple[Bound, Bound]:
    lows, highs = [a for a, _ in args], [b for _, b in args]
    if isinstance(expr, sympy.Add):
        low: Bound = 0
        high: Bound = 0
        for a, b in args:
            low, high = plus(low, a), plus(high, b)
        return low, high
    if isinstance(expr, sympy.Mul):
        low, high = args[0]
        for a, b in args[1:]:
            ends = [times(x, y) for x in (low, high) for y in (a, b)]
            low, high = min(ends), max(ends)
        return low, high
    if isinstance(expr, Mod) and lows[1] >= 1:
        return 0, min(highs[1] - 1, highs[0] if lows[0] >= 0 else inf)
    if isinstance(expr, Max):
        return max(lows), max(highs)
    if isinstance(expr, Min):
        return min(lows), min(highs)
    if isinstance(expr, Broadcast):
        return min(lows), max(highs)
    return -inf, inf
