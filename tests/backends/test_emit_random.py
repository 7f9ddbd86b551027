"""Random scalar programs: the same nest as vector lanes, serial loop and parallel loop, against the interpreter."""

from __future__ import annotations

import numpy as np
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from relaxir.runtime.interp import run_prim_func
from relaxir.sym import dim
from relaxir.tir import (
    Bcast,
    Binary,
    BinOp,
    Buffer,
    Combine,
    Expr,
    For,
    ForKind,
    If,
    Let,
    PrimFunc,
    Select,
    Seq,
    Size,
    Store,
    Var,
    as_expr,
    binary,
    cast,
    const,
)
from tests.backends.emit_harness import Jit

n, m, b = dim("n"), dim("m"), dim("b")
X, Y = Buffer("x", (n, m), "float32"), Buffer("y", (n, m), "float32")
B, K = Buffer("b", (b,), "float32"), Buffer("k", (m,), "int64")
ROW, COL = Var("i"), Var("j")


@st.composite
def indices(draw: st.DrawFn) -> Expr:
    """An index into an axis of m elements, in range for every i and j."""
    kind = draw(st.integers(0, 6))
    return [
        COL,
        Size(m) - 1 - COL,
        (COL // 3) * 3 + COL % 3,
        K[COL],
        binary(BinOp.MIN, COL * 2, Size(m) - 1),
        binary(BinOp.MOD, COL + ROW, Size(m)),
        binary(BinOp.MAX, COL - 2, const(0)),
    ][kind]


@st.composite
def values(draw: st.DrawFn, depth: int = 3) -> Expr:
    """A float32 expression over the loads of one iteration."""
    kind = draw(st.integers(0, 3 if depth == 0 else 9))
    if kind == 0:
        return X[ROW, draw(indices())]
    if kind == 1:
        return B[Bcast(COL, b)]
    if kind == 2:
        return cast(draw(indices()) + ROW * 7, "float32")
    if kind == 3:
        return const(draw(st.sampled_from([0.5, -2.0, 3.0])), "float32")
    left, right = draw(values(depth - 1)), draw(values(depth - 1))
    if kind == 4:
        guard = binary(BinOp.LT, COL + draw(st.integers(-1, 2)), Size(m) - 2)
        return Select(binary(BinOp.AND, guard, as_expr(COL) >= 1), X[ROW, COL + 1] - X[ROW, COL - 1], left)
    if kind == 5:
        return Select(left > right, right, left)
    op = draw(st.sampled_from([BinOp.ADD, BinOp.SUB, BinOp.MUL, BinOp.MIN, BinOp.MAX]))
    return Binary(op, left, right)


@st.composite
def bodies(draw: st.DrawFn) -> object:
    """A statement for one (i, j), as a function of nothing (it names ROW and COL)."""
    first, second, t = draw(values()), draw(values()), Var("t", "float32")
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return Store(Y, (ROW, COL), first)
    if kind == 1:
        return Let(t, first, Store(Y, (ROW, COL), t * 2.0 + t))
    if kind == 2:
        return If(first > 0.0, Store(Y, (ROW, COL), second), Store(Y, (ROW, COL), first))
    return Seq((Store(Y, (ROW, COL), first), If(X[ROW, COL] > 0.0, Store(Y, (ROW, COL), second, Combine.SUM))))


def program(body: object, kinds: tuple[ForKind, ForKind]) -> PrimFunc:
    return PrimFunc((X, B, K, Y), For(ROW, Size(n), For(COL, Size(m), body, kinds[1]), kinds[0]), (b, m, n), 1)


@settings(max_examples=12, phases=(Phase.explicit, Phase.generate))
@given(bodies(), st.sampled_from(["native", "x86-64-v3", "x86-64-v2"]), st.integers(0, 2**32 - 1))
def test_against_the_interpreter(body, target, seed):
    forms = {
        "vector": (ForKind.SERIAL, ForKind.VECTOR),
        "serial": (ForKind.SERIAL, ForKind.SERIAL),
        "parallel": (ForKind.PARALLEL, ForKind.VECTOR),
    }
    funcs = {name: program(body, kinds) for name, kinds in forms.items()}
    jit = Jit(funcs, target)
    rng = np.random.default_rng(seed)
    for rows, columns in ((1, 1), (2, 0), (3, 5), (2, 16), (1, 37)):
        for bias in (1, columns):
            x = rng.integers(-4, 5, (rows, columns)).astype(np.float32)
            arrays = [x, rng.integers(-4, 5, bias).astype(np.float32), rng.permutation(columns)]
            want = np.zeros_like(x)
            if columns:
                run_prim_func(funcs["serial"], [*arrays, want], {"b": bias, "m": columns, "n": rows})
            for name in forms:
                got = np.zeros_like(x)
                assert jit(name, *arrays, got, dims={"n": rows, "m": columns, "b": bias}) == 0
                np.testing.assert_allclose(got, want, rtol=1e-5, err_msg=f"{name} {rows}x{columns}")
