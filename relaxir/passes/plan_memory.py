"""Give every temporary of a host program its place in a frame.

Before:
    T.alloc_frame(lv0)
    T.call_kernel(Module.exp, (x, lv0), dims=(n,))
After:
    T.open_frame(0, size=ceildiv(n * 16, 64) * 64)
    T.alloc_frame(lv0, frame=0, offset=0)
    T.call_kernel(Module.exp, (x, lv0), dims=(n,))

Sizes are formulas in symbols that are at least 1, `n_or_1 = max(n, 1)`: `positive_extents` says why. A symbol counts as
1, too, where no temporary that it sizes is needed: all of these have no elements, or are scratch memory of kernels that
do nothing. So frames of tensors such as (0, 2**40) are small: `m_or_1 = max(m * min(n, 1), 1)`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import ClassVar, Final

from relaxir.ir.module import AnyFunc, IRModule
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.passes.layout_frame import byte_size, place
from relaxir.passes.liveness import liveness
from relaxir.support.names import UniqueNames
from relaxir.sym import Dim, DimLike, Facts, Proof, dim, free_dims, max_, mul, substitute, to_text
from relaxir.tir import (
    AllocFrame,
    Assert,
    BindDim,
    Buffer,
    CallKernel,
    ConstantData,
    For,
    If,
    OpenFrame,
    PrimFunc,
    Seq,
    Stmt,
    Together,
    While,
    as_expr,
)
from relaxir.tir.idle import Needs, happens, least, needs_of, positive
from relaxir.tir.visit import walk


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
        self.func = func
        self.programs = programs
        self.frames: list[_Frame] = []
        self.opened: dict[int, list[_Frame]] = {}  # id of the statement before which frames open
        self.home: dict[Buffer, _Frame] = {}
        self.positive: dict[DimLike, Dim] = {}
        self.needs: Mapping[DimLike, tuple[Needs, ...]] = {}
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
        extents = tuple(dict.fromkeys(e for b in self.home for e in b.shape))
        self.positive = positive_extents(extents, {s.dim.name for s in walk(body) if isinstance(s, BindDim)})
        self.needs = self.needed()
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
        for e, symbol in self.positive.items():
            if symbol in used and symbol is not e and symbol not in bound:
                bound.add(symbol)
                yield BindDim(symbol, as_expr(max_(mul(e, self.counts(e, frame.known)), symbol.min)))
        yield opening

    def needed(self) -> dict[DimLike, tuple[Needs, ...]]:
        """For each extent that has a positive symbol, what the temporaries that it sizes are needed for."""
        uses = dict(scratch_uses(self.func, self.programs))
        found: dict[DimLike, dict[Needs, None]] = {}
        for b in self.home:
            sized = dict.fromkeys(k for e in b.shape for k in ((e,) if e in self.positive else free_dims(e)))
            own = positive(b.shape)
            for needs in uses.get(b, (frozenset[DimLike](),)):
                for k in sized:
                    found.setdefault(k, {})[(own | needs) - {k}] = None
        return {k: least(all_needs) for k, all_needs in found.items()}

    def counts(self, extent: DimLike, known: frozenset[Dim]) -> DimLike:
        """1 where an extent sizes a temporary that is needed, as far as what is known tells; else at most 0."""
        facts = Facts(known)

        def told(e: DimLike) -> bool:
            return known.issuperset(free_dims(e)) and facts.prove_le(0, e) is Proof.PROVED

        found = least(frozenset(filter(told, needs)) for needs in self.needs[extent])
        return happens(found if len(found) <= MOST_NEEDS else (frozenset[DimLike].intersection(*found),))


def scratch_uses(func: PrimFunc, programs: Mapping[str, PrimFunc]) -> Iterator[tuple[Buffer, tuple[Needs, ...]]]:
    """The scratch memory of each kernel call, and what must be positive for the call to use it."""
    for call in walk(func.body):
        for c in call.calls if isinstance(call, Together) else (call,):
            if isinstance(c, CallKernel) and (scratch := programs[c.callee].workspaces):
                values = dict(zip(programs[c.callee].dims, c.dims, strict=True))
                needs = needs_of(programs[c.callee])
                uses = least(positive([substitute(e, values) for e in n]) for n in needs)
                yield from ((b, uses) for b in c.args[-scratch:])


def positive_extents(extents: Sequence[DimLike], taken: set[str]) -> dict[DimLike, Dim]:
    """For each symbol, and each extent that is more than a polynomial of symbols, a symbol that is at least 1.

    Sizes of 0 then count as 1, and quotients are opaque: that makes far more orders provable, and costs memory only
    where a size is 0.
    """
    opaque = [e for e in extents if not isinstance(e, int | Dim) and any(w in to_text(e) for w in ROUNDING)]
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


MOST_NEEDS: Final = 4
"""Ways of a symbol to be needed that its formula tells apart."""
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
        programs = module.prim_funcs()
        changed: dict[str, AnyFunc | None] = {
            name: _Planner(f, programs).plan() for name, f in programs.items() if f.is_host
        }
        return module.with_functions(changed)
