"""A register tile over a reduced axis of any length, for rules that write their loops themselves.

The rows and lanes are constants of the tile, the length of the sum is any expression: part of an axis, for example.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from relaxir.schedule.loops import loop, seq
from relaxir.sym import DimLike
from relaxir.tir import (
    Alloc,
    Binary,
    BinOp,
    Buffer,
    Combine,
    Expr,
    For,
    ForKind,
    Scope,
    Stmt,
    Store,
    Var,
    as_expr,
    binary,
    const,
    identity,
)

Factor = Callable[[Expr, Expr], Expr]


@dataclass(frozen=True, slots=True)
class Micro:
    """``sum over k < depth of scalar(row, k) * vector(k, lane)`` for some rows and lanes.

    Attributes:
        scalar: the factor of a row and step, the same for all lanes.
        vector: the factor of a step and lane, the same for all rows; contiguous along lanes.
        depth: steps.
        lanes: how many lanes, a multiple of a vector.
        dtype: of the sums.
        finish: what to do with a sum, given its row, its lane and its value.
        unroll: steps per iteration.

    """

    scalar: Factor
    vector: Factor
    depth: Expr
    lanes: int
    dtype: str
    finish: Callable[[Expr, Expr, Expr], Stmt]
    unroll: int = 4


def micro_tile(spec: Micro, rows: DimLike, sets: int) -> Stmt:
    """Make the tile for a number of rows (an int, or a symbol bound by a `Switch`) with ``sets`` sums per element."""
    sets = min(sets, spec.unroll)
    acc = Buffer("acc", (sets, rows, spec.lanes), spec.dtype, Scope.REGISTER)
    s, i, j = Var("s"), Var("i"), Var("j")
    zero = _lanes(spec, j, Store(acc, (s, i, j), identity(Combine.SUM, spec.dtype)))
    clear = loop(s, sets, loop(i, rows, zero, ForKind.UNROLL), ForKind.UNROLL)
    whole = binary(BinOp.FLOORDIV, spec.depth, const(spec.unroll))
    k, t = Var("k"), Var("k")
    steps = [_step(spec, acc, rows, n % sets, k * spec.unroll + n) for n in range(spec.unroll)]
    rest = _step(spec, acc, rows, 0, whole * spec.unroll + t)
    body = seq(loop(k, whole, seq(*steps)), loop(t, Binary(BinOp.MOD, spec.depth, const(spec.unroll)), rest))
    i, j = Var("i"), Var("j")
    total: Expr = acc[const(0), i, j]
    for n in range(1, sets):
        total = total + acc[const(n), i, j]
    last = loop(i, rows, _lanes(spec, j, spec.finish(i, j, total)), ForKind.UNROLL)
    return Alloc(acc, seq(clear, body, last))


def _lanes(spec: Micro, var: Var, body: Stmt) -> Stmt:
    return For(var, const(spec.lanes), body, ForKind.VECTOR)


def _step(spec: Micro, acc: Buffer, rows: DimLike, number: int, k: Expr) -> Stmt:
    i, j, lane = Var("i"), Var("j"), Var("j")
    value = spec.vector(k, lane)
    held = Buffer("column", (spec.lanes,), value.dtype, Scope.REGISTER)
    product = spec.scalar(i, k) * held[j]
    add = _lanes(spec, j, Store(acc, (const(number), i, j), product, Combine.SUM))
    load = _lanes(spec, lane, Store(held, (lane,), value))
    return Alloc(held, seq(load, loop(i, rows, add, ForKind.UNROLL)))


def even_share(index: Expr, total: Expr, parts: Expr) -> tuple[Expr, Expr]:
    """First element and end of one of ``parts`` even shares of ``total`` elements."""
    begin = binary(BinOp.FLOORDIV, index * total, parts)
    return begin, binary(BinOp.FLOORDIV, (index + 1) * total, parts)


def ceil_parts(total: Expr, most: int) -> Expr:
    """How many shares of at most ``most`` elements there are."""
    return binary(BinOp.FLOORDIV, as_expr(total) + (most - 1), const(most))
