"""Convert dimensions to canonical polynomials, with floor division, maximum and broadcast as atoms.

Rules, for all integers (``c > 0`` where it bounds a remainder; undefined points excepted):

- ``(q*c + r) // c == q + r // c``, and ``r // c == 0`` where ``0 <= r < c`` is proved;
- ``(g*a) // (g*c) == a // c`` and ``(g*a + r) // (g*c) == (a + r // g) // c``;
- ``(a // b + x) // c == (a + b*x) // (b*c)`` for constants ``b, c > 0``;
- ``p // c == -((c - 1 - p) // c)`` picks the representative with the smaller coefficients;
- ``a % c == a - a // c * c``, ``ceildiv(a, c) == -(-a // c)``, ``min(a, b) == -max(-a, -b)``;
- ``max(a + x, b + x) == max(a, b) + x`` and ``max(g*a, g*b) == g * max(a, b)`` for ``g > 0``;
- ``broadcast`` is the set of its flattened arguments without 1; an argument that is never 1 is the result.
"""

from __future__ import annotations

from math import gcd, inf
from typing import Any

import sympy

from relaxir.support.errors import SymError
from relaxir.sym import poly
from relaxir.sym.expr import (
    Broadcast,
    CeilDiv,
    Dim,
    DimLike,
    FloorDiv,
    Max,
    Min,
    Mod,
    order_key,
    short_key,
)
from relaxir.sym.normalize import normalize
from relaxir.sym.order import Atom, Bound, Order, times
from relaxir.sym.poly import Monomial, Poly

_MOST_TERMS = 400
_MOST_ARGS = 16


