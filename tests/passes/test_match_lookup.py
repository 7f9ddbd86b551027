"""Products with one-hot rows become lookups with the same results, indices outside included; others stay products."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op
from relaxir.passes import Pipeline
from relaxir.pipelines import GRAPH
from tests.building import Emit, dataflow

N = rx.dim("n")
TABLE = np.random.default_rng(0).standard_normal((5, 3)).astype(np.float32)


def by_comparison(e: Emit, ids: rx.Var, places: np.ndarray, table: np.ndarray = TABLE) -> rx.Var:
    equal = e(op.equal(e(op.expand_dims(ids, axes=(2,))), places))
    return e(op.matmul(e(op.astype(equal, dtype="float32")), table))


def by_one_hot(e: Emit, ids: rx.Var, values: tuple[float, float]) -> rx.Var:
    return e(op.matmul(e(op.one_hot(ids, np.asarray(values, np.float32), depth=5)), TABLE))


def build(make: Callable[[Emit, rx.Var], rx.Var], dtype: str) -> rx.IRModule:
    return dataflow(make, rx.Var("ids", rx.TensorType((N, 4), dtype)))


def operators(module: rx.IRModule) -> str:
    return str(Pipeline(GRAPH)(module))


IDS = [[0, 1, 4, 2], [3, 5, -1, -6], [100, -100, 2, 2]]
COUNT = np.arange(5, dtype=np.int32).reshape(1, 1, 5)


@pytest.mark.parametrize(
    ("emit", "dtype"),
    [
        (lambda e, ids: by_comparison(e, ids, COUNT), "int32"),
        (lambda e, ids: by_comparison(e, ids, COUNT.astype(np.int64)), "int64"),
        (lambda e, ids: by_one_hot(e, ids, (0.0, 1.0)), "int64"),
    ],
)
def test_lookup_replaces_the_product(emit: Callable[[Emit, rx.Var], rx.Var], dtype: str) -> None:
    m = build(emit, dtype)
    text = operators(m)
    assert "R.take(" in text
    assert "R.matmul(" not in text
    for ids in (IDS, IDS[:1], np.zeros((0, 4))):
        given = np.asarray(ids, dtype)
        np.testing.assert_array_equal(rx.compile(m)["main"](given), rx.evaluate(m, "main", given))


@pytest.mark.parametrize(
    "emit",
    [
        lambda e, ids: by_comparison(e, ids, COUNT[..., ::-1].copy()),
        lambda e, ids: by_comparison(e, ids, COUNT, np.where(TABLE > 1, np.inf, TABLE).astype(np.float32)),
        lambda e, ids: by_one_hot(e, ids, (0.0, 2.0)),
    ],
)
def test_what_only_looks_alike_stays(emit: Callable[[Emit, rx.Var], rx.Var]) -> None:
    assert "R.matmul(" in operators(build(emit, "int32"))
