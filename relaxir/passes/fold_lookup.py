"""Apply elementwise functions to a table of constants once, not to every row that is looked up in it.

Before:
    lv0 = R.take(R.const("table", (258, 64), "f32"), ids)      # ids: (b, 2048)
    lv1 = R.gelu(R.add(lv0, R.const("bias", (64,), "f32")))
After:
    lv1 = R.take(R.const("gelu of table + bias", (258, 64), "f32"), ids)
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar, Final

import numpy as np

from relaxir.ir.attrs import attr_dims
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, Constant, Expr, OpCall
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import map_functions
from relaxir.ir.types import TensorType
from relaxir.ops import op
from relaxir.ops.elementwise import Binary, Unary
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.fold_constant import constant
from relaxir.passes.patterns import PatternRewriter, dtype_of, rank_of
from relaxir.support.errors import RelaxirError

MOST_BYTES: Final = 1 << 20
"""Size of a table up to which another one beside it does not matter."""


class _Folder(PatternRewriter):
    def replacement(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        if not isinstance(call.op, Unary | Binary) or attr_dims(call.attrs):
            return None
        varying = {a for a in call.args if not isinstance(a, Constant)}
        if len(varying) != 1:
            return None
        (rows,) = varying
        take = self.made(rows, "take")
        if take is None or not isinstance(take.args[0], Constant) or rank_of(rows) != rank_of(call):
            return None
        table, index = take.args[0], take.args[1]
        if getattr(take.attrs, "axis", None) != 0 or table.data.nbytes > MOST_BYTES:
            return None
        arrays = tuple(of_a_row(a.data, table) if isinstance(a, Constant) else table.data for a in call.args)
        if any(a is None for a in arrays):
            return None
        known = tuple(a for a in arrays if a is not None)
        types = tuple(TensorType(a.shape, dtype_of(given)) for a, given in zip(known, call.args, strict=True))
        try:
            made = call.op.evaluate(known, types, call.attrs, TensorType(table.data.shape, dtype_of(call)))
        except RelaxirError:
            return None  # a failing call fails at run time, with its own message
        assert isinstance(made, np.ndarray)
        mode = getattr(take.attrs, "mode", "")
        return bb.emit(op.take(constant(made.copy(), dtype_of(call)), index, axis=0, mode=mode))


def of_a_row(operand: Array, table: Constant) -> Array | None:
    """An operand that is the same for all rows of a table, with axes for one row; None for any other."""
    row = table.data.shape[1:]
    spare = max(0, operand.ndim - len(row))
    own = operand.shape[spare:]
    fits = all(a in (1, b) for a, b in zip(reversed(own), reversed(row), strict=False))
    return operand.reshape(own) if fits and all(n == 1 for n in operand.shape[:spare]) else None


@dataclass(frozen=True)
class FoldLookup(Pass):
    """Move elementwise operators over lookups in small constant tables into the tables."""

    name: ClassVar[str] = "FoldLookup"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Folder(f).function(f))
