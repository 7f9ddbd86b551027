"""Results as tables for a terminal, and as a record: rows of benchmarks, kernels of a profile."""

from __future__ import annotations

import os
import platform
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import metadata
from math import inf
from pathlib import Path
from statistics import geometric_mean
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from rich.table import Table

from relaxir.ir.expr import Array
from relaxir.measure.others import QUIET, Others
from relaxir.measure.peaks import Peaks
from relaxir.measure.profiles import COLUMNS, Profile, shortened
from relaxir.measure.rounds import UNCERTAIN, Comparison, Timing, interleave
from relaxir.runtime.costs import Cost
from relaxir.support.errors import ArgumentError
from relaxir.support.version import __version__

OURS: Final = "relaxir"
MARK: Final = " ?"
"""Behind a figure that varies too much between rounds."""


@dataclass(frozen=True, slots=True)
class Case:
    """One workload at fixed sizes.

    Attributes:
        name: of the workload.
        sizes: by symbol.
        ours: a call of the compiled function.
        peers: calls of others, by name; the same work on the same inputs.
        cost: of the function, or None where it is not known.
    """

    name: str
    sizes: Mapping[str, int]
    ours: Callable[[], object]
    peers: Mapping[str, Callable[[], object]] = field(default_factory=lambda: MappingProxyType({}))
    cost: Cost | None = None

    def measure(self, rounds: int, seconds: float = 0.1, tick: Callable[[], None] | None = None) -> Row:
        """Time ours and the peers in turn; operations and bytes only where the sizes at entry tell them."""
        others = Others()
        timings = interleave({OURS: self.ours, **self.peers}, rounds, seconds, tick=tick)
        try:
            cost = None if self.cost is None else self.cost(**self.sizes)
        except ArgumentError:  # a size that depends on data
            cost = None
        work = None if cost is None else (int(cost.flops), int(cost.bytes))
        busy = others.processors()
        apart = max((difference(self.ours(), call()) for call in self.peers.values()), default=None)
        return Row(self.name, self.sizes, timings.pop(OURS), timings, work, apart, busy)


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one case.

    Attributes:
        name: of the workload.
        sizes: by symbol.
        ours: our calls.
        peers: calls of others.
        work: operations and bytes of a call, where they are known.
        difference: largest difference of a result from a peer's, relative to the largest element; None without peers.
        others: processors that other programs kept busy meanwhile; None where that is not known.
    """

    name: str
    sizes: Mapping[str, int]
    ours: Timing
    peers: Mapping[str, Timing]
    work: tuple[int, int] | None = None
    difference: float | None = None
    others: float | None = None

    def ratio(self, peer: str) -> Comparison:
        """Our time over a peer's."""
        return Comparison.of(self.ours, self.peers[peer])

    @property
    def best(self) -> str:
        """The fastest peer."""
        return min(self.peers, key=lambda p: self.peers[p].median)

    def share(self, peaks: Peaks) -> float | None:
        """Least time that the machine's peaks allow over the time taken."""
        if self.work is None:
            return None
        return peaks.seconds(*self.work) / self.ours.median

    def to_json(self, peaks: Peaks) -> dict[str, Any]:
        """All figures by name; times in seconds."""
        flops, bytes_ = self.work or (None, None)
        peers = {}
        for name, timing in self.peers.items():
            ratio = self.ratio(name)
            peers[name] = {**timing.to_json(), "ratio": ratio.ratio, "interval": [ratio.low, ratio.high]}
        return {
            "name": self.name, "sizes": dict(self.sizes), **self.ours.to_json(), "flops": flops, "bytes": bytes_,
            "share": self.share(peaks), "difference": self.difference, "others": self.others, "peers": peers,
        }  # fmt: skip


def difference(ours: object, theirs: object) -> float:
    """Largest difference of two results, relative to the largest element; infinite for other shapes."""
    worst = 0.0
    a, b = _arrays(ours), _arrays(theirs)
    if [x.shape for x in a] != [x.shape for x in b]:
        return inf
    for got, want in zip(a, b, strict=True):
        if want.size:
            x, y = got.astype(np.float64), want.astype(np.float64)
            worst = max(worst, float(np.abs(x - y).max() / max(1e-6, np.abs(y).max())))
    return worst


def _arrays(result: object) -> list[Array]:
    return [np.asarray(r) for r in (result if isinstance(result, tuple | list) else (result,))]


