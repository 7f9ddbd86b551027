"""Take extrema before monotone functions: one value is transformed instead of all.

Before:
    lv0: R.Tensor((b, n), "f32") = R.tanh(x)
    lv1: R.Tensor((b,), "f32") = R.max(lv0, axes=(1,))
After:
    lv0: R.Tensor((b,), "f32") = R.max(x, axes=(1,))
    lv1: R.Tensor((b,), "f32") = R.tanh(lv0)

(n is at least 1; else nothing stays nothing by a choice.) A function that falls turns maxima into minima. What else
reads the function's values must be one elementwise operator at most: that computes them where it needs them, from an
operand that is read anyway, so nothing more is stored than before. The reduction, with cheap operators before it only,
then fuses with those.

A sum rises with both of its operands, also when it is rounded. So the largest sum of all pairs, from operands of
shapes (n, 1) and (1, m), is the sum of the largest elements. Infinities of opposite signs are among the extrema of the
operands if there are any: sums of these show whether some pair gives NaN.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

import numpy as np

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Check, Expr, Function, OpCall, TupleExpr, Var
from relaxir.ir.module import IRModule
from relaxir.ir.op import OpKind
from relaxir.ir.rewrite import all_bindings, map_functions, used_vars
from relaxir.ops import TABLE, op
from relaxir.ops.kernels import emit_op
from relaxir.ops.reduce import ReduceAttrs, Rows, known_axes
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.fold_constant import constant
from relaxir.passes.patterns import PatternRewriter, dtype_of, rank_of, shape_of
from relaxir.sym import DimLike, Proof

ENDS: Final[Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {"max": ("max",), "min": ("min",), "min_max": ("min", "max")}
)
"""Reductions, and the extrema that each gives."""
OTHER: Final[Mapping[str, str]] = MappingProxyType({"max": "min", "min": "max"})
POINTWISE: Final = (OpKind.ELEMENTWISE, OpKind.BROADCAST)
SUMMED: Final = ("float16", "float32", "float64")
"""Types whose sums rise with both operands; those of integers wrap."""


@dataclass(frozen=True, slots=True)
class _Side:
    """An operand of a sum, and which of its axes are reduced while the other operand has one element along them."""

    x: Expr
    axes: tuple[int, ...]

    def extrema(self, bb: BlockBuilder) -> dict[str, Expr]:
        """Smallest and largest elements along these axes, which stay with extent 1."""
        ends = emit_op(bb, TABLE["min_max"], self.x, attrs=ReduceAttrs(self.axes, True))
        return {"min": bb.item(ends, 0), "max": bb.item(ends, 1)}


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
        if call.op.name not in ENDS or not isinstance(call.attrs, ReduceAttrs):
            return None
        axes = known_axes(call.attrs.axes, rank_of(call.args[0]))
        count = Rows(shape_of(call.args[0]), axes).count
        functions: list[OpCall] = []
        x, sign = call.args[0], 1
        while (made := self.function_behind(x)) is not None:
            functions.append(made)
            x, sign = made.args[0], sign * direction(made)
        sides = self.sides(x, axes)
        if (not functions and sides is None) or count == 1:
            return None
        empty = None if self.facts.prove_le(1, count) is Proof.PROVED else is_zero(bb, count)
        ends = tuple(e if sign > 0 else OTHER[e] for e in ENDS[call.op.name])
        if sides is None:
            values = reduced(bb, x, ends, call.attrs)
        else:
            low_high = sides[0].extrema(bb), sides[1].extrema(bb)
            values = tuple(of_sums(bb, *low_high, end, call.attrs, empty) for end in ends)
        results = tuple(applied(bb, functions, v, sign, empty) for v in values) if functions else values
        return results[0] if len(results) == 1 else TupleExpr(results)

    def function_behind(self, y: Expr) -> OpCall | None:
        """The monotone function that made a value, if its values are needed one by one in one place at most."""
        made = self.source.get(y) if isinstance(y, Var) else None
        if made is None or len(made.args) != 1 or made.args[0].type != made.type or not direction(made):
            return None
        others = [r for r in self.readers.get(y, [y]) if not (isinstance(r, OpCall) and r.op.name in ENDS)]
        alone = len(others) <= 1 and all(isinstance(r, OpCall) and r.op.kind in POINTWISE for r in others)
        return made if alone else None

    def sides(self, x: Expr, axes: tuple[int, ...]) -> tuple[_Side, _Side] | None:
        """The operands of a sum of pairs: each has one element along some reduced axis of the other."""
        made = self.made(x, "add")
        if made is None or dtype_of(x) not in SUMMED:
            return None
        shapes = [(1,) * (rank_of(x) - rank_of(a)) + shape_of(a) for a in made.args]
        found = []
        for a, own, other in zip(made.args, shapes, reversed(shapes), strict=True):
            missing = rank_of(x) - rank_of(a)
            found.append(_Side(a, tuple(r - missing for r in axes if other[r] == 1 and own[r] != 1)))
        return (found[0], found[1]) if all(side.axes for side in found) else None


def direction(call: OpCall) -> int:
    """Whether a function rises (1), falls (-1), or neither is known (0)."""
    return call.op.monotone(call.attrs, dtype_of(call))


def reduced(bb: BlockBuilder, x: Expr, ends: tuple[str, ...], attrs: ReduceAttrs) -> tuple[Expr, ...]:
    """One extremum, or both in one pass."""
    if len(ends) == 1:
        return (emit_op(bb, TABLE[ends[0]], x, attrs=attrs),)
    both = emit_op(bb, TABLE["min_max"], x, attrs=attrs)
    return tuple(bb.item(both, ENDS["min_max"].index(end)) for end in ends)


def of_sums(
    bb: BlockBuilder, a: Mapping[str, Expr], b: Mapping[str, Expr], end: str, attrs: ReduceAttrs, empty: Expr | None
) -> Expr:
    """An extremum of the sums of all pairs; the two sums of unlike extrema matter where they are NaN only."""
    unlike = OTHER[end]
    sums = [bb.emit(op.add(x, y)) for x, y in ((a[end], b[end]), (a[end], b[unlike]), (a[unlike], b[end]))]
    choose = op.maximum if end == "max" else op.minimum
    best = bb.emit(choose(bb.emit(choose(sums[0], sums[1])), sums[2]))
    y = emit_op(bb, TABLE[end], best, attrs=attrs)
    if empty is None:
        return y
    dtype = dtype_of(y)
    return bb.emit(op.where(empty, constant(np.array(-np.inf if end == "max" else np.inf, dtype), dtype), y))


def applied(bb: BlockBuilder, functions: list[OpCall], extremum: Expr, sign: int, empty: Expr | None) -> Expr:
    """Functions of an extremum, first the last one; of nothing, the extremum of nothing.

    Functions that fall are of floats, where the largest of nothing is the negative of the smallest.
    """
    y = extremum
    for f in reversed(functions):
        y = emit_op(bb, f.op, y, attrs=f.attrs)
    if empty is None:
        return y
    return bb.emit(op.where(empty, extremum if sign > 0 else bb.emit(op.negative(extremum)), y))


def is_zero(bb: BlockBuilder, count: DimLike) -> Expr:
    """Whether a dimension is 0, as data."""
    number = bb.emit(op.reshape(bb.emit(op.dims_to_tensor(dims=(count,))), shape=()))
    return bb.emit(op.equal(number, 0))


@dataclass(frozen=True)
class HoistMonotone(Pass):
    """Move monotone functions, and sums of pairs, behind the maxima and minima of their values."""

    name: ClassVar[str] = "HoistMonotone"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Hoister(f).function(f))
