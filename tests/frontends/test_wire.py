"""Large initializers are views of the file's bytes, and everything else is as the parser of protocol buffers says."""

from __future__ import annotations

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

import relaxir as rx
from relaxir.frontends.onnx.wire import LARGE, read_varint, varint, without_weights
from relaxir.support.errors import LoadError

LENGTHS = (3, LARGE // 4 - 1, LARGE // 4, 5000)
"""Elements of float32 around the border."""


def initializers() -> list[TensorProto]:
    """Raw data, small and large, and data in a typed field."""
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal(n).astype(np.float32) for n in LENGTHS]
    typed = helper.make_tensor("typed", TensorProto.FLOAT, [3000], rng.standard_normal(3000).tolist())
    return [*(numpy_helper.from_array(a, f"w{n}") for n, a in enumerate(arrays)), typed]


def model(functions: bool = False) -> onnx.ModelProto:
    """A model that returns the sum of each initializer and of the input."""
    weights = initializers()
    nodes = [helper.make_node("ReduceSum", [w.name], [f"{w.name}_sum"], keepdims=0) for w in weights]
    nodes.append(
        helper.make_node("Twice", ["x"], ["y"], domain="own")
        if functions
        else helper.make_node("Add", ["x", "x"], ["y"])
    )
    outputs = [helper.make_tensor_value_info(n.output[0], TensorProto.FLOAT, None) for n in nodes]
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n"])
    graph = helper.make_graph(nodes, "g", [x], outputs, weights)
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("own", 1)]
    body = helper.make_function("own", "Twice", ["a"], ["b"], [helper.make_node("Add", ["a", "a"], ["b"])], opsets[:1])
    return helper.make_model(graph, opset_imports=opsets, functions=[body] if functions else [])


def test_only_large_raw_data_is_cut() -> None:
    """What is left parses to the same model but for that data."""
    whole = model()
    data = whole.SerializeToString()
    light, found = without_weights(data)
    assert sorted(found) == [2, 3]
    assert [bytes(v) for v in found.values()] == [whole.graph.initializer[n].raw_data for n in found]
    parsed = onnx.ModelProto.FromString(light)
    assert len(light) < len(data) - 4 * sum(LENGTHS[2:])
    for number, view in found.items():
        parsed.graph.initializer[number].raw_data = bytes(view)
    assert parsed == whole


@pytest.mark.parametrize("functions", [False, True])
def test_values(functions: bool) -> None:
    """Elements that were left in the file reach the program."""
    whole = model(functions)
    x = np.ones(2, np.float32)
    results = rx.evaluate(rx.from_onnx(whole.SerializeToString()), "main", x)
    want = [numpy_helper.to_array(w).sum(dtype=np.float64) for w in whole.graph.initializer]
    for got, expected in zip(results, [*want, x + x], strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-4, atol=1e-3)


def test_wrong_length_of_cut_data() -> None:
    """The shape is held against the data, wherever it lies."""
    whole = model()
    whole.graph.initializer[3].dims[0] = 5001
    with pytest.raises(LoadError, match="`w3` has 20000 bytes of data"):
        rx.from_onnx(whole.SerializeToString())


def test_cut_files() -> None:
    """A file that ends early is returned whole, for the parser to refuse."""
    data = model().SerializeToString()
    for size in (*range(0, len(data), 997), len(data) - 1):
        light, found = without_weights(data[:size])
        assert light == data[:size] and not found


@pytest.mark.parametrize("number", [0, 1, 127, 128, 300, 2**32, 2**63])
def test_numbers(number: int) -> None:
    """Numbers of variable length are read as they are written."""
    assert read_varint(memoryview(varint(number)), 0, 99) == (number, len(varint(number)))
