"""Walks over tensor programs: children, pre-order iteration, bottom-up rebuilding, substitution, symbols used."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from functools import cache
from typing import TypeVar, cast

from relaxir.sym import Dim, DimLike, free_dims
from relaxir.tir.buffer import Buffer
from relaxir.tir.expr import Bcast, Binary, Bits, Call, Cast, Expr, Load, Select, Size, Var, as_expr, binary
from relaxir.tir.host import (
    Alias,
    AllocFrame,
    AllocOutput,
    BindDim,
    CallHost,
    CallKernel,
    CallLibrary,
    ConstantData,
    Copy,
    Grow,
    InRoom,
    OpenFrame,
    SwapRooms,
    Together,
)
from relaxir.tir.stmt import Alloc, Assert, Axis, Block, For, ForKind, If, Let, Seq, Stmt, Store, Switch, While

Node = TypeVar("Node", bound=Expr | Stmt)


@cache
def expr_fields(kind: type[Expr | Stmt]) -> tuple[str, ...]:
    """Names of a node class's fields that hold expressions; ``dataclasses.fields`` is too slow for every visit."""
    return tuple(f.name for f in fields(kind) if "Expr" in str(f.type))  # type: ignore[arg-type]  # every node is a dataclass


def child_exprs(node: Expr | Stmt) -> tuple[Expr, ...]:
    """Expressions directly below a node, in evaluation order."""
    found: tuple[Expr, ...] = ()
    for name in expr_fields(type(node)):  # type: ignore[arg-type]  # a class is hashable, whatever its instances are
        value = getattr(node, name)
        found += value if isinstance(value, tuple) else (value,)
    return found


def child_stmts(stmt: Stmt) -> tuple[Stmt, ...]:
    """Statements directly below a statement, in program order."""
    if isinstance(stmt, Seq):
        return stmt.stmts
    if isinstance(stmt, Block):
        return ((stmt.init,) if stmt.init is not None else ()) + (stmt.body,)
    if isinstance(stmt, If):
        return (stmt.then,) + ((stmt.other,) if stmt.other is not None else ())
    if isinstance(stmt, For | While | Let | Alloc | Switch):
        return (stmt.body,)
    return stmt.calls if isinstance(stmt, Together) else ()


def walk_expr(expr: Expr) -> Iterator[Expr]:
    """All expressions of a tree, parents first."""
    todo = [expr]
    while todo:
        top = todo.pop()
        yield top
        todo += reversed(child_exprs(top))


def walk(stmt: Stmt) -> Iterator[Stmt]:
    """All statements of a tree, parents first."""
    todo = [stmt]
    while todo:
        top = todo.pop()
        yield top
        todo += reversed(child_stmts(top))


def last_loops(stmt: Stmt) -> tuple[For, ...]:
    """The parallel loops that nothing follows: one for each way through a statement that ends with one."""
    if isinstance(stmt, For):
        return (stmt,) if stmt.kind is ForKind.PARALLEL else ()
    if isinstance(stmt, If):
        return tuple(loop for arm in child_stmts(stmt) for loop in last_loops(arm))
    if isinstance(stmt, Seq):
        return last_loops(stmt.stmts[-1]) if stmt.stmts else ()
    return last_loops(stmt.body) if isinstance(stmt, Let | Alloc) else ()


def all_exprs(stmt: Stmt) -> Iterator[Expr]:
    """Every expression anywhere below a statement."""
    for s in walk(stmt):
        for e in child_exprs(s):
            yield from walk_expr(e)


def map_expr(expr: Expr, fn: Callable[[Expr], Expr]) -> Expr:
    """Rebuild bottom-up: ``fn`` sees each node after its children; unchanged trees are returned as they are."""
    if isinstance(expr, Load):
        items = tuple(map_expr(i, fn) for i in expr.indices)
        expr = expr if all(a is b for a, b in zip(items, expr.indices, strict=True)) else replace(expr, indices=items)
    elif isinstance(expr, Binary):
        a, b = map_expr(expr.a, fn), map_expr(expr.b, fn)
        expr = expr if a is expr.a and b is expr.b else binary(expr.op, a, b)
    elif isinstance(expr, Call):
        arg = map_expr(expr.arg, fn)
        expr = expr if arg is expr.arg else Call(expr.fn, arg)
    elif isinstance(expr, Cast | Bits):
        value = map_expr(expr.value, fn)
        expr = expr if value is expr.value else replace(expr, value=value)
    elif isinstance(expr, Select):
        c, t, o = (map_expr(e, fn) for e in (expr.cond, expr.then, expr.other))
        expr = expr if (c, t, o) == (expr.cond, expr.then, expr.other) else Select(c, t, o)
    elif isinstance(expr, Bcast):
        index = map_expr(expr.index, fn)
        expr = expr if index is expr.index else Bcast(index, expr.extent)
    return fn(expr)


