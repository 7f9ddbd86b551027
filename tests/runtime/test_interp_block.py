"""The interpreter on block form: maps, reductions, guards, hand-written bodies, numerics."""

from __future__ import annotations

import math

import numpy as np
import pytest

from relaxir.runtime.interp import run_prim_func
from relaxir.support.errors import InternalError, RuntimeIndexError
from relaxir.sym import dim
from relaxir.tir import (
    Alloc,
    Assert,
    BinOp,
    Buffer,
    Combine,
    For,
    If,
    Intrinsic,
    Let,
    ProgramBuilder,
    Scope,
    Seq,
    Size,
    Store,
    Var,
    While,
    bcast,
    binary,
    call,
    cast,
    const,
    eq,
    select,
)

N, M, K = dim("n"), dim("m"), dim("k")
SIZES = (0, 1, 2, 3, 7, 16)


def matmul(dtype="float32", acc=None):
    f = ProgramBuilder("matmul")
    x, w = f.input("x", (N, K), dtype), f.input("w", (K, M), dtype)
    y = f.output("y", (N, M), acc or dtype)
    f.reduce(y, (K,), Combine.SUM, lambda i, j, k: cast(x[i, k], y.dtype) * cast(w[k, j], y.dtype))
    return f.build()


@pytest.mark.parametrize("size", SIZES)
def test_broadcast_add(size):
    for other in sorted({1, size}):
        f = ProgramBuilder("add")
        x, b = f.input("x", (N, M), "float32"), f.input("b", (K,), "float32")
        y = f.output("y", (N, M), "float32")
        f.compute(y, lambda i, j, x=x, b=b: x[i, j] + b[bcast(j, K)])
        a, c = np.random.rand(size, size).astype("f4"), np.random.rand(other).astype("f4")
        out = np.empty_like(a)
        run_prim_func(f.build(), (a, c, out), {"n": size, "m": size, "k": other})
        np.testing.assert_array_equal(out, a + c)


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("inner", [0, 1, 5])
def test_matmul(size, inner):
    a, b = np.random.rand(size, inner).astype("f4"), np.random.rand(inner, 4).astype("f4")
    out = np.full((size, 4), np.nan, "f4")
    run_prim_func(matmul(), (a, b, out), {"n": size, "m": 4, "k": inner})
    np.testing.assert_allclose(out, a.astype("f8") @ b, rtol=1e-6)


def test_integer_matmul_wraps_and_is_exact():
    a = np.random.randint(-128, 128, (5, 9), "i1")
    b = np.random.randint(-128, 128, (9, 6), "i1")
    out = np.empty((5, 6), "i4")
    run_prim_func(matmul("int8", "int32"), (a, b, out), {"n": 5, "m": 6, "k": 9})
    np.testing.assert_array_equal(out, a.astype("i4") @ b.astype("i4"))
    big = np.full((2, 3), 2**31 - 1, "i4")
    out = np.empty((2, 2), "i4")
    run_prim_func(matmul("int32"), (big, np.ascontiguousarray(big.T), out), {"n": 2, "m": 2, "k": 3})
    np.testing.assert_array_equal(out, big @ big.T)


def test_softmax_in_stages():
    f = ProgramBuilder("softmax")
    x, y = f.input("x", (N, M), "float32"), f.output("y", (N, M), "float32")
    top, total = f.temp("top", (N,), "float32"), f.temp("total", (N,), "float32")
    f.reduce(top, (M,), Combine.MAX, lambda i, j: x[i, j])
    f.compute(y, lambda i, j: call(Intrinsic.EXP, x[i, j] - top[i]))
    f.reduce(total, (M,), Combine.SUM, lambda i, j: y[i, j])
    f.compute(y, lambda i, j: y[i, j] / total[i])
    a = np.random.randn(3, 11).astype("f4")
    a[1, 3] = np.nan
    out = np.empty_like(a)
    run_prim_func(f.build(), (a, out), {"n": 3, "m": 11})
    e = np.exp(a.astype("f8") - a.max(1, keepdims=True))
    np.testing.assert_allclose(out, e / e.sum(1, keepdims=True), rtol=1e-6)


