"""Loops of graph functions as loops of host programs.

Before:
    n_end = R.fresh_dim("n_end")
    n = R.loop_dim("n")
    with R.loop((x,), (R.Tensor((n,), "f32"),), trips=t) as (i, v):
        lv0 = R.call_tir(Module.grow, (v,), out=R.Tensor((n + 1,), "f32"), dims=(n,))
        lv1: R.Tuple(R.Tensor((n_end,), "f32")) = R.next(R.const(True), lv0)
After:
    T.grow(0, ...)                      # a carried value whose shape changes lives in two rooms
    first = T.in_room(0, ...)
    T.copy(first, x)
    while i[()] < t[()]:
        n = T.bind_dim("n", n_cell[()])
        v = T.in_room(0, (n,), "f32")
        T.call_kernel(Module.grow, (v, lv0), dims=(n,))
        T.grow(1, ...)
        next = T.in_room(1, (n + 1,), "f32")
        T.copy(next, lv0)
        n_cell[()] = n + 1
        T.swap_rooms(0, 1)
        i[()] = i[()] + 1
    n_end = T.bind_dim("n_end", n_cell[()])

A carried value of fixed shape has one place in the frame. A scan output is written row by row: to the frame where its
whole size is known before the loop, else to a room.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from relaxir.ir.expr import Bind, Body, Expr, Loop, ShapeExpr
from relaxir.ir.loops import is_true
from relaxir.ir.types import TensorType, TupleType
from relaxir.support.dtypes import info
from relaxir.sym import Dim, DimLike, add, free_dims, mul, product
from relaxir.tir import (
    Alias,
    AllocFrame,
    Assert,
    BindDim,
    BinOp,
    Buffer,
    Copy,
    Grow,
    InRoom,
    Scope,
    Seq,
    Stmt,
    Store,
    SwapRooms,
    While,
    as_expr,
    binary,
    const,
)
from relaxir.tir import Expr as TExpr
from relaxir.tir.visit import walk


class Lowering(Protocol):
    """What a loop needs of the lowering of its function."""

    buffers: dict[Expr, tuple[Buffer, ...]]
    bound: set[Dim]
    depth: int

    def body(self, body: Body) -> Iterator[Stmt]:
        """Statements of a body's bindings."""

    def flat(self, expr: Expr, stmts: list[Stmt]) -> tuple[Buffer, ...]:
        """Buffers of a value."""

    def buffer(self, name: str, t: TensorType, scope: Scope = Scope.GLOBAL) -> Buffer:
        """A buffer of a new name."""

    def new_room(self) -> int:
        """A room of a new number."""

    def new_dim(self, name: str) -> Dim:
        """A symbol of a new name."""


