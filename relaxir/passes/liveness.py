"""Lifetimes of the temporaries of a host program."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from relaxir.tir import Alias, AllocFrame, Buffer, For, If, Load, PrimFunc, Seq, Stmt, While
from relaxir.tir.visit import buffers_of, child_exprs, child_stmts, walk_expr


@dataclass(eq=False)
class Lifetime:
    """A frame temporary: alive from the statement that allocates it to the last one that touches its memory."""

    buffer: Buffer
    first: int
    last: int

    def meets(self, other: Lifetime) -> bool:
        """Whether both are alive at some statement."""
        return self.first <= other.last and other.first <= self.last


@dataclass
class Liveness:
    """Positions count leaf statements in program order; a loop keeps alive what its body reads from outside."""

    lifetimes: dict[Buffer, Lifetime] = field(default_factory=dict)
    roots: dict[Buffer, frozenset[Buffer]] = field(default_factory=dict)
    position: int = 0

    def visit(self, stmt: Stmt) -> None:
        """Walk a statement in order."""
        if isinstance(stmt, Seq | If):
            if isinstance(stmt, If):
                self._touch_exprs(stmt)
            for child in child_stmts(stmt):
                self.visit(child)
        elif isinstance(stmt, While | For):
            start = self.position
            self._touch_exprs(stmt)
            self.visit(stmt.body)
            self._extend(start)
        else:
            self._leaf(stmt)

    def _leaf(self, stmt: Stmt) -> None:
        self.position += 1
        if isinstance(stmt, AllocFrame):
            self.roots[stmt.buffer] = frozenset({stmt.buffer})
            self.lifetimes[stmt.buffer] = Lifetime(stmt.buffer, self.position, self.position)
            return
        if isinstance(stmt, Alias):
            known = self.roots.get(stmt.buffer, frozenset())
            self.roots[stmt.buffer] = known | self.roots.get(stmt.source, frozenset())
        for b in buffers_of(stmt):
            self._touch(b)

    def _touch(self, buffer: Buffer) -> None:
        for root in self.roots.get(buffer, ()):
            self.lifetimes[root].last = self.position

    def _touch_exprs(self, stmt: Stmt) -> None:
        self.position += 1
        for e in child_exprs(stmt):
            for x in walk_expr(e):
                if isinstance(x, Load):
                    self._touch(x.buffer)

    def _extend(self, start: int) -> None:
        for life in self.lifetimes.values():
            if life.first <= start < life.last:
                life.last = self.position


def liveness(func: PrimFunc) -> Liveness:
    """Lifetimes of every frame temporary of a host program."""
    live = Liveness()
    live.visit(func.body)
    return live


def flat_statements(stmt: Stmt) -> Iterator[Stmt]:
    """Leaf statements in program order."""
    children = child_stmts(stmt)
    if not children:
        yield stmt
    for c in children:
        yield from flat_statements(c)
