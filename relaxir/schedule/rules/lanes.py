"""Stages with a body of their own that treat neighbours alike: running sums down columns, slices written at places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from relaxir.schedule.loops import Machine, parallel, seq
from relaxir.schedule.parts import NARROW, strip_count, strip_lanes, strips
from relaxir.schedule.program import Program, accesses_of, reindex
from relaxir.schedule.stage_nest import block_reduces
from relaxir.sym import is_const, product
from relaxir.tir import (
    Alloc,
    Axis,
    Block,
    Buffer,
    Expr,
    For,
    ForKind,
    If,
    Let,
    Load,
    Seq,
    Stmt,
    Store,
    Var,
    as_expr,
    const,
)
from relaxir.tir.access import stride, variables_of
from relaxir.tir.visit import stores_of, substitute_vars, walk

SCALARS = 2  # most elements of a buffer that every point has for itself


@dataclass(frozen=True, slots=True)
class LanesRule:
    """A body with loops, along an axis all of whose memory lies side by side: the axis moves inside the loops.

    Every point has scalars of its own; they become rows of scalars. Memory is read in its own order then.

    before: ``for j < n: acc = 0; for k < m: acc += x[k, j]; y[k, j] = acc``;
    after: ``vector j < n: acc[j] = 0; for k < m: vector j < n: acc[j] += x[k, j]; y[k, j] = acc[j]``, in strips of
    columns; a few columns are lanes as they are, their scalars in registers.
    """

    name: str = "lanes"

    def take(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> tuple[Stmt, int] | None:
        """Schedule the first stage if its body has loops and an axis of lanes."""
        block = stages[0]
        if not isinstance(block, Block) or block_reduces(block) or block.init is not None:
            return None
        if not block.axes or not any(isinstance(s, For) for s in walk(block.body)):
            return None
        lane = block.axes[-1]
        result = _result(block.body, lane.var)
        if result is None:
            return None
        wide = _wide(block, lane, result, machine)
        if wide is None:
            return None
        whole = For(lane.var, as_expr(lane.extent), block.body, ForKind.VECTOR)
        narrow = parallel(block.axes[:-1], whole, machine)
        few = NARROW * machine.target.lanes(result.dtype)
        if is_const(lane.extent):
            return (narrow if int(lane.extent) <= few else wide), 1
        return If(as_expr(lane.extent) <= const(few), narrow, wide), 1


def _result(body: Stmt, lane: Var) -> Buffer | None:
    """The first memory that is written, if all memory lies side by side along the lanes, else None."""
    own = {s.buffer for s in walk(body) if isinstance(s, Alloc)}
    touched = [a for a in accesses_of(body) if isinstance(a, Load | Store) and a.buffer not in own]
    written = [s for s in stores_of(body) if s.buffer not in own]
    if not written or any(stride(a, lane) not in (0, 1) for a in touched):
        return None
    return written[0].buffer if all(stride(s, lane) == 1 for s in written) else None


def _wide(block: Block, lane: Axis, result: Buffer, machine: Machine) -> Stmt | None:
    """Strips of columns; None where a loop depends on the lane, or the rows of scalars would not stay in the cache."""
    size, j = strip_lanes(lane, result), lane.var
    own = [s.buffer for s in walk(block.body) if isinstance(s, Alloc)]
    kept = [product(b.shape) for b in own]
    if not all(is_const(k) and int(k) <= SCALARS for k in kept):
        return None
    rows = {b: replace(b, shape=(*b.shape, size)) for b in own}

    def make(at: Mapping[Var, Expr], width: Expr) -> Stmt:
        body = reindex(substitute_vars(block.body, at), rows, {b: lambda old: (*old, j) for b in own})
        return _inside(body, j, width, rows) or block

    every = strips(lane, result, make)
    if every.body is block:
        return None
    return parallel((*block.axes[:-1], Axis(every.var, strip_count(lane, result))), every.body, machine)


def _inside(stmt: Stmt, j: Var, width: Expr, rows: Mapping[Buffer, Buffer]) -> Stmt | None:
    """Put loops over the lanes around what depends on them, inside the loops that do not; None if that cannot be."""
    if isinstance(stmt, Alloc):
        body = _inside(stmt.body, j, width, rows)
        return None if body is None else Alloc(rows[stmt.buffer], body)
    if j not in variables_of(stmt):
        return stmt
    if all(isinstance(s, Store | Seq | Let | If) for s in walk(stmt)):
        return For(j, width, stmt, ForKind.VECTOR)
    if isinstance(stmt, Seq):
        return _each(stmt.stmts, j, width, rows)
    if isinstance(stmt, For) and j not in variables_of(stmt.extent):
        body = _inside(stmt.body, j, width, rows)
        return None if body is None else replace(stmt, body=body)
    if isinstance(stmt, Let) and j not in variables_of(stmt.value):
        body = _inside(stmt.body, j, width, rows)
        return None if body is None else replace(stmt, body=body)
    return None


def _each(stmts: Sequence[Stmt], j: Var, width: Expr, rows: Mapping[Buffer, Buffer]) -> Stmt | None:
    """Statements one by one; neighbours that only store share a loop."""
    done: list[Stmt] = []
    for stmt in stmts:
        made = _inside(stmt, j, width, rows)
        if made is None:
            return None
        last = done[-1] if done else None
        if isinstance(made, For) and made.var is j and isinstance(last, For) and last.var is j:
            done[-1] = replace(last, body=seq(last.body, made.body))
        else:
            done.append(made)
    return seq(*done)
