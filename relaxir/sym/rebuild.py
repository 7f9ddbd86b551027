"""Turn a canonical polynomial back into a short light expression."""

from __future__ import annotations

from relaxir.sym import poly
from relaxir.sym.canonical import Canonical
from relaxir.sym.expr import DimLike, add, broadcast, floordiv, max_, min_, mod, mul
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
        args = [self.expr(arg) for arg in atom.args]
        if atom.kind == "floor":
            return floordiv(*args)
        if atom.kind == "max":
            return max_(*args)
        result = args[0]
        for arg in args[1:]:
            result = broadcast(result, arg)
        return result

    def _shorter(self, p: Poly, atom: Atom) -> list[DimLike]:
        """Return ``p`` with the atom written as ``%``, as ``min`` or as a rounded quotient, if that is shorter."""
        parts = p.split(atom.key)
        if parts is None or atom.kind not in ("floor", "max"):
            return []
        factor, rest = parts
        if atom.kind == "max":
            # f*max(xs) == -f*min(-xs), and min takes the sum of xs out again
            total = sum(atom.args, Poly({}))
            if len(atom.args) != 2 or len((rest + factor * total).terms) >= len(rest.terms):
                return []
            smaller = min_(*map(self.expr, atom.args))
            return [add(self.expr(rest + factor * total), mul(self.expr(factor.scale(-1)), smaller))]
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
