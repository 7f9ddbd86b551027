"""How much faster two threads are than one, on regions large enough to split.

    python -m benchmarks.scaling [--threads N] [--rounds N] [NAME ...]

Each workload is compiled twice, for one thread and for several; both run in this process, in turn, round by round. The
speed-up is the median over the rounds of the ratio within a round. Work that waits for memory cannot gain more than the
machine's memory does, which the last column shows beside it: bytes that must be read and written, per second.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from types import MappingProxyType
from typing import Any, Final

import numpy as np

import relaxir as rx
from benchmarks.rows_index import WORKS
from benchmarks.workloads import WORKLOADS
from relaxir.measure.rounds import Comparison, interleave

Array = np.ndarray[Any, Any]
SIZES: Final = MappingProxyType({
    "gemm_768_3072": ({"n": 128},),
    "mem_softmax_1000": ({"n": 1024}, {"n": 16384}),
    "mem_layernorm_768": ({"n": 1024}, {"n": 16384}),
    "mem_transpose_1024": ({"n": 1024}, {"n": 4096}),
    "mem_sum_axis0_1024": ({"n": 4096},),
    "mem_sum_axis1_1024": ({"n": 4096}, {"n": 16384}),
    "mem_chain_bcast_1024": ({"n": 1024}, {"n": 16384}),
})  # fmt: skip
"""Workloads of the suite, and the sizes at which they are measured."""
POINTS: Final = MappingProxyType({
    "cumsum_last_float32_plain": (4096, 1000),
    "cumsum_first_float32_plain": (1000, 1000),
    "argmax_last_float32": (4096, 1000),
    "argmax_first_float32": (1000, 1000),
    "topk_5": (128, 1000),
    "topk_all": (128, 1000),
    "gather_rows_384": (30522, 8, 1024),
    "gather_scalars": (50257, 1000000),
    "elements_last": (1000, 1000),
})  # fmt: skip
"""Workloads of rows and indices, and the size of each."""


@dataclass(frozen=True)
class Region:
    """A model and its operands."""

    name: str
    size: str
    model: bytes
    feeds: dict[str, Array]


def regions() -> Iterator[Region]:
    """Everything that is measured."""
    for workload in WORKLOADS:
        for sizes in SIZES.get(workload.name, ()):
            yield Region(workload.name, str(sizes["n"]), workload.model(), workload.inputs(sizes))
    for work in WORKS:
        if work.name in POINTS:
            point = POINTS[work.name]
            yield Region(work.name, "x".join(map(str, point)), work.model(), work.feeds(point))


def line(region: Region, threads: int, rounds: int) -> str:
    """Measure one region; one line of the table."""
    calls: dict[str, Callable[[], object]] = {}
    moved = sum(a.nbytes for a in region.feeds.values())
    for count in (1, threads):
        main = rx.compile(rx.from_onnx(region.model), threads=count)["main"]
        calls[str(count)] = partial(main, **region.feeds)
    out = calls["1"]()
    moved += sum(np.asarray(o).nbytes for o in (out if isinstance(out, tuple) else (out,)))
    times = interleave(calls, rounds, 0.05, 200)
    one, several = times["1"], times[str(threads)]
    gain = Comparison.of(one, several)
    rate = moved / several.median / 1e9
    micros = f"{one.median * 1e6:11.1f}{several.median * 1e6:11.1f}"
    return f"{region.name:28}{region.size:>14}{micros}  {gain!s:22}{rate:6.1f}"


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.scaling", description=__doc__)
    parser.add_argument("only", nargs="*", default=["*"], help="names of workloads; * and ? stand for others")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=7)
    options = parser.parse_args(arguments)
    print(f"{'workload':28}{'size':>14}{'us, one':>11}{f'us, {options.threads}':>11}  {'speed-up':22}{'GB/s':>6}")
    for region in regions():
        if any(fnmatch(region.name, only) for only in options.only):
            print(line(region, options.threads, options.rounds), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
