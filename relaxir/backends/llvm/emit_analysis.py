"""Facts about loops that the emitter decides by: what is written, what accumulates, what fits lanes, what it costs."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm.emit_expr import has_load
from relaxir.support.dtypes import info
from relaxir.sym import Dim, DimLike, free_dims
from relaxir.tir.buffer import Buffer, Scope
from relaxir.tir.build import identity
from relaxir.tir.expr import (
    COMPARISONS,
    Bcast,
    Binary,
    BinOp,
    Bits,
    Call,
    Cast,
    Const,
    Expr,
    Intrinsic,
    Load,
    Select,
    Size,
    Var,
)
from relaxir.tir.stmt import (
    Alloc,
    Assert,
    Block,
    Combine,
    For,
    ForKind,
    If,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    Switch,
    While,
)
from relaxir.tir.visit import all_exprs, reads_of, stores_of, walk, walk_expr


@lru_cache(maxsize=4096)
def stored_in(stmt: Stmt) -> frozenset[Buffer]:
    """Return the buffers a statement writes."""
    return frozenset(s.buffer for s in stores_of(stmt))


def contains(stmt: Stmt, *kinds: type[Stmt]) -> bool:
    """Whether a statement of these kinds stands anywhere below."""
    return any(isinstance(s, kinds) for s in walk(stmt))


def has_parallel(stmt: Stmt) -> bool:
    """Whether a parallel loop stands anywhere below."""
    return any(isinstance(s, For) and s.kind is ForKind.PARALLEL for s in walk(stmt))


def _defined(stmt: Stmt) -> Iterator[Var]:
    for s in walk(stmt):
        if isinstance(s, For | Let):
            yield s.var
        elif isinstance(s, Block):
            yield from (a.var for a in s.axes)


def number_of(store: Store) -> Expr | None:
    """Return ``v`` where a store combines an extremum with ``v`` unless that is NaN, else None.

    The form is ``combine("max", select(isnan(v), -inf, v))``: no comparison with the neutral element changes anything,
    so it is enough that NaN loses.
    """
    value = store.value
    if store.combine not in (Combine.MAX, Combine.MIN) or not isinstance(value, Select):
        return None
    skips = isinstance(value.cond, Call) and value.cond.fn is Intrinsic.ISNAN and value.cond.arg == value.other
    return value.other if skips and value.then == identity(store.combine, store.buffer.dtype) else None


@lru_cache(maxsize=4096)
def invariant_stores(loop: For) -> tuple[Store, ...]:
    """Return the accumulating stores below ``loop`` that always hit the same element and are its only access."""
    if has_parallel(loop.body):
        return ()
    inner = set(_defined(loop))
    dims = {s.dim for s in walk(loop.body) if isinstance(s, Switch)}
    local = {s.buffer for s in walk(loop.body) if isinstance(s, Alloc)}
    read = {r.buffer for r in reads_of(loop.body)}
    stores = stores_of(loop.body)
    found = []
    for s in stores:
        if s.combine is None or s.buffer in local or s.buffer in read:
            continue
        if sum(o.buffer is s.buffer for o in stores) == 1 and not any(_mentions(i, inner, dims) for i in s.indices):
            found.append(s)
    return tuple(found)


def _mentions(expr: Expr, inner: set[Var], dims: set[Dim]) -> bool:
    for e in walk_expr(expr):
        if isinstance(e, Load) or (isinstance(e, Var) and e in inner):
            return True
        extent = e.expr if isinstance(e, Size) else e.extent if isinstance(e, Bcast) else 0
        if any(d in dims for d in free_dims(extent)):
            return True
    return False


class LaneCheck:
    """Decides whether a loop's iterations may run as the lanes of a vector."""

    def __init__(self, loop: For) -> None:
        self.varying: set[Var] = {loop.var}
        self.private: set[Buffer] = set()
        self.loads = {r.buffer for r in reads_of(loop.body)}
        self.invariant = {id(s) for s in invariant_stores(loop)}

    def varies(self, expr: Expr) -> bool:
        """Whether lanes may see different values."""
        return any(
            (isinstance(e, Var) and e in self.varying) or (isinstance(e, Load) and e.buffer in self.private)
            for e in walk_expr(expr)
        )

    def fits(self, stmt: Stmt, masked: bool = False) -> bool:
        """Whether the emitter can write ``stmt`` for vector lanes; ``masked``: under a lane-dependent condition."""
        if isinstance(stmt, Seq):
            return all(self.fits(s, masked) for s in stmt.stmts)
        if isinstance(stmt, Let):
            if self.varies(stmt.value):
                self.varying.add(stmt.var)
            return self._private_loads_fit(stmt.value) and self.fits(stmt.body, masked)
        if isinstance(stmt, For):
            return (
                not self.varies(stmt.extent) and not (masked and has_load(stmt.extent)) and self.fits(stmt.body, masked)
            )
        if isinstance(stmt, If):
            inner = masked or self.varies(stmt.cond)
            sides = (stmt.then,) if stmt.other is None else (stmt.then, stmt.other)
            return self._private_loads_fit(stmt.cond) and all(self.fits(s, inner) for s in sides)
        if isinstance(stmt, Alloc):
            self.private.add(stmt.buffer)
            return all(isinstance(d, int) for d in stmt.buffer.shape) and self.fits(stmt.body, masked)
        if isinstance(stmt, Store):
            return self._store_fits(stmt, masked)
        return isinstance(stmt, Prefetch)

    def _private_loads_fit(self, expr: Expr) -> bool:
        return not any(
            isinstance(e, Load) and e.buffer in self.private and any(self.varies(i) for i in e.indices)
            for e in walk_expr(expr)
        )

    def _store_fits(self, stmt: Store, masked: bool) -> bool:
        varied = [i for i in stmt.indices if self.varies(i)]
        if not all(self._private_loads_fit(e) for e in (*stmt.indices, stmt.value)):
            return False
        if stmt.buffer in self.private:
            return not varied
        if stmt.combine is None:
            return bool(varied) or not (masked or self.varies(stmt.value))
        if varied:
            return all(self._affine(i) for i in varied)
        return stmt.buffer not in self.loads

    def _affine(self, expr: Expr) -> bool:
        if not self.varies(expr) or isinstance(expr, Var):
            return True
        if isinstance(expr, Binary) and expr.op in (BinOp.ADD, BinOp.SUB):
            return self._affine(expr.a) and self._affine(expr.b)
        if isinstance(expr, Binary) and expr.op is BinOp.MUL:
            return self._affine(expr.a) and self._affine(expr.b) and not (self.varies(expr.a) and self.varies(expr.b))
        return False


