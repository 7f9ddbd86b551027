"""What is known about dimensions, and the proofs that follow from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from math import inf
from types import MappingProxyType
from typing import Any, Final

from relaxir.support.errors import ConflictError
from relaxir.sym.bounds import interval
from relaxir.sym.canonical import Canonical
from relaxir.sym.expr import Dim, DimLike, as_dimlike, broadcast, free_dims, mod, substitute
from relaxir.sym.learn import learn
from relaxir.sym.normalize import normalize
from relaxir.sym.poly import Poly
from relaxir.sym.rebuild import Rebuilder
from relaxir.sym.relation import Proof, Relation

NONE: Final[Mapping[Dim, DimLike]] = MappingProxyType({})
"""No definitions."""


@dataclass(frozen=True)
class BroadcastResult:
    """The size of two broadcast dimensions."""

    dim: DimLike
    """The size, given that the two sizes broadcast."""
    verdict: Proof
    """Whether they do: PROVED, REFUTED, or UNKNOWN where a check at run time is needed."""


class Facts:
    """Declared and learnt facts about dimensions; immutable, with its own memo tables.

    An answer PROVED or REFUTED holds for all values that the ranges, multiples and relations allow and at
    which both sides are defined.  Dimensions that were not declared count with their own range.

    Definitions name formulas, often long ones built on each other.  Unlike an equality, a definition does not rewrite
    its symbol: a question is asked in the names first, and where it stays open with the latest name replaced by its
    formula, and so on.  Formulas that grew out of each other meet after a few steps, long before they are all written
    out, where their canonical forms may differ.
    """

    def __init__(
        self,
        dims: Iterable[Dim] = (),
        relations: Iterable[Relation] = (),
        definitions: Mapping[Dim, DimLike] = NONE,
    ) -> None:
        self._definitions = definitions
        self._order = {d: n for n, d in enumerate(definitions)}
        self._relations = tuple(dict.fromkeys(relations))
        self._stated = frozenset(self._relations)
        mentioned = [d for r in self._relations for side in (r.left, r.right) for d in free_dims(side)]
        self._dims = tuple(dict.fromkeys([*dims, *mentioned]))
        self._forms = Canonical()
        learn(self._forms, self._relations)
        self._rebuilder = Rebuilder(self._forms)
        self._answers: dict[tuple[str, Any, Any], Proof] = {}

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions, in the order they were declared or first mentioned."""
        return self._dims

    @property
    def relations(self) -> tuple[Relation, ...]:
        """The relations, in the order they were added."""
        return self._relations

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Facts) and self._parts == other._parts

    def __hash__(self) -> int:
        return hash(self._parts)

    @property
    def _parts(self) -> tuple[object, ...]:
        return self._dims, self._relations, tuple(self._definitions.items())

    def __repr__(self) -> str:
        names = ", ".join(d.name for d in self._dims)
        return f"Facts({names}; {', '.join(map(str, self._relations))})"

    def with_(self, *relations: Relation) -> Facts:
        """Return these facts and ``relations``; raise ``ConflictError`` if one of them is refuted."""
        if not relations:
            return self
        for relation in relations:
            if self.prove(relation) is Proof.REFUTED:
                raise ConflictError(f"{relation} cannot hold")
        return Facts(self._dims, (*self._relations, *relations), self._definitions)

    def with_dims(self, *dims: Dim) -> Facts:
        """Return these facts with more dimensions declared."""
        if set(dims) <= set(self._dims):
            return self
        return Facts((*self._dims, *dims), self._relations, self._definitions)

    def with_definition(self, symbol: Dim, value: DimLike) -> Facts:
        """Return these facts and a new ``symbol`` for ``value``; raise ``ConflictError`` if its range excludes that.

        What the range says beyond the bounds of ``value`` becomes known of ``value``, and the other way round.
        """
        ends = [Relation("<=", symbol.min, value)]
        if symbol.max is not None:
            ends.append(Relation("<=", value, symbol.max))
        if symbol.multiple_of > 1:
            ends.append(Relation("==", mod(value, symbol.multiple_of), 0))
        for end in ends:
            if self.prove(end) is Proof.REFUTED:
                raise ConflictError(f"{end} cannot hold")
        low, high = self.bounds(value)
        ends += [Relation("<=", low, symbol)] if low is not None else []
        ends += [Relation("<=", symbol, high)] if high is not None else []
        news = [end for end in ends if self.prove(end) is Proof.UNKNOWN]
        definitions = MappingProxyType({**self._definitions, symbol: value})
        return Facts((*self._dims, symbol), (*self._relations, *news), definitions)

    def prove(self, relation: Relation) -> Proof:
        """Answer whether ``relation`` holds; one that is stated does, whatever the forms make of it."""
        if relation in self._stated:
            return Proof.PROVED
        match relation.op:
            case "==":
                return self.prove_equal(relation.left, relation.right)
            case "<=":
                return self.prove_le(relation.left, relation.right)
            case "<":
                return self.prove_lt(relation.left, relation.right)

    def prove_equal(self, a: DimLike, b: DimLike) -> Proof:
        """Answer whether ``a == b``."""
        return self._answer("==", a, b, self._equal)

    def prove_le(self, a: DimLike, b: DimLike) -> Proof:
        """Answer whether ``a <= b``."""
        return self._answer("<=", a, b, self._at_most)

    def prove_lt(self, a: DimLike, b: DimLike) -> Proof:
        """Answer whether ``a < b``."""
        return self._answer("<", a, b, self._below)

    def divides(self, k: DimLike, e: DimLike) -> Proof:
        """Answer whether ``e`` is a multiple of ``k``."""
        return self._answer("|", k, e, self._multiple)

    def surely_le(self, a: DimLike, b: DimLike) -> bool:
        """Tell whether ``a <= b`` has a short proof; False says nothing. For callers with very many questions."""
        return self._forms.quick(self._forms.poly(b) - self._forms.poly(a))

    def _answer(self, op: str, a: DimLike, b: DimLike, decide: Callable[[DimLike, DimLike], Proof]) -> Proof:
        """The answer to a question, asked again with one name after the other replaced while it stays open."""
        key = op, a, b
        answer = self._answers.get(key)
        if answer is None:
            answer, order = decide(a, b), self._order
            names = {d for e in (a, b) for d in free_dims(e) if d in order} if order else set()
            while answer is Proof.UNKNOWN and names:
                name = max(names, key=order.__getitem__)
                value = self._definitions[name]
                a, b = substitute(a, {name: value}), substitute(b, {name: value})
                names.remove(name)
                names.update(d for d in free_dims(value) if order.get(d, order[name]) < order[name])
                answer = decide(a, b)
            self._answers[key] = answer
        return answer

    def _equal(self, a: DimLike, b: DimLike) -> Proof:
        return self._equal_zero(self._forms.poly(a) - self._forms.poly(b))

    def _equal_zero(self, p: Poly) -> Proof:
        if p.value is not None:
            return Proof.PROVED if p.value == 0 else Proof.REFUTED
        if p.constant % p.content:
            return Proof.REFUTED
        above = self._forms.nonnegative(p)
        below = self._forms.nonnegative(p.scale(-1))
        if above and below:
            return Proof.PROVED
        if self._forms.positive(p) or self._forms.positive(p.scale(-1)):
            return Proof.REFUTED
        return Proof.UNKNOWN

    def _at_most(self, a: DimLike, b: DimLike, gap: int = 0) -> Proof:
        p = (self._forms.poly(b) - self._forms.poly(a)).shift(-gap)
        if self._forms.nonnegative(p):
            return Proof.PROVED
        return Proof.REFUTED if self._forms.positive(p.scale(-1)) else Proof.UNKNOWN

    def _below(self, a: DimLike, b: DimLike) -> Proof:
        return self._at_most(a, b, 1)

    def _multiple(self, k: DimLike, e: DimLike) -> Proof:
        divisor, p = self._forms.poly(k), self._forms.poly(e)
        if divisor.value != 0:
            p = p - divisor * self._forms.floor(p, divisor)
        return self._equal_zero(p)

    def bounds(self, e: DimLike) -> tuple[int | None, int | None]:
        """Return a lower and an upper bound of ``e``, each None where none is known."""
        p = self._forms.poly(e)
        (low, high), (a, b) = interval(normalize(e), self._forms), interval(self.simplify(e), self._forms)
        low, high = max(low, a), min(high, b)
        if low < 1:
            low = 1 if self._forms.positive(p) else 0 if low < 0 and self._forms.nonnegative(p) else low
        return None if low == -inf else int(low), None if high == inf else int(high)

    def simplify(self, e: DimLike) -> DimLike:
        """Return a short expression with the value of ``e``; provably equal polynomials give the same one."""
        return self._rebuilder.expr(self._forms.poly(e))

    def join(self, a: DimLike, b: DimLike) -> DimLike | None:
        """Return a sum that is at least ``a`` and ``b``: of each term the larger coefficient.

        None where an atom of the terms may be negative.
        """
        p, q = self._forms.poly(a), self._forms.poly(b)
        if any(self._forms.atoms[key].lo < 0 for key in (*p.atoms(), *q.atoms())):
            return None
        larger = {m: max(p.terms.get(m, 0), q.terms.get(m, 0)) for m in (*p.terms, *q.terms)}
        return self._rebuilder.expr(Poly({m: c for m, c in larger.items() if c}))

    def broadcast(self, a: DimLike, b: DimLike) -> BroadcastResult:
        """Return the size that ``a`` and ``b`` broadcast to by NumPy's rules, and whether they do."""
        a, b = as_dimlike(a), as_dimlike(b)
        if a == 1:
            return BroadcastResult(b, Proof.PROVED)
        if b == 1:
            return BroadcastResult(a, Proof.PROVED)
        equal = self.prove_equal(a, b)
        if equal is Proof.PROVED:
            return BroadcastResult(b if isinstance(b, int) else a, Proof.PROVED)
        p, q = self._forms.poly(a), self._forms.poly(b)
        if p.value == 1:
            return BroadcastResult(b, Proof.PROVED)
        if q.value == 1:
            return BroadcastResult(a, Proof.PROVED)
        fixed_a, fixed_b = self._forms.never_one(p), self._forms.never_one(q)
        verdict = Proof.REFUTED if equal is Proof.REFUTED and fixed_a and fixed_b else Proof.UNKNOWN
        if fixed_a and (isinstance(a, int) or not (fixed_b and isinstance(b, int))):
            return BroadcastResult(a, verdict)
        if fixed_b or self._follows(a, b):
            return BroadcastResult(b, verdict)
        return BroadcastResult(a if self._follows(b, a) else broadcast(a, b), verdict)

    def _follows(self, a: DimLike, b: DimLike) -> bool:
        """Whether ``a`` is 1 wherever the symbol ``b`` is: they broadcast to ``b``, as ``min(n, 9)`` and ``n``."""
        return isinstance(b, Dim) and self.prove_equal(substitute(a, {b: 1}), 1) is Proof.PROVED
