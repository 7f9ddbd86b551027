"""Give every temporary of a host program its place in a frame.

Before:
    T.alloc_frame(lv0)
    T.call_kernel(Module.exp, (x, lv0), dims=(n,))
After:
    T.open_frame(0, size=ceildiv(n * 16, 64) * 64)
    T.alloc_frame(lv0, frame=0, offset=0)
    T.call_kernel(Module.exp, (x, lv0), dims=(n,))
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import ClassVar

from relaxir.ir.module import AnyFunc, IRModule
from relaxir.passes.base import Level, Pass, PassContext
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
)
from relaxir.tir.visit import walk


@dataclass(eq=False)
class _Frame:
    """Tensors whose sizes are known where the frame is opened."""

    number: int
    members: list[Buffer]


class _Planner:
    """Assigns tensors to frames, then rewrites the statements."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.frames: list[_Frame] = []
        self.opened: dict[int, list[_Frame]] = {}  # id of the statement before which frames open
        self.home: dict[Buffer, _Frame] = {}

    def assign(
        self, stmts: Sequence[Stmt], bound: frozenset[Dim], visible: tuple[tuple[frozenset[Dim], _Frame], ...]
    ) -> None:
        """Walk a statement list; ``visible`` are the frames opened on the way here, with the symbols known to each."""
        opening: Stmt | None = None
        for s in stmts:
            if isinstance(s, BindDim):
                bound = bound | {s.dim}
                opening = None
                continue
            if isinstance(s, Assert | ConstantData):
                continue
            if opening is None:
                opening = s  # a frame for what becomes known here opens before the first statement that does work
            if isinstance(s, AllocFrame):
                needs = {d for e in s.buffer.shape for d in free_dims(e)}
                frame = next((f for known, f in visible if needs <= known), None)
                if frame is None:
                    frame = _Frame(len(self.frames), [])
                    self.frames.append(frame)
                    self.opened.setdefault(id(opening), []).append(frame)
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

    def _open_early(
        self, visible: tuple[tuple[frozenset[Dim], _Frame], ...], bound: frozenset[Dim], at: Stmt, arm: Stmt
    ) -> tuple[tuple[frozenset[Dim], _Frame], ...]:
        """What a branch or loop allocates at sizes known before it goes to one frame, opened before it."""
        wanted = [s for s in walk(arm) if isinstance(s, AllocFrame)]
        if not any({d for e in s.buffer.shape for d in free_dims(e)} <= bound for s in wanted):
            return visible
        if any(known == bound for known, _ in visible):
            return visible
        frame = _Frame(len(self.frames), [])
        self.frames.append(frame)
        self.opened.setdefault(id(at), []).append(frame)
        return (*visible, (bound, frame))

    def plan(self) -> PrimFunc:
        """The program with every offset filled in."""
        body = self.func.body
        self.assign(_items(body), frozenset(self.func.dims), ())
        if not self.frames:
            return self.func
        lives = liveness(self.func).lifetimes
        dims = {d for b in self.home for e in b.shape for d in free_dims(e)}
        facts = Facts(sorted(dims, key=lambda d: d.name))
        opens: dict[int, OpenFrame] = {}
        places: dict[Buffer, AllocFrame] = {}
        for frame in self.frames:
            members = [lives[b] for b in frame.members]
            sizes = [byte_size(b.shape, b.dtype, facts) for b in frame.members]
            placement = place(members, sizes, facts)
            opens[frame.number] = OpenFrame(frame.number, placement.size)
            for b, offset in zip(frame.members, placement.offsets, strict=True):
                places[b] = AllocFrame(b, frame.number, offset)
        return replace(self.func, body=self.rewrite(body, opens, places))

    def rewrite(self, stmt: Stmt, opens: dict[int, OpenFrame], places: dict[Buffer, AllocFrame]) -> Stmt:
        """Open frames and place temporaries."""
        if isinstance(stmt, Seq):
            out: list[Stmt] = []
            for s in stmt.stmts:
                out.extend(opens[f.number] for f in self.opened.get(id(s), ()))
                out.append(self.rewrite(s, opens, places))
            return Seq(tuple(out))
        if isinstance(stmt, If):
            other = None if stmt.other is None else self.rewrite(stmt.other, opens, places)
            return If(stmt.cond, self.rewrite(stmt.then, opens, places), other)
        if isinstance(stmt, While | For):
            return replace(stmt, body=self.rewrite(stmt.body, opens, places))
        return places[stmt.buffer] if isinstance(stmt, AllocFrame) else stmt


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
        changed: dict[str, AnyFunc | None] = {
            name: _Planner(f).plan() for name, f in module.prim_funcs().items() if f.is_host
        }
        return module.with_functions(changed)
