"""Numbers computed from sizes near 2**63: exact, or an error that names the size; interpreted and compiled."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir.expr import Array
from relaxir.pipelines import HOST, LOWER, REFERENCE
from relaxir.support.errors import RuntimeFailure, RuntimeShapeError
from relaxir.sym import DimLike, evaluate, exact, exact_parts, parse
from relaxir.tir import Assert
from relaxir.tir.visit import walk

N, M = rx.dim("n"), rx.dim("m")
HUGE = 1 << 62
EMPTY = np.empty((0, HUGE), np.int8)
op = rx.op


def module(build: Callable[[rx.BlockBuilder, rx.Var], object], m: DimLike = M) -> rx.IRModule:
    """A function of one tensor without elements."""
    x = rx.Var("x", rx.TensorType((N, m), "int8"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(build(bb, x))  # type: ignore[arg-type]  # calls and variables
    return bb.get()


def runs(mod: rx.IRModule) -> list[Callable[..., object]]:
    """Interpreted as it is, after lowering, and compiled in two ways."""
    legal, host = rx.Pipeline(LOWER)(mod), rx.Pipeline((*LOWER, *HOST))(mod)
    interpreted = [lambda *a, m=m: rx.evaluate(m, "main", *a) for m in (mod, legal, host)]
    return [*interpreted, rx.compile(mod)["main"], rx.compile(mod, pipeline=REFERENCE)["main"]]


TOO_LARGE: tuple[tuple[str, Callable[[rx.Var], object]], ...] = (
    ("m * 4", lambda x: op.dims_to_tensor(dims=(M * 4,))),
    ("m ** 2", lambda x: op.dims_to_tensor(dims=(M * M,))),
    ("m * 3 + 1", lambda x: op.dims_to_tensor(dims=((3 * M + 1) // 16,))),
    ("m * 3", lambda x: op.dims_to_tensor(dims=(rx.min(M * 3, 5),))),
    ("m * 2", lambda x: op.concat([x, x], axis=1)),
    ("m * 4", lambda x: op.reshape(x, (M * 4, N))),
)


@pytest.mark.parametrize(("text", "build"), TOO_LARGE, ids=[t for t, _ in TOO_LARGE])
def test_what_does_not_fit_is_an_error(text: str, build: Callable[[rx.Var], object]) -> None:
    for run in runs(module(lambda _, x: build(x))):
        with pytest.raises(RuntimeFailure, match="does not fit 64 bits") as caught:
            run(EMPTY)
        assert caught.value.code == "runtime-overflow"
        assert f"`{text}`" in caught.value.message and f"m is {HUGE}" in caught.value.message


EXACT: tuple[tuple[Callable[[rx.Var], object], object], ...] = (
    (lambda x: op.dims_to_tensor(dims=(M, M - 1, M // 3)), [HUGE, HUGE - 1, HUGE // 3]),
    (lambda x: op.dims_to_tensor(dims=((4 * M) // 16, N * M * 8)), [HUGE // 4, 0]),
    (lambda x: op.sum(x, axes=(0, 1)), 0),
)


@pytest.mark.parametrize(("build", "value"), EXACT)
def test_what_fits_is_exact(build: Callable[[rx.Var], object], value: object) -> None:
    for run in runs(module(lambda _, x: build(x))):
        np.testing.assert_array_equal(run(EMPTY), value)


def test_sizes_of_a_branch_count_only_in_it() -> None:
    def build(bb: rx.BlockBuilder, x: rx.Var) -> object:
        few = bb.emit(op.less(op.dims_to_tensor(dims=(M,)), HUGE - 1))
        cond = bb.emit(op.reshape(few, ()))
        taken = (lambda: op.dims_to_tensor(dims=(M * 4,))), (lambda: op.dims_to_tensor(dims=(N,)))
        return bb.if_then_else(cond, *taken)

    for run in runs(module(build)):
        np.testing.assert_array_equal(run(EMPTY), [0])
        np.testing.assert_array_equal(run(np.empty((2, 3), np.int8)), [12])


def test_sizes_from_data() -> None:
    def build(bb: rx.BlockBuilder, x: rx.Var) -> object:
        count: Array = np.array([HUGE])
        counts = bb.emit(op.add(op.dims_to_tensor(dims=(N,)), rx.const(count)))
        shape = bb.emit(op.tensor_to_shape(counts, min=(0,)))
        assert isinstance(shape.type, rx.ShapeType)
        return op.dims_to_tensor(dims=(shape.type.dims[0] * 2,))

    for run in runs(module(build)):
        with pytest.raises(RuntimeFailure, match=r"\* 2` does not fit 64 bits"):
            run(EMPTY)


def test_declared_ranges_need_no_check() -> None:
    small = rx.dim("small", max=1 << 20)
    planned = rx.Pipeline((*LOWER, *HOST))(module(lambda _, x: op.concat([x] * 4, axis=1), small))
    main = planned.prim_funcs()["main"]
    assert not [s for s in walk(main.body) if isinstance(s, Assert) and s.code == "runtime-overflow"]


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("n", ()),
        ("n // 2 - n // 4", ()),
        ("min(n, 512)", ()),
        ("n + 1", ("n + 1",)),
        ("(n * 8 + 1) // 16", ("n * 8 + 1",)),
        ("max(n * m, n + m) % 5", ("n * m", "n + m")),
        ("s * s * s", ()),
    ],
)
def test_parts_that_must_fit(text: str, parts: tuple[str, ...]) -> None:
    scope = {"n": N, "m": M, "s": rx.dim("s", max=1000)}
    expr = parse(text, scope)
    assert set(exact_parts(expr)) == {parse(p, scope) for p in parts}
    env = {"n": 5, "m": 7, "s": 9}
    assert exact(expr, env) == evaluate(expr, env)


X, Y = rx.Var("x", rx.TensorType((N, 3), "float32")), rx.Var("y", rx.TensorType((M,), "float32"))
OPEN: tuple[tuple[object, int, int], ...] = (
    (op.add(op.permute_dims(X, (1, 0)), Y), 2, 5),
    (op.layer_norm(X, Y, Y), 2, 1),  # NumPy would broadcast in silence
    (op.nonzero_fill(X, count=M), 2, 7),
    (op.matmul(Y, X), 1, 2),
)


@pytest.mark.parametrize(("call", "n", "m"), OPEN)
def test_what_inference_left_open_is_decided_by_the_sizes(call: object, n: int, m: int) -> None:
    bb = rx.BlockBuilder()
    with bb.function("main", [X, Y]):
        bb.emit_func_output(call)  # type: ignore[arg-type]  # each is a call of an operator
    mod = bb.get()
    for run in (*(lambda *a, p=p: rx.evaluate(p, "main", *a) for p in (mod, REFERENCE(mod))), rx.compile(mod)["main"]):
        with pytest.raises(RuntimeShapeError):
            run(np.ones((n, 3), np.float32), np.ones(m, np.float32))
