"""The work of ``relaxir bench``: a model at many sizes, beside a peer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import relaxir as rx
from relaxir.cli.dims import Dims
from relaxir.cli.inputs import make_inputs, symbol_sizes, telling_sizes
from relaxir.cli.models import MODELS
from relaxir.cli.outputs import writing
from relaxir.ir.expr import Array
from relaxir.measure.peaks import Peaks, measure_peaks
from relaxir.measure.report import Case, Row, record
from relaxir.runtime.executable import Executable
from relaxir.support.errors import ArgumentError
from relaxir.support.optional import load as load_optional

PEERS = ("onnxruntime",)
SECONDS = 0.1  # of one turn


def check_against(model: Path, against: str | None) -> None:
    """Refuse a comparison that cannot be made, before any work.

    Raises:
        ArgumentError: a peer reads ONNX models only.
        LoadError: the peer is not installed.
    """
    if against is None:
        return
    if model.suffix.lower() not in MODELS:
        raise ArgumentError(f"--against {against} needs an ONNX model, got `{model}`", help="leave it out")
    load_optional("relaxir.measure.peers", extra="bench")


def run_bench(
    model: Path,
    exe: Executable,
    dims: Dims,
    against: str | None,
    rounds: int,
    have: Mapping[str, Array],
    seed: int,
    function: str,
    tick: Callable[[int, int], None],
) -> tuple[list[Row], Peaks]:
    """Measure a model at every combination of sizes."""
    main, signature = exe[function], exe.signatures[function]
    threads = int(exe.context.library.cdll.rx_threads())
    todo = dims.points()
    feeds = [
        {**make_inputs(signature, sizes, seed, have=have), **have} for sizes in todo
    ]  # wrong names are found before anything is timed
    peer = None
    if against is not None:
        peer = load_optional("relaxir.measure.peers", extra="bench").OnnxRuntime(model, threads)
    cost = rx.cost(exe, function)
    total = len(todo) * rounds * (1 + (peer is not None))
    done = iter(range(1, total + 1))
    rows = []
    for sizes, arrays in zip(todo, feeds, strict=True):
        theirs = {} if peer is None else {str(peer.name): peer.caller(arrays)}
        world = symbol_sizes(signature, sizes, have)
        case = Case(model.name, world, partial(main, **arrays), theirs, cost)
        with telling_sizes(signature, arrays):
            rows.append(case.measure(rounds, SECONDS, lambda: tick(next(done), total)))
    return rows, measure_peaks(threads)


def write_json(path: Path, rows: Sequence[Row], peaks: Peaks) -> None:
    """Write the figures, whole or not at all.

    Raises:
        LoadError: the file cannot be written.
    """
    with writing(path) as stream:
        stream.write(json.dumps(record(rows, peaks), indent=1).encode())
