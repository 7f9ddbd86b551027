"""Functions that fusion joins in its different ways, each with symbols that may be 0 or 1."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.ir import TensorType, Var, const
from relaxir.ops import op
from relaxir.sym import DimLike
from tests.building import dataflow
from tests.e2e.random_graphs import SYMBOLS, Program

N, M, K = SYMBOLS
Make = Callable[..., object]


def weights(*shape: int) -> object:
    """A constant of the same values each time."""
    return const(np.random.default_rng(shape).uniform(-1, 1, shape).astype(np.float32))


def program(shapes: tuple[tuple[DimLike, ...], ...], make: Make) -> Program:
    """A module around ``make(emit, *operands)``, which gives a value or several."""
    return Program(dataflow(make, *(Var(f"x{i}", TensorType(s, "float32")) for i, s in enumerate(shapes))))


def broadcast_chain(e: Make, x: Var, row: Var, column: Var) -> object:
    h = e(op.tanh(e(op.add(x, row))))
    h = e(op.multiply(h, column))
    return op.subtract(h, e(op.sigmoid(e(op.add(row, column)))))


def two_results(e: Make, x: Var) -> object:
    h = e(op.exp(e(op.multiply(x, 0.5))))
    return op.add(h, 1.0), op.multiply(h, h)


def reduce_then_map(e: Make, x: Var) -> object:
    total = e(op.sum(e(op.multiply(x, x)), axes=(1,), keepdims=True))
    return op.divide(x, e(op.sqrt(e(op.add(total, 1.0)))))


def reduce_both_ways(e: Make, x: Var) -> object:
    h = e(op.relu(x))
    return op.sum(h, axes=(0,)), op.sum(h, axes=(1,)), h


def residual(e: Make, x: Var, w: Var, b: Var) -> object:
    h = e(op.add(e(op.matmul(x, w)), b))
    return op.gelu(e(op.add(h, x)))


def constant_residual(e: Make, x: Var) -> object:
    h = e(op.add(e(op.matmul(x, weights(24, 24))), weights(24)))
    return op.silu(e(op.add(x, h)))


def two_products(e: Make, x: Var) -> object:
    h = e(op.relu(e(op.matmul(x, weights(24, 40)))))
    return op.add(e(op.matmul(h, weights(40, 24))), x)


def transposed_product(e: Make, x: Var, y: Var) -> object:
    return op.matmul(e(op.permute_dims(x, axes=(1, 0))), e(op.relu(y)))


def transpose_chain(e: Make, x: Var) -> object:
    h = e(op.permute_dims(e(op.tanh(x)), axes=(2, 0, 1)))
    return op.permute_dims(e(op.multiply(h, 2.0)), axes=(0, 2, 1))


def reshape_between(e: Make, x: Var) -> object:
    h = e(op.reshape(e(op.relu(x)), shape=(N * M,)))
    h = e(op.multiply(h, 3.0))
    return op.sum(e(op.reshape(e(op.sigmoid(h)), shape=(M, N))), axes=(0,))


def attention(e: Make, q: Var, k: Var, v: Var) -> object:
    scores = e(op.matmul(q, e(op.permute_dims(k, axes=(0, 2, 1)))))
    weight = e(op.softmax(e(op.multiply(scores, 0.25)), axis=-1))
    return op.matmul(weight, v)


def layer_norm(e: Make, x: Var, y: Var) -> object:
    h = e(op.layer_norm(e(op.add(x, y)), weights(24), weights(24), axes=(1,)))
    return op.matmul(h, weights(24, 17)), h


def slices(e: Make, x: Var) -> object:
    joined = e(op.concat([e(op.exp(x)), x, e(op.negative(x))], axis=1))
    return op.add(e(op.sum(joined, axes=(1,), keepdims=True)), joined)


def masked(e: Make, x: Var, y: Var) -> object:
    return op.where(e(op.greater(x, y)), e(op.multiply(x, y)), -1.0)


CASES: Final[Mapping[str, Program]] = MappingProxyType(
    {
        "broadcast": program(((N, M), (M,), (N, 1)), broadcast_chain),
        "two_results": program(((N, M),), two_results),
        "reduce_map": program(((N, M),), reduce_then_map),
        "reduce_both": program(((N, M),), reduce_both_ways),
        "residual": program(((N, K), (K, K), (K,)), residual),
        "constant_residual": program(((N, 24),), constant_residual),
        "two_products": program(((N, 24),), two_products),
        "batched_products": program(((N, M, 24),), two_products),
        "transposed_product": program(((K, N), (K, M)), transposed_product),
        "transpose_chain": program(((N, M, 5),), transpose_chain),
        "reshape": program(((N, M),), reshape_between),
        "attention": program(((2, N, 8), (2, K, 8), (2, K, 8)), attention),
        "layer_norm": program(((N, 24), (N, 24)), layer_norm),
        "slices": program(((N, M),), slices),
        "masked": program(((N, M), (N, M)), masked),
    }
)
