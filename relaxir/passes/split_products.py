"""Products whose result is only read in parts become a product for each part, and the copies of the parts disappear.

Before:
    lv0: R.Tensor((s, 1, 576), "f32") = R.add(R.matmul(x, R.const("w", (192, 576))), R.const("b", (576,)))
    lv1: R.Tensor((3, s, 1, 192), "f32") = R.permute_dims(R.reshape(lv0, shape=(s, 1, 3, 192)), axes=(2, 0, 1, 3))
    lv2: R.Tensor((s, 1, 192), "f32") = R.take(lv1, R.const(0, "i64"))
    lv3: R.Tensor((s, 1, 192), "f32") = R.take(lv1, R.const(1, "i64"))
After:
    lv2: R.Tensor((s, 1, 192), "f32") = R.add(R.matmul(x, R.const("w", (192, 192))), R.const("b", (192,)))
    lv3: R.Tensor((s, 1, 192), "f32") = R.add(R.matmul(x, R.const("w", (192, 192))), R.const("b", (192,)))

Exporters write the queries, keys and values of attention so. Nothing is computed twice: parts do not overlap.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import ClassVar, Final

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Bind, Constant, Expr, Function, OpCall, Var
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import all_bindings, map_functions
from relaxir.ops import op
from relaxir.ops.slicing import StridedSlice
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.canonicalize import axes_of
from relaxir.passes.fold_constant import constant
from relaxir.passes.hoist_reshape import VIEWS, turned
from relaxir.passes.patterns import PatternRewriter, dtype_of, rank_of, shape_of
from relaxir.sym import DimLike, is_const, product

NARROW: Final = 64
"""Columns of a part; a narrower one would leave lanes of its product idle."""


@dataclass(frozen=True, slots=True)
class Part:
    """Places ``begin`` to ``begin + size`` along an axis of a value."""

    value: Expr
    axis: int
    begin: int
    size: int


@dataclass(frozen=True, slots=True)
class Step:
    """A transposition or a view between a product and what selects from it: the shape of a part behind it."""

    shape: tuple[DimLike, ...]
    axes: tuple[int, ...] = ()  # of a transposition


def part_of(call: OpCall) -> Part | None:
    """Read a call as a selection of known places along one axis, or None."""
    if call.op.name == "take":
        index, axis = call.args[1], getattr(call.attrs, "axis", 0) % max(1, rank_of(call.args[0]))
        extent = shape_of(call.args[0])[axis] if rank_of(call.args[0]) else 0
        if not isinstance(index, Constant) or index.data.ndim or not is_const(extent):
            return None
        place = int(index.data)
        inside = -int(extent) <= place < int(extent)
        return Part(call.args[0], axis, place % int(extent), 1) if inside else None
    if not isinstance(call.attrs, StridedSlice.Attrs) or len(call.attrs.axes) != 1 or call.attrs.strides() != (1,):
        return None
    (axis,), (begin,), (size,) = call.attrs.axes, call.attrs.begin, call.attrs.size
    known = is_const(begin) and is_const(size)
    return Part(call.args[0], axis % rank_of(call.args[0]), int(begin), int(size)) if known else None


class _Splitter(PatternRewriter):
    def __init__(self, func: Function) -> None:
        super().__init__(func)
        self.readers: dict[Var, list[OpCall]] = {}
        for b in all_bindings(func.body):
            if isinstance(b, Bind) and isinstance(b.value, OpCall):
                for v in {a for a in b.value.args if isinstance(a, Var)}:
                    self.readers.setdefault(v, []).append(b.value)

    def replacement(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        part = part_of(call) if call.op.name in ("take", "strided_slice") else None
        if part is None or not self.in_parts(part):
            return None
        steps: list[Step] = []
        value = part.value
        columns: Part | None = part
        while columns is not None and (made := self.made(value, "permute_dims", *VIEWS)) is not None:
            steps.append(_step(made, columns))
            columns, value = _before(made, columns), made.args[0]
            if not self.once(value):
                return None
        if columns is None or columns.size < NARROW or columns.axis != rank_of(value) - 1:
            return None
        result = self.columns(value, columns, bb)
        if result is None:
            return None
        for step in reversed(steps):
            result = turned(result, step.axes, bb) if step.axes else bb.emit(op.reshape(result, shape=step.shape))
        return bb.emit(op.reshape(result, shape=shape_of(call)))

    def in_parts(self, part: Part) -> bool:
        """Whether every reader of a value selects places along the same axis, none of them twice."""
        value = part.value
        if not isinstance(value, Var):
            return False
        calls = self.readers.get(value, [])
        parts = [p for p in map(part_of, calls) if p is not None and p.value is value and p.axis == part.axis]
        spans = sorted((p.begin, p.begin + p.size) for p in parts)
        apart = all(a[1] <= b[0] for a, b in pairwise(spans))
        return len(parts) == len(calls) == self.uses[value] and apart

    def once(self, value: Expr) -> bool:
        """Whether one call reads a value, once."""
        return isinstance(value, Var) and self.uses[value] == 1

    def columns(self, value: Expr, part: Part, bb: BlockBuilder) -> Expr | None:
        """Some columns of a product with constant weights, and constants added to it; None for another value."""
        place = slice(part.begin, part.begin + part.size)
        made = self.made(value, "add", "matmul", "linear")
        if made is None:
            return None
        if made.op.name == "add":
            for inner, bias in (made.args, made.args[::-1]):
                if isinstance(bias, Constant) and shape_of(inner) == shape_of(made) and self.once(inner):
                    first = self.columns(inner, part, bb)
                    return None if first is None else bb.emit(op.add(first, _cut(bias, place)))
            return None
        x, w, *bias_of = made.args
        if not all(isinstance(a, Constant) for a in (w, *bias_of)) or rank_of(w) != 2:
            return None
        assert isinstance(w, Constant)  # looked at just now
        if made.op.name == "matmul":
            return bb.emit(op.matmul(x, constant(w.data[:, place].copy(), dtype_of(w))))
        rest = tuple(_cut(b, place) for b in bias_of if isinstance(b, Constant))
        return bb.emit(op.linear(x, constant(w.data[place].copy(), dtype_of(w)), *rest))


def _cut(value: Constant, place: slice) -> Constant:
    """A constant that broadcasts along columns, for some of them."""
    narrow = not value.data.ndim or value.data.shape[-1] == 1
    return value if narrow else constant(value.data[..., place].copy(), dtype_of(value))


def _step(made: OpCall, part: Part) -> Step:
    """What `made` does, for the part of its result alone."""
    shape = list(shape_of(made))
    shape[part.axis] = part.size
    return Step(tuple(shape), axes_of(made) if made.op.name == "permute_dims" else ())


def _before(made: OpCall, part: Part) -> Part | None:
    """The part of a transposition's or view's operand that a part of its result is, or None if it is none."""
    value = made.args[0]
    before, after, axis = shape_of(value), shape_of(made), part.axis
    if made.op.name == "permute_dims":
        return Part(value, axes_of(made)[axis], part.begin, part.size)
    inner = after[axis + 1 :]
    if before and product(after[axis:]) == before[-1] and all(is_const(d) for d in inner):
        each = int(product(inner))  # the axis is the outer one of those into which the columns were split
        return Part(value, len(before) - 1, part.begin * each, part.size * each)
    return _same_axis(value, before, after, part)


def _same_axis(value: Expr, before: Sequence[DimLike], after: Sequence[DimLike], part: Part) -> Part | None:
    """The same part where a view leaves the axis alone."""
    ahead = product(after[: part.axis])
    for axis, extent in enumerate(before):
        if extent == after[part.axis] and product(before[:axis]) == ahead:
            return Part(value, axis, part.begin, part.size)
    return None


@dataclass(frozen=True)
class SplitProducts(Pass):
    """Replace products that are only read in parts by products of the parts."""

    name: ClassVar[str] = "SplitProducts"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Splitter(f).function(f))
