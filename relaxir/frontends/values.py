"""Values during import: an expression, or a small integer tensor whose elements are known dimensions."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from relaxir.ir.attrs import is_symbolic
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, Constant, Expr
from relaxir.ir.types import TensorType
from relaxir.ops import op
from relaxir.ops.symbolic import SymbolicArray, symbolic_array
from relaxir.support.dtypes import info

SIZES = ("int64", "int32", "bool")  # dtypes of shape arithmetic; narrow integers wrap, so they are data
SMALL = 1024  # elements up to which an integer constant is tracked as possible shape arithmetic


@dataclass(eq=False)
class Value:
    """One tensor of the graph.

    Attributes:
        type: its type.
        expr: the expression that computes it; None while nothing needs it as a tensor.
        known: its elements as dims, when they are known.
        element: the format that its bytes hold, where the IR has no dtype for it (`relaxir.support.elements`).
    """

    type: TensorType
    expr: Expr | None = None
    known: SymbolicArray | None = None
    element: str = ""

    @staticmethod
    def of(expr: Expr) -> Value:
        """A value from an expression; small integer constants are known."""
        assert isinstance(expr.type, TensorType)
        known = None
        if isinstance(expr, Constant) and expr.data.size <= SMALL and expr.type.dtype in SIZES:
            known = symbolic_array(expr.data)
        return Value(expr.type, expr, known)

    def materialize(self, bb: BlockBuilder) -> Expr:
        """The value as a tensor expression."""
        if self.expr is None:
            assert self.known is not None
            self.expr = _as_tensor(self.known, self.type, bb)
        return self.expr

    @property
    def constant(self) -> Array | None:
        """The elements as numbers, if all are known at compile time."""
        if isinstance(self.expr, Constant):
            return self.expr.data
        if self.known is not None and not any(is_symbolic(v) for v in self.known.flat):
            return np.array(self.known.tolist(), info(self.type.dtype).numpy).reshape(self.known.shape)
        return None


def _as_tensor(known: SymbolicArray, type_: TensorType, bb: BlockBuilder) -> Expr:
    if not any(is_symbolic(v) for v in known.flat):
        data = np.array(known.tolist(), info(type_.dtype).numpy).reshape(known.shape)
        data.setflags(write=False)
        return Constant(data, TensorType(data.shape, type_.dtype))
    flat: Expr = bb.emit(op.dims_to_tensor(dims=tuple(known.reshape(-1).tolist())))
    if known.ndim != 1:
        flat = bb.emit(op.reshape(flat, shape=known.shape))
    return flat if type_.dtype == "int64" else bb.emit(op.astype(flat, dtype=type_.dtype))
