"""Larger programs as fusion makes them: several patterns in one kernel, odd types, guarded loads."""

from __future__ import annotations

from relaxir.sym import DimLike, floordiv
from relaxir.tir import (
    Alloc,
    Buffer,
    Combine,
    Expr,
    For,
    If,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
    call,
    cast,
    const,
    eq,
    maximum,
    select,
)
from tests.schedule.programs import F


def attention(b: DimLike, n: DimLike, d: int) -> PrimFunc:
    """Scores, scale and mask, softmax, weighted values."""
    f = ProgramBuilder("attention")
    q, k, v = (f.input(x, (b, n, d), F) for x in "qkv")
    m = f.input("m", (n, n), F)
    z = f.output("z", (b, n, d), F)
    s, t, e = (f.temp(x, (b, n, n), F) for x in ("s", "t", "e"))
    top, total = f.temp("top", (b, n), F), f.temp("total", (b, n), F)
    w = f.temp("w", (b, n, n), F)
    f.reduce(s, (d,), Combine.SUM, lambda h, i, j, c: q[h, i, c] * k[h, j, c])
    f.compute(t, lambda h, i, j: s[h, i, j] * 0.125 + m[i, j])
    f.reduce(top, (n,), Combine.MAX, lambda h, i, j: t[h, i, j])
    f.compute(e, lambda h, i, j: call(Intrinsic.EXP, t[h, i, j] - top[h, i]))
    f.reduce(total, (n,), Combine.SUM, lambda h, i, j: e[h, i, j])
    f.compute(w, lambda h, i, j: e[h, i, j] / total[h, i])
    f.reduce(z, (n,), Combine.SUM, lambda h, i, c, j: w[h, i, j] * v[h, j, c])
    return f.build()


