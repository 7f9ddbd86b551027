"""Finding the stages that consume a contraction element by element, and what of them must reach memory."""

from __future__ import annotations

from collections.abc import Sequence

from relaxir.schedule.program import Program
from relaxir.schedule.tile import Epilogue
from relaxir.tir import Block, Buffer, Const, Expr, Load, Stmt, Store, Var
from relaxir.tir.access import loads_of
from relaxir.tir.classify import Contraction, plain_store
from relaxir.tir.visit import all_exprs, map_expr


def collect_epilogue(
    program: Program, found: Contraction, following: Sequence[Stmt], later: Sequence[Stmt] = ()
) -> tuple[Epilogue, int]:
    """Find the longest run of following stages that can be computed on the finished tile, and its length.

    before: ``c[i, j] = sum ...; y[i, j] = relu(c[i, j] + b[j])``; after: values ``c, y`` and one store of ``y``.

    Args:
        program: whose parameters must be stored.
        found: the contraction.
        following: the stages after it.
        later: stages that run after ``following`` (they may read what the run writes).

    """
    place = Var(found.store.buffer.name, found.store.buffer.dtype)
    first = _initial(found)
    values: list[tuple[Var, Expr]] = [(place, place)]
    if first is not None:
        summed = Var(place.name, place.dtype)
        values.append((summed, place + first))
        place = summed
    known: dict[Buffer, tuple[Var, tuple[Expr, ...]]] = {found.store.buffer: (place, found.store.indices)}
    stores = [Store(found.store.buffer, found.store.indices, place)]
    taken = 0
    for stage in following:
        step = _consume(stage, found, known)
        if step is None:
            break
        name, value, store = step
        values.append((name, value))
        known[store.buffer] = (name, store.indices)
        stores = [s for s in stores if s.buffer is not store.buffer or s.indices != store.indices]
        stores.append(store)
        taken += 1
    rest = (*following[taken:], *later)
    kept = tuple(s for s in stores if s.buffer in program.params or any(_reads(stage, s.buffer) for stage in rest))
    return Epilogue(tuple(values), kept), taken


def _reads(stage: Stmt, buffer: Buffer) -> bool:
    return any(isinstance(e, Load) and e.buffer is buffer for e in all_exprs(stage))


def _initial(found: Contraction) -> Expr | None:
    init = found.block.init
    if not isinstance(init, Store) or (isinstance(init.value, Const) and init.value.value == 0):
        return None
    return init.value


def _consume(
    stage: Stmt, found: Contraction, known: dict[Buffer, tuple[Var, tuple[Expr, ...]]]
) -> tuple[Var, Expr, Store] | None:
    """One elementwise stage over the contraction's points, rewritten over the contraction's variables."""
    store = plain_store(stage)
    if store is None or not isinstance(stage, Block):
        return None
    rename: dict[Var, Expr] = {}
    reads = [e for e in loads_of(store.value) if e.buffer in known]
    if not reads:
        return None
    own = {a.var: a.extent for a in stage.axes}
    theirs = {a.var: a.extent for a in found.block.axes}
    for load in reads:
        for mine, index in zip(load.indices, known[load.buffer][1], strict=True):
            if isinstance(mine, Const) and isinstance(index, Const) and mine == index:
                continue
            if not (isinstance(mine, Var) and isinstance(index, Var)) or own.get(mine) != theirs.get(index):
                return None
            if rename.setdefault(mine, index) is not index:
                return None
    if len(rename) != len(own) or len(set(rename.values())) != len(rename):
        return None

    def over(e: Expr) -> Expr:
        if isinstance(e, Var):
            return rename.get(e, e)
        return known[e.buffer][0] if isinstance(e, Load) and e.buffer in known else e

    indices = tuple(map_expr(i, over) for i in store.indices)
    name = Var(store.buffer.name, store.buffer.dtype)
    return name, map_expr(store.value, over), Store(store.buffer, indices, name)
