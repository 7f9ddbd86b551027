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

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from relaxir.ir.module import AnyFunc, IRModule
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.passes.layout_frame import byte_size, place
from relaxir.passes.liveness import liveness
from relaxir.support.names import UniqueNames
from relaxir.sym import Dim, DimLike, Facts, Proof, add, dim, free_dims, max_, substitute, to_text
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
from relaxir.tir.visit import walk


@dataclass(eq=False)
class _Frame:
    """Tensors whose sizes are known where the frame is opened."""

    number: int
    members: list[Buffer]


_Visible = tuple[tuple[frozenset[Dim], _Frame], ...]
"""Frames that are open, each with the symbols that were known when it was opened."""


def _symbols(buffer: Buffer) -> set[Dim]:
    return {d for e in buffer.shape for d in free_dims(e)}


class _Planner:
    """Assigns tensors to frames, then rewrites the statements."""

    def __init__(self, func: PrimFunc) -> None:
        self.func = func
        self.frames: list[_Frame] = []
        self.opened: dict[int, list[_Frame]] = {}  # id of the statement before which frames open
        self.home: dict[Buffer, _Frame] = {}
        self.positive: dict[DimLike, Dim] = {}
        self.opens: dict[int, OpenFrame] = {}
        self.places: dict[Buffer, AllocFrame] = {}

    def assign(self, stmts: Sequence[Stmt], bound: frozenset[Dim], visible: _Visible) -> None:
        """Walk a statement list; ``visible`` are the frames opened on the way here."""
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
                needs = _symbols(s.buffer)
                frame = next((f for known, f in visible if needs <= known), None)
                if frame is None:
                    frame = self._open(opening)
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

    def _open_early(self, visible: _Visible, bound: frozenset[Dim], at: Stmt, arm: Stmt) -> _Visible:
        """What a branch or loop allocates at sizes known before it goes to one frame, opened before it."""
        if not any(isinstance(s, AllocFrame) and _symbols(s.buffer) <= bound for s in walk(arm)):
            return visible
        if any(known == bound for known, _ in visible):
            return visible
        return (*visible, (bound, self._open(at)))

    def _open(self, at: Stmt) -> _Frame:
        """A new frame that is opened before a statement."""
        frame = _Frame(len(self.frames), [])
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
        extents = tuple(dict.fromkeys(e for b in self.home for e in b.shape))
        self.positive = positive_extents(extents, {s.dim.name for s in walk(body) if isinstance(s, BindDim)})
        facts = Facts(self.positive.values())
        for frame in self.frames:
            members = [lives[b] for b in frame.members]
            shapes = [tuple(self.extent(d) for d in b.shape) for b in frame.members]
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

    def extent(self, e: DimLike) -> DimLike:
        """An extent as sizes are computed with: in positive symbols."""
        if e in self.positive:
            return self.positive[e]
        return substitute(e, {d: self.positive[d] for d in free_dims(e)})

    def open(self, frame: _Frame, bound: set[Dim]) -> Iterator[Stmt]:
        """Define what a frame's formulas use, then open it."""
        opening = self.opens[frame.number]
        used = {*free_dims(opening.size), *(s for b in frame.members for s in free_dims(self.places[b].offset or 0))}
        for e, positive in self.positive.items():
            if positive in used and positive is not e and positive not in bound:
                bound.add(positive)
                yield BindDim(positive, as_expr(max_(e, positive.min)))
        yield opening


def positive_extents(extents: Sequence[DimLike], taken: set[str]) -> dict[DimLike, Dim]:
    """For each symbol, and each extent that is more than a rising polynomial of symbols, a symbol that is at least 1.

    Sizes of 0 then count as 1, and quotients are opaque: that makes far more orders provable, and costs memory only
    where a size is 0. So are differences: with a symbol of 0 that counts as 1 they would be too small.
    """
    opaque = [e for e in extents if not isinstance(e, int | Dim) and not rises(e)]
    plain = {d: None for e in extents if e not in opaque for d in free_dims(e)}
    names = UniqueNames(taken | {d.name for e in extents for d in free_dims(e)})
    found: dict[DimLike, Dim] = {}
    for e in (*sorted(plain, key=lambda d: d.name), *opaque):
        if isinstance(e, Dim) and (e.min > 0 or e.max == 0):
            found[e] = e
            continue
        low = e.multiple_of if isinstance(e, Dim) else 1
        stem = f"{e.name}_or_{low}" if isinstance(e, Dim) else "extent"
        high = e.max if isinstance(e, Dim) else None
        symbol = dim(names.add(stem), min=low, max=high, multiple_of=low)
        found[e] = symbol
    return found


def rises(extent: DimLike) -> bool:
    """Whether an extent is a polynomial that grows, or stays, with each of its symbols."""
    text = to_text(extent)
    if any(w in text for w in ROUNDING):
        return False
    facts = Facts(free_dims(extent))
    return "-" not in text or all(
        facts.prove_le(extent, substitute(extent, {d: add(d, 1)})) is Proof.PROVED for d in free_dims(extent)
    )


ROUNDING: Final = ("//", "%", "min(", "max(", "ceildiv(", "broadcast(")
"""What the text of an extent has that is more than a polynomial."""


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
