"""Activations and normalisations in parts become operators, with the same results; what only looks alike does not."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op
from relaxir.passes import Pipeline
from relaxir.pipelines import GRAPH
from tests.building import Emit, dataflow

N = rx.dim("n")


def norm(e: Emit, x: rx.Var, centre: bool, root: Callable[..., object]) -> rx.Var:
    d = e(op.subtract(x, e(op.mean(x, axes=(-1,), keepdims=True)))) if centre else x
    spread = e(op.add(e(op.mean(e(op.power(d, 2.0)), axes=(1,), keepdims=True)), 1e-3))
    return e(root(e, d, spread))


def by_root(e: Emit, d: rx.Var, spread: rx.Var) -> object:
    return op.divide(d, e(op.sqrt(spread)))


def by_reciprocal(e: Emit, d: rx.Var, spread: rx.Var) -> object:
    return op.multiply(e(op.divide(1.0, e(op.sqrt(spread)))), d)


def layer_norm(e: Emit, x: rx.Var, w: rx.Var) -> rx.Var:
    return e(op.add(e(op.multiply(norm(e, x, True, by_root), w)), w))


def rms_norm(e: Emit, x: rx.Var, w: rx.Var) -> rx.Var:
    return e(op.multiply(w, norm(e, x, False, by_reciprocal)))


def gelu(e: Emit, x: rx.Var, w: rx.Var) -> rx.Var:
    gate = e(op.add(1.0, e(op.erf(e(op.divide(x, 2.0**0.5))))))
    return e(op.multiply(e(op.multiply(x, gate)), 0.5))


def gelu_halved_first(e: Emit, x: rx.Var, w: rx.Var) -> rx.Var:
    gate = e(op.add(e(op.erf(e(op.multiply(x, 0.70710677)))), 1.0))
    return e(op.multiply(x, e(op.multiply(0.5, gate))))


def gelu_tanh(e: Emit, x: rx.Var, w: rx.Var) -> rx.Var:
    cube = e(op.multiply(e(op.multiply(x, x)), x))
    inner = e(op.add(x, e(op.multiply(cube, 0.044715))))
    gate = e(op.add(e(op.tanh(e(op.multiply(inner, (2 / np.pi) ** 0.5)))), 1.0))
    return e(op.multiply(e(op.multiply(x, 0.5)), gate))


def gelu_tanh_inside(e: Emit, x: rx.Var, w: rx.Var) -> rx.Var:
    cube = e(op.multiply(x, e(op.multiply(x, e(op.multiply(0.044715, x))))))
    gate = e(op.add(1.0, e(op.tanh(e(op.multiply((2 / np.pi) ** 0.5, e(op.add(x, cube))))))))
    return e(op.multiply(x, e(op.multiply(0.5, gate))))


def silu(e: Emit, x: rx.Var, w: rx.Var) -> rx.Var:
    return e(op.multiply(e(op.sigmoid(e(op.multiply(x, 1.5)))), x))


def build(make: Callable[..., rx.Var]) -> rx.IRModule:
    params = [rx.Var("x", rx.TensorType((N, 6), "float32")), rx.Var("w", rx.TensorType((6,), "float32"))]
    return dataflow(make, *params)


def calls(module: rx.IRModule) -> str:
    return " ".join(line.split(" = R.")[1].split("(")[0] for line in str(module).splitlines() if " = R." in line)


@pytest.mark.parametrize(
    ("make", "want"),
    [
        (layer_norm, "layer_norm"),
        (rms_norm, "rms_norm"),
        (gelu, "gelu"),
        (gelu_halved_first, "gelu"),
        (gelu_tanh, "gelu"),
        (gelu_tanh_inside, "gelu"),
        (silu, "silu"),
    ],
)
def test_found_and_equal(make: Callable[..., rx.Var], want: str) -> None:
    module = build(make)
    after = Pipeline(GRAPH)(module)
    assert calls(after).replace("dim ", "") == want
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((5, 6)).astype(np.float32) * 3, rng.standard_normal(6).astype(np.float32)
    np.testing.assert_allclose(
        rx.evaluate(after, "main", x, w), rx.evaluate(module, "main", x, w), rtol=1e-5, atol=1e-6
    )


def test_whole_slices_vanish_and_others_stay() -> None:
    def cut(begin: int, size: int, step: int) -> Callable[..., rx.Var]:
        return lambda e, x, w: e(op.abs(e(op.strided_slice(x, axes=(1,), begin=(begin,), size=(size,), step=(step,)))))

    assert calls(Pipeline(GRAPH)(build(cut(0, 6, 1)))).replace("dim ", "") == "abs"
    for other in (cut(1, 5, 1), cut(5, 6, -1)):
        assert "strided_slice" in calls(Pipeline(GRAPH)(build(other)))


def test_other_constants_stay() -> None:
    def make(e: Emit, x: rx.Var, w: rx.Var) -> rx.Var:
        return e(op.multiply(e(op.multiply(x, e(op.add(1.0, e(op.erf(x)))))), 0.5))

    assert "gelu" not in str(Pipeline(GRAPH)(build(make)))


def test_a_mean_of_something_else_stays() -> None:
    def make(e: Emit, x: rx.Var, w: rx.Var) -> rx.Var:
        d = e(op.subtract(x, e(op.mean(e(op.multiply(x, x)), axes=(-1,), keepdims=True))))
        spread = e(op.add(e(op.mean(e(op.power(d, 2.0)), axes=(0,), keepdims=True)), 1e-3))
        return e(op.divide(d, e(op.sqrt(spread))))

    assert "norm(" not in str(Pipeline(GRAPH)(build(make)))
