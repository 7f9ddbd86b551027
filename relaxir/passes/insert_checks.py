"""Turn what inference could not prove into run-time checks.

Before:
    lv0: R.Tensor((R.broadcast(n, m), 4), "f32") = R.add(x, y)        # x: (n, 4), y: (m, 4)
After:
    R.check((n - m) * (n - 1) * (m - 1) == 0, "runtime-shape", "add: axis 0: ...; n is {}, m is {}", n, m)
    lv0: R.Tensor((R.broadcast(n, m), 4), "f32") = R.add(x, y)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import ClassVar

from relaxir.ir.expr import (
    Bind,
    Binding,
    BindingBlock,
    Body,
    Check,
    Expr,
    FuncCall,
    Function,
    MatchCast,
    OpCall,
    ShapeExpr,
)
from relaxir.ir.module import IRModule
from relaxir.ir.op import InferCtx
from relaxir.ir.parts import operands
from relaxir.ir.relations import apply_signature, cast_values
from relaxir.ir.rewrite import Rewriter, function_dims
from relaxir.ir.types import Type, free_dims_of_type, type_dims
from relaxir.passes.base import Pass, PassContext
from relaxir.support.errors import ConflictError
from relaxir.sym import Dim, DimLike, Facts, Relation, free_dims, substitute, to_text


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
            with suppress(ConflictError):  # it fails at run time, whatever follows
                self.facts = self.facts.with_(new.relation)
            return (new,)
        if isinstance(new, MatchCast):
            return (*self.of_cast(new), new)
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
            ctx = InferCtx(self.name, self.facts, span=getattr(value, "span", None))
            for d in (d for e in operands(value) for d in shape_values(e)):
                ctx.require_value(d, "a shape")
            return self.learn(ctx.checks, {})
        return self.learn(ctx.checks, renaming(inferred, binding.var.type, ctx.defined))

    def of_cast(self, cast: MatchCast) -> tuple[Check, ...]:
        """Checks before a cast, in the symbols known there: its own ones have their ranges, and all extents fit."""
        ctx = InferCtx(self.name, self.facts, span=cast.span)
        what = f"match_cast of `{cast.var.name}`"
        values = cast_values(cast.value.type, cast.var.type, cast.defines, self.facts)
        for d in (*shape_values(cast.value), *type_dims(cast.var.type)):
            ctx.require_value(substitute(d, values), what)
        for symbol, value in values.items():
            ctx.require_range(symbol, value, f"{what}: {symbol.name}")
        for axis, (a, b) in enumerate(zip(type_dims(cast.value.type), type_dims(cast.var.type), strict=True)):
            form = "" if isinstance(b, int | Dim) else f" as `{to_text(b)}`"
            ctx.require_equal(a, substitute(b, values), f"{what}, axis {axis}{form}")
        return self.learn(ctx.checks, {})

    def of_result(self, func: Function) -> tuple[Check, ...]:
        """Checks that the result has the declared dimensions (static facts were checked when it was built)."""
        ctx = InferCtx(self.name, self.facts)
        for axis, (a, b) in enumerate(zip(type_dims(func.body.type), type_dims(func.ret), strict=True)):
            ctx.require_equal(a, b, f"result, axis {axis}")
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
        ctx = InferCtx(self.name, self.facts, span=func.span)
        for d in (d for p in func.params for d in type_dims(p.type)):
            ctx.require_value(d, "a parameter")
        for d in (side for r in func.where for side in (r.left, r.right)):
            ctx.require_value(d, "where")
        declared = self.learn(ctx.checks, {})
        out = self.function(func)
        checks = self.of_result(out) if out.ret != out.body.type else ()
        checks = tuple(c for c in checks if _closed(c, frozenset(self.facts.dims)))
        blocks = (*_block(declared), *out.body.blocks, *_block(checks)) if declared or checks else out.body.blocks
        defined = frozenset(s for p in func.params for s in free_dims_of_type(p.type))
        early = [c for b in blocks for c in b.bindings if isinstance(c, Check) and _closed(c, defined)]
        if not early:
            return out if blocks is out.body.blocks else replace(out, body=Body(blocks, out.body.result))
        rest = tuple(replace(b, bindings=tuple(x for x in b.bindings if x not in early)) for b in blocks)
        return replace(out, body=Body((BindingBlock(tuple(early)), *(b for b in rest if b.bindings)), out.body.result))


def shape_values(value: Expr) -> tuple[DimLike, ...]:
    """The sizes in a shape that is written in the program."""
    return value.dims if isinstance(value, ShapeExpr) else ()


def _block(checks: tuple[Check, ...]) -> tuple[BindingBlock, ...]:
    return (BindingBlock(checks),) if checks else ()


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
