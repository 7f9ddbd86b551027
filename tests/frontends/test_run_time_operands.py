"""Operands that decide sizes: constant, and known only at run time, with one answer."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto

from relaxir.frontends.onnx import from_onnx
from relaxir.ir.expr import Array
from relaxir.support.errors import RelaxirError, UnsupportedError
from tests.frontends.models import f32, folded, i64, model, node, run

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
LINE = np.arange(10, dtype=np.float32)
FAR, NEAR = 2**63 - 1, -(2**63)


def one(op: str, operands: str, types: str, opset: int = 18, rank: int = 3, **attrs: Any) -> ModelProto:
    dims = ",".join(f"o{i}" for i in range(rank))
    return model([node(op, operands, "y", **attrs)], types, f"y float32[{dims}]", opset)


RESHAPE = one("Reshape", "x t", "x float32[a,b,c]; t int64[3]")
EXPAND = one("Expand", "x t", "x float32[a,b]; t int64[3]")
SLICE = one("Slice", "x s e a t", "x float32[n]; s int64[1]; e int64[1]; a int64[1]; t int64[1]", rank=1)
SLICE2 = one("Slice", "x s e a", "x float32[a,b,c]; s int64[2]; e int64[2]; a int64[2]")
PAD = one("Pad", "x p", "x float32[a,b,c]; p int64[6]")
PAD_AXES = one("Pad", "x p v a", "x float32[a,b,c]; p int64[4]; v float32[]; a int64[2]", opset=21)
TILE = one("Tile", "x r", "x float32[a,b,c]; r int64[3]")
SUM = one("ReduceSum", "x a", "x float32[a,b,c]; a int64[2]", rank=1, keepdims=0)
SUM_KEEP = one("ReduceMax", "x a", "x float32[a,b,c]; a int64[2]", keepdims=1)
SUM_NOOP = one("ReduceL1", "x a", "x float32[a,b,c]; a int64[k]", keepdims=1, noop_with_empty_axes=1)
SUM_ALL = one("ReduceMean", "x a", "x float32[a,b,c]; a int64[k]", keepdims=1)
SQUEEZE = one("Squeeze", "x a", "x float32[a,b,c]; a int64[1]", rank=2)
UNSQUEEZE = one("Unsqueeze", "x a", "x float32[a,b,c]; a int64[2]", rank=5)
CUMSUM = one("CumSum", "x a", "x float32[a,b,c]; a int64[]")
CENTER = one("CenterCropPad", "x t", "x float32[a,b,c]; t int64[2]", axes=[0, 2])
SPLIT_K = one("Slice", "x s e", "x float32[a,b,c]; s int64[k]; e int64[k]")


def slices(start: int, end: int, step: int) -> tuple[ModelProto, dict[str, Array], Array]:
    feeds = {"x": LINE, "s": i64([start]), "e": i64([end]), "a": i64([0]), "t": i64([step])}
    index = slice(start, None if end == NEAR else end, step) if end != NEAR or step < 0 else slice(0, 0)
    return SLICE, feeds, LINE[index]


Case = tuple[ModelProto, dict[str, Array], Array]
CASES: dict[str, Case] = {
    "reshape": (RESHAPE, {"x": X, "t": i64([4, -1, 3])}, X.reshape(4, 2, 3)),
    "reshape, 0 copies": (RESHAPE, {"x": X, "t": i64([0, -1, 2])}, X.reshape(2, 6, 2)),
    "expand": (EXPAND, {"x": X[0], "t": i64([5, 1, 4])}, np.broadcast_to(X[0], (5, 3, 4))),
    "pad": (PAD, {"x": X, "p": i64([1, 0, -1, 0, 2, 1])}, np.pad(X, ((1, 0), (0, 2), (0, 1)))[..., 1:]),
    "pad, axes": (PAD_AXES, {"x": X, "p": i64([1, 0, 0, 2]), "v": f32(7), "a": i64([-1, 0])},
                  np.pad(X, ((0, 2), (0, 0), (1, 0)), constant_values=7)),
    "tile": (TILE, {"x": X, "r": i64([2, 1, 0])}, np.tile(X, (2, 1, 0))),
    "slice of two axes": (SLICE2, {"x": X, "s": i64([-2, 1]), "e": i64([FAR, -1]), "a": i64([2, -2])}, X[:, 1:-1, -2:]),
    "slices of unknown count": (SPLIT_K, {"x": X, "s": i64([1, 0]), "e": i64([2, 2])}, X[1:2, 0:2]),
    "sum": (SUM, {"x": X, "a": i64([0, -1])}, X.sum((0, 2))),
    "max, kept": (SUM_KEEP, {"x": X, "a": i64([1, 2])}, X.max((1, 2), keepdims=True)),
    "no axes, no reduction": (SUM_NOOP, {"x": -X, "a": i64([])}, X),
    "no axes, all": (SUM_ALL, {"x": X, "a": i64([])}, X.mean(keepdims=True).reshape(1, 1, 1)),
    "some axes": (SUM_ALL, {"x": X, "a": i64([1])}, X.mean(1, keepdims=True)),
    "squeeze": (SQUEEZE, {"x": X[:, :1], "a": i64([1])}, X[:, 0]),
    "unsqueeze": (UNSQUEEZE, {"x": X, "a": i64([-1, 0])}, X[None, ..., None]),
    "cumsum": (CUMSUM, {"x": X, "a": i64(-2)}, X.cumsum(1)),
    "center crop": (CENTER, {"x": X, "t": i64([1, 6])}, np.pad(X[:1], ((0, 0), (0, 0), (1, 1)))),
    **{f"slice {b}": slices(*b) for b in (
        (9, 0, -1), (-1, NEAR, -3), (0, 5, -1), (100, -100, -4), (2, 2, 1), (-3, FAR, 2), (0, -1, 3), (-100, 100, 7))},
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_run_time(name: str) -> None:
    proto, feeds, want = CASES[name]
    (got,) = run(proto, **feeds)
    np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("name", CASES)
def test_constant(name: str) -> None:
    proto, feeds, want = CASES[name]
    others = tuple(k for k in feeds if k != "x")
    (got,) = run(folded(proto, feeds, *others), x=feeds["x"])
    np.testing.assert_allclose(got, want, rtol=1e-6)


RNG = np.random.default_rng(3)
IMAGE = f32(RNG.standard_normal((1, 2, 5, 4)))
SIGNAL = f32(RNG.standard_normal((2, 6, 3, 2)))
COLUMNS = f32(RNG.standard_normal((1, 12, 6)))
RESIZE, SCALES = "x float32[a,b,c,d]; s float32[4]", {"x": IMAGE, "s": f32([1, 1, 1.7, 0.6])}
CROP = {"x": IMAGE, "r": f32([0, 0, 0.2, 0.1, 1, 1, 0.9, 1.3]), "s": f32([1, 1, 1.5, 0.8])}
ALIKE: dict[str, tuple[ModelProto, dict[str, Array]]] = {
    "nearest": (one("Resize", "x _ s", RESIZE, rank=4), SCALES),
    "linear, corners": (
        one("Resize", "x _ s", RESIZE, rank=4, mode="linear", coordinate_transformation_mode="align_corners"), SCALES),
    "cubic, antialias": (one("Resize", "x _ s", RESIZE, rank=4, mode="cubic", antialias=1), SCALES),
    "cropped": (
        one("Resize", "x r s", f"{RESIZE}; r float32[8]", rank=4, mode="linear", extrapolation_value=3.0,
            coordinate_transformation_mode="tf_crop_and_resize"), CROP),
    "two axes": (
        one("Resize", "x _ s", "x float32[a,b,c,d]; s float32[2]", rank=4, axes=[3, 2]),
        {"x": IMAGE, "s": f32([0.6, 2])}),
    "upsample": (one("Upsample", "x s", RESIZE, 9, rank=4, mode="linear"), {"x": IMAGE, "s": f32([1, 1, 2, 1.5])}),
    **{
        f"spectrum along {a}": (
            one("DFT", "x l a", "x float32[a,b,c,2]; l int64[]; a int64[]", 20, rank=4, onesided=a == 0, inverse=a < 0),
            {"x": SIGNAL if a else SIGNAL[..., :1], "l": i64(7), "a": i64(a)})
        for a in (1, -2)
    },
    "columns": (
        one("Col2Im", "x i b", "x float32[a,b,c]; i int64[2]; b int64[2]", rank=4, strides=[1, 2]),
        {"x": COLUMNS, "i": i64([4, 5]), "b": i64([2, 2])}),
}  # fmt: skip


@pytest.mark.parametrize("name", ALIKE)
def test_run_time_as_constant(name: str) -> None:
    """An operand known only at run time means what the constant means."""
    proto, feeds = ALIKE[name]
    (got,) = run(proto, **feeds)
    (want,) = run(folded(proto, feeds, *(k for k in feeds if k != "x")), x=feeds["x"])
    assert got.shape == want.shape and got.size > 0
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("parts", [1, 2])
def test_real_or_complex_signal(parts: int) -> None:
    """A last extent known only at run time: a real signal is a complex one without imaginary part."""
    x = SIGNAL[..., :parts]
    proto = one("DFT", "x", "x float32[a,b,c,p]", 17, rank=4, axis=1)
    want = np.fft.fft(x[..., 0] + (1j * x[..., 1] if parts == 2 else 0), axis=1)
    np.testing.assert_allclose(run(proto, x=x)[0], np.stack([want.real, want.imag], -1), atol=1e-5)


REFUSED = {
    "reshape": (RESHAPE, {"x": X, "t": i64([5, -1, 1])}),
    "reshape below -1": (RESHAPE, {"x": X, "t": i64([-2, 3, 4])}),
    "axis out of range": (SUM, {"x": X, "a": i64([0, 3])}),
    "axis twice": (SUM, {"x": X, "a": i64([1, 1])}),
    "squeeze of a long axis": (SQUEEZE, {"x": X, "a": i64([1])}),
    "negative repeats": (TILE, {"x": X, "r": i64([1, -1, 1])}),
    "expand": (EXPAND, {"x": X[0], "t": i64([1, 2, 4])}),
}


@pytest.mark.parametrize("name", REFUSED)
@pytest.mark.parametrize("fold", [False, True])
def test_refused(name: str, fold: bool) -> None:
    proto, feeds = REFUSED[name]
    others = tuple(k for k in feeds if k != "x")
    with pytest.raises(RelaxirError):
        if fold:
            run(folded(proto, feeds, *others), x=feeds["x"])
        else:
            run(proto, **feeds)


def test_topk_with_run_time_k() -> None:
    proto = model([node("TopK", "x k", "v i")], "x float32[n]; k int64[1]", "v float32; i int64")
    values, places = run(proto, x=f32([3, 9, 1, 9]), k=i64([3]))
    np.testing.assert_array_equal(values, [9, 9, 3])
    np.testing.assert_array_equal(places, [1, 3, 0])


def test_range_of_floats_at_run_time() -> None:
    proto = model([node("Range", "a b c", "y")], "a float32[]; b float32[]; c float32[]", "y float32")
    np.testing.assert_allclose(run(proto, a=f32(1), b=f32(2), c=f32(0.25))[0], [1, 1.25, 1.5, 1.75])


def test_one_hot_with_run_time_depth() -> None:
    proto = model([node("OneHot", "i d v", "y")], "i int64[n]; d float32[1]; v float32[2]", "y float32")
    (y,) = run(proto, i=i64([1, -1, 7]), d=f32([3]), v=f32([0, 5]))
    np.testing.assert_array_equal(y, [[0, 5, 0], [0, 0, 5], [0, 0, 0]])


UNSUPPORTED: dict[str, Callable[[], ModelProto]] = {
    "rank of a reshape": lambda: model([node("Reshape", "x t", "y")], "x float32[a]; t int64[k]", "y float32"),
    "squeeze of whatever is 1": lambda: model([node("Squeeze", "x", "y")], "x float32[a,b]", "y float32"),
    "number of axes": lambda: model([node("Unsqueeze", "x a", "y")], "x float32[b]; a int64[k]", "y float32"),
}


@pytest.mark.parametrize("name", UNSUPPORTED)
def test_unsupported(name: str) -> None:
    with pytest.raises(UnsupportedError, match=r"run.time"):
        from_onnx(UNSUPPORTED[name]())
