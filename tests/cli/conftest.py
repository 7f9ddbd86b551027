"""Model files and a way to run the command line in this process."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
from click.testing import CliRunner, Result
from onnx import TensorProto, helper, numpy_helper

from relaxir.cli import main
from tests.e2e import models

Run = Callable[..., Result]


@pytest.fixture
def relaxir() -> Run:
    """``relaxir("run", model, "-s", "n=3")``; nothing but click's own exit may escape."""

    def run(*args: object) -> Result:
        result = CliRunner().invoke(main, [str(a) for a in args])
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
        assert "Traceback" not in result.output
        return result

    return run


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A perceptron as IR text with an archive of constants beside it."""
    path = tmp_path_factory.mktemp("text") / "mlp.rx"
    models.mlp().save(path)
    return path


@pytest.fixture(scope="session")
def onnx_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``y = relu(x @ w)`` with a dynamic ``batch``, and ``total``, the sum of ``y``."""
    w = np.arange(12, dtype=np.float32).reshape(4, 3) / 10
    graph = helper.make_graph(
        [
            helper.make_node("MatMul", ["x", "w"], ["h"]),
            helper.make_node("Relu", ["h"], ["y"]),
            helper.make_node("ReduceSum", ["y"], ["total"], keepdims=0),
        ],
        "tiny",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", 4])],
        [
            helper.make_tensor_value_info("y", TensorProto.FLOAT, ["batch", 3]),
            helper.make_tensor_value_info("total", TensorProto.FLOAT, []),
        ],
        [numpy_helper.from_array(w, "w")],
    )
    path = tmp_path_factory.mktemp("onnx") / "tiny.onnx"
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
