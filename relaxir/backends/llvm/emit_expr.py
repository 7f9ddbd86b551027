"""Expressions of tensor programs, as scalars or as the lanes of a vector."""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm import emit_ops as ops
from relaxir.backends.llvm.emit_access import Accesses
from relaxir.backends.llvm.emit_cast import cast, reinterpret
from relaxir.backends.llvm.emit_env import Lane
from relaxir.backends.llvm.emit_value import Value, constant
from relaxir.support.errors import InternalError
from relaxir.tir.buffer import Scope
from relaxir.tir.expr import (
    CHEAP_INTRINSICS,
    Bcast,
    Binary,
    BinOp,
    Bits,
    Call,
    Cast,
    Const,
    Expr,
    Load,
    Select,
    Size,
    Var,
    Word,
)
from relaxir.tir.visit import walk_expr

_TRAPPING: Final = frozenset({BinOp.POW, BinOp.ATAN2})


def has_load(expr: Expr) -> bool:
    """Whether an expression reads memory."""
    return any(isinstance(e, Load) for e in walk_expr(expr))


def may_miss(expr: Expr) -> bool:
    """Whether an expression reads memory that might not be there: registers, elements at constant places always are."""
    return any(isinstance(e, Load) and not _always_there(e) for e in walk_expr(expr))


def _always_there(load: Load) -> bool:
    return load.buffer.scope is Scope.REGISTER or all(
        isinstance(i, Const) and isinstance(d, int) and 0 <= i.value < d
        for i, d in zip(load.indices, load.buffer.shape, strict=True)
    )


def needs_branch(expr: Expr) -> bool:
    """Whether an alternative must not, or should not, be computed when it is not chosen."""
    return any(
        (isinstance(e, Load) and not _always_there(e))
        or (isinstance(e, Call) and e.fn not in CHEAP_INTRINSICS)
        or (isinstance(e, Binary) and e.op in _TRAPPING)
        for e in walk_expr(expr)
    )


class Expressions(Accesses):
    """Writes expressions."""

    _memo: dict[int, tuple[Expr, Value]]
    _memo_key: tuple[object, ...] = ()
    _memo_scope: object = None

    # ---- expressions

    def eval(self, expr: Expr) -> Value:
        """Write an expression; the result is a scalar if all lanes agree on it, else a vector."""
        if isinstance(expr, Const):
            return constant(expr)
        key = (self.epoch, self.w.version, self.w.scope.serial)
        if key != self._memo_key:
            self._memo, self._memo_key = {}, key
            self._memo_scope = self.w.scope  # kept alive: the next branch must not get its id
        found = self._memo.get(id(expr))
        if found is not None:
            return found[1]
        value = self._eval(expr)
        if key == self._memo_key:
            self._memo[id(expr)] = (expr, value)
        return value

    def widened(self, expr: Expr) -> Value:
        """Write an expression as a vector (a scalar outside vector loops)."""
        return self.widen(self.eval(expr))

    def widen(self, value: Value) -> Value:
        """Return a value in all lanes."""
        return value if self.lane is None else self.w.splat(value, self.lane.width)

    def _eval(self, expr: Expr) -> Value:
        if isinstance(expr, Var):
            bound = self.bound(expr)
            return self.index(self.linear(expr)) if bound.offset or bound.lane else bound.value
        if isinstance(expr, Size | Bcast):
            return self.index(self.linear(expr))
        if isinstance(expr, Binary):
            a, b = self._same_width(self.eval(expr.a), self.eval(expr.b))
            return ops.binary(self.w, expr.op, expr.a.dtype, a, b)
        if isinstance(expr, Call):
            return ops.unary(self.w, expr.fn, expr.arg.dtype, self.eval(expr.arg))
        if isinstance(expr, Cast):
            return cast(self.w, self.eval(expr.value), expr.value.dtype, expr.dtype)
        if isinstance(expr, Bits):
            return reinterpret(self.w, self.eval(expr.value), expr.value.dtype, expr.dtype)
        if isinstance(expr, Select):
            return self._select(expr)
        if isinstance(expr, Word):
            return self.word(expr)
        if isinstance(expr, Load):
            return self.load(self.place(expr.buffer, expr.indices))
        return self.other_expr(expr)

    def other_expr(self, expr: Expr) -> Value:
        """Write an expression that only host programs have."""
        raise InternalError(f"expression {type(expr).__name__} in a kernel")

    def _select(self, expr: Select) -> Value:
        cond = self.eval(expr.cond)
        if cond.number is not None:
            return self.eval(expr.then if cond.number else expr.other)
        if cond.width > 1:
            then = self._guarded(expr.then, cond)
            other = self._guarded(expr.other, instr.invert(self.w, cond))
            return instr.choose(self.w, cond, self.widen(then), self.widen(other))
        if not (needs_branch(expr.then) or needs_branch(expr.other)):
            then, other = self._same_width(self.eval(expr.then), self.eval(expr.other))
            return instr.choose(self.w, self.w.splat(cond, then.width), then, other)
        wide = self.varies(expr.then) or self.varies(expr.other)
        ends: list[tuple[Value, str]] = []
        labels = (self.w.label("yes"), self.w.label("no"))
        join = self.w.label("join")
        with self.w.slot():
            self.w.line(f"br i1 {cond.text}, label %{labels[0]}, label %{labels[1]}")
            for label, side in zip(labels, (expr.then, expr.other), strict=True):
                with self.w.branch(label, join):
                    value = self.eval(side)
                    ends.append((self.widen(value) if wide else value, self.w.block))
        self.w.start(join)
        first = ends[0][0]
        incoming = ", ".join(f"[ {value.text}, %{block} ]" for value, block in ends)
        return self.w.here(f"phi {first.full_type} {incoming}", first.type, first.width)

    def _guarded(self, expr: Expr, mask: Value) -> Value:
        """Write an alternative of a lane-wise choice: its loads happen in the chosen lanes only."""
        if self.lane is None or not may_miss(expr):
            return self.eval(expr)
        with self.in_lane(self.narrowed(mask)):
            return self.eval(expr)

    def narrowed(self, mask: Value) -> Lane:
        """Return the present lanes without those that a condition excludes."""
        if self.lane is None:
            raise InternalError("a lane mask outside a vector loop")
        both = mask if self.lane.mask is None else instr.both(self.w, self.lane.mask, mask)
        return replace(self.lane, mask=both, guarded=True)
