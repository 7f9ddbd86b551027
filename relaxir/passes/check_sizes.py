"""Checks that the dimensions which a host program computes fit 64 bits.

Before:
    n = T.bind_dim("n", T.extent(x, 0))
    T.alloc_output(y, 0)                                   # y: (n * 4,)
After:
    n = T.bind_dim("n", T.extent(x, 0))
    T.check(n * 4.0 <= 2.0 ** 62, "runtime-overflow", "main: the size `n * 4` does not fit 64 bits; n is {}", n)
    T.alloc_output(y, 0)

The sum is done in floating point, which does not wrap. What a formula's declared ranges keep small is not checked, nor
are indices in kernels: those only reach what tensors have, and their sizes are checked. Loops may take more steps than
any tensor has elements, where what they compute is never stored: a kernel that would not end in a day is not begun.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from relaxir.cost.steps import MOST_STEPS, Steps, steps_of, too_long
from relaxir.sym import LARGEST, SHOWN, Dim, DimLike, exact_parts, fold, free_dims, overflow, substitute
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
from relaxir.tir.visit import child_exprs, symbols_after, walk


def with_size_checks(name: str, func: PrimFunc, programs: Mapping[str, PrimFunc]) -> PrimFunc:
    """A host program that fails where a dimension it computes does not fit 64 bits.

    Args:
        name: of the function, for messages.
        func: a host program before its memory is planned.
        programs: the kernels of the module.
    """
    body = func.body.stmts if isinstance(func.body, Seq) else (func.body,)
    return replace(func, body=Seq(tuple(_Checker(name, func, programs).body(body, set(func.dims), set()))))


@dataclass(frozen=True)
class _Need:
    """What must hold of sizes: the symbols that must be known, and the check."""

    dims: frozenset[Dim]
    check: Assert


class _Checker:
    def __init__(self, name: str, func: PrimFunc, programs: Mapping[str, PrimFunc]) -> None:
        self.name = name
        self.func = func
        self.programs = programs
        self.numbers: dict[str, tuple[DimLike, ...]] = {}
        self.steps: dict[str, tuple[Steps, ...]] = {}

    def body(self, stmts: Sequence[Stmt], bound: set[Dim], checked: set[object]) -> Iterator[Stmt]:
        """A statement list, with the checks of what it computes before the first statement that could use it."""
        needs: dict[object, _Need] = {}
        for s in stmts:
            for part in (p for d in self.computed(s) for p in exact_parts(d)):
                needs.setdefault(part, _Need(frozenset(free_dims(part)), self.fits(part)))
            if isinstance(s, CallKernel):
                for steps in self.taken(s):
                    needs.setdefault((s.callee, steps), _Need(frozenset(steps.dims), self.ends(s.callee, steps)))

        def ready() -> Iterator[Stmt]:
            for key, need in needs.items():
                if key not in checked and bound >= need.dims:
                    checked.add(key)
                    yield need.check

        news = True
        for s in stmts:
            if news and not isinstance(s, BindDim | Assert | ConstantData):
                yield from ready()
                news = False
            yield self.inside(s, bound, checked)
            defined = symbols_after(s)
            news = news or bool(defined)
            bound.update(defined)
        yield from ready()  # of an arm that only checks

    def inside(self, stmt: Stmt, bound: set[Dim], checked: set[object]) -> Stmt:
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

    def taken(self, call: CallKernel) -> Iterator[Steps]:
        """The steps of a kernel's loops, in the symbols of the caller."""
        if call.callee not in self.steps:
            self.steps[call.callee] = steps_of(self.programs[call.callee])
        values = dict(zip(self.programs[call.callee].dims, call.dims, strict=True))
        for steps in self.steps[call.callee]:
            if set(steps.dims) <= set(values):
                yield replace(steps, factors=tuple(substitute(f, values) for f in steps.factors))

    def fits(self, part: DimLike) -> Assert:
        """The check that one formula fits 64 bits."""
        text, shown = overflow(part)
        value = _float(part)
        return self.limit(maximum(value, const(0.0, "float64") - value), LARGEST, "runtime-overflow", text, shown)

    def ends(self, callee: str, steps: Steps) -> Assert:
        """The check that a kernel comes to its end."""
        shown = steps.dims[:SHOWN]
        text = too_long(callee) + "".join(f"{', ' if n else '; '}{d.name} is {{}}" for n, d in enumerate(shown))
        value: Expr = const(steps.number, "float64")
        for factor in steps.factors:
            value = value * _float(factor)
        return self.limit(value, MOST_STEPS, "runtime-failure", text, shown)

    def limit(self, value: Expr, most: int, code: str, text: str, shown: Sequence[Dim]) -> Assert:
        """The check that a value in floating point is at most a number."""
        fits = value <= const(float(most), "float64")
        return Assert(fits, code, f"{self.name}: {text}", tuple(map(as_expr, shown)), self.func.span)


def _float(formula: DimLike) -> Expr:
    """A formula in floating point, which does not wrap."""
    return fold(formula, lambda n: const(float(n), "float64"), lambda d: cast(as_expr(d), "float64"), _node)


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
