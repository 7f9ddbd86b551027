"""Where the time of a call goes, kernel by kernel, beside what the kernels have to do and what the machine can do."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from statistics import median
from typing import Any

from relaxir.measure.peaks import Peaks, measure_peaks
from relaxir.runtime.events import Event
from relaxir.runtime.executable import Executable
from relaxir.support.checks import check_count, check_kind
from relaxir.support.errors import ArgumentError

COLUMNS = ("kernel", "calls", "us", "time", "GFLOP/s", "GB/s", "of peak", "limit")
"""Of a profile as a table: ``us`` and ``time`` are of all calls of the kernel within one of the function."""
WIDTH = 44  # characters of a kernel's name in a table


@dataclass(frozen=True, slots=True)
class KernelTime:
    """All calls of one kernel within one call of the function.

    Attributes:
        kernel: its name.
        calls: how often it ran.
        seconds: their time together, the median over the calls of the function.
        flops: their operations together.
        bytes: their bytes together.
    """

    kernel: str
    calls: int
    seconds: float
    flops: int
    bytes: int

    @property
    def flop_rate(self) -> float:
        """Operations a second."""
        return self.flops / self.seconds

    @property
    def byte_rate(self) -> float:
        """Bytes a second."""
        return self.bytes / self.seconds

    def share(self, peaks: Peaks) -> float:
        """Least time that the peaks allow over the time taken; above 1 where the bytes came from a nearer cache."""
        return peaks.seconds(self.flops, self.bytes) / self.seconds

    def limit(self, peaks: Peaks) -> str:
        """What bounds it: ``compute`` or ``memory``."""
        return "compute" if self.flops / peaks.flops > self.bytes / peaks.bandwidth(self.bytes) else "memory"


@dataclass(frozen=True)
class Profile:
    """Calls of one function under observation.

    Attributes:
        function: which.
        seconds: time of a call from Python, the median.
        outside: time of a call that is in no kernel, the median: the call itself, checks, memory.
        kernels: the kernels, the slowest first.
        peaks: the machine's limits.
        spans: begin and end of each call in nanoseconds.
        events: calls of kernels within all of these calls, in order.
    """

    function: str
    seconds: float
    outside: float
    kernels: tuple[KernelTime, ...]
    peaks: Peaks
    spans: tuple[tuple[int, int], ...]
    events: tuple[Event, ...]

    def cells(self) -> list[tuple[str, ...]]:
        """A line of text for each kernel, under `COLUMNS`; the last line is what is outside of them."""
        found = []
        for k in self.kernels:
            rates = (f"{1e-9 * k.flop_rate:.1f}", f"{1e-9 * k.byte_rate:.1f}", f"{k.share(self.peaks):.0%}")
            times = (f"{1e6 * k.seconds:.1f}", f"{k.seconds / self.seconds:.1%}")
            found.append((k.kernel, str(k.calls), *times, *rates, k.limit(self.peaks)))
        rest = (f"{1e6 * self.outside:.1f}", f"{self.outside / self.seconds:.1%}")
        return [*found, ("outside kernels", "", *rest, "", "", "", "")]

    @property
    def title(self) -> str:
        """The function and the time of a call."""
        return f"{self.function}: {1e3 * self.seconds:.3f} ms"

    def __str__(self) -> str:
        lines = [COLUMNS, *((shortened(name), *rest) for name, *rest in self.cells())]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        rows = [[c.rjust(w) for c, w in zip(line[1:], widths[1:], strict=True)] for line in lines]
        text = ["  ".join([line[0].ljust(widths[0]), *row]) for line, row in zip(lines, rows, strict=True)]
        return "\n".join([self.title, *(t.rstrip() for t in text), str(self.peaks)])

    def to_json(self) -> dict[str, Any]:
        """The figures, without the single events."""
        names = ("kernel", "calls", "seconds", "flops", "bytes")
        return {
            "function": self.function,
            "seconds": self.seconds,
            "kernels": [{n: getattr(k, n) for n in names} for k in self.kernels],
            "peaks": self.peaks.to_json(),
        }


def shortened(name: str) -> str:
    """A kernel's name in the width of a table: fused kernels are named after all of their parts."""
    return name if len(name) <= WIDTH else f"{name[: WIDTH // 2 - 1]}...{name[2 - WIDTH // 2 :]}"


