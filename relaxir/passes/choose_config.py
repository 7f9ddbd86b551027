"""Choose tile sizes and packed operands of every tensor program that has a choice.

Before:
    @T.prim_func(pattern="contraction")
    def matmul(...): ...
After:
    @T.prim_func(pattern="contraction", config="mr=6 nr=16 ...")
    def matmul(...): ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Final

from relaxir.ir.expr import Bind, Constant
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.parts import operands
from relaxir.ir.rewrite import all_bindings
from relaxir.passes.base import Level, Pass, PassContext

AHEAD: Final = 8192
"""Bytes that memory gives while it answers one request."""


def weight_bytes(module: IRModule) -> int:
    """Bytes of all constants, each once."""
    bound = (b.value for f in module.graph_functions().values() for b in all_bindings(f.body) if isinstance(b, Bind))
    arrays = {id(c.data): c.data for value in bound for c in operands(value) if isinstance(c, Constant)}
    return sum(a.nbytes for a in arrays.values())


@dataclass(frozen=True)
class ChooseConfig(Pass):
    """Ask the context's chooser for a configuration of each program; a hand-written ``config`` stays.

    Weights that fit the last-level cache are there in the next call, and asking for them ahead only costs.
    """

    name: ClassVar[str] = "ChooseConfig"
    requires: ClassVar[Level] = Level.LEGAL

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Annotate the programs."""
        ahead = AHEAD if weight_bytes(module) > ctx.target.cache_bytes else 0
        changes: dict[str, AnyFunc | None] = {}
        for name, func in module.prim_funcs().items():
            if not func.is_host and "config" not in func.attrs:
                config = replace(ctx.chooser.choose(func, ctx.target), ahead=ahead)
                changes[name] = replace(func, attrs=MappingProxyType({**func.attrs, "config": str(config)}))
        return module.with_functions(changes) if changes else module
