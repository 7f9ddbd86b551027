"""How far rounding alone may move the results of a model: what a comparison of two right programs must forgive."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from relaxir.ir import IRModule, TensorType
from relaxir.ir.expr import Array, Bind, Binding, Constant, Expr, OpCall, Var, const
from relaxir.ir.rewrite import Rewriter, map_functions
from relaxir.ops import TABLE
from relaxir.support.dtypes import info

MULTIPLY: Final = TABLE["multiply"]


SCALED = ("float16", "float32", "float64")


class _Nudge(Rewriter):
    """Moves every element of the weights to a neighbouring float, and scales every result by about one rounding."""

    def __init__(self, rng: np.random.Generator) -> None:
        super().__init__()
        self.rng = rng

    def binding(self, binding: Binding) -> Iterable[Binding]:
        for new in super().binding(binding):
            t = new.var.type if isinstance(new, Bind) else None
            if not isinstance(new, Bind) or not isinstance(t, TensorType) or t.dtype not in SCALED:
                yield new
                continue
            exact = Var(f"{new.var.name}_exact", t)
            scale = const(neighbours(np.ones((), info(t.dtype).numpy), self.rng))
            yield replace(new, var=exact)
            yield Bind(new.var, OpCall(MULTIPLY, (exact, scale), MULTIPLY.Attrs(), t))

    def expr(self, expr: Expr) -> Expr:
        if isinstance(expr, Constant) and expr.data.size > 1:  # scalars are parameters of operators: 2.0, 1e-5
            return replace(expr, data=neighbours(expr.data, self.rng))
        return super().expr(expr)


def neighbours(data: Array, rng: np.random.Generator) -> Array:
    """The next float above or below each element; arrays of anything else as they are."""
    if data.dtype.kind != "f":
        return data
    towards = np.where(rng.integers(0, 2, data.shape, bool), np.inf, -np.inf).astype(data.dtype)
    with np.errstate(all="ignore"):
        moved: Array = np.where(np.isfinite(data) & (data != 0), np.nextafter(data, towards), data)
    return moved


def nudged(module: IRModule, arrays: Sequence[Array], seed: int = 0) -> tuple[IRModule, list[Array]]:
    """The module with its weights and intermediate results, and the inputs, changed in about the last bit."""
    rng = np.random.default_rng(seed)
    return map_functions(module, lambda f: _Nudge(rng).function(f)), [neighbours(a, rng) for a in arrays]
