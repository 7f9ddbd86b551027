"""Take extrema before monotone functions: one value is transformed instead of all.

Before:
    lv0: R.Tensor((b, n), "f32") = R.tanh(x)
    lv1: R.Tensor((b,), "f32") = R.max(lv0, axes=(1,))
After (n is at least 1; else nothing stays nothing by a choice):
    lv0: R.Tensor((b,), "f32") = R.max(x, axes=(1,))
    lv1: R.Tensor((b,), "f32") = R.tanh(lv0)

A function that falls turns maxima into minima. What else reads the function's values must be one elementwise operator
at most: that computes them where it needs them, from an operand that is read anyway, so nothing more is stored than
before. The reduction, with cheap operators before it only, then fuses with those.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Check, Expr, Function, OpCall, TupleExpr, Var
from relaxir.ir.module import IRModule
from relaxir.ir.op import OpKind
from relaxir.ir.rewrite import all_bindings, map_functions, used_vars
from relaxir.ops import TABLE, op
from relaxir.ops.kernels import emit_op
from relaxir.ops.reduce import ReduceAttrs, Rows, known_axes
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.patterns import PatternRewriter, dtype_of, shape_of
from relaxir.sym import DimLike, Proof

MIRRORED: Final[Mapping[str, str]] = MappingProxyType({"max": "min", "min": "max", "min_max": "min_max"})
"""Extrema, and what they become when the order is turned round."""
POINTWISE: Final = (OpKind.ELEMENTWISE, OpKind.BROADCAST)


class _Hoister(PatternRewriter):
    def __init__(self, func: Function) -> None:
        super().__init__(func)
        self.readers: dict[Expr, list[Expr]] = defaultdict(list)
        for b in all_bindings(func.body):
            if not isinstance(b, Check):
                for v in used_vars(b.value):
                    self.readers[v].append(b.value)
        self.readers[func.body.result].append(func.body.result)

    def replacement(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        if call.op.name not in MIRRORED or not isinstance(call.attrs, ReduceAttrs):
            return None
        shape = shape_of(call.args[0])
        count = Rows(shape, known_axes(call.attrs.axes, len(shape))).count
        found: list[OpCall] = []
        x, sign = call.args[0], 1
        while (made := self.behind(x)) is not None:
            found.append(made)
            x, sign = made.args[0], sign * direction(made)
        if not found or count == 1:
            return None
        name = call.op.name if sign > 0 else MIRRORED[call.op.name]
        extrema = emit_op(bb, TABLE[name], x, attrs=call.attrs)
        empty = None if self.facts.prove_le(1, count) is Proof.PROVED else is_zero(bb, count)

        def mapped(extremum: Expr, of_nothing: Expr) -> Expr:
            y = extremum
            for f in reversed(found):
                y = emit_op(bb, f.op, y, attrs=f.attrs)
            return y if empty is None else bb.emit(op.where(empty, of_nothing, y))

        if name != "min_max":
            # falling functions are of floats, where the largest of nothing is the negative of the smallest
            return mapped(extrema, extrema if sign > 0 or empty is None else bb.emit(op.negative(extrema)))
        ends = bb.item(extrema, 0), bb.item(extrema, 1)
        return TupleExpr(tuple(mapped(e, n) for e, n in zip(ends[::sign], ends, strict=True)))

    def behind(self, y: Expr) -> OpCall | None:
        """The monotone function that made a value, if its values are needed one by one in one place at most."""
        made = self.source.get(y) if isinstance(y, Var) else None
        if made is None or len(made.args) != 1 or made.args[0].type != made.type or not direction(made):
            return None
        others = [r for r in self.readers.get(y, [y]) if not (isinstance(r, OpCall) and r.op.name in MIRRORED)]
        alone = len(others) <= 1 and all(isinstance(r, OpCall) and r.op.kind in POINTWISE for r in others)
        return made if alone else None


def direction(call: OpCall) -> int:
    """Whether a function rises (1), falls (-1), or neither is known (0)."""
    return call.op.monotone(call.attrs, dtype_of(call))


def is_zero(bb: BlockBuilder, count: DimLike) -> Expr:
    """Whether a dimension is 0, as data."""
    number = bb.emit(op.reshape(bb.emit(op.dims_to_tensor(dims=(count,))), shape=()))
    return bb.emit(op.equal(number, 0))


@dataclass(frozen=True)
class HoistMonotone(Pass):
    """Move monotone functions behind the maxima and minima of their values."""

    name: ClassVar[str] = "HoistMonotone"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Hoister(f).function(f))
