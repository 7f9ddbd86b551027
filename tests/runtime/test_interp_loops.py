"""The interpreter on loop form: tiles, register accumulators, tails, what is independent and what is not."""

from __future__ import annotations

import time

import numpy as np
import pytest

from relaxir.runtime.interp import run_prim_func
from relaxir.runtime.interp.analysis import independent
from relaxir.sym import ceildiv, dim
from relaxir.tir import (
    Alloc,
    Buffer,
    Combine,
    For,
    ForKind,
    If,
    Let,
    PrimFunc,
    Scope,
    Seq,
    Size,
    Store,
    Switch,
    Var,
    as_expr,
    const,
    eq,
    minimum,
    select,
)

N, M, K, R = dim("n"), dim("m"), dim("k"), dim("r")
ZERO = const(0.0, "float32")


def loop(var, extent, body, kind=ForKind.SERIAL):
    return For(var, as_expr(extent), body, kind)


def variables(names):
    return tuple(Var(n) for n in names.split())


def tiled_matmul(rows=6, columns=16, packed=False):
    """``y = x @ w`` in register tiles: rows by a Switch, a masked column tail."""
    x, w, y = Buffer("x", (N, K), "float32"), Buffer("w", (K, M), "float32"), Buffer("y", (N, M), "float32")
    it, jt, k, i, j = variables("it jt k i j")
    acc = Buffer("acc", (R, columns), "float32", Scope.REGISTER)

    def tile(var_i, var_j, body):
        return loop(var_i, R, loop(var_j, columns, body, ForKind.VECTOR), ForKind.UNROLL)

    i2, j2, i3, j3 = variables("i2 j2 i3 j3")
    row, col = it * rows, jt * columns
    inside = col + j2 < Size(M)
    step = Store(acc, (i2, j2), x[row + i2, k] * select(inside, w[k, col + j2], 0.0), Combine.SUM)
    body = Alloc(
        acc,
        Seq(
            (
                tile(i, j, Store(acc, (i, j), ZERO)),
                loop(k, K, tile(i2, j2, step)),
                loop(
                    i3,
                    R,
                    loop(
                        j3, minimum(columns, Size(M) - col), Store(y, (row + i3, col + j3), acc[i3, j3]), ForKind.VECTOR
                    ),
                    ForKind.UNROLL,
                ),
            )
        ),
    )
    left = minimum(rows, Size(N) - row)
    nest = loop(
        it, ceildiv(N, rows), loop(jt, ceildiv(M, columns), Switch(left, R, 1, rows + 1, body)), ForKind.PARALLEL
    )
    return PrimFunc((x, w, y), nest, (N, M, K))


@pytest.mark.parametrize("n", [0, 1, 5, 6, 7, 13])
@pytest.mark.parametrize("m", [1, 16, 35])
@pytest.mark.parametrize("k", [0, 1, 9])
def test_tiled_matmul(n, m, k):
    a, b, out = np.random.rand(n, k).astype("f4"), np.random.rand(k, m).astype("f4"), np.full((n, m), np.nan, "f4")
    run_prim_func(tiled_matmul(), (a, b, out), {"n": n, "m": m, "k": k})
    np.testing.assert_allclose(out, a.astype("f8") @ b, rtol=1e-6)


def test_tiled_matmul_is_fast():
    a, b, out = np.random.rand(7, 384).astype("f4"), np.random.rand(384, 1536).astype("f4"), np.empty((7, 1536), "f4")
    func = tiled_matmul()
    seconds = []
    for _ in range(3):
        start = time.perf_counter()
        run_prim_func(func, (a, b, out), {"n": 7, "m": 1536, "k": 384})
        seconds.append(time.perf_counter() - start)
    np.testing.assert_allclose(out, a.astype("f8") @ b, rtol=1e-6)
    assert min(seconds) < 1.0


