"""Placeholder."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaxir.ir.module import IRModule
from relaxir.passes.base import Pass, PassContext


@dataclass(frozen=True)
class LiftTransformParams(Pass):
    """Transform weights at compile time."""

    name: ClassVar[str] = "LiftTransformParams"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Nothing yet."""
        return module
