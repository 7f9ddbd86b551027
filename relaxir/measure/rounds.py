"""Timing several callables against each other: in turn, in one process, so that they meet the same machine."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import median
from typing import Any, Final

SETTLE: Final = 0.01
"""Seconds between two turns."""
RESAMPLES: Final = 400
"""How often rounds are drawn anew for an interval."""
UNCERTAIN: Final = 0.2
"""Figures that vary by more than this part of themselves are marked in reports."""


@dataclass(frozen=True)
class Timing:
    """Seconds of single calls, round by round."""

    rounds: tuple[tuple[float, ...], ...]

    @cached_property
    def _sorted(self) -> list[float]:
        return sorted(t for r in self.rounds for t in r)

    @property
    def median(self) -> float:
        """Median of all calls in seconds."""
        return median(self._sorted)

    @property
    def p10(self) -> float:
        """A tenth of the calls took no longer than this."""
        return self._sorted[len(self._sorted) // 10]

    @property
    def calls(self) -> int:
        """How many calls were timed."""
        return len(self._sorted)

    @property
    def uncertain(self) -> bool:
        """Whether the middle half of the rounds spans more than `UNCERTAIN` of the median."""
        medians = sorted(median(r) for r in self.rounds)
        quarter = len(medians) // 4
        return medians[-quarter - 1] - medians[quarter] > UNCERTAIN * self.median

    def to_json(self) -> dict[str, Any]:
        """Figures in seconds, by name."""
        return {
            "median": self.median,
            "p10": self.p10,
            "calls": self.calls,
            "rounds": [median(r) for r in self.rounds],
        }


@dataclass(frozen=True)
class Comparison:
    """One timing over another: below 1, ours is faster.

    Attributes:
        ratio: median over the rounds of the ratio of medians within a round.
        low: lower end of its 95 % interval, by drawing rounds anew.
        high: upper end.
    """

    ratio: float
    low: float
    high: float

    @staticmethod
    def of(ours: Timing, theirs: Timing) -> Comparison:
        """Compare timings of the same `interleave`."""
        ratios = [median(a) / median(b) for a, b in zip(ours.rounds, theirs.rounds, strict=True)]
        draw = random.Random(0)  # the same for the same figures
        found = sorted(median(draw.choices(ratios, k=len(ratios))) for _ in range(RESAMPLES))
        edge = RESAMPLES // 40
        return Comparison(median(ratios), found[edge], found[-edge - 1])

    @property
    def uncertain(self) -> bool:
        """Whether the interval is wider than `UNCERTAIN` of the ratio."""
        return self.high - self.low > UNCERTAIN * self.ratio

    def __str__(self) -> str:
        return f"{self.ratio:.2f} ({self.low:.2f}-{self.high:.2f})"


def interleave(
    calls: Mapping[str, Callable[[], object]],
    rounds: int = 9,
    seconds: float = 0.1,
    most: int = 50,
    tick: Callable[[], None] | None = None,
) -> dict[str, Timing]:
    """Time callables in short bursts, one after the other, round after round.

    Args:
        calls: what to time, by name; each is called twice before.
        rounds: how often each gets its turn.
        seconds: how long a turn may take; at least two calls are made.
        most: calls in a turn at most.
        tick: called after each turn.
    """
    found: dict[str, list[tuple[float, ...]]] = {name: [] for name in calls}
    for call in calls.values():
        call()
    for _ in range(rounds):
        for name, call in calls.items():
            time.sleep(SETTLE)  # threads of the others may still be spinning for more work
            call()  # what the others left in the caches is not ours to pay for
            found[name].append(tuple(_burst(call, seconds, most)))
            if tick is not None:
                tick()
    return {name: Timing(tuple(times)) for name, times in found.items()}


def _burst(call: Callable[[], object], seconds: float, most: int) -> Sequence[float]:
    times: list[float] = []
    end = time.perf_counter() + seconds
    while len(times) < 2 or (len(times) < most and time.perf_counter() < end):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return times
