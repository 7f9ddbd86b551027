"""Symbolic cost of tensor programs: operations and bytes, as polynomials in the program's sizes.

What counts is what the maths asks for, not what a machine does: each distinct subexpression of a statement counts once
for every point of the axes it depends on, so that it does not matter where a schedule computes it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType

from relaxir.support.dtypes import info
from relaxir.sym import DimLike, min_, mul, parse, product, to_text, total
from relaxir.tir import (
    Alloc,
    Block,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    For,
    If,
    Let,
    Load,
    PrimFunc,
    Select,
    Seq,
    Size,
    Stmt,
    Store,
    Switch,
    Var,
    While,
)
from relaxir.tir.access import as_dim
from relaxir.tir.expr import CHEAP_INTRINSICS
from relaxir.tir.func import AttrValue
from relaxir.tir.visit import all_exprs, child_exprs, walk_expr

CALL_COST = 10  # a polynomial of a transcendental function, in elementary operations
LONGEST = 10_000  # characters of a recorded formula
INDEXING = frozenset({"int64", "bool"})  # what decides where and whether; free beside arithmetic of another dtype

Axes = Mapping[Var, DimLike]


@dataclass(frozen=True, slots=True)
class Work:
    """What one call of a tensor program has to do at least.

    Attributes:
        flops: elementary operations: 2 per multiply-add, 10 per transcendental function; conversions, selections,
            copies and index arithmetic are free.
        bytes: of all parameters, each counted once; of one that is read at some places only, those places.
    """

    flops: DimLike = 0
    bytes: DimLike = 0


def operations(expr: Expr) -> int:
    """Elementary operations of evaluating one expression; index arithmetic of loads is free."""
    if isinstance(expr, Load | Const | Var | Size):
        return 0
    return _own(expr) + sum(operations(e) for e in child_exprs(expr))


def _own(expr: Expr) -> int:
    return CALL_COST if isinstance(expr, Call) and expr.fn not in CHEAP_INTRINSICS else 1


def flops(func: PrimFunc) -> DimLike:
    """Elementary operations of one call; a data-dependent loop counts one iteration, an `If` its first side."""
    return total(_stmt_flops(func.body, MappingProxyType({})))


def _stmt_flops(stmt: Stmt, axes: Axes) -> Iterator[DimLike]:
    if isinstance(stmt, Store):
        yield from _store_flops(stmt, axes)
    elif isinstance(stmt, Seq):
        for s in stmt.stmts:
            yield from _stmt_flops(s, axes)
    elif isinstance(stmt, Block):
        yield from _stmt_flops(stmt.body, {**axes, **{a.var: a.extent for a in stmt.axes}})
    elif isinstance(stmt, For):
        extent = as_dim(stmt.extent)
        yield from _stmt_flops(stmt.body, {**axes, stmt.var: 1 if extent is None else extent})
    elif isinstance(stmt, If):
        yield from _stmt_flops(stmt.then, axes)
    elif isinstance(stmt, Let | Alloc | Switch | While):
        yield from _stmt_flops(stmt.body, axes)


def _store_flops(store: Store, axes: Axes) -> Iterator[DimLike]:
    """Operations of a statement over its domain."""
    free = INDEXING - {store.buffer.dtype}
    for expr, used in _distinct(store.value, axes):
        if not isinstance(expr, Load | Const | Var | Size | Cast | Select) and expr.dtype not in free:
            yield mul(_own(expr), product(axes[v] for v in used))
    if store.combine is not None:
        yield product(axes.values())


def _distinct(expr: Expr, axes: Axes) -> Iterator[tuple[Expr, list[Var]]]:
    """Subexpressions outside indices, equal ones once, with the axes that each depends on, outermost first.

    A variable that is no axis (of a `Let`) may depend on all of them.
    """
    numbers: dict[object, int] = {}
    seen: dict[int, int] = {}
    found: list[tuple[Expr, frozenset[Var]]] = []

    def visit(e: Expr) -> int:
        if id(e) in seen:
            return seen[id(e)]
        below = [visit(c) for c in child_exprs(e)]
        key = e if isinstance(e, Const | Size | Var) else (type(e), _name(e), *below)
        number = numbers.setdefault(key, len(numbers))
        if number == len(found):
            own = frozenset([e] if e in axes else axes) if isinstance(e, Var) else frozenset[Var]()
            found.append((e, own.union(*(found[b][1] for b in below))))
        seen[id(e)] = number
        return number

    visit(expr)
    outside = {id(e) for e in _outside_indices(expr)}
    for e, used in found:
        if id(e) in outside:
            yield e, [v for v in axes if v in used]


def _name(expr: Expr) -> object:
    """What tells two expressions of one class over the same operands apart."""
    return getattr(expr, "op", None) or getattr(expr, "fn", None) or getattr(expr, "buffer", None) or expr.dtype


def _outside_indices(expr: Expr) -> Iterator[Expr]:
    yield expr
    for child in () if isinstance(expr, Load) else child_exprs(expr):
        yield from _outside_indices(child)


def bytes_moved(func: PrimFunc) -> DimLike:
    """Bytes that must cross the memory bus at least: every parameter once, or as much of it as is accessed."""
    reads = _reads(func)
    return total(mul(_elements(b, reads.get(b, ())), info(b.dtype).bytes) for b in func.params)


def _elements(buffer: Buffer, reads: Iterable[DimLike]) -> DimLike:
    """Elements of a parameter that are accessed: no more than it has, no more than its loads together can reach."""
    size = product(buffer.shape)
    distinct = set(reads)
    return size if not distinct or size in distinct else min_(size, total(distinct))


def _reads(func: PrimFunc) -> dict[Buffer, list[DimLike]]:
    """For each parameter that only blocks access, how many elements each of their loads can reach at most."""
    found: dict[Buffer, list[DimLike]] = {}
    whole = set(func.results) | set(func.scratch)
    for top in func.body.stmts if isinstance(func.body, Seq) else (func.body,):
        inner = top if isinstance(top, Block) and isinstance(top.body, Store) else None
        extents = {a.var: a.extent for a in inner.axes} if inner is not None else {}
        for e in all_exprs(top):
            if not isinstance(e, Load):
                continue
            used = {v for i in e.indices for v in walk_expr(i) if isinstance(v, Var)}
            if inner is None or not used <= extents.keys():
                whole.add(e.buffer)
            else:
                found.setdefault(e.buffer, []).append(product(x for v, x in extents.items() if v in used))
    return {b: n for b, n in found.items() if b not in whole}


def work_of(func: PrimFunc) -> Work:
    """Cost of one call: as recorded by the operator or when the program was scheduled, else counted."""
    scope = {d.name: d for d in func.dims}

    def part(name: str, count: Callable[[PrimFunc], DimLike]) -> DimLike:
        text = func.attrs.get(name)
        return parse(text, scope) if isinstance(text, str) else count(func)

    return Work(part("flops", flops), part("bytes", bytes_moved))


def work_attrs(func: PrimFunc) -> dict[str, AttrValue]:
    """Cost of a program in block form as attributes: loops no longer show what is the maths and what is the machine.

    Nothing for formulas too long to be read back.
    """
    work = work_of(func)
    texts: dict[str, AttrValue] = {"flops": to_text(work.flops), "bytes": to_text(work.bytes)}
    return texts if all(len(str(t)) <= LONGEST for t in texts.values()) else {}
