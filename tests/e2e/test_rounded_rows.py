"""Rows computed in one float type and given in another: the last stage works in place on what an earlier loop made."""

from __future__ import annotations

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir.expr import OpCall
from relaxir.ops import op

N = rx.dim("n")


def layer_norm(x: rx.Var) -> OpCall:
    ones = rx.const(np.ones(int(x.type.shape[-1]), x.type.dtype))
    return op.layer_norm(x, ones, ones, axes=(-1,))


@pytest.mark.parametrize("width", [5, 24])
@pytest.mark.parametrize(("dtype", "given"), [("float64", "float32"), ("float32", "float64"), ("float32", "float16")])
@pytest.mark.parametrize("kernel", [lambda x: op.softmax(x, axis=-1), layer_norm], ids=["softmax", "layer_norm"])
def test_results_in_another_type(kernel, dtype: str, given: str, width: int) -> None:
    x = rx.Var("x", rx.TensorType((N, width), dtype))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(op.astype(bb.emit(kernel(x)), dtype=given)))
    module, array = bb.get(), np.random.default_rng(0).standard_normal((7, width)).astype(dtype)
    found, wanted = rx.compile(module, threads=1)["main"](array), rx.evaluate(module, "main", array)
    assert found.dtype == given
    np.testing.assert_allclose(found, wanted, rtol=2e-3 if given == "float16" else 1e-5, atol=1e-6)
