"""When 64-bit arithmetic gives the value of a dimension.

Sums and products may wrap on the way, since only the result counts; what is divided or compared must be right by then.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from math import prod
from typing import Final, TypeAlias

import sympy

from relaxir.support.errors import RuntimeFailure
from relaxir.sym.expr import Dim, DimLike, Light, free_dims, unwrap
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
    return tuple(p for p in found if fold(p, lambda n: (abs(n), n), _symbol, _node)[0] > _TOP)


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


def overflow(part: DimLike) -> tuple[str, tuple[Dim, ...]]:
    """What an error says of a part that exceeds `LARGEST`: one ``{}`` for the value of each of the symbols given."""
    shown = free_dims(part)[:SHOWN]
    return f"the size `{to_text(part)}` does not fit 64 bits; {', '.join(f'{d.name} is {{}}' for d in shown)}", shown


def exact(expr: DimLike, env: Mapping[str, int]) -> int:
    """The value of a dimension that compiled code can compute.

    Raises:
        RuntimeFailure: a part of it exceeds `LARGEST`.
        SymError: as `evaluate` does.
    """
    for part in exact_parts(expr):
        if abs(evaluate(part, env)) > LARGEST:
            text, shown = overflow(part)
            raise RuntimeFailure(text.format(*(env[d.name] for d in shown)), code="runtime-overflow")
    return evaluate(expr, env)
