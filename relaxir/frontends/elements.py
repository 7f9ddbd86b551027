"""Notes on a module of the element formats that callers pass and receive (`relaxir.support.elements`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relaxir.ir.expr import Function
from relaxir.ir.module import IRModule


def with_elements(module: IRModule, formats: Sequence[str]) -> IRModule:
    """The module with the formats of inputs, then results, of ``main`` noted, if there are any.

    ``formats`` names those that the IR has no dtype for, with an empty string where there is none.
    """
    if not any(formats):
        return module
    func = module["main"]
    assert isinstance(func, Function)
    noted = replace(func, attrs={**func.attrs, "elements": tuple(formats)})
    return replace(module, functions={**module.functions, "main": noted})
