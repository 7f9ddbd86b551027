"""Split axes before a transposition rather than after it, so that neighbouring views and transpositions cancel.

Before:
    lv0: R.Tensor((b * 12, 32, s), "f32") = R.permute_dims(x, axes=(0, 2, 1))      # x: (b * 12, s, 32)
    lv1: R.Tensor((b, 12, 32, s), "f32") = R.reshape(lv0, shape=(b, 12, 32, s))
After:
    lv0: R.Tensor((b, 12, s, 32), "f32") = R.reshape(x, shape=(b, 12, s, 32))      # a view
    lv1: R.Tensor((b, 12, 32, s), "f32") = R.permute_dims(lv0, axes=(0, 1, 3, 2))

Unit axes are never transposed: views bring them to the front, where transpositions leave them, and to their places.

Before:
    lv0: R.Tensor((1, 12, s, 32), "f32") = R.permute_dims(x, axes=(1, 2, 0, 3))    # x: (s, 1, 12, 32)
After:
    lv1: R.Tensor((1, s, 12, 32), "f32") = R.reshape(x, shape=(1, s, 12, 32))      # a view
    lv0: R.Tensor((1, 12, s, 32), "f32") = R.permute_dims(lv1, axes=(0, 2, 1, 3))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Expr, OpCall
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import map_functions
from relaxir.ops import op
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.canonicalize import axes_of
from relaxir.passes.patterns import PatternRewriter, shape_of
from relaxir.sym import DimLike, product

VIEWS: frozenset[str] = frozenset({"reshape", "expand_dims", "squeeze", "flatten"})


def split_groups(before: Sequence[DimLike], after: Sequence[DimLike]) -> tuple[int, ...] | None:
    """How many axes of ``after`` each axis of ``before`` becomes, or None if any two are merged.

    >>> split_groups((6, 5), (2, 3, 5))
    (2, 1)
    """
    counts: list[int] = []
    position = 0
    for extent in before:
        end = position + 1
        while end < len(after) and product(after[position:end]) != extent:
            end += 1
        if end > len(after) or product(after[position:end]) != extent:
            return None
        counts.append(end - position)
        position = end
    if counts and all(d == 1 for d in after[position:]):
        counts[-1] += len(after) - position
        position = len(after)
    return tuple(counts) if position == len(after) else None


class _Hoister(PatternRewriter):
    def replacement(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        if call.op.name == "permute_dims":
            axes = axes_of(call)
            return turned(call.args[0], axes, bb) if moves_units(shape_of(call.args[0]), axes) else None
        if call.op.name not in VIEWS or not call.args:
            return None
        view = self.made(call.args[0], *VIEWS)
        if view is not None and "reshape" in (call.op.name, view.op.name):  # a reshape copies nothing
            return bb.emit(op.reshape(view.args[0], shape=shape_of(call)))
        inner = self.made(call.args[0], "permute_dims")
        if inner is None:
            return None
        before, after, axes = shape_of(inner), shape_of(call), axes_of(inner)
        counts = split_groups(before, after)
        if counts is None or len(after) > 8:
            return None
        starts = [sum(counts[:n]) for n in range(len(counts))]
        # axis a of the transposed value is axis axes[a] of the source: its parts keep together
        order = sorted(range(len(axes)), key=lambda a: axes[a])
        parts = [range(starts[a], starts[a] + counts[a]) for a in order]
        place = {p: n for n, p in enumerate(p for part in parts for p in part)}
        split = bb.emit(op.reshape(inner.args[0], shape=tuple(after[p] for part in parts for p in part)))
        return turned(split, tuple(place[p] for p in range(len(after))), bb)


def moves_units(shape: Sequence[DimLike], axes: Sequence[int]) -> bool:
    """Whether a transposition of a tensor of this shape moves an axis of extent 1."""
    return any(shape[a] == 1 and axes[a] != a for a in axes)


def turned(value: Expr, axes: Sequence[int], bb: BlockBuilder) -> Expr:
    """Emit a transposition that leaves unit axes in front, between views."""
    before = shape_of(value)
    if not moves_units(before, axes):
        return bb.emit(op.permute_dims(value, axes=tuple(axes)))
    kept = [a for a in range(len(axes)) if before[a] != 1]
    units = len(axes) - len(kept)
    front = (*(1 for _ in range(units)), *(before[a] for a in kept))
    order = (*range(units), *(units + kept.index(a) for a in axes if before[a] != 1))
    if order != tuple(range(len(axes))):
        value = bb.emit(op.permute_dims(bb.emit(op.reshape(value, shape=front)), axes=order))
    return bb.emit(op.reshape(value, shape=tuple(before[a] for a in axes)))


@dataclass(frozen=True)
class HoistReshape(Pass):
    """Move views that only split axes in front of transpositions, and unit axes by views."""

    name: ClassVar[str] = "HoistReshape"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Hoister(f).function(f))
