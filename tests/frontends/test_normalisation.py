"""Normalisations over trailing axes: scales that broadcast to the operand, and the type of the first stage."""

from __future__ import annotations

import numpy as np
import pytest

from tests.frontends.models import model, node, run
from tests.frontends.onnx_session import run_onnxruntime

RNG = np.random.default_rng(0)


@pytest.mark.parametrize("shape", [(4,), (3, 4), (1, 4), (3, 1), (2, 3, 4), (2, 1, 4), (1, 1, 1), ()])
@pytest.mark.parametrize("axis", [1, -1])
@pytest.mark.parametrize("op", ["LayerNormalization", "RMSNormalization"])
def test_scales_that_broadcast(op: str, axis: int, shape: tuple[int, ...]) -> None:
    x, g, b = (RNG.standard_normal(s).astype(np.float32) for s in ((2, 3, 4), shape, shape))
    consts = {"g": g, "b": b} if op == "LayerNormalization" else {"g": g}
    names = " ".join(consts)
    proto = model([node(op, f"x {names}", "y", axis=axis)], "x float32[n,3,4]", "y float32", opset=23, **consts)
    (found,), (wanted,) = run(proto, x=x), run_onnxruntime(proto, {"x": x})
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


def test_mean_and_deviation_have_the_type_of_the_first_stage() -> None:
    x = RNG.standard_normal((2, 4)).astype(np.float16)
    proto = model(
        [node("LayerNormalization", "x g", "y m d")],
        "x float16[n,4]",
        "y float16; m float32; d float32",
        g=np.ones(4, np.float16),
    )
    for found, wanted in zip(run(proto, x=x), run_onnxruntime(proto, {"x": x}), strict=True):
        assert found.dtype == wanted.dtype
        np.testing.assert_allclose(found, wanted, rtol=2e-3, atol=2e-3)
