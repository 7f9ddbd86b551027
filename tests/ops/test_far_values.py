"""Indices far outside and attributes beyond the type: interpreter and compiled code do the same, and at once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op
from relaxir.support.errors import InferError, RuntimeIndexError

N, M, P, K = (rx.dim(c) for c in "nmpk")
FAR = np.array([[2**63 - 1, -(2**63)], [0, -1]])


def taken(mode: str, axis: int) -> rx.IRModule:
    x, i = rx.Var("x", rx.TensorType((N, M, P), "float32")), rx.Var("i", rx.TensorType((K, 2), "int64"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x, i]):
        bb.emit_func_output(bb.emit(op.take(x, i, axis=axis, mode=mode)))
    return bb.get()


@pytest.mark.parametrize("axis", [0, 2])
@pytest.mark.parametrize(("mode", "places"), [("wrap", lambda n: FAR % n), ("clip", lambda n: FAR.clip(0, n - 1))])
def test_far_indices(mode: str, places: Callable[[int], np.ndarray], axis: int) -> None:
    module = taken(mode, axis)
    main = rx.compile(module)["main"]
    x = np.arange(12, dtype=np.float32).reshape(3, 2, 2)
    wanted = np.take(x, places(x.shape[axis]), axis)
    empty = np.zeros([0 if a == axis else 2 for a in range(3)], np.float32)
    for run in (main, lambda *arrays: rx.evaluate(module, "main", *arrays)):
        np.testing.assert_array_equal(run(x, FAR), wanted)
        zeros = run(empty, FAR)
        assert zeros.size == 16
        assert not zeros.any()


@pytest.mark.parametrize("shape", [(0, 3, 7), (2, 3, 0), (2, 3, 4)])
def test_indices_are_checked_whatever_is_empty(shape: tuple[int, ...]) -> None:
    module = taken("raise", 1)
    x, i = np.zeros(shape, np.float32), np.array([[3, 0], [0, 0]])
    for run in (rx.compile(module)["main"], lambda *arrays: rx.evaluate(module, "main", *arrays)):
        with pytest.raises(RuntimeIndexError, match="index 3 is out of range for axis 1 of extent 3"):
            run(x, i)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: op.leaky_relu(x, alpha=1e-50),
        lambda x: op.elu(x, alpha=1e40),
        lambda x: op.celu(x, alpha=1e-50),
        lambda x: op.selu(x, gamma=1e40),
        lambda x: op.selu(x, alpha=np.inf),
        lambda x: op.hard_sigmoid(x, alpha=-1e-50),
        lambda x: op.hard_sigmoid(x, beta=np.inf),
    ],
)
@pytest.mark.parametrize("extremum", [op.max, op.min])
def test_extrema_of_functions_whose_attributes_leave_the_type(
    f: Callable[[rx.Var], rx.Var], extremum: Callable[..., rx.Var]
) -> None:
    """Such a function makes NaN of numbers, so that no extremum may be taken before it."""
    x = rx.Var("x", rx.TensorType((N,), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(extremum(bb.emit(f(x)), axes=(0,))))
    module = bb.get()
    main = rx.compile(module)["main"]
    for data in ([-np.inf, -0.0], [np.inf, 1], [0, 1, 2], [1, 2, -3]):
        array = np.array(data, np.float32)
        np.testing.assert_array_equal(main(array), rx.evaluate(module, "main", array))


def test_slices_with_nan_are_last_in_half_precision() -> None:
    x = rx.Var("x", rx.TensorType((N, M), "float16"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.item(bb.emit(op.unique(x, axis=0)), 0))
    module, array = bb.get(), np.array([[np.nan], [-0.0]], np.float16)
    for y in (rx.compile(module)["main"](array), rx.evaluate(module, "main", array)):
        np.testing.assert_array_equal(y, array[::-1])


@pytest.mark.parametrize(("sections", "told"), [(2**40, "at most"), (2**70, "64 bits")])
def test_a_split_has_a_limit_of_parts(sections: int, told: str) -> None:
    x = rx.Var("x", rx.TensorType((N,), "float32"))
    bb = rx.BlockBuilder()
    with pytest.raises(InferError, match=told), bb.function("main", [x]):
        bb.emit(op.split(x, sections=sections))


@pytest.mark.parametrize("far", [1e20, -1e20, 1e30, np.inf, -np.inf])
def test_far_places_of_a_sampled_grid(far: float) -> None:
    """A place beyond 64-bit integers is at the border that it lies beyond."""
    x, grid = rx.Var("x", rx.TensorType((1, 1, 1, N), "float32")), rx.Var("g", rx.TensorType((1, 1, 1, 2), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x, grid]):
        bb.emit_func_output(bb.emit(op.grid_sample(x, grid, mode="nearest", padding_mode="border")))
    module, row = bb.get(), np.arange(4, dtype=np.float32).reshape(1, 1, 1, 4)
    place = np.array([far, 0], np.float32).reshape(1, 1, 1, 2)
    for run in (rx.compile(module)["main"], lambda *arrays: rx.evaluate(module, "main", *arrays)):
        assert run(row, place).tolist() == [[[[3.0 if far > 0 else 0.0]]]]
