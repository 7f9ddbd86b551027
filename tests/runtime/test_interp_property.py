"""Random programs: all iterations at once gives what one element at a time gives, also in small chunks."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from relaxir.runtime.interp import program, run_prim_func, stores
from relaxir.sym import dim
from relaxir.tir import (
    Alloc,
    Axis,
    AxisKind,
    BinOp,
    Block,
    Buffer,
    Combine,
    For,
    ForKind,
    If,
    Let,
    PrimFunc,
    Scope,
    Seq,
    Store,
    Switch,
    Var,
    binary,
    const,
    select,
)
from tests.runtime.slow import run_slowly

SIZE = 64
X, Y, Z = (Buffer(name, (SIZE,), "int64") for name in "xyz")
GRID = Buffer("g", (8, SIZE), "int64")


@dataclass(frozen=True)
class Bounded:
    """A variable in scope with its largest value."""

    var: Var
    top: int


@st.composite
def linear(draw, scope):
    """A linear index and its largest value."""
    index, top = const(start := draw(st.integers(0, 3))), 0
    for item in scope:
        step = draw(st.sampled_from((0, 0, 1, 1, 2, 4)))
        index, top = index + item.var * step, top + item.top * step
    return index, top + start


@st.composite
def indices(draw, scope, width=SIZE):
    """An index below ``width``: linear, or wrapped around, or loaded."""
    index, top = draw(linear(scope))
    kind = draw(st.sampled_from(("linear", "linear", "linear", "linear", "wrapped", "loaded", "quotient")))
    if kind == "wrapped":
        index = index % draw(st.integers(1, 5))
    elif kind == "quotient":
        index = index // draw(st.integers(1, 5))
    elif kind == "loaded":
        return X[index % SIZE] % min(7, width)
    return index if top < width else index % width


@st.composite
def values(draw, scope, cells, depth=2):
    """An int64 expression."""
    kind = draw(st.sampled_from(("load", "load", "const", "var", "cell", "op", "op", "select")))
    if kind == "var" and scope:
        return draw(st.sampled_from(scope)).var
    if kind == "cell" and cells:
        return draw(st.sampled_from(cells))[()]
    if kind == "op" and depth:
        op = draw(st.sampled_from((BinOp.ADD, BinOp.SUB, BinOp.MUL, BinOp.MIN, BinOp.MAX)))
        return binary(op, draw(values(scope, cells, depth - 1)), draw(values(scope, cells, depth - 1)))
    if kind == "select" and depth:
        parts = [draw(values(scope, cells, depth - 1)) for _ in range(4)]
        return select(parts[0] < parts[1], parts[2], parts[3])
    if kind == "const":
        return const(draw(st.integers(-3, 3)))
    if draw(st.booleans()):
        return GRID[draw(indices(scope, 8)), draw(indices(scope))]
    return draw(st.sampled_from((X, Y, Z)))[draw(indices(scope))]


@st.composite
def stores_(draw, scope, cells):
    """A store into a buffer or cell."""
    combine = draw(st.sampled_from((None, None, Combine.SUM, Combine.SUM, Combine.MAX, Combine.PROD)))
    value = draw(values(scope, cells))
    if cells and draw(st.booleans()):
        return Store(draw(st.sampled_from(cells)), (), value, combine)
    if draw(st.booleans()):
        return Store(GRID, (draw(indices(scope, 8)), draw(indices(scope))), value, combine)
    return Store(draw(st.sampled_from((Y, Z))), (draw(indices(scope)),), value, combine)


@st.composite
def statements(draw, scope=(), cells=(), depth=4):
    """Any statement of kernels but Assert and While."""
    kinds = ("store", "seq", "for", "for", "for", "let", "alloc", "if", "switch", "reduce") if depth else ("store",)
    kind = draw(st.sampled_from(kinds))
    if kind == "seq":
        return Seq(tuple(draw(statements(scope, cells, depth - 1)) for _ in range(draw(st.integers(1, 3)))))
    if kind == "for":
        var, extent = Var(f"i{depth}"), const(draw(st.integers(0, 4)))
        if scope and draw(st.integers(0, 3)) == 0:
            extent = binary(BinOp.MIN, draw(st.sampled_from(scope)).var + draw(st.integers(0, 2)), const(4))
        kind = draw(st.sampled_from((ForKind.SERIAL, ForKind.UNROLL)))
        return For(var, extent, draw(statements((*scope, Bounded(var, 3)), cells, depth - 1)), kind)
    if kind == "let":
        var = Var(f"t{depth}")
        value, top = draw(linear(scope)) if draw(st.booleans()) else (draw(values(scope, cells)) % 5, 4)
        return Let(var, value, draw(statements((*scope, Bounded(var, top)), cells, depth - 1)))
    if kind == "alloc":
        cell = Buffer(f"c{depth}", (), "int64", Scope.STACK)
        start = Store(cell, (), draw(values(scope, cells)))
        return Alloc(cell, Seq((start, draw(statements(scope, (*cells, cell), depth - 1)))))
    if kind == "if":
        cond = draw(values(scope, cells)) < draw(values(scope, cells))
        other = draw(statements(scope, cells, depth - 1)) if draw(st.booleans()) else None
        return If(cond, draw(statements(scope, cells, depth - 1)), other)
    if kind == "switch":
        return Switch(draw(values(scope, cells)), dim("r"), -1, 3, draw(statements(scope, cells, depth - 1)))
    if kind == "reduce":
        # promises are kept: the target is indexed by the spatial axis alone and not read
        target, over = Var(f"s{depth}"), Var(f"r{depth}")
        a, b = (draw(st.sampled_from((X, X, GRID))) for _ in range(2))
        inner = (*scope, Bounded(target, 4), Bounded(over, 4))
        sides = [buffer[tuple(draw(indices(inner, d)) for d in buffer.shape)] for buffer in (a, b)]
        axes = (Axis(target, draw(st.integers(0, 5))), Axis(over, draw(st.integers(0, 5)), AxisKind.REDUCE))
        value = sides[0] * sides[1] if draw(st.booleans()) else sides[0] - sides[1]
        body = Store(Z, (target,), value, draw(st.sampled_from((Combine.SUM, Combine.MIN))))
        return Block("b", axes, body, Store(Z, (target,), const(1)) if draw(st.booleans()) else None)
    return draw(stores_(scope, cells))


@st.composite
def programs(draw):
    """A loop nest around a few statements whose accesses are mostly private to the iteration."""
    i, j = Var("i"), Var("j")
    scope = (Bounded(i, 3), Bounded(j, 3))
    cell = Buffer("c", (), "int64", Scope.STACK)
    own = (draw(st.sampled_from((i, i, i + 1, j))), j + draw(st.sampled_from((i * 4, i * 4, i * 3, const(1)))))
    parts = []
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.integers(0, 4))
        value = draw(values(scope, (cell,))) if kind < 2 else GRID[own] + draw(values(scope, (cell,), 0))
        combine = draw(st.sampled_from((None, None, Combine.SUM, Combine.MIN)))
        step = Store(GRID, own, value, combine) if kind < 4 else draw(statements(scope, (cell,), 2))
        parts.append(step if draw(st.booleans()) else If(i < draw(st.integers(0, 4)), step))
    start = Store(cell, (), draw(values(scope, ())))
    inner = For(j, const(draw(st.integers(1, 4))), Alloc(cell, Seq((start, *parts))))
    return Seq((draw(statements(depth=1)), For(i, const(draw(st.integers(1, 4))), inner), draw(statements(depth=2))))


@pytest.mark.parametrize("limit", [stores.LIMIT, 7])
@given(body=st.one_of(statements(), programs(), programs()), seed=st.integers(0, 99))
def test_same_as_one_element_at_a_time(limit, body, seed):
    rng = np.random.default_rng(seed)
    start = [rng.integers(-9, 9, (SIZE,)) for _ in range(3)] + [rng.integers(-9, 9, (8, SIZE))]
    func = PrimFunc((X, Y, Z, GRID), body)
    want = [a.copy() for a in start]
    run_slowly(func, want, {})
    got = [a.copy() for a in start]
    known = program.LIMIT, stores.LIMIT
    try:
        program.LIMIT = stores.LIMIT = limit
        run_prim_func(func, got, {})
    finally:
        program.LIMIT, stores.LIMIT = known
    for g, w in zip(got, want, strict=True):
        np.testing.assert_array_equal(g, w)
