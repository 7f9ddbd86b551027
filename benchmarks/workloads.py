"""The workloads: products, a perceptron, a sentence encoder, a decoder, and what only moves memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np

from benchmarks.graphs import Graph, Size, chain, decoder, encoder, gemm, mlp

Array = np.ndarray[Any, Any]
Sizes = Mapping[str, int]
Peer = Callable[[Any, list[Any]], Any]
"""Computes a workload with the functions of NumPy, or of torch, which it gets first."""


@dataclass(frozen=True)
class Workload:
    """What is measured.

    Attributes:
        name: starts with its group.
        model: makes the ONNX model.
        inputs: makes the inputs of a size.
        points: sizes to measure at.
        quick: those of the quick mode.
        numpy: the same in NumPy, on the inputs and the weights of the model in their order.
        torch: the same in torch.
    """

    name: str
    model: Callable[[], bytes]
    inputs: Callable[[Sizes], dict[str, Array]]
    points: tuple[Sizes, ...]
    quick: tuple[Sizes, ...]
    numpy: Peer | None = None
    torch: Peer | None = None


def along(name: str, *values: int) -> tuple[Sizes, ...]:
    """Sizes of one symbol."""
    return tuple(MappingProxyType({name: v}) for v in values)


def pairs(first: str, second: str, *values: tuple[int, int]) -> tuple[Sizes, ...]:
    """Sizes of two symbols."""
    return tuple(MappingProxyType({first: a, second: b}) for a, b in values)


def normal(shapes: Mapping[str, Sequence[Size]], sizes: Sizes) -> dict[str, Array]:
    """Random floats in the given shapes."""
    rng = np.random.default_rng(0)
    return {
        name: rng.standard_normal([sizes[d] if isinstance(d, str) else d for d in shape], np.float32)
        for name, shape in shapes.items()
    }


def tokens(sizes: Sizes, words: int = 30522) -> dict[str, Array]:
    """Inputs of the encoder."""
    shape = (sizes["batch"], sizes["length"])
    return {"ids": np.random.default_rng(0).integers(0, words, shape), "mask": np.ones(shape, np.int64)}


def step(sizes: Sizes, layers: int = 8, heads: int = 8, depth: int = 64, words: int = 32000) -> dict[str, Array]:
    """Inputs of the decoder."""
    rng = np.random.default_rng(0)
    shape = (1, heads, sizes["past"], depth)
    caches = {f"p{c}{i}": rng.standard_normal(shape, np.float32) for i in range(layers) for c in "kv"}
    return {"ids": rng.integers(0, words, (1, sizes["length"])), **caches}


def product(depth: int, columns: int, quick: Sequence[int]) -> Workload:
    """A product with constant weights."""

    def multiply(_: Any, x: list[Any]) -> Any:
        return x[0] @ x[1]

    return Workload(
        f"gemm_{depth}_{columns}",
        partial(gemm, depth, columns),
        partial(normal, {"x": ("n", depth)}),
        along("n", 1, 2, 7, 16, 33, 64, 128),
        along("n", *quick),
        multiply,
        multiply,
    )


def memory(
    name: str,
    shapes: Sequence[Sequence[Size]],
    points: Sequence[int],
    body: Callable[[Graph, list[str]], str],
    numpy: Peer | None,
    torch: Peer | None,
) -> Workload:
    """A small graph; the quick mode takes the middle size."""
    given = {f"x{i}": s for i, s in enumerate(shapes)}
    sizes = along("n", *points)
    make = partial(chain, shapes, body)
    return Workload(f"mem_{name}", make, partial(normal, given), sizes, sizes[1:2], numpy, torch)


def softmax(np_: Any, x: list[Any]) -> Any:
    """Over the last axis, in NumPy."""
    e = np_.exp(x[0] - x[0].max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def norm(np_: Any, x: list[Any]) -> Any:
    """Layer normalisation in NumPy."""
    mean, var = x[0].mean(-1, keepdims=True), x[0].var(-1, keepdims=True)
    return (x[0] - mean) / np_.sqrt(var + 1e-5) * x[1] + x[2]


def gate(lib: Any, x: list[Any]) -> Any:
    """``sigmoid(x * b + y) * c - y``."""
    return 1 / (1 + lib.exp(-(x[0] * x[2] + x[1]))) * x[3] - x[1]


def gate_graph(g: Graph, x: list[str]) -> str:
    """The same as a graph."""
    inner = g("Sigmoid", g("Add", g("Mul", x[0], x[2]), x[1]))
    return g("Sub", g("Mul", inner, x[3]), x[1])


WIDE = (128, 1024, 16384)
ROWS = ("n", 1024)

MEMORY = (
    memory(
        "softmax_1000", [("n", 1000)], WIDE, lambda g, x: g("Softmax", x[0], axis=-1), softmax,
        lambda torch, x: torch.softmax(x[0], -1),
    ),
    memory(
        "softmax_64", [("n", 64)], (128, 4096, 100000), lambda g, x: g("Softmax", x[0], axis=-1), softmax,
        lambda torch, x: torch.softmax(x[0], -1),
    ),
    memory(
        "layernorm_768", [("n", 768), (768,), (768,)], WIDE,
        lambda g, x: g("LayerNormalization", *x, axis=-1, epsilon=1e-5), norm,
        lambda torch, x: torch.nn.functional.layer_norm(x[0], (768,), x[1], x[2]),
    ),
    memory(
        "gelu_bias_scale_3072", [("n", 3072), (3072,), (3072,)], (16, 128, 2048),
        lambda g, x: g("Mul", g.gelu(g("Add", x[0], x[1])), x[2]), None,
        lambda torch, x: torch.nn.functional.gelu(x[0] + x[1]) * x[2],
    ),
    memory("chain_bcast_1024", [ROWS, ROWS, (1024,), ("n", 1)], WIDE, gate_graph, gate, gate),
    memory(
        "add_1024", [ROWS, ROWS], WIDE, lambda g, x: g("Add", *x), lambda _, x: x[0] + x[1], lambda _, x: x[0] + x[1],
    ),
    memory(
        "sum_axis0_1024", [ROWS], WIDE, lambda g, x: g("ReduceSum", x[0], g.ints(0), keepdims=0),
        lambda _, x: x[0].sum(0), lambda _, x: x[0].sum(0),
    ),
    memory(
        "sum_axis1_1024", [ROWS], WIDE, lambda g, x: g("ReduceSum", x[0], g.ints(1), keepdims=0),
        lambda _, x: x[0].sum(1), lambda _, x: x[0].sum(1),
    ),
    memory(
        "max_axis1_of3_64x64", [("n", 64, 64)], (8, 128, 2048),
        lambda g, x: g("ReduceMax", x[0], g.ints(1), keepdims=0), lambda _, x: x[0].max(1), lambda _, x: x[0].amax(1),
    ),
    memory(
        "transpose_1024", [ROWS], WIDE, lambda g, x: g("Transpose", x[0], perm=[1, 0]),
        lambda lib, x: lib.ascontiguousarray(x[0].T), lambda _, x: x[0].t().contiguous(),
    ),
    memory(
        "bhtd_transpose", [("n", 128, 12, 64)], (1, 8, 64), lambda g, x: g("Transpose", x[0], perm=[0, 2, 1, 3]),
        lambda lib, x: lib.ascontiguousarray(x[0].transpose(0, 2, 1, 3)),
        lambda _, x: x[0].transpose(1, 2).contiguous(),
    ),
)  # fmt: skip

WORKLOADS = (
    product(768, 768, (1, 7, 64)),
    product(768, 3072, (16,)),
    product(4096, 4096, (1,)),
    Workload(
        "mlp", mlp, partial(normal, {"x": ("n", 512)}), along("n", 1, 3, 8, 32, 256), along("n", 1, 32),
    ),
    Workload(
        "minilm", encoder, tokens,
        pairs("batch", "length", (1, 7), (1, 32), (1, 128), (1, 384), (4, 50), (8, 128)),
        pairs("batch", "length", (1, 7), (1, 128)),
    ),
    Workload(
        "llama", decoder, step,
        pairs("length", "past", (1, 64), (1, 511), (7, 0), (64, 0), (300, 0)),
        pairs("length", "past", (1, 64)),
    ),
    *MEMORY,
)  # fmt: skip
"""All of them, in the order of the table."""
