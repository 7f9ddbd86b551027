"""Products read in parts only: a product for each part, no copies, the same results; all others stay whole."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir.expr import TupleGetItem
from relaxir.ops import op
from relaxir.passes import Pipeline
from relaxir.pipelines import GRAPH
from relaxir.support.bfloat16 import float32_to_bfloat16
from tests.building import Emit, dataflow

S, B = rx.dim("s"), rx.dim("b")
Parts = Callable[[Emit, rx.Var], tuple[rx.Var, ...]]


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    return float32_to_bfloat16(values.astype(np.float32)) if dtype == "bfloat16" else values.astype(dtype)


def build(parts: Parts, shape: tuple[rx.Dim | int, ...] = (S, 1, 8), columns: int = 192, dtype: str = "float32",
          linear: bool = False) -> rx.IRModule:  # fmt: skip
    """``parts`` of a product with bias, each with a function of its own behind it."""
    rng = np.random.default_rng(0)
    w, b = (rx.const(stored(rng.integers(-3, 4, s), dtype), dtype) for s in ((8, columns), (columns,)))

    def make(e: Emit, x: rx.Var) -> tuple[rx.Var, ...]:
        if linear:
            return parts(e, e(op.linear(x, rx.const(np.ascontiguousarray(w.data.T), dtype), b)))
        return parts(e, e(op.add(b, e(op.matmul(x, w)))))

    return dataflow(make, rx.Var("x", rx.TensorType(shape, dtype)))


def as_exported(e: Emit, p: rx.Var) -> tuple[rx.Var, ...]:
    """As torch.nn.MultiheadAttention is exported."""
    h = e(op.expand_dims(e(op.reshape(p, shape=(S, 1, 3, 64))), axes=(0,)))
    h = e(op.squeeze(e(op.permute_dims(h, axes=(3, 1, 2, 0, 4))), axes=(-2,)))
    q, k, v = (e(op.take(h, rx.const(np.int64(i)))) for i in (0, -2, 2))
    return op.relu(q), op.negative(k), v


def slices(*spans: tuple[int, int]) -> Parts:
    def parts(e: Emit, p: rx.Var) -> tuple[rx.Var, ...]:
        return tuple(op.strided_slice(p, axes=(-1,), begin=(a,), size=(n,)) for a, n in spans)

    return parts


def behind_views(e: Emit, p: rx.Var) -> tuple[rx.Var, ...]:
    """Several places of the split axis, seen through a transposition."""
    h = e(op.permute_dims(e(op.reshape(p, shape=(S, 6, 32))), axes=(1, 0, 2)))
    return tuple(op.strided_slice(h, axes=(0,), begin=(a,), size=(n,)) for a, n in ((0, 2), (2, 4)))


def split(e: Emit, p: rx.Var) -> tuple[rx.Var, ...]:
    """As an operator of several results."""
    whole = e(op.split(p, sizes=(64, 100, 28), axis=-1))
    return tuple(op.negative(e(TupleGetItem(whole, i))) for i in range(2))


def inner_digit(e: Emit, p: rx.Var) -> tuple[rx.Var, ...]:
    """Every third column: no run of columns."""
    h = e(op.reshape(p, shape=(S, 1, 64, 3)))
    return tuple(op.take(h, rx.const(np.int64(i)), axis=3) for i in range(3))


def other_axes(e: Emit, p: rx.Var) -> tuple[rx.Var, ...]:
    h = e(op.reshape(p, shape=(S, 3, 64)))
    return op.take(h, rx.const(np.int64(0)), axis=1), op.strided_slice(h, axes=(2,), begin=(0,), size=(9,))


def whole_too(e: Emit, p: rx.Var) -> tuple[rx.Var, ...]:
    return (*slices((0, 96), (96, 96))(e, p), op.relu(p))


def names(module: rx.IRModule) -> list[str]:
    lines = (line for line in str(Pipeline(GRAPH)(module)).splitlines() if " = R." in line)
    return [line.split(" = R.")[1].split("(")[0] for line in lines if "R.dim" not in line]


def same_results(module: rx.IRModule, shapes: list[tuple[int, ...]], dtype: str = "float32") -> None:
    exe, rng = rx.compile(module, threads=1), np.random.default_rng(1)
    for shape in shapes:
        x = stored(rng.integers(-4, 5, shape), dtype)
        for got, want in zip(exe["main"](x), rx.evaluate(module, "main", x), strict=True):
            np.testing.assert_array_equal(np.asarray(got), np.asarray(want))


@pytest.mark.parametrize(
    ("parts", "count"),
    [
        (as_exported, 3),
        (slices((0, 64), (128, 64)), 2),
        (slices((100, 64), (0, 100)), 2),
        (behind_views, 2),
        (split, 2),
    ],
    ids=["exported", "gap", "uneven", "views", "split"],
)
@pytest.mark.parametrize("linear", [False, True])
def test_parts_become_products(parts: Parts, count: int, linear: bool) -> None:
    module = build(parts, linear=linear)
    found = names(module)
    assert found.count("matmul") + found.count("linear") == count
    assert not {"take", "strided_slice", "split"} & set(found)
    assert found.count("permute_dims") == (2 if parts is behind_views else 0)
    same_results(module, [(n, 1, 8) for n in (0, 1, 7, 40)])


@pytest.mark.parametrize(
    "parts",
    [
        slices((0, 64), (63, 64)),
        slices((0, 63), (63, 9)),
        whole_too,
        inner_digit,
        other_axes,
    ],
    ids=["overlap", "narrow", "whole", "digit", "axes"],
)
def test_others_stay_whole(parts: Parts) -> None:
    module = build(parts)
    assert names(module).count("matmul") == 1
    same_results(module, [(n, 1, 8) for n in (0, 1, 7)])


@pytest.mark.parametrize("dtype", ["float64", "float16", "bfloat16"])
def test_other_types(dtype: str) -> None:
    same_results(build(as_exported, dtype=dtype), [(5, 1, 8)], dtype)


@pytest.mark.parametrize(("width", "kept"), [(9, 0), (rx.dim("w"), 1)])
def test_parts_of_known_extents_are_slices(width: rx.Dim | int, kept: int) -> None:
    """Where the extent is not known, only the split says that its parts are all there is."""
    x, bb = rx.Var("x", rx.TensorType((S, width), "float32")), rx.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            whole = bb.emit(op.split(x, sizes=(2, 0, 7), axis=1))
            out = tuple(bb.emit_output(op.negative(bb.emit(TupleGetItem(whole, i)))) for i in range(3))
        bb.emit_func_output(out)
    module = bb.get()
    assert names(module).count("split") == kept
    same_results(module, [(0, 9), (1, 9), (5, 9)])
    with pytest.raises(rx.RelaxirError, match=r"axis 1|sizes"):
        rx.compile(module, threads=1)["main"](np.zeros((5, 10), np.float32))


def test_a_batch_that_a_check_makes_one() -> None:
    """The view wants as many elements as it has, which a check at run time says; so do the views of the parts."""
    module = build(as_exported, shape=(S, B, 8))
    assert names(module).count("matmul") == 3
    same_results(module, [(4, 1, 8), (1, 1, 8)])
    with pytest.raises(rx.RelaxirError, match="number of elements"):
        rx.compile(module, threads=1)["main"](np.zeros((4, 2, 8), np.float32))


def test_a_nan_stays_in_its_row() -> None:
    module = build(as_exported)
    x = np.ones((5, 1, 8), np.float32)
    x[2, 0, 3] = np.nan
    for got, want in zip(rx.compile(module, threads=1)["main"](x), rx.evaluate(module, "main", x), strict=True):
        np.testing.assert_array_equal(got, want)
        assert np.isnan(got[2]).all()
        assert np.isfinite(np.delete(got, 2, axis=0)).all()


@pytest.mark.parametrize(
    ("shape", "axes", "kept"),
    [
        ((S, 1, 6, 4), (1, 2, 0, 3), 1),
        ((1, 6, S, 4), (2, 0, 1, 3), 1),
        ((S, 1, 4), (1, 0, 2), 0),
        ((1, 1, S), (2, 0, 1), 0),
        ((S, 1, 4), (2, 1, 0), 1),
        ((S, B, 4), (1, 0, 2), 1),
    ],
)
def test_unit_axes_move_by_views(shape: tuple[rx.Dim | int, ...], axes: tuple[int, ...], kept: int) -> None:
    x, bb = rx.Var("x", rx.TensorType(shape, "float32")), rx.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            y = bb.emit_output(op.relu(bb.emit(op.permute_dims(x, axes=axes))))
        bb.emit_func_output((y,))
    module = bb.get()
    assert names(module).count("permute_dims") == kept
    for n in (0, 1, 5):
        value = np.random.default_rng(0).standard_normal([d if isinstance(d, int) else n for d in shape]).astype("f")
        np.testing.assert_array_equal(
            rx.compile(module, threads=1)["main"](value)[0], np.maximum(value.transpose(axes), 0)
        )
