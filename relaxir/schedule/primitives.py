"""Schedule primitives: free functions from statement to statement that keep what a program computes.

Loops are named by their variable. Each primitive checks that it is legal and raises ScheduleError naming the loop and
the reason; ``before`` and ``after`` in the docstrings use one line per loop.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise

from relaxir.schedule.legality import dependence
from relaxir.schedule.loops import loop, nest, seq
from relaxir.support.errors import ScheduleError
from relaxir.tir import (
    AxisKind,
    Binary,
    Block,
    Const,
    Expr,
    For,
    ForKind,
    If,
    Seq,
    Stmt,
    Store,
    Var,
    binary,
    const,
    minimum,
)
from relaxir.tir.access import variables_of
from relaxir.tir.expr import BinOp
from relaxir.tir.visit import map_stmt, stores_of, substitute_vars, walk


def from_block(block: Block) -> Stmt:
    """Write a block as loops, its init in front of the reduce loops.

    before: ``block (i < n, reduce k < m): init y[i] = 0; y[i] += x[i, k]``;
    after: ``for i < n: y[i] = 0; for k < m: y[i] += x[i, k]``
    """
    spatial = [a for a in block.axes if a.kind is AxisKind.SPATIAL]
    reduce = [a for a in block.axes if a.kind is AxisKind.REDUCE]
    return nest(spatial, seq(block.init, nest(reduce, block.body)))


def find(stmt: Stmt, name: str) -> For:
    """Return the loop of a name, or raise ScheduleError if there is none, or more than one."""
    found = [s for s in walk(stmt) if isinstance(s, For) and s.var.name == name]
    if len(found) != 1:
        names = ", ".join(f"`{s.var.name}`" for s in walk(stmt) if isinstance(s, For))
        raise ScheduleError(
            f"there {'is no loop' if not found else 'are several loops'} `{name}`",
            code="schedule-no-such-loop",
            notes=(f"loops: {names or 'none'}",),
            help="name the loop by its variable",
        )
    return found[0]


def _replace(stmt: Stmt, old: For, new: Callable[[For], Stmt]) -> Stmt:
    """Rebuild with one loop replaced; ``new`` gets the loop as it is after its own parts were rebuilt."""
    return map_stmt(stmt, on_stmt=lambda s: new(s) if isinstance(s, For) and s.var is old.var else s)


def _illegal(message: str, advice: str = "") -> ScheduleError:
    return ScheduleError(message, code="schedule-illegal", help=advice)


def split(stmt: Stmt, name: str, factor: int) -> Stmt:
    """Cut a loop into pieces of ``factor`` iterations; the last piece may be shorter.

    before: ``for i < n: body[i]``;
    after: ``for i_outer < (n + 3) // 4: for i_inner < min(4, n - i_outer * 4): body[i_outer * 4 + i_inner]``
    """
    if factor < 1:
        raise _illegal(f"`{name}` cannot be split into pieces of {factor} iterations", "use a factor of at least 1")

    def cut(target: For) -> Stmt:
        outer, inner = Var(f"{name}_outer"), Var(f"{name}_inner")
        whole = isinstance(target.extent, Const) and int(target.extent.value) % factor == 0
        size: Expr = const(factor) if whole else minimum(target.extent - outer * factor, const(factor))
        count = binary(BinOp.FLOORDIV, target.extent + (factor - 1), const(factor))
        body = substitute_vars(target.body, {target.var: outer * factor + inner})
        return For(outer, count, For(inner, size, body, target.kind, target.unroll), target.kind)

    return _replace(stmt, find(stmt, name), cut)


def fuse(stmt: Stmt, outer: str, inner: str) -> Stmt:
    """Make one loop of two perfectly nested ones.

    before: ``for i < n: for j < m: body``; after: ``for i_j < n * m: body[i_j // m, i_j % m]``
    """
    first = find(stmt, outer)
    second = _directly_inside(first, inner)
    if first.kind is not second.kind:
        raise _illegal(f"`{outer}` and `{inner}` are loops of different kinds and cannot be fused")
    if first.var in variables_of(second.extent):
        raise _illegal(f"the extent of `{inner}` depends on `{outer}`: the two cannot be fused")

    def join(target: For) -> Stmt:
        within = target.body
        assert isinstance(within, For)  # checked above
        both = Var(f"{outer}_{inner}")
        place = {
            target.var: binary(BinOp.FLOORDIV, both, within.extent),
            within.var: binary(BinOp.MOD, both, within.extent),
        }
        return For(both, target.extent * within.extent, substitute_vars(within.body, place), target.kind)

    return _replace(stmt, first, join)


def _directly_inside(outer: For, inner: str) -> For:
    body = outer.body
    if not isinstance(body, For) or body.var.name != inner:
        raise _illegal(f"`{inner}` is not directly inside `{outer.var.name}`", "reorder the loops first")
    return body


def reorder(stmt: Stmt, names: Sequence[str]) -> Stmt:
    """Put perfectly nested loops into another order, outermost first.

    before: ``for i: for j: for k: body``; after ``reorder(s, ["k", "i", "j"])``: ``for k: for i: for j: body``
    """
    loops = [find(stmt, n) for n in names]
    chain = [s for s in walk(stmt) if isinstance(s, For) and s in loops]
    for above, below in pairwise(chain):
        if above.body is not below:
            raise _illegal(
                f"`{below.var.name}` is not directly inside `{above.var.name}`", "only a perfect nest reorders"
            )
    for position, target in enumerate(chain):
        outside = {c.var for c in chain[position + 1 :]} | {c.var for c in chain[:position]}
        if variables_of(target.extent) & outside:
            raise _illegal(f"the extent of `{target.var.name}` depends on another loop of the nest: its place is fixed")
    for target in chain:
        reason = dependence(target, lanes=True) if chain[-1] is not target else None
        if reason is not None and not _associative(target):
            raise _illegal(reason, "only independent iterations and sums may change order")
    body = chain[-1].body
    for target in reversed(loops):
        body = replace(target, body=body)
    top = chain[0]
    return map_stmt(stmt, on_stmt=lambda s: body if isinstance(s, For) and s.var is top.var else s)


def _associative(target: For) -> bool:
    return all(s.combine is not None for s in stores_of(target.body))


def _set_kind(stmt: Stmt, name: str, kind: ForKind) -> Stmt:
    return _replace(stmt, find(stmt, name), lambda target: replace(target, kind=kind))


def parallel(stmt: Stmt, name: str) -> Stmt:
    """Split a loop's iterations over threads. before: ``for i``; after: ``parallel i``."""
    reason = dependence(find(stmt, name), lanes=False)
    if reason is not None:
        raise _illegal(reason, "parallelise a loop over an output axis, or decompose the reduction first")
    return _set_kind(stmt, name, ForKind.PARALLEL)


def vectorize(stmt: Stmt, name: str) -> Stmt:
    """Run a loop's iterations as vector lanes. before: ``for i``; after: ``vector i``."""
    target = find(stmt, name)
    if any(isinstance(s, For) for s in walk(target.body)):
        raise _illegal(f"`{name}` contains loops: only an innermost loop becomes lanes", "reorder it innermost")
    reason = dependence(target, lanes=True)
    if reason is not None:
        raise _illegal(reason, "vectorise a loop over an output axis or over the reduced axis")
    return _set_kind(stmt, name, ForKind.VECTOR)


def unroll(stmt: Stmt, name: str) -> Stmt:
    """Expand a loop of constant extent in the backend. before: ``for i < 4``; after: ``unroll i < 4``."""
    if not isinstance(find(stmt, name).extent, Const):
        raise _illegal(f"the extent of `{name}` is not constant: it cannot be unrolled", "split it by a constant first")
    return _set_kind(stmt, name, ForKind.UNROLL)


def decompose_reduction(stmt: Stmt, name: str) -> Stmt:
    """Give the initialisation in a loop its own loop in front.

    before: ``for i: y[i] = 0; for k: y[i] += x[i, k]``; after: ``for i_init: y[i_init] = 0`` then ``for i: for k: ...``
    """
    target = find(stmt, name)
    if not isinstance(target.body, Seq) or not isinstance(target.body.stmts[0], Store):
        raise _illegal(f"`{name}` does not begin with an initialising store", "name the loop around init and reduction")
    start = target.body.stmts[0]
    rest = seq(*target.body.stmts[1:])
    if any(s.buffer is start.buffer and s.combine is None for s in stores_of(rest)):
        raise _illegal(f"`{start.buffer.name}` is stored again in `{name}`: its first store is not an initialisation")
    reason = dependence(target, lanes=False)
    if reason is not None:
        raise _illegal(reason)

    def parts(old: For) -> Stmt:
        var = Var(f"{name}_init")
        return Seq((loop(var, old.extent, substitute_vars(start, {old.var: var})), replace(old, body=rest)))

    return _replace(stmt, target, parts)


def peel(stmt: Stmt, name: str, factor: int) -> Stmt:
    """Separate full pieces from the last partial one, so that full pieces have a constant extent.

    before: ``for i_inner < min(4, n - o * 4): body``; after: ``if n - o * 4 >= 4: for i_inner < 4: body else: ...``
    """
    target = find(stmt, name)
    extent = target.extent
    sides = (extent.a, extent.b) if isinstance(extent, Binary) and extent.op is BinOp.MIN else ()
    rest = [s for s in sides if not isinstance(s, Const)]
    if len(rest) != 1 or const(factor) not in sides:
        raise _illegal(f"the extent of `{name}` is not the smaller of {factor} and a rest", "split the loop first")
    full = rest[0] >= const(factor)
    return _replace(stmt, target, lambda old: If(full, replace(old, extent=const(factor)), old))