def test_convolution_with_guarded_padding():
    f = ProgramBuilder("conv")
    x, w = f.input("x", (3, N), "float32"), f.input("w", (4, 3, 3), "float32")
    y = f.output("y", (4, N), "float32")

    def point(o, i, c, k):
        at = i + k - 1
        inside = (at >= 0) & (at < Size(N))
        return select(inside, x[c, at], 0.0) * w[o, c, k]

    f.reduce(y, (3, 3), Combine.SUM, point)
    for n in (1, 2, 9):
        a, b = np.random.rand(3, n).astype("f4"), np.random.rand(4, 3, 3).astype("f4")
        out = np.empty((4, n), "f4")
        run_prim_func(f.build(), (a, b, out), {"n": n})
        padded = np.pad(a, ((0, 0), (1, 1)))
        windows = np.stack([padded[:, k : k + n] for k in range(3)], 2)
        np.testing.assert_allclose(out, np.einsum("cik,ock->oi", windows, b), rtol=1e-5)


def test_gather_is_checked_and_select_is_lazy():
    f = ProgramBuilder("gather")
    t, ix = f.input("t", (N,), "float32"), f.input("ix", (M,), "int64")
    y = f.output("y", (M,), "float32")
    f.block(
        "g",
        (M,),
        lambda i: Seq(
            (
                Assert(
                    (ix[i] >= 0) & (ix[i] < Size(N)),
                    "runtime-index",
                    "index {} of {} is outside {}",
                    (ix[i], i, Size(N)),
                ),
                Store(y, (i,), t[ix[i]]),
            )
        ),
    )
    table = np.arange(5, dtype="f4")
    out = np.empty(3, "f4")
    run_prim_func(f.build(), (table, np.array([4, 0, 2]), out), {"n": 5, "m": 3})
    assert out.tolist() == [4, 0, 2]
    with pytest.raises(RuntimeIndexError, match="index 9 of 1 is outside 5"):
        run_prim_func(f.build(), (table, np.array([4, 9, 7]), out), {"n": 5, "m": 3})

    g = ProgramBuilder("bare")
    t, y = g.input("t", (N,), "float32"), g.output("y", (M,), "float32")
    g.compute(y, lambda i: t[i])
    with pytest.raises(InternalError, match="outside buffer `t`: index 5"):
        run_prim_func(g.build(), (table, np.empty(6, "f4")), {"n": 5, "m": 6})


@pytest.mark.parametrize("size", SIZES)
def test_argmax_body(size):
    f = ProgramBuilder("argmax")
    x, y = f.input("x", (N, M), "float32"), f.output("y", (N,), "int64")

    def body(i):
        best, at = Buffer("best", (), "float32", Scope.STACK), Buffer("at", (), "int64", Scope.STACK)
        k, v = Var("k"), Var("v", "float32")
        better = (v > best[()]) | (call(Intrinsic.ISNAN, v) & call(Intrinsic.NOT, call(Intrinsic.ISNAN, best[()])))
        step = Let(v, x[i, k], If(better, Seq((Store(best, (), v), Store(at, (), k)))))
        return Alloc(
            best,
            Alloc(
                at,
                Seq(
                    (
                        Store(best, (), const(float("-inf"), "float32")),
                        Store(at, (), const(0)),
                        For(k, Size(M), step),
                        Store(y, (i,), at[()]),
                    )
                ),
            ),
        )

    f.block("argmax", (N,), body)
    a = np.random.randn(size, 6).astype("f4")
    if size > 2:
        a[1, 4] = np.nan
    out = np.empty(size, "i8")
    run_prim_func(f.build(), (a, out), {"n": size, "m": 6})
    np.testing.assert_array_equal(out, a.argmax(1))


@pytest.mark.parametrize("size", SIZES)
def test_scan(size):
    f = ProgramBuilder("cumsum")
    x, y = f.input("x", (N, M), "float32"), f.output("y", (N, M), "float32")

    def body(i):
        acc, k = Buffer("acc", (), "float32", Scope.STACK), Var("k")
        return Alloc(
            acc,
            Seq(
                (
                    Store(acc, (), const(0.0, "float32")),
                    For(k, Size(M), Seq((Store(acc, (), acc[()] + x[i, k]), Store(y, (i, k), acc[()])))),
                )
            ),
        )

    f.block("cumsum", (N,), body)
    a = np.random.rand(3, size).astype("f4")
    out = np.empty_like(a)
    run_prim_func(f.build(), (a, out), {"n": 3, "m": size})
    np.testing.assert_array_equal(out, np.cumsum(a, 1, dtype="f4"))


