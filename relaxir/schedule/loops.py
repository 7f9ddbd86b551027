"""Building loops: nests, chunks for threads, vector loops, and the order of loops inside one stage."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxir.cost import Config, TargetInfo
from relaxir.sym import DimLike, add, floordiv, is_const, min_, mul, product
from relaxir.tir import Axis, Expr, For, ForKind, Let, Seq, Stmt, Var, as_expr, binary, const
from relaxir.tir.expr import BinOp
from relaxir.tir.visit import substitute_vars

GRAIN = 65536  # operations that pay for waking a thread: about 20 microseconds
MOST_CHUNKS = 64  # chunks of one parallel loop; threads claim them one by one
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
    """A vector loop over an axis."""
    return For(axis.var, as_expr(axis.extent), body, ForKind.VECTOR)


def chunk_count(total: DimLike, work: DimLike, machine: Machine) -> DimLike:
    """Into how many chunks threads may split ``total`` points of ``work`` operations each: 1 when it does not pay."""
    if machine.config.parallel == "none" or machine.target.threads <= 1:
        return 1
    return min_(total, min_(MOST_CHUNKS, add(1, floordiv(mul(total, work), GRAIN))))


def _chunk(total: DimLike, chunks: DimLike) -> tuple[Var, Expr, Expr]:
    """Chunk variable, first point and number of points of a balanced split."""
    chunk = Var("chunk")
    whole, count = as_expr(total), as_expr(chunks)
    low = binary(BinOp.FLOORDIV, chunk * whole, count)
    return chunk, low, binary(BinOp.FLOORDIV, (chunk + 1) * whole, count)


def parallel(axes: Sequence[Axis], body: Stmt, work: DimLike, machine: Machine) -> Stmt:
    """Loops over independent axes, split over threads where ``work`` operations per point pay for it.

    before: ``for i < n: for j < m: body``; after::

        parallel chunk < min(n*m, 64, 1 + n*m*work // grain):
          for p < points of the chunk: let i = (first + p) // m, j = (first + p) % m: body
    """
    body = substitute_vars(body, {a.var: const(0) for a in axes if a.extent == 1})
    axes = tuple(a for a in axes if a.extent != 1)
    total = product(a.extent for a in axes)
    chunks = chunk_count(total, work, machine)
    if not axes or (is_const(chunks) and int(chunks) <= 1):
        return nest(axes, body)
    chunk, low, high = _chunk(total, chunks)
    flat, first = Var("point"), Var("first")
    index: Expr = first + flat
    inner: DimLike = 1
    lets: list[tuple[Var, Expr]] = []
    for position, axis in reversed(tuple(enumerate(axes))):
        value = binary(BinOp.FLOORDIV, index, as_expr(inner)) if inner != 1 else index
        lets.append((axis.var, binary(BinOp.MOD, value, as_expr(axis.extent)) if position else value))
        inner = mul(inner, axis.extent)
    for var, value in lets:
        body = Let(var, value, body)
    points = For(flat, high - first, body)
    return For(chunk, as_expr(chunks), Let(first, low, points), ForKind.PARALLEL)


def chunked_vector(axis: Axis, make: Stmt, work: DimLike, machine: Machine) -> Stmt:
    """Split an axis over threads, keeping it a vector axis inside: ``make`` is the body over the whole axis.

    before: ``vector i < n: body``; after: ``parallel chunk: vector i < points: body[first + i]``. The body may contain
    the vector loops of ``axis.var`` anywhere; each is shortened to the chunk.
    """
    chunks = chunk_count(axis.extent, work, machine)
    if is_const(chunks) and int(chunks) <= 1:
        return make
    chunk, low, high = _chunk(axis.extent, chunks)
    first = Var("first")
    return For(chunk, as_expr(chunks), Let(first, low, _shorten(make, axis.var, first, high - first)), ForKind.PARALLEL)


def _shorten(stmt: Stmt, var: Var, first: Var, extent: Expr) -> Stmt:
    if isinstance(stmt, For) and stmt.var is var:
        inner = Var(var.name)
        return For(inner, extent, substitute_vars(stmt.body, {var: first + inner}), stmt.kind, stmt.unroll)
    if isinstance(stmt, For):
        return For(stmt.var, stmt.extent, _shorten(stmt.body, var, first, extent), stmt.kind, stmt.unroll)
    if isinstance(stmt, Seq):
        return Seq(tuple(_shorten(s, var, first, extent) for s in stmt.stmts))
    return stmt
