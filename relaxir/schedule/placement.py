"""Schedule primitives that move values: inlining a producer, computing it at a consumer's loop, staging a buffer."""

from __future__ import annotations

from dataclasses import replace

from relaxir.schedule.loops import loop, seq
from relaxir.schedule.primitives import find
from relaxir.schedule.program import accesses_of, reindex
from relaxir.support.errors import ScheduleError
from relaxir.sym import is_const, product
from relaxir.tir import Alloc, Block, Buffer, Expr, For, Load, Scope, Seq, Stmt, Store, Var
from relaxir.tir.access import is_identity
from relaxir.tir.classify import plain_store, spatial_vars
from relaxir.tir.visit import map_expr, map_stmt, reads_of, stores_of, substitute_vars, walk


def _illegal(message: str, advice: str = "") -> ScheduleError:
    return ScheduleError(message, code="schedule-illegal", help=advice)


def inline(stmt: Stmt, buffer: Buffer) -> Stmt:
    """Compute a temporary where it is used, and drop its stage.

    before: ``t[i] = exp(x[i]); y[i] = t[i] + 1``; after: ``y[i] = exp(x[i]) + 1``
    """
    makers = [s for s in walk(stmt) if isinstance(s, Block) and any(w.buffer is buffer for w in stores_of(s))]
    store = plain_store(makers[0]) if len(makers) == 1 else None
    if store is None or not is_identity(store.indices, spatial_vars(makers[0])):
        raise _illegal(f"`{buffer.name}` is not made by one elementwise stage: it cannot be inlined")
    maker = makers[0]

    def use(e: Expr) -> Expr:
        if not isinstance(e, Load) or e.buffer is not buffer:
            return e
        place = dict(zip(spatial_vars(maker), e.indices, strict=True))
        return map_expr(store.value, lambda x: place.get(x, x) if isinstance(x, Var) else x)

    def drop(s: Stmt) -> Stmt:
        if isinstance(s, Seq):
            return seq(*(inner for inner in s.stmts if inner is not gone))
        if isinstance(s, Alloc) and s.buffer is buffer:
            return s.body
        return s

    gone = maker
    without = map_stmt(stmt, on_stmt=drop)
    return map_stmt(without, on_expr=use)


def compute_at(stmt: Stmt, buffer: Buffer, name: str) -> Stmt:
    """Compute the part of a temporary that one iteration of a loop needs, inside that loop.

    before: ``for a: t[a] = f(a)`` then ``for i: y[i] = g(t[i])``; after: ``for i: t[i] = f(i); y[i] = g(t[i])``

    The producer must be a loop nest of plain stores whose outermost loop has the consumer loop's extent, and the loop
    must read only what the same iteration makes.
    """
    consumer = find(stmt, name)
    makers = [
        s
        for s in (stmt.stmts if isinstance(stmt, Seq) else ())
        if isinstance(s, For) and any(w.buffer is buffer for w in stores_of(s))
    ]
    if len(makers) != 1 or makers[0] is consumer:
        raise _illegal(f"`{buffer.name}` is not made by one loop nest in front of `{name}`")
    maker = makers[0]
    if maker.extent != consumer.extent:
        raise _illegal(f"`{maker.var.name}` and `{name}` have different extents")
    if any(w.buffer is not buffer for w in stores_of(maker)):
        raise _illegal(f"the loop that makes `{buffer.name}` stores other buffers too")
    if not all(w.indices and w.indices[0] is maker.var for w in stores_of(maker)):
        raise _illegal(f"`{maker.var.name}` does not give the first index of `{buffer.name}`")
    if not all(e.indices[0] is consumer.var for e in reads_of(consumer) if e.buffer is buffer):
        raise _illegal(f"`{name}` reads `{buffer.name}` at other iterations' places")
    others = [s for s in stmt.stmts if s is not maker] if isinstance(stmt, Seq) else []
    if any(e.buffer is buffer for s in others if consumer not in tuple(walk(s)) for e in reads_of(s)):
        raise _illegal(f"`{buffer.name}` is read outside `{name}` too")
    part = substitute_vars(maker.body, {maker.var: consumer.var})

    def merge(s: Stmt) -> Stmt:
        return replace(s, body=seq(part, s.body)) if isinstance(s, For) and s.var is consumer.var else s

    return map_stmt(seq(*others), on_stmt=merge)


def stage(stmt: Stmt, name: str, buffer: Buffer, scope: Scope = Scope.STACK) -> Stmt:
    """Work on a private copy of a buffer's row inside a loop.

    before: ``for i: for k: y[i] += x[i, k]``;
    after ``stage(s, "i", y)``: ``for i: alloc c: c = y[i]; for k: c += x[i, k]; y[i] = c``

    The loop variable must be the first index of every access; the remaining dimensions must have a constant size.
    """
    target = find(stmt, name)
    accesses = [a for a in accesses_of(target.body) if a.buffer is buffer]
    if not accesses:
        raise _illegal(f"`{name}` does not use `{buffer.name}`")
    if not all(a.indices and a.indices[0] is target.var for a in accesses):
        raise _illegal(f"`{name}` is not the first index of every access to `{buffer.name}`")
    shape = buffer.shape[1:]
    if not is_const(product(shape)):
        raise _illegal(f"one row of `{buffer.name}` has no constant size", "stage an inner loop")
    copy = replace(buffer, name=f"{buffer.name}_{scope.value}", shape=shape, scope=scope)
    inner = reindex(target.body, {buffer: copy}, {buffer: lambda old: old[1:]})
    reads, writes = (
        any(e.buffer is buffer for e in reads_of(target.body)),
        [s for s in stores_of(target.body) if s.buffer is buffer],
    )
    first = (_copied(copy, buffer, target.var, inward=True),) if reads or _needs_old(writes) else ()
    last = (_copied(copy, buffer, target.var, inward=False),) if writes else ()
    body = Alloc(copy, seq(*first, inner, *last))
    return map_stmt(stmt, on_stmt=lambda s: replace(s, body=body) if isinstance(s, For) and s.var is target.var else s)


def _needs_old(writes: list[Store]) -> bool:
    return any(s.combine is not None for s in writes)


def _copied(copy: Buffer, buffer: Buffer, row: Var, *, inward: bool) -> Stmt:
    places = tuple(Var(f"c{n}") for n in range(len(copy.shape)))
    here, there = copy.at(places), buffer.at((row, *places))
    to, value = (here, there) if inward else (there, here)
    body: Stmt = Store(to.buffer, to.indices, value)
    for var, extent in zip(reversed(places), reversed(copy.shape), strict=True):
        body = loop(var, extent, body)
    return body
