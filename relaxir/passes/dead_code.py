"""Drop bindings that nothing needs.

Before:
    lv0 = R.exp(x)          # unused
    lv1 = R.add(x, x)
    return lv1
After:
    lv1 = R.add(x, x)
    return lv1
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from relaxir.ir.expr import (
    Bind,
    Binding,
    BindingBlock,
    Body,
    CallDPS,
    Check,
    Expr,
    FuncCall,
    Function,
    MatchCast,
    OpCall,
    Var,
)
from relaxir.ir.module import IRModule
from relaxir.ir.parts import bodies_of, with_bodies
from relaxir.ir.rewrite import expr_dims, leaves, map_functions, used_vars
from relaxir.passes.base import Pass, PassContext
from relaxir.sym import Dim, DimLike, free_dims


def has_effect(expr: Expr, module: IRModule) -> bool:
    """Whether evaluating an expression does more than give its value."""
    if isinstance(expr, OpCall):
        return not expr.op.pure
    if isinstance(expr, CallDPS):
        return not expr.pure
    if isinstance(expr, FuncCall):
        callee = module.functions.get(expr.callee)
        return not (isinstance(callee, Function) and callee.pure)
    inner = (b for body in bodies_of(expr) for b in body.bindings)
    return any(isinstance(b, Check | MatchCast) or has_effect(b.value, module) for b in inner)


class _Liveness:
    """Walks a body backwards, keeping what is needed."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.vars: set[Var] = set()
        self.dims: set[Dim] = set()

    def body(self, body: Body) -> Body:
        self.vars.update(used_vars(body.result))
        if isinstance(body.result, Var):
            self.vars.add(body.result)
        self._note_dims(expr_dims(body.result))
        blocks: list[BindingBlock] = []
        changed = False
        for block in reversed(body.blocks):
            kept = [b for b in map(self.binding, reversed(block.bindings)) if b is not None]
            kept.reverse()
            same = len(kept) == len(block.bindings) and all(a is b for a, b in zip(kept, block.bindings, strict=True))
            changed = changed or not same
            if kept:
                outputs = tuple(v for v in block.outputs if any(v is k.var for k in kept if not isinstance(k, Check)))
                blocks.append(block if same else BindingBlock(tuple(kept), block.dataflow, outputs))
        return Body(tuple(reversed(blocks)), body.result) if changed else body

    def binding(self, b: Binding) -> Binding | None:
        if isinstance(b, Check):
            self._note_dims((b.relation.left, b.relation.right, *b.args))
            return b
        needed = b.var in self.vars or bool(self.dims.intersection(b.defines)) or isinstance(b, MatchCast)
        if not needed and not has_effect(b.value, self.module):
            return None
        self._note_dims(expr_dims(b.value))
        for leaf in leaves(b.value):
            self._note_dims(expr_dims(leaf))
        if isinstance(b, Bind) and bodies_of(b.value):
            value = with_bodies(b.value, tuple(map(self.body, bodies_of(b.value))))
            b = b if value is b.value else replace(b, value=value)
        self.vars.update(used_vars(b.value))
        if isinstance(b.value, Var):
            self.vars.add(b.value)
        return b

    def _note_dims(self, dims: Iterable[DimLike]) -> None:
        for d in dims:
            self.dims.update(free_dims(d))


@dataclass(frozen=True)
class DeadCode(Pass):
    """Remove bindings whose results, symbols and effects nothing needs, and private functions nobody calls."""

    name: ClassVar[str] = "DeadCode"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Backward liveness per function."""

        def clean(func: Function) -> Function:
            live = _Liveness(module)
            body = live.body(func.body)
            return (
                func
                if body is func.body
                else Function(func.params, body, func.ret, func.where, func.attrs, func.pure, func.span)
            )

        return map_functions(module, clean)
