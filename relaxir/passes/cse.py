"""Common subexpression elimination.

Before:
    lv0 = R.exp(x)
    lv1 = R.exp(x)
    lv2 = R.add(lv0, lv1)
After:
    lv0 = R.exp(x)
    lv2 = R.add(lv0, lv0)
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from dataclasses import dataclass
from typing import ClassVar

from relaxir.ir.expr import (
    Bind,
    Binding,
    Body,
    CallTIR,
    Constant,
    Expr,
    OpCall,
    ShapeExpr,
    TupleExpr,
    TupleGetItem,
    Var,
)
from relaxir.ir.module import IRModule
from relaxir.ir.numbering import ConstantNumbers
from relaxir.ir.rewrite import Rewriter, map_functions
from relaxir.passes.base import Pass, PassContext


class _Numbering(Rewriter):
    """Replaces a binding by an earlier one with the same key; branches see the keys of their outer body."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: dict[Hashable, Var] = {}
        self.numbers = ConstantNumbers()

    def body(self, body: Body) -> Body:
        outer = dict(self.seen)
        out = super().body(body)
        self.seen = outer
        return out

    def binding(self, binding: Binding) -> Iterable[Binding]:
        (new,) = super().binding(binding)
        if not isinstance(new, Bind) or new.defines:
            return (new,)
        key = self.key(new.value)
        if key is None:
            return (new,)
        first = self.seen.setdefault(key, new.var)
        if first is new.var:
            return (new,)
        self.env[new.var] = first
        return ()

    def key(self, expr: Expr) -> Hashable:
        """Equal keys mean equal values; None: not comparable."""
        if isinstance(expr, Var):
            return expr
        if isinstance(expr, Constant):
            return ("const", self.numbers(expr))
        if isinstance(expr, ShapeExpr):
            return ("shape", expr.dims)
        if isinstance(expr, TupleGetItem):
            return ("item", self.key(expr.value), expr.index)
        if isinstance(expr, TupleExpr):
            return ("tuple", *map(self.key, expr.fields))
        if isinstance(expr, OpCall) and expr.op.pure:
            return ("op", expr.op.name, expr.attrs, expr.type, *map(self.key, expr.args))
        if isinstance(expr, CallTIR):
            return ("tir", expr.callee, expr.dims, expr.type, *map(self.key, expr.args))
        return None


@dataclass(frozen=True)
class CommonSubexpressions(Pass):
    """Give equal pure computations one binding (value numbering, branches included)."""

    name: ClassVar[str] = "CSE"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Numbering().function(f))
