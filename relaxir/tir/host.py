"""Statements of host programs: what is left of a graph function after `LowerHost`.

A host program binds dimensions, checks, places temporaries in its frame, calls kernels and returns.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from relaxir.support.spans import Span
from relaxir.sym import Dim, DimLike
from relaxir.tir.buffer import Buffer
from relaxir.tir.expr import Expr
from relaxir.tir.func import PrimFunc
from relaxir.tir.stmt import Stmt

REUSE: Final = "reuse"
"""Attribute of functions and host programs: ``("2>0",)`` where the memory of input 2, if donated, may hold output 0.
Tuples count flattened."""


def reuse_pairs(func: PrimFunc) -> tuple[tuple[int, int], ...]:
    """The inputs and outputs of a host program that may share memory."""
    pairs = func.attrs.get(REUSE, ())
    return tuple((int(i), int(j)) for i, _, j in (p.partition(">") for p in pairs)) if isinstance(pairs, tuple) else ()


@dataclass(frozen=True, slots=True)
class Extent(Expr):
    """Run-time extent of one axis of an input argument (only in host programs, before the dims are bound)."""

    buffer: Buffer
    axis: int
    dtype: str = "int64"


@dataclass(frozen=True, slots=True, eq=False)
class BindDim(Stmt):
    """Define a symbolic dimension from a run-time int64 value; visible in all later statements of the function."""

    dim: Dim
    value: Expr
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class AllocFrame(Stmt):
    """Place a temporary in the function's frame.

    ``offset`` is None until `PlanMemory`; then bytes from the base of ``frame`` (frames are numbered in program
    order: one is opened at the first statement where all its sizes are known).
    """

    buffer: Buffer
    frame: int = 0
    offset: DimLike | None = None


@dataclass(frozen=True, slots=True, eq=False)
class OpenFrame(Stmt):
    """Push ``size`` bytes on the workspace stack as frame ``frame`` (popped when the function returns)."""

    frame: int
    size: DimLike


@dataclass(frozen=True, slots=True, eq=False)
class AllocOutput(Stmt):
    """Memory of result ``index``: the caller's array when one was given (its shape is checked), else from the pool."""

    buffer: Buffer
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Alias(Stmt):
    """``buffer`` names the memory of ``source`` from element ``offset`` on (reshape, contiguous slice)."""

    buffer: Buffer
    source: Buffer
    offset: DimLike = 0


@dataclass(frozen=True, slots=True, eq=False)
class Copy(Stmt):
    """Copy all bytes of ``source`` to ``target`` (equal sizes, no overlap)."""

    target: Buffer
    source: Buffer


@dataclass(frozen=True, slots=True, eq=False)
class CallKernel(Stmt):
    """Call a tensor program of the module: buffers in the order of its parameters, a value for each of its dims."""

    callee: str
    args: tuple[Buffer, ...]
    dims: tuple[DimLike, ...] = ()
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Together(Stmt):
    """Calls of which none writes what another one reads or writes: in any order, or side by side.

    ``whole`` asks that a thread takes call after call rather than a share of each: a hint, which changes no result.
    """

    calls: tuple[CallKernel, ...]
    whole: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class CallLibrary(Stmt):
    """Call ``int symbol(DLTensor* args...)`` of a foreign library; non-zero fails the call."""

    symbol: str
    args: tuple[Buffer, ...]
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class CallHost(Stmt):
    """Call a host program of the module: inputs, then results whose memory and shapes the caller provides."""

    callee: str
    args: tuple[Buffer, ...]
    outputs: tuple[Buffer, ...]
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class ConstantData(Stmt):
    """``buffer`` names constant number ``index`` of the module's constant table."""

    buffer: Buffer
    index: int


@dataclass(frozen=True, slots=True, eq=False)
class Grow(Stmt):
    """Room ``room`` has at least ``size`` bytes, its content kept.

    A room is one block of the pool that grows geometrically: for what a loop makes of unknown size. Rooms are numbered
    in the function, empty at its start, and given back when it returns.
    """

    room: int
    size: DimLike


@dataclass(frozen=True, slots=True, eq=False)
class InRoom(Stmt):
    """``buffer`` names the memory of a room from element ``offset`` on, until the room grows or is swapped."""

    buffer: Buffer
    room: int
    offset: DimLike = 0


@dataclass(frozen=True, slots=True, eq=False)
class SwapRooms(Stmt):
    """Exchange the blocks of two rooms; buffers named before stay with their block."""

    first: int
    second: int


BufferDef: TypeAlias = AllocFrame | AllocOutput | ConstantData | Alias | InRoom
"""Statements that say which memory ``buffer`` is; it is visible until the function ends."""
