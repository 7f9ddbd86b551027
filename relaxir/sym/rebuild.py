"""Turn a canonical polynomial back into a short light expression."""

from __future__ import annotations

from math import gcd, lcm, prod

from relaxir.sym import poly
from relaxir.sym.canonical import Canonical
from relaxir.sym.expr import DimLike, add, broadcast, floordiv, max_, min_, mod, mul, product
from relaxir.sym.order import Atom
from relaxir.sym.poly import Poly


class Rebuilder:
    """Rebuilds expressions from the atoms of one set of facts."""

    def __init__(self, forms: Canonical, shown: bool = True) -> None:
        self._forms = forms
        self._shown = forms.shown if shown else {}
        self._memo: dict[Poly, DimLike] = {}

    def expr(self, p: Poly) -> DimLike:
        """Return a light expression with the value of ``p``; equal polynomials give the identical one."""
        found = self._memo.get(p)
        if found is None:
            found = self._memo[p] = self._expr(p)
        return found

    def _expr(self, p: Poly) -> DimLike:
        for key in p.atoms():
            for text in self._shorter(p, self._forms.atoms[key]):
                return text
        total: DimLike = 0
        for monomial, coefficient in sorted(p.terms.items()):
            term: DimLike = 1
            for key in monomial:
                atom = self._forms.atoms[key]
                if atom.dim is not None and coefficient % atom.dim.multiple_of == 0:
                    coefficient //= atom.dim.multiple_of  # the atom is dim // multiple_of
                    term = mul(term, self._shown.get(atom.dim, atom.dim))
                else:
                    term = mul(term, self._atom(atom))
            total = add(total, mul(term, coefficient))
        return total

    def _atom(self, atom: Atom) -> DimLike:
        if atom.dim is not None:
            return floordiv(self._shown.get(atom.dim, atom.dim), atom.dim.multiple_of)
        if atom.kind == "floor":
            return floordiv(*map(self.expr, self._in_dims(*atom.args)))
        args = [self.expr(arg) for arg in atom.args]
        if atom.kind == "max":
            return max_(*args)
        if atom.kind == "product":
            return product(args)
        result = args[0]
        for arg in args[1:]:
            result = broadcast(result, arg)
        return result

    def _shorter(self, p: Poly, atom: Atom) -> list[DimLike]:
        """Return ``p`` with the atom as ``%``, as ``min`` or as a rounded quotient, if that is shorter."""
        parts = p.split(atom.key)
        if parts is None or atom.kind not in ("floor", "max"):
            return []
        factor, rest = parts
        if atom.kind == "max":
            return self._as_minimum(factor, rest, atom)
        numerator, denominator = atom.args
        quotient = factor.exact_quotient(denominator)
        if quotient is not None and len((rest + quotient * numerator).terms) < len(rest.terms):
            remainder = mod(self.expr(numerator), self.expr(denominator))
            others = self.expr(rest + quotient * numerator)
            return [add(others, mul(self.expr(quotient.scale(-1)), remainder))]
        c = denominator.value
        if c is not None and c > 0:
            # p // c == -((c - 1 - p) // c)
            flipped = numerator.scale(-1).shift(c - 1)
            whole = Poly({m: v // c for m, v in flipped.terms.items() if v // c})
            left = Poly({m: v % c for m, v in flipped.terms.items() if v % c})
            others_ = rest - factor * whole
            if len(others_.terms) < len(rest.terms):
                rounded = floordiv(self.expr(left), self.expr(poly.constant(c)))
                return [add(self.expr(others_), mul(self.expr(factor.scale(-1)), rounded))]
        return []

    def _in_dims(self, numerator: Poly, denominator: Poly) -> tuple[Poly, Poly]:
        """Expand a fraction so that dimensions appear instead of their quotients: ``n//4//2`` as ``n//8``."""
        factor = 1
        for monomial, coefficient in numerator.terms.items():
            steps = (self._forms.atoms[key].dim for key in monomial)
            step = prod(dim.multiple_of for dim in steps if dim is not None)
            factor = lcm(factor, step // gcd(step, coefficient))
        return numerator.scale(factor), denominator.scale(factor)

    def _as_minimum(self, factor: Poly, rest: Poly, atom: Atom) -> list[DimLike]:
        """Use ``max(xs) == s - min(s - xs)``, with ``s`` the largest coefficient of each term in ``xs``."""
        monomials = {m for arg in atom.args for m in arg.terms}
        highest = {m: max(arg.terms.get(m, 0) for arg in atom.args) for m in monomials}
        top = Poly({m: c for m, c in highest.items() if c})
        args = [top - arg for arg in atom.args]
        others = rest + factor * top
        size = len(others.terms) + sum(len(arg.terms) for arg in args)
        if size >= len(rest.terms) + sum(len(arg.terms) for arg in atom.args):
            return []
        return [add(self.expr(others), mul(self.expr(factor.scale(-1)), min_(*map(self.expr, args))))]
