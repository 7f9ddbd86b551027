"""Run independent kernels that stand next to one another as one parallel region.

Before:
    T.call_kernel(Module.matmul, (x, wq, q), dims=(n,))
    T.alloc_frame(k)
    T.call_kernel(Module.matmul, (x, wk, k), dims=(n,))
After:
    T.alloc_frame(k)
    with T.together():
        T.call_kernel(Module.matmul, (x, wq, q), dims=(n,))
        T.call_kernel(Module.matmul, (x, wk, k), dims=(n,))

Products that share an input (queries, keys and values) are handed to the threads once instead of once each, and every
one keeps its own weights, epilogue and result: nothing is joined, so nothing has to be taken apart. Kernels that would
each keep one thread busy, such as the two directions of a recurrent layer, run side by side.

A call joins where it can gain, at some size: it is short, so that a region of its own costs a noticeable part of its
time, or it has fewer iterations than there are threads. It must compute much more than it reads and writes, since a
second thread has to fetch from the first one's caches what another kernel has just made; and its working memory, which
lives as long as that of the others, must be small beside its operands.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import numpy as np

from relaxir.cost import work_of
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.passes.layout_frame import Samples, representative_sizes
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, mul, product, total
from relaxir.tir import (
    Alias,
    AllocFrame,
    AllocOutput,
    Assert,
    BindDim,
    Buffer,
    CallKernel,
    ConstantData,
    For,
    ForKind,
    If,
    PrimFunc,
    Seq,
    Stmt,
    Together,
    While,
)
from relaxir.tir.access import as_dim
from relaxir.tir.aliasing import Access, Memories
from relaxir.tir.visit import last_loops, reads_of, walk

MOST_CALLS: Final = 8
"""Calls of one region."""
SHORT: Final = 1 << 22
"""Operations, or bytes, of a call beside which a region costs nothing: some 50 microseconds of one thread."""
BRIEF: Final = 1 << 16
"""Operations, or bytes, of a call that needs no second thread."""
INTENSE: Final = 8
"""Operations for each byte that is read or written beside constants."""
PASSABLE: Final = (Alias, AllocFrame, AllocOutput, Assert, BindDim, CallKernel, ConstantData)
"""Statements that may run before a call that stands in front of them, if they do not depend on each other."""
MOST_PASSED: Final = 4
"""Calls that one which waits lets pass: what it reads lives longer for them."""


@dataclass(frozen=True, slots=True)
class _Merits:
    """What a kernel would bring to a group."""

    joins: bool
    """Running it beside others may pay, at one of the representative sizes."""
    narrow: bool
    """It has fewer iterations than there are threads, at one of them."""


def merits(kernel: PrimFunc, constants: frozenset[int], threads: int) -> _Merits:
    """Judge a kernel at representative sizes.

    Args:
        kernel: a scheduled program.
        constants: positions of its parameters that are constants: each thread has its share of them in its caches.
        threads: how many threads share a region.
    """
    samples = Samples(representative_sizes(kernel.dims), np.float64)
    work = work_of(kernel)
    operands = (*kernel.inputs, *kernel.results)
    moved = samples(bytes_of(b for i, b in enumerate(operands) if i not in constants))
    given, scratch = samples(bytes_of(operands)), samples(bytes_of(kernel.scratch))
    lean = all(2 * own <= all_ for own, all_ in zip(scratch, given, strict=True))
    flops = samples(work.flops)
    loads = tuple(map(max, flops, samples(work.bytes)))
    few = [n < threads and load > BRIEF for n, load in zip(widths(kernel.body, samples), loads, strict=True)]
    gains = (load <= SHORT or narrow for load, narrow in zip(loads, few, strict=True))
    pays = any(g and f >= INTENSE * m for g, f, m in zip(gains, flops, moved, strict=True))
    return _Merits(lean and pays, any(few))


def bytes_of(buffers: Iterable[Buffer]) -> DimLike:
    """Size of some buffers."""
    return total(mul(product(b.shape), info(b.dtype).bytes) for b in buffers)


def widths(body: Stmt, samples: Samples) -> list[float]:
    """For each of the sizes the iterations of the widest parallel loop that ends a kernel, 1 where there is none."""
    found = [samples(1)]
    for loop in last_loops(body):
        extents = [as_dim(loop.extent)]
        while isinstance(loop.body, For) and loop.body.kind is ForKind.PARALLEL:
            loop = loop.body
            extents.append(as_dim(loop.extent))
        found.append(samples(product(1 if e is None else e for e in extents)))
    return [max(at) for at in zip(*found, strict=True)]


class _Grouping:
    """Rebuilds the statements of one host program."""

    def __init__(self, func: PrimFunc, kernels: Mapping[str, PrimFunc], threads: int) -> None:
        self.kernels = kernels
        self.threads = threads
        self.memories = Memories(func)
        self.constants = {s.buffer for s in walk(func.body) if isinstance(s, ConstantData)}
        self.known: dict[tuple[str, frozenset[int]], _Merits] = {}
        self.calls: list[CallKernel] = []
        self.accesses: list[Access] = []
        self.behind: list[Stmt] = []
        """What stands behind the last of the waiting calls; it moves in front of them if another call joins."""

    def merits(self, call: CallKernel) -> _Merits:
        """What a call would bring to a group."""
        key = call.callee, frozenset(i for i, b in enumerate(call.args) if b in self.constants)
        if key not in self.known:
            self.known[key] = merits(self.kernels[call.callee], key[1], self.threads)
        return self.known[key]

    def statement(self, stmt: Stmt) -> Stmt:
        """A statement with groups in its bodies."""
        if isinstance(stmt, Seq):
            return Seq(self.aligned(list(self.sequence(stmt))))
        if isinstance(stmt, If):
            other = None if stmt.other is None else self.statement(stmt.other)
            return replace(stmt, then=self.statement(stmt.then), other=other)
        return replace(stmt, body=self.statement(stmt.body)) if isinstance(stmt, For | While) else stmt

    def sequence(self, seq: Seq) -> Iterator[Stmt]:
        """Statements of a sequence; calls wait for those that can run with them."""
        for s in seq.stmts:
            joins = isinstance(s, CallKernel) and self.merits(s).joins
            if not isinstance(s, PASSABLE) or self.full(joins) or self.disturbed(s):
                yield from self.waiting()
            if isinstance(s, CallKernel) and joins:
                yield from self.behind
                self.behind = []
                self.calls.append(s)
                self.accesses.append(self.access(s))
            elif self.calls:
                self.behind.append(s)
            else:
                yield self.statement(s)
        yield from self.waiting()

    def aligned(self, stmts: list[Stmt]) -> tuple[Stmt, ...]:
        """A sequence in which groups are handed out whole where those that follow them are."""
        following: Together | None = None
        for place in reversed(range(len(stmts))):
            s = stmts[place]
            if isinstance(s, Together):
                if following is not None and self.feeds(s, following):
                    s = stmts[place] = replace(s, whole=True)
                following = s
        return tuple(stmts)

    def feeds(self, first: Together, second: Together) -> bool:
        """Whether each call of a group is too narrow to be cut, and reads what one call of another group makes."""
        if len(first.calls) != len(second.calls) or not all(self.merits(c).narrow for c in second.calls):
            return False
        made = [self.access(c).writes for c in first.calls]
        return all([bool(self.access(c).reads & w) for w in made] == [k == n for k in range(len(made))]
                   for n, c in enumerate(second.calls))  # fmt: skip

    def waiting(self) -> Iterator[Stmt]:
        """The calls that wait, as one statement, and what stands behind them."""
        if self.calls:
            yield self.calls[0] if len(self.calls) == 1 else Together(tuple(self.calls))
        yield from self.behind
        self.calls, self.accesses, self.behind = [], [], []

    def full(self, joins: bool) -> bool:
        """Whether no more calls may join those that wait, or pass them."""
        passed = sum(isinstance(s, CallKernel) for s in self.behind)
        return len(self.calls) == MOST_CALLS if joins else passed == MOST_PASSED

    def access(self, stmt: Stmt) -> Access:
        """What a statement reads and writes."""
        if isinstance(stmt, CallKernel):
            return self.memories.of_call(stmt, self.kernels[stmt.callee])
        return self.memories.access(e.buffer for e in reads_of(stmt))

    def disturbed(self, stmt: Stmt) -> bool:
        """Whether a statement must stay behind the calls that wait."""
        own = self.access(stmt)
        return any(own.disturbs(a) for a in self.accesses)


@dataclass(frozen=True)
class RunTogether(Pass):
    """Put neighbouring calls that do not depend on each other into one parallel region."""

    name: ClassVar[str] = "RunTogether"
    requires: ClassVar[Level] = Level.HOST

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Group the calls of each host program."""
        threads = ctx.target.threads
        if threads < 2:
            return module
        programs = module.prim_funcs()
        kernels = {n: f for n, f in programs.items() if not f.is_host}
        changed: dict[str, AnyFunc | None] = {
            n: replace(f, body=_Grouping(f, kernels, threads).statement(f.body))
            for n, f in programs.items()
            if f.is_host
        }
        return module.with_functions(changed)
