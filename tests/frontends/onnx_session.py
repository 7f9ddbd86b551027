"""The peer that reads the same files: onnxruntime without its optimisations."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
import pytest
from onnx import ModelProto

ort = pytest.importorskip("onnxruntime")


def run_onnxruntime(proto: ModelProto, feeds: Mapping[str, np.ndarray]) -> list[np.ndarray]:
    """Results of a model, in the order of its outputs."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = ort.InferenceSession(proto.SerializeToString(), options, providers=["CPUExecutionProvider"])
    found: list[np.ndarray] = session.run(None, dict(feeds))
    return found
