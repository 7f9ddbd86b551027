"""Extents as memory is planned with: symbols of at least 1 for what grows with its symbols, a symbol of its own for the rest."""

from relaxir.passes.plan_memory import positive_extents, rises
from relaxir.sym import add, dim, floordiv, mul, sub

n, m = dim("n"), dim("m")


def test_differences_are_planned_as_they_are() -> None:
    """With a symbol of 0 that counts as 1, a difference would be too small."""
    difference, product, less = sub(n, m), mul(n, add(m, 3)), sub(n, 1)
    found = positive_extents((difference, product, less), set())
    assert set(found) == {n, m, difference}
    assert all(symbol.min == 1 for symbol in found.values())


def test_what_rises() -> None:
    """Polynomials that no symbol makes smaller."""
    assert rises(n) and rises(mul(n, m)) and rises(sub(mul(n, 2), 5))
    assert not rises(sub(n, m)) and not rises(sub(5, n)) and not rises(mul(n, sub(m, n))) and not rises(floordiv(n, 2))
