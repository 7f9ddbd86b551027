"""When iterations of a loop are independent: what `parallel`, `vectorize` and `reorder` ask before they rewrite."""

from __future__ import annotations

from collections.abc import Sequence

from relaxir.schedule.program import accesses_of
from relaxir.sym import is_const
from relaxir.tir import Alloc, Binary, BinOp, Buffer, Expr, For, Let, Load, Store, Var
from relaxir.tir.access import affine, as_dim, variables_of
from relaxir.tir.visit import stores_of, walk


def upper_bound(extent: Expr) -> int | None:
    """Return a constant no smaller than an extent, or None."""
    dim = as_dim(extent)
    if dim is not None:
        return int(dim) if is_const(dim) else None
    if isinstance(extent, Binary) and extent.op is BinOp.MIN:
        bounds = [b for b in (upper_bound(extent.a), upper_bound(extent.b)) if b is not None]
        return min(bounds) if bounds else None
    return None


def separates(index: Expr, var: Var, inner: Sequence[For]) -> bool:
    """Whether different values of ``var`` give different values of an index, whatever the inner loops do."""
    form = affine(index, (var, *(f.var for f in inner)))
    if form is None or var not in form[0] or not is_const(form[0][var]):
        return False
    reach = 0
    for f in inner:
        step = form[0].get(f.var, 0)
        if step == 0:
            continue
        bound = upper_bound(f.extent)
        if bound is None or not is_const(step):
            return False
        reach += abs(int(step)) * max(0, bound - 1)
    return abs(int(form[0][var])) > reach


def dependence(loop: For, *, lanes: bool) -> str | None:
    """Why iterations of a loop are not independent, or None if they are.

    Args:
        loop: the loop.
        lanes: for vector lanes a combining store that does not move with the loop is fine (a vector reduction).

    """
    inner = tuple(s for s in walk(loop.body) if isinstance(s, For))
    private = {s.buffer for s in walk(loop.body) if isinstance(s, Alloc)}
    hidden = {s.var for s in walk(loop.body) if isinstance(s, Let) and loop.var in variables_of(s.value)}
    for store in stores_of(loop.body):
        if store.buffer in private:
            continue
        reason = _carried(store, loop, inner, hidden, lanes)
        if reason is not None:
            return reason
    return None


def _carried(store: Store, loop: For, inner: tuple[For, ...], hidden: set[Var], lanes: bool) -> str | None:
    name, buffer = loop.var.name, store.buffer
    moved = variables_of(store) & hidden
    splitting = {d for d, i in enumerate(store.indices) if separates(i, loop.var, inner)}
    if not splitting or moved & {v for i in store.indices for v in variables_of(i)}:
        fixed = all(loop.var not in variables_of(i) for i in store.indices)
        if lanes and store.combine is not None and fixed and not _reads(store, buffer):
            return None
        return f"`{name}` carries the store to `{buffer.name}`: its iterations are not independent"
    for other in accesses_of(loop.body):
        if other.buffer is buffer and not any(other.indices[d] == store.indices[d] for d in splitting):
            return f"iterations of `{name}` read or write `{buffer.name}` at each other's places"
    return None


def _reads(store: Store, buffer: Buffer) -> bool:
    return any(isinstance(a, Load) and a.buffer is buffer for a in accesses_of(store))
