"""Express composite operators by simpler ones.

Before:
    lv0: R.Tensor((2, m), "i64") = R.nonzero(x)
After:
    lv1 = R.count_nonzero(x)
    lv2: R.Shape((m_1,)) = R.tensor_to_shape(lv1)
    lv3: R.Tensor((2, m_1), "i64") = R.nonzero_fill(x, count=m_1)
    lv0 = R.match_cast(lv3, R.Tensor((2, m), "i64"))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Bind, Binding, Check, Function, MatchCast, OpCall
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import Rewriter, all_bindings, function_dims, map_functions
from relaxir.passes.base import Pass, PassContext
from relaxir.sym import Facts


def names_of(func: Function) -> set[str]:
    """Names of all variables of a function."""
    taken = {p.name for p in func.params}
    taken.update(b.var.name for b in all_bindings(func.body) if not isinstance(b, Check))
    return taken


class _Decomposer(Rewriter):
    def __init__(self, func: Function) -> None:
        super().__init__()
        self.facts = Facts(function_dims(func), func.where)
        self.names = names_of(func)

    def binding(self, binding: Binding) -> Iterable[Binding]:
        (new,) = super().binding(binding)
        if not isinstance(new, Bind) or not isinstance(new.value, OpCall):
            return (new,)
        call = new.value
        bb = BlockBuilder()
        with bb.fragment(self.facts, self.names, call.span) as parts:
            result = call.op.decompose(call.args, call.attrs, bb)
            if result is not None:
                result = bb.normalize(result)
        if result is None:
            return (new,)
        self.names |= {b.var.name for b in parts if not isinstance(b, Check)}
        fresh = tuple(d for b in parts if not isinstance(b, Check) for d in b.defines)
        self.facts = self.facts.with_dims(*fresh) if fresh else self.facts
        inner = tuple(out for b in parts for out in self.binding(b))  # a part may be composite itself
        if result.type == new.var.type:
            self.env[new.var] = self.env.get(result, result)  # type: ignore[call-overload]  # non-variables map to themselves
            return inner
        # what the call's own fresh symbols stand for is read off the result
        return (*inner, MatchCast(new.var, self.expr(result), new.defines, call.span))


@dataclass(frozen=True)
class Decompose(Pass):
    """Apply every operator's own `decompose` until none applies."""

    name: ClassVar[str] = "Decompose"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Decomposer(f).function(f))
