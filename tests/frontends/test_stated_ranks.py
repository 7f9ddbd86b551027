"""Ranks that a model states: used where nothing else tells a rank, never against what the operands say."""

from __future__ import annotations

import numpy as np
import pytest
from onnx import ModelProto, NodeProto

from relaxir.frontends.onnx import from_onnx
from relaxir.support.errors import RelaxirError, UnsupportedError
from tests.frontends.models import model, node, run

X = np.arange(12, dtype=np.float32).reshape(1, 3, 4)


def squeezed(*after: NodeProto, result: str = "y float32[c]", types: str = "x float32[a,1,4]") -> ModelProto:
    """A Squeeze without axes, and what follows it."""
    return model([node("Squeeze", "x", "s"), *after], types, result, 12)


@pytest.mark.parametrize(
    "after",
    [
        (node("Sigmoid", "s", "y"),),
        (node("Exp", "s", "t"), node("Slice", "t first last", "u"), node("Concat", "u t", "y", axis=0)),
        (node("Mul", "s two", "t"), node("Add", "two t", "y")),
    ],
)
def test_stated_ranks_hold_for_operands_of_the_same_rank(after: tuple[NodeProto, ...]) -> None:
    constants = [
        node("Constant", "", "two", value_float=2.0),
        node("Constant", "", "first", value_ints=[0]),
        node("Constant", "", "last", value_ints=[2]),
    ]
    proto = squeezed(*constants, *after)
    (y,) = run(proto, x=X[:, :1])
    assert y.ndim == 1
    with pytest.raises(RelaxirError, match="a is 3"):
        run(proto, x=X.reshape(3, 1, 4))


def test_a_rank_that_nothing_tells_is_refused_with_a_way_out() -> None:
    proto = squeezed(node("Sigmoid", "s", "y"), result="y float32[a,c]", types="x float32[a,1,c]")
    with pytest.raises(UnsupportedError, match=r"run-time sizes a, c are 1(.|\n)*dims="):
        from_onnx(proto)
    with pytest.warns(UserWarning, match="declared with rank 2, but computed with 1"):
        from_onnx(proto, dims={"a": 1, "c": 4})


@pytest.mark.parametrize("shape", ["", "p", "p,q", "p,q,r,s"])
def test_a_stale_rank_of_an_output_is_a_warning(shape: str) -> None:
    """As in released models: a Reshape to three axes whose result is declared with two."""
    proto = model([node("Reshape", "x t", "y")], "x float32[a,b,c]; t int64[3]", f"y float32[{shape}]", 13)
    with pytest.warns(UserWarning, match="declared with rank .*, but computed with 3: the declaration is ignored"):
        (y,) = run(proto, x=X, t=np.array([2, -1, 3]))
    np.testing.assert_array_equal(y, X.reshape(2, -1, 3))


@pytest.mark.parametrize("onesided", [0, 1])
def test_a_signal_without_parts_is_real(onesided: int) -> None:
    types = "x float32[b,n]; step int64[]; window float32[4]"
    nodes = [node("STFT", "x step window", "y", onesided=onesided)]
    proto = model(nodes, types, "y float32[b,w,f,2]", 17)
    x, window = np.random.default_rng(0).standard_normal((2, 9)).astype(np.float32), np.hanning(4).astype(np.float32)
    (y,) = run(proto, x=x, step=np.array(2), window=window)
    frames = np.stack([x[:, i : i + 4] * window for i in range(0, 6, 2)], 1)
    wanted = np.fft.rfft(frames) if onesided else np.fft.fft(frames)
    np.testing.assert_allclose(y[..., 0] + 1j * y[..., 1], wanted, atol=1e-5)
