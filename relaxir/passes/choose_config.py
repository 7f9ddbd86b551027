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
from typing import ClassVar

from relaxir.ir.module import AnyFunc, IRModule
from relaxir.passes.base import Level, Pass, PassContext


@dataclass(frozen=True)
class ChooseConfig(Pass):
    """Ask the context's chooser for a configuration of each program; a hand-written ``config`` stays."""

    name: ClassVar[str] = "ChooseConfig"
    requires: ClassVar[Level] = Level.LEGAL

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Annotate the programs."""
        changes: dict[str, AnyFunc | None] = {}
        for name, func in module.prim_funcs().items():
            if not func.is_host and "config" not in func.attrs:
                config = ctx.chooser.choose(func, ctx.target)
                changes[name] = replace(func, attrs=MappingProxyType({**func.attrs, "config": str(config)}))
        return module.with_functions(changes) if changes else module
