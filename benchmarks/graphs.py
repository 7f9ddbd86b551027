"""ONNX graphs of the workloads, with random weights: what exporters write for such models, in dynamic sizes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from math import sqrt

import numpy as np
from onnx import TensorProto, helper, numpy_helper

FLOAT, INT = TensorProto.FLOAT, TensorProto.INT64
Size = int | str
LOWEST = -3.0e38
"""What masked scores are."""


class Graph:
    """Builds a graph node by node: ``g("MatMul", x, w)`` gives the name of the result."""

    def __init__(self, seed: int = 0) -> None:
        self._rng = np.random.default_rng(seed)
        self._nodes: list[object] = []
        self._inputs: list[object] = []
        self._weights: list[object] = []

    def __call__(self, op: str, *inputs: str, **attributes: object) -> str:
        """Add a node with one result."""
        return self.several(op, 1, *inputs, **attributes)[0]

    def several(self, op: str, count: int, *inputs: str, **attributes: object) -> list[str]:
        """Add a node with several results."""
        names = [f"v{len(self._nodes)}_{i}" for i in range(count)]
        self._nodes.append(helper.make_node(op, list(inputs), names, **attributes))
        return names

    def input(self, name: str, shape: Sequence[Size], kind: int = FLOAT) -> str:
        """Add an input; names among its sizes are dynamic."""
        self._inputs.append(helper.make_tensor_value_info(name, kind, list(shape)))
        return name

    def const(self, value: object, dtype: type = np.float32) -> str:
        """Add a constant."""
        name = f"c{len(self._weights)}"
        self._weights.append(numpy_helper.from_array(np.asarray(value, dtype), name))
        return name

    def ints(self, *values: int) -> str:
        """Add a vector of integers: axes, shapes."""
        return self.const(values, np.int64)

    def weight(self, *shape: int) -> str:
        """Add random weights that keep the size of what they are multiplied with."""
        return self.const(self._rng.standard_normal(shape, np.float32) / sqrt(shape[0]))

    def model(
        self, outputs: Sequence[str], names: Sequence[str] = (), opset: int = 18, kinds: Sequence[int] = ()
    ) -> bytes:
        """The finished model; the results are called ``names`` or keep their own, and are floats but for ``kinds``."""
        called = list(names) or list(outputs)
        nodes = [
            *self._nodes,
            *(helper.make_node("Identity", [o], [n]) for o, n in zip(outputs, called, strict=True) if o != n),
        ]
        types = list(kinds) or [FLOAT] * len(called)
        results = [helper.make_tensor_value_info(n, kind, None) for n, kind in zip(called, types, strict=True)]
        graph = helper.make_graph(nodes, "workload", self._inputs, results, self._weights)
        made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=8)
        return bytes(made.SerializeToString())

    # ---- layers

    def linear(self, x: str, columns: tuple[int, int], bias: bool = True) -> str:
        """``x @ w + b``."""
        y = self("MatMul", x, self.weight(*columns))
        return self("Add", y, self.weight(columns[1])) if bias else y

    def gelu(self, x: str) -> str:
        """The exact one, in parts as exporters write it before opset 20."""
        erf = self("Erf", self("Div", x, self.const(sqrt(2))))
        return self("Mul", self("Mul", x, self("Add", erf, self.const(1.0))), self.const(0.5))

    def layer_norm(self, x: str, width: int) -> str:
        """With scale and shift."""
        scale, shift = self.const(np.ones(width)), self.const(np.zeros(width))
        return self("LayerNormalization", x, scale, shift, axis=-1, epsilon=1e-12)

    def rms_norm(self, x: str, width: int) -> str:
        """In parts, as decoders are exported."""
        mean = self("ReduceMean", self("Mul", x, x), self.ints(-1), keepdims=1)
        root = self("Reciprocal", self("Sqrt", self("Add", mean, self.const(1e-5))))
        return self("Mul", self("Mul", x, root), self.const(np.ones(width)))

    def heads(self, x: str, count: int, depth: int) -> str:
        """(batch, length, width) to (batch, heads, length, depth)."""
        return self("Transpose", self("Reshape", x, self.ints(0, 0, count, depth)), perm=[0, 2, 1, 3])

    def attention(self, q: str, k: str, v: str, mask: str, depth: int) -> str:
        """Softmax of scaled scores and an additive mask, times values, heads joined again."""
        scores = self("Div", self("MatMul", q, self("Transpose", k, perm=[0, 1, 3, 2])), self.const(sqrt(depth)))
        mixed = self("MatMul", self("Softmax", self("Add", scores, mask), axis=-1), v)
        return self("Reshape", self("Transpose", mixed, perm=[0, 2, 1, 3]), self.ints(0, 0, -1))

    def extent(self, x: str, axis: int) -> str:
        """A size as a vector of one integer."""
        return self("Shape", x, start=axis, end=axis + 1)


def gemm(depth: int, columns: int) -> bytes:
    """``(n, depth) @ (depth, columns)``."""
    g = Graph()
    return g.model([g("MatMul", g.input("x", ("n", depth)), g.weight(depth, columns))])


def mlp(widths: Sequence[int] = (512, 2048, 2048, 512)) -> bytes:
    """Linear layers with GELU in between."""
    g = Graph(1)
    x = g.input("x", ("n", widths[0]))
    for i, columns in enumerate(pairwise(widths)):
        x = g.linear(g.gelu(x) if i else x, columns)
    return g.model([x])


def encoder(layers: int = 6, width: int = 384, heads: int = 12, inner: int = 1536, words: int = 30522) -> bytes:
    """A sentence encoder of MiniLM's sizes: embeddings, transformer layers, mean over the tokens."""
    g = Graph(2)
    ids, mask = (g.input(n, ("batch", "length"), INT) for n in ("ids", "mask"))
    depth = width // heads
    rows = g("Slice", g.weight(512, width), g.ints(0), g.extent(ids, 1), g.ints(0))
    x = g("Add", g("Add", g("Gather", g.weight(words, width), ids), g.weight(width)), rows)
    x = g.layer_norm(x, width)
    seen = g("Cast", mask, to=FLOAT)
    hidden = g("Mul", g("Sub", g.const(1.0), g("Unsqueeze", seen, g.ints(1, 2))), g.const(LOWEST))
    for _ in range(layers):
        q, k, v = (g.heads(g.linear(x, (width, width)), heads, depth) for _ in range(3))
        x = g.layer_norm(g("Add", g.linear(g.attention(q, k, v, hidden, depth), (width, width)), x), width)
        x = g.layer_norm(g("Add", g.linear(g.gelu(g.linear(x, (width, inner))), (inner, width)), x), width)
    weight = g("Unsqueeze", seen, g.ints(2))
    total = g("ReduceSum", g("Mul", x, weight), g.ints(1), keepdims=0)
    count = g("Max", g("ReduceSum", weight, g.ints(1), keepdims=0), g.const(1e-9))
    return g.model([g("Div", total, count)])


