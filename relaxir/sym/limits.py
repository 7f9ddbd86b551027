"""When 64-bit arithmetic gives the value of a dimension.

Sums and products may wrap on the way, since only the result counts; what is divided or compared must be right by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Final, TypeAlias

import sympy

from relaxir.support.errors import RuntimeFailure, RuntimeShapeError, SymError
from relaxir.sym.expr import CeilDiv, Dim, DimLike, FloorDiv, Light, free_dims, order_key, unwrap
from relaxir.sym.fold import fold
from relaxir.sym.normalize import evaluate
from relaxir.sym.printer import to_text

LARGEST: Final = 1 << 62
"""Largest magnitude of a computed dimension; beyond it calls fail."""
SHOWN: Final = 4
"""Values that one run-time message can show."""


@lru_cache(maxsize=4096)
def exact_parts(expr: DimLike) -> tuple[DimLike, ...]:
    """The formulas whose values must not exceed `LARGEST`: ``expr``, and operands of its quotients and extrema.

    Symbols and numbers are not listed, nor parts that fit because their symbols and their own parts do.

    >>> from relaxir.sym import dim
    >>> n, m = dim("n"), dim("m", max=1000)
    >>> exact_parts((8 * n + 1) // 16 + m * m)
    (n * 8 + 1,)
    """
    found: dict[DimLike, None] = {}
    for node in () if isinstance(expr, int) else sympy.preorder_traversal(expr):
        if node is expr:
            found[unwrap(node)] = None
        if isinstance(node, Light):
            found.update(dict.fromkeys(unwrap(a) for a in node.args))
    return tuple(p for p in found if magnitude(p) > _TOP)


_TOP: Final = (1 << 63) - 1
_Bound: TypeAlias = tuple[float, int | None]
"""A bound of the magnitude of a formula, and its value if that is constant."""


def _symbol(d: Dim) -> _Bound:
    return (_TOP if d.max is None else max(abs(d.min), abs(d.max))), None


def _node(label: str, args: Sequence[_Bound]) -> _Bound:
    if label == "add":
        return sum(a for a, _ in args), None
    if label == "mul":
        return prod(a for a, _ in args), None
    sizes = [min(a, _TOP) for a, _ in args]  # each is checked as a part of its own
    divisor = args[-1][1]
    if label in ("floordiv", "ceildiv") and divisor:
        return sizes[0] // abs(divisor) + 1, None
    return max(sizes), None


def magnitude(expr: DimLike) -> float:
    """A bound of the magnitude that the ranges of symbols allow."""
    return fold(expr, lambda n: (abs(n), n), _symbol, _node)[0]


def split_factors(expr: DimLike) -> tuple[float, tuple[DimLike, ...]]:
    """A constant factor and the others; quotients by constants are taken for exact.

    >>> from relaxir.sym import dim
    >>> split_factors(8 * dim("n") ** 2)
    (8.0, (n, n))
    """
    if isinstance(expr, int | sympy.Integer):
        return float(expr), ()
    if isinstance(expr, FloorDiv | CeilDiv) and isinstance(divisor := unwrap(expr.args[1]), int) and divisor > 0:
        number, factors = split_factors(unwrap(expr.args[0]))
        return number / divisor, factors
    if isinstance(expr, sympy.Pow):
        base, exponent = expr.args
        number, factors = split_factors(unwrap(base))
        return number ** int(exponent), factors * int(exponent)
    if isinstance(expr, sympy.Mul):
        parts = [split_factors(unwrap(a)) for a in sorted(expr.args, key=order_key)]
        return prod(n for n, _ in parts), tuple(f for _, factors in parts for f in factors)
    return 1.0, (expr,)


def counting_factors(expr: DimLike) -> tuple[DimLike, ...]:
    """The factors of a product, quotients that are rounded up without their divisors.

    If no factor is negative, the expression is positive exactly where all of them are.

    >>> from relaxir.sym import ceildiv, dim
    >>> counting_factors(8 * dim("n") * ceildiv(dim("m"), 16))
    (m, n)
    """
    if isinstance(expr, int | sympy.Integer):
        return () if expr > 0 else (int(expr),)
    if isinstance(expr, CeilDiv) and isinstance(divisor := unwrap(expr.args[1]), int) and divisor > 0:
        return counting_factors(unwrap(expr.args[0]))
    if isinstance(expr, sympy.Pow):
        return counting_factors(unwrap(expr.args[0]))
    if isinstance(expr, sympy.Mul):
        return tuple(f for a in sorted(expr.args, key=order_key) for f in counting_factors(unwrap(a)))
    return (expr,)


def overflow(part: DimLike) -> tuple[str, tuple[Dim, ...]]:
    """What an error says of a part that exceeds `LARGEST`: one ``{}`` for the value of each of the symbols given."""
    shown = free_dims(part)[:SHOWN]
    return f"the size `{to_text(part)}` does not fit 64 bits; {', '.join(f'{d.name} is {{}}' for d in shown)}", shown


def exact(expr: DimLike, env: Mapping[str, int]) -> int:
    """The value of a dimension that compiled code can compute.

    Raises:
        RuntimeFailure: a part of it exceeds `LARGEST`.
        RuntimeShapeError: it has no value at these sizes, as they do not broadcast, or a divisor is 0.
        SymError: a symbol has no value.
    """
    try:
        for part in exact_parts(expr):
            if abs(evaluate(part, env)) > LARGEST:
                text, shown = overflow(part)
                raise RuntimeFailure(text.format(*(env[d.name] for d in shown)), code="runtime-overflow")
        return evaluate(expr, env)
    except SymError as error:
        if any(d.name not in env for d in free_dims(expr)):
            raise
        raise RuntimeShapeError(f"the size `{to_text(expr)}`: {error.message}") from error


def check_bytes(shape: Sequence[int], bytes: int) -> None:  # of one element
    """Refuse an array whose strides do not fit 64 bits: empty axes count as one element, since strides skip them.

    Raises:
        RuntimeFailure: with code ``runtime-overflow``.
    """
    if prod(max(extent, 1) for extent in shape) * bytes > LARGEST:
        raise RuntimeFailure(
            f"the size in bytes of shape ({', '.join(map(str, shape))}) does not fit 64 bits", code="runtime-overflow"
        )
