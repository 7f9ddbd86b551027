"""Send chosen calls to a library.

Before:
    lv0 = R.matmul(x, w)                                        # x: (n, 768), w: (768, 64), float32
After:
    lv0 = R.call_dps_packed("my_matmul", (x, w), out=R.Tensor((n, 64), "f32"))
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from relaxir.ir.expr import Bind, Binding, CallDPS, Expr, OpCall
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import Rewriter, map_functions
from relaxir.ir.types import TensorType
from relaxir.passes.base import Pass, PassContext


class _Dispatcher(Rewriter):
    def __init__(self, symbol: str) -> None:
        super().__init__()
        self.symbol = symbol

    def binding(self, binding: Binding) -> Iterable[Binding]:
        (new,) = super().binding(binding)
        if isinstance(new, Bind) and is_plain_matmul(new.value):
            assert isinstance(new.value, OpCall)
            call = CallDPS(self.symbol, new.value.args, new.value.type, True, new.value.span)
            return (replace(new, value=call),)
        return (new,)


def is_plain_matmul(expr: Expr) -> bool:
    """Whether an expression is a float32 product of two matrices."""
    if not isinstance(expr, OpCall) or expr.op.name != "matmul":
        return False
    types = tuple(a.type for a in expr.args)
    return all(isinstance(t, TensorType) and t.rank == 2 and t.dtype == "float32" for t in types)


@dataclass(frozen=True)
class DispatchLibrary(Pass):
    """Call a library function ``int f(DLTensor* a, DLTensor* b, DLTensor* out)`` for float32 matrix products.

    ``symbol`` names it; empty, the context's ``library`` does; both empty: nothing happens.
    """

    name: ClassVar[str] = "DispatchLibrary"
    symbol: str = ""

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Replace matching calls."""
        symbol = self.symbol or ctx.library
        return map_functions(module, lambda f: _Dispatcher(symbol).function(f)) if symbol else module
