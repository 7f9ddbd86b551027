"""Bind the dimensions of a signature to the dimensions of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxir.sym.canonical import Canonical
from relaxir.sym.expr import Dim, DimLike, floordiv, free_dims, is_const, mod, sub, substitute
from relaxir.sym.facts import Facts
from relaxir.sym.normalize import normalize
from relaxir.sym.rebuild import Rebuilder
from relaxir.sym.relation import Proof, Relation


@dataclass(frozen=True)
class Unification:
    """The result of matching formal against actual dimensions."""

    bindings: Mapping[Dim, DimLike]
    """The formal dimensions that are known, in the order they were bound."""
    checks: tuple[tuple[DimLike, DimLike, Proof], ...]
    """The pairs that did not just bind a symbol: formal with the bindings put in, actual, and whether
    they are equal.  A formal dimension that stayed unbound occurs as it is, and the answer is UNKNOWN."""
    requirements: tuple[tuple[Relation, Proof], ...]
    """What the bindings must satisfy: divisibility of solved dimensions, declared ranges and multiples."""

    @property
    def verdict(self) -> Proof:
        """REFUTED if any check or requirement is, PROVED if all are, else UNKNOWN."""
        answers = [*(p for _, _, p in self.checks), *(p for _, p in self.requirements)]
        if Proof.REFUTED in answers:
            return Proof.REFUTED
        return Proof.UNKNOWN if Proof.UNKNOWN in answers else Proof.PROVED


def unify(params: Sequence[tuple[DimLike, DimLike]], facts_of_actual: Facts) -> Unification:
    """Match formal with actual dimensions.

    A bare symbol binds; a compound dimension with one unbound symbol is solved where it is linear in it,
    so ``2*n`` against ``len`` binds ``n`` to ``len // 2`` and requires ``len % 2 == 0``.  All else becomes
    a check.  Formal and actual dimensions may use the same symbols; they are never confused.
    """
    pairs = [(normalize(formal), normalize(actual)) for formal, actual in params]
    bindings: dict[Dim, DimLike] = {}
    relations: list[Relation] = []
    pending: list[tuple[DimLike, DimLike]] = []
    for formal, actual in pairs:
        if isinstance(formal, Dim) and formal not in bindings:
            bindings[formal] = actual
        else:
            pending.append((formal, actual))
    progress = True
    while progress:
        progress = False
        for formal, actual in pending:
            unbound = [d for d in free_dims(formal) if d not in bindings]
            if len(unbound) == 1 and _bind(formal, actual, unbound[0], bindings, relations):
                progress = True
    checks = []
    for formal, actual in pending:
        complete = all(d in bindings for d in free_dims(formal))
        put_in = substitute(formal, bindings)
        proof = facts_of_actual.prove_equal(put_in, actual) if complete else Proof.UNKNOWN
        checks.append((put_in, actual, proof))
    for symbol, value in bindings.items():
        relations.extend(_declared(symbol, value))
    requirements = tuple((r, facts_of_actual.prove(r)) for r in dict.fromkeys(relations))
    return Unification(bindings, tuple(checks), requirements)


def _bind(
    formal: DimLike, actual: DimLike, unknown: Dim, bindings: dict[Dim, DimLike], relations: list[Relation]
) -> bool:
    """Solve ``formal == actual`` for the unknown symbol, which the actual dimensions may also use."""
    stand_in = Dim(f"{unknown.name}?", unknown.min, unknown.max)
    solved = solve_linear(substitute(formal, {**bindings, unknown: stand_in}), stand_in, actual)
    if solved is None:
        return False
    bindings[unknown] = solved[0]
    relations.extend(solved[1])
    return True


def _declared(symbol: Dim, value: DimLike) -> list[Relation]:
    result = []
    if symbol != value:
        result.append(Relation("<=", symbol.min, value))
        if symbol.max is not None:
            result.append(Relation("<=", value, symbol.max))
        if symbol.multiple_of > 1:
            result.append(Relation("==", mod(value, symbol.multiple_of), 0))
    return result


def solve_linear(expr: DimLike, unknown: Dim, value: DimLike) -> tuple[DimLike, tuple[Relation, ...]] | None:
    """Solve ``expr == value`` for ``unknown``, where ``expr == a * unknown + b`` with ``a`` certainly not 0.

    Return the solution and what it requires: ``2*n + 1 == v`` gives ``(v - 1) // 2`` and
    ``(v - 1) % 2 == 0``.  None where ``expr`` is not of that form.
    """
    forms = Canonical()
    plain = Dim(unknown.name, unknown.min, unknown.max)
    rebuild = Rebuilder(forms).expr
    p = forms.poly(substitute(normalize(expr), {unknown: plain}))
    key = forms.poly(plain).single
    parts = p.split(key) if key else None
    if key is None or parts is None or not parts[0].terms:
        return None
    factor, rest = parts
    others = {d for side in (factor, rest) for d in free_dims(rebuild(side))}
    if plain in others or not (forms.positive(factor) or forms.positive(factor.scale(-1))):
        return None
    if forms.positive(factor.scale(-1)):
        factor, rest, value = factor.scale(-1), rest.scale(-1), sub(0, value)
    divisor = rebuild(factor)
    target = sub(value, rebuild(rest))
    if divisor == 1:
        return target, ()
    remainder = mod(target, divisor)
    if is_const(remainder) and remainder == 0:
        return floordiv(target, divisor), ()
    return floordiv(target, divisor), (Relation("==", remainder, 0),)