class Canonical(Order):
    """Canonical forms under one set of facts, memoised."""

    def __init__(self) -> None:
        super().__init__()
        self.rewrites: dict[Dim, DimLike] = {}
        """Dimensions that equalities express by others."""
        self.settled: dict[str, DimLike] = {}
        """Broadcasts that equalities express by something shorter, by the keys of their atoms."""
        self.limits: dict[str, tuple[Bound, Bound]] = {}
        """Bounds of atoms that the facts tighten."""
        self.shown: dict[Dim, DimLike] = {}
        """What the dimensions that stand for a quotient are called outside."""
        self._polys: dict[Any, Poly] = {}
        self._floors: dict[tuple[Poly, Poly], Poly] = {}

    def forget(self) -> None:
        """Drop all memo tables, atoms and inequalities after the rewrites or limits have changed."""
        super().forget()
        self._polys.clear()
        self._floors.clear()

    def settle(self) -> None:
        """Drop the canonical forms that were found before everything was known."""
        self._polys.clear()
        self._floors.clear()

    def poly(self, expr: DimLike) -> Poly:
        """Return the canonical polynomial of a dimension."""
        found = self._polys.get(expr)
        if found is None:
            light = normalize(expr)
            found = poly.constant(light) if isinstance(light, int) else self._convert(light)
            self._polys[expr] = found
        return found

    def _convert(self, expr: Any) -> Poly:
        if isinstance(expr, Dim):
            return self._dim(expr)
        args = [self.poly(arg) for arg in expr.args]
        if isinstance(expr, sympy.Add):
            return sum(args, Poly({}))
        if isinstance(expr, sympy.Mul):
            return self._product(args)
        if isinstance(expr, sympy.Pow):
            return self._product(args[:1] * int(expr.exp))
        if isinstance(expr, FloorDiv):
            return self.floor(*args)
        if isinstance(expr, Mod):
            return args[0] - args[1] * self.floor(*args)
        if isinstance(expr, CeilDiv):
            return self.floor(args[0].scale(-1), args[1]).scale(-1)
        if isinstance(expr, Max):
            return self.maximum(args)
        if isinstance(expr, Min):
            return self.maximum([arg.scale(-1) for arg in args]).scale(-1)
        if isinstance(expr, Broadcast):
            return self.broadcast_set(args)
        raise SymError(f"not a dimension: {expr}")

    def _product(self, factors: list[Poly]) -> Poly:
        result = poly.constant(1)
        for factor in factors:
            if len(result.terms) * len(factor.terms) > _MOST_TERMS:
                result = self._product_atom(result, factor)
            else:
                result = result * factor
        return result

    def _product_atom(self, a: Poly, b: Poly) -> Poly:
        """Return a product that is too large to expand, as one atom."""
        args = tuple(sorted((a, b), key=lambda p: p.key))
        ends = [times(x, y) for x in self.interval(a) for y in self.interval(b)]
        key = short_key(f"({args[0].key})*({args[1].key})")
        return self.intern(Atom(key, "product", min(ends), max(ends), args))

    def _dim(self, dim: Dim) -> Poly:
        if dim in self.rewrites:
            return self.poly(self.rewrites[dim])
        step = dim.multiple_of
        high = inf if dim.max is None else dim.max // step
        atom = self.intern(Atom(order_key(dim), "dim", -(-dim.min // step), high, (), dim))
        return atom.scale(step)

    def intern(self, atom: Atom) -> Poly:
        """Enter an atom into the table and return it as a polynomial, a constant where it can only be one."""
        found = self.atoms.get(atom.key)
        if found is None:
            low, high = self.limits.get(atom.key, (-inf, inf))
            low, high = max(low, atom.lo), min(high, atom.hi)
            found = Atom(atom.key, atom.kind, low, high, atom.args, atom.dim)
            self.atoms[atom.key] = found
        return poly.constant(int(found.lo)) if found.lo == found.hi else poly.atom(atom.key)

    def floor(self, p: Poly, c: Poly) -> Poly:
        """Return ``p // c``."""
        found = self._floors.get((p, c))
        if found is None:
            found = self._floors[p, c] = self._floor(p, c)
        return found

    def _floor(self, p: Poly, c: Poly) -> Poly:
        if c.value == 0:  # the facts leave no value: nothing is known about it
            return self._floor_atom(p, c)
        if not p.terms:
            return p
        if c.value is not None:
            return self._floor_constant(p, c.value)
        common = gcd(*p.terms.values(), *c.terms.values())
        shared = poly.common_monomial([*p.terms, *c.terms])
        if common > 1 or shared:
            divisor = Poly({shared: common})
            return self.floor(_exact(p, divisor), _exact(c, divisor))
        whole, rest = self._split_multiples(p, c)
        if not rest.terms:
            return whole
        if self.nonnegative(rest) and self.positive(c - rest):
            return whole
        return whole + self._floor_atom(rest, c)

    def _split_multiples(self, p: Poly, c: Poly) -> tuple[Poly, Poly]:
        """Return ``q, r`` with ``p == q*c + r``, by long division on the leading term of ``c``."""
        head = c.leading()
        scale = c.terms[head]
        whole, rest = Poly({}), p
        seen: set[Monomial] = set()
        while len(rest.terms) <= _MOST_TERMS:
            todo = [m for m in rest.terms if m not in seen and poly.divide(m, head) is not None]
            if not todo:
                break
            monomial = Poly(dict.fromkeys(todo, 1)).leading()
            seen.add(monomial)
            cofactor = poly.divide(monomial, head) or ()
            coefficient = rest.terms[monomial] // scale
            quotient = Poly({cofactor: coefficient} if coefficient else {})
            smaller = rest - quotient * c
            if len(smaller.terms) <= len(rest.terms):  # do not trade one term for several
                whole, rest = whole + quotient, smaller
        return whole, rest

    def _floor_constant(self, p: Poly, c: int) -> Poly:
        if c < 0:
            return self._floor_constant(p.scale(-1), -c)
        whole = Poly({m: v // c for m, v in p.terms.items() if v // c})
        rest = Poly({m: v % c for m, v in p.terms.items() if v % c})
        if not rest.terms or rest.value is not None:
            return whole
        merged = self._merge_nested(rest, c)
        if merged is not None:
            return whole + merged
        flipped = rest.scale(-1).shift(c - 1)
        lifted = Poly({m: v // c for m, v in flipped.terms.items() if v // c})
        other = Poly({m: v % c for m, v in flipped.terms.items() if v % c})
        merged = self._merge_nested(other, c)
        if merged is not None:
            return whole - lifted - merged
        if _rank(other) < _rank(rest):
            return whole - lifted - self._floor_rest(other, c)
        return whole + self._floor_rest(rest, c)

    def _merge_nested(self, rest: Poly, c: int) -> Poly | None:
        """Return ``(a // b + x) // c`` as ``(a + b*x) // (b*c)``, or None where there is no such quotient."""
        for monomial, coefficient in sorted(rest.terms.items()):
            inner = self.atoms[monomial[0]] if len(monomial) == 1 else None
            if inner is None or inner.kind != "floor" or coefficient != 1:
                continue
            step = inner.args[1].value
            if step is not None and step > 0:
                others = (rest - poly.atom(inner.key)).scale(step)
                return self.floor(others + inner.args[0], poly.constant(c * step))
        return None

    def _floor_rest(self, rest: Poly, c: int) -> Poly:
        """Return ``rest // c`` where the coefficients of ``rest`` lie in ``0..c-1``."""
        low, high = self.interval(rest)
        if abs(low) != inf and abs(high) != inf and low // c == high // c:
            return poly.constant(int(low // c))
        if self.nonnegative(rest) and self.nonnegative(rest.scale(-1).shift(c - 1)):
            return Poly({})
        common = gcd(rest.content, c)
        if common > 1:
            smaller = Poly({m: v // common for m, v in rest.terms.items() if v // common})
            return self.floor(smaller, poly.constant(c // common))
        return self._floor_atom(rest, poly.constant(c))

    def _floor_atom(self, p: Poly, c: Poly) -> Poly:
        (a, b), (low, high) = self.interval(p), self.interval(c)
        least: Bound = -inf
        most: Bound = inf
        if low >= 1:
            if a >= 0:
                least = 0 if high == inf else _down(a, high)
            elif a != -inf:
                least = _down(a, low)
            if b >= 0 and b != inf:
                most = _down(b, low)
            elif b < 0:
                most = -1 if high == inf else _down(b, high)
        return self.intern(Atom(short_key(f"({p.key})//({c.key})"), "floor", least, most, (p, c)))

    def maximum(self, args: list[Poly]) -> Poly:
        """Return the largest of ``args``."""
        kept = sorted(set(self._flat_maximum(args)), key=lambda p: p.key)
        for p in list(kept):
            if any(q is not p and self.nonnegative(q - p) for q in kept):
                kept.remove(p)
        if len(kept) == 1:
            return kept[0]
        # a maximum inside stays where it is: it is how `min(x, max(y, z))` is told from a sum
        monomials = {m for p in kept for m in p.terms if not any(self.atoms[k].kind == "max" for k in m)}
        base = {m: min(p.terms.get(m, 0) for p in kept) for m in monomials}
        shared = Poly({m: v for m, v in base.items() if v})
        kept = [p - shared for p in kept]
        common = gcd(*(v for p in kept for v in p.terms.values()))
        kept = [Poly({m: v // common for m, v in p.terms.items()}) for p in kept]
        kept.sort(key=lambda p: p.key)
        ends = [self.interval(p) for p in kept]
        key = short_key(f"max({','.join(p.key for p in kept)})")
        atom = Atom(key, "max", max(a for a, _ in ends), max(b for _, b in ends), tuple(kept))
        return shared + self.intern(atom).scale(common)

    def _flat_maximum(self, args: list[Poly]) -> list[Poly]:
        """Replace ``c * max(xs) + r`` among the arguments by all ``c*x + r``, for ``c > 0``."""
        flat: list[Poly] = []
        todo = args[::-1]
        while todo:
            arg = todo.pop()
            for monomial, coefficient in arg.terms.items():
                inner = self.atoms[monomial[0]] if len(monomial) == 1 else None
                if inner is None or inner.kind != "max" or coefficient < 0:
                    continue
                parts = arg.split(inner.key)
                if parts and parts[0].value and len(todo) + len(flat) + len(inner.args) <= _MOST_ARGS:
                    todo.extend(x.scale(coefficient) + parts[1] for x in inner.args)
                    break
            else:
                flat.append(arg)
        return flat

    def broadcast_set(self, args: list[Poly]) -> Poly:
        """Return the size that ``args`` broadcast to; order and repetition do not matter."""
        flat: set[Poly] = set()
        for arg in args:
            inner = self.atoms[arg.single] if arg.single else None
            flat.update(inner.args if inner and inner.kind == "broadcast" else [arg])
        kept = sorted((p for p in flat if p.value != 1), key=lambda p: p.key)
        if len(kept) <= 1:
            return kept[0] if kept else poly.constant(1)
        for p in sorted(kept, key=lambda p: (p.value is None, len(p.terms), p.key)):
            if self.never_one(p):
                return p
        ends = [self.interval(p) for p in kept]
        key = short_key(f"broadcast({','.join(p.key for p in kept)})")
        if key in self.settled:
            return self.poly(self.settled[key])
        low, high = min(a for a, _ in ends), max(b for _, b in ends)
        return self.intern(Atom(key, "broadcast", low, high, tuple(kept)))

    def never_one(self, p: Poly) -> bool:
        """Tell whether ``p`` is provably different from 1."""
        return self.nonnegative(p.shift(-2)) or self.nonnegative(p.scale(-1))


def _exact(p: Poly, divisor: Poly) -> Poly:
    quotient = p.exact_quotient(divisor)
    assert quotient is not None
    return quotient


def _down(a: Bound, b: Bound) -> Bound:
    return a // b if abs(a) != inf else a


def _rank(rest: Poly) -> tuple[list[int], int]:
    """Order a remainder against its mirror image: leading coefficients first, the constant last."""
    terms = sorted(((m, v) for m, v in rest.terms.items() if m), key=lambda t: (-len(t[0]), t[0]))
    return [v for _, v in terms], rest.constant
