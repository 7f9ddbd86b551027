"""Turn what inference could not prove into run-time checks.

Before:
    lv0: R.Tensor((R.broadcast(n, m), 4), "f32") = R.add(x, y)        # x: (n, 4), y: (m, 4)
After:
    R.check((n - m) * (n - 1) * (m - 1) == 0, "runtime-shape", "add: axis 0: ...; n is {}, m is {}", n, m)
    lv0: R.Tensor((R.broadcast(n, m), 4), "f32") = R.add(x, y)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from relaxir.ir.expr import Bind, Binding, BindingBlock, Body, Check, Expr, FuncCall, Function, MatchCast, OpCall
from relaxir.ir.module import IRModule
from relaxir.ir.op import InferCtx
from relaxir.ir.relations import apply_signature
from relaxir.ir.rewrite import Rewriter, function_dims
from relaxir.ir.types import Type, free_dims_of_type, type_dims
from relaxir.passes.base import Pass, PassContext
from relaxir.sym import Dim, DimLike, Facts, Relation, free_dims, substitute


class _Inserter(Rewriter):
    def __init__(self, module: IRModule, func: Function, name: str) -> None:
        super().__init__()
        self.module = module
        self.name = name
        self.facts = Facts(function_dims(func), func.where)

    def body(self, body: Body) -> Body:
        outer = self.facts  # what a branch learns holds in that branch only
        out = super().body(body)
        self.facts = outer
        return out

    def binding(self, binding: Binding) -> Iterable[Binding]:
        (new,) = super().binding(binding)
        if isinstance(new, Check):
            return (new,)
        if isinstance(new, MatchCast):
            checks = self.compare(new.value.type, new.var.type, f"match_cast of `{new.var.name}`", new)
            return (new, *checks)  # the cast defines symbols that the checks use
        checks = self.of_call(new.value, new)
        later = tuple(c for c in checks if set(new.defines) & _symbols(c))  # of sizes that the call itself gives
        return (*(c for c in checks if c not in later), new, *later)

    def of_call(self, value: Expr, binding: Bind) -> tuple[Check, ...]:
        """Checks of one call, by inferring it again."""
        if isinstance(value, OpCall):
            ctx = InferCtx(value.op.name, self.facts, tuple(d.name for d in self.facts.dims), value.span)
            inferred = value.op.type_of(tuple(a.type for a in value.args), value.attrs, ctx)
        elif isinstance(value, FuncCall) and isinstance(callee := self.module.functions.get(value.callee), Function):
            ctx = InferCtx(value.callee, self.facts, tuple(d.name for d in self.facts.dims), value.span)
            inferred = apply_signature(callee.type, tuple(a.type for a in value.args), ctx).type
        else:
            return ()
        return self.learn(ctx.checks, renaming(inferred, binding.var.type, ctx.defined))

    def compare(self, actual: Type, wanted: Type, what: str, binding: MatchCast | None) -> tuple[Check, ...]:
        """Checks that a value has the dimensions of a type (static facts were checked when it was built)."""
        ctx = InferCtx(self.name, self.facts, span=binding.span if binding is not None else None)
        defined = binding.defines if binding is not None else ()
        for axis, (a, b) in enumerate(zip(type_dims(actual), type_dims(wanted), strict=True)):
            if b not in defined:
                ctx.require_equal(a, b, f"{what}, axis {axis}")
        return self.learn(ctx.checks, {})

    def learn(self, checks: Sequence[Check], names: dict[Dim, DimLike]) -> tuple[Check, ...]:
        """Checks in the function's own symbols, each once; later inference may rely on them."""
        kept: dict[Relation, Check] = {}
        for c in checks:
            r = Relation(c.relation.op, substitute(c.relation.left, names), substitute(c.relation.right, names))
            kept.setdefault(r, replace(c, relation=r, args=tuple(substitute(a, names) for a in c.args)))
        if kept:
            self.facts = self.facts.with_(*kept)
        return tuple(kept.values())

    def finish(self, func: Function) -> Function:
        """Check the declared result type at the end of the body; what only arguments decide is checked first of all."""
        out = self.function(func)
        checks = self.compare(out.body.type, out.ret, "result", None) if out.ret != out.body.type else ()
        checks = tuple(c for c in checks if _closed(c, frozenset(self.facts.dims)))
        blocks = (*out.body.blocks, BindingBlock(checks)) if checks else out.body.blocks
        defined = frozenset(s for p in func.params for s in free_dims_of_type(p.type))
        early = [c for b in blocks for c in b.bindings if isinstance(c, Check) and _closed(c, defined)]
        if not early:
            return out if blocks is out.body.blocks else replace(out, body=Body(blocks, out.body.result))
        rest = tuple(replace(b, bindings=tuple(x for x in b.bindings if x not in early)) for b in blocks)
        return replace(out, body=Body((BindingBlock(tuple(early)), *(b for b in rest if b.bindings)), out.body.result))


def _closed(check: Check, known: frozenset[Dim]) -> bool:
    """Whether a check speaks of known symbols only (not of those that data or a result defines)."""
    return _symbols(check) <= known


def _symbols(check: Check) -> set[Dim]:
    return {s for side in (check.relation.left, check.relation.right, *check.args) for s in free_dims(side)}


def renaming(inferred: Type, recorded: Type, fresh: Sequence[Dim]) -> dict[Dim, DimLike]:
    """What the fresh symbols of a new inference are called in the recorded type."""
    pairs = zip(type_dims(inferred), type_dims(recorded), strict=True)
    return {a: b for a, b in pairs if isinstance(a, Dim) and a in fresh}


@dataclass(frozen=True)
class InsertChecks(Pass):
    """Emit a `Check` before each call whose typing left a fact open."""

    name: ClassVar[str] = "InsertChecks"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Re-infer every call under the facts known at it."""
        changed = {k: _Inserter(module, f, k).finish(f) for k, f in module.graph_functions().items()}
        return module.with_functions(changed)
