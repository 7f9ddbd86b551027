"""SGEMM with packed weights, written by hand in loop form: GFLOP/s of the emitted code against the machine's peak.

Run under a timing lock on a quiet machine: ``python -m benchmarks.emit_gemm [target]``.
"""

from __future__ import annotations

import functools
import sys
import time

import numpy as np

from relaxir.backends.llvm.target import Target
from relaxir.sym import ceildiv, dim
from relaxir.tir import (
    Alloc,
    Buffer,
    Combine,
    For,
    ForKind,
    Let,
    PrimFunc,
    Scope,
    Seq,
    Size,
    Stmt,
    Store,
    Switch,
    Var,
    as_expr,
    const,
    minimum,
)
from tests.backends.emit_harness import Jit


def gemm(k_size: int, n_size: int, rows: int, columns: int, unroll: int = 4) -> PrimFunc:
    """``c[m, n] = a[m, k] @ w`` with ``w`` packed as [n / columns][k][columns], tiles of up to ``rows`` rows."""
    m = dim("m", min=1)
    r = dim("r", min=1)
    panels = n_size // columns
    a, w = Buffer("a", (m, k_size), "float32"), Buffer("w", (panels, k_size, columns), "float32")
    c = Buffer("c", (m, n_size), "float32")
    p, t, k, first = Var("p"), Var("t"), Var("k"), Var("first")
    acc = Buffer("acc", (r, columns), "float32", Scope.REGISTER)

    def tile(body: object) -> Stmt:
        i, j = Var("i"), Var("j")
        inner = For(j, const(columns), body(i, j), ForKind.VECTOR)
        return For(i, Size(r), inner, ForKind.UNROLL)

    step = tile(lambda i, j: Store(acc, (i, j), a[first + i, k] * w[p, k, j], Combine.SUM))
    kernel = Alloc(
        acc,
        Seq(
            (
                tile(lambda i, j: Store(acc, (i, j), const(0.0, "float32"))),
                For(k, const(k_size), step, ForKind.SERIAL, unroll),
                tile(lambda i, j: Store(c, (first + i, p * columns + j), acc[i, j])),
            )
        ),
    )
    tiles = ceildiv(m, rows)
    height = ceildiv(m, tiles)
    size = minimum(as_expr(height), Size(m) - first)
    body = Let(first, t * as_expr(height), Switch(size, r, 1, rows + 1, kernel))
    return PrimFunc((a, w, c), For(p, const(panels), For(t, as_expr(tiles), body), ForKind.PARALLEL), (m,), 1)


def best(call: object, repeat: int = 30, inner: int = 4) -> float:
    times = []
    for _ in range(repeat):
        start = time.perf_counter()
        for _ in range(inner):
            call()
        times.append((time.perf_counter() - start) / inner)
    return min(times)


def peak(target: str) -> float:
    """Measured GFLOP/s of fused multiply-adds between registers."""
    lanes = Target.parse(target).vector_bytes // 4
    chains = 12
    acc = Buffer("acc", (chains, lanes), "float32", Scope.REGISTER)
    x = Buffer("x", (chains, lanes), "float32")
    k = Var("k")

    def each(body: object) -> Stmt:
        i, j = Var("i"), Var("j")
        return For(i, const(chains), For(j, const(lanes), body(i, j), ForKind.VECTOR), ForKind.UNROLL)

    body = Alloc(
        acc,
        Seq(
            (
                each(lambda i, j: Store(acc, (i, j), x[i, j])),
                For(
                    k,
                    const(1 << 16),
                    each(lambda i, j: Store(acc, (i, j), acc[i, j] * acc[i, j] + acc[i, j])),
                    ForKind.SERIAL,
                    4,
                ),
                each(lambda i, j: Store(x, (i, j), acc[i, j])),
            )
        ),
    )
    jit = Jit({"peak": PrimFunc((x,), body, (), 1)}, target)
    data = np.zeros((chains, lanes), np.float32)
    call, ws = jit.function("peak"), jit.workspace.ctypes.data
    return 2.0 * chains * lanes * (1 << 16) / best(lambda: call(ws, data.ctypes.data), 20, 1) * 1e-9


def aligned(shape: tuple[int, ...]) -> np.ndarray:
    count = int(np.prod(shape))
    raw = np.zeros(count * 4 + 64, np.uint8)
    start = -raw.ctypes.data % 64
    return raw[start : start + count * 4].view(np.float32).reshape(shape)


def main() -> None:
    target = sys.argv[1] if len(sys.argv) > 1 else "native"
    wide = Target.parse(target).vector_bytes == 64
    rows, columns = (12, 32) if wide else (6, 16)
    size = 768
    top = peak(target)
    start = time.perf_counter()
    jit = Jit({"gemm": gemm(size, size, rows, columns)}, target)
    print(
        f"peak {top:.0f} GFLOP/s; tile {rows}x{columns}; {len(jit.text)} bytes of text, "
        f"compiled in {1e3 * (time.perf_counter() - start):.0f} ms"
    )
    rng = np.random.default_rng(0)
    weight = rng.standard_normal((size, size), dtype=np.float32)
    packed = aligned((size // columns, size, columns))
    packed[...] = weight.reshape(size, size // columns, columns).transpose(1, 0, 2)
    call = jit.function("gemm")
    for n in (1, 2, 4, 7, 16, 33, 64, 128, 512):
        a, c = aligned((n, size)), aligned((n, size))
        a[...] = rng.standard_normal((n, size), dtype=np.float32)
        arguments = (jit.workspace.ctypes.data, a.ctypes.data, packed.ctypes.data, c.ctypes.data, n)
        call(*arguments)
        np.testing.assert_allclose(c, a @ weight, rtol=1e-3, atol=1e-3)
        rate = 2.0 * n * size * size / best(functools.partial(call, *arguments)) * 1e-9
        print(f"n {n:4d}  {rate:6.1f} GFLOP/s  {100 * rate / top:5.1f} % of peak", flush=True)


if __name__ == "__main__":
    main()
