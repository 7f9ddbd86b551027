"""Row operators behind products with constant weights: one kernel, right for every dtype, number of rows and threads."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cache
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import pytest

from relaxir.api import compile as rx_compile
from relaxir.api import evaluate
from relaxir.ir import BlockBuilder, IRModule, TensorType, Var, const
from relaxir.ir.rewrite import called_programs
from relaxir.ops import op
from relaxir.passes import PassContext
from relaxir.pipelines import GRAPH, LOWER
from relaxir.runtime.executable import Executable
from relaxir.support.bfloat16 import float32_to_bfloat16
from relaxir.sym import dim
from tests.e2e.agreement import results, same

N: Final = dim("n")
DEPTH, WIDTH = 20, 37
ROWS = (0, 1, 7, 31, 32, 67, 131)
Emit = Callable[[object], Any]


def layer_norm(e: Emit, h: object, r: Var, g: object) -> object:
    return op.layer_norm(e(op.add(h, r)), g, g)


def rms_norm(e: Emit, h: object, r: Var, g: object) -> object:
    return op.rms_norm(e(op.add(e(op.gelu(h)), r)), g)


def softmax(e: Emit, h: object, r: Var, g: object) -> object:
    return op.softmax(h)


def row_max(e: Emit, h: object, r: Var, g: object) -> object:
    return op.max(h, axes=(1,))


def row_sum(e: Emit, h: object, r: Var, g: object) -> object:
    return op.sum(e(op.add(h, r)), axes=(1,), keepdims=True)


def argmax(e: Emit, h: object, r: Var, g: object) -> object:
    return op.argmax(h, axis=1)


ROW_OPERATORS: Final[Mapping[str, Callable[..., object]]] = MappingProxyType(
    {f.__name__: f for f in (layer_norm, rms_norm, softmax, row_max, row_sum, argmax)}
)


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    return float32_to_bfloat16(values.astype(np.float32)) if dtype == "bfloat16" else values.astype(dtype)


def module(dtype: str) -> IRModule:
    """A function for each row operator of ``x @ w + b``; weights are whole numbers, so that argmax meets no near ties."""
    rng, bb = np.random.default_rng(0), BlockBuilder()

    def weight(*shape: int) -> object:
        return const(stored(rng.integers(-2, 3, shape), dtype), dtype)

    for name, make in ROW_OPERATORS.items():
        x, r = Var("x", TensorType((N, DEPTH), dtype)), Var("r", TensorType((N, WIDTH), dtype))
        with bb.function(name, [x, r]):
            with bb.dataflow():
                h = bb.emit(op.add(bb.emit(op.matmul(x, weight(DEPTH, WIDTH))), weight(WIDTH)))
                y = bb.emit_output(make(bb.emit, h, r, weight(WIDTH)))
            bb.emit_func_output(y)
    return bb.get()


@cache
def built(dtype: str, threads: int) -> Executable:
    """Compiled once for all tests."""
    return rx_compile(module(dtype), threads=threads)


@pytest.mark.parametrize(
    ("dtype", "threads"), [("float32", 1), ("float32", 2), ("float64", 2), ("float16", 2), ("bfloat16", 1)]
)
def test_row_operators_of_a_product(dtype: str, threads: int) -> None:
    made = module(dtype)
    exe, rng = built(dtype, threads), np.random.default_rng(1)
    for n in ROWS:
        x, r = (stored(rng.integers(-3, 4, (n, k)), dtype) for k in (DEPTH, WIDTH))
        for name in ROW_OPERATORS:
            got, want = results(exe[name](x, r)), results(evaluate(made, name, x, r))
            kind = "int64" if name == "argmax" else dtype
            same(got, want, (kind,), 2e-5)


def calls(lowered: IRModule, name: str) -> int:
    return len(called_programs(lowered.graph_functions()[name]))


@pytest.mark.parametrize("name", ROW_OPERATORS)
def test_they_are_one_kernel(name: str) -> None:
    lowered = module("float32")
    for step in (*GRAPH, *LOWER):
        lowered = step.run(lowered, PassContext())
    assert calls(lowered, name) == 1


def test_results_do_not_depend_on_threads() -> None:
    rng = np.random.default_rng(2)
    x, r = (rng.standard_normal((n, k)).astype(np.float32) for n, k in ((131, DEPTH), (131, WIDTH)))
    one, two = built("float32", 1), built("float32", 2)
    for name in ROW_OPERATORS:
        want = np.asarray(one[name](x, r))
        np.testing.assert_array_equal(np.asarray(two[name](x, r)), want)


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_bad_number_spoils_its_own_row_only(bad: float) -> None:
    rng = np.random.default_rng(3)
    x, r = (rng.standard_normal((67, k)).astype(np.float32) for k in (DEPTH, WIDTH))
    x[40, 3] = bad
    made = module("float32")
    exe = built("float32", 2)
    for name in ("layer_norm", "softmax", "row_max", "argmax"):
        got, want = np.asarray(exe[name](x, r)), np.asarray(evaluate(made, name, x, r))
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
        assert np.isfinite(np.delete(got, 40, axis=0)).all()


def shared() -> IRModule:
    """The product is wanted besides its row operator."""
    x, bb = Var("x", TensorType((N, DEPTH), "float32")), BlockBuilder()
    w = const(np.random.default_rng(4).standard_normal((DEPTH, WIDTH)).astype(np.float32))
    with bb.function("main", [x]):
        with bb.dataflow():
            h = bb.emit_output(op.matmul(x, w))
            y = bb.emit_output(op.softmax(h))
        bb.emit_func_output((h, y))
    return bb.get()


def test_a_product_with_other_readers_stays_a_kernel() -> None:
    made, lowered = shared(), shared()
    for step in (*GRAPH, *LOWER):
        lowered = step.run(lowered, PassContext())
    assert calls(lowered, "main") == 2
    x = np.random.default_rng(5).standard_normal((67, DEPTH)).astype(np.float32)
    for got, want in zip(rx_compile(made, threads=2)["main"](x), evaluate(made, "main", x), strict=True):
        np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-5)
