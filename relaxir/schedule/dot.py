"""Contractions whose factors are both contiguous along the reduced axis: several dot products side by side.

before: ``c[i, j] = sum over k of a[i, k] * b[j, k]``;
after: ``for i, for four j: vector k: s0 += a[i, k] * b[j, k]; s1 += a[i, k] * b[j+1, k]; ...``
"""

from __future__ import annotations

from collections.abc import Callable

from relaxir.schedule.loops import Machine, nest, parallel, seq, vector
from relaxir.schedule.roles import Roles
from relaxir.schedule.tile import Epilogue, finish_element
from relaxir.sym import ceildiv, is_const
from relaxir.tir import (
    Alloc,
    Axis,
    Buffer,
    Combine,
    Expr,
    If,
    Scope,
    Stmt,
    Store,
    Var,
    as_expr,
    identity,
    minimum,
)
from relaxir.tir.visit import map_expr

SIDE = 4  # dot products side by side: their partial sums hide the latency of the multiply-add


def schedule_dot(roles: Roles, epilogue: Epilogue, machine: Machine) -> Stmt:
    """Make dot products of one row with four columns at a time; a partial group repeats the last column unstored."""
    lane = roles.lane
    group = Axis(Var("group"), ceildiv(lane.extent, SIDE))
    place = epilogue.values[0][0]
    cells = tuple(Buffer(f"sum{n}", (), place.dtype, Scope.STACK) for n in range(SIDE))
    exact = is_const(lane.extent) and int(lane.extent) % SIDE == 0
    last = as_expr(lane.extent) - 1
    columns = [group.var * SIDE + n if exact else minimum(group.var * SIDE + n, last) for n in range(SIDE)]
    clear = [Store(c, (), identity(Combine.SUM, place.dtype)) for c in cells]
    sums = [
        Store(c, (), roles.scalar * _moving(lane.var, at)(roles.vector), Combine.SUM)
        for c, at in zip(cells, columns, strict=True)
    ]
    finish: list[Stmt] = []
    for n, (cell, at) in enumerate(zip(cells, columns, strict=True)):
        done = finish_element(epilogue, cell[()], _moving(lane.var, at))
        finish.append(done if exact or n == 0 else If(group.var * SIDE + n < as_expr(lane.extent), done))
    *outer, inner = roles.reduce
    body = seq(*clear, nest(outer, vector(inner, seq(*sums))), *finish)
    for cell in cells:
        body = Alloc(cell, body)
    rows = (roles.row,) if roles.row is not None else ()
    return parallel((*roles.outer, *rows, group), body, machine)


def _moving(lane: Var, at: Expr) -> Callable[[Expr], Expr]:
    """What puts an expression of one lane at another place."""
    return lambda expr: map_expr(expr, lambda e: at if e is lane else e)