def test_ragged_loops_and_while():
    f = ProgramBuilder("collatz")
    x, y, t = f.input("x", (N,), "int64"), f.output("y", (N,), "int64"), f.output("t", (N,), "int64")

    def body(i):
        v, k = Buffer("v", (), "int64", Scope.STACK), Var("k")
        halve = Store(v, (), v[()] // 2)
        triple = Store(v, (), v[()] * 3 + 1)
        loop = While(v[()] > 1, Seq((If(eq(v[()] % 2, 0), halve, triple), Store(y, (i,), y[i] + 1))))
        triangle = For(k, x[i], Store(t, (i,), k, Combine.SUM))
        return Alloc(v, Seq((Store(v, (), x[i]), Store(y, (i,), const(0)), Store(t, (i,), const(0)), loop, triangle)))

    f.block("collatz", (N,), body)
    a = np.array([1, 6, 7, 0, 27])
    out, tri = np.empty(5, "i8"), np.empty(5, "i8")
    run_prim_func(f.build(), (a, out, tri), {"n": 5})
    assert out.tolist() == [0, 8, 16, 0, 111]
    assert tri.tolist() == (a * (a - 1) // 2).tolist()


def test_scatter_add_meets_itself():
    f = ProgramBuilder("scatter")
    ix, v, y = f.input("ix", (N,), "int64"), f.input("v", (N,), "float32"), f.output("y", (M,), "float32")
    f.compute(y, lambda i: const(0.0, "float32"))
    k = Var("k")
    f.emit(For(k, Size(N), Store(y, (ix[k],), v[k], Combine.SUM)))
    a, out = np.array([0, 2, 0, 0, 3]), np.empty(4, "f4")
    run_prim_func(f.build(), (a, np.arange(5, dtype="f4"), out), {"n": 5, "m": 4})
    assert out.tolist() == [5, 0, 1, 4]
    g = ProgramBuilder("put")
    ix, v, y = g.input("ix", (N,), "int64"), g.input("v", (N,), "float32"), g.output("y", (M,), "float32")
    g.compute(y, lambda i: const(0.0, "float32"))
    g.emit(For(k, Size(N), Store(y, (ix[k],), v[k])))
    run_prim_func(g.build(), (a, np.arange(5, dtype="f4"), out), {"n": 5, "m": 4})
    assert out.tolist() == [3, 0, 1, 4]


def unary(fn, dtype, values, out=None):
    f = ProgramBuilder("u")
    x, y = f.input("x", (N,), dtype), f.output("y", (N,), out or dtype)
    f.compute(y, lambda i: fn(x[i]))
    result = np.empty(len(values), y.dtype if y.dtype != "bfloat16" else "u2")
    run_prim_func(f.build(), (values, result), {"n": len(values)})
    return result


def pair(op, dtype, a, b):
    f = ProgramBuilder("b")
    x, z, y = f.input("x", (N,), dtype), f.input("z", (N,), dtype), f.output("y", (N,), dtype)
    f.compute(y, lambda i: binary(op, x[i], z[i]))
    result = np.empty_like(np.asarray(a, dtype))
    run_prim_func(f.build(), (np.asarray(a, dtype), np.asarray(b, dtype), result), {"n": len(a)})
    return result.tolist()


def test_casts_saturate():
    x = np.array([np.nan, np.inf, -np.inf, 300.7, -300.7, 1.9, -1.9, 1e20], "f4")
    assert unary(lambda v: cast(v, "int8"), "float32", x, "int8").tolist() == [0, 127, -128, 127, -128, 1, -1, 127]
    assert unary(lambda v: cast(v, "uint8"), "float32", x, "uint8").tolist() == [0, 255, 0, 255, 0, 1, 0, 255]
    big = 2**63 - 1
    assert unary(lambda v: cast(v, "int64"), "float32", x, "int64").tolist()[:3] == [0, big, -(2**63)]
    assert unary(lambda v: cast(v, "uint64"), "float32", x, "uint64").tolist()[1:3] == [2**64 - 1, 0]
    assert unary(lambda v: cast(v, "bool"), "float32", x, "bool").tolist() == [True] * 8
    assert unary(lambda v: cast(v, "int8"), "int64", np.array([200, -129]), "int8").tolist() == [-56, 127]


def test_integer_arithmetic():
    a, b = [7, -7, 7, -7, 5, -128], [2, 2, -2, -2, 0, -1]
    assert pair(BinOp.FLOORDIV, "int8", a, b) == [3, -4, -4, 3, 0, -128]
    assert pair(BinOp.MOD, "int8", a, b) == [1, 1, -1, -1, 0, 0]
    assert pair(BinOp.TRUNCDIV, "int8", a, b) == [3, -3, -3, 3, 0, -128]
    assert pair(BinOp.TRUNCMOD, "int8", a, b) == [1, -1, 1, -1, 0, 0]
    assert pair(BinOp.ADD, "int8", [127], [1]) == [-128]
    assert pair(BinOp.MUL, "int64", [2**62], [4]) == [0]
    assert pair(BinOp.SUB, "uint8", [0], [1]) == [255]
    assert pair(BinOp.POW, "int32", [2, -1, 3, 0], [10, -3, -1, 0]) == [1024, -1, 0, 1]
    assert pair(BinOp.SHR, "int8", [-8], [1]) == [-4]
    assert pair(BinOp.SHR, "uint8", [248], [1]) == [124]


def test_index_arithmetic_wraps():
    f = ProgramBuilder("wrap")
    y = f.output("y", (N,), "int64")
    f.compute(y, lambda i: (i + 1) * (2**62) * 2)
    out = np.empty(3, "i8")
    run_prim_func(f.build(), (out,), {"n": 3})
    assert out.tolist() == [-(2**63), 0, -(2**63)]


def test_nan_wins_in_extrema():
    nan = float("nan")
    assert np.isnan(pair(BinOp.MIN, "float32", [nan, 1.0], [1.0, nan])).all()
    f = ProgramBuilder("max")
    x, y = f.input("x", (N, M), "float32"), f.output("y", (N,), "float32")
    f.reduce(y, (M,), Combine.MAX, lambda i, j: x[i, j])
    out = np.empty(2, "f4")
    run_prim_func(f.build(), (np.array([[1, nan, 3], [1, 2, 3]], "f4"), out), {"n": 2, "m": 3})
    assert np.isnan(out[0]) and out[1] == 3
    out = np.empty(2, "f4")
    run_prim_func(f.build(), (np.empty((2, 0), "f4"), out), {"n": 2, "m": 0})
    assert out.tolist() == [-math.inf, -math.inf]


def test_transcendentals_are_accurate():
    x = np.linspace(-5, 5, 41)
    got = unary(lambda v: call(Intrinsic.ERF, v), "float64", x)
    np.testing.assert_array_equal(got, [math.erf(v) for v in x])
    got = unary(lambda v: call(Intrinsic.SIGMOID, v), "float32", np.array([-200, -1, 0, 200], "f4"))
    np.testing.assert_allclose(got, [0.0, 1 / (1 + math.e), 0.5, 1.0], rtol=1e-7, atol=1e-45)


def test_narrow_floats_round_to_even():
    one = np.array([0x3F80, 0x3F81, 0x7FC1, 0x7F80], "u2")  # 1, 1 + 2**-7, NaN, infinity
    got = unary(lambda v: v + const(2.0**-8, "bfloat16"), "bfloat16", one)
    assert got.tolist() == [0x3F80, 0x3F82, 0x7FC1, 0x7F80]
    assert unary(lambda v: cast(v, "float32"), "bfloat16", one, "float32")[1] == 1.0078125
    half = np.array([1.0, 65504.0], "f2")
    assert unary(lambda v: v * 2.0, "float16", half).tolist() == [2.0, math.inf]
    many = np.full(4096, 1.0, "f2")
    f = ProgramBuilder("sum")
    x, y = f.input("x", (N,), "float16"), f.output("y", (), "float16")
    f.reduce(y, (N,), Combine.SUM, lambda k: x[k])
    out = np.empty((), "f2")
    run_prim_func(f.build(), (many, out), {"n": 4096})
    assert out == 4096


def test_chunks_bound_memory():
    f = ProgramBuilder("rows")
    x, y = f.input("x", (N, M), "float32"), f.output("y", (N,), "float32")
    f.reduce(y, (M,), Combine.MAX, lambda i, j: x[i, j] * 2.0 + 1.0)
    a = np.random.rand(3000, 3001).astype("f4")
    out = np.empty(3000, "f4")
    run_prim_func(f.build(), (a, out), {"n": 3000, "m": 3001})
    np.testing.assert_array_equal(out, (a * np.float32(2) + np.float32(1)).max(1))
