"""Functions built inside others: what they read from around them becomes parameters, and arguments of their calls."""

from __future__ import annotations

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir.expr import Function
from relaxir.ir.verify import verify_module
from relaxir.support.errors import VerifyError


def both(module: rx.IRModule, *args: np.ndarray) -> np.ndarray:
    """The result of the interpreter, which compiled code and the text read back must give too."""
    verify_module(module)
    want = np.asarray(rx.evaluate(module, "main", *args))
    np.testing.assert_array_equal(np.asarray(rx.compile(module, threads=1)["main"](*args)), want)
    np.testing.assert_array_equal(np.asarray(rx.evaluate(rx.parse(str(module)), "main", *args)), want)
    return want


def params(module: rx.IRModule, name: str) -> list[str]:
    func = module[name]
    assert isinstance(func, Function)
    return [p.name for p in func.params]


def test_closure_reads_values_around_it() -> None:
    n = rx.dim("n")
    x, y = rx.Var("x", rx.TensorType((n, 3), "float32")), rx.Var("y", rx.TensorType((n, 3), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        twice = bb.emit(rx.op.multiply(x, 2.0))
        with bb.function("plus", [y]):
            bb.emit_func_output(bb.emit(rx.op.add(rx.op.add(y, twice), x)))
        first = bb.call("plus", x)
        bb.emit_func_output(bb.call("plus", first))
    module = bb.get()
    assert params(module, "plus") == ["y", twice.name, "x"]
    for size in (2, 1, 0):
        values = np.arange(size * 3, dtype=np.float32).reshape(size, 3)
        np.testing.assert_array_equal(both(module, values), values * 7)


def test_recursive_closure() -> None:
    """A closure that calls itself hands on what it reads; one that calls another reads what that one does."""
    n = rx.dim("n")
    vector, count = rx.TensorType((n,), "float32"), rx.TensorType((), "int64")
    x, times = rx.Var("x", vector), rx.Var("times", count)
    acc, left, start = rx.Var("acc", vector), rx.Var("left", count), rx.Var("start", vector)
    bb = rx.BlockBuilder()
    with bb.function("main", [x, times]):
        with bb.function("grow", [acc, left], ret=vector):

            def again() -> rx.Var:
                return bb.call("grow", bb.emit(rx.op.add(acc, x)), bb.emit(rx.op.subtract(left, 1)))

            bb.emit_func_output(bb.if_then_else(bb.emit(rx.op.greater(left, 0)), again, lambda: acc))
        with bb.function("outer", [start]):
            bb.emit_func_output(bb.call("grow", start, times))
        bb.emit_func_output(bb.call("outer", x))
    module = bb.get()
    assert params(module, "grow") == ["acc", "left", "x"]
    assert params(module, "outer") == ["start", "times", "x"]
    for size, turns in ((3, 4), (1, 0)):
        values = np.arange(size, dtype=np.float32)
        np.testing.assert_array_equal(both(module, values, np.array(turns)), values * (turns + 1))


def test_relations_hold_inside() -> None:
    """What is known of the symbols around a closure is known in it."""
    n, m = rx.dim("n"), rx.dim("m")
    x, y = (rx.Var(k, rx.TensorType((d,), "float32")) for k, d in (("x", n), ("y", m)))
    z = rx.Var("z", rx.TensorType((m,), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x, y], where="n == m, n <= 100"):
        with bb.function("plus", [z]):
            bb.emit_func_output(bb.emit(rx.op.add(x, z)))
        bb.emit_func_output(bb.call("plus", y))
    module = bb.get()
    assert [str(r) for r in module.graph_functions()["plus"].where] == ["n == m", "n <= 100"]
    values = np.ones(3, np.float32)
    np.testing.assert_array_equal(both(module, values, values), values * 2)


def test_names_of_parameters_and_captured_values() -> None:
    """A parameter cannot hide a value that the closure reads."""
    scalar = rx.TensorType((), "float32")
    x, hiding = rx.Var("x", scalar), rx.Var("x", scalar)
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        with pytest.raises(VerifyError, match="two parameters named `x`"), bb.function("inner", [hiding]):
            bb.emit_func_output(bb.emit(rx.op.add(hiding, x)))
        bb.emit_func_output(x)
    assert list(bb.get().functions) == ["main"]


def test_closure_outside_of_its_function() -> None:
    """What it reads is not there: refused where the call is written. One that reads nothing is called from anywhere."""
    vector = rx.TensorType((3,), "float32")
    x, y, z, u = (rx.Var(k, vector) for k in "xyzu")
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        with bb.function("plus", [y]):
            bb.emit_func_output(bb.emit(rx.op.add(y, x)))
        with bb.function("twice", [z]):
            bb.emit_func_output(bb.emit(rx.op.add(z, z)))
        bb.emit_func_output(bb.call("plus", x))
    with bb.function("other", [u]):
        with pytest.raises(VerifyError, match="`plus` reads `x` from where it was built") as caught:
            bb.call("plus", u)
        bb.emit_func_output(bb.call("twice", u))
    assert caught.value.code == "verify-scope"
    assert caught.value.span is not None
    ones = np.ones(3, np.float32)
    np.testing.assert_array_equal(both(bb.get(), ones), ones * 2)


def test_closure_outside_of_its_branch() -> None:
    vector = rx.TensorType((3,), "float32")
    x, y, cond = rx.Var("x", vector), rx.Var("y", vector), rx.Var("cond", rx.TensorType((), "bool"))
    bb = rx.BlockBuilder()

    def then() -> rx.Var:
        inner = bb.emit(rx.op.exp(x))
        with bb.function("plus", [y]):
            bb.emit_func_output(bb.emit(rx.op.add(y, inner)))
        return bb.call("plus", x)

    with bb.function("main", [cond, x]):
        result = bb.if_then_else(cond, then, lambda: x)
        with pytest.raises(VerifyError, match="is called outside"):
            bb.call("plus", x)
        bb.emit_func_output(result)