def group_norm(n: DimLike, c: int, groups: int, h: DimLike) -> PrimFunc:
    f = ProgramBuilder("group_norm")
    per = c // groups
    x, z = f.input("x", (n, c, h), F), f.output("z", (n, c, h), F)
    mean, var = f.temp("mean", (n, groups), F), f.temp("var", (n, groups), F)
    size = cast(as_expr(h), F) * per
    f.reduce(mean, (per, h), Combine.SUM, lambda i, g, j, k: x[i, g * per + j, k] / size)
    f.reduce(
        var,
        (per, h),
        Combine.SUM,
        lambda i, g, j, k: (x[i, g * per + j, k] - mean[i, g]) * (x[i, g * per + j, k] - mean[i, g]) / size,
    )
    f.compute(
        z,
        lambda i, j, k: (
            (x[i, j, k] - mean[i, j // const(per)]) * call(Intrinsic.RSQRT, var[i, j // const(per)] + const(1e-5, F))
        ),
    )
    return f.build()


def max_pool(n: DimLike, c: int, h: DimLike, w: DimLike) -> PrimFunc:
    f = ProgramBuilder("max_pool")
    oh, ow = floordiv(h + 1, 2), floordiv(w + 1, 2)
    x, z = f.input("x", (n, c, h, w), F), f.output("z", (n, c, oh, ow), F)

    def value(i: Expr, q: Expr, y: Expr, v: Expr, ky: Expr, kx: Expr) -> Expr:
        at = (y * 2 + ky - 1, v * 2 + kx - 1)
        inside = (at[0] >= const(0)) & (at[0] < h) & (at[1] >= const(0)) & (at[1] < w)
        return select(inside, x[i, q, at[0], at[1]], const(float("-inf"), F))

    f.reduce(z, (3, 3), Combine.MAX, value)
    return f.build()


def concat(n: DimLike, a: DimLike, b: DimLike) -> PrimFunc:
    f = ProgramBuilder("concat")
    x, y, z = f.input("x", (n, a), F), f.input("y", (n, b), F), f.output("z", (n, a + b), F)
    f.compute(z, lambda i, j: select(j < as_expr(a), x[i, j], y[i, j - a]))
    return f.build()


def argmax(n: DimLike, m: DimLike) -> PrimFunc:

    f = ProgramBuilder("argmax")
    x, z = f.input("x", (n, m), F), f.output("z", (n,), "int64")

    def body(i: Expr) -> Stmt:
        best, j = Buffer("best", (), F, Scope.STACK), Var("j")
        better = Seq((Store(best, (), x[i, j]), Store(z, (i,), j)))
        first = Seq((Store(best, (), const(float("-inf"), F)), Store(z, (i,), const(0))))
        return Alloc(best, Seq((first, For(j, as_expr(m), If(x[i, j] > best[()], better)))))

    f.block("argmax", (n,), body)
    return f.build()


def scatter_add(n: DimLike, m: DimLike) -> PrimFunc:
    f = ProgramBuilder("scatter_add")
    x, at, z = f.input("x", (n, m), F), f.input("at", (n,), "int64"), f.output("z", (3, m), F)
    f.compute(z, lambda i, j: const(0.0, F))

    def body(j: Expr) -> Stmt:
        i = Var("i")
        return For(i, as_expr(n), Store(z, (at[i], j), x[i, j], Combine.SUM))

    f.block("add", (m,), body)
    return f.build()


def quantized(n: DimLike, k: int, m: int) -> PrimFunc:
    f = ProgramBuilder("quantized")
    x, w = f.input("x", (n, k), "int8"), f.input("w", (k, m), "int8")
    s, z = f.temp("s", (n, m), "int32"), f.output("z", (n, m), F)
    f.reduce(s, (k,), Combine.SUM, lambda i, j, q: cast(x[i, q], "int32") * cast(w[q, j], "int32"))
    f.compute(z, lambda i, j: cast(s[i, j], F) * 0.5)
    return f.build()


def half_product(n: DimLike, k: int, m: int) -> PrimFunc:
    f = ProgramBuilder("half_product")
    x, w = f.input("x", (n, k), "float16"), f.input("w", (k, m), "float16")
    s, z = f.temp("s", (n, m), F), f.output("z", (n, m), "float16")
    f.reduce(s, (k,), Combine.SUM, lambda i, j, q: cast(x[i, q], F) * cast(w[q, j], F))
    f.compute(z, lambda i, j: cast(s[i, j], "float16"))
    return f.build()


def norm_product(n: DimLike, k: int, m: int) -> PrimFunc:
    """A normalisation, a product, a bias with activation, and a reduction of the result."""
    f = ProgramBuilder("norm_product")
    x, w, b = f.input("x", (n, k), F), f.input("w", (k, m), F), f.input("b", (m,), F)
    y, z = f.output("y", (n, m), F), f.output("z", (n,), F)
    sq, nx, p = f.temp("sq", (n,), F), f.temp("nx", (n, k), F), f.temp("p", (n, m), F)
    f.reduce(sq, (k,), Combine.SUM, lambda i, j: x[i, j] * x[i, j])
    f.compute(nx, lambda i, j: x[i, j] * call(Intrinsic.RSQRT, sq[i] + const(1e-3, F)))
    f.reduce(p, (k,), Combine.SUM, lambda i, j, q: nx[i, q] * w[q, j])
    f.compute(y, lambda i, j: maximum(p[i, j] + b[j], const(0.0, F)))
    f.reduce(z, (m,), Combine.MAX, lambda i, j: y[i, j])
    return f.build()


def any_true(n: DimLike, m: DimLike) -> PrimFunc:
    f = ProgramBuilder("any")
    x, z = f.input("x", (n, m), "int32"), f.output("z", (n,), "bool")
    f.reduce(z, (m,), Combine.OR, lambda i, j: eq(x[i, j], const(2, "int32")))
    return f.build()


def residual_block(n: DimLike, c: int, h: DimLike, w: DimLike) -> PrimFunc:
    """A padded convolution with scale, shift, residual and activation, and the mean over its plane."""
    f = ProgramBuilder("residual_block")
    x, k = f.input("x", (n, c, h, w), F), f.input("k", (c, c, 3, 3), F)
    scale, shift = f.input("scale", (c, 1, 1), F), f.input("shift", (c, 1, 1), F)
    y, z = f.output("y", (n, c, h, w), F), f.output("z", (n, c), F)
    s, t = f.temp("s", (n, c, h, w), F), f.temp("t", (n, c, h, w), F)

    def value(i: Expr, q: Expr, a: Expr, b: Expr, ic: Expr, ky: Expr, kx: Expr) -> Expr:
        at = (a + ky - 1, b + kx - 1)
        inside = (at[0] >= const(0)) & (at[0] < h) & (at[1] >= const(0)) & (at[1] < w)
        return select(inside, x[i, ic, at[0], at[1]], const(0.0, F)) * k[q, ic, ky, kx]

    zero = const(0)
    f.reduce(s, (c, 3, 3), Combine.SUM, value)
    f.compute(t, lambda i, q, a, b: s[i, q, a, b] * scale[q, zero, zero] + shift[q, zero, zero])
    f.compute(y, lambda i, q, a, b: maximum(t[i, q, a, b] + x[i, q, a, b], const(0.0, F)))
    f.reduce(z, (h, w), Combine.SUM, lambda i, q, a, b: y[i, q, a, b])
    return f.build()


def avg_pool(n: DimLike, c: int, w: DimLike) -> PrimFunc:
    f = ProgramBuilder("avg_pool")
    x, z = f.input("x", (n, c, 6, w + 2), F), f.output("z", (n, c, 4, w), F)
    s = f.temp("s", (n, c, 4, w), F)
    f.reduce(s, (3, 3), Combine.SUM, lambda i, q, y, v, ky, kx: x[i, q, y + ky, v + kx])
    f.compute(z, lambda i, q, y, v: s[i, q, y, v] / 9.0)
    return f.build()


def two_maps(n: DimLike, m: DimLike) -> PrimFunc:
    """Two elementwise stages that were not inlined, both results wanted."""
    f = ProgramBuilder("two_maps")
    x, y, z = f.input("x", (n, m), F), f.output("y", (n, m), F), f.output("z", (n, m), F)
    f.compute(y, lambda i, j: x[i, j] * x[i, j])
    f.compute(z, lambda i, j: y[i, j] + x[i, j])
    return f.build()


def scaled_norm(n: DimLike, m: DimLike) -> PrimFunc:
    """A norm with its reciprocal as a stage of its own."""
    f = ProgramBuilder("scaled_norm")
    x, z = f.input("x", (n, m), F), f.output("z", (n, m), F)
    s, r = f.temp("s", (n, 1), F), f.temp("r", (n, 1), F)
    f.reduce(s, (m,), Combine.SUM, lambda i, o, j: x[i, j] * x[i, j])
    f.compute(r, lambda i, o: call(Intrinsic.RSQRT, s[i, o] + const(1e-3, F)))
    f.compute(z, lambda i, j: x[i, j] * r[i, const(0)])
    return f.build()
