"""Speed of whole-row kernels written in loop form: softmax, layer normalisation, gelu, and a plain copy-like map."""

from __future__ import annotations

import sys
import time

import numpy as np

from relaxir.sym import dim
from relaxir.tir import (
    Alloc,
    Buffer,
    Combine,
    For,
    ForKind,
    Intrinsic,
    PrimFunc,
    Scope,
    Seq,
    Size,
    Stmt,
    Store,
    Var,
    call,
    cast,
    const,
)
from tests.backends.emit_harness import Jit

n, m = dim("n"), dim("m")
x, y = Buffer("x", (n, m), "float32"), Buffer("y", (n, m), "float32")
i = Var("i")


def cell(name: str) -> Buffer:
    return Buffer(name, (), "float32", Scope.STACK)


def zero(buffer: Buffer, value: float = 0.0) -> Stmt:
    return Store(buffer, (), const(value, "float32"))


def each(body: object) -> Stmt:
    j = Var("j")
    return For(j, Size(m), body(j), ForKind.VECTOR)


def rows(body: Stmt, *extra: Buffer) -> PrimFunc:
    return PrimFunc((x, *extra, y), For(i, Size(n), body, ForKind.PARALLEL), (n, m), 1)


def softmax() -> PrimFunc:
    top, total, scale = cell("top"), cell("total"), cell("scale")
    return rows(Alloc(top, Alloc(total, Alloc(scale, Seq((
        zero(top, float("-inf")),
        each(lambda j: Store(top, (), x[i, j], Combine.MAX)),
        zero(total),
        each(lambda j: Seq((
            Store(y, (i, j), call(Intrinsic.EXP, x[i, j] - top[()])), Store(total, (), y[i, j], Combine.SUM),
        ))),
        Store(scale, (), const(1.0, "float32") / total[()]),
        each(lambda j: Store(y, (i, j), y[i, j] * scale[()])),
    ))))))  # fmt: skip


def layer_norm() -> PrimFunc:
    g, b = Buffer("g", (m,), "float32"), Buffer("b", (m,), "float32")
    mean, var, scale = cell("mean"), cell("var"), cell("scale")
    size = cast(Size(m), "float32")
    return rows(Alloc(mean, Alloc(var, Alloc(scale, Seq((
        zero(mean),
        each(lambda j: Store(mean, (), x[i, j], Combine.SUM)),
        Store(mean, (), mean[()] / size),
        zero(var),
        each(lambda j: Store(var, (), (x[i, j] - mean[()]) * (x[i, j] - mean[()]), Combine.SUM)),
        Store(scale, (), call(Intrinsic.RSQRT, var[()] / size + 1e-5)),
        each(lambda j: Store(y, (i, j), (x[i, j] - mean[()]) * scale[()] * g[j] + b[j])),
    ))))), g, b)  # fmt: skip


def gelu() -> PrimFunc:
    return rows(
        each(lambda j: Store(y, (i, j), x[i, j] * 0.5 * (call(Intrinsic.ERF, x[i, j] * 0.7071067811865476) + 1.0)))
    )


def double() -> PrimFunc:
    return rows(each(lambda j: Store(y, (i, j), x[i, j] + x[i, j])))


def main() -> None:
    target = sys.argv[1] if len(sys.argv) > 1 else "native"
    funcs = {"softmax": softmax(), "layer_norm": layer_norm(), "gelu": gelu(), "double": double()}
    start = time.perf_counter()
    jit = Jit(funcs, target)
    print(f"{len(funcs)} kernels, {len(jit.text)} bytes, {1e3 * (time.perf_counter() - start):.0f} ms")
    rng = np.random.default_rng(0)
    for name in funcs:
        for shape in ((128, 768), (512, 3072), (128, 64)):
            data, out = rng.standard_normal(shape).astype(np.float32), np.zeros(shape, np.float32)
            extra = (np.ones(shape[1], np.float32), np.zeros(shape[1], np.float32)) if name == "layer_norm" else ()
            arrays = [jit.workspace.ctypes.data, data.ctypes.data, *(e.ctypes.data for e in extra), out.ctypes.data]
            call_, best = jit.function(name), 1e9
            for _ in range(60):
                begin = time.perf_counter()
                call_(*arrays, *shape)
                best = min(best, time.perf_counter() - begin)
            print(f"{name:10s} {shape[0]:4d}x{shape[1]:<5d} {data.size / best * 1e-9:6.2f} elem/ns")


if __name__ == "__main__":
    main()
