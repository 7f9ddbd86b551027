"""What a profiling build notes down: for each call of a kernel, when it ran and at which sizes.

The library exports the variable ``rx_profile`` of three words: the address of a room of 64-bit words, how many words it
has, and how many were asked for since then. With no words in the room nothing is noted.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np

from relaxir.cost import Work
from relaxir.ir.expr import Array
from relaxir.runtime.formulas import from_texts
from relaxir.sym import evaluate

SYMBOL: Final = "rx_profile"
HEAD: Final = 3  # words of an event: the place, begin and end in nanoseconds; then the kernel's sizes


@dataclass(frozen=True)
class Place:
    """A statement of a host program whose time is noted.

    Attributes:
        kernel: what it calls.
        sizes: names of the kernel's symbols, whose values each event carries.
        flops: operations of one call, as the text of a formula in these symbols.
        bytes: bytes of one call, likewise.
    """

    kernel: str
    sizes: tuple[str, ...] = ()
    flops: str = "0"
    bytes: str = "0"

    @cached_property
    def _formulas(self) -> tuple[Any, ...]:
        return from_texts((self.flops, self.bytes), ())[0]

    def work(self, sizes: Sequence[int]) -> Work:
        """What a call at these sizes has to do."""
        world: Mapping[str, int] = dict(zip(self.sizes, sizes, strict=True))
        return Work(*(evaluate(f, world) for f in self._formulas))

    def to_json(self) -> list[Any]:
        """For a library's metadata."""
        return [self.kernel, list(self.sizes), self.flops, self.bytes]

    @staticmethod
    def from_json(data: Sequence[Any]) -> Place:
        """Inverse of `to_json`."""
        kernel, sizes, flops, bytes_ = data
        return Place(str(kernel), tuple(sizes), str(flops), str(bytes_))


@dataclass(frozen=True, slots=True)
class Event:
    """One call of a kernel; times in nanoseconds of the clock of ``time.perf_counter_ns``."""

    place: Place
    begin: int
    end: int
    sizes: tuple[int, ...]

    @property
    def seconds(self) -> float:
        """How long it took: at least the clock's nanosecond, so that rates are finite."""
        return 1e-9 * max(1, self.end - self.begin)


class Recorder:
    """Room for events; within ``with`` what runs is noted, from the beginning of the room.

    The room must outlive its library: a call in another thread may still write to it.
    """

    def __init__(self, cdll: ctypes.CDLL, places: Sequence[Place], words: int) -> None:
        self.places = tuple(places)
        self._room: Array = np.zeros(max(1, words), np.int64)
        self._slot = (ctypes.c_int64 * 3).in_dll(cdll, SYMBOL)
        self.asked = 0
        """Words that the events of the latest block needed, whether there was room for them or not."""

    @property
    def words(self) -> int:
        """Size of the room."""
        return int(self._room.size)

    def __enter__(self) -> Recorder:
        self._slot[2] = 0
        self._slot[0] = self._room.ctypes.data
        self._slot[1] = self.words
        return self

    def __exit__(self, *_: object) -> None:
        self._slot[1] = 0
        self.asked = int(self._slot[2])

    def events(self) -> Iterator[Event]:
        """What was noted in the latest block, in the order of ends."""
        words, at = self._room.tolist(), 0
        end = min(self.asked, len(words))
        while at + HEAD <= end:
            place = self.places[words[at]]
            stop = at + HEAD + len(place.sizes)
            if stop > end:
                return
            yield Event(place, words[at + 1], words[at + 2], tuple(words[at + HEAD : stop]))
            at = stop
