"""Evaluate what is known at compile time.

Before:
    lv0 = R.shape_of(x)                       # x: (n, 4)
    lv1 = R.multiply(R.const(2.0), R.const(3.0))
After:
    lv0 = R.shape((n, 4))
    lv1 = R.const(6.0)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaxir.ir.attrs import attr_dims
from relaxir.ir.expr import Array, Bind, Binding, Body, Constant, Expr, Function, If, OpCall, ShapeExpr, TupleExpr
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import Rewriter, map_functions
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.passes.base import Pass, PassContext
from relaxir.support.dtypes import info
from relaxir.support.errors import RelaxirError


class _Folder(Rewriter):
    def __init__(self, limit: int) -> None:
        super().__init__()
        self.limit = limit

    def block_branches(self, expr: If) -> Body | None:
        """The branch taken when the condition is known."""
        if isinstance(expr.cond, Constant):
            return expr.then if bool(expr.cond.data) else expr.other
        return None

    def binding(self, binding: Binding) -> Iterable[Binding]:
        (new,) = super().binding(binding)
        if not isinstance(new, Bind):
            return (new,)
        if isinstance(new.value, If) and not new.defines:
            taken = self.block_branches(new.value)
            if taken is not None and taken.type == new.var.type:
                self.env[new.var] = taken.result
                return taken.bindings
        folded = self.fold(new.value)
        if folded is None or new.defines:
            return (new,)
        self.env[new.var] = folded
        return ()

    def fold(self, expr: Expr) -> Expr | None:
        """The value as a constant or shape, or None."""
        if not isinstance(expr, OpCall) or not expr.op.pure:
            return None
        if expr.op.name == "shape_of":
            source = expr.args[0].type
            return ShapeExpr(source.shape) if isinstance(source, TensorType) else None
        if expr.op.name == "shape_to_tensor" and isinstance(expr.args[0], ShapeExpr):
            dims = expr.args[0].dims
            return None if not all(isinstance(d, int) for d in dims) else constant(np.array(dims, np.int64), "int64")
        if not all(isinstance(a, Constant) for a in expr.args) or attr_dims(expr.attrs):
            return None
        arrays = tuple(a.data for a in expr.args if isinstance(a, Constant))
        size = static_bytes(expr.type)
        if size is None or size > self.limit + sum(a.nbytes for a in arrays):
            return None
        try:
            result = expr.op.evaluate(arrays, tuple(a.type for a in expr.args), expr.attrs, expr.type)
        except RelaxirError:
            return None  # a failing call fails at run time, with its own message
        return from_arrays(result, expr.type)


def static_bytes(t: Type) -> int | None:
    """Size of a value of a fully static type, else None."""
    if isinstance(t, TupleType):
        sizes = [static_bytes(f) for f in t.fields]
        return None if None in sizes else sum(s for s in sizes if s is not None)
    if not isinstance(t, TensorType) or not all(isinstance(d, int) for d in t.shape):
        return None
    count = 1
    for d in t.shape:
        count *= int(d)
    return count * info(t.dtype).bytes


def constant(array: Array, dtype: str) -> Constant:
    """A constant over an array that nobody else writes."""
    data = np.ascontiguousarray(array).reshape(array.shape)
    data.setflags(write=False)
    return Constant(data, TensorType(data.shape, dtype))


def from_arrays(result: Array | tuple[Array, ...], t: Type) -> Expr | None:
    """Reference results as constants of the inferred type; None if they disagree with it."""
    if isinstance(t, TupleType):
        assert isinstance(result, tuple)
        fields = [from_arrays(r, f) for r, f in zip(result, t.fields, strict=True)]
        return None if None in fields else TupleExpr(tuple(f for f in fields if f is not None))
    assert isinstance(t, TensorType)
    array = np.asarray(result)
    return constant(array.copy(), t.dtype) if array.shape == t.shape else None


@dataclass(frozen=True)
class FoldConstant(Pass):
    """Replace calls whose operands are constants by their reference result; shapes of known types by shape values."""

    name: ClassVar[str] = "FoldConstant"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""

        def fold(func: Function) -> Function:
            return _Folder(ctx.fold_limit).function(func)

        return map_functions(module, fold)
