"""Turn every tensor program in block form into loops for the target.

Before:
    with T.block("exp", i0=n, i1=4):
        y[i0, i1] = T.exp(x[i0, i1])
After:
    for i in T.parallel(...):
        for j in T.vector(...):
            y[...] = T.exp(x[...])
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaxir.cost import Config
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.schedule import schedule


@dataclass(frozen=True)
class Schedule(Pass):
    """Apply the first schedule rule that fits each program, with its ``config``."""

    name: ClassVar[str] = "Schedule"
    requires: ClassVar[Level] = Level.LEGAL
    ensures: ClassVar[Level | None] = Level.SCHEDULED

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Schedule the programs that are not scheduled yet."""
        changes: dict[str, AnyFunc | None] = {}
        for name, func in module.prim_funcs().items():
            if not func.is_host and "rules" not in func.attrs:
                text = func.attrs.get("config")
                config = Config.parse(text) if isinstance(text, str) and text else None
                changes[name] = schedule(func, ctx.target, config)
        return module.with_functions(changes) if changes else module
