"""Stable merge sort of rows as a kernel stage, and the order it sorts by."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ops.common import compute_dtype
from relaxir.ops.kernels import assign, cell, loop, scoped, seq, when
from relaxir.support.dtypes import info
from relaxir.sym import DimLike
from relaxir.tir import (
    Buffer,
    Expr,
    If,
    Intrinsic,
    ProgramBuilder,
    Stmt,
    Store,
    While,
    as_expr,
    call,
    cast,
    minimum,
)

Compare = Callable[[tuple[Expr, ...], Expr, Expr, Buffer], Stmt]
"""(row, a, b, flag): set ``flag`` (a bool cell) to whether element ``a`` of the row comes strictly before ``b``."""


def precedes(a: Expr, b: Expr, descending: bool = False) -> Expr:
    """Whether ``a`` comes strictly before ``b``; NaN counts as larger than all numbers and equal to NaN."""
    if a.dtype == "bool":
        a, b = cast(a, "uint8"), cast(b, "uint8")
    wide = compute_dtype(a.dtype)
    a, b = cast(a, wide), cast(b, wide)
    small, large = (b, a) if descending else (a, b)
    if not info(wide).is_float:
        return small < large
    number = call(Intrinsic.NOT, call(Intrinsic.ISNAN, small))
    return (small < large) | (number & call(Intrinsic.ISNAN, large))


def merge_sort(f: ProgramBuilder, rows: Sequence[DimLike], extent: DimLike, compare: Compare) -> Buffer:
    """Add a stage that sorts each row; gives the positions in order, of shape ``(*rows, extent)``.

    Bottom-up merge sort: O(n log n) comparisons, stable, two rows of int64 workspace.
    """
    order = f.temp("order", (*rows, extent), "int64")
    spare = f.temp("spare", (*rows, extent), "int64")
    size = as_expr(extent)

    def sort(*row: Expr) -> Stmt:
        width, left, right, flag = cell("width"), cell("left"), cell("right"), cell("flag", "bool")

        def take(source: Buffer, at: Expr) -> Stmt:
            return seq(Store(spare, (*row, at), order.at((*row, source[()]))), assign(source, source[()] + 1))

        def merge(pair: Expr) -> Stmt:
            low = pair * (width[()] * 2)
            middle, high = minimum(low + width[()], size), minimum(low + width[()] * 2, size)

            def step(n: Expr) -> Stmt:
                both = (left[()] < middle) & (right[()] < high)
                ahead = compare(row, order.at((*row, right[()])), order.at((*row, left[()])), flag)
                return seq(
                    assign(flag, left[()] >= middle),
                    when(both, ahead),
                    If(flag[()], take(right, low + n), take(left, low + n)),
                )

            return seq(assign(left, low), assign(right, middle), loop("n", high - low, step))

        pairs = (size + width[()] * 2 - 1) // (width[()] * 2)
        back = loop("m", extent, lambda m: Store(order, (*row, m), spare.at((*row, m))))
        return scoped(
            (width, left, right, flag),
            loop("i", extent, lambda i: Store(order, (*row, i), i)),
            assign(width, 1),
            While(width[()] < size, seq(loop("pair", pairs, merge), back, assign(width, width[()] * 2))),
        )

    f.block("sort", rows, sort)
    return order


def sorted_positions(x: Array, axis: int, descending: bool = False) -> Array:
    """Stable order of an array along an axis, NaN largest: what `merge_sort` computes."""
    if not descending:
        return np.argsort(x, axis, kind="stable")
    flipped = np.argsort(np.flip(x, axis), axis, kind="stable")
    return np.asarray(x.shape[axis] - 1 - np.flip(flipped, axis))
