"""What the machine can do at most: fused multiply-adds between registers, bytes read from memory and from cache.

Measured once per process and number of threads, with kernels of the compiler's own, so that shares of these peaks say
what a kernel leaves unused of what generated code can reach.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from functools import cache, partial
from pathlib import Path
from typing import Final

import numpy as np

from relaxir.api import compile as compile_module
from relaxir.api import make_target
from relaxir.ir import BlockBuilder, TensorType, Var
from relaxir.ir.expr import Array
from relaxir.ir.module import IRModule
from relaxir.passes import LowerHost, Pipeline, PlanMemory
from relaxir.runtime.executable import CompiledFunction
from relaxir.sym import dim
from relaxir.tir import Alloc, Buffer, Combine, Expr, For, ForKind, PrimFunc, Scope, Seq, Size, Stmt, Store, const
from relaxir.tir import Var as Index

CHAINS: Final = 12  # independent accumulators: more than latency times units of any processor here
STEPS: Final = 1 << 14  # multiply-adds of each accumulator in one chunk
CHUNK: Final = 1 << 16  # bytes that a thread reads in one piece
CACHE: Final = 32 << 20  # last-level cache where the system does not tell
SECONDS: Final = 0.2  # of trying: the best call tells what the machine can, as long as one was not disturbed


@dataclass(frozen=True, slots=True)
class Peaks:
    """Limits of the machine for float32.

    Attributes:
        flops: operations a second of fused multiply-adds (2 each).
        dram: bytes a second read from memory.
        cache: bytes a second read from the last-level cache.
        threads: with how many threads.
        cache_bytes: size of that cache.
    """

    flops: float
    dram: float
    cache: float
    threads: int
    cache_bytes: int = 0

    def bandwidth(self, size: int) -> float:
        """Bytes a second for work on so many bytes: the cache's where they fit in it, else memory's."""
        return self.cache if size <= self.cache_bytes else self.dram

    def seconds(self, flops: int, size: int) -> float:
        """Least time of so many operations on so many bytes."""
        return max(flops / self.flops, size / self.bandwidth(size))

    def roof(self, intensity: float, bandwidth: float) -> float:
        """Operations a second that ``intensity`` operations per byte allow at so many bytes a second."""
        return min(self.flops, intensity * bandwidth)

    def __str__(self) -> str:
        return (
            f"threads: {self.threads}; peaks measured here: {1e-9 * self.flops:.0f} GFLOP/s, "
            f"{1e-9 * self.dram:.1f} GB/s from memory, {1e-9 * self.cache:.1f} GB/s from cache"
        )

    def to_json(self) -> dict[str, float]:
        """Numbers by name."""
        return asdict(self)


@cache
def measure_peaks(threads: int) -> Peaks:
    """Measure the limits with so many threads; takes about a second."""
    lanes = make_target("native").vector_bytes // 4
    module = _module(lanes)
    exe = compile_module(module, threads=threads, pipeline=Pipeline((LowerHost(), PlanMemory())))
    work = np.zeros((4 * threads, CHAINS, lanes), np.float32)
    fma = 2.0 * work.size * STEPS / _best(partial(exe["fma"].into, [np.empty_like(work)], work))
    last = last_level_cache()
    read = exe["read"]
    far, near = (_bandwidth(read, size, lanes) for size in (max(4 * last, 64 << 20), last // 4))
    return Peaks(fma, far, near, threads, last)


def last_level_cache() -> int:
    """Bytes of the largest cache that the first processor uses."""
    sizes = [0]
    for file in Path("/sys/devices/system/cpu/cpu0/cache").glob("index*/size"):
        text = file.read_text().strip()
        unit = {"K": 1 << 10, "M": 1 << 20, "G": 1 << 30}.get(text[-1:], 0)
        if unit and text[:-1].isdecimal():
            sizes.append(int(text[:-1]) * unit)
    return min(max(sizes) or CACHE, 8 * CACHE)


def _bandwidth(read: CompiledFunction, size: int, lanes: int) -> float:
    chunks = max(1, size // CHUNK)
    data = np.ones((chunks, _steps(lanes), CHAINS, lanes), np.float32)
    out: Array = np.empty((chunks, CHAINS, lanes), np.float32)
    return data.nbytes / _best(partial(read.into, [out], data))


def _best(call: Callable[[], object]) -> float:
    """Least seconds of a call within `SECONDS`, after one that is not counted."""
    call()
    best = math.inf
    end = time.perf_counter() + SECONDS
    while True:
        start = time.perf_counter()
        call()
        stop = time.perf_counter()
        best = min(best, stop - start)
        if stop > end:
            return best


def _steps(lanes: int) -> int:
    return max(1, CHUNK // (4 * lanes * CHAINS))


def _module(lanes: int) -> IRModule:
    """The functions ``fma`` and ``read``, which call one kernel each."""
    chunks = dim("chunks")
    builder = BlockBuilder()
    shapes = {"fma": (chunks, CHAINS, lanes), "read": (chunks, _steps(lanes), CHAINS, lanes)}
    for name, shape in shapes.items():
        x = Buffer("x", shape, "float32")
        y = Buffer("y", (chunks, CHAINS, lanes), "float32")
        kernel = builder.add_func(f"{name}_kernel", _kernel(x, y, lanes))
        given = Var("x", TensorType(shape, "float32"))
        with builder.function(name, [given]):
            with builder.dataflow():
                out = builder.emit_output(
                    builder.call_tir(kernel, [given], TensorType((chunks, CHAINS, lanes), "float32"))
                )
            builder.emit_func_output(out)
    return builder.get()


def _kernel(x: Buffer, y: Buffer, lanes: int) -> PrimFunc:
    """Each chunk on its own: accumulators that multiply themselves, or add up what is read."""
    acc = Buffer("acc", (CHAINS, lanes), "float32", Scope.REGISTER)
    chunk, step = Index("chunk"), Index("step")
    reads = len(x.shape) == 4

    def each(body: Callable[[Expr, Expr], Stmt]) -> Stmt:
        i, j = Index("i"), Index("j")
        return For(i, const(CHAINS), For(j, const(lanes), body(i, j), ForKind.VECTOR), ForKind.UNROLL)

    if reads:
        first = each(lambda i, j: Store(acc, (i, j), const(0.0, "float32")))
        inner = each(lambda i, j: Store(acc, (i, j), x[chunk, step, i, j], Combine.SUM))
    else:
        first = each(lambda i, j: Store(acc, (i, j), x[chunk, i, j]))
        inner = each(lambda i, j: Store(acc, (i, j), acc[i, j] * acc[i, j] + acc[i, j]))
    loop = For(step, const(_steps(lanes) if reads else STEPS), inner, ForKind.SERIAL, 1 if reads else 4)
    last = each(lambda i, j: Store(y, (chunk, i, j), acc[i, j]))
    body = Alloc(acc, Seq((first, loop, last)))
    chunks = x.shape[0]
    return PrimFunc((x, y), For(chunk, Size(chunks), body, ForKind.PARALLEL), (dim("chunks"),), 1)
