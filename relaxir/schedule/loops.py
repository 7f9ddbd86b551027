"""Building loops: nests, chunks for threads, vector loops, and the order of loops inside one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxir.cost import Config, TargetInfo
from relaxir.sym import DimLike, ceildiv, is_const
from relaxir.tir import Axis, Expr, For, ForKind, Seq, Stmt, Var, as_expr, const, minimum
from relaxir.tir.visit import substitute_vars

BLOCK = 4096  # elements of a vector loop that one thread takes at a time
SINGLY = 4  # copies of the body of a plain loop over elements
FEW_POINTS = 4  # so few outer iterations leave threads idle: the vector axis is split instead


@dataclass(frozen=True, slots=True)
class Machine:
    """Target and configuration, handed through the rules together."""

    target: TargetInfo
    config: Config


def seq(*stmts: Stmt | None) -> Stmt:
    """Statements in order, nested sequences opened, None left out; one statement stays itself."""
    flat: list[Stmt] = []
    for s in stmts:
        if isinstance(s, Seq):
            flat.extend(s.stmts)
        elif s is not None:
            flat.append(s)
    return flat[0] if len(flat) == 1 else Seq(tuple(flat))


def loop(var: Var, extent: DimLike | Expr, body: Stmt, kind: ForKind = ForKind.SERIAL, unroll: int = 1) -> Stmt:
    """One loop; an extent of exactly 1 leaves the body with the variable replaced by 0."""
    if is_one(extent) and kind is not ForKind.VECTOR:
        return substitute_vars(body, {var: const(0)})
    return For(var, as_expr(extent), body, kind, unroll)


def is_one(extent: DimLike | Expr) -> bool:
    """Whether an extent is the constant 1."""
    return getattr(extent, "value", extent) == 1 and not isinstance(extent, bool)


def nest(axes: Sequence[Axis], body: Stmt, kind: ForKind = ForKind.SERIAL) -> Stmt:
    """Loops over axes, first axis outermost."""
    for axis in reversed(axes):
        body = loop(axis.var, axis.extent, body, kind)
    return body


def vector(axis: Axis, body: Stmt) -> Stmt:
    """Make a vector loop over an axis."""
    return For(axis.var, as_expr(axis.extent), body, ForKind.VECTOR)


def singly(axis: Axis, body: Stmt) -> Stmt:
    """Make a plain loop over an axis that would be lanes, a few elements at a time."""
    return For(axis.var, as_expr(axis.extent), body, ForKind.SERIAL, SINGLY)


def parallel(axes: Sequence[Axis], body: Stmt, machine: Machine) -> Stmt:
    """Loops over independent axes that may be split over threads; the backend decides at run time whether it pays.

    before: ``for i < n: for j < m: body``; after: ``parallel i < n: parallel j < m: body``
    """
    serial = machine.config.parallel == "none" or machine.target.threads <= 1
    return nest(axes, body, ForKind.SERIAL if serial else ForKind.PARALLEL)


def chunked_vector(axis: Axis, body: Stmt, machine: Machine) -> Stmt:
    """Cut the vector axis of a nest into blocks for threads: ``body`` holds vector loops over ``axis.var`` anywhere.

    before: ``vector i < n: body[i]``; after: ``parallel b < (n + 4095) // 4096: vector i < min(n - b*4096, 4096): ...``
    """
    if is_const(axis.extent) and int(axis.extent) <= BLOCK:
        return body
    block = Var("block")
    first = block * BLOCK
    whole = is_const(axis.extent) and int(axis.extent) % BLOCK == 0
    size: Expr = const(BLOCK) if whole else minimum(as_expr(axis.extent) - first, const(BLOCK))
    blocks = Axis(block, ceildiv(axis.extent, BLOCK))
    return parallel((blocks,), _shorten(body, axis.var, first, size), machine)


def _shorten(stmt: Stmt, var: Var, first: Expr, extent: Expr) -> Stmt:
    if isinstance(stmt, For) and stmt.var is var:
        inner = Var(var.name)
        return For(inner, extent, substitute_vars(stmt.body, {var: first + inner}), stmt.kind, stmt.unroll)
    if isinstance(stmt, For):
        return For(stmt.var, stmt.extent, _shorten(stmt.body, var, first, extent), stmt.kind, stmt.unroll)
    if isinstance(stmt, Seq):
        return Seq(tuple(_shorten(s, var, first, extent) for s in stmt.stmts))
    return stmt
