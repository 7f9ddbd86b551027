"""Element formats of less than 16 bits against ml_dtypes: every code, and numbers around every tie."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper, numpy_helper

import relaxir as rx
from relaxir.frontends.onnx.narrow import NARROW, Narrow, numbers
from relaxir.ir.expr import Array
from relaxir.support.errors import UnsupportedError
from tests.frontends.models import f32, model, node

FLOATS = {c: f for c, f in NARROW.items() if f.is_float and f.signed}
INTEGERS = {c: f for c, f in NARROW.items() if not f.is_float}


def typed(proto: ModelProto, **codes: int) -> ModelProto:
    """The model with the element types of inputs or outputs replaced."""
    for v in (*proto.graph.input, *proto.graph.output):
        if v.name in codes:
            v.type.tensor_type.elem_type = codes[v.name]
    return proto


def call(proto: ModelProto, *arrays: Array) -> Array:
    result = rx.evaluate(rx.from_onnx(proto), "main", *arrays)
    assert isinstance(result, np.ndarray)
    return result


def all_codes(narrow: Narrow) -> Array:
    return np.arange(1 << narrow.bits, dtype=np.uint8).view(np.dtype(getattr(ml_dtypes, narrow.name)))


@pytest.mark.parametrize("code", NARROW, ids=lambda c: NARROW[c].name)
def test_every_code_to_float(code: int) -> None:
    narrow = NARROW[code]
    proto = typed(model([node("Cast", "x", "y", to=TensorProto.FLOAT)], "x uint8[n]", "y float32", 25), x=code)
    codes = all_codes(narrow)
    np.testing.assert_array_equal(call(proto, codes), codes.astype(np.float32))


def around(narrow: Narrow) -> Array:
    """Numbers of a format, the middles between them, and the floats beside those."""
    finite = np.unique(numbers(narrow.name)[np.isfinite(numbers(narrow.name))])
    middles = (finite[1:] + finite[:-1]) / 2
    points = np.concatenate([finite, middles, f32([-0.0, np.inf, -np.inf, np.nan, 1e30, -1e30, 1e-30])])
    return np.concatenate([points, np.nextafter(points, np.float32(np.inf)), np.nextafter(points, np.float32(-np.inf))])


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("code", FLOATS, ids=lambda c: NARROW[c].name)
def test_rounding(code: int, saturate: int) -> None:
    narrow = FLOATS[code]
    proto = typed(model([node("Cast", "x", "y", to=code, saturate=saturate)], "x float32[n]", "y uint8", 19), y=code)
    x = around(narrow)
    wanted = np.dtype(getattr(ml_dtypes, narrow.name))
    want = (numpy_helper.saturate_cast(x, wanted) if saturate and narrow.bits == 8 else x.astype(wanted)).astype(
        np.float32
    )
    got = call(proto, x)
    assert got.dtype == wanted
    np.testing.assert_array_equal(got.astype(np.float32), want)
    np.testing.assert_array_equal(
        np.signbit(got.astype(np.float32)) | np.isnan(want), np.signbit(want) | np.isnan(want)
    )


@pytest.mark.parametrize("code", INTEGERS, ids=lambda c: NARROW[c].name)
def test_integers_wrap(code: int) -> None:
    narrow = INTEGERS[code]
    proto = typed(model([node("Cast", "x", "y", to=code)], "x int32[n]", "y uint8", 25), y=code)
    x = np.arange(-40, 40, dtype=np.int32)
    low, high = narrow.bounds
    want = (x - low) % (high - low + 1) + low
    np.testing.assert_array_equal(call(proto, x).astype(np.int32), want)


@pytest.mark.parametrize("code", NARROW, ids=lambda c: NARROW[c].name)
def test_stored_and_moved(code: int) -> None:
    """A packed constant of odd length, moved about by operators that do not look at it."""
    narrow = NARROW[code]
    codes = np.resize(all_codes(narrow), (3, 5))
    nodes = [
        node("Transpose", "w", "t", perm=[1, 0]),
        node("Concat", "t x", "y", axis=0),
    ]
    proto = model(nodes, "x uint8[n,3]", "y uint8", 25)
    proto.graph.initializer.append(numpy_helper.from_array(codes, "w"))
    x = np.resize(all_codes(narrow)[::-1], (2, 3))
    got = rx.compile(rx.from_onnx(typed(proto, x=code, y=code)))["main"](x)
    assert isinstance(got, np.ndarray) and got.dtype == x.dtype
    np.testing.assert_array_equal(got.astype(np.float32), np.concatenate([codes.T, x]).astype(np.float32))


def test_arithmetic_is_refused() -> None:
    proto = typed(model([node("Add", "x x", "y")], "x uint8[n]", "y uint8", 25), x=TensorProto.INT4, y=TensorProto.INT4)
    with pytest.raises(UnsupportedError, match="operands of int4"):
        rx.from_onnx(proto)


def test_bfloat16_results_are_of_ml_dtypes(tmp_path: object) -> None:
    proto = typed(
        model([node("Neg", "x", "y")], "x uint16[n]", "y uint16"), x=TensorProto.BFLOAT16, y=TensorProto.BFLOAT16
    )
    x = f32([1, -2.5]).astype(ml_dtypes.bfloat16)
    exe = rx.compile(rx.from_onnx(proto))
    again = rx.load(exe.export(f"{tmp_path}/neg.so"))
    for main in (exe["main"], again["main"]):
        got = main(x)
        assert isinstance(got, np.ndarray) and got.dtype == x.dtype
        np.testing.assert_array_equal(got.astype(np.float32), [-1, 2.5])


@pytest.mark.parametrize("axis", [0, 1])
def test_quantising_along_an_axis(axis: int) -> None:
    """To a float and back: each row or column by its own scale."""
    x, scale = f32(np.linspace(-3, 3, 12).reshape(3, 4)), f32([0.5, 0.25, 2, 1][: (3, 4)[axis]])
    nodes = [node("QuantizeLinear", "x s z", "q", axis=axis), node("DequantizeLinear", "q s", "y", axis=axis)]
    proto = model(nodes, "x float32[a,b]", "y float32", 21, s=scale)
    proto.graph.initializer.append(
        helper.make_tensor("z", TensorProto.FLOAT8E4M3FN, scale.shape, bytes(len(scale)), raw=True)
    )
    wide = scale[:, None] if axis == 0 else scale
    want = (x / wide).astype(ml_dtypes.float8_e4m3fn).astype(np.float32) * wide
    np.testing.assert_allclose(call(proto, x), want, rtol=1e-6)
