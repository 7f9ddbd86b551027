"""Teach a canonical layer the relations that hold: equalities as rewrites, inequalities as bounds.

An equality becomes, in this order, a rewrite of a dimension that occurs once (``a == 2*b``), a multiple
(``n % 4 == 0``), a rewrite through a quotient (``n % 4 == 1`` gives ``n == 4*h + 1``), a rewrite of a
broadcast (``broadcast(n, m) == n``), or two inequalities. Inequalities tighten the bounds of atoms; those that say
more are kept for proofs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from relaxir.support.errors import ConflictError
from relaxir.sym.canonical import Canonical
from relaxir.sym.expr import Dim, add, mul
from relaxir.sym.order import Atom, Bound
from relaxir.sym.poly import Poly
from relaxir.sym.printer import to_text
from relaxir.sym.rebuild import Rebuilder
from relaxir.sym.relation import Relation

_ROUNDS = 4
_MOST_TERMS = 8
_MOST_FACTORS = 2


def learn(forms: Canonical, relations: Iterable[Relation]) -> None:
    """Teach ``forms`` that ``relations`` hold; raise ``ConflictError`` where that is plainly impossible."""
    equalities: list[Relation] = []
    others: list[Relation] = []
    for relation in relations:
        (equalities if relation.op == "==" else others).append(relation)
    open_ = [relation for relation in equalities if not _rewrite(forms, relation)]
    for relation in open_:  # after all dimensions are rewritten, since those change what a broadcast is called
        _settle(forms, relation)
    others.extend(open_)
    for _ in range(_ROUNDS):
        before = dict(forms.limits)
        forms.forget()
        for text, p in _inequalities(forms, others):
            _inequality(forms, p, text)
        if forms.limits == before:
            break
    forms.settle()


def _inequalities(forms: Canonical, relations: list[Relation]) -> Iterator[tuple[str, Poly]]:
    for relation in relations:
        p = forms.poly(relation.right) - forms.poly(relation.left)
        yield str(relation), p.shift(-1) if relation.op == "<" else p
        if relation.op == "==":
            yield str(relation), p.scale(-1)
    for dim in forms.rewrites:  # the rewritten dimension keeps its declared range
        yield f"{dim.name} >= {dim.min}", forms.poly(dim).shift(-dim.min)
        if dim.max is not None:
            yield f"{dim.name} <= {dim.max}", forms.poly(dim).scale(-1).shift(dim.max)


def _inequality(forms: Canonical, p: Poly, text: str) -> None:
    """Learn ``p >= 0``."""
    if p.value is not None:
        if p.value < 0:
            raise ConflictError(f"{text} cannot hold")
        return
    content = p.content
    p = Poly({m: c // content for m, c in p.terms.items() if c // content})
    if forms.interval(p)[1] < 0:
        raise ConflictError(f"{text} cannot hold")
    for monomial, coefficient in p.terms.items():
        if len(monomial) != 1:
            continue
        parts = p.split(monomial[0])
        if parts is None or parts[0].value is None:
            continue
        # coefficient * atom >= -rest >= -most
        most = forms.interval(parts[1])[1]
        if most != inf:
            _tighten(forms, forms.atoms[monomial[0]], coefficient, most, text)
    if forms.interval(p)[0] < 0 and p not in forms.known and _useful(p):
        forms.know(p)


def _useful(p: Poly) -> bool:
    """Tell whether proofs may profit from ``p >= 0``: long products (run-time tests of broadcasting) only slow them."""
    return len(p.terms) <= _MOST_TERMS and all(len(monomial) <= _MOST_FACTORS for monomial in p.terms)


def _tighten(forms: Canonical, atom: Atom, coefficient: int, most: Bound, text: str) -> None:
    low, high = forms.limits.get(atom.key, (atom.lo, atom.hi))
    if coefficient > 0:
        low = max(low, -(most // coefficient))
    else:
        high = min(high, most // -coefficient)
    if low > high:
        raise ConflictError(f"{text} cannot hold")
    forms.limits[atom.key] = low, high


def _rewrite(forms: Canonical, relation: Relation) -> bool:
    """Turn an equality into a rewrite; tell whether that worked or nothing was left to learn."""
    p = forms.poly(relation.left) - forms.poly(relation.right)
    if p.value is None:
        content = p.content
        if p.constant % content:
            raise ConflictError(f"{relation} cannot hold")
        p = Poly({m: c // content for m, c in p.terms.items()})
        if forms.positive(p) or forms.positive(p.scale(-1)):
            raise ConflictError(f"{relation} cannot hold")
    elif p.value == 0:
        return True
    else:
        raise ConflictError(f"{relation} cannot hold")
    for monomial in sorted(p.terms, reverse=True):
        if len(monomial) == 1 and abs(p.terms[monomial]) == 1:
            atom = forms.atoms[monomial[0]]
            if atom.dim is not None and (_solve(forms, p, atom) or _solve_quotient(forms, p, atom)):
                return True
    return False


def _settle(forms: Canonical, relation: Relation) -> None:
    """Rewrite a broadcast that occurs only once in an equality, where a dimension could not be."""
    p = forms.poly(relation.left) - forms.poly(relation.right)
    content = p.content if p.value is None else 0
    for monomial in sorted(p.terms):
        if len(monomial) != 1 or abs(p.terms[monomial]) != content or p.constant % content:
            continue
        atom = forms.atoms[monomial[0]]
        parts = p.split(atom.key)
        alone = parts is not None and parts[0].value is not None  # not in `b*k - b`: b is not the only factor
        if atom.kind == "broadcast" and parts is not None and alone and not _occurs(forms, parts[1], atom.key):
            rest = Poly({m: -c // p.terms[monomial] for m, c in parts[1].terms.items()})
            forms.settled[atom.key] = Rebuilder(forms, shown=False).expr(rest)
            forms.forget()
            return


def _solve(forms: Canonical, p: Poly, atom: Atom) -> bool:
    """Rewrite the dimension of an atom that occurs only once in ``p == 0``."""
    parts = p.split(atom.key)
    sign = parts[0].value if parts else None  # None in `m*k - m`: m is not the only factor
    if atom.dim is None or parts is None or sign is None or _occurs(forms, parts[1], atom.key):
        return False
    solution = Rebuilder(forms, shown=False).expr(parts[1].scale(-sign))
    forms.rewrites[atom.dim] = mul(solution, atom.dim.multiple_of)
    forms.forget()
    return True


def _solve_quotient(forms: Canonical, p: Poly, atom: Atom) -> bool:
    """Use ``x + r == c * (y // d)``, where ``y`` contains ``x``, with a new symbol for the quotient."""
    parts = p.split(atom.key)
    if atom.dim is None or parts is None:
        return False
    sign, rest = parts[0].value, parts[1]
    inside = [k for k in rest.atoms() if _occurs(forms, Poly({(k,): 1}), atom.key)]
    if sign is None or len(inside) != 1:
        return False
    quotient = forms.atoms[inside[0]]
    outer = rest.split(quotient.key)
    divisor = quotient.args[1].value if quotient.kind == "floor" else None
    if outer is None or outer[0].value is None or divisor is None:
        return False
    factor, rest = -sign * outer[0].value, outer[1].scale(-sign)
    step = atom.dim.multiple_of
    if quotient.args[0].single == atom.key and not rest.terms and factor == divisor:
        whole = Dim(atom.dim.name, atom.dim.min, atom.dim.max, step * divisor)
        forms.shown[whole] = forms.shown.get(atom.dim, atom.dim)
        forms.rewrites[atom.dim] = whole
        forms.forget()
        return True
    if quotient.lo == -inf:
        return False
    text = Rebuilder(forms).expr(Poly({(quotient.key,): 1}))
    high = None if quotient.hi == inf else int(quotient.hi)
    symbol = Dim(f"({to_text(text)})", int(quotient.lo), high)
    forms.shown[symbol] = text
    others = Rebuilder(forms, shown=False).expr(rest)
    forms.rewrites[atom.dim] = mul(add(mul(symbol, factor), others), step)
    forms.forget()
    return True


def _occurs(forms: Canonical, p: Poly, key: str) -> bool:
    return any(k == key or any(_occurs(forms, arg, key) for arg in forms.atoms[k].args) for k in p.atoms())
