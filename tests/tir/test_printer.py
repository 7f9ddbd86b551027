"""How expressions and statements look."""

from __future__ import annotations

import math

import pytest

from relaxir.sym import ceildiv, dim, min_
from relaxir.tir import (
    Alloc,
    Bcast,
    Binary,
    BinOp,
    Buffer,
    Call,
    Combine,
    Const,
    Expr,
    For,
    If,
    Intrinsic,
    Let,
    PrimFunc,
    ProgramBuilder,
    Scope,
    Select,
    Seq,
    Size,
    Store,
    Var,
    binary,
    cast,
    const,
)
from relaxir.tir.printer import expr_text, prim_func_text, stmt_text

N = dim("n")
X = Buffer("x", (N, 4), "f32")
H = Buffer("h", (N,), "f16")
I, J = Var("i"), Var("j")  # noqa: E741  # the loops they stand for
F = X[I, J]

EXPRESSIONS: tuple[tuple[Expr, str], ...] = (
    (const(3), "3"),
    (const(-3), "-3"),
    (const(1.5, "f32"), "1.5"),
    (const(0.1, "f32"), "0.1"),
    (const(-0.0, "f32"), "-0.0"),
    (const(1.5, "f64"), 'T.const(1.5, "f64")'),
    (const(7, "u8"), 'T.const(7, "u8")'),
    (const(True, "bool"), "True"),
    (const(math.inf, "f32"), 'T.const("inf", "f32")'),
    (const(math.nan, "f64"), 'T.const("nan", "f64")'),
    (Const(0.1, "float32"), 'T.const("0x1.999999999999ap-4", "f32")'),  # not rounded to its dtype
    (F * 2.0 + 1.0, "x[i, j] * 2.0 + 1.0"),
    (F * (F + 1.0), "x[i, j] * (x[i, j] + 1.0)"),
    (F - (F - F), "x[i, j] - (x[i, j] - x[i, j])"),
    (H[I] * 2.0, "h[i] * 2.0"),
    (2.0 - H[I], "2.0 - h[i]"),
    (binary(BinOp.LT, const(1.0, "f16"), H[I]), "1.0 < h[i]"),
    (-F, "-x[i, j]"),
    (-(F * F), "-(x[i, j] * x[i, j])"),
    (Call(Intrinsic.NEG, const(2.0, "f32")), "T.neg(2.0)"),
    (Call(Intrinsic.EXP, F), "T.exp(x[i, j])"),
    (Call(Intrinsic.NOT, I < J), "~(i < j)"),
    ((I < J) & (J < I), "(i < j) & (j < i)"),
    (binary(BinOp.MAX, F, 0.0), "T.max(x[i, j], 0.0)"),
    (binary(BinOp.TRUNCDIV, I, J), "T.truncdiv(i, j)"),
    (Select(I < J, F, const(0.0, "f32")), "T.select(i < j, x[i, j], 0.0)"),
    (Bcast(I, N), "T.bcast(i, n)"),
    (cast(F, "i64"), 'T.cast(x[i, j], "i64")'),
    (Size(N * 4 + 1), "n * 4 + 1"),
    (I + Size(N), "i + n"),
    (I + (Size(N) + 1), "i + (n + 1)"),
    (Size(N) + 1 + I, "n + 1 + i"),
    (I * Size(N * 4), "i * (n * 4)"),
    (Size(N) - 1 < I, "n - 1 < i"),
    (Size(min_(N, 6)) // Size(ceildiv(N, 2)), "min(n, 6) // ceildiv(n, 2)"),
    (Binary(BinOp.FLOORDIV, Size(N), const(0)), 'T.binary("//", n, 0)'),
    (I % 4 * 2, "i % 4 * 2"),
    (I * (J % 4), "i * (j % 4)"),
)


@pytest.mark.parametrize(("expr", "text"), EXPRESSIONS)
def test_expressions(expr: Expr, text: str) -> None:
    assert expr_text(expr) == text


def test_scopes_keep_names_apart() -> None:
    a, b = Buffer("a", (4,), "f32", Scope.STACK), Buffer("a", (4,), "f32", Scope.STACK)
    inner = Alloc(a, Store(a, (const(0),), const(0.0, "f32")))
    outer = Alloc(b, Seq((Store(b, (const(1),), const(1.0, "f32")), inner)))
    assert stmt_text(Seq((inner, For(I, Size(N), Let(Var("i"), I + 1, outer))))) == (
        "with T.scope():\n"
        '    a = T.alloc((4,), "f32", scope="stack")\n'
        "    a[0] = 0.0\n"
        "for i in T.serial(n):\n"
        "    i_1 = T.let(i + 1)\n"
        '    a = T.alloc((4,), "f32", scope="stack")\n'
        "    a[1] = 1.0\n"
        '    a_1 = T.alloc((4,), "f32", scope="stack")\n'
        "    a_1[0] = 0.0"
    )


def test_empty_suites() -> None:
    assert stmt_text(If(I < J, Seq(()), Seq((Seq(()),)))) == "if i < j:\n    pass\nelse:\n    pass"


def program(x_name: str = "x", v_name: str = "v") -> PrimFunc:
    """A block program with a Let."""
    f = ProgramBuilder("f")
    x = f.input(x_name, (N,), "f32")
    y = f.output("lambda", (N,), "f32")
    v = Var(v_name, "float32")
    f.block("b", (N,), lambda i: Let(v, x[i], Store(y, (i,), v, Combine.MAX)))
    return f.build(config="mr=6")


def test_functions() -> None:
    assert prim_func_text("f", program()) == (
        '@T.prim_func(config="mr=6", name="f")\n'
        'def f(x: T.Buffer(("n",), "f32"), lambda_: T.Buffer(("n",), "f32", name="lambda")):\n'
        '    n = T.dim("n")\n'
        '    with T.block("b", i0=n):\n'
        "        v = T.let(x[i0])\n"
        '        lambda_[i0] = T.combine("max", lambda_[i0], v)'
    )


def test_canonical_text_ignores_local_names() -> None:
    assert prim_func_text("f", program(), canonical=True) == prim_func_text("f", program("a", "b"), canonical=True)
    assert prim_func_text("f", program()) != prim_func_text("f", program("a", "b"))
