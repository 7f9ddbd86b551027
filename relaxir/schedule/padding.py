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


def _build(
    load: Load,
    inside: Expr | None,
    windows: Mapping[int, _Window],
    extents: Mapping[Var, DimLike],
    lane: Axis,
    width: int,
) -> Staged:
    shape: list[DimLike] = []
    fill_at: list[Var] = []
    source: list[Expr] = []
    read: list[Expr] = []
    for d, index in enumerate(load.indices):
        window = windows.get(d)
        if window is None:
            var = Var(f"c{d}")
            shape.append(load.buffer.shape[d])
            fill_at.append(var)
            source.append(var)
            read.append(index)
            continue
        step = window.coefficients.get(lane.var, 0)
        others = {v: c for v, c in window.coefficients.items() if v is not lane.var}
        reach: DimLike = 0
        offset: Expr = const(0)
        for v, c in others.items():
            reach = add(reach, mul(c, add(extents[v], -1)))
            offset = offset + v * c
        if not step:
            shape.append(add(reach, 1))
            fill_at.append(window.var)
            source.append(window.var + window.rest)
            read.append(offset)
            continue
        lanes = mul(ceildiv(lane.extent, width), width)
        place = Var("v")
        if step > 1:
            phase = Var("p")
            shape.append(step)
            fill_at.append(phase)
            read.append(binary(BinOp.MOD, offset, const(step)))
            position: Expr = place * step + phase
        else:
            position = place
        shape.append(add(lanes, ceildiv(reach, step)))
        fill_at.append(place)
        source.append(position + window.rest)
        read.append(lane.var + binary(BinOp.FLOORDIV, offset, const(step)))
        within = source[-1] < as_expr(load.buffer.shape[d])
        guard = within if inside is None else inside & within
        inside = map_expr(guard, lambda e, w=window.var, p=position: p if e is w else e)  # type: ignore[misc]  # bound per dimension
    buffer = Buffer("staged", tuple(shape), load.dtype)
    assert inside is not None  # the lane dimension always adds a guard
    value = Select(inside, Load(load.buffer, tuple(source)), identity(Combine.SUM, load.dtype))
    fill = Block(
        "stage", tuple(Axis(v, e) for v, e in zip(fill_at, shape, strict=True)), Store(buffer, tuple(fill_at), value)
    )
    return Staged(buffer, fill, Load(buffer, tuple(read)))
