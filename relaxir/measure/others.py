"""What else ran while something was measured: figures of a busy machine are less certain, and say so."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

QUIET: Final = 0.2
"""Others may keep so many processors busy before figures are doubted: any system has some work of its own."""


def busy_seconds(stat: Path = Path("/proc/stat")) -> float | None:
    """Seconds that the processors of this process have worked since the machine started; None where it is not told."""
    try:
        lines = stat.read_text().splitlines()
    except OSError:
        return None
    names = {f"cpu{n}" for n in os.sched_getaffinity(0)}
    fields = [line.split()[1:] for line in lines if line.split(" ", 1)[0] in names]
    if not fields:
        return None
    ticks = sum(sum(map(int, f[:3])) + sum(map(int, f[5:8])) for f in fields)  # user, nice, system, irqs, stolen
    return ticks / os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Others:
    """Counts from a moment on how busy other programs keep the processors that this process may use."""

    start: float = field(default_factory=time.monotonic)
    busy: float | None = field(default_factory=busy_seconds)
    own: float = field(default_factory=time.process_time)

    def processors(self) -> float | None:
        """How many processors others kept busy since then, on average; None where the system does not tell.

        Threads of this process, a peer's among them, are no others; its finished children are too short to matter.
        """
        now, busy, own = time.monotonic(), busy_seconds(), time.process_time()
        if self.busy is None or busy is None or now <= self.start:
            return None
        return max(0.0, ((busy - self.busy) - (own - self.own)) / (now - self.start))
