"""Which calls of a block become one kernel.

Three kinds of calls join a group that reads them:

- a map, whose elements the readers compute where they need them (`_inlines`);
- a reduction or contraction at the head of maps that take its result point by point (`_leads`);
- a map that is cheaper to repeat than to store, which joins the group of every reader (`FusableCall.repeatable`).

Then contractions join the row operators behind them: see `relaxir.passes.fusion_rows`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from relaxir.ir.rewrite import used_vars
from relaxir.passes.fusion_calls import BlockCalls, FusableCall
from relaxir.tir.classify import Pattern

MAX_MEMBERS: Final = 24  # larger kernels gain little and run out of registers


@dataclass(eq=False)
class Group:
    """Calls that become one kernel, which stands where its root stood: the last member, whose result leaves it."""

    root: FusableCall
    members: list[FusableCall] = field(default_factory=list)

    @property
    def heavy(self) -> tuple[FusableCall, ...]:
        """The reductions and contractions in it."""
        return tuple(m for m in self.members if m.heavy)

    @property
    def in_order(self) -> tuple[FusableCall, ...]:
        """The members as they stand in the block."""
        return tuple(sorted(self.members, key=lambda m: m.position))


class Grouping:
    """The groups of one block, found from its last call to its first, so that all readers of a call are placed."""

    def __init__(self, calls: BlockCalls) -> None:
        self.calls = calls
        self.groups: dict[FusableCall, tuple[Group, ...]] = {}
        self._factors: set[FusableCall] = set()  # what contractions compute element by element, or is computed for that
        for call in reversed(calls.at.values()):
            self.groups[call] = self._homes(call) or (Group(call),)
            for group in self.groups[call]:
                group.members.append(call)

    def all(self) -> tuple[Group, ...]:
        """Every group, those of a single member too."""
        return tuple(dict.fromkeys(g for homes in self.groups.values() for g in homes))

    def merge(self, group: Group, into: Group) -> None:
        """Move the members of one group into another."""
        into.members.extend(m for m in group.members if m not in into.members)
        for m in group.members:
            self.groups[m] = tuple(dict.fromkeys(into if g is group else g for g in self.groups[m]))

    def _homes(self, call: FusableCall) -> tuple[Group, ...]:
        """The groups a call joins: that of all its readers, or each of theirs; none if it begins one of its own."""
        readers = self.calls.readers(call)
        if call.type is None:
            return ()
        homes = tuple(dict.fromkeys(g for r in readers for g in self.groups[r]))
        if len(homes) > 1 and not call.repeatable:
            return ()
        if not all(self._joins(call, [r for r in readers if g in self.groups[r]], g) for g in homes):
            return ()
        if any(r.pattern is Pattern.CONTRACTION or r in self._factors for r in readers):
            self._factors.add(call)
        return homes

    def _joins(self, call: FusableCall, readers: Sequence[FusableCall], group: Group) -> bool:
        """Whether joining a group pays and keeps the kernel in a form that `Schedule` knows."""
        if len(group.members) >= MAX_MEMBERS:
            return False
        return _leads(call, readers, group) if call.heavy else self._inlines(call, readers, group)

    def _inlines(self, call: FusableCall, readers: Sequence[FusableCall], group: Group) -> bool:
        """Whether a map had better be computed by its readers."""
        if group.heavy and call.single:
            return False  # made once, not at every step of the group's loops
        if any(r in self._factors for r in readers) and not call.pointwise:
            return False  # products want their factors as they lie
        products = [r for r in readers if r.pattern is Pattern.CONTRACTION]
        if products:  # what they read several times would be recomputed in the inner loop
            return call.pointwise and all(r.reads_once(call.var) for r in products)
        if any(r.pattern is Pattern.REDUCTION for r in readers):
            return call.pointwise and call.cheap
        return call.cheap or all(r.reads_at_own_point(call.var) for r in readers)


def _leads(call: FusableCall, readers: Sequence[FusableCall], group: Group) -> bool:
    """Whether a reduction keeps its own loops: what follows in the group must be at the same point of its result."""
    maps = all(m.pointwise for m in group.members)
    return maps and all(r.reads_at_own_point(call.var) for r in readers) and _keeps_shape(call, group)


def _keeps_shape(call: FusableCall, group: Group) -> bool:
    """Whether what a group makes of a result has the result's shape; all else in it is cheap, and will be inlined."""
    made = {call.var}
    for member in group.in_order:
        if made & set(used_vars(member.value)):
            made.add(member.var)
            if not member.same_shape(call):
                return False
        elif not member.cheap:
            return False
    return True
