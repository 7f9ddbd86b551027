"""Write the access pattern of every tensor program into its attributes (analysis feedback).

Before:
    @T.prim_func
    def add(...): ...
After:
    @T.prim_func(pattern="elementwise")
    def add(...): ...
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from relaxir.ir.module import AnyFunc, IRModule
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.tir.classify import classify


@dataclass(frozen=True)
class ClassifyPatterns(Pass):
    """Classify generated and hand-written programs alike, from what they access."""

    name: ClassVar[str] = "ClassifyPatterns"
    requires: ClassVar[Level] = Level.LEGAL

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Annotate the programs that have no pattern yet."""
        changes: dict[str, AnyFunc | None] = {
            name: replace(f, attrs=MappingProxyType({**f.attrs, "pattern": classify(f).name.lower()}))
            for name, f in module.prim_funcs().items()
            if "pattern" not in f.attrs and not f.is_host
        }
        return module.with_functions(changes) if changes else module
