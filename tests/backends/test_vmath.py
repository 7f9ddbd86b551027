"""Error bounds and edge cases of the single-precision functions, against double precision."""

import math

import numpy as np
import pytest

from relaxir.sym import dim
from relaxir.tir import (
    Alloc,
    Binary,
    BinOp,
    Buffer,
    Call,
    For,
    ForKind,
    Intrinsic,
    PrimFunc,
    Scope,
    Seq,
    Size,
    Store,
    Var,
    const,
)
from tests.backends.emit_harness import Jit

RNG = np.random.default_rng(7)
COUNT = 1 << 16
INF, NAN = float("inf"), float("nan")


def spread(low, high, count=COUNT):
    """Both signs, over the exponents from ``low`` to ``high`` (powers of two)."""
    return RNG.choice([-1.0, 1.0], count) * 2.0 ** RNG.uniform(low, high, count)


def plain(low, high, count=COUNT):
    return RNG.uniform(low, high, count)


_erf = np.vectorize(math.erf)
_normal_cdf = np.vectorize(lambda x: math.erfc(-x * math.sqrt(0.5)) / 2, otypes=[np.float64])
CASES = {
    Intrinsic.EXP: (np.exp, 1.0, [plain(-104, 89), spread(-30, 4)]),
    Intrinsic.EXP_NONPOSITIVE: (np.exp, 1.0, [plain(-104, 0), spread(-30, 4)]),
    Intrinsic.EXPM1: (np.expm1, 2.0, [plain(-20, 88.7), spread(-30, 4)]),
    Intrinsic.LOG: (np.log, 1.0, [2.0 ** plain(-149, 128), 1 + spread(-24, -1)]),
    Intrinsic.LOG2: (np.log2, 2.0, [2.0 ** plain(-149, 128), 1 + spread(-24, -1)]),
    Intrinsic.LOG1P: (np.log1p, 2.0, [2.0 ** plain(-149, 128), -(2.0 ** plain(-100, 0)), spread(-3, -0.1)]),
    Intrinsic.TANH: (np.tanh, 2.0, [plain(-10, 10), spread(-40, 5)]),
    Intrinsic.ERF: (_erf, 2.0, [plain(-5, 5), spread(-40, 3)]),
    Intrinsic.NORMAL_CDF: (_normal_cdf, 3.0, [plain(0, 9), abs(spread(-40, -1))]),
    Intrinsic.SIGMOID: (lambda x: 1 / (1 + np.exp(-x)), 3.0, [plain(-100, 20), spread(-20, 4)]),
    Intrinsic.SIN: (np.sin, 2.0, [plain(-1e5, 1e5), plain(-7, 7), spread(-40, 4), spread(17, 31, 4096)]),
    Intrinsic.COS: (np.cos, 2.0, [plain(-1e5, 1e5), plain(-7, 7), spread(-40, 4), spread(17, 31, 4096)]),
    Intrinsic.SQRT: (np.sqrt, 0.51, [2.0 ** plain(-149, 128)]),
    Intrinsic.RSQRT: (lambda x: 1 / np.sqrt(x), 2.0, [2.0 ** plain(-126, 128)]),
    Intrinsic.ATAN: (np.arctan, 2.0, [spread(-20, 20, 2048)]),
    Intrinsic.ASINH: (np.arcsinh, 3.0, [spread(-20, 20, 2048)]),
}  # fmt: skip
EDGES = np.array(
    [0.0, -0.0, INF, -INF, NAN, 1.0, -1.0, 1e-45, -1e-45, 3e38, -3e38, 1e-38, 89.0, -104.5, 2.0**29, -2.0], np.float32
)
ELSEWHERE = {
    Intrinsic.EXP_NONPOSITIVE: EDGES > 40,  # not defined
    Intrinsic.NORMAL_CDF: (EDGES < -0.5) & (EDGES > -7),  # has bounds of its own
}


def kernel(fn, kind):
    n = dim("n")
    x, y, i = Buffer("x", (n,), "float32"), Buffer("y", (n,), "float32"), Var("i")
    return PrimFunc((x, y), For(i, Size(n), Store(y, (i,), Call(fn, x[i])), kind), (n,), 1)


@pytest.fixture(scope="module", params=["native", "x86-64-v3", "x86-64-v2"])
def jit(request):
    funcs = {}
    for fn in CASES:
        funcs[f"v_{fn.value}"] = kernel(fn, ForKind.VECTOR)
        funcs[f"s_{fn.value}"] = kernel(fn, ForKind.SERIAL)
    n = dim("n")
    x, z, y, i = (*(Buffer(name, (n,), "float32") for name in "xzy"), Var("i"))
    funcs["pow"] = PrimFunc(
        (x, z, y), For(i, Size(n), Store(y, (i,), Binary(BinOp.POW, x[i], z[i])), ForKind.VECTOR), (n,), 1
    )
    return Jit(funcs, request.param)


def ulps(got, exact):
    """Errors in units of the last place of the single-precision result."""
    with np.errstate(over="ignore"):
        rounded = exact.astype(np.float32)
    usual = np.isfinite(rounded) & np.isfinite(got)
    unit = np.maximum(np.spacing(np.abs(rounded[usual])).astype(np.float64), 2.0**-149)
    return np.abs(got[usual].astype(np.float64) - exact[usual]) / unit