class LoopLowering:
    """One loop."""

    def __init__(self, low: Lowering, bind: Bind, loop: Loop) -> None:
        self.low = low
        self.bind = bind
        self.loop = loop
        self.name = bind.var.name
        assert isinstance(bind.var.type, TupleType)
        self.results: tuple[TensorType, ...] = tuple(t for t in bind.var.type.fields if isinstance(t, TensorType))
        self.index = low.new_dim("i")
        self.before: list[Stmt] = []
        self.number = self.cell("int64", const(0))
        self.sizes: dict[Dim, Buffer] = {}
        self.rooms: dict[int, tuple[int, int]] = {}
        self.slots: dict[int, Buffer] = {}

    # ---- pieces ----------------------------------------------------------------------------------------------------

    def cell(self, dtype: str, value: TExpr) -> Buffer:
        """A scalar of the frame that outlives iterations."""
        buffer = self.low.buffer(f"{self.name}_cell", TensorType((), dtype), Scope.FRAME)
        self.before += [AllocFrame(buffer), Store(buffer, (), value)]
        return buffer

    def one(self, expr: Expr, stmts: list[Stmt]) -> Buffer:
        """The buffer of a tensor."""
        (buffer,) = self.low.flat(expr, stmts)
        return buffer

    def in_room(self, room: int, name: str, t: TensorType, offset: DimLike = 0) -> tuple[Buffer, Stmt]:
        """A buffer at some place of a room."""
        buffer = self.low.buffer(name, t, Scope.FRAME)
        return buffer, InRoom(buffer, room, offset)

    # ---- the loop --------------------------------------------------------------------------------------------------

    def lower(self) -> Iterator[Stmt]:
        """All statements; the results are known to the function afterwards."""
        loop, low = self.loop, self.low
        limit = self.limit()
        start = const(True, "bool") if loop.start is None else self.one(loop.start, self.before)[()]
        open_ended = not (is_true(loop.start) and is_true(loop.goes_on))
        go = self.cell("bool", start) if open_ended else None
        for n in range(len(loop.init)):
            self.enter(n)
        scans = [self.scan(n) for n in range(len(loop.scans))]
        outside, bound = dict(low.buffers), set(low.bound)
        inside = list(self.iteration(go, scans))
        low.buffers, low.bound = outside, bound
        conditions = ([] if go is None else [go[()]]) + ([] if limit is None else [self.number[()] < limit])
        cond: TExpr = const(True, "bool")
        for c in conditions:
            cond = c if c is conditions[0] else binary(BinOp.AND, cond, c)
        yield from self.before
        yield While(cond, Seq(tuple(inside)))
        yield from self.leave(scans)

    def limit(self) -> TExpr | None:
        """Most iterations."""
        if self.loop.trips is None:
            return None
        if isinstance(self.loop.trips, ShapeExpr):
            return as_expr(self.loop.trips.dims[0])
        return self.one(self.loop.trips, self.before)[()]

    def enter(self, n: int) -> None:
        """Place the first value of something carried."""
        param = self.loop.params[1 + n]
        assert isinstance(param.type, TensorType)
        first = self.one(self.loop.init[n], self.before)
        changing = [(d, have) for d, have in zip(param.type.shape, first.shape, strict=True) if d in self.loop.dims]
        if not changing:
            slot = self.slots[n] = self.low.buffer(param.name, param.type, Scope.FRAME)
            self.before += [AllocFrame(slot), Copy(slot, first)]
            return
        for d, have in changing:
            assert isinstance(d, Dim)
            if d not in self.sizes:
                self.sizes[d] = self.cell("int64", as_expr(have))
        self.rooms[n] = (self.low.new_room(), self.low.new_room())
        view, named = self.in_room(self.rooms[n][0], f"{param.name}_first", TensorType(first.shape, first.dtype))
        self.before += [Grow(self.rooms[n][0], bytes_of(view)), named, Copy(view, first)]

    def scan(self, n: int) -> Scan:
        """Where a scan output goes."""
        t = self.results[len(self.loop.init) + n]
        if any(s in self.bind.defines for d in t.shape for s in free_dims(d)):
            cells = {axis: self.cell("int64", const(0)) for axis, d in enumerate(t.shape[1:]) if d in self.bind.defines}
            room = self.low.new_room()
            self.before.append(Grow(room, 0))
            return Scan(t, room, None, cells)
        whole = self.low.buffer(f"{self.name}_scan", t, Scope.FRAME)
        self.before.append(AllocFrame(whole))
        return Scan(t, None, whole, {})

    def iteration(self, go: Buffer | None, scans: Sequence[Scan]) -> Iterator[Stmt]:
        """Statements of one iteration."""
        low, loop = self.low, self.loop
        yield BindDim(self.index, self.number[()])
        for d in loop.dims:
            yield BindDim(d, self.sizes[d][()])
        low.bound |= {self.index, *loop.dims}
        low.buffers[loop.params[0]] = (self.number,)
        for n, param in enumerate(loop.params[1:]):
            assert isinstance(param.type, TensorType)
            if n in self.rooms:
                view, named = self.in_room(self.rooms[n][0], param.name, param.type)
                yield named
                low.buffers[param] = (view,)
            else:
                low.buffers[param] = (self.slots[n],)
        low.depth += 1
        body = list(low.body(loop.body))
        low.depth -= 1
        stmts: list[Stmt] = []
        rows = [self.one(e, stmts) for e in loop.scans]
        carried = [self.one(e, stmts) for e in loop.carried]
        goes_on = None if go is None or is_true(loop.goes_on) else self.one(loop.goes_on, stmts)
        yield from body
        yield from stmts
        for scan, row in zip(scans, rows, strict=True):
            yield from self.put(scan, row)
        if go is not None:
            yield Store(go, (), const(True, "bool") if goes_on is None else goes_on[()])
        yield from self.step(carried, Seq((*body, *stmts)))
        yield Store(self.number, (), self.number[()] + 1)

    def put(self, scan: Scan, row: Buffer) -> Iterator[Stmt]:
        """Store one element of a scan output; all have one shape."""
        for axis, cell in scan.cells.items():
            first = binary(BinOp.EQ, as_expr(self.index), const(0))
            same = binary(BinOp.EQ, cell[()], as_expr(row.shape[axis]))
            message = f"loop: axis {axis} of a scan output is {{}}, but was {{}} in the iterations before"
            args = (as_expr(row.shape[axis]), cell[()])
            yield Assert(binary(BinOp.OR, first, same), "runtime-shape", message, args, self.loop.span)
            yield Store(cell, (), as_expr(row.shape[axis]))
        count = product(row.shape)
        offset = mul(self.index, count)
        t = TensorType(row.shape, row.dtype)
        if scan.whole is not None:
            place = self.low.buffer(f"{self.name}_row", t, Scope.FRAME)
            yield Alias(place, scan.whole, offset)
        else:
            assert scan.room is not None
            yield Grow(scan.room, mul(mul(add(self.index, 1), count), info(row.dtype).bytes))
            place, named = self.in_room(scan.room, f"{self.name}_row", t, offset)
            yield named
        yield Copy(place, row)

    def step(self, carried: Sequence[Buffer], body: Stmt) -> Iterator[Stmt]:
        """Carry values on: all are read before the first is overwritten."""
        origins: dict[Buffer, set[Buffer]] = {}
        for s in walk(body):
            if isinstance(s, Alias):
                origins.setdefault(s.buffer, set()).update({s.source}, origins.get(s.source, ()))
        sizes: list[Stmt] = []
        for n, (first, second) in self.rooms.items():
            view, named = self.in_room(second, f"{self.name}_next", TensorType(carried[n].shape, carried[n].dtype))
            yield from (Grow(second, bytes_of(view)), named, Copy(view, carried[n]))
            shape = self.loop.params[1 + n].type
            assert isinstance(shape, TensorType)
            for d, got in zip(shape.shape, carried[n].shape, strict=True):
                if isinstance(d, Dim) and d in self.sizes:
                    sizes.append(Store(self.sizes[d], (), as_expr(got)))
            sizes.append(SwapRooms(first, second))
        slots = set(self.slots.values())
        copies: list[Stmt] = []
        for n, slot in self.slots.items():
            source = carried[n]
            if source is slot:
                continue
            if slots & {source, *origins.get(source, ())}:
                kept = self.low.buffer(f"{self.name}_kept", TensorType(source.shape, source.dtype), Scope.FRAME)
                yield from (AllocFrame(kept), Copy(kept, source))
                source = kept
            copies.append(Copy(slot, source))
        yield from copies
        yield from sizes

    def leave(self, scans: Sequence[Scan]) -> Iterator[Stmt]:
        """Name the results."""
        made: list[Buffer] = []
        known: set[Dim] = set()

        def bind(d: DimLike, cell: Buffer) -> Iterator[Stmt]:
            if isinstance(d, Dim) and d in self.bind.defines and d not in known:
                known.add(d)
                yield BindDim(d, cell[()])

        for n, result in enumerate(self.results[: len(self.loop.init)]):
            if n in self.slots:
                made.append(self.slots[n])
                continue
            shape = self.loop.params[1 + n].type
            assert isinstance(shape, TensorType)
            for d, inner in zip(result.shape, shape.shape, strict=True):
                if isinstance(inner, Dim) and inner in self.sizes:
                    yield from bind(d, self.sizes[inner])
            view, named = self.in_room(self.rooms[n][0], f"{self.name}_{n}", result)
            yield named
            made.append(view)
        for scan in scans:
            yield from bind(scan.type.shape[0], self.number)
            for axis, cell in scan.cells.items():
                yield from bind(scan.type.shape[1 + axis], cell)
            if scan.whole is not None:
                made.append(scan.whole)
            else:
                assert scan.room is not None
                view, named = self.in_room(scan.room, f"{self.name}_scan", scan.type)
                yield named
                made.append(view)
        self.low.bound |= known
        self.low.buffers[self.bind.var] = tuple(made)


@dataclass(frozen=True, slots=True)
class Scan:
    """Where a scan output goes: a buffer of the frame, or a room and cells for the extents that only the body knows."""

    type: TensorType
    room: int | None
    whole: Buffer | None
    cells: Mapping[int, Buffer]


def bytes_of(buffer: Buffer) -> DimLike:
    """Bytes of a buffer."""
    return mul(product(buffer.shape), info(buffer.dtype).bytes)
