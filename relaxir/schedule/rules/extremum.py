"""Where the extremum of contiguous rows is, in one pass: lanes keep their best elements and where these were."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from relaxir.schedule.loops import Machine, parallel, seq
from relaxir.schedule.program import Program
from relaxir.schedule.stage_nest import choose_lane
from relaxir.support.dtypes import info
from relaxir.tir import (
    Alloc,
    Axis,
    AxisKind,
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
    Let,
    Load,
    Scope,
    Select,
    Stmt,
    Store,
    Var,
    alike,
    as_expr,
    binary,
    call,
    cast,
    const,
    eq,
    identity,
    select,
)
from relaxir.tir.visit import buffers_of, substitute_vars

COPIES = 4  # vectors side by side, so that none waits for the one before
SHORT = 16  # elements up to which one after the other is fastest


@dataclass(frozen=True, slots=True)
class Places:
    """For each point of ``rows``: ``found`` gets the place along ``axis`` of the extremum of ``value``.

    ``last`` of equal ones the last counts, else the first.
    """

    rows: tuple[Axis, ...]
    axis: Axis
    value: Expr
    best: Store
    found: Store
    never: Const
    last: bool

    def at(self, place: Expr) -> Expr:
        """Element at a place."""
        return substitute_vars(self.value, {self.axis.var: place})

    def beats(self, a: Expr, b: Expr) -> Expr:
        """Whether ``a``, which comes later than ``b``, takes its place; NaN never does."""
        larger = self.best.combine is Combine.MAX
        if self.last:
            return a >= b if larger else a <= b
        return a > b if larger else a < b

    def note(self, found: Expr, place: Expr) -> Store:
        """Count a place where ``found`` holds."""
        return Store(self.found.buffer, self.found.indices, select(found, place, self.never), self.found.combine)


@dataclass(frozen=True, slots=True)
class ExtremumRule:
    """The extremum of rows, then the first or last place that holds it, as one loop over the rows.

    before: ``m = max over k of x[i, k]``, ``y[i] = min over k of (k where x[i, k] is m)``; after, per row::

        vector j < 64: best[j] = -inf; block[j] = 0
        for b < n // 64: vector j < 64: if x[i, b*64+j] > best[j]: best[j] = x[i, b*64+j]; block[j] = b
        m = max of best; y[i] = min of (block[j]*64 + j where best[j] is m); the rest of the row
    """

    name: str = "extremum"

    def take(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> tuple[Stmt, int] | None:
        """Schedule the first two stages if they are an extremum and its place in contiguous rows."""
        if len(stages) < 2:
            return None
        places = _places(stages[0], stages[1])
        if places is None or any(places.best.buffer in buffers_of(s) for s in stages[2:]):
            return None
        if places.best.buffer in program.params:
            return None
        return parallel(places.rows, _row(places, machine), machine), 2


def _places(first: Stmt, second: Stmt) -> Places | None:
    """Read two stages as an extremum and a search for it, or None."""
    if not isinstance(first, Block) or not isinstance(second, Block):
        return None
    if not second.axes or len(first.axes) != len(second.axes):
        return None
    best, found, start = first.body, second.body, second.init
    if not isinstance(best, Store) or not isinstance(found, Store) or not isinstance(start, Store):
        return None
    *rows, axis = second.axes
    if axis.kind is not AxisKind.REDUCE or any(a.kind is AxisKind.REDUCE for a in rows):
        return None
    if best.combine not in (Combine.MAX, Combine.MIN) or choose_lane(first, first.axes) is not first.axes[-1]:
        return None
    value = substitute_vars(best.value, {a.var: b.var for a, b in zip(first.axes, second.axes, strict=True)})
    top = Load(best.buffer, tuple(a.var for a in rows))
    choice, never = found.value, start.value
    if not isinstance(choice, Select) or not isinstance(never, Const) or choice.other != never:
        return None
    same = choice.cond == alike(value, top) and choice.then is axis.var
    ends = {Combine.MIN: np.iinfo(np.int64).max, Combine.MAX: -1}
    if not same or found.combine is None or ends.get(found.combine) != never.value:
        return None
    return Places(tuple(rows), axis, value, best, found, never, found.combine is Combine.MAX)


def _row(places: Places, machine: Machine) -> Stmt:
    """One row, by its length."""
    lanes = COPIES * machine.target.lanes(places.value.dtype)
    size = as_expr(places.axis.extent)
    short, middle, long = _one_by_one(places), _twice(places), _by_lanes(places, lanes)
    if isinstance(size, Const):
        return long if size.value >= 2 * lanes else middle
    return If(size >= const(2 * lanes), long, If(size <= const(SHORT), short, middle))


def _cell(name: str, dtype: str) -> Buffer:
    return Buffer(name, (), dtype, Scope.STACK)


def _one_by_one(places: Places) -> Stmt:
    k, best = places.axis.var, _cell("best", places.value.dtype)
    v = Var("v", places.value.dtype)
    y, start = places.found, identity(_how(places), best.dtype)
    first = eq(k, const(0))
    wins = binary(BinOp.OR, first, places.beats(v, best[()]))
    if info(best.dtype).is_float:
        odd, before = call(Intrinsic.ISNAN, v), call(Intrinsic.ISNAN, best[()])
        keeps = const(False, "bool") if places.last else before
        wins = binary(BinOp.OR, wins, binary(BinOp.AND, odd, call(Intrinsic.NOT, keeps)))
    step = seq(
        Store(y.buffer, y.indices, select(wins, k, Load(y.buffer, y.indices))),
        Store(best, (), select(wins, v, best[()])),
    )
    walk = For(k, as_expr(places.axis.extent), Let(v, places.value, step))
    return Alloc(best, seq(Store(best, (), start), Store(y.buffer, y.indices, places.never), walk))


def _how(places: Places) -> Combine:
    assert places.best.combine is not None  # `_places` looked
    return places.best.combine


def _twice(places: Places) -> Stmt:
    """Both reductions, one after the other."""
    top, y, k = _cell("top", places.value.dtype), places.found, places.axis.var

    def lanes(body: Store) -> Stmt:
        return For(k, as_expr(places.axis.extent), body, ForKind.VECTOR)

    return Alloc(
        top,
        seq(
            Store(top, (), identity(_how(places), top.dtype)),
            lanes(Store(top, (), places.value, _how(places))),
            Store(y.buffer, y.indices, places.never),
            lanes(places.note(alike(places.value, top[()]), k)),
        ),
    )


def _by_lanes(places: Places, lanes: int) -> Stmt:
    dtype, how, y, size = places.value.dtype, _how(places), places.found, as_expr(places.axis.extent)
    names = (("best", dtype), ("block", "int32"), ("odd", dtype))
    best, block, odd = (Buffer(name, (lanes,), kind, Scope.REGISTER) for name, kind in names)
    top, b, j, v = _cell("top", dtype), Var("b"), Var("j"), Var("v", dtype)
    start, done = identity(how, dtype), size // lanes * lanes

    def over(extent: Expr, body: Stmt) -> Stmt:
        return For(j, extent, body, ForKind.VECTOR)

    wide = const(lanes)
    wins = places.beats(v, best[j])
    keep = seq(
        Store(block, (j,), select(wins, cast(b, "int32"), block[j])),
        Store(best, (j,), select(wins, v, best[j])),
        Store(odd, (j,), select(call(Intrinsic.ISNAN, v), v, odd[j])) if info(dtype).is_float else None,
    )
    clear = seq(Store(best, (j,), start), Store(block, (j,), const(0, "int32")), Store(odd, (j,), start))
    # a register buffer is read in vectors of one width: places are wider, so they come from memory
    bests, blocks = (Buffer(b.name, b.shape, b.dtype, Scope.STACK) for b in (best, block))
    place = cast(blocks[j], "int64") * wide + j
    search = seq(
        over(wide, seq(Store(bests, (j,), best[j]), Store(blocks, (j,), block[j]))),
        over(wide, places.note(eq(bests[j], top[()]), place)),
        over(size - done, places.note(eq(places.at(done + j), top[()]), done + j)),
    )
    if info(dtype).is_float:
        nan = over(size, places.note(call(Intrinsic.ISNAN, places.at(j)), j))
        search = If(call(Intrinsic.ISNAN, top[()]), nan, search)
    body = seq(
        over(wide, clear),
        For(b, size // lanes, over(wide, Let(v, places.at(b * wide + j), keep))),
        Store(top, (), start),
        over(wide, Store(top, (), best[j], how)),
        over(wide, Store(top, (), odd[j], how)),
        over(size - done, Store(top, (), places.at(done + j), how)),
        Store(y.buffer, y.indices, places.never),
        search,
    )
    for buffer in (best, block, odd, bests, blocks, top):
        body = Alloc(buffer, body)
    return body
