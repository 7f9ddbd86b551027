"""Expressions and memory accesses of tensor programs, as scalars or as the lanes of a vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from relaxir.backends.llvm import emit_linear as lin
from relaxir.backends.llvm import emit_ops as ops
from relaxir.backends.llvm.emit_cast import cast, from_memory, reinterpret, to_memory
from relaxir.backends.llvm.emit_env import Env, Lane
from relaxir.backends.llvm.emit_linear import LANE, Atom, Linear
from relaxir.backends.llvm.emit_stream import alignment, store_past
from relaxir.backends.llvm.emit_writer import Value, bool_value, int_value, mangled, vector_type
from relaxir.support.dtypes import info
from relaxir.support.errors import InternalError
from relaxir.tir.buffer import Buffer, Scope
from relaxir.tir.expr import (
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
    Word,
)
from relaxir.tir.visit import walk_expr

_TRAPPING: Final = frozenset({BinOp.POW, BinOp.ATAN2})
_COSTLY: Final = frozenset(Intrinsic) - {
    Intrinsic.NEG, Intrinsic.ABS, Intrinsic.NOT, Intrinsic.SIGN, Intrinsic.FLOOR, Intrinsic.CEIL, Intrinsic.ROUND,
    Intrinsic.TRUNC, Intrinsic.ISNAN, Intrinsic.ISINF, Intrinsic.SQRT,
}  # fmt: skip


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
        or (isinstance(e, Call) and e.fn in _COSTLY)
        or (isinstance(e, Binary) and e.op in _TRAPPING)
        for e in walk_expr(expr)
    )


@dataclass(frozen=True, slots=True)
class Place:
    """Where an access goes: one address (``stride`` 0), adjacent elements (1), or an address per lane (None).

    Adjacent elements in falling order (-1) are those from ``pointer`` on, the last lane's first.
    """

    buffer: Buffer
    pointer: Value
    stride: int | None
    aligned: int = 0
    """Bytes of which the address is a multiple, where the store may go past the caches."""


class Expressions(Env):
    """Writes expressions."""

    _memo: dict[int, tuple[Expr, Value]]
    _memo_key: tuple[object, ...] = ()
    _memo_scope: object = None

    # ---- expressions

    def eval(self, expr: Expr) -> Value:
        """Write an expression; the result is a scalar if all lanes agree on it, else a vector."""
        if isinstance(expr, Const):
            return ops.constant(expr)
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

    def number(self, expr: Expr) -> int | None:
        """Return the value of an int64 expression that is constant here."""
        return self.linear(expr).number

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

    def _same_width(self, *values: Value) -> tuple[Value, ...]:
        width = max(v.width for v in values)
        return values if width == 1 else tuple(self.w.splat(v, width) for v in values)

    def _select(self, expr: Select) -> Value:
        cond = self.eval(expr.cond)
        if cond.number is not None:
            return self.eval(expr.then if cond.number else expr.other)
        if cond.width > 1:
            then = self._guarded(expr.then, cond)
            other = self._guarded(expr.other, ops.invert(self.w, cond))
            return ops.choose(self.w, cond, self.widen(then), self.widen(other))
        if not (needs_branch(expr.then) or needs_branch(expr.other)):
            then, other = self._same_width(self.eval(expr.then), self.eval(expr.other))
            return ops.choose(self.w, self.w.splat(cond, then.width), then, other)
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
        both = mask if self.lane.mask is None else ops.both(self.w, self.lane.mask, mask)
        return replace(self.lane, mask=both, guarded=True)

    # ---- indices

    def index(self, linear: Linear) -> Value:
        """Write a polynomial as an i64, or one per lane."""
        if not linear.lane_terms():
            return lin.scalar(self.w, linear)
        width = self._width()
        uniform = lin.scalar(self.w, linear.uniform())
        if linear.lane_terms() == {(LANE,): 1} and uniform.number is not None:
            return lin.iota(width, uniform.number)
        varying = lin.vector(self.w, linear, width)
        if uniform.number == 0:
            return varying
        base = self.w.splat(uniform, width)
        return self.w.pure(
            f"add nsw {base.typed}, {varying.text}", "i64", width, (base, varying), nonneg=uniform.nonneg
        )

    def _width(self) -> int:
        if self.lane is None:
            raise InternalError("a lane-dependent index outside a vector loop")
        return self.lane.width

    def linear(self, expr: Expr) -> Linear:
        """Return an int64 expression as a polynomial."""
        if isinstance(expr, Const):
            return lin.constant(int(expr.value))
        if isinstance(expr, Size):
            return self.dim_linear(expr.expr)
        if isinstance(expr, Var):
            bound = self.bound(expr)
            if bound.value.width > 1:
                return lin.of_atom(Atom(bound.value.text, make=lambda: bound.value))
            base = lin.of_value(bound.value, bound.offset)
            return base + lin.LANES if bound.lane else base
        if isinstance(expr, Binary):
            if expr.op in (BinOp.ADD, BinOp.SUB):
                a, b = self.linear(expr.a), self.linear(expr.b)
                return a + b if expr.op is BinOp.ADD else a - b
            if expr.op is BinOp.MUL:
                return self.linear(expr.a) * self.linear(expr.b)
            if expr.op in (BinOp.FLOORDIV, BinOp.MOD):
                return self._quotient(expr)
        if isinstance(expr, Call) and expr.fn is Intrinsic.NEG:
            return lin.constant(0) - self.linear(expr.arg)
        if isinstance(expr, Bcast):
            return self._bcast(expr)
        if not self.varies(expr):
            return lin.of_value(self.eval(expr))
        # numbered by first use: names order the terms, and the text must not depend on addresses
        number = self.opaque.setdefault(id(expr), (len(self.opaque), expr))[0]
        return lin.of_atom(Atom(f"$e{number}", make=lambda: self.eval(expr)))

    def _quotient(self, expr: Binary) -> Linear:
        a, b = self.linear(expr.a), self.linear(expr.b)
        width = 1 if self.lane is None else self.lane.width
        if b.number is not None and b.number > 0:
            quotient = a.divided(b.number, width)
            if quotient is not None:
                return quotient if expr.op is BinOp.FLOORDIV else a - lin.constant(b.number) * quotient
        if not a.lane_terms() and not b.lane_terms():
            x, y = lin.scalar(self.w, a), lin.scalar(self.w, b)
            return lin.of_value(ops.binary(self.w, expr.op, "int64", x, y))

        def make() -> Value:
            x, y = self._same_width(self.index(a), self.index(b))
            return ops.binary(self.w, BinOp.FLOORDIV, "int64", x, y)

        # x % y is written x - y * (x // y), so that y * (x // y) + x % y gives x again
        atom = lin.of_atom(Atom(f"$q({a.key()})/({b.key()})", make=make))
        return atom if expr.op is BinOp.FLOORDIV else a - b * atom

    def _bcast(self, expr: Bcast) -> Linear:
        extent = self.dim_linear(expr.extent)
        index = self.linear(expr.index)
        if extent.number is not None:
            return lin.constant(0) if extent.number == 1 else index
        fixed = self.fixed_one(expr.extent)
        if fixed is not None:
            return lin.constant(0) if fixed else index
        single = ops.binary(self.w, BinOp.EQ, "int64", lin.scalar(self.w, extent), int_value(1))
        if not index.lane_terms():
            return lin.of_value(ops.choose(self.w, single, int_value(0), lin.scalar(self.w, index)))

        def make() -> Value:
            value = self.index(index)
            return ops.choose(self.w, single, self.w.splat(int_value(0), value.width), value)

        return lin.of_atom(Atom(f"$b({index.key()}):{single.text}", make=make))

    # ---- memory

    def memory(self, buffer: Buffer) -> object:
        """Return what stands for the memory of a buffer: loads of the same are ordered with its stores."""
        return buffer

    def place(self, buffer: Buffer, indices: Sequence[Expr]) -> Place:
        """Write the address of an element, or of one per lane."""
        private = self.lane is not None and buffer in self.lane.private
        offset = self.offset(buffer, indices)
        kind = self.memory_type(buffer)
        varying = offset.lane_terms()
        if private:
            if varying:
                raise InternalError(f"buffer `{buffer.name}` of one lane is indexed by the lane")
            kind = vector_type(kind, self._width())
        pointer = self._address(buffer, offset, kind)
        if private or varying == {(LANE,): 1}:
            streams = buffer in self.streamed
            aligned = alignment(offset, self.multiples, info(buffer.dtype).bytes) if streams else 0
            return Place(buffer, pointer, 1, aligned)
        if not varying:
            return Place(buffer, pointer, 0)
        if varying == {(LANE,): -1} and self.lane is not None and self.lane.mask is None:
            return Place(buffer, self._gep(kind, pointer, int_value(1 - self.lane.width)), -1)
        index = lin.vector(self.w, offset, self._width())
        return Place(buffer, self._gep(kind, pointer, index), None)

    def _address(self, buffer: Buffer, offset: Linear, kind: str) -> Value:
        """Write the address of an element, of the first lane's where it depends on lanes."""
        pointer = self.base(buffer)
        for part in lin.by_level(self.w, offset.uniform()):
            pointer = self._gep(kind, pointer, part)
        return self._gep(kind, pointer, int_value(offset.const)) if offset.const else pointer

    def word(self, expr: Word) -> Value:
        """Write a load of four bytes, or of four per lane."""
        buffer, lane = expr.buffer, self.lane
        offset = self.offset(buffer, expr.indices)
        pointer, varying = self._address(buffer, offset, "i8"), offset.lane_terms()
        if not varying and not (lane is not None and lane.guarded):
            return self.w.load(f"load i32, {pointer.typed}, align 1", "i32", 1, self.memory(buffer), (pointer,))
        if lane is None:
            raise InternalError("a vector access outside a vector loop")
        if varying == {(LANE,): 4} and lane.mask is None:
            full = vector_type("i32", lane.width)
            text = f"load {full}, {pointer.typed}, align 1"
            return self.w.load(text, "i32", lane.width, self.memory(buffer), (pointer,))
        if varying:
            pointer = self._gep("i8", pointer, lin.vector(self.w, offset, lane.width))
        return self._gather(Place(buffer, pointer, None), lane, "i32", 1)

    def offset(self, buffer: Buffer, indices: Sequence[Expr]) -> Linear:
        """Return the number of the element in memory."""
        total = lin.constant(0)
        for extent, index in zip(buffer.shape, indices, strict=True):
            total = total * self.dim_linear(extent) + self.linear(index) if total.terms else self.linear(index)
        return total

    def _gep(self, kind: str, pointer: Value, index: Value) -> Value:
        if index.number == 0:
            return pointer
        return self.w.pure(
            f"getelementptr {kind}, ptr {pointer.text}, {index.typed}", "ptr", index.width, (pointer, index)
        )

    def memory_type(self, buffer: Buffer) -> str:
        """Return how an element of this buffer is stored."""
        if self.is_private(buffer) and buffer.dtype != "bool":
            return ops.REGISTER[buffer.dtype]
        return ops.MEMORY[buffer.dtype]

    def is_private(self, buffer: Buffer) -> bool:
        """Whether every lane has this buffer for itself (its elements are vectors, never rounded to 16 bits)."""
        return self.lane is not None and buffer in self.lane.private

    def _align(self, buffer: Buffer) -> int:
        return 4 if self.is_private(buffer) and info(buffer.dtype).bytes < 4 else info(buffer.dtype).bytes

    def load(self, place: Place) -> Value:
        """Write a load; masked lanes read nothing and give zero."""
        buffer, kind = place.buffer, self.memory_type(place.buffer)
        align = self._align(buffer)
        lane = self.lane
        if place.stride == 0 and not (lane is not None and lane.guarded):
            raw = self.w.load(
                f"load {kind}, {place.pointer.typed}, align {align}", kind, 1, self.memory(buffer), (place.pointer,)
            )
        elif lane is None:
            raise InternalError("a vector access outside a vector loop")
        elif place.stride == -1 or (place.stride == 1 and (lane.mask is None or self.is_private(buffer))):
            text = f"load {vector_type(kind, lane.width)}, {place.pointer.typed}, align {align}"
            raw = self.w.load(text, kind, lane.width, self.memory(buffer), (place.pointer,))
            raw = raw if place.stride == 1 else self.w.reversed(raw)
        elif place.stride == 1 and lane.mask is not None:
            raw = self._masked_load(place, lane.mask, kind, align)
        else:
            raw = self._gather(place, lane, kind, align)
        return raw if self.is_private(buffer) and buffer.dtype != "bool" else from_memory(self.w, raw, buffer.dtype)

    def _masked_load(self, place: Place, mask: Value, kind: str, align: int) -> Value:
        full = vector_type(kind, mask.width)
        name = f"llvm.masked.load.{mangled(kind, mask.width)}.p0"
        self.module.declare(name, full, ["ptr", f"<{mask.width} x i1>", full])
        text = f"call {full} @{name}(ptr align {align} {place.pointer.text}, {mask.typed}, {full} zeroinitializer)"
        return self.w.load(text, kind, mask.width, self.memory(place.buffer), (place.pointer, mask))

    def _gather(self, place: Place, lane: Lane, kind: str, align: int) -> Value:
        width = lane.width
        pointers = self.w.splat(place.pointer, width)
        mask = self.w.splat(bool_value(True), width) if lane.mask is None else lane.mask
        full = vector_type(kind, width)
        name = f"llvm.masked.gather.{mangled(kind, width)}.v{width}p0"
        self.module.declare(name, full, [pointers.full_type, mask.full_type, full])
        where = f"{pointers.full_type} align {align} {pointers.text}"
        text = f"call {full} @{name}({where}, {mask.typed}, {full} zeroinitializer)"
        return self.w.load(text, kind, width, self.memory(place.buffer), (pointers, mask))

    def store(self, place: Place, value: Value) -> None:
        """Write a store of a register form; masked lanes write nothing."""
        buffer, kind = place.buffer, self.memory_type(place.buffer)
        raw = value if self.is_private(buffer) and buffer.dtype != "bool" else to_memory(self.w, value, buffer.dtype)
        align = self._align(buffer)
        lane = self.lane
        if place.stride == 0:
            self.w.line(f"store {raw.typed}, {place.pointer.typed}, align {align}")
        elif lane is None:
            raise InternalError("a vector access outside a vector loop")
        elif place.stride == -1:
            self.w.line(f"store {self.w.reversed(raw).typed}, {place.pointer.typed}, align {align}")
        elif place.stride == 1 and lane.mask is None:
            if place.aligned and store_past(self.w, raw, place.pointer, info(buffer.dtype).bytes, place.aligned):
                return
            self.w.line(f"store {raw.typed}, {place.pointer.typed}, align {align}")
        elif place.stride == 1 and lane.mask is not None:
            if self.is_private(buffer):
                old = self.w.here(f"load {raw.full_type}, {place.pointer.typed}, align {align}", kind, lane.width)
                mixed = ops.choose(self.w, lane.mask, raw, old)
                self.w.line(f"store {mixed.typed}, {place.pointer.typed}, align {align}")
            else:
                name = f"llvm.masked.store.{mangled(kind, lane.width)}.p0"
                self.w.effect(name, (raw.typed, f"ptr align {align} {place.pointer.text}", lane.mask.typed))
        else:
            mask = self.w.splat(bool_value(True), lane.width) if lane.mask is None else lane.mask
            name = f"llvm.masked.scatter.{mangled(kind, lane.width)}.v{lane.width}p0"
            self.w.effect(
                name, (raw.typed, f"{place.pointer.full_type} align {align} {place.pointer.text}", mask.typed)
            )
        self.w.touch(self.memory(buffer))