def decoder(layers: int = 8, width: int = 512, heads: int = 8, inner: int = 1376, words: int = 32000) -> bytes:
    """A decoder of Llama's form: keys and values come in and go out one token longer, logits of the last token."""
    g = Graph(3)
    depth, most = width // heads, 1024
    ids = g.input("ids", (1, "length"), INT)
    caches = [[g.input(f"p{c}{i}", (1, heads, "past", depth)) for c in "kv"] for i in range(layers)]
    past = g.extent(caches[0][0], 2)
    end = g("Add", past, g.extent(ids, 1))
    angles = np.arange(most)[:, None] / 10000.0 ** (np.arange(depth // 2) / (depth // 2))
    cos, sin = (g("Slice", g.const(f(angles)), past, end, g.ints(0)) for f in (np.cos, np.sin))
    scalars = [g("Squeeze", v, g.ints(0)) for v in (past, end)]
    row = g("Unsqueeze", g("Range", scalars[0], scalars[1], g.const(1, np.int64)), g.ints(1))
    column = g("Range", g.const(0, np.int64), scalars[1], g.const(1, np.int64))
    mask = g("Where", g("LessOrEqual", column, row), g.const(0.0), g.const(LOWEST))
    x = g("Gather", g.weight(words, width), ids)
    grown: list[str] = []

    def rotate(value: str) -> str:
        a, b = g.several("Split", 2, value, axis=-1, num_outputs=2)
        left = g("Sub", g("Mul", a, cos), g("Mul", b, sin))
        return g("Concat", left, g("Add", g("Mul", b, cos), g("Mul", a, sin)), axis=-1)

    for cache in caches:
        h = g.rms_norm(x, width)
        q, k, v = (g.heads(g.linear(h, (width, width), bias=False), heads, depth) for _ in range(3))
        keys, values = g("Concat", cache[0], rotate(k), axis=2), g("Concat", cache[1], v, axis=2)
        grown += [keys, values]
        mixed = g.attention(rotate(q), keys, values, mask, depth)
        x = g("Add", x, g.linear(mixed, (width, width), bias=False))
        h = g.rms_norm(x, width)
        gate, up = (g.linear(h, (width, inner), bias=False) for _ in range(2))
        silu = g("Mul", g("Mul", gate, g("Sigmoid", gate)), up)
        x = g("Add", x, g.linear(silu, (inner, width), bias=False))
    last = g.rms_norm(g("Gather", x, g.const(-1, np.int64), axis=1), width)
    names = ["logits", *(f"n{c}{i}" for i in range(layers) for c in "kv")]
    return g.model([g.linear(last, (width, words), bias=False), *grown], names)


def chain(shapes: Sequence[Sequence[Size]], body: Callable[[Graph, list[str]], str]) -> bytes:
    """A small graph over inputs ``x0``, ``x1``, ..."""
    g = Graph()
    return g.model([body(g, [g.input(f"x{i}", s) for i, s in enumerate(shapes)])])
