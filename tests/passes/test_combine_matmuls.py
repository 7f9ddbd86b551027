"""Narrow products of one left operand become one with the same results; what must not be joined stays."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op
from relaxir.passes import CombineMatmuls, DeadCode, Pipeline
from relaxir.passes.choose_config import weight_bytes
from relaxir.pipelines import DEFAULT
from tests.building import Emit, dataflow

N, M = rx.dim("n"), rx.dim("m")
RNG = np.random.default_rng(0)
Body = Callable[[Emit, rx.Var], list[rx.Var]]


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) / 8


def build(body: Body, shape: tuple[object, ...] = (N, 64), dtype: str = "float32") -> rx.IRModule:
    return dataflow(body, rx.Var("x", rx.TensorType(shape, dtype)))


def products(module: rx.IRModule, step: CombineMatmuls | None = None) -> int:
    """How many products are left."""
    text = str(Pipeline([step or CombineMatmuls(), DeadCode()])(module))
    return sum(text.count(f"R.{name}(") for name in ("matmul", "linear"))


def heads(e: Emit, x: rx.Var) -> list[rx.Var]:
    """Biases on all, an activation on one, another one is a result as it is."""
    a, b, c = (e(op.add(e(op.matmul(x, weights(64, k))), weights(k))) for k in (2, 9, 4))
    return [e(op.gelu(a)), b, e(op.multiply(e(op.tanh(c)), c))]


def plain(e: Emit, x: rx.Var) -> list[rx.Var]:
    """No biases; one result is summed, one is the operand of another product."""
    a, b = (e(op.matmul(x, weights(64, k))) for k in (5, 3))
    return [e(op.sum(a, axes=(-1,))), e(op.matmul(b, weights(3, 64)))]


def layers(e: Emit, x: rx.Var) -> list[rx.Var]:
    return [e(op.linear(x, weights(k, 64), weights(k))) for k in (3, 10)]


def layers_without_bias(e: Emit, x: rx.Var) -> list[rx.Var]:
    return [e(op.linear(x, weights(k, 64))) for k in (3, 10)]


@pytest.mark.parametrize("shape", [(N, 64), (2, M, N, 64)], ids=str)
@pytest.mark.parametrize("body", [heads, plain, layers, layers_without_bias], ids=lambda b: b.__name__)
def test_results_stay(body: Body, shape: tuple[object, ...]) -> None:
    module = build(body, shape)
    assert products(module, CombineMatmuls(share=2.0)) - products(module) == (2 if body is heads else 1)
    sizes = [(s,) for s in (0, 1, 7, 33)] if shape == (N, 64) else [(1, 5), (3, 0), (2, 17)]
    main = rx.compile(module, threads=2)["main"]
    for size in sizes:
        values = dict(zip((N,) if shape == (N, 64) else (M, N), size, strict=True))
        x = RNG.standard_normal([values.get(d, d) for d in shape]).astype(np.float32)  # type: ignore[call-overload]  # symbols are keys
        for got, want in zip(main(x), rx.evaluate(module, "main", x), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_integers_and_rows() -> None:
    w = [RNG.integers(-9, 9, (64, k)).astype(np.int32) for k in (2, 3)]
    module = build(lambda e, x: [e(op.matmul(x, a)) for a in w], (64,), "int32")
    assert products(module) == 1
    x = RNG.integers(-9, 9, 64).astype(np.int32)
    for got, a in zip(rx.compile(module)["main"](x), w, strict=True):
        np.testing.assert_array_equal(got, x @ a)


def test_what_stays_apart() -> None:
    shared = weights(64, 3)
    assert products(build(lambda e, x: [e(op.matmul(x, weights(64, 256))) for _ in range(3)])) == 3, "full panels"
    assert products(build(lambda e, x: [e(op.matmul(x, weights(64, 1))) for _ in range(3)])) == 3, "dot products"
    other = build(lambda e, x: [e(op.matmul(v, weights(64, 3))) for v in (x, e(op.relu(x)))])
    assert products(other) == 2, "two left operands"
    again = build(lambda e, x: [*(e(op.matmul(x, w)) for w in (shared, weights(64, 3))), e(op.add(shared, shared))])
    assert products(again) == 2, "one weight is used elsewhere as well"
    mixed = build(
        lambda e, x: [e(op.add(e(op.matmul(x, weights(64, 3))), weights(3))), e(op.matmul(x, weights(64, 3)))]
    )
    assert products(mixed) == 2, "one has a bias"
    unknown = build(lambda e, x: [e(op.matmul(x, e(op.relu(weights(64, 3))))), e(op.matmul(x, weights(64, 3)))])
    assert products(unknown) == 2, "a right operand that is computed"


def test_a_bias_that_is_not_the_only_use() -> None:
    def body(e: Emit, x: rx.Var) -> list[rx.Var]:
        a, b = (e(op.matmul(x, weights(64, 3))) for _ in range(2))
        return [e(op.add(a, weights(3))), e(op.add(b, weights(3))), e(op.relu(a)), e(op.exp(b))]

    module = build(body)
    assert products(module) == 1
    x = RNG.standard_normal((5, 64)).astype(np.float32)
    for got, want in zip(rx.compile(module)["main"](x), rx.evaluate(module, "main", x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_branches_keep_their_products() -> None:
    c = rx.Var("c", rx.TensorType((), "bool"))
    x = rx.Var("x", rx.TensorType((N, 64), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [c, x]):
        first = bb.emit(op.matmul(x, weights(64, 3)))
        bb.emit_func_output(bb.if_then_else(c, lambda: bb.emit(op.matmul(x, weights(64, 3))), lambda: first))
    assert products(bb.get()) == 2


def test_joining_everything_keeps_results_and_weights() -> None:
    """Queries, keys and values, asked for: the constants take as many bytes as before."""

    def body(e: Emit, x: rx.Var) -> list[rx.Var]:
        q, k, v = (e(op.add(e(op.matmul(x, weights(64, 48))), weights(48))) for _ in range(3))
        scores = e(op.softmax(e(op.matmul(q, e(op.permute_dims(k, axes=(1, 0))))), axis=-1))
        return [e(op.matmul(scores, v))]

    module = build(body)
    joined = Pipeline([CombineMatmuls(share=-1.0), DeadCode()])(module)
    assert str(joined).count("R.matmul(") == 3
    assert weight_bytes(joined) == weight_bytes(module)
    steps = [CombineMatmuls(share=-1.0) if p.name == "CombineMatmuls" else p for p in DEFAULT]
    x = RNG.standard_normal((9, 64)).astype(np.float32)
    got = rx.compile(module, pipeline=Pipeline(steps))["main"](x)
    np.testing.assert_allclose(got[0], rx.evaluate(module, "main", x)[0], rtol=1e-4, atol=1e-5)