def test_nan_of_a_masked_lane_stays_out():
    a, b, out = np.ones((7, 3), "f4"), np.ones((3, 5), "f4"), np.empty((7, 5), "f4")
    a[6, 1] = np.inf
    b[1, 2] = np.nan
    run_prim_func(tiled_matmul(), (a, b, out), {"n": 7, "m": 5, "k": 3})
    with np.errstate(invalid="ignore"):
        np.testing.assert_array_equal(out, a @ b)


def run(body, params, dims, *arrays):
    run_prim_func(PrimFunc(params, body, tuple(dim(n) for n in dims)), arrays, dims)
    return arrays[-1]


def test_serial_recurrence_runs_in_order():
    x, y = Buffer("x", (N,), "float32"), Buffer("y", (N,), "float32")
    i = Var("i")
    body = loop(i, N, Store(y, (i,), select(i > 0, y[i - 1], 0.0) + x[i]))
    assert not independent(body, lambda d: 5)
    a = np.random.rand(5).astype("f4")
    np.testing.assert_array_equal(run(body, (x, y), {"n": 5}, a, np.empty(5, "f4")), np.cumsum(a, dtype="f4"))


def test_reversal_in_place_runs_in_order():
    y = Buffer("y", (N,), "int64")
    i, t = Var("i"), Var("t")
    other = Size(N) - 1 - i
    body = loop(i, (N // 2), Let(t, y[i], Seq((Store(y, (i,), y[other]), Store(y, (other,), t)))))
    assert run(body, (y,), {"n": 5}, np.arange(5)).tolist() == [4, 3, 2, 1, 0]


def test_let_of_a_load_is_a_copy():
    y = Buffer("y", (N,), "int64")
    i, t = Var("i"), Var("t")
    body = loop(i, N, Let(t, y[i], Seq((Store(y, (i,), t + 1), Store(y, (i,), y[i] + t)))), ForKind.PARALLEL)
    assert run(body, (y,), {"n": 3}, np.arange(3)).tolist() == [1, 3, 5]


def test_independence():
    y, x = Buffer("y", (64,), "float32"), Buffer("x", (64,), "float32")
    i, j = Var("i"), Var("j")

    def verdict(*stmts, extent=8):
        return independent(loop(i, extent, Seq(tuple(stmts))), lambda d: d if isinstance(d, int) else 4)

    assert verdict(Store(y, (i,), x[i]))
    assert verdict(Store(y, (i,), y[i] + x[i]))
    assert verdict(Store(y, (i * 4 + 1,), y[i * 4 + 3]))
    assert not verdict(Store(y, (i * 4 + 1,), y[i * 4 + 5]))
    assert verdict(loop(j, 4, Store(y, (i * 4 + j,), y[i * 4 + j])))
    assert not verdict(loop(j, 5, Store(y, (i * 4 + j,), y[i * 4 + j])))
    assert verdict(loop(j, minimum(4, Size(N) - i), Store(y, (i * 4 + j,), x[j])))
    assert verdict(Store(y, (const(0),), x[i], Combine.SUM))
    assert not verdict(Store(y, (const(0),), x[i], Combine.SUM), Store(x, (i,), y[0]))
    assert not verdict(Store(y, (const(0),), x[i]))
    assert not verdict(Store(y, (i % 4,), x[i]))
    assert verdict(Let(j, i + 1, Store(y, (j,), x[i])))
    cell = Buffer("c", (), "float32", Scope.STACK)
    assert verdict(Alloc(cell, Seq((Store(cell, (), x[i]), Store(y, (i,), cell[()])))))


def test_several_accumulators_and_vector_reduction():
    x, y = Buffer("x", (N, K), "float32"), Buffer("y", (N,), "float32")
    acc = Buffer("acc", (4,), "float32", Scope.REGISTER)
    i, kt, u, u2, u3, tail = variables("i kt u u2 u3 tail")
    body = loop(
        i,
        N,
        Alloc(
            acc,
            Seq(
                (
                    loop(u, 4, Store(acc, (u,), ZERO), ForKind.UNROLL),
                    loop(kt, K // 4, loop(u2, 4, Store(acc, (u2,), x[i, kt * 4 + u2], Combine.SUM), ForKind.VECTOR)),
                    Store(y, (i,), ZERO),
                    loop(u3, 4, Store(y, (i,), acc[u3], Combine.SUM), ForKind.VECTOR),
                    loop(tail, K % 4, Store(y, (i,), x[i, Size(K // 4 * 4) + tail], Combine.SUM)),
                )
            ),
        ),
        ForKind.PARALLEL,
    )
    for k in (0, 1, 4, 11):
        a = np.random.rand(5, k).astype("f4")
        got = run(body, (x, y), {"n": 5, "k": k}, a, np.empty(5, "f4"))
        np.testing.assert_allclose(got, a.sum(1), rtol=1e-6)


def test_chunked_private_temporaries():
    x, y = Buffer("x", (N,), "float32"), Buffer("y", (N,), "float32")
    pad = Buffer("pad", (1024,), "float32", Scope.STACK)
    i, j = variables("i j")
    body = loop(i, N, Alloc(pad, Seq((loop(j, 1024, Store(pad, (j,), x[i] * 2.0)), Store(y, (i,), pad[1023])))))
    a = np.random.rand(5000).astype("f4")
    np.testing.assert_array_equal(run(body, (x, y), {"n": 5000}, a, np.empty_like(a)), a * 2)


def test_guarded_tail_and_nested_if():
    x, y = Buffer("x", (N,), "float32"), Buffer("y", (N,), "float32")
    it, i = variables("it i")
    at = it * 8 + i
    body = loop(
        it,
        ceildiv(N, 8),
        loop(
            i,
            8,
            If(at < Size(N), If(x[at] > 0.5, Store(y, (at,), x[at]), Store(y, (at,), const(-1.0, "float32")))),
            ForKind.VECTOR,
        ),
        ForKind.PARALLEL,
    )
    for n in (0, 1, 8, 21):
        a = np.random.rand(n).astype("f4")
        got = run(body, (x, y), {"n": n}, a, np.full(n, np.nan, "f4"))
        np.testing.assert_array_equal(got, np.where(a > 0.5, a, np.float32(-1)))


def test_flattened_loop():
    x, y = Buffer("x", (N, M), "float32"), Buffer("y", (M, N), "float32")
    f = Var("f")
    i, j = f // Size(M), f % Size(M)
    body = loop(f, N * M, Store(y, (j, i), x[i, j]), ForKind.PARALLEL)
    a = np.random.rand(3, 5).astype("f4")
    np.testing.assert_array_equal(run(body, (x, y), {"n": 3, "m": 5}, a, np.empty((5, 3), "f4")), a.T)


def test_reductions_over_masked_lanes():
    x, y = Buffer("x", (N,), "int32"), Buffer("y", (4,), "int32")
    i = Var("i")
    kinds = (Combine.SUM, Combine.PROD, Combine.MAX, Combine.MIN)
    init = Seq(tuple(Store(y, (const(p),), const(1, "int32")) for p in range(4)))
    body = Seq(
        (init, loop(i, N, If(eq(i % 2, 0), Seq(tuple(Store(y, (const(p),), x[i], c) for p, c in enumerate(kinds))))))
    )
    got = run(body, (x, y), {"n": 5}, np.array([3, 100, -2, 100, 5], "i4"), np.empty(4, "i4"))
    assert got.tolist() == [7, -30, 5, -2]


def test_insertion_sort_of_every_row():
    x = Buffer("x", (N, M), "int32")
    i, a, b, t = Var("i"), Var("a"), Var("b"), Var("t", "int32")
    swap = Let(t, x[i, b], Seq((Store(x, (i, b), x[i, b + 1]), Store(x, (i, b + 1), t))))
    body = loop(i, N, loop(a, M, loop(b, Size(M) - 1 - a, If(x[i, b] > x[i, b + 1], swap))), ForKind.PARALLEL)
    data = np.random.randint(0, 50, (4, 9)).astype("i4")
    want = np.sort(data, 1)
    np.testing.assert_array_equal(run(body, (x,), {"n": 4, "m": 9}, data), want)
