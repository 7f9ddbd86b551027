"""Give every temporary of a host program its place in a frame.

Before:
    T.alloc_frame(lv0)
    T.call_kernel(Module.exp, (x, lv0), dims=(n,))
After:
    T.open_frame(0, size=ceildiv(n * 16, 64) * 64)
    T.alloc_frame(lv0, frame=0, offset=0)
    T.call_kernel(Module.exp, (x, lv0), dims=(n,))

Symbols without a minimum stand in sizes as `relaxir.passes.frame_symbols` says: `n_or_1 = max(n, 1)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from relaxir.ir.module import AnyFunc, IRModule
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.passes.demand import demand
from relaxir.passes.frame_symbols import FrameSymbols, frame_symbols
from relaxir.passes.layout_frame import byte_size, place
from relaxir.passes.liveness import liveness
from relaxir.sym import Dim, Facts, free_dims
from relaxir.tir import (
    AllocFrame,
    Assert,
    BindDim,
    Buffer,
    ConstantData,
    For,
    If,
    OpenFrame,
    PrimFunc,
    Seq,
    Stmt,
    While,
    as_expr,
)
from relaxir.tir.visit import symbols_after, walk


@dataclass(eq=False)
class _Frame:
    """Tensors whose sizes are known where the frame is opened."""

    number: int
    known: frozenset[Dim]
    members: list[Buffer]


_Visible = tuple[tuple[frozenset[Dim], _Frame], ...]
"""Frames that are open, each with the symbols that were known when it was opened."""


def _symbols(buffer: Buffer) -> set[Dim]:
    return {d for e in buffer.shape for d in free_dims(e)}


class _Planner:
    """Assigns tensors to frames, then rewrites the statements."""

    def __init__(self, func: PrimFunc, programs: Mapping[str, PrimFunc]) -> None:
        found = demand(func, programs)
        self.func = replace(func, body=found.guarded(func.body, frozenset(func.dims)))
        self.needs = found.buffers
        self.frames: list[_Frame] = []
        self.opened: dict[int, list[_Frame]] = {}  # id of the statement before which frames open
        self.home: dict[Buffer, _Frame] = {}
        self.symbols = FrameSymbols({}, {})
        self.opens: dict[int, OpenFrame] = {}
        self.places: dict[Buffer, AllocFrame] = {}

    def assign(self, stmts: Sequence[Stmt], bound: frozenset[Dim], visible: _Visible) -> None:
        """Walk a statement list; ``visible`` are the frames opened on the way here."""
        opening: Stmt | None = None
        for s in stmts:
            if isinstance(s, Assert | ConstantData):
                continue
            if opening is None:
                opening = s  # a frame for what becomes known here opens before the first statement that does work
            if isinstance(s, AllocFrame):
                needs = _symbols(s.buffer)
                frame = next((f for known, f in visible if needs <= known), None)
                if frame is None:
                    frame = self._open(opening, bound)
                    visible = (*visible, (bound, frame))
                frame.members.append(s.buffer)
                self.home[s.buffer] = frame
            elif isinstance(s, If):
                for arm in (s.then, s.other):
                    if arm is not None:
                        self.assign(_items(arm), bound, self._open_early(visible, bound, s, arm))
            elif isinstance(s, While | For):
                self.assign(_items(s.body), bound, self._open_early(visible, bound, s, s.body))
            elif isinstance(s, Seq):
                self.assign(s.stmts, bound, visible)
            if defined := symbols_after(s):  # what they size opens behind it
                bound = bound | defined
                opening = None

    def _open_early(self, visible: _Visible, bound: frozenset[Dim], at: Stmt, arm: Stmt) -> _Visible:
        """What a branch or loop allocates at sizes known before it goes to one frame, opened before it."""
        if not any(isinstance(s, AllocFrame) and _symbols(s.buffer) <= bound for s in walk(arm)):
            return visible
        if any(known == bound for known, _ in visible):
            return visible
        return (*visible, (bound, self._open(at, bound)))

    def _open(self, at: Stmt, known: frozenset[Dim]) -> _Frame:
        """A new frame that is opened before a statement, where these symbols are known."""
        frame = _Frame(len(self.frames), known, [])
        self.frames.append(frame)
        self.opened.setdefault(id(at), []).append(frame)
        return frame

    def plan(self) -> PrimFunc:
        """The program with every offset filled in."""
        body = self.func.body
        self.assign(_items(body), frozenset(self.func.dims), ())
        if not self.frames:
            return self.func
        lives = liveness(self.func).lifetimes
        taken = {s.dim.name for s in walk(body) if isinstance(s, BindDim)} | {d.name for d in self.func.dims}
        self.symbols = frame_symbols(self.home, self.needs, taken)
        facts = Facts(self.symbols.positive.values())
        for frame in self.frames:
            members = [lives[b] for b in frame.members]
            shapes = [tuple(map(self.symbols.extent, b.shape)) for b in frame.members]
            sizes = [byte_size(s, b.dtype, facts) for s, b in zip(shapes, frame.members, strict=True)]
            placement = place(members, sizes, facts)
            self.opens[frame.number] = OpenFrame(frame.number, placement.size)
            for b, offset in zip(frame.members, placement.offsets, strict=True):
                self.places[b] = AllocFrame(b, frame.number, offset)
        return replace(self.func, body=self.rewrite(body, set()))

    def rewrite(self, stmt: Stmt, bound: set[Dim]) -> Stmt:
        """Open frames and place temporaries; ``bound`` are the positive symbols defined on the way here."""
        if isinstance(stmt, Seq):
            out: list[Stmt] = []
            for s in stmt.stmts:
                for f in self.opened.get(id(s), ()):
                    out.extend(self.open(f, bound))
                out.append(self.rewrite(s, bound))
            return Seq(tuple(out))
        if isinstance(stmt, If):
            other = None if stmt.other is None else self.rewrite(stmt.other, set(bound))
            return If(stmt.cond, self.rewrite(stmt.then, set(bound)), other)
        if isinstance(stmt, While | For):
            return replace(stmt, body=self.rewrite(stmt.body, set(bound)))
        return self.places[stmt.buffer] if isinstance(stmt, AllocFrame) else stmt

    def open(self, frame: _Frame, bound: set[Dim]) -> Iterator[Stmt]:
        """Define what a frame's formulas use, then open it."""
        opening = self.opens[frame.number]
        used = {*free_dims(opening.size), *(s for b in frame.members for s in free_dims(self.places[b].offset or 0))}
        for e, symbol in self.symbols.positive.items():
            if symbol in used and symbol is not e and symbol not in bound:
                bound.add(symbol)
                yield BindDim(symbol, as_expr(self.symbols.value(e, frame.known)))
        yield opening


def _items(stmt: Stmt) -> tuple[Stmt, ...]:
    return stmt.stmts if isinstance(stmt, Seq) else (stmt,)


@dataclass(frozen=True)
class PlanMemory(Pass):
    """Place the temporaries of every host program; sizes stay formulas in its symbols."""

    name: ClassVar[str] = "PlanMemory"
    requires: ClassVar[Level] = Level.HOST
    ensures: ClassVar[Level | None] = Level.PLANNED

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Plan each host program on its own."""
        programs = module.prim_funcs()
        changed: dict[str, AnyFunc | None] = {
            name: _Planner(f, programs).plan() for name, f in programs.items() if f.is_host
        }
        return module.with_functions(changed)
