"""Errors that kernels raise from data name the node of the model, also where one kernel serves several nodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxir as rx
from relaxir.pipelines import DEFAULT, REFERENCE
from relaxir.support.errors import RuntimeFailure, RuntimeIndexError

TABLE = np.arange(12, dtype=np.float32).reshape(4, 3)


def lookups() -> onnx.ModelProto:
    """Two lookups of one kind, each fused with what follows; then a quotient of integers."""
    nodes = [
        helper.make_node("Gather", ["t", "i"], ["a"], "first"),
        helper.make_node("Gather", ["t", "j"], ["b"], "second"),
        helper.make_node("Tanh", ["a"], ["c"], "tanh_a"),
        helper.make_node("Tanh", ["b"], ["d"], "tanh_b"),
        helper.make_node("Add", ["c", "d"], ["y"], "sum"),
        helper.make_node("Div", ["i", "j"], ["z"], "quotient"),
    ]
    info = helper.make_tensor_value_info
    inputs = [
        info("t", TensorProto.FLOAT, ["rows", 3]),
        info("i", TensorProto.INT64, ["n"]),
        info("j", TensorProto.INT64, ["n"]),
    ]
    outputs = [info("y", TensorProto.FLOAT, None), info("z", TensorProto.INT64, None)]
    graph = helper.make_graph(nodes, "g", inputs, outputs)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)])


@pytest.mark.parametrize("pipeline", [DEFAULT, REFERENCE], ids=["default", "reference"])
def test_the_node_is_named(pipeline: Any) -> None:
    main: Any = rx.compile(rx.from_onnx(lookups()), pipeline=pipeline)["main"]
    one = np.ones(2, np.int64)
    assert main(TABLE, one, one)[0].shape == (2, 3)
    bad = np.array([1, 99])
    with pytest.raises(RuntimeIndexError, match=r"99.*`first`"):
        main(TABLE, bad, one)
    with pytest.raises(RuntimeIndexError, match=r"99.*`second`"):
        main(TABLE, one, bad)
    with pytest.raises(RuntimeFailure, match=r"zero.*`quotient`"):
        main(TABLE, one, one * 0)
    with pytest.raises(rx.RelaxirError) as caught:  # no place is left over from the last call
        main(TABLE, one, np.ones(3, np.int64))
    assert "quotient" not in caught.value.message
    assert main(TABLE, one, one)[0].shape == (2, 3)
