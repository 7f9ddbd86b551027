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

What a call reads and works with lives until the region ends, so it must pay: a call joins where it is short at some
size, so that a region of its own costs a noticeable part of its time, or where it has fewer iterations than there are
threads; and only if its working memory is small beside its operands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from relaxir.cost import work_of
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.passes.layout_frame import Samples, representative_sizes
from relaxir.support.dtypes import info
from relaxir.sym import mul, product, total
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
from relaxir.tir.visit import last_loops, reads_of

MOST_CALLS: Final = 8
"""Calls of one region."""
SHORT: Final = 1 << 22
"""Operations, or bytes, of a call beside which a region costs nothing: some 50 microseconds of one thread."""
BRIEF: Final = 1 << 16
"""Operations, or bytes, of a call that needs no second thread."""
PASSABLE: Final = (Alias, AllocFrame, AllocOutput, Assert, BindDim, ConstantData)
"""Statements that may run before a call that stands in front of them, if they do not read what it makes."""


def joins(kernel: PrimFunc, threads: int) -> bool:
    """Whether running a kernel beside others may pay: it is short or too narrow, and has little working memory."""
    samples = Samples(representative_sizes(kernel.dims))
    work = work_of(kernel)
    loads = tuple(map(max, samples(work.flops), samples(work.bytes)))
    operands, scratch = (
        samples(total(mul(product(b.shape), info(b.dtype).bytes) for b in buffers))
        for buffers in ((*kernel.inputs, *kernel.results), kernel.scratch)
    )
    if any(2 * own > given for own, given in zip(scratch, operands, strict=True)):
        return False
    narrow = any(n < threads and load > BRIEF for n, load in zip(widths(kernel.body, samples), loads, strict=True))
    return narrow or min(loads) <= SHORT


def widths(body: Stmt, samples: Samples) -> list[int]:
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

    def __init__(self, func: PrimFunc, kernels: Mapping[str, PrimFunc], joining: Mapping[str, bool]) -> None:
        self.kernels = kernels
        self.joining = joining
        self.memories = Memories(func)
        self.calls: list[CallKernel] = []
        self.accesses: list[Access] = []
        self.behind: list[Stmt] = []
        """What stands behind the last of the waiting calls; it moves in front of them if another call joins."""

    def statement(self, stmt: Stmt) -> Stmt:
        """A statement with groups in its bodies."""
        if isinstance(stmt, Seq):
            return Seq(tuple(self.sequence(stmt)))
        if isinstance(stmt, If):
            other = None if stmt.other is None else self.statement(stmt.other)
            return replace(stmt, then=self.statement(stmt.then), other=other)
        return replace(stmt, body=self.statement(stmt.body)) if isinstance(stmt, For | While) else stmt

    def sequence(self, seq: Seq) -> Iterator[Stmt]:
        """Statements of a sequence; calls wait for those that can run with them."""
        for s in seq.stmts:
            if isinstance(s, CallKernel) and self.joining[s.callee]:
                access = self.memories.access(s, self.kernels[s.callee])
                if len(self.calls) == MOST_CALLS or any(access.disturbs(a) for a in self.accesses):
                    yield from self.waiting()
                yield from self.behind
                self.behind = []
                self.calls.append(s)
                self.accesses.append(access)
            elif self.calls and isinstance(s, PASSABLE) and not self.reads_waiting(s):
                self.behind.append(s)
            else:
                yield from self.waiting()
                yield self.statement(s)
        yield from self.waiting()

    def waiting(self) -> Iterator[Stmt]:
        """The calls that wait, as one statement, and what stands behind them."""
        if self.calls:
            yield self.calls[0] if len(self.calls) == 1 else Together(tuple(self.calls))
        yield from self.behind
        self.calls, self.accesses, self.behind = [], [], []

    def reads_waiting(self, stmt: Stmt) -> bool:
        """Whether a statement reads what a waiting call makes."""
        read: set[Buffer] = {self.memories.of(e.buffer) for e in reads_of(stmt)}
        return any(read & a.writes for a in self.accesses)


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
        joining = {n: joins(f, threads) for n, f in kernels.items()}
        changed: dict[str, AnyFunc | None] = {
            n: replace(f, body=_Grouping(f, kernels, joining).statement(f.body))
            for n, f in programs.items()
            if f.is_host
        }
        return module.with_functions(changed)