def profile(
    exe: Executable,
    inputs: Sequence[object] | Mapping[str, object],
    function: str = "main",
    repeat: int = 20,
    peaks: Peaks | None = None,
) -> Profile:
    """Run a function of a profiling build and say where the time went.

    Args:
        exe: from ``rx.compile(..., profile=True)``, or a library exported by such a build.
        inputs: arrays in order, or by name.
        function: which function to run.
        repeat: how many calls to observe, after two that are not counted.
        peaks: the machine's limits; None: measure them.

    Raises:
        ArgumentError: a build without time stamps, or what the call itself refuses.
    """
    check_kind("exe", exe, Executable, "pass what rx.compile or rx.load gives")
    count = check_count("repeat", repeat)
    main = exe[function]
    call = partial(main, **inputs) if isinstance(inputs, Mapping) else partial(main, *inputs)
    check_profiling(exe)
    limits = measure_peaks(exe.context.library.cdll.rx_threads()) if peaks is None else peaks
    spans, events = observe(exe, call, count)
    calls = by_call(spans, events)
    seconds = [1e-9 * (end - begin) for begin, end in spans]
    rest = [s - sum(e.seconds for e in own) for s, own in zip(seconds, calls, strict=True)]
    kernels = kernel_times(calls)
    return Profile(function, median(seconds), max(0.0, median(rest)), kernels, limits, spans, events)


def check_profiling(exe: Executable) -> None:
    """Refuse a build without time stamps.

    Raises:
        ArgumentError: it is one.
    """
    if exe.facts.places is None:
        raise ArgumentError(
            "this build notes no times", help="compile with rx.compile(..., profile=True) or relaxir compile --profile"
        )


def observe(
    exe: Executable, call: Callable[[], object], count: int
) -> tuple[tuple[tuple[int, int], ...], tuple[Event, ...]]:
    """Begin and end of each of ``count`` calls, and the events in them; before that, two calls find the room needed."""
    call()
    if not exe.facts.places:  # no kernel is called anywhere
        return tuple(_timed(call) for _ in range(count)), ()
    with exe.recorder(1) as probe:
        call()
    with exe.recorder(count * probe.asked) as recorder:
        spans = tuple(_timed(call) for _ in range(count))
    return spans, tuple(recorder.events())


def _timed(call: Callable[[], object]) -> tuple[int, int]:
    begin = time.perf_counter_ns()
    call()
    return begin, time.perf_counter_ns()


def by_call(spans: Sequence[tuple[int, int]], events: Sequence[Event]) -> list[list[Event]]:
    """The events within each call."""
    found: list[list[Event]] = [[] for _ in spans]
    current = 0
    for event in events:
        while current < len(spans) - 1 and event.begin > spans[current][1]:
            current += 1
        found[current].append(event)
    return found


def kernel_times(calls: Sequence[Sequence[Event]]) -> tuple[KernelTime, ...]:
    """Sums by kernel of each call, then the medians over the calls; the slowest first."""
    found = []
    for place in dict.fromkeys(e.place.kernel for own in calls for e in own):
        runs = [run for own in calls if (run := [e for e in own if e.place.kernel == place])]
        works = [e.place.work(e.sizes) for e in runs[0]]
        flops, bytes_ = sum(int(w.flops) for w in works), sum(int(w.bytes) for w in works)
        seconds = median(sum(e.seconds for e in run) for run in runs)
        found.append(KernelTime(place, len(works), seconds, flops, bytes_))
    return tuple(sorted(found, key=lambda k: -k.seconds))
