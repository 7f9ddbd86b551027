"""Sizes of broadcasts that a function's checks decide: shorter shapes, the same results and the same refusals."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir.verify import verify_module
from relaxir.ops import op
from relaxir.passes import InsertChecks, Pipeline, SettleBroadcasts, SimplifyDims
from relaxir.pipelines import GRAPH, REFERENCE
from relaxir.support.errors import RuntimeShapeError
from relaxir.sym import max_, min_

N, M, P, T = rx.dim("n"), rx.dim("m"), rx.dim("p"), rx.dim("t")
SETTLE = Pipeline((InsertChecks(), SettleBroadcasts(), SimplifyDims()))
TABLE = 6  # rows of the table of positions


def added(shaped: Callable[[rx.Var], object]) -> rx.IRModule:
    """``x + y`` of n and m rows, in a shape of which the test chooses the text."""
    x, y = rx.Var("x", rx.TensorType((N, 4), "float32")), rx.Var("y", rx.TensorType((M, 4), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x, y]):
        with bb.dataflow():
            both = bb.emit(op.add(x, y))
            out = bb.emit_output(shaped(both))  # type: ignore[arg-type]  # a pending call
        bb.emit_func_output(out)
    return bb.get()


def flat(both: rx.Var) -> object:
    return op.reshape(both, shape=(N * 4,))


def positions(length: int = 8) -> rx.IRModule:
    """One layer of a decoder with rows of a table that may end before the positions do, as exporters write it."""
    rng = np.random.default_rng(0)
    table = rx.const(rng.standard_normal((TABLE, length)).astype(np.float32))
    names = ("q", "k", "v", "past")
    sizes = (T, T, P + T, P)
    params = [rx.Var(n, rx.TensorType((1, s, length), "float32")) for n, s in zip(names, sizes, strict=True)]
    q, k, v, past = params
    bb = rx.BlockBuilder()
    with bb.function("main", params):
        size = bb.define_dim("size", max_(min_(P + T, TABLE) - P, 0))
        with bb.dataflow():
            rows = bb.emit(op.strided_slice(table, axes=(0,), begin=(min_(P, TABLE),), size=(size,), step=(1,)))
            keys = bb.emit(op.concat(past, bb.emit(op.multiply(k, rows)), axis=1))
            turned = bb.emit(op.permute_dims(keys, axes=(0, 2, 1)))
            scores = bb.emit(op.matmul(bb.emit(op.multiply(q, rows)), turned))
            out = bb.emit(op.matmul(bb.emit(op.softmax(scores)), v))
            y = bb.emit_output(op.add(bb.emit(op.reshape(out, shape=(T, length))), 1.0))
        bb.emit_func_output(y)
    return bb.get()


def test_a_later_check_decides_the_size() -> None:
    module = SETTLE(added(flat))
    assert not verify_module(module)
    text = str(module)
    assert "lv: R.Tensor((n, 4)" in text
    assert text.count("R.check(") == 2  # that they broadcast, and to what


def test_a_size_that_stays_open_is_left_alone() -> None:
    module = InsertChecks()(added(op.exp))
    assert SettleBroadcasts()(module) is module


def test_effects_are_not_passed_over() -> None:
    x, y = rx.Var("x", rx.TensorType((N, 4), "float32")), rx.Var("y", rx.TensorType((M, 4), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x, y], pure=False):
        both = bb.emit(op.add(x, y))
        bb.emit_func_output(bb.emit(op.reshape(both, shape=(N * 4,))))
    module = InsertChecks()(bb.get())
    assert SettleBroadcasts()(module) is module


@pytest.mark.parametrize(("n", "m"), [(3, 3), (3, 1), (0, 1), (1, 1), (0, 0), (1, 3), (1, 0), (2, 3)])
def test_results_and_refusals_stay(n: int, m: int) -> None:
    module = added(flat)
    x, y = np.ones((n, 4), np.float32), np.arange(m * 4, dtype=np.float32).reshape(m, 4)
    plain, short = rx.compile(module, pipeline=REFERENCE)["main"], rx.compile(module)["main"]
    if m not in (1, n):
        for main in (plain, short):
            with pytest.raises(RuntimeShapeError):
                main(x, y)
        return
    np.testing.assert_array_equal(short(x, y), plain(x, y))
    np.testing.assert_array_equal(short(x, y), (x + y).reshape(-1))


def test_attention_behind_a_table_of_positions_is_found() -> None:
    module = Pipeline(GRAPH)(positions())
    text = str(module)
    assert not verify_module(module)
    assert "R.attention" in text and "R.softmax" not in text
    assert "broadcast(size, t) + p" not in text
    assert text.count("R.check(broadcast(size, t) == t") == 1


@pytest.mark.parametrize(
    ("p", "t"), [(0, 1), (0, 5), (5, 1), (1, 5), (TABLE - 1, 3), (TABLE, 1), (TABLE + 2, 3), (TABLE - 2, 3)]
)
def test_a_table_that_ends_early(p: int, t: int) -> None:
    module = positions()
    rng = np.random.default_rng(1)
    arrays = [rng.standard_normal((1, s, 8)).astype(np.float32) for s in (t, t, p + t, p)]
    rows = max(min(p + t, TABLE) - p, 0)
    if rows in (1, t):
        want = rx.compile(module, pipeline=REFERENCE)["main"](*arrays)
        np.testing.assert_allclose(rx.compile(module)["main"](*arrays), want, rtol=1e-5, atol=1e-6)
        return
    with pytest.raises(RuntimeShapeError):
        rx.compile(module)["main"](*arrays)


def test_a_called_function_keeps_the_names_its_callers_know() -> None:
    bb = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorType((N, 4), "float32"))
    with bb.function("inner", [x]):
        size = bb.define_dim("size", N)
        bb.emit_func_output(bb.match_cast(bb.emit(op.exp(x)), rx.TensorType((size, 4), "float32")))
    z = rx.Var("z", rx.TensorType((N, 4), "float32"))
    with bb.function("main", [z]):
        bb.emit_func_output(bb.call("inner", z))
    module = SETTLE(bb.get())
    assert not verify_module(module)
    data = np.ones((3, 4), np.float32)
    np.testing.assert_allclose(rx.evaluate(module, "main", data), np.exp(data), rtol=1e-6)
