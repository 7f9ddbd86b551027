"""Programs in block form, as operators and fusion make them, for the schedule tests."""

from __future__ import annotations

from collections.abc import Sequence

from relaxir.sym import DimLike
from relaxir.tir import (
    Alloc,
    Buffer,
    Combine,
    Expr,
    For,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    Scope,
    Seq,
    Store,
    Var,
    as_expr,
    bcast,
    call,
    const,
    maximum,
    select,
)

F = "float32"


def add(n: DimLike, m: DimLike) -> PrimFunc:
    f = ProgramBuilder("add")
    x, y, z = f.input("x", (n, m), F), f.input("y", (n, m), F), f.output("z", (n, m), F)
    f.compute(z, lambda i, j: x[i, j] + y[i, j])
    return f.build()


def add_bias(n: DimLike, m: DimLike) -> PrimFunc:
    f = ProgramBuilder("add_bias")
    x, b, z = f.input("x", (n, m), F), f.input("b", (m,), F), f.output("z", (n, m), F)
    f.compute(z, lambda i, j: x[i, j] + b[j])
    return f.build()


def add_broadcast(n: DimLike, m: DimLike, k: DimLike) -> PrimFunc:
    f = ProgramBuilder("add_broadcast")
    x, y, z = f.input("x", (n, m), F), f.input("y", (n, k), F), f.output("z", (n, m), F)
    f.compute(z, lambda i, j: x[i, j] + y[i, bcast(j, k)])
    return f.build()


def transpose(n: DimLike, m: DimLike) -> PrimFunc:
    f = ProgramBuilder("transpose")
    x, z = f.input("x", (m, n), F), f.output("z", (n, m), F)
    f.compute(z, lambda i, j: x[j, i])
    return f.build()


def gather(n: DimLike, m: DimLike) -> PrimFunc:
    f = ProgramBuilder("gather")
    t, i0, z = f.input("t", (3, m), F), f.input("i", (n,), "int64"), f.output("z", (n, m), F)
    f.compute(z, lambda i, j: t[i0[i], j])
    return f.build()


def reduce(shape: Sequence[DimLike], over: Sequence[int], combine: Combine = Combine.SUM) -> PrimFunc:
    f = ProgramBuilder("reduce")
    kept = [a for a in range(len(shape)) if a not in over]
    x, z = f.input("x", shape, F), f.output("z", [shape[a] for a in kept], F)

    def value(*vs: Expr) -> Expr:
        place = dict(zip([*kept, *over], vs, strict=True))
        return x[tuple(place[a] for a in range(len(shape)))]

    f.reduce(z, [shape[a] for a in over], combine, value)
    return f.build()


def softmax(n: DimLike, m: DimLike) -> PrimFunc:
    f = ProgramBuilder("softmax")
    x, z = f.input("x", (n, m), F), f.output("z", (n, m), F)
    top, e, s = f.temp("top", (n, 1), F), f.temp("e", (n, m), F), f.temp("s", (n, 1), F)
    f.reduce(top, (m,), Combine.MAX, lambda i, o, k: x[i, k])
    f.compute(e, lambda i, j: call(Intrinsic.EXP, x[i, j] - top[i, const(0)]))
    f.reduce(s, (m,), Combine.SUM, lambda i, o, k: e[i, k])
    f.compute(z, lambda i, j: e[i, j] / s[i, const(0)])
    return f.build()


def layer_norm(b: DimLike, n: DimLike, m: int) -> PrimFunc:
    f = ProgramBuilder("layer_norm")
    x, g, z = f.input("x", (b, n, m), F), f.input("g", (m,), F), f.output("z", (b, n, m), F)
    mean, var = f.temp("mean", (b, n), F), f.temp("var", (b, n), F)
    f.reduce(mean, (m,), Combine.SUM, lambda i, j, k: x[i, j, k] * (1.0 / m))
    f.reduce(var, (m,), Combine.SUM, lambda i, j, k: (x[i, j, k] - mean[i, j]) * (x[i, j, k] - mean[i, j]) * (1.0 / m))
    f.compute(z, lambda i, j, k: (x[i, j, k] - mean[i, j]) * call(Intrinsic.RSQRT, var[i, j] + const(1e-5, F)) * g[k])
    return f.build()


