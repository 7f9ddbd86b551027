"""Joining neighbouring vector loops, so that a value just computed is used while it is in a register."""

from __future__ import annotations

from collections.abc import Sequence

from relaxir.schedule.loops import seq
from relaxir.schedule.program import accesses_of
from relaxir.tir import For, ForKind, Let, Load, Seq, Stmt, Store, Var
from relaxir.tir.access import variables_of
from relaxir.tir.visit import map_stmt, stores_of, substitute_vars


def join_lanes(stmts: Sequence[Stmt]) -> Stmt:
    """Join vector loops of equal extent where the later one reads what the earlier wrote in the same lane only.

    before: ``vector i: e[i] = exp(x[i])``, ``s = 0``, ``vector k: s += e[k]``;
    after: ``s = 0``, ``vector i: let v = exp(x[i]): e[i] = v; s += v``
    """
    flat = [inner for s in stmts for inner in (s.stmts if isinstance(s, Seq) else (s,))]
    done: list[Stmt] = []
    for stmt in flat:
        place = _partner(done, stmt)
        if place is None:
            done.append(stmt)
        else:
            loop = done.pop(place)
            assert isinstance(loop, For)  # _partner finds loops
            assert isinstance(stmt, For)
            done.append(_joined(loop, stmt))
    return seq(*done)


def _partner(done: Sequence[Stmt], stmt: Stmt) -> int | None:
    """Position of a loop that ``stmt`` can join, with only independent stores between them."""
    if not _is_lanes(stmt):
        return None
    for position in range(len(done) - 1, -1, -1):
        earlier = done[position]
        if _is_lanes(earlier):
            between = done[position + 1 :]
            free = all(_independent(earlier, s) for s in between)
            return position if free and _joins(earlier, stmt) else None
        if not isinstance(earlier, Store):
            return None
    return None


def _is_lanes(stmt: Stmt) -> bool:
    return isinstance(stmt, For) and stmt.kind is ForKind.VECTOR and isinstance(stmt.body, Store)


def _independent(loop: Stmt, store: Stmt) -> bool:
    """Whether a store may move in front of a loop."""
    touched = {a.buffer for a in accesses_of(store)}
    written = {s.buffer for s in stores_of(store)}
    return not touched & {s.buffer for s in stores_of(loop)} and not written & {a.buffer for a in accesses_of(loop)}


def _joins(first: Stmt, second: Stmt) -> bool:
    assert isinstance(first, For)  # the callers looked
    assert isinstance(second, For)
    store = first.body
    assert isinstance(store, Store)
    if first.extent != second.extent:
        return False
    moved = substitute_vars(second.body, {second.var: first.var})
    if {s.buffer for s in stores_of(moved)} & {a.buffer for a in accesses_of(first)}:
        return False
    uses = [a for a in accesses_of(moved) if a.buffer is store.buffer]
    lane = any(first.var in variables_of(i) for i in store.indices)
    plain = store.combine is None and lane
    return all(plain and isinstance(a, Load) and a.indices == store.indices for a in uses)


def _joined(first: For, second: For) -> For:
    store = first.body
    assert isinstance(store, Store)
    moved = substitute_vars(second.body, {second.var: first.var})
    if store.combine is not None:
        return For(first.var, first.extent, seq(store, moved), ForKind.VECTOR)
    value = Var(store.buffer.name, store.buffer.dtype)
    used = Load(store.buffer, store.indices)
    forwarded = map_stmt(moved, on_expr=lambda e: value if isinstance(e, Load) and e == used else e)
    body = Let(value, store.value, seq(Store(store.buffer, store.indices, value), forwarded))
    return For(first.var, first.extent, body, ForKind.VECTOR)
