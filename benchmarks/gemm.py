"""Scheduled matrix products ``[n, K] x [K, N]`` with packed weights, against the machine's peak and NumPy's BLAS.

Run under a timing lock, BLAS on one thread and choosing its kernels itself:
``env -u OPENBLAS_CORETYPE OPENBLAS_NUM_THREADS=1 python -m benchmarks.gemm [target [K N [configuration]]]``.
The schedule is what the compiler makes of the block form of ``matmul``; nothing here is written by hand.
"""

from __future__ import annotations

import sys
from functools import partial

import numpy as np

from benchmarks.emit_gemm import aligned, best, peak
from relaxir.backends.llvm.target import Target
from relaxir.cost import Config, RuleChooser, TargetInfo
from relaxir.schedule import pack_func, plan_of, rewrite_to_packed, schedule
from relaxir.sym import dim
from relaxir.tir import Combine, PrimFunc, ProgramBuilder
from tests.backends.emit_harness import Jit

ROWS = (1, 2, 4, 7, 16, 33, 64, 128, 512)


def matmul(depth: int, columns: int) -> PrimFunc:
    """Block form of a product with a dynamic number of rows."""
    f = ProgramBuilder("matmul")
    n = dim("n")
    x, w = f.input("x", (n, depth), "float32"), f.input("w", (depth, columns), "float32")
    y = f.output("y", (n, columns), "float32")
    f.reduce(y, (depth,), Combine.SUM, lambda i, j, k: x[i, k] * w[k, j])
    return f.build()


def main() -> None:
    """Print one line per number of rows."""
    arguments = sys.argv[1:]
    name = arguments[0] if arguments else "native"
    depth, columns = (int(a) for a in arguments[1:3]) if len(arguments) > 2 else (768, 768)
    target = Target.parse(name)
    info = TargetInfo(target.vector_bytes, target.num_vector_registers, target.has_masked, threads=1)
    func = matmul(depth, columns)
    config = Config.parse(arguments[3]) if len(arguments) > 3 else RuleChooser().choose(func, info)
    packer = schedule(pack_func(func, 1, config), info, config)
    jit = Jit({"pack": packer, "matmul": schedule(rewrite_to_packed(func, 1, config), info, config)}, name)
    top = peak(name)
    print(f"{name}: peak {top:.0f} GFLOP/s; {config}")
    weight = aligned((depth, columns))
    weight[...] = np.random.default_rng(0).standard_normal(weight.shape) / depth**0.5
    shape = tuple(int(d) for d in plan_of(func, 1).packed_type(config)[0])
    packed, space = aligned(shape), jit.workspace.ctypes.data
    jit.function("pack")(space, weight.ctypes.data, packed.ctypes.data)
    kernel = jit.function("matmul")
    for n in ROWS:
        x, y, other = aligned((n, depth)), aligned((n, columns)), aligned((n, columns))
        x[...] = np.random.default_rng(n).standard_normal(x.shape)
        call = (space, x.ctypes.data, packed.ctypes.data, y.ctypes.data, n)
        kernel(*call)
        np.testing.assert_allclose(y, x @ weight, rtol=1e-3, atol=1e-4)
        work = 2e-9 * n * depth * columns
        inner = max(1, int(0.1 / work))
        ours = work / best(partial(kernel, *call), inner=inner)
        blas = work / best(partial(np.matmul, x, weight, out=other), inner=inner)
        share = 100 * ours / top
        print(
            f"n {n:4d}  {ours:6.1f} GFLOP/s ({share:3.0f} % of peak)  NumPy {blas:6.1f}  ratio {ours / blas:.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
