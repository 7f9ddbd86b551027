"""Staging the input of a convolution: padding written out, strided columns apart, so that tiles load plain vectors.

before::

    s[q, y, v] = sum over c, ky, kx of (x[c, y*2+ky-1, v*2+kx-1] if inside else 0) * w[q, c, ky, kx]

after::

    staged[c, h, p, v] = x[c, h-1, v*2+p-1] if inside else 0        # one copy, p = phase of the stride
    s[q, y, v] = sum over c, ky, kx of staged[c, y*2+ky, kx % 2, v + kx // 2] * w[q, c, ky, kx]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxir.sym import DimLike, add, ceildiv, is_const, mul
from relaxir.tir import (
    Axis,
    Binary,
    Block,
    Buffer,
    Combine,
    Expr,
    Load,
    Select,
    Store,
    Var,
    as_expr,
    binary,
    const,
    identity,
)
from relaxir.tir.access import affine, as_dim, variables_of
from relaxir.tir.expr import BinOp
from relaxir.tir.visit import map_expr

COMPARE = frozenset({BinOp.LT, BinOp.LE, BinOp.GT, BinOp.GE, BinOp.EQ, BinOp.NE})


@dataclass(frozen=True, slots=True)
class Staged:
    """A staged factor: the buffer, the block that fills it, and the load that replaces the factor."""

    buffer: Buffer
    fill: Block
    load: Load


@dataclass(frozen=True, slots=True)
class _Window:
    """One dimension of the source walked by several axes: ``index = sum(coefficient * axis) + rest``."""

    coefficients: Mapping[Var, int]
    rest: Expr
    var: Var  # the position in the staged dimension


def stage_factor(factor: Expr, axes: Sequence[Axis], lane: Axis, width: int) -> Staged | None:
    """Stage a guarded or strided factor for lanes along ``lane``, or None where its indices are not understood.

    Args:
        factor: a load, or a select of a load and zero.
        axes: all axes of the contraction.
        lane: the axis that becomes the lanes; panels of ``width`` may run past its end, so the copy is wider.
        width: lanes of a panel.

    """
    guard = factor.cond if isinstance(factor, Select) else None
    load = factor.then if isinstance(factor, Select) else factor
    if not isinstance(load, Load):
        return None
    extents = {a.var: a.extent for a in axes}
    guarded = variables_of(guard) if guard is not None else frozenset()
    windows: dict[int, _Window] = {}
    for d, index in enumerate(load.indices):
        if lane.var in variables_of(index) or variables_of(index) & guarded:
            form = affine(index, tuple(extents))
            if form is None or not all(is_const(c) and int(c) > 0 for c in form[0].values()) or as_dim(form[1]) is None:
                return None
            windows[d] = _Window({v: int(c) for v, c in form[0].items()}, form[1], Var(f"h{d}"))
    last = max((d for d, w in windows.items() if lane.var in w.coefficients), default=-1)
    if last != len(load.indices) - 1 or sum(lane.var in w.coefficients for w in windows.values()) != 1:
        return None
    inside = _rewrite_guard(guard, windows, tuple(extents)) if guard is not None else None
    if guard is not None and inside is None:
        return None
    return _build(load, inside, windows, extents, lane, width)


def _rewrite_guard(guard: Expr, windows: Mapping[int, _Window], variables: Sequence[Var]) -> Expr | None:
    """Rewrite the guard over staged positions: each compared index must be one of the windows plus a constant."""
    failed: list[Expr] = []

    def side(e: Expr) -> Expr:
        form = affine(e, variables)
        if form is None:
            failed.append(e)
            return e
        if not form[0]:
            return e
        for w in windows.values():
            if dict(form[0]) == dict(w.coefficients):
                return w.var + form[1]
        failed.append(e)
        return e

    def visit(e: Expr) -> Expr:
        if isinstance(e, Binary) and e.op in COMPARE and e.a.dtype == "int64":
            return binary(e.op, side(e.a), side(e.b))
        return e

    out = map_expr(guard, visit)
    return None if failed or variables_of(out) & set(variables) else out


@dataclass(frozen=True, slots=True)
class _Dimension:
    """One dimension of the source: the axes that stage it, where they read it, and the indices that read the copy."""

    axes: tuple[Axis, ...]
    source: Expr
    read: tuple[Expr, ...]


def _build(
    load: Load,
    inside: Expr | None,
    windows: Mapping[int, _Window],
    extents: Mapping[Var, DimLike],
    lane: Axis,
    width: int,
) -> Staged:
    """Stage all dimensions; the lanes run along the last one."""
    *outer, end = range(len(load.indices))
    dims = [_window(windows[d], extents) if d in windows else _whole(load, d) for d in outer]
    position, last = _lanes(windows[end], extents, lane, width)
    dims.append(last)
    within = last.source < as_expr(load.buffer.shape[end])
    guard = within if inside is None else inside & within
    guard = map_expr(guard, lambda e: position if e is windows[end].var else e)
    axes = tuple(a for d in dims for a in d.axes)
    buffer = Buffer("staged", tuple(a.extent for a in axes), load.dtype)
    element = Load(load.buffer, tuple(d.source for d in dims))
    fill = Store(buffer, tuple(a.var for a in axes), Select(guard, element, identity(Combine.SUM, load.dtype)))
    return Staged(buffer, Block("stage", axes, fill), Load(buffer, tuple(i for d in dims for i in d.read)))


def _whole(load: Load, d: int) -> _Dimension:
    """A dimension that is copied as it lies."""
    var = Var(f"c{d}")
    return _Dimension((Axis(var, load.buffer.shape[d]),), var, (load.indices[d],))


def _window(window: _Window, extents: Mapping[Var, DimLike]) -> _Dimension:
    """A dimension of which the positions that windows reach are copied."""
    reach, offset = _reach(window.coefficients, extents)
    return _Dimension((Axis(window.var, add(reach, 1)),), window.var + window.rest, (offset,))


def _lanes(window: _Window, extents: Mapping[Var, DimLike], lane: Axis, width: int) -> tuple[Expr, _Dimension]:
    """The dimension of the lanes, columns of one phase of the stride side by side; and the position that is staged."""
    step = window.coefficients[lane.var]
    reach, offset = _reach({v: c for v, c in window.coefficients.items() if v is not lane.var}, extents)
    place = Axis(Var("v"), add(mul(ceildiv(lane.extent, width), width), ceildiv(reach, step)))
    column = lane.var + binary(BinOp.FLOORDIV, offset, const(step))
    if step == 1:
        return place.var, _Dimension((place,), place.var + window.rest, (column,))
    phase = Axis(Var("p"), step)
    position = place.var * step + phase.var
    read = (binary(BinOp.MOD, offset, const(step)), column)
    return position, _Dimension((phase, place), position + window.rest, read)


def _reach(coefficients: Mapping[Var, int], extents: Mapping[Var, DimLike]) -> tuple[DimLike, Expr]:
    """The largest value of a sum of axes with coefficients, and the sum."""
    reach: DimLike = 0
    offset: Expr = const(0)
    for v, c in coefficients.items():
        reach = add(reach, mul(c, add(extents[v], -1)))
        offset = offset + v * c
    return reach, offset
