"""Unit axes of convolutions are dropped after the elementwise operators that follow, with the same results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op
from relaxir.passes import Pipeline
from relaxir.pipelines import GRAPH
from tests.building import Emit, dataflow

W = rx.dim("w")
RNG = np.random.default_rng(0)
WEIGHTS = RNG.standard_normal((8, 3, 3, 1)).astype(np.float32)


def build(tail: Callable[[Emit, rx.Var], rx.Var], width: rx.Dim | int = 1) -> rx.IRModule:
    x = rx.Var("x", rx.TensorType((2, 3, W + 2, width), "float32"))
    return dataflow(lambda e, x: tail(e, e(op.conv(x, WEIGHTS))), x)


def with_bias(e: Emit, conv: rx.Var) -> rx.Var:
    bias = RNG.standard_normal((8, 1)).astype(np.float32)
    return e(op.relu(e(op.add(e(op.squeeze(conv, axes=(3,))), bias))))


def with_itself(e: Emit, conv: rx.Var) -> rx.Var:
    view = e(op.squeeze(conv, axes=(-1,)))
    return e(op.multiply(view, e(op.tanh(e(op.multiply(0.5, view))))))


def with_more(e: Emit, conv: rx.Var) -> rx.Var:
    view = e(op.squeeze(conv, axes=(3,)))
    return e(op.add(view, e(op.sum(view, axes=(2,), keepdims=True))))


def names(module: rx.IRModule) -> list[str]:
    lines = (line for line in str(Pipeline(GRAPH)(module)).splitlines() if " = R." in line)
    return [line.split(" = R.")[1].split("(")[0] for line in lines if "R.dim" not in line]


@pytest.mark.parametrize(
    ("tail", "last"),
    [(with_bias, ["relu", "reshape"]), (with_itself, ["tanh", "multiply", "reshape"]), (with_more, ["sum", "add"])],
)
def test_views_move_behind_what_is_pointwise(tail: Callable[[Emit, rx.Var], rx.Var], last: list[str]) -> None:
    module = build(tail)
    assert names(module)[-len(last) :] == last
    main = rx.compile(module, threads=1)["main"]
    for w in (1, 2, 7, 33):
        x = RNG.standard_normal((2, 3, w + 2, 1)).astype(np.float32)
        np.testing.assert_allclose(main(x), rx.evaluate(module, "main", x), rtol=1e-4, atol=1e-5)


def test_other_views_stay() -> None:
    def tail(e: Emit, conv: rx.Var) -> rx.Var:
        return e(op.relu(e(op.reshape(conv, shape=(2, 8 * W * 5)))))

    assert names(build(tail, 5))[-2:] == ["reshape", "relu"]
