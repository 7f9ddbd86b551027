"""Each invariant of the tensor-program verifier, broken once; and what must not be reported."""

from __future__ import annotations

from collections.abc import Callable
from types import MappingProxyType

import pytest

from relaxir.sym import dim
from relaxir.tir import (
    Alloc,
    AllocFrame,
    Assert,
    Axis,
    AxisKind,
    Binary,
    BindDim,
    BinOp,
    Block,
    Buffer,
    Combine,
    Const,
    Copy,
    Extent,
    For,
    ForKind,
    If,
    Let,
    Prefetch,
    PrimFunc,
    Scope,
    Seq,
    Size,
    Stmt,
    Store,
    Switch,
    Var,
    While,
    binary,
    cast,
    const,
    eq,
)
from relaxir.tir.verify import verify_prim_func

N, R = dim("n"), dim("r", min=1, max=4)
X, Y = Buffer("x", (N, 4), "f32"), Buffer("y", (N, 4), "f32")
I, J = Var("i"), Var("j")  # noqa: E741  # the loops they stand for
ZERO, ONE = const(0), const(1)
HOST = MappingProxyType({"scope": "host"})
STORE = Store(Y, (ZERO, ZERO), const(1.0, "f32"))


def over(body: Stmt, kind: ForKind = ForKind.SERIAL, var: Var = I) -> Stmt:
    """A loop over the rows."""
    return For(var, Size(N), body, kind)


def block(body: Stmt, *kinds: AxisKind, init: Stmt | None = None) -> Block:
    """A block over i and j."""
    return Block("b", tuple(Axis(v, 4, k) for v, k in zip((I, J), kinds, strict=False)), body, init)


def small(shape: tuple[object, ...], scope: Scope = Scope.STACK) -> Buffer:
    """A private buffer."""
    return Buffer("small", shape, "f32", scope)  # type: ignore[arg-type]  # tests pass dimensions


def raw(op: BinOp, dtype: str) -> Stmt:
    """A Let of an operation on two literals of a dtype."""
    value = Binary(op, Const(1.0 if dtype == "float32" else 1, dtype), Const(1.0 if dtype == "float32" else 1, dtype))
    return Let(Var("v", dtype), value, STORE)


BROKEN: tuple[tuple[int, str, Stmt], ...] = (
    (1, "buffer `z` is used", Store(Buffer("z", (), "f32"), (), X[0, 0])),
    (1, "buffer `small` is used", Seq((Alloc(small(()), STORE), Store(Y, (ZERO, ZERO), small(())[()])))),
    (2, "variable `i` is used outside", Store(Y, (I, ZERO), X[0, 0])),
    (2, "variable `i` is used outside", Seq((over(STORE), Store(Y, (I, ZERO), X[0, 0])))),
    (3, "`i` is bound again", over(over(STORE))),
    (3, "`i` is bound again", Let(I, ZERO, over(STORE))),
    (3, "`r` is bound again", Switch(Size(N), R, 1, 4, Switch(Size(N), R, 1, 4, STORE))),
    (4, "symbol `m` of an expression", For(I, Size(dim("m")), STORE)),
    (4, "symbol `m` of buffer `small`", Alloc(small((dim("m"),), Scope.GLOBAL), STORE)),
    (4, "two different symbols are named `n`", Switch(Size(N), dim("n", min=1, max=3), 1, 4, STORE)),
    (5, "index 0 of `y` is float32", Store(Y, (X[0, 0], ZERO), X[0, 0])),
    (5, "index 4 is outside axis 1 of `y` of size 4", Store(Y, (ZERO, const(4)), X[0, 0])),
    (5, "index -1 is outside", Prefetch(X, (ZERO, const(-1)))),
    (6, "a condition is int64", If(Size(N), STORE)),
    (6, "loop `f` is not int64", For(Var("f", "float32"), Size(N), STORE)),
    (6, "`v` is float32, its value int64", Let(Var("v", "float32"), ZERO, STORE)),
    (6, "`/` of int64", raw(BinOp.DIV, "int64")),
    (6, "`&` of float32", raw(BinOp.AND, "float32")),
    (6, "`<<` of float32", raw(BinOp.SHL, "float32")),
    (8, "a spatial axis after a reduce axis", block(STORE, AxisKind.REDUCE, AxisKind.SPATIAL)),
    (
        8,
        "under a reduce axis without combining",
        block(Store(Y, (I, ZERO), X[0, J]), AxisKind.SPATIAL, AxisKind.REDUCE),
    ),
    (
        2,
        "variable `j` is used outside",
        block(
            Store(Y, (I, ZERO), X[0, J], Combine.SUM), AxisKind.SPATIAL, AxisKind.REDUCE, init=Store(Y, (I, J), X[0, 0])
        ),
    ),
    (9, "iterations of the parallel loop `i` all store to `y`", over(STORE, ForKind.PARALLEL)),
    (9, "iterations of the vector loop `i` all store to `y`", over(STORE, ForKind.VECTOR)),
    (10, "the switch over `r` has no case", Switch(Size(N), R, 4, 4, STORE)),
    (10, "lacks a case", Switch(Size(N), R, 1, 9, STORE)),
    (11, "stack buffer `small` has no constant size", Alloc(small((N,)), STORE)),
    (11, "unrolled loop `i` has no constant extent", over(STORE, ForKind.UNROLL)),
    (12, "1 places for 0 values", Assert(eq(ZERO, ZERO), "runtime-index", "{}")),
    (12, "more than four", Assert(eq(ZERO, ZERO), "runtime-index", "{}{}{}{}{}", (ZERO,) * 5)),
    (12, "unknown code `oops`", Assert(eq(ZERO, ZERO), "oops", "")),
    (13, "Copy stands in a kernel", Copy(Y, X)),
    (13, "axis 0 of `x` is not one of a host program's parameter", For(I, Extent(X, 0), STORE)),
    (14, "prefetch of `x` at level 4", Prefetch(X, (ZERO, ZERO), 4)),
    (14, "unroll count 0", For(I, Size(N), STORE, unroll=0)),
)


