"""Print a dimension as valid Python with minimal parentheses.

The text depends on the expression alone: not on the order it was built in, nor on hash seeds.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import sympy

from relaxir.sym.expr import Dim, DimLike, FloorDiv, Light, Mod, unwrap
from relaxir.sym.normalize import normalize

_SUM, _PRODUCT, _NEGATIVE, _POWER, _ATOM = range(5)


def to_text(expr: DimLike) -> str:
    """Return ``expr`` as Python text, such as ``(n + 1) // 2`` or ``ceildiv(n, 32) * 32``."""
    return str(expr) if isinstance(expr, int) else _text(unwrap(normalize(expr)))[0]


@lru_cache(maxsize=8192)
def _text(expr: Any) -> tuple[str, int]:
    """Return the text and how strongly its outermost operator binds."""
    expr = unwrap(expr)
    if isinstance(expr, int):
        return str(expr), _ATOM if expr >= 0 else _NEGATIVE
    if isinstance(expr, Dim):
        return expr.name, _ATOM
    if isinstance(expr, sympy.Add):
        return _sum(expr), _SUM
    if isinstance(expr, sympy.Mul):
        coefficient, factors = _split(expr)
        return _signed(coefficient, factors)
    if isinstance(expr, sympy.Pow):
        return f"{_wrap(expr.base, _ATOM)} ** {expr.exp}", _POWER
    if isinstance(expr, (FloorDiv, Mod)):
        sign = "//" if isinstance(expr, FloorDiv) else "%"
        return f"{_wrap(expr.args[0], _PRODUCT)} {sign} {_wrap(expr.args[1], _NEGATIVE)}", _PRODUCT
    assert isinstance(expr, Light)
    return f"{expr.label}({', '.join(_text(arg)[0] for arg in expr.args)})", _ATOM


def _wrap(expr: Any, least: int) -> str:
    text, strength = _text(expr)
    return text if strength >= least else f"({text})"


def _split(term: Any) -> tuple[int, list[Any]]:
    coefficient, rest = term.as_coeff_Mul()
    return int(coefficient), [] if rest == 1 else list(sympy.Mul.make_args(rest))


def _signed(coefficient: int, factors: list[Any]) -> tuple[str, int]:
    """Print a product with its sign: ``-n * 4``, but ``-(n // 2)`` as minus binds tighter than //."""
    if coefficient > 0:
        return _product(coefficient, factors), _PRODUCT
    strength = _ordered(factors)[0][2]
    if strength == _SUM:  # sympy would multiply the minus out when reading `-(n + 1) * (m + 1)`
        return f"{_product(1, factors)} * {coefficient}", _PRODUCT
    text = _product(-coefficient, factors)
    if strength == _PRODUCT:
        return f"-({text})", _NEGATIVE
    return f"-{text}", _NEGATIVE if len(factors) == 1 and coefficient == -1 else _PRODUCT


def _ordered(factors: list[Any]) -> list[tuple[bool, str, int]]:
    """Return the texts of the factors, sums last, with their strengths."""
    texts = map(_text, factors)
    return sorted((strength == _SUM, text, strength) for text, strength in texts)


def _product(coefficient: int, factors: list[Any]) -> str:
    texts = _ordered(factors)
    if not texts:
        return str(coefficient)
    # a quotient in front needs no parentheses: `n // 2 * m`
    _, first, strength = texts[0]
    if strength < _PRODUCT and (len(texts) > 1 or coefficient != 1):
        first = f"({first})"
    others = [text if s > _PRODUCT else f"({text})" for _, text, s in texts[1:]]
    return " * ".join([first, *others, *([str(coefficient)] if coefficient != 1 else [])])


def _sum(expr: Any) -> str:
    terms = [_split(term) for term in expr.args]
    # different symbols of one name compare equal here: whoever adds them up is told so elsewhere
    ordered = sorted(terms, key=lambda t: (not t[1], -_degree(t[1]), _product(1, t[1]), abs(t[0]), t[0]))
    lead = next((i for i, (c, _) in enumerate(ordered) if c > 0), 0)
    ordered.insert(0, ordered.pop(lead))  # start with a positive term where there is one
    text = _signed(*ordered[0])[0]
    for coefficient, factors in ordered[1:]:
        text += f" {'-' if coefficient < 0 else '+'} {_product(abs(coefficient), factors)}"
    return text


def _degree(factors: list[Any]) -> int:
    return sum(int(f.exp) if isinstance(f, sympy.Pow) else 1 for f in factors)