# ---- widths and costs

_HEAVY: Final = MappingProxyType({
    Intrinsic.EXP: 22, Intrinsic.EXP_NONPOSITIVE: 18, Intrinsic.EXPM1: 28, Intrinsic.NORMAL_CDF: 30,
    Intrinsic.LOG: 30, Intrinsic.LOG1P: 40, Intrinsic.LOG2: 30,
    Intrinsic.SIN: 40, Intrinsic.COS: 40, Intrinsic.TANH: 35, Intrinsic.ERF: 40, Intrinsic.SIGMOID: 30,
    Intrinsic.SQRT: 8, Intrinsic.RSQRT: 14,
})  # fmt: skip
_LIBRARY_COST: Final = 300
MOVING: Final = 5
"""Most operations for an element of a loop that memory keeps waiting: a sum of two tensors."""
_CHEAP: Final = frozenset(
    {
        Intrinsic.NEG, Intrinsic.ABS, Intrinsic.NOT, Intrinsic.SIGN, Intrinsic.FLOOR, Intrinsic.CEIL, Intrinsic.ROUND,
        Intrinsic.TRUNC, Intrinsic.ISNAN, Intrinsic.ISINF,
    }
)  # fmt: skip


def register_bytes(dtype: str) -> int:
    """Return the bytes of a value in a register (16-bit floats are computed in 32)."""
    size = info(dtype).bytes
    return max(size, 4) if info(dtype).is_float else size