@pytest.mark.parametrize(("invariant", "message", "body"), BROKEN)
def test_broken_invariants(invariant: int, message: str, body: Stmt) -> None:
    errors = verify_prim_func("f", PrimFunc((X, Y), body, (N,)))
    assert errors
    assert errors[0].message.startswith("f: ")
    assert message in errors[0].message
    assert errors[0].notes == (f"invariant {invariant} of relaxir/tir/verify.py",)


HARMLESS: tuple[Stmt, ...] = (
    over(Store(Y, (I, ZERO), X[0, 0]), ForKind.PARALLEL),
    over(Store(Y, (ZERO, ZERO), X[0, 0], Combine.SUM), ForKind.VECTOR),
    over(Let(J, binary(BinOp.ADD, I, 1), Store(Y, (J, ZERO), X[0, 0])), ForKind.PARALLEL),
    over(If(eq(I, ZERO), STORE), ForKind.PARALLEL),
    Seq((over(STORE), over(STORE))),  # one variable, two loops beside each other
    block(
        Store(Y, (I, ZERO), X[0, J], Combine.SUM), AxisKind.SPATIAL, AxisKind.REDUCE, init=Store(Y, (I, ZERO), X[0, 0])
    ),
    Switch(Size(N), R, 1, 5, Alloc(small((R, 4), Scope.REGISTER), For(I, Size(R), STORE, ForKind.UNROLL))),
    Seq(()),
    Let(Var("b", "bool"), binary(BinOp.AND, eq(ZERO, ZERO), eq(ZERO, ZERO)), STORE),
    Store(Y, (ZERO, ZERO), cast(Size(N), "f32")),
)


@pytest.mark.parametrize("body", HARMLESS)
def test_harmless_programs(body: Stmt) -> None:
    assert not verify_prim_func("f", PrimFunc((X, Y), body, (N,)))


def test_private_cells_of_parallel_loops() -> None:
    cell = small(())
    inner = Alloc(cell, Seq((Store(cell, (), X[0, 0]), Store(Y, (I, ZERO), cell[()]))))
    assert not verify_prim_func("f", PrimFunc((X, Y), over(inner, ForKind.PARALLEL), (N,)))
    outer = Alloc(cell, over(Seq((Store(cell, (), X[0, 0]), Store(Y, (I, ZERO), cell[()]))), ForKind.PARALLEL))
    assert [e.notes for e in verify_prim_func("f", PrimFunc((X, Y), outer, (N,)))] == [
        ("invariant 9 of relaxir/tir/verify.py",)
    ]


