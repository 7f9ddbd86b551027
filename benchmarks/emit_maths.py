"""Speed of the vector functions in elements per nanosecond (16384 elements, in cache) and their measured errors."""

from __future__ import annotations

import sys
import time

import numpy as np

from relaxir.sym import dim
from relaxir.tir import Binary, BinOp, Buffer, For, ForKind, PrimFunc, Size, Store, Var, const
from tests.backends.emit_harness import Jit
from tests.backends.test_vmath import CASES, kernel, ulps

SIZE = 16384


def main() -> None:
    target = sys.argv[1] if len(sys.argv) > 1 else "native"
    funcs = {fn.value: kernel(fn, ForKind.VECTOR) for fn in CASES}
    n = dim("n")
    x, y, i = Buffer("x", (n,), "float32"), Buffer("y", (n,), "float32"), Var("i")
    funcs["pow"] = PrimFunc(
        (x, y), For(i, Size(n), Store(y, (i,), Binary(BinOp.POW, x[i], const(1.7, "float32"))), ForKind.VECTOR), (n,), 1
    )
    start = time.perf_counter()
    jit = Jit(funcs, target)
    print(f"{len(funcs)} kernels, {len(jit.text)} bytes, {1e3 * (time.perf_counter() - start):.0f} ms")
    rng = np.random.default_rng(0)
    for name in funcs:
        data = rng.uniform(0.01, 6, SIZE).astype(np.float32)
        out = np.zeros_like(data)
        source, target_ = data.ctypes.data, out.ctypes.data
        call, ws = jit.function(name), jit.workspace.ctypes.data
        best = 1e9
        for _ in range(200):
            begin = time.perf_counter()
            for _ in range(20):
                call(ws, source, target_, SIZE)
            best = min(best, (time.perf_counter() - begin) / 20)
        note = ""
        for fn, (reference, bound, samples) in CASES.items():
            if fn.value == name:
                xs = np.concatenate(samples).astype(np.float32)
                ys = np.zeros_like(xs)
                jit(name, xs, ys)
                with np.errstate(all="ignore"):
                    errors = ulps(ys, reference(xs.astype(np.float64)))
                note = f"max {errors.max():.2f} ULP (bound {bound}), mean {errors.mean():.3f}"
        print(f"{name:8s} {SIZE / best * 1e-9:6.2f} elem/ns  {note}")


if __name__ == "__main__":
    main()
