"""Seconds spent in the named parts of a piece of work."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Clock:
    """Adds up wall time by name; the names stay in the order in which they were first used.

    Time of a part inside another counts for the inner one only.

    >>> clock = Clock()
    >>> with clock("emit"):
    ...     pass
    >>> list(clock.seconds), clock.seconds["emit"] < 1
    (['emit'], True)
    """

    seconds: dict[str, float] = field(default_factory=dict)
    """Seconds by name."""
    _inner: list[float] = field(default_factory=list, repr=False)
    """For each part that is running, outermost first, the seconds of the parts inside it."""

    @contextmanager
    def __call__(self, name: str) -> Iterator[None]:
        """Count the time of a block under ``name``, also when it fails."""
        start = time.perf_counter()
        self._inner.append(0.0)
        try:
            yield
        finally:
            seconds = time.perf_counter() - start
            self.add(name, seconds - self._inner.pop())
            if self._inner:
                self._inner[-1] += seconds

    def add(self, name: str, seconds: float) -> None:
        """Count time that was measured elsewhere."""
        self.seconds[name] = self.seconds.get(name, 0.0) + seconds
