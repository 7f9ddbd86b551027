"""What users of other compilers reported as broken, as whole kinds rather than single rows."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from relaxir.support.errors import RelaxirError
from tests.frontends.models import f32, folded, i64, model, node, run
from tests.frontends.onnx_session import run_onnxruntime

NAN, INF = np.nan, np.inf


@pytest.mark.parametrize("op", ["Add", "Mul", "Sub", "Div", "Max", "Min", "Pow", "PRelu"])
def test_sizes_that_may_be_one_broadcast(op: str) -> None:
    proto = model([node(op, "a b", "c")], "a float32[n,4]; b float32[m,4]", "c float32")
    functions: dict[str, Any] = {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract, "Div": np.divide, "Max": np.maximum, "Min": np.minimum,
                 "Pow": np.power, "PRelu": lambda a, b: np.where(a < 0, a * b, a)}  # fmt: skip
    for n, m in ((1, 2), (2, 2), (3, 1), (1, 0), (0, 1), (1, 1)):
        if op == "PRelu" and n < m:
            continue  # the slope broadcasts to x, not the other way
        a, b = (
            np.arange(n * 4, dtype=np.float32).reshape(n, 4) + 1,
            np.arange(m * 4, dtype=np.float32).reshape(m, 4) + 2,
        )
        np.testing.assert_allclose(run(proto, a=a, b=b)[0], functions[op](a, b), rtol=1e-5)
    with pytest.raises(RelaxirError, match=r"(?s)n.*m.*2.*3"):
        run(proto, a=np.ones((2, 4), np.float32), b=np.ones((3, 4), np.float32))


@pytest.mark.parametrize("fold", [False, True])
def test_signs_of_division(fold: bool) -> None:
    a, b = (v.reshape(-1).astype(np.int64) for v in np.meshgrid([-7, -1, 0, 1, 7], [-3, -1, 1, 3]))
    proto = model(
        [node("Mod", "a b", "p"), node("Mod", "a b", "q", fmod=1), node("Div", "a b", "r")],
        "a int64[n]; b int64[n]",
        "p int64; q int64; r int64",
    )
    feeds = {"a": a, "b": b}
    p, q, r = run(folded(proto, feeds)) if fold else run(proto, **feeds)
    np.testing.assert_array_equal(p, np.mod(a, b))
    np.testing.assert_array_equal(q, np.fmod(a, b))
    np.testing.assert_array_equal(r, np.trunc(a / b))


@pytest.mark.parametrize("op", ["Sum", "Prod", "Max", "Min", "Mean", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"])
def test_reductions_of_nothing(op: str) -> None:
    proto = model([node(f"Reduce{op}", "x a", "y", keepdims=0)], "x float32[a,b,c]", "y float32", a=i64([1]))
    want = {"Prod": 1, "Max": -INF, "Min": INF, "Mean": NAN, "LogSum": -INF, "LogSumExp": -INF}.get(op, 0)
    np.testing.assert_array_equal(run(proto, x=np.zeros((3, 0, 2), np.float32))[0], np.full((3, 2), want, np.float32))


@pytest.mark.parametrize("op", ["Sum", "Max", "Mean", "L2"])
def test_reductions_of_scalars(op: str) -> None:
    proto = model([node(f"Reduce{op}", "x", "y", keepdims=1)], "x float32[]", "y float32")
    (y,) = run(proto, x=f32(3))
    assert y.shape == ()
    assert float(y) == 3


def test_nan_goes_through() -> None:
    proto = model([node("Max", "a b", "x"), node("Min", "b a", "y"), node("Relu", "a", "r"), node("Clip", "a lo hi", "c")],
                  "a float32[n]; b float32[n]", "x float32; y float32; r float32; c float32", lo=f32(-1), hi=f32(1))  # fmt: skip
    a, b = f32([NAN, 1, NAN, -5]), f32([1, NAN, NAN, 5])
    x, y, r, c = run(proto, a=a, b=b)
    np.testing.assert_array_equal(x, [NAN, NAN, NAN, 5])
    np.testing.assert_array_equal(y, [NAN, NAN, NAN, -5])
    np.testing.assert_array_equal(r, [NAN, 1, NAN, 0])
    np.testing.assert_array_equal(c, [NAN, 1, NAN, -1])


@pytest.mark.parametrize("op", ["Softmax", "LogSoftmax"])
def test_softmax_of_odd_rows(op: str) -> None:
    proto = model([node(op, "x", "y", axis=-1)], "x float32[n,k]", "y float32")
    rows = f32([[1000, 1000], [-INF, 0], [-INF, -INF], [0, NAN], [INF, 0]])
    want = f32([[0.5, 0.5], [0, 1], [NAN, NAN], [NAN, NAN], [NAN, NAN]])
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(run(proto, x=rows)[0], want if op == "Softmax" else np.log(want), rtol=1e-6)


def test_dtypes_are_kept() -> None:
    nodes = [node("Cast", "x", "b", to=TensorProto.BOOL), node("Cast", "b", "y", to=TensorProto.INT32)]
    (y,) = run(model(nodes, "x float32[n]", "y int32"), x=f32([-1.5, 0, 0.25, NAN]))
    np.testing.assert_array_equal(y, np.array([1, 0, 1, 1], np.int32))
    (z,) = run(model([node("Add", "a a", "z")], "a uint8[n]", "z uint8"), a=np.array([200, 255], np.uint8))
    assert z.dtype == np.uint8
    np.testing.assert_array_equal(z, [144, 254])


def test_sizes_from_data() -> None:
    nodes = [
        node("NonZero", "x", "i"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("ReduceSum", "f a", "s", keepdims=0),
    ]
    proto = model(nodes, "x int32[a,b]", "i int64; s float32", a=i64([-1]))
    for x in ([[1, 0, 2], [0, 0, 3]], [[0, 0, 0], [0, 0, 0]]):
        array = np.array(x, np.int32)
        places, sums = run(proto, x=array)
        np.testing.assert_array_equal(places, np.stack(np.nonzero(array)))
        np.testing.assert_array_equal(sums, np.stack(np.nonzero(array)).sum(1))


@pytest.mark.parametrize("pad", ["SAME_UPPER", "SAME_LOWER"])
def test_transposed_convolution_of_automatic_padding(pad: str) -> None:
    proto = model(
        [node("ConvTranspose", "x w", "y", strides=[2, 2], auto_pad=pad)],
        "x float32[b,1,h,v]",
        "y float32",
        w=np.ones((1, 1, 3, 3), np.float32),
    )
    row = f32([1, 1, 2, 1, 2, 1]) if pad == "SAME_UPPER" else f32([1, 2, 1, 2, 1, 1])
    (y,) = run(proto, x=np.ones((1, 1, 3, 3), np.float32))
    np.testing.assert_array_equal(y[0, 0], np.outer(row, row))


def test_shape_arithmetic() -> None:
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Div", "n seven", "end"), node("Unsqueeze", "end axis", "e"),
             node("Slice", "x axis e axis", "part"), node("ReduceSum", "part", "sum", keepdims=0)]  # fmt: skip
    proto = model(nodes, "x float32[n]", "end int64; sum float32", zero=i64(0), seven=i64(7), axis=i64([0]))
    for n in (100, 6, 0, 7):
        x = np.arange(n, dtype=np.float32)
        end, total = run(proto, x=x)
        assert (int(end), float(total)) == (n // 7, x[: n // 7].sum())


@pytest.mark.parametrize("padding", ["border", "reflection"])
@pytest.mark.parametrize("align", [0, 1])
def test_cubic_at_borders(padding: str, align: int) -> None:
    """The neighbours of a place outside are brought inside, not the place: no case of the standard's tests decides it."""
    sample = node("GridSample", "x grid", "y", mode="cubic", padding_mode=padding, align_corners=align)
    proto = model([sample], "x float32[n,2,h,w]; grid float32[n,a,b,2]", "y float32[n,2,a,b]", opset=20)
    rng = np.random.default_rng(0)
    feeds = {"x": f32(rng.random((2, 2, 3, 5))), "grid": f32(6 * rng.random((2, 4, 7, 2)) - 3)}
    (got,), (want,) = run(proto, **feeds), run_onnxruntime(proto, feeds)
    np.testing.assert_allclose(got, want, atol=1e-5)
