"""Merging axes: neighbours that every access of a program walks as one contiguous run become one axis."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from itertools import pairwise

from relaxir.schedule.program import Program, Reindex, accesses_of, picking, reshape_program
from relaxir.sym import product
from relaxir.tir import Axis, Block, Buffer, Load, Prefetch, Store, Var
from relaxir.tir.visit import all_exprs, buffers_of

Pair = tuple[object, int]  # a block or a buffer, and the position of the first of two neighbours


class _Groups:
    """Neighbour pairs that can only be merged together, and whether a group may be."""

    def __init__(self) -> None:
        self._parent: dict[Pair, Pair] = {}
        self._bad: set[Pair] = set()

    def find(self, x: Pair) -> Pair:
        """Return the representative of the group of ``x``."""
        while self._parent.get(x, x) != x:
            x = self._parent[x]
        return x

    def join(self, x: Pair, y: Pair) -> None:
        """Merge ``x`` only if ``y`` is merged, and the other way round."""
        a, b = self.find(x), self.find(y)
        self._parent.setdefault(x, x)
        self._parent.setdefault(y, y)
        if a != b:
            self._parent[a] = b
            if a in self._bad:
                self._bad.add(b)

    def forbid(self, x: Pair) -> None:
        """Never merge ``x``."""
        self._parent.setdefault(x, x)
        self._bad.add(self.find(x))

    def merged(self, x: Pair) -> bool:
        """Whether ``x`` is to be merged."""
        return x in self._parent and self.find(x) not in self._bad


def _constrain(groups: _Groups, block: Block, private: frozenset[Buffer]) -> None:
    """Record which neighbours of one block must merge together, and which must not."""
    accesses = accesses_of(block)
    position = {a.var: n for n, a in enumerate(block.axes)}
    direct = Counter(i for access in accesses for i in access.indices if isinstance(i, Var))
    total = Counter(e for e in all_exprs(block) if isinstance(e, Var))
    for n, (a, b) in enumerate(pairwise(block.axes)):
        indexes_only = all(total[x.var] == direct[x.var] for x in (a, b))
        adjacent = all(_adjacent(access, a.var, b.var, private) for access in accesses)
        if a.kind is not b.kind or not indexes_only or not adjacent:
            groups.forbid((block, n))
    for access in accesses:
        for d, (x, y) in enumerate(pairwise(access.indices)):
            n = position.get(x, -2) if isinstance(x, Var) else -2
            tied = isinstance(y, Var) and position.get(y) == n + 1
            if tied and access.buffer.shape[d + 1] == block.axes[n + 1].extent:
                groups.join((access.buffer, d), (block, n))
                continue
            groups.forbid((access.buffer, d))
            if tied:
                groups.forbid((block, n))


def _adjacent(access: Load | Store | Prefetch, a: Var, b: Var, private: frozenset[Buffer]) -> bool:
    """Whether an access uses neither variable, or both as neighbouring indices of a buffer that may be reshaped."""
    first = {d + 1 for d, x in enumerate(access.indices) if x is a}
    return first == {d for d, x in enumerate(access.indices) if x is b} and not (first and access.buffer in private)


def _runs(owner: object, count: int, groups: _Groups) -> tuple[tuple[int, ...], ...]:
    runs: list[tuple[int, ...]] = []
    for n in range(count):
        if n and groups.merged((owner, n - 1)):
            runs[-1] = (*runs[-1], n)
        else:
            runs.append((n,))
    return tuple(runs)


def merge_axes(program: Program) -> Program:
    """Merge neighbouring axes that every access of the program walks as one contiguous run.

    before: ``block (i < n, j < 4): y[i, j] = x[i, j] + 1``; after: ``block (i < n * 4): y[i] = x[i] + 1``
    """
    memory = (*program.params, *program.temps)
    groups = _groups_of(program, memory)
    buffers: dict[Buffer, Buffer] = {}
    indices: dict[Buffer, Reindex] = {}
    for b in memory:
        runs = _runs(b, len(b.shape), groups)
        if len(runs) != len(b.shape):
            buffers[b] = replace(b, shape=tuple(product(b.shape[d] for d in run) for run in runs))
            indices[b] = picking([run[0] for run in runs])
    if not buffers:
        return program
    changed = tuple(_merge_block(s, groups) if isinstance(s, Block) else s for s in program.stages)
    return reshape_program(replace(program, stages=changed), buffers, indices)


def _groups_of(program: Program, memory: Collection[Buffer]) -> _Groups:
    """Which neighbouring axes merge: those of blocks as their accesses allow, none of what other stages access."""
    groups = _Groups()
    for s in program.stages:
        if isinstance(s, Block):
            _constrain(groups, s, frozenset(b for b in buffers_of(s) if b not in memory))
            continue
        for b in buffers_of(s):
            for d in range(len(b.shape) - 1):
                groups.forbid((b, d))
    return groups


def _merge_block(block: Block, groups: _Groups) -> Block:
    axes: list[Axis] = []
    for run in _runs(block, len(block.axes), groups):
        axes.append(replace(block.axes[run[0]], extent=product(block.axes[n].extent for n in run)))
    return replace(block, axes=tuple(axes))
