"""Prove ``polynomial >= 0`` from the bounds of its atoms and the inequalities that are known.

The search replaces one atom at a time by a bound that makes the polynomial smaller:

1. an atom by its lower or upper bound;
2. ``c * (p // c)`` by ``p - c + 1`` or by ``p``, for ``c > 0``;
3. ``max(...)`` and ``broadcast(...)`` by their arguments: any one, or each in turn;
4. a known ``q >= 0``, times a factor that is never negative, is subtracted.

An atom may only be replaced by an inequality where its coefficient, itself a polynomial, has a known
sign.  Sample values of the dimensions refute most false goals before any search.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import comb, inf, prod
from typing import Literal
from zlib import crc32

from relaxir.sym import poly
from relaxir.sym.expr import Dim
from relaxir.sym.poly import Monomial, Poly

Bound = int | float
"""An int, or plus or minus infinity."""

_DEPTH = 4
_STEPS = 150
_QUICK_STEPS = 12
_TERMS_OF_STEP = 8  # long polynomials take more time: they are looked at less often
_SAMPLES = 8
_MOST_TERMS = 100


@dataclass(frozen=True)
class Atom:
    """A symbol, or a function value that the polynomial layer does not look into."""

    key: str
    kind: Literal["dim", "floor", "max", "broadcast", "product"]
    lo: Bound
    hi: Bound
    args: tuple[Poly, ...] = ()
    """Of ``floor``: numerator and denominator."""
    dim: Dim | None = None
    """Of ``dim``: the dimension, which is ``dim.multiple_of`` times the atom."""


def plus(a: Bound, b: Bound) -> Bound:
    """Add bounds; an infinity absorbs integers of any size."""
    return a if a in (inf, -inf) else b if b in (inf, -inf) else a + b


def times(a: Bound, b: Bound) -> Bound:
    """Multiply bounds; zero times infinity is zero."""
    if a == 0 or b == 0:
        return 0
    if a in (inf, -inf) or b in (inf, -inf):
        return inf if (a > 0) == (b > 0) else -inf
    return a * b


class Order:
    """The atoms of one set of facts, and the proofs about their order, memoised."""

    def __init__(self) -> None:
        self.atoms: dict[str, Atom] = {}
        self.known: list[Poly] = []
        """Polynomials that are never negative."""
        self._intervals: dict[Poly, tuple[Bound, Bound]] = {}
        self._proofs: dict[tuple[Poly, int], bool] = {}
        self._values: list[dict[str, int | None]] = []
        self._usable: list[int] | None = None
        self._steps = 0

    def forget(self) -> None:
        """Drop the atoms, what is known, and everything that was derived from them."""
        self.atoms.clear()
        self.known.clear()
        self._intervals.clear()
        self._proofs.clear()
        self._usable = None

    def know(self, p: Poly) -> None:
        """Take ``p >= 0`` as known; older answers are asked again."""
        self.known.append(p)
        self._proofs.clear()
        self._usable = None

    def interval(self, p: Poly) -> tuple[Bound, Bound]:
        """Return bounds of ``p`` from the bounds of its atoms alone."""
        found = self._intervals.get(p)
        if found is None:
            low: Bound = 0
            high: Bound = 0
            for monomial, coefficient in p.terms.items():
                a, b = self._monomial_interval(monomial)
                if coefficient < 0:
                    a, b = b, a
                low, high = plus(low, times(coefficient, a)), plus(high, times(coefficient, b))
            found = self._intervals[p] = low, high
        return found

    def _monomial_interval(self, monomial: Monomial) -> tuple[Bound, Bound]:
        low: Bound = 1
        high: Bound = 1
        index = 0
        while index < len(monomial):
            key = monomial[index]
            a, b = self.atoms[key].lo, self.atoms[key].hi
            index += 1
            if a < 0 and index < len(monomial) and monomial[index] == key:  # a square
                index += 1
                a, b = (0 if b >= 0 else times(b, b)), max(times(a, a), times(b, b))
            ends = [times(x, y) for x in (low, high) for y in (a, b)]
            low, high = min(ends), max(ends)
        return low, high

    def positive(self, p: Poly) -> bool:
        """Tell whether ``p >= 1`` can be proved."""
        return self.nonnegative(p.shift(-1))

    def nonnegative(self, p: Poly) -> bool:
        """Tell whether ``p >= 0`` can be proved for all allowed values."""
        if p.value is not None:
            return p.value >= 0
        found = self._proofs.get((p, _DEPTH))
        if found is None:
            outer, self._steps = self._steps, _STEPS
            # deeper and deeper: most proofs are short
            found = any(self._search(p, depth) for depth in range(_DEPTH + 1))
            self._proofs[p, _DEPTH] = found
            self._steps = outer
        return found

    def quick(self, p: Poly) -> bool:
        """Tell whether ``p >= 0`` has a short proof: what `nonnegative` finds in its first steps."""
        if p.value is not None:
            return p.value >= 0
        outer, self._steps = self._steps, _QUICK_STEPS
        found = any(self._search(p, depth) for depth in range(2))
        self._steps = outer
        return found

    def _search(self, p: Poly, depth: int) -> bool:
        if p.value is not None:
            return p.value >= 0
        found = self._proofs.get((p, depth))
        if found is None:
            self._steps -= 1 + len(p.terms) // _TERMS_OF_STEP
            if self._steps < 0:
                return False
            found = self._prove(p, depth)
            if found or self._steps >= 0:
                self._proofs[p, depth] = found
        return found

    def _prove(self, p: Poly, depth: int) -> bool:
        content = p.content
        if content > 1:  # g*q + r >= 0 as q + r//g >= 0
            p = Poly({m: c // content for m, c in p.terms.items() if c // content})
            if p.value is not None:
                return p.value >= 0
        low, high = self.interval(p)
        if low >= 0:
            return True
        if high < 0 or len(p.terms) > _MOST_TERMS or self._fails_on_sample(p):
            return False
        if self._positive_when_shifted(p):
            return True
        if depth == 0:
            return False
        return any(all(self._search(goal, depth - 1) for goal in goals) for goals in self._weaker(p))

    def _positive_when_shifted(self, p: Poly) -> bool:
        """Write every atom as its lower bound plus something and look for negative coefficients."""
        shifted = p
        for key in p.atoms():
            low = self.atoms[key].lo
            if low == -inf:
                return False
            if low:
                shifted = self._shift(shifted, key, int(low))
        return all(coefficient > 0 for coefficient in shifted.terms.values())

    def _shift(self, p: Poly, key: str, offset: int) -> Poly:
        terms: dict[Monomial, int] = {}
        for monomial, coefficient in p.terms.items():
            power = monomial.count(key)
            first = monomial.index(key) if power else 0
            for left in range(power + 1):
                part = monomial[: first + left] + monomial[first + power :]
                share = coefficient * comb(power, left) * offset ** (power - left)
                terms[part] = terms.get(part, 0) + share
        return Poly({m: c for m, c in terms.items() if c})

    def _weaker(self, p: Poly) -> Iterator[list[Poly]]:
        """Yield lists of goals; proving all goals of one list proves ``p >= 0``."""
        yield from self._weaker_floors(p)
        for key in p.atoms():
            parts = p.split(key)
            if parts is None:
                continue
            atom = self.atoms[key]
            factor, rest = parts
            sign = self._sign(factor)
            bound = atom.lo if sign > 0 else atom.hi
            if atom.kind == "floor" and sign:
                yield from self._weaker_floor(atom, factor, rest, sign)
            elif atom.kind in ("max", "broadcast"):
                yield from self._weaker_choice(atom, factor, rest, sign)
            if sign and abs(bound) != inf:
                yield [factor.scale(int(bound)) + rest]
        for fact in self.known:
            yield from self._weaker_fact(p, fact)

    def _sign(self, p: Poly) -> int:
        """Return 1 for ``p >= 0``, -1 for ``p <= 0``, 0 where the bounds of the atoms do not tell."""
        low, high = self.interval(p)
        return 1 if low >= 0 else -1 if high <= 0 else 0

    def _weaker_floors(self, p: Poly) -> Iterator[list[Poly]]:
        """Replace all quotients by constants at once: long sums have more of them than the search is deep."""
        replaced = 0
        for key in p.atoms():
            numerator, denominator = self.atoms[key].args if self.atoms[key].kind == "floor" else (p, p)
            c, parts = denominator.value, p.split(key)
            if c is None or c <= 0 or parts is None:
                continue
            sign = self._sign(parts[0])
            if sign:
                p = parts[1].scale(c) + parts[0] * (numerator.shift(1 - c) if sign > 0 else numerator)
                replaced += 1
        if replaced > 1:
            yield [p]

    def _weaker_floor(self, atom: Atom, factor: Poly, rest: Poly, sign: int) -> Iterator[list[Poly]]:
        numerator, denominator = atom.args
        least = (numerator - denominator).shift(1) if sign > 0 else numerator
        if denominator.value is not None:
            if denominator.value > 0:
                yield [rest.scale(denominator.value) + factor * least]
            return
        if not self.positive(denominator):
            return
        quotient = factor.exact_quotient(denominator)
        if quotient is not None and quotient.terms and self._sign(quotient):
            yield [rest + quotient * least]
        if sign < 0 and self.interval(numerator)[0] >= 0:
            yield [rest + factor * numerator]

    def _weaker_choice(self, atom: Atom, factor: Poly, rest: Poly, sign: int) -> Iterator[list[Poly]]:
        goals = [factor * arg + rest for arg in atom.args]
        upper = atom.kind == "max" or all(self.interval(arg)[0] >= 1 for arg in atom.args)
        if sign > 0 and upper:
            yield from ([goal] for goal in goals)
        yield goals
        if len(goals) == 2 and atom.kind == "max":  # in the case max(a, b) == a, also b <= a
            gap = atom.args[0] - atom.args[1]
            firsts = [[goals[0]], *self._weaker_fact(goals[0], gap)]
            seconds = [[goals[1]], *self._weaker_fact(goals[1], gap.scale(-1))]
            yield from ([*first, *second] for first in firsts for second in seconds)

    def _weaker_fact(self, p: Poly, fact: Poly) -> Iterator[list[Poly]]:
        """Subtract a multiple of ``fact`` that cancels one negative term of ``p``."""
        for monomial, coefficient in p.terms.items():
            if coefficient > 0 or not monomial:
                continue
            for head, scale in fact.terms.items():
                if scale > 0 or not head:
                    continue
                cofactor = poly.divide(monomial, head)
                if cofactor is not None and self._monomial_interval(cofactor)[0] >= 0:
                    yield [p.scale(-scale) - fact * Poly({cofactor: -coefficient})]

    def _fails_on_sample(self, p: Poly) -> bool:
        if self._usable is None:
            self._values = [{} for _ in range(_SAMPLES)]
            self._usable = [i for i in range(_SAMPLES) if self._allowed(i)]
        for index in self._usable:
            value = self._sample(p, index)
            if value is not None and value < 0:
                return True
        return False

    def _allowed(self, index: int) -> bool:
        values = (self._sample(fact, index) for fact in self.known)
        return all(value is not None and value >= 0 for value in values)

    def _sample(self, p: Poly, index: int) -> int | None:
        total = 0
        for monomial, coefficient in p.terms.items():
            for key in monomial:
                value = self._sample_atom(key, index)
                if value is None:
                    return None
                coefficient *= value
            total += coefficient
        return total

    def _sample_atom(self, key: str, index: int) -> int | None:
        values = self._values[index]
        if key not in values:
            atom = self.atoms[key]
            args = [self._sample(arg, index) for arg in atom.args]
            values[key] = _pick(atom, index) if atom.kind == "dim" else _apply(atom.kind, args)
        return values[key]


def _pick(atom: Atom, index: int) -> int:
    """Return the value of a dimension in one sample: its ends, then values spread by its name."""
    low = atom.lo if atom.lo != -inf else min(atom.hi, 0) - 7
    low = int(low)
    if index == 0 or atom.hi == low:
        return low
    span = 97 if atom.hi == inf else int(atom.hi) - low
    if index == 1:
        return low + span
    spread = crc32(f"{atom.key}{index}".encode())
    return low + spread % (min(span, 3 if index < 5 else span) + 1)


def _apply(kind: str, args: list[int | None]) -> int | None:
    values = [arg for arg in args if arg is not None]
    if len(values) < len(args):
        return None
    if kind == "floor":
        return values[0] // values[1] if values[1] else None
    if kind == "max":
        return max(values)
    if kind == "product":
        return prod(values)
    sizes = {value for value in values if value != 1}
    return None if len(sizes) > 1 else sizes.pop() if sizes else 1
