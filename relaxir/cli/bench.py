"""The work of ``relaxir bench``: a model at many sizes, beside a peer."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product
from pathlib import Path

import relaxir as rx
from relaxir.cli.inputs import make_inputs, symbol, symbol_sizes
from relaxir.cli.models import MODELS
from relaxir.ir.expr import Array
from relaxir.measure.peaks import Peaks, measure_peaks
from relaxir.measure.report import Case, Row, record
from relaxir.runtime.executable import Executable
from relaxir.support.errors import ArgumentError, LoadError
from relaxir.support.files import replacing
from relaxir.support.optional import load as load_optional

PEERS = ("onnxruntime",)
SECONDS = 0.1  # of one turn


def parse_sweep(options: Sequence[str]) -> dict[str, tuple[int, ...]]:
    """``batch=1,8`` gives the sizes to try of a dimension.

    Raises:
        ArgumentError: no name, no whole number, or a name given twice.
    """
    found: dict[str, tuple[int, ...]] = {}
    for option in options:
        name, _, value = option.partition("=")
        sizes = value.split(",")
        if not name or not all(s.strip().isdecimal() for s in sizes):
            raise ArgumentError(f"--dim {option}: expected NAME=N or NAME=N,N,...", help="for example batch=1,8,64")
        key = symbol(name)
        if key in found:
            raise ArgumentError(f"--dim {option}: `{name}` is given twice", code="argument-name")
        found[key] = tuple(int(s) for s in sizes)
    return found


def points(sweep: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Every combination of the sizes, the last name changing fastest."""
    return [dict(zip(sweep, sizes, strict=True)) for sizes in product(*sweep.values())]


def check_against(model: Path, against: str | None) -> None:
    """Refuse a comparison that cannot be made, before any work.

    Raises:
        ArgumentError: a peer reads ONNX models only.
        LoadError: the peer is not installed.
    """
    if against is None:
        return
    if model.suffix.lower() not in MODELS:
        raise ArgumentError(f"--against {against} needs an ONNX model, got `{model}`")
    load_optional("relaxir.measure.peers", extra="bench")


def run_bench(
    model: Path,
    exe: Executable,
    sweep: Mapping[str, Sequence[int]],
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
    todo = points(sweep)
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
        rows.append(case.measure(rounds, SECONDS, lambda: tick(next(done), total)))
    return rows, measure_peaks(threads)


def write_json(path: Path, rows: Sequence[Row], peaks: Peaks) -> None:
    """Write the figures, whole or not at all.

    Raises:
        LoadError: the file cannot be written.
    """
    try:
        with replacing(path) as stream:
            stream.write(json.dumps(record(rows, peaks), indent=1).encode())
    except OSError as error:
        raise LoadError(f"cannot write `{path}`: {error.strerror or error}", code="load-path") from error
