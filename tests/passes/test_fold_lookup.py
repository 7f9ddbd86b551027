"""Elementwise operators over lookups move into the table; what differs from row to row stays behind the lookup."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op
from relaxir.passes import Pipeline
from relaxir.passes.fold_lookup import MOST_BYTES
from relaxir.pipelines import GRAPH
from tests.building import Emit, dataflow

N = rx.dim("n")
RNG = np.random.default_rng(0)
TABLE = RNG.standard_normal((5, 3)).astype(np.float32)
BIAS = RNG.standard_normal(3).astype(np.float32)
IDS = [[0, 1, 4, 2], [3, -5, -1, 2]]


def build(make: Callable[[Emit, rx.Var], rx.Var], table: np.ndarray = TABLE) -> rx.IRModule:
    ids = rx.Var("ids", rx.TensorType((N, 4), "int64"))
    return dataflow(lambda e, x: make(e, e(op.take(table, x, axis=0))), ids)


def last(module: rx.IRModule) -> str:
    """The operator of the function's result."""
    lines = str(Pipeline(GRAPH)(module)).splitlines()
    return next(line for line in reversed(lines) if " = R." in line).partition(" = R.")[2].partition("(")[0]


def agree(module: rx.IRModule) -> None:
    exe = rx.compile(module)
    for ids in (IDS, IDS[:1], np.zeros((0, 4))):
        x = np.asarray(ids, np.int64)
        np.testing.assert_allclose(exe["main"](x), rx.evaluate(module, "main", x), rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize(
    "emit",
    [
        lambda e, y: e(op.gelu(e(op.add(y, BIAS)))),
        lambda e, y: e(op.subtract(BIAS.reshape(1, 1, 3), y)),
        lambda e, y: e(op.multiply(y, y)),
        lambda e, y: e(op.astype(e(op.greater(y, np.float32(0))), dtype="int32")),
        lambda e, y: e(op.add(y, BIAS[:1])),
    ],
)
def test_what_is_the_same_for_all_rows_moves(emit: Callable[[Emit, rx.Var], rx.Var]) -> None:
    module = build(emit)
    assert last(module) == "take"
    agree(module)


@pytest.mark.parametrize(
    "emit",
    [
        lambda e, y: e(op.add(y, np.ones((4, 1), np.float32))),  # differs by position
        lambda e, y: e(op.add(y, np.ones((1, 1, 1, 3), np.float32))),  # adds an axis
        lambda e, y: e(op.softmax(y)),
    ],
)
def test_the_rest_stays(emit: Callable[[Emit, rx.Var], rx.Var]) -> None:
    module = build(emit)
    assert last(module) != "take"
    agree(module)


def test_large_tables_stay_as_they_are() -> None:
    table = np.zeros((MOST_BYTES // 12 + 1, 3), np.float32)
    assert last(build(lambda e, y: e(op.exp(y)), table)) == "exp"


def test_an_index_out_of_range_still_fails() -> None:
    exe = rx.compile(build(lambda e, y: e(op.exp(y))))
    with pytest.raises(rx.RelaxirError, match="index 9"):
        exe["main"](np.full((1, 4), 9))


def test_calls_of_constants_alone_are_left_alone() -> None:
    """Folding leaves what fails or what is large; such a call has no lookup to move over."""
    column, row = np.ones((1 << 13, 1), np.float32), np.ones((1, 1 << 10), np.float32)
    module = build(lambda e, y: e(op.multiply(y, e(op.max(e(op.add(column, row)))))))
    agree(module)