def profile_table(profile: Profile) -> Table:
    """The kernels of a profile."""
    table = Table(title=profile.title, caption=str(profile.peaks))
    for i, name in enumerate(COLUMNS):
        table.add_column(name, justify="right" if 0 < i < len(COLUMNS) - 1 else "left")
    *kernels, outside = profile.cells()
    for name, *rest in kernels:
        table.add_row(shortened(name), *rest)
    table.add_section()
    table.add_row(*outside)
    return table


def rows_table(rows: Sequence[Row], peaks: Peaks, title: str = "") -> Table:
    """A line for each row, and the geometric means of the ratios."""
    peers = list(dict.fromkeys(p for r in rows for p in r.peers))
    table = Table(title=title or None)
    table.add_column("workload", overflow="fold")
    table.add_column("sizes", overflow="fold")
    for name in ("ms", "p10", "GFLOP/s", "GB/s", "of peak"):
        table.add_column(name, justify="right")
    for name in peers:
        table.add_column(f"{name}: ms, ratio (95 %)", justify="right")
    for row in rows:
        table.add_row(*cells(row, peaks, peers))
    means = [_mean([r for r in rows if p in r.peers], p) for p in peers]
    if peers and len(rows) > 1:
        table.add_section()
        table.add_row("geometric mean", "", "", "", "", "", "", *(f"{m:.3f}" for m in means))
    table.caption = f"{peaks}; a ratio below 1: {OURS} is faster" if peers else str(peaks)
    return table


def cells(row: Row, peaks: Peaks, peers: Iterable[str]) -> list[str]:
    """One line of the table."""
    share = row.share(peaks)
    rates = ["", ""] if row.work is None else [f"{1e-9 * w / row.ours.median:.1f}" for w in row.work]
    found = [
        row.name, " ".join(f"{n}={v}" for n, v in row.sizes.items()),
        milliseconds(row.ours.median) + MARK * row.ours.uncertain, milliseconds(row.ours.p10),
        *rates, "" if share is None else f"{share:.0%}",
    ]  # fmt: skip
    for peer in peers:
        text = ""
        if peer in row.peers:
            ratio = row.ratio(peer)
            text = f"{milliseconds(row.peers[peer].median)}, {ratio}{MARK * ratio.uncertain}"
        found.append(text)
    return found


def milliseconds(seconds: float) -> str:
    """A time with at least three digits that mean something."""
    return f"{1e3 * seconds:.3f}" if seconds >= 1e-4 else f"{1e3 * seconds:.3g}"


def doubts(rows: Sequence[Row]) -> list[str]:
    """Why the figures of a table may not be what a quiet machine gives, one line each."""
    found = []
    busy = max((r.others for r in rows if r.others is not None), default=0.0)
    if busy > QUIET:
        found.append(
            f"note: other programs kept up to {busy:.1f} processors busy meanwhile: "
            "times may be too long, and ratios are less certain"
        )
    if any(r.ours.uncertain or any(r.ratio(p).uncertain for p in r.peers) for r in rows):
        found.append(
            f"note: what is marked{MARK} varies by more than {UNCERTAIN:.0%} between rounds: "
            "take more rounds, or a quieter machine"
        )
    return found


def _mean(rows: Sequence[Row], peer: str) -> float:
    return geometric_mean(r.ratio(peer).ratio for r in rows)


def record(rows: Sequence[Row], peaks: Peaks) -> dict[str, Any]:
    """What was measured, with what, and where, for a JSON file."""
    peers = list(dict.fromkeys(p for r in rows for p in r.peers))
    return {
        "rows": [r.to_json(peaks) for r in rows],
        "means": {p: _mean([r for r in rows if p in r.peers], p) for p in peers},
        "peaks": peaks.to_json(),
        "machine": {"processor": processor(), "system": platform.platform(), "processors": os.cpu_count()},
        "versions": {"python": sys.version.split()[0], OURS: __version__, **versions(("numpy", "llvmlite", *peers))},
    }


def versions(names: Iterable[str]) -> dict[str, str]:
    """Versions of installed packages."""
    found = {}
    for name in names:
        try:
            found[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            continue
    return found


def processor() -> str:
    """The processor's name, as far as the system tells it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
    except OSError:
        lines = []
    return next((line.partition(":")[2].strip() for line in lines if line.startswith("model name")), platform.machine())
