"""Statements of tensor programs.

Two forms share these nodes. The *block form* (before `Schedule`) is a sequence of `Block`: each carries its own
iteration domain, as a compute stage. The *loop form* (after) has `For` nests around plain stores. Host programs (scope
``host``) add the statements of `relaxir.tir.host`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from relaxir.support.spans import Span
from relaxir.sym import Dim, DimLike
from relaxir.tir.buffer import Buffer
from relaxir.tir.expr import Expr, Var


class Stmt:
    """A statement; nodes are frozen and compared by identity (`relaxir.tir.structural_equal` compares structure)."""

    __slots__ = ()


class AxisKind(enum.Enum):
    """SPATIAL axes index what is written; REDUCE axes are combined over."""

    SPATIAL = "spatial"
    REDUCE = "reduce"


class Combine(enum.Enum):
    """How a store combines with what is there: associative, commutative."""

    SUM = "sum"
    PROD = "prod"
    MAX = "max"  # NaN wins
    MIN = "min"
    AND = "and"
    OR = "or"


class ForKind(enum.Enum):
    """What a loop promises; all but SERIAL promise independent iterations (or reductions by `Store.combine` alone)."""

    SERIAL = "serial"
    PARALLEL = "parallel"  # split over threads
    UNROLL = "unroll"  # constant extent, expanded by the backend
    VECTOR = "vector"  # the backend strip-mines by its vector width and masks the tail


@dataclass(frozen=True, slots=True, eq=False)
class Seq(Stmt):
    """Statements in order."""

    stmts: tuple[Stmt, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Axis:
    """One axis of a block's domain: ``0 <= var < extent``."""

    var: Var
    extent: DimLike
    kind: AxisKind = AxisKind.SPATIAL


@dataclass(frozen=True, slots=True, eq=False)
class Block(Stmt):
    """A compute stage: at every spatial point run ``init``, then ``body`` for every point of the reduce axes.

    Points of the spatial domain are independent (any order, any thread); reduce axes come after spatial ones. A reduce
    axis is only legal when every store in ``body`` has a ``combine``; a plain sequence (a scan) is a `For` inside
    ``body``.
    """

    name: str
    axes: tuple[Axis, ...]
    body: Stmt
    init: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class For(Stmt):
    """``for var in range(extent)``; ``unroll`` is a hint for SERIAL loops (copies of the body per iteration)."""

    var: Var
    extent: Expr
    body: Stmt
    kind: ForKind = ForKind.SERIAL
    unroll: int = 1


@dataclass(frozen=True, slots=True, eq=False)
class While(Stmt):
    """Repeat while the condition holds."""

    cond: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Store(Stmt):
    """``buffer[indices] = value``, or combined with the present element when ``combine`` is given."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    value: Expr
    combine: Combine | None = None

    def __post_init__(self) -> None:
        if len(self.indices) != len(self.buffer.shape):
            raise ValueError(
                f"buffer `{self.buffer.name}` has rank {len(self.buffer.shape)}, got {len(self.indices)} indices"
            )
        if self.value.dtype != self.buffer.dtype:
            raise ValueError(f"store of {self.value.dtype} into `{self.buffer.name}` of {self.buffer.dtype}: cast it")


@dataclass(frozen=True, slots=True, eq=False)
class Let(Stmt):
    """Name a scalar within ``body``."""

    var: Var
    value: Expr
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Alloc(Stmt):
    """A temporary buffer alive within ``body``; its content is undefined until stored."""

    buffer: Buffer
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class If(Stmt):
    """``if cond: then else: other``."""

    cond: Expr
    then: Stmt
    other: Stmt | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Switch(Stmt):
    """Specialise ``body`` for ``dim`` = low..high-1, choosing by ``value`` at run time (no case: nothing happens).

    Inside the body ``dim`` is a constant of each case: it may size register buffers and unrolled loops.
    """

    value: Expr
    dim: Dim
    low: int
    high: int
    body: Stmt


@dataclass(frozen=True, slots=True, eq=False)
class Assert(Stmt):
    """Fail the whole call with ``code`` (an error class's code) unless ``cond`` holds.

    ``message`` has one ``{}`` per value of ``args`` (int64, at most four); the first failure wins.
    """

    cond: Expr
    code: str
    message: str
    args: tuple[Expr, ...] = ()
    span: Span | None = None


@dataclass(frozen=True, slots=True, eq=False)
class Prefetch(Stmt):
    """A hint: bring the cache line of an element near (level 1..3); never faults, no effect on results."""

    buffer: Buffer
    indices: tuple[Expr, ...]
    level: int = 1
    write: bool = False