def map_stmt(
    stmt: Stmt,
    on_expr: Callable[[Expr], Expr] | None = None,
    on_stmt: Callable[[Stmt], Stmt] | None = None,
    on_buffer: Callable[[Buffer], Buffer] | None = None,
    on_dim: Callable[[DimLike], DimLike] | None = None,
) -> Stmt:
    """Rebuild a statement tree bottom-up.

    Args:
        stmt: the tree.
        on_expr: applied to every expression node (bottom-up).
        on_stmt: applied to every statement after its parts were rebuilt.
        on_buffer: replaces buffers wherever one is named (loads included).
        on_dim: replaces every symbolic dimension expression (sizes, block extents, frame offsets).
    """

    def node(e: Expr) -> Expr:
        if on_buffer is not None and isinstance(e, Load):
            new = on_buffer(e.buffer)
            e = e if new is e.buffer else replace(e, buffer=new)
        if on_dim is not None:
            if isinstance(e, Size):
                e = as_expr(on_dim(e.expr))
            elif isinstance(e, Bcast):
                e = Bcast(e.index, on_dim(e.extent))
        return on_expr(e) if on_expr is not None else e

    def value(v: object) -> object:
        if isinstance(v, Expr):
            return map_expr(v, node)
        if isinstance(v, Stmt):
            return rebuild(v)
        if isinstance(v, Buffer):
            return on_buffer(v) if on_buffer is not None else v
        if isinstance(v, Axis):
            return v if on_dim is None else replace(v, extent=on_dim(v.extent))
        if isinstance(v, tuple):
            items = tuple(value(i) for i in v)
            return v if all(a is b for a, b in zip(items, v, strict=True)) else items
        return v

    def rebuild(s: Stmt) -> Stmt:
        changed: dict[str, object] = {}
        for f in fields(s):  # type: ignore[arg-type]  # every node is a dataclass
            old = getattr(s, f.name)
            new = value(old)
            if on_dim is not None and f.name in DIM_FIELDS and type(s) in DIM_STMTS:
                new = (
                    tuple(on_dim(d) for d in old) if isinstance(old, tuple) else (None if old is None else on_dim(old))
                )
            if new is not old:
                changed[f.name] = new
        out = replace(s, **changed) if changed else s  # type: ignore[type-var]  # every node is a dataclass
        return on_stmt(out) if on_stmt is not None else out

    return rebuild(stmt)


DIM_FIELDS = frozenset({"dims", "offset", "size"})
DIM_STMTS = frozenset({CallKernel, Alias, AllocFrame, Grow, InRoom, OpenFrame})


def substitute_vars(node: Node, mapping: Mapping[Var, Expr]) -> Node:
    """Replace variables by expressions (simultaneously)."""

    def swap(e: Expr) -> Expr:
        return mapping.get(e, e) if isinstance(e, Var) else e

    changed = map_expr(node, swap) if isinstance(node, Expr) else map_stmt(node, on_expr=swap)
    return cast(Node, changed)  # the same kind of node as went in


def substitute_buffers(stmt: Stmt, mapping: Mapping[Buffer, Buffer]) -> Stmt:
    """Replace buffers wherever they are named."""
    return map_stmt(stmt, on_buffer=lambda b: mapping.get(b, b))


def buffers_of(stmt: Stmt) -> tuple[Buffer, ...]:
    """Every buffer named in a statement, in order of first appearance."""
    found: dict[Buffer, None] = {}
    for s in walk(stmt):
        found.update(dict.fromkeys(x.buffer for e in child_exprs(s) for x in walk_expr(e) if isinstance(x, Load)))
        for f in fields(s):  # type: ignore[arg-type]  # every node is a dataclass
            v = getattr(s, f.name)
            found.update(dict.fromkeys(b for b in (v if isinstance(v, tuple) else (v,)) if isinstance(b, Buffer)))
    return tuple(found)


def reads_of(stmt: Stmt) -> tuple[Load, ...]:
    """Every load below a statement."""
    return tuple(e for e in all_exprs(stmt) if isinstance(e, Load))


def stores_of(stmt: Stmt) -> tuple[Store, ...]:
    """Every store below a statement, in program order."""
    return tuple(s for s in walk(stmt) if isinstance(s, Store))


def asserts_of(stmt: Stmt) -> tuple[Assert, ...]:
    """Every assertion below a statement, in program order: the places at which a program can fail."""
    return tuple(s for s in walk(stmt) if isinstance(s, Assert))


def free_dims_of(params: Sequence[Buffer], body: Stmt) -> tuple[Dim, ...]:
    """Symbols a program takes from outside, sorted by name (without those bound by `Switch` or `BindDim`)."""
    bound = {s.dim for s in walk(body) if isinstance(s, Switch | BindDim)}
    used = dict.fromkeys(symbol for d in _dims_in(params, body) for symbol in free_dims(d))
    return tuple(sorted((d for d in used if d not in bound), key=lambda d: d.name))


def symbols_after(stmt: Stmt) -> frozenset[Dim]:
    """Symbols that a statement of a host program leaves defined: a branch those of both arms, a loop none."""
    if isinstance(stmt, BindDim):
        return frozenset({stmt.dim})
    if isinstance(stmt, Seq):
        return frozenset[Dim]().union(*map(symbols_after, stmt.stmts))
    if isinstance(stmt, If) and stmt.other is not None:
        return symbols_after(stmt.then) & symbols_after(stmt.other)
    return frozenset()


def _dims_in(params: Sequence[Buffer], body: Stmt) -> Iterator[DimLike]:
    """Every dimension expression of a program, wherever it stands."""
    for b in (*params, *buffers_of(body)):
        yield from b.shape
    for e in all_exprs(body):
        if isinstance(e, Size):
            yield e.expr
        elif isinstance(e, Bcast):
            yield e.extent
    for s in walk(body):
        if isinstance(s, Block):
            yield from (axis.extent for axis in s.axes)
        elif isinstance(s, CallKernel):
            yield from s.dims
        elif isinstance(s, Alias | AllocFrame | InRoom) and s.offset is not None:
            yield s.offset
        elif isinstance(s, OpenFrame | Grow):
            yield s.size


HOST_STATEMENTS = (
    Alias,
    AllocFrame,
    AllocOutput,
    BindDim,
    CallHost,
    CallKernel,
    CallLibrary,
    ConstantData,
    Copy,
    Grow,
    InRoom,
    OpenFrame,
    SwapRooms,
    Together,
)
