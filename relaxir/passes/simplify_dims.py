"""Shorten dimension expressions by what is declared or checked at entry.

Before:
    R.check(s <= 512, ...)
    lv: R.Tensor((1, min(s, 512)), "f32") = R.strided_slice(x, begin=(0,), size=(min(s, 512),))
After:
    R.check(s <= 512, ...)
    lv: R.Tensor((1, s), "f32") = R.strided_slice(x, begin=(0,), size=(s,))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaxir.ir.expr import BindingBlock, Body, Check, Function
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import DimSubstituter, function_dims, map_functions
from relaxir.ops.indexing import is_data
from relaxir.passes.base import Pass, PassContext
from relaxir.sym import DimLike, Facts


def entry_checks(func: Function) -> int:
    """Number of leading blocks that hold nothing but checks."""
    for count, block in enumerate(func.body.blocks):
        if not all(isinstance(b, Check) for b in block.bindings):
            return count
    return len(func.body.blocks)


def simplify(func: Function) -> Function:
    """One function; its entry checks stay as they are, since all the rest relies on them."""
    count = entry_checks(func)
    checks = [b for block in func.body.blocks[:count] for b in block.bindings if isinstance(b, Check)]
    facts = Facts(function_dims(func), (*func.where, *(c.relation for c in checks)))
    known: dict[DimLike, DimLike] = {}

    def shorten(d: DimLike) -> DimLike:
        if d not in known:
            known[d] = d if isinstance(d, int) or is_data(d, facts) else facts.simplify(d)
        return known[d]

    rewriter = DimSubstituter(shorten)
    blocks: tuple[BindingBlock, ...] = tuple(rewriter.block(b) for b in func.body.blocks[count:])
    body = Body((*func.body.blocks[:count], *blocks), rewriter.expr(func.body.result))
    return Function(func.params, body, func.ret, func.where, func.attrs, func.pure, func.span)


@dataclass(frozen=True)
class SimplifyDims(Pass):
    """Rewrite every dimension of a function's body to its shortest form under the function's facts."""

    name: ClassVar[str] = "SimplifyDims"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One walk per function."""
        return map_functions(module, simplify)
