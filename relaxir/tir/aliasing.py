"""Which buffers of a host program may lie in one memory, and what its kernel calls read and write."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from relaxir.tir.buffer import Buffer
from relaxir.tir.func import PrimFunc
from relaxir.tir.host import Alias, CallKernel, InRoom, reuse_pairs
from relaxir.tir.visit import walk


@dataclass(frozen=True, slots=True)
class Access:
    """What a statement reads and writes, each memory by one of its buffers."""

    reads: frozenset[Buffer]
    writes: frozenset[Buffer]

    def disturbs(self, other: Access) -> bool:
        """Whether the order of the two matters."""
        return bool(self.writes & (other.reads | other.writes) or other.writes & self.reads)


class Memories:
    """The memories of a host program.

    Two buffers count as one memory where one names the other's, in some branch or iteration; all rooms count as one,
    since they are swapped. Who reads an input reads the results that may lie in it, should it be donated.
    """

    def __init__(self, func: PrimFunc) -> None:
        self._parent: dict[Buffer, Buffer] = {}
        room: Buffer | None = None
        for s in walk(func.body):
            if isinstance(s, Alias):
                self._join(s.buffer, s.source)
            elif isinstance(s, InRoom):
                room = room or s.buffer
                self._join(s.buffer, room)
        self._donated: dict[Buffer, set[Buffer]] = {}
        for i, j in reuse_pairs(func):
            self._donated.setdefault(self.of(func.inputs[i]), set()).add(self.of(func.results[j]))

    def of(self, buffer: Buffer) -> Buffer:
        """The buffer that stands for the memory of another."""
        while buffer in self._parent:
            buffer = self._parent[buffer]
        return buffer

    def _join(self, a: Buffer, b: Buffer) -> None:
        a, b = self.of(a), self.of(b)
        if a is not b:
            self._parent[a] = b

    def access(self, reads: Iterable[Buffer], writes: Iterable[Buffer] = ()) -> Access:
        """What it means to read and to write some buffers."""
        read = {self.of(b) for b in reads}
        read.update(*(self._donated.get(b, ()) for b in tuple(read)))
        return Access(frozenset(read), frozenset(map(self.of, writes)))

    def of_call(self, call: CallKernel, kernel: PrimFunc) -> Access:
        """What a call reads (its inputs) and writes (results and working memory)."""
        inputs = len(kernel.inputs)
        return self.access(call.args[:inputs], call.args[inputs:])
