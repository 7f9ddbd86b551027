"""Notes on a module of the element formats that callers pass and receive (`relaxir.support.elements`)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from relaxir.ir.expr import Function
from relaxir.ir.module import IRModule
from relaxir.ir.types import TensorType, TupleType


def with_elements(module: IRModule, narrow: Sequence[str] = ()) -> IRModule:
    """The module with the formats of inputs, then results, of ``main`` noted, if there are any.

    ``narrow`` names those that the IR has no dtype for, with an empty string where there is none; bfloat16, which the
    IR holds as bits, is noted by its dtype.
    """
    func = module["main"]
    assert isinstance(func, Function)
    results = func.ret.fields if isinstance(func.ret, TupleType) else (func.ret,)
    types = (*(p.type for p in func.params), *results)
    halves = ("bfloat16" if isinstance(t, TensorType) and t.dtype == "bfloat16" else "" for t in types)
    formats = tuple(n or h for n, h in zip(narrow or ("",) * len(types), halves, strict=True))
    if not any(formats):
        return module
    noted = replace(func, attrs={**func.attrs, "elements": formats})
    return replace(module, functions={**module.functions, "main": noted})
