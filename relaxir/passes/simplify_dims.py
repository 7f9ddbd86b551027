"""Shorten dimension expressions by what is declared or has been checked.

Before:
    R.check(s <= 512, ...)
    lv: R.Tensor((1, min(s, 512)), "f32") = R.strided_slice(x, begin=(0,), size=(min(s, 512),))
After:
    R.check(s <= 512, ...)
    lv: R.Tensor((1, s), "f32") = R.strided_slice(x, begin=(0,), size=(s,))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from relaxir.ir.expr import Bind, Binding, Body, Check, FuncCall, Function, MatchCast, ShapeExpr, Var
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import DimSubstituter, all_bindings, function_dims
from relaxir.ir.types import ShapeType, free_dims_of_type, map_type, type_dims
from relaxir.ops.indexing import is_data
from relaxir.passes.base import Pass, PassContext
from relaxir.support.errors import ConflictError
from relaxir.sym import Dim, DimLike, Facts, Proof, Relation, broadcasts, fold, substitute


class _Shortener(DimSubstituter):
    """Rewrites a body in order: what is checked adds to what is known behind it.

    ``kept`` are symbols that keep their names although their values are short.
    """

    def __init__(self, func: Function, kept: frozenset[Dim]) -> None:
        super().__init__(self.shorten)
        self.facts = Facts(function_dims(func), func.where)
        self.kept = kept
        self.depth = 0
        self.at_entry = True
        self.checked: set[Relation] = set()
        self.values: dict[Dim, DimLike] = {}
        self.known: dict[DimLike, DimLike] = {}

    def shorten(self, d: DimLike) -> DimLike:
        """The shortest form of a dimension at this point."""
        if isinstance(d, int):
            return d
        found = self.known.get(d)
        if found is None:
            value = substitute(d, self.values)
            found = self.known[d] = value if is_data(value, self.facts) else self.facts.simplify(value)
        return found

    def body(self, body: Body) -> Body:
        """Only the function's own checks are learnt; those of a body inside hold in it alone."""
        self.depth += 1
        out = super().body(body)
        self.depth -= 1
        return out

    def binding(self, binding: Binding) -> Iterable[Binding]:
        """A check whose answer is known goes, and so does a symbol whose value is short."""
        if isinstance(binding, Check):
            return self.check(binding)
        self.at_entry = False
        if isinstance(binding, MatchCast) and isinstance(binding.value, ShapeExpr):
            return (self.definition(binding, binding.value),)
        return super().binding(binding)

    def check(self, check: Check) -> Iterable[Binding]:
        """A check in its new form, where it says anything; those at entry and of broadcasts are relied on."""
        (new,) = super().binding(check)
        assert isinstance(new, Check)
        if new.relation in self.checked or self.facts.prove(new.relation) is Proof.PROVED:
            return ()
        if self.depth == 1:
            self.checked.add(new.relation)
        settles = any(True for side in (new.relation.left, new.relation.right) for _ in broadcasts(side))
        if self.depth == 1 and (self.at_entry or (settles and new.relation.op == "==")):
            try:
                self.facts = self.facts.with_(new.relation)
                self.known.clear()
            except ConflictError:
                pass  # it fails at run time, whatever follows
        return (new,)

    def definition(self, cast: MatchCast, shape: ShapeExpr) -> MatchCast:
        """Note the values of symbols that need no name; what is left of the definition."""
        given = ShapeExpr(tuple(map(self.shorten, shape.dims)))
        dims: list[DimLike] = list(type_dims(cast.var.type))
        for axis, (symbol, formula) in enumerate(zip(dims, given.dims, strict=True)):
            if not isinstance(symbol, Dim) or symbol not in cast.defines:
                dims[axis] = self.shorten(symbol)
                continue
            only = self.facts.simplify(symbol)  # a number where the symbol's range has one element
            value = only if isinstance(only, int) else formula
            if symbol not in self.kept and _short(value):
                self.values[symbol] = dims[axis] = value
                self.known.clear()
        var = Var(cast.var.name, ShapeType(tuple(dims)))
        self.env[cast.var] = var
        return replace(cast, var=var, value=given, defines=tuple(d for d in cast.defines if d not in self.values))


def _short(d: DimLike) -> bool:
    """Whether a dimension is made of sums and products only: such a one needs no name of its own."""
    return fold(d, lambda _: True, lambda _: True, lambda label, args: label in ("add", "mul") and all(args))


def simplify(func: Function, called: bool) -> Function:
    """One function; the symbols in the result type of one that is called stay, since its callers know them."""
    writer = _Shortener(func, frozenset(free_dims_of_type(func.ret) if called else ()))
    body = writer.body(func.body)
    ret = func.ret if called else map_type(func.ret, lambda d: substitute(d, writer.values))
    return replace(func, body=body, ret=ret)


@dataclass(frozen=True)
class SimplifyDims(Pass):
    """Rewrite every dimension of a function's body to its shortest form under the function's facts."""

    name: ClassVar[str] = "SimplifyDims"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One walk per function."""
        bodies = (f.body for f in module.graph_functions().values())
        calls = (b.value for body in bodies for b in all_bindings(body) if isinstance(b, Bind))
        called = frozenset(v.callee for v in calls if isinstance(v, FuncCall))
        changed = {k: simplify(f, k in called) for k, f in module.graph_functions().items()}
        return module.with_functions(changed)
