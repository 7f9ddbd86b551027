"""Loops that are written out, and quantised operators."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, TensorProto, helper

from relaxir.frontends.onnx import from_onnx
from relaxir.support.errors import UnsupportedError
from tests.frontends.models import f32, graph, i64, model, node, run


def doubling(trips: int | None = 3, start: bool = True) -> ModelProto:
    body = graph(
        [node("Add", "v v", "w"), node("Identity", "w", "row"), node("Identity", "go", "more")],
        "i int64[]; go bool[]; v float32[2]", "more bool; w float32; row float32",
    )  # fmt: skip
    consts: dict[str, Any] = {"start": np.array(start), **({} if trips is None else {"trips": i64(trips)})}
    inputs = "v float32[2]" + ("; trips int64[]" if trips is None else "")
    return model([node("Loop", "trips start v", "end rows", body=body)], inputs, "end float32; rows float32", **consts)


def test_loop_of_known_turns() -> None:
    end, rows = run(doubling(), v=f32([1, 2]))
    np.testing.assert_array_equal(end, [8, 16])
    np.testing.assert_array_equal(rows, [[2, 4], [4, 8], [8, 16]])


@pytest.mark.parametrize("start", [True, False])
@pytest.mark.parametrize("given", [False, True])
@pytest.mark.parametrize("trips", [0, 1, 3, 1000])
def test_loop_of_other_turns(trips: int, given: bool, start: bool) -> None:
    """Any number of turns, stored in the model or given at run time, also none because of the condition."""
    turns = trips if start else 0
    v = f32([1, -2])
    feeds = {"trips": i64(trips)} if given else {}
    end, rows = run(doubling(None if given else trips, start), v=v, **feeds)
    with np.errstate(over="ignore"):
        want = v * np.float32(2) ** np.arange(turns + 1, dtype=np.float32)[:, None]
    assert (str(end.dtype), str(rows.dtype), rows.shape) == ("float32", "float32", (turns, 2))
    np.testing.assert_array_equal(end, want[-1])
    np.testing.assert_array_equal(rows, want[1:])


def test_scan() -> None:
    body = graph(
        [node("Add", "s x", "t"), node("Identity", "t", "o")], "s float32[2]; x float32[2]", "t float32; o float32"
    )
    attrs = {"num_scan_inputs": 1, "scan_input_axes": [1], "scan_output_axes": [1], "scan_input_directions": [1]}
    proto = model(
        [node("Scan", "z x", "last sums", body=body, **attrs)],
        "x float32[2,3]",
        "last float32; sums float32",
        z=f32([0, 0]),
    )
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    last, sums = run(proto, x=x)
    np.testing.assert_array_equal(last, x.sum(1))
    np.testing.assert_array_equal(sums, x[:, ::-1].cumsum(1))


QUANT = model([node("QuantizeLinear", "x s z", "y")], "x float32[n]", "y int8", s=f32(0.5), z=np.int8(0))


def test_quantize_rounds_half_to_even_and_saturates() -> None:
    (y,) = run(QUANT, x=f32([0.25, 0.75, 1.25, 1.75, -0.25, -0.75, 1000, -1000]))
    assert y.dtype == np.int8
    np.testing.assert_array_equal(y, [0, 2, 2, 4, 0, -2, 127, -128])


@pytest.mark.parametrize("dtype", [np.int8, np.uint8, np.int16, np.uint16])
def test_quantize_and_back(dtype: Any) -> None:
    scale, zero = f32([0.5, 0.25, 2.0]), np.array([3, 1, 0], dtype)
    nodes = [node("QuantizeLinear", "x s z", "q", axis=1), node("DequantizeLinear", "q s z", "y", axis=1)]
    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    (y,) = run(model(nodes, "x float32[n,3]", "y float32", opset=21, s=scale, z=zero), x=x)
    np.testing.assert_array_equal(y, np.rint(x / scale) * scale)


def test_matmul_of_integers() -> None:
    a, b = np.array([[3, 255], [7, 0]], np.uint8), np.array([[1, -2], [3, 127]], np.int8)
    proto = model(
        [node("MatMulInteger", "a b p q", "y")],
        "a uint8[n,2]; b int8[2,2]",
        "y int32",
        p=np.uint8(4),
        q=np.array([1, -1], np.int8),
    )
    want = (a.astype(np.int32) - 4) @ (b.astype(np.int32) - np.array([1, -1]))
    np.testing.assert_array_equal(run(proto, a=a, b=b)[0], want)


def test_quantize_by_blocks() -> None:
    proto = model(
        [node("QuantizeLinear", "x s", "y", axis=0, block_size=2)], "x float32[4]", "y uint8", opset=21, s=f32([1, 2])
    )
    np.testing.assert_array_equal(run(proto, x=f32([3, 4, 6, 8]))[0], [3, 4, 3, 4])


def test_unsupported_types_name_the_tensor() -> None:
    made = model([node("Identity", "x", "y")], "x float32[n]", "y float32")
    made.graph.input[0].CopyFrom(helper.make_tensor_value_info("x", TensorProto.STRING, ["n"]))
    with pytest.raises(UnsupportedError, match=r"`x`.*STRING"):
        from_onnx(made)
