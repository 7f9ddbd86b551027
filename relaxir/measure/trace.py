"""Profiles as traces for chrome://tracing and ui.perfetto.dev (the "Trace Event Format" of Chromium)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from relaxir.measure.profiles import Profile
from relaxir.support.files import replacing


def trace_events(profile: Profile) -> list[dict[str, Any]]:
    """Calls of the function and of its kernels as complete events; times in microseconds from the first call."""
    first = profile.spans[0][0]

    def entry(name: str, begin: int, end: int, arguments: dict[str, Any]) -> dict[str, Any]:
        times = {"ts": (begin - first) / 1e3, "dur": (end - begin) / 1e3}
        return {"name": name, "ph": "X", "pid": 1, "tid": 1, **times, "args": arguments}

    found: list[dict[str, Any]] = [
        {"name": "process_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": "relaxir"}},
        {"name": "thread_name", "ph": "M", "pid": 1, "tid": 1, "args": {"name": f"{profile.function}"}},
    ]
    found += [entry(profile.function, begin, end, {"call": i}) for i, (begin, end) in enumerate(profile.spans)]
    for event in profile.events:
        work = event.place.work(event.sizes)
        found.append(
            entry(
                event.place.kernel,
                event.begin,
                event.end,
                {
                    "sizes": dict(zip(event.place.sizes, event.sizes, strict=True)),
                    "GFLOP/s": round(1e-9 * int(work.flops) / event.seconds, 2),
                    "GB/s": round(1e-9 * int(work.bytes) / event.seconds, 2),
                },
            )
        )
    return found


def write_trace(profile: Profile, path: Path) -> None:
    """Write a trace file, whole or not at all.

    Raises:
        OSError: the file cannot be written.
    """
    with replacing(path) as stream:
        stream.write(json.dumps({"traceEvents": trace_events(profile), "displayTimeUnit": "ns"}).encode())
