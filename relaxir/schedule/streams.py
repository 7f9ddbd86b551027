"""Few rows times a matrix whose rows are contiguous: whole rows of the matrix stream by, sums stay in the first cache.

before: ``c[i, j] = sum over k of a[i, k] * b[k, j]``;
after: ``for block of 512 j: for eight k: vector j: sums[j] += a[i, k] * b[k, j] + a[i, k+1] * b[k+1, j] + ...``

A register tile would read a few vectors of each row of the matrix and jump to the next row: short pieces that no
hardware stream follows, in the worst case (rows a power of two apart) all in the same places of the cache.
"""

from __future__ import annotations

import operator
from functools import reduce

from relaxir.schedule.loops import Machine, loop, nest, parallel, seq
from relaxir.schedule.roles import Roles
from relaxir.schedule.tile import Epilogue, finish_element, hoisted
from relaxir.schedule.variants import Range
from relaxir.sym import ceildiv, floordiv, is_const, mod
from relaxir.tir import (
    Alloc,
    Axis,
    Buffer,
    Combine,
    Expr,
    For,
    ForKind,
    Let,
    Scope,
    Stmt,
    Store,
    Var,
    as_expr,
    const,
    identity,
    minimum,
)
from relaxir.tir.access import loads_of, stride, variables_of
from relaxir.tir.visit import substitute_vars

FEW_ROWS = 2  # rows of the result; more use each vector of the matrix often enough in a tile
WIDE = 256  # columns from which rows of the matrix are worth streaming
BLOCK = 512  # columns whose sums stay in the first-level cache beside the streams
STREAMS = 8  # rows of the matrix that are read side by side


def stream_ranges(roles: Roles) -> tuple[Range, ...] | None:
    """For which extents rows should stream by; None where the vector factor has no contiguous lanes as it lies."""
    plain = not (roles.packed or roles.on_the_fly or roles.padded) and roles.tail is None
    lane = roles.lane.var
    contiguous = all(stride(load, lane) == 1 for load in loads_of(roles.vector))
    if not plain or not contiguous or lane in variables_of(roles.scalar):
        return None
    rows = roles.row.extent if roles.row is not None else 1
    return Range(rows, high=FEW_ROWS), Range(roles.lane.extent, WIDE)


def schedule_streams(roles: Roles, epilogue: Epilogue, machine: Machine) -> Stmt:
    """Make the loops; rows of the result are independent, each streams the matrix."""
    lane, dtype = roles.lane, epilogue.values[0][0].dtype
    sums, block, first = Buffer("sums", (BLOCK,), dtype, Scope.STACK), Var("block"), Var("first")
    exact = is_const(lane.extent) and int(lane.extent) % BLOCK == 0
    size: Expr = const(BLOCK) if exact else minimum(as_expr(lane.extent) - first, const(BLOCK))
    count = Var("count")

    def lanes(body: Stmt, j: Var) -> Stmt:
        return hoisted(For(j, count, substitute_vars(body, {lane.var: first + j}), ForKind.VECTOR))

    def step(ks: list[Expr]) -> Stmt:
        j = Var("j")
        products = [substitute_vars(roles.product(roles.scalar, roles.vector), {inner.var: k}) for k in ks]
        return lanes(Store(sums, (j,), reduce(operator.add, products), Combine.SUM), j)

    *outer, inner = roles.reduce
    k, t, j, last = Var(inner.var.name), Var(inner.var.name), Var("j"), Var("j")
    whole, rest = floordiv(inner.extent, STREAMS), mod(inner.extent, STREAMS)
    main = loop(k, whole, step([k * STREAMS + n for n in range(STREAMS)]))
    left = None if rest == 0 else loop(t, rest, step([as_expr(whole) * STREAMS + t]))
    clear = lanes(Store(sums, (j,), identity(Combine.SUM, dtype)), j)
    finish = lanes(finish_element(epilogue, sums[last], lambda e: e), last)
    body: Stmt = Alloc(sums, seq(clear, nest(outer, seq(main, left)), finish))
    body = Let(first, block * BLOCK, Let(count, size, body))
    rows = (roles.row,) if roles.row is not None else ()
    blocks = Axis(block, ceildiv(lane.extent, BLOCK))
    return parallel((*roles.outer, *rows, blocks), body, machine)