@pytest.mark.parametrize("fn", list(CASES), ids=lambda fn: fn.value)
def test_bounds(jit, fn):
    reference, bound, samples = CASES[fn]
    x = np.concatenate(samples).astype(np.float32)
    y = np.zeros_like(x)
    assert jit(f"v_{fn.value}", x, y) == 0
    with np.errstate(all="ignore"):
        exact = reference(x.astype(np.float64))
    errors = ulps(y, exact)
    slack = 0 if jit.target.has_fma else 0.5
    assert errors.max() <= bound + slack, (errors.max(), errors.mean())
    again = np.zeros_like(x)
    jit(f"s_{fn.value}", x, again)
    np.testing.assert_array_equal(y, again, err_msg="scalar and vector code differ")


@pytest.mark.parametrize("fn", list(CASES), ids=lambda fn: fn.value)
def test_edges(jit, fn):
    reference, bound, _ = CASES[fn]
    x = EDGES[~ELSEWHERE[fn]] if fn in ELSEWHERE else EDGES
    y = np.zeros_like(x)
    jit(f"v_{fn.value}", x, y)
    with np.errstate(all="ignore"):
        expected = reference(x.astype(np.float64)).astype(np.float32)
    np.testing.assert_array_equal(np.isnan(y), np.isnan(expected), err_msg=str(x))
    special = np.isinf(expected) | (expected == 0)
    np.testing.assert_array_equal(y[special], expected[special], err_msg=str(x[special]))
    zero = expected == 0
    np.testing.assert_array_equal(np.signbit(y[zero]), np.signbit(expected[zero]), err_msg=str(x[zero]))
    assert ulps(y, expected.astype(np.float64)).max(initial=0) <= bound + 0.5


@pytest.mark.parametrize(("low", "high", "bound"), [(-2, 0, 2e-6), (-4, -2, 2e-5), (-7, -4, 2e-3)])
def test_the_tail_of_the_normal_distribution(jit, low, high, bound):
    x = plain(low, high).astype(np.float32)
    y = np.zeros_like(x)
    assert jit("v_normal_cdf", x, y) == 0
    np.testing.assert_allclose(y, _normal_cdf(x.astype(np.float64)), rtol=bound, atol=0)


def test_numbers_that_are_none_stay_so(jit):
    """Also those whose bits are not the usual ones."""
    x = np.array([0x7FC00000, 0x7FC001FF, 0xFFC00080, 0x7FFFFFFF], np.uint32).view(np.float32)
    for fn in CASES:
        y = np.zeros_like(x)
        jit(f"v_{fn.value}", x, y)
        assert np.isnan(y).all(), fn


def test_pow(jit):
    x = np.concatenate([2.0 ** plain(-20, 20), spread(-3, 3), np.repeat(EDGES, len(EDGES))]).astype(np.float32)
    y = np.concatenate([plain(-6, 6), RNG.integers(-9, 9, COUNT), np.tile(EDGES, len(EDGES))]).astype(np.float32)
    got = np.zeros_like(x)
    jit("pow", x, y, got)
    with np.errstate(all="ignore"):
        exact = np.power(x.astype(np.float64), y.astype(np.float64))
        expected = exact.astype(np.float32)
    np.testing.assert_array_equal(np.isnan(got), np.isnan(expected))
    special = np.isinf(expected) | (expected == 0)
    np.testing.assert_array_equal(got[special], expected[special])
    assert ulps(got, exact).max() <= 1.0


def test_huge_sine(jit):
    x = np.array([1e10, 1e20, 3e38, -1e15], np.float32)
    y = np.zeros_like(x)
    jit("v_sin", x, y)
    np.testing.assert_allclose(y, np.sin(x.astype(np.float64)), atol=1e-6)


@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
def test_every_width(target):
    """Vectors of any number of lanes, powers of two or not, give what one lane gives."""
    funcs, widths = {}, (1, 3, 16, 17, 31, 33, 48, 64, 80, 96, 112)
    for width in widths:
        x, y, i = Buffer("x", (width,), "float32"), Buffer("y", (width,), "float32"), Var("i")
        a, b, j = Buffer("a", (width,), "float32", Scope.REGISTER), Var("i"), Var("i")
        load = For(i, const(width), Store(a, (i,), x[i]), ForKind.VECTOR)
        work = For(b, const(width), Store(a, (b,), Call(Intrinsic.EXP, a[b])), ForKind.VECTOR)
        last = For(j, const(width), Store(y, (j,), a[j]), ForKind.VECTOR)
        funcs[f"exp{width}"] = PrimFunc((x, y), Alloc(a, Seq((load, work, last))), (), 1)
    jit = Jit(funcs, target)
    for width in widths:
        x = plain(-5, 5, width).astype(np.float32)
        y = np.zeros_like(x)
        assert jit(f"exp{width}", x, y) == 0
        assert ulps(y, np.exp(x.astype(np.float64))).max() <= 1.5