def matmul(n: DimLike, k: DimLike, m: DimLike, transposed: bool = False, epilogue: bool = True) -> PrimFunc:
    f = ProgramBuilder("matmul")
    a = f.input("a", (n, k), F)
    w = f.input("w", (m, k) if transposed else (k, m), F)
    b, r = f.input("b", (m,), F), f.input("r", (n, m), F)
    z = f.output("z", (n, m), F)
    c = f.temp("c", (n, m), F) if epilogue else z
    f.reduce(c, (k,), Combine.SUM, lambda i, j, q: a[i, q] * (w[j, q] if transposed else w[q, j]))
    if epilogue:
        d = f.temp("d", (n, m), F)
        f.compute(d, lambda i, j: maximum(c[i, j] + b[j], const(0.0, F)))
        f.compute(z, lambda i, j: d[i, j] + r[i, j])
    return f.build()


def batched(b: DimLike, n: DimLike, k: DimLike, m: DimLike, transposed: bool) -> PrimFunc:
    f = ProgramBuilder("batched")
    x = f.input("x", (b, n, k), F)
    y = f.input("y", (b, m, k) if transposed else (b, k, m), F)
    z = f.output("z", (b, n, m), F)
    f.reduce(z, (k,), Combine.SUM, lambda h, i, j, q: x[h, i, q] * (y[h, j, q] if transposed else y[h, q, j]))
    return f.build()


def conv(
    n: DimLike,
    c: int,
    h: DimLike,
    w: DimLike,
    o: int,
    kernel: int,
    stride: int = 1,
    pad: int = 0,
    depthwise: bool = False,
    bias: bool = True,
) -> PrimFunc:
    f = ProgramBuilder("conv")
    oh, ow = (h + 2 * pad - kernel) // stride + 1, (w + 2 * pad - kernel) // stride + 1
    x = f.input("x", (n, c, h, w), F)
    k = f.input("w", (o, 1 if depthwise else c, kernel, kernel), F)
    b = f.input("b", (o,), F)
    z = f.output("z", (n, o, oh, ow), F)
    s = f.temp("s", (n, o, oh, ow), F) if bias else z

    def value(i: Expr, q: Expr, y: Expr, v: Expr, ic: Expr, ky: Expr, kx: Expr) -> Expr:
        at = (y * stride + ky - pad, v * stride + kx - pad)
        inside = (at[0] >= const(0)) & (at[0] < h) & (at[1] >= const(0)) & (at[1] < w)
        load = x[i, q if depthwise else ic, at[0], at[1]]
        return (select(inside, load, const(0.0, F)) if pad else load) * k[q, ic, ky, kx]

    f.reduce(s, (1 if depthwise else c, kernel, kernel), Combine.SUM, value)
    if bias:
        f.compute(z, lambda i, q, y, v: maximum(s[i, q, y, v] + b[q], const(0.0, F)))
    return f.build()


def cumsum(n: DimLike, m: DimLike) -> PrimFunc:

    f = ProgramBuilder("cumsum")
    x, z = f.input("x", (n, m), F), f.output("z", (n, m), F)

    def body(i: Expr) -> Alloc:
        cell, j = Buffer("sum", (), F, Scope.STACK), Var("j")
        step = Seq((Store(cell, (), cell[()] + x[i, j]), Store(z, (i, j), cell[()])))
        return Alloc(cell, Seq((Store(cell, (), const(0.0, F)), For(j, as_expr(m), step))))

    f.block("scan", (n,), body)
    return f.build()


def columnwise(n: DimLike, k: DimLike, m: DimLike) -> PrimFunc:
    """The lane axis is in both factors."""
    f = ProgramBuilder("columnwise")
    x, y, z = f.input("x", (n, k, m), F), f.input("y", (k, m), F), f.output("z", (n, m), F)
    f.reduce(z, (k,), Combine.SUM, lambda i, j, q: x[i, q, j] * y[q, j])
    return f.build()