HEADS: tuple[tuple[int, str, PrimFunc], ...] = (
    (7, "3 outputs and 0 workspaces of 2 parameters", PrimFunc((X, Y), STORE, (N,), outputs=3)),
    (7, "parameter `small` has scope stack", PrimFunc((small(()), Y), STORE, (N,))),
    (3, "parameter `y` appears twice", PrimFunc((Y, Y), STORE, (N,))),
    (4, "symbol `n` of parameter `x` is not bound", PrimFunc((X, Y), STORE)),
    (4, "a symbol is listed twice", PrimFunc((X, Y), STORE, (N, N))),
)


@pytest.mark.parametrize(("invariant", "message", "func"), HEADS)
def test_broken_signatures(invariant: int, message: str, func: PrimFunc) -> None:
    errors = verify_prim_func("f", func)
    assert message in errors[0].message
    assert errors[0].notes == (f"invariant {invariant} of relaxir/tir/verify.py",)


def host(*stmts: Stmt) -> PrimFunc:
    """A host program."""
    return PrimFunc((X, Y), Seq(stmts), attrs=HOST)


BIND = BindDim(N, Extent(X, 0))
FRAME = Buffer("t", (N,), "f32", Scope.FRAME)
M = dim("m")
FLAG, SKIP = eq(ZERO, ZERO), Seq(())

HOSTS: tuple[tuple[int, str, Callable[[], PrimFunc]], ...] = (
    (1, "buffer `t` is used", lambda: host(BIND, Copy(Y, FRAME), AllocFrame(FRAME))),
    (4, "symbol `n` of buffer `t`", lambda: host(AllocFrame(FRAME), BIND)),
    (4, "symbol `m` of an expression", lambda: host(BIND, over(BindDim(M, ZERO)), BindDim(dim("k"), Size(M)))),
    (
        4,
        "symbol `m` of an expression",
        lambda: host(BIND, If(FLAG, BindDim(M, ZERO), SKIP), BindDim(dim("k"), Size(M))),
    ),
    (4, "symbol `m` of an expression", lambda: host(BIND, If(FLAG, BindDim(M, ZERO)), BindDim(dim("k"), Size(M)))),
    (1, "buffer `t` is used", lambda: host(BIND, While(FLAG, AllocFrame(FRAME)), Copy(Y, FRAME))),
    (1, "buffer `t` is used", lambda: host(BIND, If(FLAG, SKIP, AllocFrame(FRAME)), Copy(Y, FRAME))),
    (6, "symbol `n` is bound to float32", lambda: host(BindDim(N, X[0, 0]))),
    (13, "axis 2 of `x`", lambda: host(BindDim(N, Extent(X, 2)))),
)


@pytest.mark.parametrize(("invariant", "message", "make"), HOSTS)
def test_host_programs(invariant: int, message: str, make: Callable[[], PrimFunc]) -> None:
    errors = verify_prim_func("main", make())
    assert message in errors[0].message
    assert errors[0].notes == (f"invariant {invariant} of relaxir/tir/verify.py",)


def test_what_both_arms_define_outlives_them() -> None:
    named = AllocFrame(Buffer("u", (M,), "f32", Scope.FRAME))
    either = If(
        FLAG, Seq((BindDim(M, ZERO), named)), If(FLAG, Seq((BindDim(M, ONE), named)), Seq((BindDim(M, ONE), named)))
    )
    assert not verify_prim_func(
        "main", host(BIND, either, BindDim(dim("k"), Size(M)), Copy(named.buffer, named.buffer))
    )


def test_all_violations_are_collected() -> None:
    body = Seq((Store(Y, (I, ZERO), X[0, 0]), Prefetch(X, (ZERO, ZERO), 9), If(Size(N), STORE)))
    assert len(verify_prim_func("f", PrimFunc((X, Y), body, (N,)))) == 3
