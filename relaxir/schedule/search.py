"""Searches: reductions that ask for the first (or last) place where something holds; the rest need not be looked at."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import numpy as np

from relaxir.tir import (
    Alloc,
    Axis,
    BinOp,
    Block,
    Buffer,
    Combine,
    Const,
    Expr,
    For,
    ForKind,
    If,
    Intrinsic,
    Scope,
    Select,
    Seq,
    Stmt,
    Store,
    Var,
    While,
    as_expr,
    binary,
    call,
    const,
    maximum,
    minimum,
    select,
)
from relaxir.tir.visit import substitute_vars

BLOCK: Final = 128
"""Elements looked at together."""


@dataclass(frozen=True, slots=True)
class Search:
    """The place along ``axis`` where ``cond`` holds: the first, or the ``last``; ``store`` takes the extreme of all."""

    axis: Axis
    cond: Expr
    store: Store
    last: bool


def searching(block: Block, axis: Axis) -> Search | None:
    """Read a reduction over one axis as a search, or None.

    The form is ``y = never; y min= select(cond, k, never)`` where ``never`` is above all places, or ``max`` and below.
    """
    store, init = block.body, block.init
    if not isinstance(store, Store) or not isinstance(init, Store) or not isinstance(store.value, Select):
        return None
    value = store.value
    if value.then is not axis.var or not isinstance(value.other, Const) or init.value != value.other:
        return None
    never = value.other.value
    if store.combine is Combine.MIN and never == np.iinfo(np.int64).max:
        return Search(axis, value.cond, store, False)
    return Search(axis, value.cond, store, True) if store.combine is Combine.MAX and never == -1 else None


def search_loop(search: Search, plain: Stmt) -> Stmt:
    """Look at a block of elements at a time until one holds; ``plain`` does rows of up to two blocks.

    before: ``vector k < n: y min= select(cond(k), k, never)``; after::

        at = 0; hit = false; while at < n and not hit: vector j < min(128, n - at): hit |= cond(at + j)
                                                       at += 0 if hit else 128
        if hit: vector j < min(128, n - at): y min= select(cond(at + j), at + j, never)

    and from the end backwards for the last place.
    """
    k, size = search.axis.var, as_expr(search.axis.extent)
    at, hit = Buffer("at", (), "int64", Scope.STACK), Buffer("hit", (), "bool", Scope.STACK)
    rest = at[()] if search.last else size - at[()]
    width = minimum(rest, const(BLOCK))
    first = at[()] - width if search.last else at[()]
    j = Var(k.name)

    def lanes(body: Store) -> Stmt:
        return For(j, width, substitute_vars(body, {k: first + j}), ForKind.VECTOR)

    step = const(-BLOCK if search.last else BLOCK)
    moved_on = maximum(at[()] + step, const(0)) if search.last else at[()] + step
    more = binary(BinOp.AND, rest > const(0), call(Intrinsic.NOT, hit[()]))
    look = Seq((lanes(Store(hit, (), search.cond, Combine.OR)), Store(at, (), select(hit[()], at[()], moved_on))))
    whole = Seq(
        (
            Store(at, (), size if search.last else const(0)),
            Store(hit, (), const(False, "bool")),
            While(more, look),
            If(hit[()], lanes(search.store)),
        )
    )
    long = Alloc(at, Alloc(hit, whole))
    if isinstance(size, Const):
        return long if size.value > 2 * BLOCK else plain
    return If(size > const(2 * BLOCK), long, plain)