def _value_bytes(expr: Expr) -> int:
    """Return the bytes of the widest value an expression computes with; indices and loop variables do not count."""
    if isinstance(expr, Load):
        return register_bytes(expr.dtype)
    if isinstance(expr, Const | Var | Size | Bcast):
        return 1
    if isinstance(expr, Cast | Bits):
        inner = 1 if isinstance(expr.value, Var | Size | Bcast) else _value_bytes(expr.value)
        return max(register_bytes(expr.dtype), inner)
    if isinstance(expr, Binary):
        own = 1 if expr.op in COMPARISONS or expr.dtype == "int64" else register_bytes(expr.dtype)
        return max(own, _value_bytes(expr.a), _value_bytes(expr.b))
    if isinstance(expr, Call):
        return max(register_bytes(expr.dtype), _value_bytes(expr.arg))
    if isinstance(expr, Select):
        return max(_value_bytes(e) for e in (expr.cond, expr.then, expr.other))
    return 8


def element_bytes(stmt: Stmt) -> int:
    """Return the bytes of the widest element a vector loop's body works on."""
    widest = 1
    for s in stores_of(stmt):
        widest = max(widest, register_bytes(s.buffer.dtype), _value_bytes(s.value))
    return widest


def expr_cost(expr: Expr) -> int:
    """Return roughly how many simple operations an expression takes."""
    total = 0
    for e in walk_expr(expr):
        if isinstance(e, Call):
            total += 1 if e.fn in _CHEAP else _HEAVY.get(e.fn, _LIBRARY_COST) if e.dtype != "float64" else _LIBRARY_COST
        elif isinstance(e, Binary):
            total += {BinOp.DIV: 6, BinOp.POW: 80, BinOp.FLOORDIV: 10, BinOp.MOD: 10, BinOp.ATAN2: 300}.get(e.op, 1)
        elif isinstance(e, Load | Select | Cast | Bits):
            total += 1
    return total


def body_cost(stmt: Stmt) -> int:
    """Return the cost of one run of a statement without its inner loops' trip counts."""
    total = 0
    for s in walk(stmt):
        if isinstance(s, Store):
            total += 1 + expr_cost(s.value)
        elif isinstance(s, Let):
            total += expr_cost(s.value)
        elif isinstance(s, If | Assert | While):
            total += 1 + expr_cost(s.cond)
    return total


def _takes_three(store: Store) -> bool:
    """Whether a store combines an extremum in which NaN wins: three instructions for a vector."""
    extremum = store.combine in (Combine.MAX, Combine.MIN) and info(store.buffer.dtype).is_float
    return extremum and number_of(store) is None


@dataclass(frozen=True, slots=True)
class LoopFacts:
    """What a vector loop's emission depends on, found once for each loop."""

    fits: bool
    """Whether iterations may be lanes."""
    broadcasts: tuple[DimLike, ...]
    """Extents of broadcast axes that are indexed within the loop."""
    element_bytes: int
    """Bytes of the widest element."""
    registers: bool
    """Whether register buffers are accessed: their indices must become constant."""
    dtypes: frozenset[str]
    """Data types in memory."""
    copies: int
    """How many vectors to write for one iteration of the machine loop."""
    light: bool
    """Whether the loop does little but read and write memory."""


@lru_cache(maxsize=4096)
def loop_facts(loop: For) -> LoopFacts:
    """Return the facts of a loop."""
    body = loop.body
    varying = set(_defined(loop))
    broadcasts = dict.fromkeys(
        e.extent
        for e in all_exprs(body)
        if isinstance(e, Bcast) and any(isinstance(v, Var) and v in varying for v in walk_expr(e.index))
    )
    buffers = {r.buffer for r in reads_of(body)} | stored_in(body)
    cost = body_cost(body)
    copies = 1 if contains(body, For, While, Block) or cost > 60 else 2 if cost > 12 else 4
    return LoopFacts(
        LaneCheck(loop).fits(body),
        tuple(broadcasts),
        element_bytes(body),
        any(b.scope is Scope.REGISTER for b in buffers),
        frozenset(b.dtype for b in buffers),
        copies,
        cost <= MOVING and not any(_takes_three(s) for s in stores_of(body)),
    )
