"""Misuse of the builder and of types: each gives an error of relaxir, early and in words."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir import Bind, BindingBlock, Body, Function, IRModule, OpCall
from relaxir.ops import TABLE
from relaxir.support.errors import (
    ArgumentError,
    InferError,
    ParseError,
    RuntimeFailure,
    RuntimeIndexError,
    RuntimeShapeError,
    SymError,
    UnsupportedError,
    VerifyError,
)
from relaxir.sym import DimLike, to_text

X = rx.TensorType((rx.dim("n"),), "float32")
ONES = np.ones(3, np.float32)


def _endless() -> rx.IRModule:
    bb = rx.BlockBuilder()
    x = rx.Var("x", X)
    with bb.function("main", [x], ret=X):
        bb.emit_func_output(bb.call("main", x))
    return bb.get()


@pytest.mark.parametrize("call", [lambda m: rx.compile(m)["main"], lambda m: lambda x: rx.evaluate(m, "main", x)])
def test_recursion_without_end(call: Callable[[rx.IRModule], Callable[[object], object]]) -> None:
    main = call(_endless())
    for _ in range(2):
        with pytest.raises(RuntimeFailure, match="nested too deeply"):
            main(ONES)


N = rx.dim("n")


@pytest.mark.parametrize(
    "make",
    [
        lambda: rx.dim("a b"),
        lambda: N // 0,
        lambda: rx.TensorType((2.5,), "float32"),  # type: ignore[arg-type]  # the fault under test
    ],
)
def test_bad_dimensions(make: Callable[[], object]) -> None:
    with pytest.raises(rx.RelaxirError) as caught:
        make()
    assert caught.value.code == "dimension"
    assert isinstance(caught.value, ValueError)


def test_contradictory_where() -> None:
    with (
        pytest.raises(rx.RelaxirError, match="dimension-conflict"),
        rx.BlockBuilder().function("f", [rx.Var("x", X)], "n < 0"),
    ):
        pass


def _function(use: Callable[[rx.BlockBuilder, rx.Var], object], name: str = "main") -> rx.IRModule:
    bb = rx.BlockBuilder()
    x = rx.Var("x", X)
    with bb.function(name, [x]):
        bb.emit_func_output(use(bb, x))  # type: ignore[arg-type]  # misuses included
    return bb.get()


def _leaked(bb: rx.BlockBuilder, x: rx.Var) -> object:
    inner: list[rx.Var] = []

    def then() -> rx.Var:
        inner.append(bb.emit(rx.op.exp(x)))
        return inner[0]

    bb.if_then_else(rx.const(True), then, lambda: x)
    return rx.op.add(inner[0], x)


def _internal(bb: rx.BlockBuilder, x: rx.Var) -> object:
    with bb.dataflow():
        y = bb.emit(rx.op.exp(x))
        bb.emit_output(rx.op.exp(y))
    return rx.op.add(y, x)


@pytest.mark.parametrize("use", [lambda bb, x: rx.op.exp(rx.Var("y", X)), _leaked, _internal])
def test_compile_refuses_variables_out_of_scope(use: Callable[[rx.BlockBuilder, rx.Var], object]) -> None:
    module = _function(use)
    with pytest.raises(VerifyError, match="invariant 2"):
        rx.compile(module)


def test_parameters_of_one_name() -> None:
    params = [rx.Var("x", X), rx.Var("x", X)]
    with pytest.raises(VerifyError, match="two parameters named `x`"), rx.BlockBuilder().function("f", params):
        pass


def test_one_result() -> None:
    def twice(bb: rx.BlockBuilder, x: rx.Var) -> rx.Var:
        bb.emit_func_output(x)
        return x

    with pytest.raises(VerifyError, match="one result"):
        _function(twice)


@pytest.mark.parametrize("name", ["a\0b", "", 5, None])
def test_names_of_functions(name: str) -> None:
    with pytest.raises(VerifyError, match="cannot be the name of a function"):
        _function(lambda bb, x: x, name)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: rx.TensorType((-3,), "float32"), "at least 0, got -3"),
        (lambda: rx.TensorType((rx.dim("n", min=-1),), "float32"), "at least 0, and `n` is declared from -1 on"),
        (lambda: rx.TensorType((1 << 70,), "float32"), "64 bits"),
        (lambda: rx.TensorType((1 << 32, 0, 1 << 32, 24), "float32"), "64 bits"),
        (lambda: rx.dim("m", max=1 << 64), "64 bits"),
        (lambda: rx.dim("class"), "word of Python"),
        (lambda: rx.TensorType(5, "float32"), "a shape is a tuple of dimensions, got 5"),
        (lambda: rx.TensorType("n", "float32"), "a shape is a tuple of dimensions"),
    ],
)
def test_dimensions_that_cannot_be(make: Callable[[], object], message: str) -> None:
    with pytest.raises(SymError, match=message):
        make()


def test_text_with_a_negative_dimension() -> None:
    text = str(_function(lambda bb, x: x)).replace('("n",)', "(-4,)")
    with pytest.raises(ParseError, match="at least 0, got -4"):
        rx.parse(text)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [(300, "uint8"), (-1, "uint32"), (np.nan, "int32"), ([1.0, np.inf], "int64"), (1 << 70, "int64")],
)
def test_constants_that_do_not_fit(value: object, dtype: str) -> None:
    with pytest.raises(InferError, match=f"does not fit {dtype}"):
        rx.const(value, dtype)
    assert rx.const(200, "uint8").data == 200


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ("R.exp(x)", f'R.add(x, R.const({"9" * 400}, "f32"))', "does not fit float32"),
        ("class Module", "class M", "not `M`"),
    ],
)
def test_text(before: str, after: str, message: str) -> None:
    text = str(_function(lambda bb, x: rx.op.exp(x)))
    assert before in text
    with pytest.raises(ParseError, match=message):
        rx.parse(text.replace(before, after))


@pytest.mark.parametrize(
    ("use", "size", "error"),
    [
        (lambda bb, x: rx.op.argmax(x), 0, RuntimeShapeError),
        (lambda bb, x: rx.op.take(x, rx.const([99])), 3, RuntimeIndexError),
    ],
)
def test_interpreter_and_compiled_code_agree_on_errors(
    use: Callable[[rx.BlockBuilder, rx.Var], object], size: int, error: type[rx.RelaxirError]
) -> None:
    module = _function(use)
    for call in (rx.compile(module)["main"], lambda x: rx.evaluate(module, "main", x)):
        with pytest.raises(error):
            call(np.ones(size, np.float32))


def _nested(depth: int) -> rx.IRModule:
    def build(_: rx.BlockBuilder, x: rx.Var) -> object:
        value: object = x
        for _ in range(depth):
            value = rx.op.add(value, 1.0)
        return value

    return _function(build)


def test_deeply_nested_operators() -> None:
    assert rx.evaluate(_nested(400), "main", ONES)[0] == 401


def _lines(action: Callable[[], object]) -> int:
    """Lines of Python that an action runs."""
    count = 0

    def trace(frame: FrameType, event: str, argument: object) -> Callable[..., Any]:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    return count


def test_nested_operators_are_built_in_linear_work() -> None:
    _nested(50)  # memo tables are filled
    fixed, once, thrice = (_lines(lambda depth=depth: _nested(depth)) for depth in (0, 100, 300))
    assert thrice - fixed < 3.2 * (once - fixed)


@pytest.mark.parametrize(("written", "fits"), [(N, True), (N + 0 * N, True), (N + 1, False), (N * N, False)])
def test_recorded_types_are_proved_before_they_are_compiled(written: DimLike, fits: bool) -> None:
    x = rx.Var("x", X)
    recorded = rx.TensorType((written,), "float32")
    y = rx.Var("y", recorded)
    exp = TABLE["exp"]
    value = OpCall(exp, (x,), exp.Attrs(), recorded)
    func = Function((x,), Body((BindingBlock((Bind(y, value),)),), y), recorded)
    module = IRModule({"main": func})
    if fits:
        assert rx.compile(module, cache=False)["main"](ONES).shape == (3,)
    else:
        with pytest.raises(VerifyError, match="the type is written as") as caught:
            rx.compile(module)
        assert caught.value.code == "verify-type"


def _parsed(constants: Any) -> object:
    return rx.parse(str(_function(lambda bb, x: x)), constants=constants)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda m: rx.compile(m, pipeline="x"), "pipeline: expected Pass"),
        (lambda m: rx.compile(m, libraries=5), "libraries: expected Mapping"),
        (lambda m: rx.Pipeline([rx.passes.FuseOps]), "passes: expected Pass"),
        (lambda m: rx.Pipeline(5), "passes: expected Iterable"),
        (lambda m: rx.pipelines.DEFAULT.until("Sleep"), "no pass `Sleep`"),
        (lambda m: rx.passes.FuseOps()("x"), "module: expected IRModule"),
        (lambda m: m.save(5), "path: expected"),
        (lambda m: _parsed(5), "constants: expected"),
        (lambda m: rx.BlockBuilder().function("f", [5]).__enter__(), "params: expected Var"),
        (lambda m: rx.const([[1], [2, 3]]), "const: the value cannot be an array"),
        (lambda m: rx.const("x", "float32"), "const: the value cannot be float32"),
        (lambda m: rx.const(np.ma.masked_array([1.0], [True])), "masks are not read"),
        (lambda m: rx.evaluate(m, "main", [[1], [2, 3]]), "argument 0 cannot be an array"),
        (lambda m: rx.evaluate(m, "main", np.ma.masked_array(np.ones(2, np.float32), True)), "masks are not read"),
        (lambda m: rx.compile(m)["main"](np.ma.masked_array(np.ones(2, np.float32), True)), "masks are not read"),
    ],
)
def test_what_is_not_what_it_should_be(call: Callable[[Any], object], message: str) -> None:
    with pytest.raises(ArgumentError, match=message):
        call(_function(lambda bb, x: rx.op.exp(x)))


def test_parameters_whose_names_are_none() -> None:
    with pytest.raises(VerifyError, match="cannot be the name of a parameter"):
        rx.BlockBuilder().function("f", [rx.Var("a\0", X)]).__enter__()


def test_composite_operators_have_no_loops() -> None:
    with pytest.raises(UnsupportedError, match="nonzero: the operator has no loops of its own"):
        rx.passes.LegalizeOps()(_function(lambda bb, x: rx.op.nonzero(x)))


def test_symbols_of_one_name_in_a_sum() -> None:
    """They cannot be told apart in text, and have no order."""
    other = rx.Var("y", rx.TensorType((rx.dim("n", min=2),), "float32"))
    bb = rx.BlockBuilder()
    with (
        pytest.raises(InferError, match="two different symbols named `n`"),
        bb.function("f", [rx.Var("x", X), other]),
    ):
        pass
    assert to_text(rx.dim("n") + rx.dim("n", min=2)) == "n + n"
