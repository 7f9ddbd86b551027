"""The part each axis of a contraction plays: lanes, rows, loops around them, reduced axes."""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass

from relaxir.schedule.tile import packed_lanes
from relaxir.tir import Axis, AxisKind, Expr, Var
from relaxir.tir.access import loads_of, stride, variables_of
from relaxir.tir.classify import Contraction


@dataclass(frozen=True, slots=True)
class Tail:
    """What is left of the reduced axis after whole steps: an axis, and both factors over it."""

    axis: Axis
    scalar: Expr
    vector: Expr


@dataclass(frozen=True, slots=True)
class Roles:
    """Which axis of a contraction plays which part."""

    scalar: Expr  # the factor without the lane axis
    vector: Expr  # the factor with it
    lane: Axis
    row: Axis | None
    outer: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    packed: int  # lanes of the packed layout, 0 if not packed
    on_the_fly: bool  # the vector factor must be packed first
    padded: bool = False  # lanes past the end may be read
    product: Callable[[Expr, Expr], Expr] = operator.mul  # of scalar and vector, what is summed
    tail: Tail | None = None

    @property
    def contiguous(self) -> bool:
        """Whether both factors are contiguous (or constant) along the innermost reduced axis."""
        inner = self.reduce[-1].var
        return all(stride(e, inner) in (0, 1) for e in (*loads_of(self.scalar), *loads_of(self.vector)))


def _lane_ok(expr: Expr, var: Var) -> bool:
    loads = [e for e in loads_of(expr) if var in variables_of(e)]
    return all(stride(e, var) in (0, 1) for e in loads)


def _packed(expr: Expr, lane: Axis) -> int:
    widths = [packed_lanes(e, lane) for e in loads_of(expr) if lane.var in variables_of(e)]
    return widths[0] if len(widths) == 1 else 0


def assign_roles(found: Contraction) -> Roles | None:
    """Choose lane and row axes, or None when no axis is usable as lanes."""
    axes = {a.var: a for a in found.block.axes}
    spatial = tuple(a for a in found.block.axes if a.kind is AxisKind.SPATIAL)
    reduce = tuple(axes[v] for v in found.reduce)

    def roles(lane: Var, packed: int, on_the_fly: bool) -> Roles:
        in_right = lane in found.columns or (lane in found.batch and not _lane_ok(found.left, lane))
        vector, scalar = (found.right, found.left) if in_right else (found.left, found.right)
        others = found.rows if lane in found.columns else found.columns if lane in found.rows else ()
        row = axes[others[-1]] if others else None
        outer = tuple(a for a in spatial if a.var is not lane and a is not row)
        return Roles(scalar, vector, axes[lane], row, outer, reduce, packed, on_the_fly)

    for lane in (*found.columns, *found.rows):
        side = found.right if lane in found.columns else found.left
        width = _packed(side, axes[lane])
        if width:
            return roles(lane, width, False)
    candidates = (*reversed(found.columns), *reversed(found.rows), *reversed(found.batch))
    for need_store in (True, False):
        for lane in candidates:
            both = _lane_ok(found.left, lane) and _lane_ok(found.right, lane)
            if both and (not need_store or stride(found.store, lane) == 1):
                return roles(lane, 0, False)
    for lane in candidates:
        if lane not in found.batch:
            return roles(lane, 0, True)
    return None
