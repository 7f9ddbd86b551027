"""Integer polynomials over named atoms: the canonical form behind every proof.

A monomial is a sorted tuple of atom keys (repeated for powers); a polynomial maps monomials to
non-zero coefficients.  Keys are text, so the form is the same in every process.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from math import gcd

Monomial = tuple[str, ...]


class Poly:
    """An immutable polynomial; equal polynomials are equal functions of their atoms."""

    __slots__ = ("_hash", "_key", "terms")

    terms: Mapping[Monomial, int]

    def __init__(self, terms: Mapping[Monomial, int]) -> None:
        self.terms = terms
        self._hash = hash(frozenset(terms.items()))
        self._key: str | None = None

    def __hash__(self) -> int:
        return self._hash

    def __eq__(self, other: object) -> bool:
        return self is other or (isinstance(other, Poly) and self._hash == other._hash and self.terms == other.terms)

    def __add__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            _accumulate(terms, monomial, coefficient)
        return Poly(terms)

    def __sub__(self, other: Poly) -> Poly:
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            _accumulate(terms, monomial, -coefficient)
        return Poly(terms)

    def __mul__(self, other: Poly) -> Poly:
        terms: dict[Monomial, int] = {}
        for a, x in self.terms.items():
            for b, y in other.terms.items():
                _accumulate(terms, tuple(sorted(a + b)) if a and b else a or b, x * y)
        return Poly(terms)

    def scale(self, factor: int) -> Poly:
        """Return the polynomial times a constant."""
        return Poly({m: c * factor for m, c in self.terms.items()} if factor else {})

    def shift(self, offset: int) -> Poly:
        """Return the polynomial plus a constant."""
        terms = dict(self.terms)
        _accumulate(terms, (), offset)
        return Poly(terms)

    @property
    def key(self) -> str:
        """A text that is equal for equal polynomials."""
        if self._key is None:
            self._key = "+".join("*".join((str(c), *m)) for m, c in sorted(self.terms.items())) or "0"
        return self._key

    @property
    def value(self) -> int | None:
        """The value of a constant polynomial, else None."""
        if not self.terms:
            return 0
        return self.terms.get(()) if len(self.terms) == 1 else None

    @property
    def constant(self) -> int:
        """The constant term."""
        return self.terms.get((), 0)

    @property
    def content(self) -> int:
        """The greatest common divisor of the coefficients other than the constant; 0 for a constant."""
        return gcd(*(c for m, c in self.terms.items() if m))

    @property
    def single(self) -> str | None:
        """The atom that the polynomial consists of, else None."""
        if len(self.terms) == 1:
            ((monomial, coefficient),) = self.terms.items()
            if coefficient == 1 and len(monomial) == 1:
                return monomial[0]
        return None

    def atoms(self) -> list[str]:
        """Return the atoms that occur, sorted."""
        return sorted({atom for monomial in self.terms for atom in monomial})

    def split(self, atom: str) -> tuple[Poly, Poly] | None:
        """Return ``f, rest`` with ``self == f * atom + rest``, or None where a power of the atom occurs."""
        inside: dict[Monomial, int] = {}
        outside: dict[Monomial, int] = {}
        for monomial, coefficient in self.terms.items():
            count = monomial.count(atom)
            if count > 1:
                return None
            if count:
                inside[without(monomial, atom)] = coefficient
            else:
                outside[monomial] = coefficient
        return Poly(inside), Poly(outside)

    def leading(self) -> Monomial:
        """Return the greatest monomial in a fixed order that respects products."""
        return max(self.terms, key=lambda m: (len(m), tuple(_Reversed(a) for a in m)))

    def exact_quotient(self, divisor: Poly) -> Poly | None:
        """Return ``self / divisor`` where the division leaves no remainder, else None."""
        if not divisor.terms:
            return None
        head = divisor.leading()
        factor = divisor.terms[head]
        quotient: dict[Monomial, int] = {}
        rest = self
        while rest.terms:
            monomial = rest.leading()
            cofactor = divide(monomial, head)
            coefficient = rest.terms[monomial]
            if cofactor is None or coefficient % factor or len(quotient) > 64:
                return None
            quotient[cofactor] = coefficient // factor
            rest = rest - Poly({cofactor: coefficient // factor}) * divisor
        return Poly(quotient)


class _Reversed(str):
    """A text that sorts the other way: makes the order on monomials graded lexicographic."""

    __slots__ = ()

    def __lt__(self, other: str) -> bool:
        return str.__gt__(self, other)

    def __gt__(self, other: str) -> bool:
        return str.__lt__(self, other)


def _accumulate(terms: dict[Monomial, int], monomial: Monomial, coefficient: int) -> None:
    total = terms.get(monomial, 0) + coefficient
    if total:
        terms[monomial] = total
    else:
        terms.pop(monomial, None)


def constant(value: int) -> Poly:
    """Return a constant polynomial."""
    return Poly({(): value} if value else {})


def atom(key: str) -> Poly:
    """Return the polynomial that is one atom."""
    return Poly({(key,): 1})


def without(monomial: Monomial, key: str) -> Monomial:
    """Return ``monomial`` with one occurrence of the atom taken out."""
    index = monomial.index(key)
    return monomial[:index] + monomial[index + 1 :]


def divide(monomial: Monomial, divisor: Monomial) -> Monomial | None:
    """Return the quotient of two monomials, or None where it is none."""
    for key in divisor:
        if key not in monomial:
            return None
        monomial = without(monomial, key)
    return monomial


def common_monomial(monomials: Iterable[Monomial]) -> Monomial:
    """Return the greatest common divisor of monomials."""
    first, *others = monomials
    for other in others:
        shared: list[str] = []
        left = other
        for key in first:
            if key in left:
                shared.append(key)
                left = without(left, key)
        first = tuple(shared)
    return first
