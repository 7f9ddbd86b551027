"""Each invariant of the module verifier, broken once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from relaxir.ir import (
    Bind,
    BindingBlock,
    BlockBuilder,
    Body,
    CallDPS,
    CallTIR,
    Check,
    Constant,
    Expr,
    FuncCall,
    Function,
    If,
    IRModule,
    MatchCast,
    OpCall,
    ShapeExpr,
    TensorType,
    TupleExpr,
    Var,
    const,
)
from relaxir.ir.types import describe
from relaxir.ir.verify import check_module, verify_module
from relaxir.ops import TABLE, op
from relaxir.support.errors import ParseError, VerifyError
from relaxir.sym import DimLike, Relation, dim
from relaxir.text import parse
from relaxir.tir import PrimFunc, ProgramBuilder
from tests.text.test_round_trip import HOST

N, M = dim("n"), dim("m")
T = TensorType((N, 4), "f32")
X, C = Var("x", T), Var("c", TensorType((), "bool"))
Y, Z = Var("y", T), Var("z", T)
EXP = TABLE["exp"]


def exp(x: Expr, type_: TensorType = T) -> OpCall:
    """A call of exp."""
    return OpCall(EXP, (x,), EXP.Attrs(), type_)


def module(
    *bindings: Bind | MatchCast | Check, dataflow: bool = False, outputs: tuple[Var, ...] = (), **changes: object
) -> IRModule:
    """A module whose function ``main`` has one block, beside a kernel and an impure function."""
    body = Body((BindingBlock(bindings, dataflow, outputs),), changes.pop("result", X))  # type: ignore[arg-type]  # always an expression
    func = replace(Function((X, C), body, body.type), **changes)  # type: ignore[arg-type]  # fields of Function
    noisy = Function((X,), Body((), X), T, pure=False)
    return IRModule({"main": func, "kernel": kernel(), "noisy": noisy})


def kernel() -> PrimFunc:
    """x * 2."""
    f = ProgramBuilder("kernel")
    x, y = f.input("x", (N, 4), "f32"), f.output("y", (N, 4), "f32")
    f.compute(y, lambda i, j: x[i, j] * 2.0)
    return f.build()


def call(
    callee: str, args: tuple[Expr, ...] = (X,), dims: tuple[object, ...] = (N,), type_: TensorType = T
) -> IRModule:
    """A module with one call_tir."""
    return module(Bind(Y, CallTIR(callee, args, dims, type_)))  # type: ignore[arg-type]  # tests pass dimensions


def branch(value: Expr, result: Expr | None = None) -> Body:
    """A branch with one binding."""
    inner = Var("inner", T)
    return Body((BindingBlock((Bind(inner, value),)),), result or inner)


LATE = Var("late", TensorType((M, 4), "f32"))
HIDDEN = Var("hidden", T)


def leaking_branch() -> IRModule:
    """The variable of a branch used after it."""
    first = branch(exp(X))
    return module(Bind(Y, If(C, first, branch(exp(X)), T)), result=first.result)


def reshaped() -> tuple[Bind, ...]:
    """A reshape to an undefined symbol."""
    reshape = TABLE["reshape"]
    value = OpCall(reshape, (X,), reshape.Attrs(shape=(M,)), TensorType((N * 4,), "f32"))  # type: ignore[call-arg]  # the class of its attributes
    return (Bind(Var("y", value.type), value),)


BROKEN: tuple[tuple[int, str, Callable[[], IRModule]], ...] = (
    (1, "no graph function `nothing`", lambda: module(Bind(Y, FuncCall("nothing", (X,), T)))),
    (1, "no graph function `kernel`", lambda: module(Bind(Y, FuncCall("kernel", (X,), T)))),
    (1, "no tensor program `main`", lambda: call("main")),
    (2, "`z` is used before it is bound", lambda: module(Bind(Y, exp(Z)))),
    (2, "`z` is used before it is bound", lambda: module(Bind(Y, exp(Z)), Bind(Z, exp(X)))),
    (2, "`y` is not visible", lambda: module(Bind(Y, exp(X)), dataflow=True, result=Y)),
    (2, "`inner` is not visible", leaking_branch),
    (3, "`y` is bound twice", lambda: module(Bind(Y, exp(X)), Bind(Y, exp(X)))),
    (3, "symbol `n` is defined twice", lambda: module(MatchCast(Y, X, (N,)))),
    (3, "two different symbols are named `n`", lambda: module(where=(Relation("<=", dim("n", max=9), 4),))),
    (4, "symbol `m` of the type of `y`", lambda: module(MatchCast(Var("y", LATE.type), X))),
    (4, "symbol `m` of `y`", lambda: module(Bind(Var("y", ShapeExpr((M,)).type), ShapeExpr((M,))))),
    (4, "symbol `m` of an attribute of `y`", lambda: module(*reshaped())),
    (4, "symbol `m` of the call of `kernel`", lambda: call("kernel", dims=(M,))),
    (4, "symbol `m` of a check", lambda: module(Check(Relation("==", M, 4), "runtime-shape", "m"))),
    (5, "written as f32[n], but is f32[n, 4]", lambda: module(Bind(Y, exp(X, TensorType((N,), "f32"))))),
    (5, "written as f32[n, 5], but is f32[n, 4]", lambda: module(Bind(Var("y", TensorType((N, 5), "f32")), exp(X)))),
    (5, "cannot be typed: exp: x must be one of", lambda: module(Bind(Y, exp(C)))),
    (
        5,
        "`y`: the type is written as f32[4, n]",
        lambda: module(Bind(Y, FuncCall("noisy", (X,), TensorType((4, N), "f32"))), pure=False),
    ),
    (5, "`y` cannot be typed", lambda: module(Bind(Y, If(C, branch(exp(X)), branch(exp(X), C), T)))),
    (
        6,
        "an If inside a dataflow block",
        lambda: module(Bind(Y, If(C, branch(exp(X)), branch(exp(X)), T)), dataflow=True),
    ),
    (
        6,
        "an impure call inside a dataflow block",
        lambda: module(Bind(Y, CallDPS("f", (X,), T, pure=False)), dataflow=True, pure=False),
    ),
    (6, "output `z` is not bound", lambda: module(Bind(Y, exp(X)), dataflow=True, outputs=(Z,))),
    (7, "OpCall stands inside `y`", lambda: module(Bind(Y, exp(exp(X))))),
    (7, "OpCall stands inside the result", lambda: module(result=exp(X))),
    (8, "has 1 inputs and 1 outputs, got 2 and 1", lambda: call("kernel", (X, X))),
    (8, "takes 1 dims, got 0", lambda: call("kernel", dims=())),
    (8, "`x` of `kernel` is f32[n, 4], got bool[]", lambda: call("kernel", (C,))),
    (8, "`y` of `kernel` is f32[n, 4] here, got f32[n, 5]", lambda: call("kernel", type_=TensorType((N, 5), "f32"))),
    (9, "a constant of type f32[3]", lambda: module(result=Constant(np.zeros(4, np.float32), TensorType((3,), "f32")))),
    (9, "holds float64", lambda: module(result=Constant(np.zeros(3), TensorType((3,), "f32")))),
    (10, "f32[n, 4] is never f32[n]", lambda: module(MatchCast(Var("y", TensorType((N,), "f32")), X))),
    (10, "the condition of an If is f32[n, 4]", lambda: module(Bind(Y, If(X, branch(exp(X)), branch(exp(X)), T)))),
    (11, "the result is f32[n, 4], declared is f32[n, 5]", lambda: module(ret=TensorType((N, 5), "f32"))),
    (11, "an impure call in a function declared pure", lambda: module(Bind(Y, CallDPS("f", (X,), T, pure=False)))),
    (11, "an impure call in a function declared pure", lambda: module(Bind(Y, FuncCall("noisy", (X,), T)))),
    (12, "has a message or code that does not fit", lambda: module(Check(Relation("==", N, 4), "runtime-shape", "{}"))),
    (12, "has a message or code that does not fit", lambda: module(Check(Relation("==", N, 4), "oops", ""))),
    (12, "where is contradictory", lambda: module(where=(Relation("<", N, 0),))),
)


@pytest.mark.parametrize(("invariant", "message", "make"), BROKEN)
def test_broken_invariants(invariant: int, message: str, make: Callable[[], IRModule]) -> None:
    errors = verify_module(make())
    found = [e for e in errors if message in e.message]
    assert found, [e.message for e in errors]
    assert found[0].notes[0] == f"invariant {invariant} of relaxir/ir/verify.py"


def test_a_sound_module() -> None:
    assert not verify_module(module(Bind(Y, exp(X)), Bind(Z, If(C, branch(exp(X)), branch(exp(Y)), T))))
    assert not verify_module(call("kernel"))
    check_module(call("kernel"), 1)


def test_flattened_views_are_allowed() -> None:
    flat = TensorType((N * 4,), "f32")
    reshape = TABLE["reshape"]
    view = Var("view", flat)
    cast = OpCall(reshape, (X,), reshape.Attrs(shape=(N * 4,)), flat)  # type: ignore[call-arg]  # the class of its attributes
    good = module(Bind(view, cast), Bind(Y, CallTIR("kernel", (view,), (N,), T)))
    assert not verify_module(good)
    bad = module(Bind(view, cast), Bind(Y, CallTIR("kernel", (view,), (N * 2,), T)))
    assert any("here, got" in e.message for e in verify_module(bad))


LEVELS: tuple[tuple[int, str], ...] = (
    (1, "main: operator exp at level legal"),
    (2, "kernel: block `y` at level scheduled"),
    (3, "main: a graph function at level host"),
)


@pytest.mark.parametrize(("level", "message"), LEVELS)
def test_levels(level: int, message: str) -> None:
    errors = verify_module(module(Bind(Y, exp(X))), level)
    assert message in [e.message for e in errors]
    assert {e.code for e in errors} == {"verify-level"}


def test_levels_of_host_programs() -> None:
    host = parse(HOST, TABLE)
    assert not verify_module(host, 3)
    unplaced = [e.message for e in verify_module(host, 4)]
    assert unplaced == [f"main: temporary `{b}` without a place at level planned" for b in ("w", "b", "b")]
    assert "main: a host program at level graph" in [e.message for e in verify_module(host, 0)]


def test_calls_of_host_programs() -> None:
    for old, new, message in (
        ("(x, t, w), dims=(n,)", "(x, t), dims=(n,)", "takes 3 buffers and 1 dims, got 2 and 1"),
        ("(x, t, w), dims=(n,)", "(x, t, w)", "takes 3 buffers and 1 dims, got 3 and 0"),
        ("(x, t, w), dims=(n,)", "(w, t, w), dims=(n,)", "`x` of `f` is f32[n, 4] here, got f32[16]"),
        ("call_host(Module.main, (t,), (out,))", "call_host(Module.f, (t,), (out,))", "no host program `f`"),
        ("call_host(Module.main, (t,), (out,))", "call_host(Module.main, (t, t), (out,))", "got 2 and 1"),
    ):
        assert any(message in e.message for e in verify_module(parse(HOST.replace(old, new), TABLE))), message


def test_check_module_raises_the_first_and_names_the_others() -> None:
    with pytest.raises(VerifyError) as caught:
        check_module(module(Bind(Y, exp(Z)), Bind(Y, exp(X))))
    assert "`z` is used before" in caught.value.message
    assert any("`y` is bound twice" in n for n in caught.value.notes)


def test_what_a_cast_teaches_is_used() -> None:
    bb = BlockBuilder()
    a, b = Var("a", TensorType((N,), "f32")), Var("b", TensorType((M,), "f32"))
    with bb.function("main", [a, b]):
        same = bb.match_cast(b, TensorType((N,), "f32"))
        bb.emit_func_output(bb.emit(op.add(a, bb.emit(op.add(same, b)))))
    assert not verify_module(bb.get())


def test_tuples_of_leaves_are_operands() -> None:
    assert not verify_module(module(result=TupleExpr((X, const(1.0), TupleExpr((C,))))))


CHAIN: tuple[Callable[[DimLike], DimLike], ...] = (
    lambda d: d + 1 - (d + 1) // 2,
    lambda d: d - d // 2,
    lambda d: d // 3,
    lambda d: d - d // 4,
)


def test_chains_of_named_sizes_are_proved() -> None:
    """What the importer of convolution networks does: each long size is a symbol defined from the one before."""
    n = dim("n", min=1)
    x = Var("x", TensorType((n,), "f32"))
    names: dict[DimLike, DimLike] = {}
    bb = BlockBuilder()
    with bb.function("main", [x]):
        value, size = x, n
        for step in CHAIN:
            formula = step(size)
            size = names[formula] = bb.define_dim("size", formula)
            taken = op.strided_slice(value, axes=(0,), begin=(0,), size=(formula,), step=(1,))
            value = bb.emit(taken, rename=lambda d: names.get(d, d))
        bb.emit_func_output(value)
    built = bb.get()
    assert describe(built.graph_functions()["main"].ret) == "f32[size_3]"
    check_module(built)
    check_module(parse(str(built), TABLE))
    wrong = str(built).replace("R.Tensor((size_3,)", "R.Tensor((size_2,)")
    with pytest.raises(ParseError, match="the type is written as"):
        parse(wrong, TABLE)


def test_sizes_with_bounds_beyond_64_bits_are_named() -> None:
    """A product of bounded dimensions may be bounded by more than a size can be: it gets a symbol without bound."""
    n, m = (dim(name, max=(1 << 62) - 1) for name in "nm")
    bb = BlockBuilder()
    x = Var("x", TensorType((n, m), "f32"))
    with bb.function("main", [x]):
        size = bb.define_dim("size", n * m)
        found = bb.emit(op.nonzero(bb.emit(op.reshape(x, shape=(size,)))))
        bb.emit_func_output(found)
    assert size.max is None
    check_module(bb.get())
