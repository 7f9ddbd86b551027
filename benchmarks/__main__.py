"""Measure the workloads against onnxruntime, and NumPy and torch where they are installed: ``python -m benchmarks``.

Everything runs in one process, in turn, round by round; a ratio is the median over the rounds of our time over the
peer's within a round, with its 95 % interval. Below 1 relaxir is faster. Run it on a quiet machine.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

import relaxir as rx
from benchmarks.workloads import WORKLOADS, Array, Workload
from relaxir.api import available_threads
from relaxir.measure.peaks import measure_peaks
from relaxir.measure.peers import OnnxRuntime
from relaxir.measure.report import Case, Row, doubts, record, rows_table

try:
    import torch
except ImportError:
    torch = None
try:
    from threadpoolctl import threadpool_limits
except ImportError:
    threadpool_limits = None

WIDTH = 180  # columns where there is no terminal


def peers(workload: Workload, model: bytes, arrays: list[Array]) -> dict[str, Callable[[], object]]:
    """NumPy and torch on the same inputs and weights."""
    weights = [onnx.numpy_helper.to_array(w) for w in onnx.load_from_string(model).graph.initializer]
    found: dict[str, Callable[[], object]] = {}
    if workload.numpy is not None:
        found["numpy"] = partial(workload.numpy, np, [*arrays, *weights])
    if torch is not None and workload.torch is not None:
        tensors = [torch.from_numpy(a.copy()) for a in (*arrays, *weights)]
        found["torch"] = partial(workload.torch, torch, tensors)
    return found


def measure(workload: Workload, options: argparse.Namespace, tick: Callable[[], None]) -> Iterator[Row]:
    """The rows of one workload, compiled once."""
    model = workload.model()
    exe = rx.compile(rx.from_onnx(model), threads=options.threads)
    ort = OnnxRuntime(model, options.threads)
    main, cost = exe["main"], rx.cost(exe)
    for sizes in workload.quick if options.quick else workload.points:
        feeds = workload.inputs(sizes)
        others = {"onnxruntime": ort.caller(feeds), **peers(workload, model, list(feeds.values()))}
        case = Case(workload.name, sizes, partial(main, **feeds), others, cost)
        yield case.measure(options.rounds, options.seconds)
        tick()


def parse(arguments: list[str] | None = None) -> argparse.Namespace:
    """Options of the command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("only", nargs="*", default=["*"], help="names of workloads; * and ? stand for others")
    parser.add_argument("--quick", action="store_true", help="few sizes and rounds: under three minutes")
    parser.add_argument("--threads", type=int, default=available_threads())
    parser.add_argument("--rounds", type=int, help="turns of each (default: 9, quick 5)")
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (5 if options.quick else 9)
    options.seconds = 0.05 if options.quick else 0.2
    unknown = [o for o in options.only if not any(fnmatch(w.name, o) for w in WORKLOADS)]
    if unknown:
        parser.error(f"no workload `{unknown[0]}`; there are {', '.join(w.name for w in WORKLOADS)}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Measure, print the table, write the record."""
    options = parse(arguments)
    chosen = [w for w in WORKLOADS if any(fnmatch(w.name, o) for o in options.only)]
    total = sum(len(w.quick if options.quick else w.points) for w in chosen)
    if torch is not None:
        torch.set_num_threads(options.threads)
        torch.set_grad_enabled(False)
    limits: Any = nullcontext() if threadpool_limits is None else threadpool_limits(options.threads)
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    err = Console(stderr=True)
    rows: list[Row] = []
    with limits, Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        task = bar.add_task("measuring", total=total)
        for workload in chosen:
            bar.update(task, description=workload.name)
            rows += measure(workload, options, partial(bar.advance, task))
    peaks = measure_peaks(options.threads)
    out = Console(highlight=False)
    out = out if out.is_terminal else Console(highlight=False, width=WIDTH)
    out.print(rows_table(rows, peaks), *doubts(rows), sep="\n")
    if options.json is not None:
        options.json.write_text(json.dumps(record(rows, peaks), indent=1))
        out.print(f"wrote {options.json}")
    wrong = [r for r in rows if r.difference is None or r.difference > 1e-3]
    for row in wrong:
        out.print(f"[red]{row.name} {dict(row.sizes)}: results differ from the peers' by {row.difference}")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
