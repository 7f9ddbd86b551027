"""Checks that the dimensions which a host program computes fit 64 bits.

Before:
    n = T.bind_dim("n", T.extent(x, 0))
    T.alloc_output(y, 0)                                   # y: (n * 4,)
After:
    n = T.bind_dim("n", T.extent(x, 0))
    T.check(n * 4.0 <= 2.0 ** 62, "runtime-overflow", "main: the size `n * 4` does not fit 64 bits; n is {}", n)
    T.alloc_output(y, 0)

The sum is done in floating point, which does not wrap. What a formula's declared ranges keep small is not checked, nor
are loops and indices in kernels: those only reach what tensors have, and their sizes are checked.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from relaxir.sym import LARGEST, Dim, DimLike, exact_parts, fold, free_dims, overflow, substitute
from relaxir.tir import (
    Alias,
    AllocFrame,
    AllocOutput,
    Assert,
    BindDim,
    CallKernel,
    ConstantData,
    Expr,
    For,
    If,
    InRoom,
    Let,
    Load,
    PrimFunc,
    Seq,
    Size,
    Stmt,
    Store,
    While,
    as_expr,
    binary,
    cast,
    const,
    maximum,
    minimum,
)
from relaxir.tir.expr import BinOp
from relaxir.tir.visit import child_exprs, walk


def with_size_checks(name: str, func: PrimFunc, programs: Mapping[str, PrimFunc]) -> PrimFunc:
    """A host program that fails where a dimension it computes does not fit 64 bits.

    Args:
        name: of the function, for messages.
        func: a host program before its memory is planned.
        programs: the kernels of the module.
    """
    body = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    return replace(func, body=Seq(tuple(_Checker(name, func, programs).body(body, set(func.dims), set()))))


class _Checker:
    def __init__(self, name: str, func: PrimFunc, programs: Mapping[str, PrimFunc]) -> None:
        self.name = name
        self.func = func
        self.programs = programs
        self.numbers: dict[str, tuple[DimLike, ...]] = {}

    def body(self, stmts: Sequence[Stmt], bound: set[Dim], checked: set[DimLike]) -> Iterator[Stmt]:
        """A statement list, with the checks of what it computes before the first statement that could use it."""
        parts = dict.fromkeys(p for s in stmts for d in self.computed(s) for p in exact_parts(d))
        news = True
        for s in stmts:
            if news and not isinstance(s, BindDim | Assert | ConstantData):
                ready = [p for p in parts if p not in checked and bound.issuperset(free_dims(p))]
                checked.update(ready)
                yield from map(self.check, ready)
                news = False
            yield self.inside(s, bound, checked)
            defined = {b.dim for b in walk(s) if isinstance(b, BindDim)} if isinstance(s, BindDim | If) else set()
            news = news or bool(defined)
            bound.update(defined)

    def inside(self, stmt: Stmt, bound: set[Dim], checked: set[DimLike]) -> Stmt:
        """A statement with checks in its bodies."""

        def arm(s: Stmt) -> Stmt:
            return Seq(tuple(self.body(s.stmts if isinstance(s, Seq) else (s,), set(bound), set(checked))))

        if isinstance(stmt, If):
            return replace(stmt, then=arm(stmt.then), other=None if stmt.other is None else arm(stmt.other))
        return replace(stmt, body=arm(stmt.body)) if isinstance(stmt, While | For) else stmt

    def computed(self, s: Stmt) -> Iterator[DimLike]:
        """The dimensions whose values a statement itself depends on."""
        yield from _sizes(child_exprs(s))
        if isinstance(s, AllocFrame | AllocOutput | Alias | InRoom):
            yield from s.buffer.shape
        elif isinstance(s, CallKernel):
            yield from s.dims
            callee = self.programs[s.callee]
            values = dict(zip(callee.dims, s.dims, strict=True))
            yield from (substitute(d, values) for d in self.stored(s.callee) if set(free_dims(d)) <= set(values))

    def stored(self, callee: str) -> tuple[DimLike, ...]:
        """The dimensions that a kernel turns into numbers."""
        if callee not in self.numbers:
            values = (s.value for s in walk(self.programs[callee].body) if isinstance(s, Store | Let))
            self.numbers[callee] = tuple(dict.fromkeys(_sizes(values)))
        return self.numbers[callee]

    def check(self, part: DimLike) -> Stmt:
        """The check of one formula."""
        text, shown = overflow(part)
        value = fold(part, lambda n: const(float(n), "float64"), lambda d: cast(as_expr(d), "float64"), _node)
        largest = const(float(LARGEST), "float64")
        fits = maximum(value, const(0.0, "float64") - value) <= largest
        return Assert(fits, "runtime-overflow", f"{self.name}: {text}", tuple(map(as_expr, shown)), self.func.span)


def _node(label: str, args: Sequence[Expr]) -> Expr:
    """A node of a formula in floating point, to within one."""
    total = args[0]
    for arg in args[1:]:
        if label in ("floordiv", "ceildiv"):
            total = binary(BinOp.DIV, total, maximum(arg, const(1.0, "float64")))
        elif label == "mod":
            total = arg  # never more than the divisor
        elif label in ("add", "mul"):
            total = total + arg if label == "add" else total * arg
        else:
            total = minimum(total, arg) if label == "min" else maximum(total, arg)
    return total


def _sizes(exprs: Iterable[Expr]) -> Iterator[DimLike]:
    """Dimensions in expressions, without those in the indices of loads."""
    for e in exprs:
        if isinstance(e, Size):
            yield e.expr
        elif not isinstance(e, Load):
            yield from _sizes(child_exprs(e))
