"""Index arithmetic as polynomials over SSA values.

An address is a sum of products. Kept as such, equal parts are found whatever the order they were written in, constants
come out, and each part is computed in the scope where it becomes known. The symbol ``$`` stands for the lane number
within a vector; what depends on lanes in another way is an opaque atom, written only if it does not cancel.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial, reduce
from typing import Final

from relaxir.backends.llvm.emit_value import Value, int_value
from relaxir.backends.llvm.emit_writer import Writer

LANE: Final = "$"


@dataclass(frozen=True, slots=True)
class Atom:
    """A factor: a scalar known as an SSA value, or something lane-dependent that is written on demand."""

    name: str
    value: Value | None = None
    make: Callable[[], Value] | None = None

    @property
    def uniform(self) -> bool:
        """Whether all lanes agree."""
        return self.value is not None


Monomial = tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Linear:
    """A polynomial with integer coefficients; the empty monomial is the constant."""

    terms: Mapping[Monomial, int]
    atoms: Mapping[str, Atom] = field(default_factory=dict)

    def __add__(self, other: Linear) -> Linear:
        return self.plus(other, 1)

    def __sub__(self, other: Linear) -> Linear:
        return self.plus(other, -1)

    def plus(self, other: Linear, factor: int) -> Linear:
        """``self + factor * other``."""
        terms = dict(self.terms)
        for monomial, coefficient in other.terms.items():
            total = terms.get(monomial, 0) + factor * coefficient
            if total:
                terms[monomial] = total
            else:
                terms.pop(monomial, None)
        return Linear(terms, {**self.atoms, **other.atoms} if other.atoms else self.atoms)

    def __mul__(self, other: Linear) -> Linear:
        terms: dict[Monomial, int] = {}
        for m, a in self.terms.items():
            for n, b in other.terms.items():
                key = tuple(sorted(m + n)) if m and n else m or n
                terms[key] = terms.get(key, 0) + a * b
        return Linear({k: v for k, v in terms.items() if v}, {**self.atoms, **other.atoms})

    @property
    def const(self) -> int:
        """The constant term."""
        return self.terms.get((), 0)

    @property
    def number(self) -> int | None:
        """The value, if there is nothing but a constant."""
        return self.const if not self.terms or (len(self.terms) == 1 and () in self.terms) else None

    def lane_terms(self) -> dict[Monomial, int]:
        """Return the terms that differ between lanes."""
        return {m: c for m, c in self.terms.items() if any(f == LANE or not self.atoms[f].uniform for f in m)}

    def uniform(self) -> Linear:
        """Return the part that all lanes share."""
        varying = self.lane_terms()
        return Linear({m: c for m, c in self.terms.items() if m not in varying}, self.atoms)

    def divided(self, divisor: int, width: int) -> Linear | None:
        """Return ``self // divisor`` where that is again a polynomial; lane numbers are below ``width``."""
        rest = dict(self.terms)
        const = rest.pop((), 0)
        lanes = rest.pop((LANE,), 0)
        if any(c % divisor for c in rest.values()):
            return None
        low = const % divisor
        if lanes % divisor:
            if lanes < 0 or low + lanes * (width - 1) >= divisor:
                return None
        elif lanes:
            rest[(LANE,)] = lanes
        quotient = {m: c // divisor for m, c in rest.items()}
        if const // divisor:
            quotient[()] = const // divisor
        return Linear(quotient, self.atoms)

    def key(self) -> str:
        """Return a text equal for equal polynomials."""
        return "+".join(f"{c}*{'*'.join(m)}" for m, c in sorted(self.terms.items()))


def constant(number: int) -> Linear:
    """Return a constant."""
    return Linear({(): number} if number else {})


def of_value(value: Value, offset: int = 0) -> Linear:
    """Return ``value + offset`` of a scalar."""
    if value.number is not None:
        return constant(value.number + offset)
    terms: dict[Monomial, int] = {(value.text,): 1}
    if offset:
        terms[()] = offset
    return Linear(terms, {value.text: Atom(value.text, value)})


def of_atom(atom: Atom) -> Linear:
    """Return one lane-dependent atom."""
    return Linear({(atom.name,): 1}, {atom.name: atom})


LANES: Final = Linear({(LANE,): 1})


def scalar_term(w: Writer, linear: Linear, monomial: Monomial, coefficient: int) -> Value:
    """Write ``coefficient * monomial`` of uniform factors."""
    factors = sorted((_value(linear, f) for f in monomial), key=lambda v: (v.level, v.text))
    product = factors[0]
    for factor in factors[1:]:
        product = _mul(w, product, factor)
    return product if coefficient == 1 else _mul(w, product, int_value(coefficient))


def _value(linear: Linear, name: str) -> Value:
    value = linear.atoms[name].value
    if value is None:
        raise AssertionError("a lane-dependent factor in a uniform term")
    return value


def _mul(w: Writer, a: Value, b: Value) -> Value:
    return w.pure(f"mul nsw i64 {a.text}, {b.text}", "i64", 1, (a, b), nonneg=a.nonneg and b.nonneg)


def add(w: Writer, a: Value, b: Value) -> Value:
    """Write ``a + b`` of scalar indices."""
    if a.number is not None and b.number is not None:
        return int_value(a.number + b.number)
    if b.number == 0:
        return a
    if a.number == 0:
        return b
    return w.pure(f"add nsw i64 {a.text}, {b.text}", "i64", 1, (a, b), nonneg=a.nonneg and b.nonneg)


def by_level(w: Writer, linear: Linear) -> list[Value]:
    """Write the non-constant uniform terms; one sum per scope, from the outermost scope inwards."""
    sums: dict[int, Value] = {}
    for monomial, coefficient in sorted(linear.terms.items()):
        if monomial:
            term = scalar_term(w, linear, monomial, coefficient)
            sums[term.level] = add(w, sums[term.level], term) if term.level in sums else term
    return [sums[level] for level in sorted(sums)]


def scalar(w: Writer, linear: Linear) -> Value:
    """Write a uniform polynomial as a scalar."""
    total = int_value(0)
    for part in by_level(w, linear):
        total = add(w, total, part)
    return add(w, total, int_value(linear.const))


def vector(w: Writer, linear: Linear, width: int) -> Value:
    """Write the lane-dependent terms of a polynomial as a vector of i64."""
    times, plus = partial(_vector_op, w, "mul"), partial(_vector_op, w, "add")
    terms = (reduce(times, _factors(w, linear, m, c, width)) for m, c in sorted(linear.lane_terms().items()))
    first = next(terms, None)
    return w.splat(int_value(0), width) if first is None else reduce(plus, terms, first)


def _factors(w: Writer, linear: Linear, monomial: Monomial, coefficient: int, width: int) -> Iterator[Value]:
    """Factors of a lane-dependent term: its uniform part in all lanes, then what differs between them."""
    uniform = tuple(f for f in monomial if f != LANE and linear.atoms[f].uniform)
    if uniform:
        yield w.splat(scalar_term(w, linear, uniform, coefficient), width)
    elif coefficient != 1:
        yield w.splat(int_value(coefficient), width)
    for factor in monomial:
        if factor == LANE:
            yield iota(width)
        elif factor not in uniform:
            make = linear.atoms[factor].make
            if make is None:
                raise AssertionError("an atom without a value")
            yield make()


def _vector_op(w: Writer, name: str, a: Value, b: Value) -> Value:
    return w.pure(f"{name} nsw {a.typed}, {b.text}", a.type, a.width, (a, b))


def iota(width: int, start: int = 0, kind: str = "i64") -> Value:
    """Return the vector ``start, start + 1, ...``."""
    return Value("<" + ", ".join(f"{kind} {start + i}" for i in range(width)) + ">", kind, width, nonneg=start >= 0)
