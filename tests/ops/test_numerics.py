"""NaN, infinities, signed zeros, wrapping integers, empty rows: tables that references and loops must both meet."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxir.ir import Attrs, InferCtx, TensorType
from relaxir.ops import TABLE
from relaxir.ops.arg_reduce import ArgReduceAttrs
from relaxir.ops.norm import NormAttrs
from relaxir.ops.reduce import ReduceAttrs
from relaxir.ops.select import AsTypeAttrs, ClipAttrs
from relaxir.ops.softmax import AxisAttrs
from relaxir.runtime.interp import run_prim_func
from relaxir.support.dtypes import info
from relaxir.support.errors import RelaxirError, RuntimeFailure
from relaxir.sym import Facts
from tests.ops.cases import outputs
from tests.ops.scalar import Failure, run_blocks

NAN, INF = np.nan, np.inf
MIN32, MAX32 = -(2**31), 2**31 - 1


def both(name: str, *operands: Any, attrs: Attrs | None = None, dtype: str = "float32") -> Any:
    """Run an operator by its reference, its loops one scalar at a time, and its loops in the interpreter; they agree."""
    op = TABLE[name]
    attrs = op.Attrs() if attrs is None else attrs
    arrays = tuple(a if isinstance(a, np.ndarray) else np.array(a, info(dtype).numpy) for a in operands)
    types = tuple(TensorType(a.shape, str(a.dtype)) for a in arrays)
    result = op.infer(types, attrs, InferCtx(name, Facts()))
    func = op.lower(types, attrs, outputs(result))
    want = op.evaluate(arrays, types, attrs, result)
    (slow,) = run_blocks(func, arrays, {})
    fast = np.full_like(slow, 1)
    run_prim_func(func, [*arrays, fast], {})
    for got in (slow, fast):
        np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), 1e-5, 1e-6, equal_nan=True)
    return want


def same(got: np.ndarray, *want: float) -> None:
    np.testing.assert_array_equal(got.reshape(-1), np.array(want, got.dtype))


@pytest.mark.parametrize(
    ("name", "given", "want"),
    [
        ("exp", (NAN, INF, -INF, 200, -200), (NAN, INF, 0, INF, 0)),
        ("log", (NAN, INF, 0, -0.0, -1), (NAN, INF, -INF, -INF, NAN)),
        ("sqrt", (NAN, INF, 0, -1, 4), (NAN, INF, 0, NAN, 2)),
        ("rsqrt", (NAN, INF, 0, -1, 4), (NAN, 0, INF, NAN, 0.5)),
        ("tanh", (NAN, INF, -INF, 0, 99), (NAN, 1, -1, 0, 1)),
        ("sigmoid", (NAN, INF, -INF, 0, -200), (NAN, 1, 0, 0.5, 0)),
        ("erf", (NAN, INF, -INF, 0, 9), (NAN, 1, -1, 0, 1)),
        ("relu", (NAN, INF, -INF, -1, 2), (NAN, INF, 0, 0, 2)),
        ("leaky_relu", (NAN, INF, -INF, 0, 2), (NAN, INF, -INF, 0, 2)),
        ("elu", (NAN, INF, -INF, 0, 2), (NAN, INF, -1, 0, 2)),
        ("thresholded_relu", (NAN, INF, -INF, 1, 2), (0, INF, 0, 0, 2)),
        ("hard_sigmoid", (NAN, INF, -INF, 0, 9), (NAN, 1, 0, 0.5, 1)),
        ("softplus", (NAN, INF, -INF, 1000, -1000), (NAN, INF, 0, 1000, 0)),
        ("gelu", (NAN, INF, -INF, 0, 99), (NAN, INF, NAN, 0, 99)),
        ("silu", (NAN, INF, -INF, 0, 99), (NAN, INF, NAN, 0, 99)),
        ("round", (NAN, INF, 0.5, 1.5, -2.5), (NAN, INF, 0, 2, -2)),
        ("sign", (NAN, INF, -0.0, 0, -3), (NAN, 1, 0, 0, -1)),
        ("floor", (NAN, -INF, -0.5, 0.5, 3), (NAN, -INF, -1, 0, 3)),
        ("isinf", (NAN, INF, -INF, 0, 1), (False, True, True, False, False)),
        ("isnan", (NAN, INF, -INF, 0, 1), (True, False, False, False, False)),
        ("shrink", (NAN, INF, -INF, 0.4, 1), (0, INF, -INF, 0, 1)),
    ],
)
def test_special_floats(name: str, given: tuple[float, ...], want: tuple[float, ...]) -> None:
    same(both(name, given), *want)


@pytest.mark.parametrize("length", [1, 2, 7, 16, 33])
@pytest.mark.parametrize("name", ["maximum", "minimum"])
def test_nan_of_either_side_wins(name: str, length: int) -> None:
    a = np.resize(np.float32([NAN, 1, NAN]), length)
    b = np.resize(np.float32([1, NAN, NAN]), length)
    assert np.isnan(both(name, a, b)).all()
    assert np.isnan(both(name, b, a)).all()


def test_clip() -> None:
    bounds = ClipAttrs(-1.0, 1.0)
    same(both("clip", (NAN, -5, 5), attrs=bounds), NAN, -1, 1)
    same(both("clip", (NAN, -5, 5), -1, 1), NAN, -1, 1)
    same(both("clip", (0, 5), NAN, 1), NAN, NAN)
    same(both("clip", (0, 5, 9), 7, 2), 2, 2, 2)  # crossed bounds: the upper one wins
    same(both("clip", (-128, 127), attrs=ClipAttrs(-1e9, 3), dtype="int8"), -128, 3)


def test_integers_wrap() -> None:
    same(both("add", np.uint8([200, 255]), np.uint8([100, 1])), 44, 0)
    same(both("subtract", np.uint8([0]), np.uint8([1])), 255)
    same(both("multiply", np.int8([100]), np.int8([3])), 44)
    same(both("negative", np.int8([-128, 5])), -128, -5)
    same(both("abs", np.int8([-128, -5])), -128, 5)
    same(both("sum", np.int8([100, 100])), -56)
    same(both("prod", np.uint8([16, 17])), 16)


def test_quotients_of_both_signs() -> None:
    a, b = (7, -7, 7, -7, 6), (3, 3, -3, -3, -3)
    for dtype in ("int8", "int64", "float32"):
        same(both("floor_divide", a, b, dtype=dtype), 2, -3, -3, 2, -2)
        same(both("floor_mod", a, b, dtype=dtype), 1, 2, -2, -1, 0)
        same(both("trunc_divide", a, b, dtype=dtype), 2, -2, -2, 2, -2)
        same(both("trunc_mod", a, b, dtype=dtype), 1, -1, 1, -1, 0)
    same(both("divide", a, b, dtype="int32"), 2, -2, -2, 2, -2)
    same(both("floor_divide", 1.0, 0.1, dtype="float64"), 9)
    same(both("floor_divide", (1, 0, -1), (0, 0, 0)), INF, NAN, -INF)
    same(both("floor_mod", (5, 5, INF), (INF, -INF, 2)), 5, -INF, NAN)
    same(both("trunc_mod", (5, 5, 1), (INF, -INF, 0)), 5, 5, NAN)
    same(both("divide", (1, -1, 0), (0, 0, 0)), INF, -INF, NAN)


@pytest.mark.parametrize("name", ["divide", "trunc_divide", "floor_divide"])
def test_most_negative_by_minus_one_wraps(name: str) -> None:
    same(both(name, (MIN32, MIN32), (-1, 1), dtype="int32"), MIN32, MIN32)


@pytest.mark.parametrize("name", ["divide", "trunc_divide", "floor_divide", "floor_mod", "trunc_mod"])
def test_integer_division_by_zero_fails(name: str) -> None:
    op, t = TABLE[name], TensorType((2,), "int32")
    arrays = (np.int32([1, 7]), np.int32([1, 0]))
    func = op.lower((t, t), Attrs(), (t,))
    with pytest.raises(RuntimeFailure, match=f"{name}: 7 divided by zero") as caught:
        op.evaluate(arrays, (t, t), Attrs(), t)
    assert caught.value.code == "runtime-division-by-zero"
    with pytest.raises(Failure, match="7 divided by zero"):
        run_blocks(func, arrays, {})
    with pytest.raises(RelaxirError, match="7 divided by zero"):
        run_prim_func(func, [*arrays, np.zeros(2, np.int32)], {})


def test_powers() -> None:
    same(both("power", (0, 2, -2, -8), (0, -1, 3, 1 / 3)), 1, 0.5, -8, NAN)
    same(both("power", (1, -1, -1, 2, 0, 3), (-3, -3, -2, -1, -1, 4), dtype="int32"), 1, -1, 1, 0, 0, 81)
    same(both("power", (3,), (40,), dtype="int32"), np.array(3**40).astype(np.int64).astype(np.int32))
    same(both("power", np.int32([2, 9]), np.float32([3, 0.5])), 8, 3)
    same(both("power", np.float32([2, 9]), np.int64([3, -1])), 8, np.float32(1 / 9))


def test_shifts_beyond_the_width() -> None:
    same(both("left_shift", (1, 1, 1, -1), (31, 32, -1, 4), dtype="int32"), MIN32, 0, 0, -16)
    same(both("right_shift", (-8, -8, 8, 8), (1, 40, 40, -1), dtype="int32"), -4, -1, 0, 0)
    same(both("right_shift", (255, 255), (7, 8), dtype="uint8"), 1, 0)


def test_conversions() -> None:
    special = (NAN, INF, -INF, -1.9, 1e10, 0.25)
    same(both("astype", special, attrs=AsTypeAttrs("int32")), 0, MAX32, MIN32, -1, MAX32, 0)
    same(both("astype", special, attrs=AsTypeAttrs("uint8")), 0, 255, 0, 0, 255, 0)
    same(both("astype", special, attrs=AsTypeAttrs("bool")), True, True, True, True, True, True)
    same(both("astype", (0.0, -0.0), attrs=AsTypeAttrs("bool")), False, False)
    same(both("astype", (-1, 256, 300), attrs=AsTypeAttrs("uint8"), dtype="int32"), 255, 0, 44)
    same(both("astype", (2.0**63, -(2.0**64)), attrs=AsTypeAttrs("int64"), dtype="float64"), 2**63 - 1, -(2**63))
    same(both("astype", (True, False), attrs=AsTypeAttrs("float32"), dtype="bool"), 1, 0)
    same(both("astype", (1e6, -1e6), attrs=AsTypeAttrs("float16")), INF, -INF)


@pytest.mark.parametrize(
    ("name", "want"),
    [
        ("sum", 0), ("prod", 1), ("max", -INF), ("min", INF), ("mean", NAN), ("l1_norm", 0), ("l2_norm", 0), ("sum_square", 0),
        ("log_sum", -INF), ("logsumexp", -INF), ("variance", NAN), ("std", NAN),
    ],
)  # fmt: skip
def test_reducing_nothing(name: str, want: float) -> None:
    attrs = TABLE[name].Attrs((1,))
    got = both(name, np.zeros((3, 0, 2), np.float32), attrs=attrs)
    assert got.shape == (3, 2)
    np.testing.assert_array_equal(got, np.full((3, 2), want, np.float32))


def test_reducing_nothing_of_integers_and_bools() -> None:
    empty = np.zeros((0, 2), np.int32)
    for name, want in (("max", MIN32), ("min", MAX32), ("sum", 0), ("prod", 1), ("mean", 0)):
        same(both(name, empty, attrs=ReduceAttrs((0,))), want, want)
    nothing = np.zeros((0,), bool)
    assert both("all", nothing)
    assert not both("any", nothing)


def test_reductions_of_nan() -> None:
    for row in ((NAN, 1, 2), (1, NAN, 2), (1, 2, NAN)):
        for name in ("max", "min", "sum", "mean", "logsumexp"):
            assert np.isnan(both(name, row))
        assert both("argmax", row) == row.index(NAN)
        assert both("argmin", row) == row.index(NAN)
    assert both("argmax", (NAN, 1, NAN), attrs=ArgReduceAttrs(select_last_index=True)) == 2


def test_arg_of_extreme_integers() -> None:
    lowest = np.iinfo(np.int64).min
    assert both("argmax", np.int64([lowest, lowest])) == 0
    assert both("argmax", np.int64([lowest, lowest]), attrs=ArgReduceAttrs(select_last_index=True)) == 1
    assert both("argmax", np.float32([-INF, -INF])) == 0


def test_softmax_rows() -> None:
    rows = np.float32([(1000, 1000), (-INF, 0), (-INF, -INF), (0, NAN), (INF, 0)])
    same(both("softmax", rows), 0.5, 0.5, 0, 1, NAN, NAN, NAN, NAN, NAN, NAN)
    half = -np.log(np.float32(2))
    same(both("log_softmax", rows), half, half, -INF, 0, NAN, NAN, NAN, NAN, NAN, NAN)
    same(both("hardmax", np.float32([(1, 3, 3), (NAN, 1, 2)]), attrs=AxisAttrs(1)), 0, 1, 0, 1, 0, 0)


def test_half_precision_accumulates_wide() -> None:
    ones = np.ones(4096, np.float16)
    assert both("sum", ones) == 4096  # in float16 the sum stops at 2048
    assert both("mean", ones) == 1
    big = np.float16([300, 300, -300, -300])
    assert both("l2_norm", big) == 600  # 300 squared overflows float16
    same(both("rms_norm", big, attrs=NormAttrs()), 1, 1, -1, -1)
    large = np.full(8, 60000, np.float16)
    same(both("layer_norm", large), *[0] * 8)
