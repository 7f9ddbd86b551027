"""Which serial loops may be evaluated for all iterations at once, and what a nest costs when that is done."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from relaxir.sym import DimLike
from relaxir.tir import (
    Alloc,
    Bcast,
    Binary,
    BinOp,
    Block,
    Buffer,
    Combine,
    Const,
    Expr,
    For,
    Let,
    Load,
    Seq,
    Size,
    Stmt,
    Store,
    Var,
)
from relaxir.tir.visit import child_exprs, child_stmts, walk, walk_expr

Linear: TypeAlias = "dict[Var | None, int]"
"""Coefficients of variables; None holds the constant."""

SizeOf: TypeAlias = "Callable[[DimLike], int | None]"
"""Value of a dimension expression, None where a `Switch` has yet to bind it."""


def linear(expr: Expr, size_of: SizeOf, lets: Mapping[Var, Linear | None]) -> Linear | None:
    """An index as a linear form of variables, or None where it is not one."""
    if isinstance(expr, Const):
        return {None: int(expr.value)}
    if isinstance(expr, Size):
        size = size_of(expr.expr)
        return None if size is None else {None: size}
    if isinstance(expr, Var):
        return lets.get(expr, {expr: 1})
    if isinstance(expr, Bcast):
        return {None: 0} if size_of(expr.extent) == 1 else linear(expr.index, size_of, lets)
    if not isinstance(expr, Binary) or expr.op not in (BinOp.ADD, BinOp.SUB, BinOp.MUL):
        return None
    a, b = linear(expr.a, size_of, lets), linear(expr.b, size_of, lets)
    if a is None or b is None:
        return None
    if expr.op is BinOp.MUL:
        if set(a) - {None}:
            a, b = b, a
        factor = a.get(None, 0)
        return None if set(a) - {None} else {v: c * factor for v, c in b.items()}
    sign = 1 if expr.op is BinOp.ADD else -1
    return {v: a.get(v, 0) + sign * b.get(v, 0) for v in {**a, **b}}


def upper(expr: Expr, size_of: SizeOf) -> int | None:
    """An upper bound of an extent that holds for all iterations, or None."""
    form = linear(expr, size_of, {})
    if form is not None and not any(c for v, c in form.items() if v is not None):
        return form.get(None, 0)
    if isinstance(expr, Binary) and expr.op is BinOp.MIN:
        known = [u for u in (upper(expr.a, size_of), upper(expr.b, size_of)) if u is not None]
        return min(known, default=None)
    return None


@dataclass(slots=True)
class _Accesses:
    """What a loop's body does to memory from outside it."""

    stores: dict[Buffer, list[tuple[Linear | None, ...]]] = field(default_factory=dict)
    combines: dict[Buffer, set[Combine | None]] = field(default_factory=dict)
    loads: dict[Buffer, list[tuple[Linear | None, ...]]] = field(default_factory=dict)
    inner: dict[Var, int | None] = field(default_factory=dict)  # variables bound in the body, with their extents
    local: set[Buffer] = field(default_factory=set)


def _collect(stmt: Stmt, size_of: SizeOf, lets: dict[Var, Linear | None], found: _Accesses) -> None:
    def forms(indices: tuple[Expr, ...]) -> tuple[Linear | None, ...]:
        return tuple(linear(i, size_of, lets) for i in indices)

    for expr in child_exprs(stmt):
        for e in walk_expr(expr):
            if isinstance(e, Load):
                found.loads.setdefault(e.buffer, []).append(forms(e.indices))
    if isinstance(stmt, Store):
        found.stores.setdefault(stmt.buffer, []).append(forms(stmt.indices))
        found.combines.setdefault(stmt.buffer, set()).add(stmt.combine)
    elif isinstance(stmt, Let):
        lets[stmt.var] = linear(stmt.value, size_of, lets)
    elif isinstance(stmt, For):
        found.inner[stmt.var] = upper(stmt.extent, size_of)
    elif isinstance(stmt, Block):
        found.inner.update((a.var, size_of(a.extent)) for a in stmt.axes)
    elif isinstance(stmt, Alloc):
        found.local.add(stmt.buffer)
    for child in child_stmts(stmt):
        _collect(child, size_of, lets, found)


def independent(loop: For, size_of: SizeOf) -> bool:
    """Whether a loop's iterations may run in lockstep: no iteration reads or overwrites what another one writes.

    True where each buffer written (except those allocated inside) is only combined into by one operation and not
    read, or is accessed at elements that no two iterations share, by an index linear in the loop's variable.
    """
    found = _Accesses()
    _collect(loop.body, size_of, {}, found)
    for buffer, stores in found.stores.items():
        if buffer in found.local:
            continue
        loads = found.loads.get(buffer, [])
        kinds = found.combines[buffer]
        if not loads and len(kinds) == 1 and None not in kinds:
            continue
        accesses = stores + loads
        if not any(_disjoint([a[p] for a in accesses], loop.var, found.inner) for p in range(len(buffer.shape))):
            return False
    return True


def _disjoint(forms: list[Linear | None], var: Var, inner: Mapping[Var, int | None]) -> bool:
    """Whether indices of one axis can only meet within one iteration of ``var``."""
    steps: set[int] = set()
    outside: set[frozenset[tuple[Var, int]]] = set()
    lows: list[int] = []
    highs: list[int] = []
    for form in forms:
        if form is None:
            return False
        low = high = form.get(None, 0)
        fixed: list[tuple[Var, int]] = []
        for v, c in form.items():
            if v is None or v is var or not c:
                continue
            if v not in inner:
                fixed.append((v, c))
                continue
            extent = inner[v]
            if extent is None:
                return False
            reach = c * max(extent - 1, 0)
            low, high = low + min(reach, 0), high + max(reach, 0)
        steps.add(form.get(var, 0))
        outside.add(frozenset(fixed))
        lows.append(low)
        highs.append(high)
    step = steps.pop() if len(steps) == 1 else 0
    return len(outside) == 1 and step != 0 and max(highs) - min(lows) < abs(step)


def contraction(stmt: Stmt) -> Store | None:
    """The sum of products at the bottom of a perfect nest, or None: it costs its operands, not its lanes."""
    while isinstance(stmt, For | Block | Seq):
        if isinstance(stmt, Seq):
            if len(stmt.stmts) != 1:
                return None
            stmt = stmt.stmts[0]
        else:
            if isinstance(stmt, Block) and stmt.init is not None and not isinstance(stmt.init, Store):
                return None
            stmt = stmt.body
    if isinstance(stmt, Store) and stmt.combine is Combine.SUM and isinstance(stmt.value, Binary):
        return stmt if stmt.value.op is BinOp.MUL else None
    return None


def variables(*exprs: Expr) -> Iterator[Var]:
    """Variables of expressions."""
    for expr in exprs:
        for e in walk_expr(expr):
            if isinstance(e, Var):
                yield e


def private_elements(stmt: Stmt, size_of: SizeOf, unknown: int = 64) -> int:
    """Elements of the largest temporary that one lane of a body allocates (1 for none); ``unknown`` for open sizes."""
    total = 1
    for s in walk(stmt):
        if isinstance(s, Alloc):
            count = 1
            for extent in s.buffer.shape:
                size = size_of(extent)
                count *= unknown if size is None else max(1, size)
            total = max(total, count)
    return total


def nest_depth(stmt: Stmt) -> int:
    """How many loops and block axes stand inside each other at most."""
    own = 1 if isinstance(stmt, For) else len(stmt.axes) if isinstance(stmt, Block) else 0
    return own + max((nest_depth(child) for child in child_stmts(stmt)), default=0)
