"""Tests of the ONNX standard itself: a few of each operator, with the sizes as stated and with all of them unknown.

A case passes, or is refused as unsupported; a wrong answer or any other error fails.
"""

from __future__ import annotations

import warnings
from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto
from onnx.backend.test.loader import load_model_tests

from relaxir.frontends.onnx import from_onnx
from relaxir.runtime.interp import evaluate
from relaxir.support.errors import UnsupportedError
from tests.frontends.models import main_of

CORE = {TensorProto.FLOAT, TensorProto.INT64, TensorProto.INT32, TensorProto.BOOL}
EACH = 2
"""Cases of an operator."""
SLOW = frozenset({"DFT", "ConvTranspose", "DeformConv", "CausalConvWithState", "LinearAttention"})
MUST_PASS = 0.75
"""Part of the sample that must pass, unknown sizes included."""


def is_core(proto: ModelProto) -> bool:
    items = (*proto.graph.input, *proto.graph.output)
    tensors = all(v.type.HasField("tensor_type") and v.type.tensor_type.elem_type in CORE for v in items)
    return tensors and all(n.domain in ("", "ai.onnx") for n in proto.graph.node)


@cache
def sample() -> tuple[Any, ...]:
    """Cases spread over the operators, the first and the last of each."""
    by_op: dict[str, list[Any]] = defaultdict(list)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the suite computes infinities on purpose
        cases = load_model_tests(kind="node")
    for case in cases:
        if case.model is not None and "_expanded" not in case.name and is_core(case.model):
            nodes = case.model.graph.node
            if len(nodes) == 1 and nodes[0].op_type not in SLOW:
                by_op[nodes[0].op_type].append(case)
    return tuple(c for own in by_op.values() for c in (own if len(own) <= EACH else (own[0], own[-1])))


def unknown_sizes(proto: ModelProto) -> ModelProto:
    copy: ModelProto = ModelProto.FromString(proto.SerializeToString())
    for v in copy.graph.input:
        for axis, d in enumerate(v.type.tensor_type.shape.dim):
            d.dim_param = f"{v.name}_{axis}"
    for v in copy.graph.output:
        for d in v.type.tensor_type.shape.dim:
            d.ClearField("dim_value")
    del copy.graph.value_info[:]
    return copy


def arrays(items: Any) -> Iterator[Any]:
    for v in items:
        yield onnx.numpy_helper.to_array(v) if isinstance(v, TensorProto) else np.asarray(v)


def passes(case: Any, proto: ModelProto) -> bool:
    """Whether the case gives its answer; False if it is unsupported."""
    try:
        module = from_onnx(proto)
    except UnsupportedError:
        return False
    for inputs, outputs in case.data_sets:
        found = evaluate(module, "main", *arrays(inputs))
        results = found if isinstance(found, tuple) else (found,)
        assert len(results) == len(outputs)
        for got, want in zip(results, arrays(outputs), strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape), case.name
            np.testing.assert_allclose(got, want, rtol=case.rtol, atol=case.atol, err_msg=case.name)
    return True


@pytest.mark.parametrize("dynamic", [False, True], ids=["stated", "unknown"])
def test_sample(dynamic: bool) -> None:
    done = [passes(c, unknown_sizes(c.model) if dynamic else c.model) for c in sample() if len(c.model.graph.input)]
    assert len(done) > 200
    assert sum(done) >= MUST_PASS * len(done), f"{sum(done)} of {len(done)}"
    assert main_of(from_onnx(sample()[0].model)).params
