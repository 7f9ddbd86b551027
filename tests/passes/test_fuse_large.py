"""What is cheap to make and large to keep: copied into every reader, computed inside products that read it once."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op
from relaxir.passes import Pipeline
from relaxir.pipelines import GRAPH, LOWER
from tests.building import Emit, dataflow

B, N = rx.dim("b"), rx.dim("n")
C = 24
RNG = np.random.default_rng(0)
VECTOR = RNG.integers(-128, 128, (C, 1)).astype(np.int8)
FLOATS = RNG.standard_normal((C, 1)).astype(np.float32)
PAIR = ((B, N, C), (B, N, C))


def build(make: Callable[..., rx.Var], *shapes: tuple[object, ...]) -> rx.IRModule:
    return dataflow(make, *(rx.Var(f"x{k}", rx.TensorType(s, "float32")) for k, s in enumerate(shapes)))


def pairs(emit: Emit, q: rx.Var, k: rx.Var) -> rx.Var:
    """Sums of all pairs of rows."""
    return emit(op.add(emit(op.expand_dims(q, axes=(2,))), emit(op.expand_dims(k, axes=(1,)))))


def scores(emit: Emit, q: rx.Var, k: rx.Var) -> rx.Var:
    """Additive attention, quantised for its product with a vector."""
    rounded = emit(op.dynamic_quantize_linear(emit(op.tanh(pairs(emit, q, k)))))
    y, scale, zero = (emit(rx.ir.expr.TupleGetItem(rounded, i)) for i in range(3))
    total = emit(op.matmul_integer(y, VECTOR, zero))
    return emit(op.multiply(emit(op.astype(total)), scale))


def kernels(module: rx.IRModule) -> list[str]:
    """The operators of each tensor program that is called."""
    funcs = Pipeline((*GRAPH, *LOWER))(module).prim_funcs()
    return [str(f.attrs["op"]) for f in funcs.values()]


def agree(module: rx.IRModule, *sizes: tuple[int, int]) -> None:
    main = rx.compile(module)["main"]
    for b, n in sizes:
        x = [RNG.standard_normal((b, n, C)).astype(np.float32) for _ in main.input_names]
        want = rx.evaluate(module, "main", *x)
        np.testing.assert_allclose(main(*x), want, rtol=1e-4, atol=1e-4)


def test_additive_attention() -> None:
    """No tensor of all pairs and channels is kept: memory grows with the scores, not with C times them."""
    module = build(scores, *PAIR)
    found = kernels(module)
    assert found.count("expand_dims_min_max") == 1  # both operands share it
    assert any("add_tanh_quantize_linear_matmul_integer" in k for k in found)
    assert not any("add" in k and "min_max" in k for k in found)
    memory = rx.memory(rx.compile(module))
    assert memory(b=1, n=1000) < 1000 * 1000 * C
    agree(module, (0, 3), (2, 0), (1, 1), (2, 5), (1, 9))


def test_each_reader_gets_a_copy() -> None:
    def make(emit: Emit, q: rx.Var, k: rx.Var) -> rx.Var:
        s = pairs(emit, q, k)
        top = emit(op.max(s, axes=(3,), keepdims=True))
        return emit(op.sum(emit(op.exp(emit(op.subtract(s, top)))), axes=(2,)))

    module = build(make, *PAIR)
    assert {"expand_dims_expand_dims_add_max", "expand_dims_expand_dims_add_subtract_exp"} <= set(kernels(module))
    agree(module, (0, 2), (1, 1), (2, 4))


def test_what_is_no_larger_than_its_operands_is_kept() -> None:
    """A sum of equal shapes: the readers would read two tensors in place of one."""

    def make(emit: Emit, x: rx.Var, y: rx.Var) -> rx.Var:
        s = emit(op.add(x, y))
        top = emit(op.max(s, axes=(0, 1, 2)))
        return emit(op.matmul(emit(op.multiply(s, top)), np.ones((C, 5), np.float32)))

    assert "add" in kernels(build(make, *PAIR))


def test_costly_values_are_kept() -> None:
    def make(emit: Emit, q: rx.Var, k: rx.Var) -> rx.Var:
        s = emit(op.exp(pairs(emit, q, k)))
        return emit(op.divide(emit(op.abs(s)), emit(op.sum(s, axes=(2,), keepdims=True))))

    module = build(make, *PAIR)
    assert sum("exp" in k.split("_") for k in kernels(module)) == 1
    agree(module, (2, 3))


@pytest.mark.parametrize(
    ("make", "kernel"),
    [
        (lambda e, x: e(op.matmul(e(op.tanh(x)), FLOATS)), "tanh_matmul"),
        (lambda e, x: e(op.matmul(e(op.gelu(e(op.multiply(x, 2.0)))), FLOATS)), "multiply_gelu_matmul"),
        (lambda e, x: e(op.matmul(e(op.tanh(x)), np.tile(FLOATS, 3))), "matmul"),
        (lambda e, x: e(op.matmul(e(op.permute_dims(x, axes=(1, 0, 2))), FLOATS)), "matmul"),
        (lambda e, x: e(op.matmul(e(op.exp(e(op.permute_dims(x, axes=(1, 0, 2))))), FLOATS)), "exp_matmul"),
    ],
)
def test_products_compute_what_they_read_once(make: Callable[..., rx.Var], kernel: str) -> None:
    """Elementwise operators only: movements would leave the product no contiguous factor."""
    module = build(make, (B, N, C))
    assert next(k for k in kernels(module) if "matmul" in k) == kernel
    agree(module, (0, 3), (1, 1), (2, 7), (3, 40))


def test_small_operands_of_an_epilogue_are_made_in_it() -> None:
    """A zero point times sums of columns, a scale times scales of columns: cheap, and read by the epilogue alone."""

    def make(emit: Emit, x: rx.Var) -> rx.Var:
        rounded = emit(op.dynamic_quantize_linear(x))
        y, scale, zero = (emit(rx.ir.expr.TupleGetItem(rounded, i)) for i in range(3))
        total = emit(op.astype(emit(op.matmul_integer(y, np.tile(VECTOR, 5), zero))))
        wide = emit(op.multiply(total, emit(op.multiply(scale, np.linspace(0.1, 0.2, 5, dtype=np.float32)))))
        return emit(op.tanh(wide))

    module = build(make, (B, N, C))
    (product,) = [k for k in kernels(module) if "matmul" in k]
    assert product.endswith("_tanh")
    assert product.count("multiply") == 3
    agree(module, (0, 3), (1, 1), (2, 7))


def test_costly_operands_of_an_epilogue_are_made_once() -> None:
    def make(emit: Emit, x: rx.Var, y: rx.Var) -> rx.Var:
        row = emit(op.exp(emit(op.max(y, axes=(0, 1)))))
        return emit(op.add(emit(op.matmul(x, np.ones((C, C), np.float32))), row))

    module = build(make, *PAIR)
    assert not any("matmul" in k and "exp" in k for k in kernels(module))
    agree(module, (2, 3), (1, 1))
