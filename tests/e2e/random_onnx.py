"""Random ONNX models with symbolic sizes: every value has a shape that holds for all sizes, so every model is valid."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
from hypothesis import strategies as st
from onnx import ModelProto, NodeProto, TensorProto, helper, numpy_helper, printer

from relaxir.sym import Dim, DimLike, add, dim, evaluate, mul, to_text
from tests.frontends.models import f32, i64

Draw = Callable[..., Any]
Shape = tuple[DimLike, ...]

SYMBOLS: Final = (dim("a", min=1), dim("b", min=1), dim("c", min=1))
FIXED: Final = (1, 3, 4, 8, 16)
SIZES: Final = (1, 2, 3, 7, 17)
CODES: Final = {"float32": TensorProto.FLOAT, "int64": TensorProto.INT64, "bool": TensorProto.BOOL}
MAPS: Final = (
    "Relu",
    "Sigmoid",
    "Tanh",
    "Neg",
    "Abs",
    "Erf",
    "Sin",
    "Softplus",
    "HardSwish",
    "Elu",
    "Identity",
    "Softsign",
)
JOINS: Final = ("Add", "Sub", "Mul", "Max", "Min")
FOLDS: Final = ("ReduceSum", "ReduceMean", "ReduceMax", "ReduceMin", "ReduceL2")
LARGEST: Final = 60_000
"""Elements of a value at the largest size."""


@dataclass(frozen=True)
class Tensor:
    """A value of the model."""

    name: str
    dtype: str
    shape: Shape


@dataclass(frozen=True)
class OnnxProgram:
    """A model, and what it takes.

    Attributes:
        proto: the model.
        inputs: its inputs.
    """

    proto: ModelProto
    inputs: tuple[Tensor, ...]

    def __repr__(self) -> str:
        """The model as text."""
        return str(printer.to_text(self.proto))

    def feeds(self, env: Mapping[str, int]) -> dict[str, np.ndarray]:
        """Operands at an assignment of sizes."""
        rng = np.random.default_rng(list(env.values()))
        found: dict[str, np.ndarray] = {}
        for t in self.inputs:
            shape = tuple(evaluate(d, env) for d in t.shape)
            values = rng.uniform(-2, 2, shape) if t.dtype == "float32" else rng.integers(-9, 20, shape)
            found[t.name] = np.asarray(values).astype(t.dtype)
        return found


@dataclass
class Draft:
    """A model while it is made."""

    draw: Draw
    values: list[Tensor] = field(default_factory=list)
    nodes: list[NodeProto] = field(default_factory=list)
    stored: list[TensorProto] = field(default_factory=list)

    def pick(self, dtype: str | None, holds: Callable[[Shape], bool] = lambda s: True) -> Tensor | None:
        """A value, mostly one of the last."""
        found = [v for v in self.values if dtype in (None, v.dtype) and holds(v.shape)]
        return self.draw(st.sampled_from(found[-5:])) if found else None

    def const(self, array: Any) -> str:
        """A stored tensor."""
        name = f"c{len(self.stored)}"
        self.stored.append(numpy_helper.from_array(np.asarray(array), name))
        return name

    def weights(self, *shape: int) -> str:
        """Stored floats."""
        rng = np.random.default_rng(len(self.stored))
        return self.const((rng.uniform(-1, 1, shape) / max(1, shape[-1]) ** 0.5).astype(np.float32))

    def emit(self, op: str, inputs: list[str], dtype: str, shape: Shape, **attrs: Any) -> Tensor | None:
        """A node, unless its result would be too large."""
        size = 1
        for d in shape:
            size *= int(evaluate(d, {s.name: max(SIZES) for s in SYMBOLS}))
        if len(shape) > 5 or size > LARGEST:
            return None
        made = Tensor(f"v{len(self.values)}", dtype, shape)
        self.nodes.append(helper.make_node(op, inputs, [made.name], name=f"{op}_{made.name}", **attrs))
        self.values.append(made)
        return made

    def one(self, *choices: Any) -> Any:
        """One of some values."""
        return self.draw(st.sampled_from(choices))

    def axis(self, shape: Shape) -> int:
        """One of the axes."""
        return int(self.draw(st.integers(0, len(shape) - 1)))


def joined(a: Shape, b: Shape) -> Shape | None:
    """The shape that two broadcast to for all sizes, if they do."""
    rank = max(len(a), len(b))
    pairs = zip((1,) * (rank - len(a)) + a, (1,) * (rank - len(b)) + b, strict=True)
    shape = tuple(x if y == 1 else y for x, y in pairs)
    fits = all(s[k] in (1, shape[rank - len(s) + k]) for s in (a, b) for k in range(len(s)))
    return shape if fits else None


def ranked(low: int, high: int = 5) -> Callable[[Shape], bool]:
    """Shapes of so many axes."""
    return lambda s: low <= len(s) <= high


# ---- rules: each adds a value if there are operands for it -----------------------------------------------------------


def maps(d: Draft) -> None:
    """Elementwise functions, scalars, bounds, comparisons, conversions."""
    x = d.pick("float32")
    if x is None:
        return
    kind = d.one("map", "scalar", "clip", "greater", "cast", "where")
    if kind == "map":
        d.emit(d.one(*MAPS), [x.name], x.dtype, x.shape)
    elif kind == "scalar":
        d.emit(d.one("Add", "Mul", "Div"), [x.name, d.const(f32(d.one(0.5, 2, -3)))], x.dtype, x.shape)
    elif kind == "clip":
        d.emit("Clip", [x.name, d.const(f32(-1)), d.const(f32(1.5))], x.dtype, x.shape)
    elif kind == "greater":
        d.emit(d.one("Greater", "LessOrEqual"), [x.name, d.const(f32(0.1))], "bool", x.shape)
    elif kind == "cast":
        other = d.pick(None)
        assert other is not None
        wanted = "float32" if other.dtype != "float32" else "bool"
        d.emit("Cast", [other.name], wanted, other.shape, to=CODES[wanted])
    elif (mask := d.pick("bool")) and (shape := joined(mask.shape, x.shape)) is not None:
        d.emit("Where", [mask.name, x.name, d.const(f32(0.25))], x.dtype, shape)


def joins(d: Draft) -> None:
    """Two operands that broadcast."""
    x = d.pick(d.one("float32", "float32", "int64"))
    y = x and d.pick(x.dtype, lambda s: joined(x.shape, s) is not None)
    if x and y:
        d.emit(d.one(*JOINS), [x.name, y.name], x.dtype, joined(x.shape, y.shape) or ())


def folds(d: Draft) -> None:
    """Reductions, normalisations and scans over axes."""
    x = d.pick("float32", ranked(1))
    if x is None:
        return
    k = d.axis(x.shape)
    kind = d.one("fold", "softmax", "argmax", "cumsum", "topk")
    if kind == "fold":
        keep, axes = d.one(0, 1), sorted({k, d.axis(x.shape)})
        shape = tuple(1 if i in axes else n for i, n in enumerate(x.shape) if keep or i not in axes)
        given = [a - len(x.shape) if keep else a for a in axes]
        d.emit(d.one(*FOLDS), [x.name, d.const(i64(given))], x.dtype, shape, keepdims=keep)
    elif kind == "softmax":
        d.emit(d.one("Softmax", "LogSoftmax"), [x.name], x.dtype, x.shape, axis=k)
    elif kind == "argmax":
        d.emit(d.one("ArgMax", "ArgMin"), [x.name], "int64", x.shape[:k] + x.shape[k + 1 :], axis=k, keepdims=0)
    elif kind == "cumsum":
        attrs = {"exclusive": d.one(0, 1), "reverse": d.one(0, 1)}
        d.emit("CumSum", [x.name, d.const(i64(k))], x.dtype, x.shape, **attrs)
    elif top := d.emit("TopK", [x.name, d.const(i64([1]))], x.dtype, (*x.shape[:k], 1, *x.shape[k + 1 :]), axis=k):
        d.nodes[-1].output.append(f"{top.name}_places")


def products(d: Draft) -> None:
    """Matrix products, convolutions, normalised layers."""
    x = d.pick("float32", ranked(1))
    if x is None:
        return
    last = x.shape[-1]
    kind = d.one("linear", "square", "conv", "layernorm")
    if kind == "linear" and isinstance(last, int):
        columns = d.one(1, 4, 7, 16, 33)
        d.emit("MatMul", [x.name, d.weights(last, columns)], x.dtype, (*x.shape[:-1], columns))
    elif kind == "square" and len(x.shape) > 1:
        order = [*range(len(x.shape) - 2), len(x.shape) - 1, len(x.shape) - 2]
        turned = d.emit("Transpose", [x.name], x.dtype, tuple(x.shape[i] for i in order), perm=order)
        if turned:
            d.emit("MatMul", [x.name, turned.name], x.dtype, (*x.shape[:-1], x.shape[-2]))
    elif kind == "conv" and len(x.shape) == 4 and isinstance(x.shape[1], int):
        deep, side = x.shape[1], d.one(1, 3)
        out, group = d.one((4, 1), (deep, deep))
        kernel = d.weights(out, deep // group, side, side)
        attrs = {"kernel_shape": [side] * 2, "pads": [side // 2] * 4, "group": group}
        d.emit("Conv", [x.name, kernel, d.weights(out)], x.dtype, (x.shape[0], out, *x.shape[2:]), **attrs)
    elif kind == "layernorm" and isinstance(last, int) and last > 1:
        d.emit("LayerNormalization", [x.name, d.weights(last), d.weights(last)], x.dtype, x.shape, axis=-1)


def views(d: Draft) -> None:
    """The same elements in another order or shape; sizes read from shapes as exporters do."""
    x = d.pick(None, ranked(1, 4))
    if x is None:
        return
    k, rank = d.axis(x.shape), len(x.shape)
    kind = d.one("transpose", "unsqueeze", "squeeze", "merge", "expand", "tile")
    if kind == "transpose":
        order = list(d.draw(st.permutations(range(rank))))
        d.emit("Transpose", [x.name], x.dtype, tuple(x.shape[i] for i in order), perm=order)
    elif kind == "unsqueeze":
        d.emit("Unsqueeze", [x.name, d.const(i64([k]))], x.dtype, (*x.shape[:k], 1, *x.shape[k:]))
    elif kind == "squeeze" and x.shape[k] == 1:
        d.emit("Squeeze", [x.name, d.const(i64([k]))], x.dtype, x.shape[:k] + x.shape[k + 1 :])
    elif kind == "merge" and k + 1 < rank:
        sizes = d.emit("Shape", [x.name], "int64", (rank,))
        assert sizes is not None
        parts = [
            d.const(i64([-1])) if i == k else picked(d, sizes, i)
            for i in range(rank) if i != k + 1
        ]  # fmt: skip
        target = d.emit("Concat", parts, "int64", (rank - 1,), axis=0)
        assert target is not None
        merged = (*x.shape[:k], mul(x.shape[k], x.shape[k + 1]), *x.shape[k + 2 :])
        d.emit("Reshape", [x.name, target.name], x.dtype, merged)
    elif kind == "expand" and (y := d.pick(None, lambda s: len(s) > 0 and joined(x.shape, s) is not None)):
        sizes = d.emit("Shape", [y.name], "int64", (len(y.shape),))
        assert sizes is not None
        d.emit("Expand", [x.name, sizes.name], x.dtype, joined(x.shape, y.shape) or ())
    elif kind == "tile":
        times = [2 if i == k else 1 for i in range(rank)]
        shape = tuple(mul(n, t) for n, t in zip(x.shape, times, strict=True))
        d.emit("Tile", [x.name, d.const(i64(times))], x.dtype, shape)


def picked(d: Draft, sizes: Tensor, i: int) -> str:
    """One size of a shape, as a vector."""
    made = d.emit("Gather", [sizes.name, d.const(i64([i]))], "int64", (1,), axis=0)
    assert made is not None
    return made.name


def pieces(d: Draft) -> None:
    """Parts, borders, neighbours, rows of a table, positions."""
    x = d.pick(None, ranked(1, 4))
    if x is None:
        return
    k = d.axis(x.shape)
    kind = d.one("slice", "last", "pad", "concat", "embed", "range")
    if kind == "slice":
        low = evaluate(x.shape[k], {s.name: 1 for s in SYMBOLS})
        start = d.draw(st.integers(0, low - 1))
        bounds = [d.const(i64([v])) for v in (start, 2**62, k)]
        d.emit("Slice", [x.name, *bounds], x.dtype, (*x.shape[:k], add(x.shape[k], -start), *x.shape[k + 1 :]))
    elif kind == "last":
        bounds = [d.const(i64([v])) for v in (-1, -(2**62), k, -1)]
        d.emit("Slice", [x.name, *bounds], x.dtype, x.shape)  # from the end on: all, turned
    elif kind == "pad" and x.dtype == "float32":
        pads = [0] * 2 * len(x.shape)
        pads[k], pads[k + len(x.shape)] = d.one((1, 0), (0, 2), (2, 1))
        wide = add(x.shape[k], pads[k] + pads[k + len(x.shape)])
        d.emit("Pad", [x.name, d.const(i64(pads))], x.dtype, (*x.shape[:k], wide, *x.shape[k + 1 :]))
    elif kind == "concat":
        same = d.pick(
            x.dtype, lambda s: len(s) == len(x.shape) and s[:k] + s[k + 1 :] == x.shape[:k] + x.shape[k + 1 :]
        )
        assert same is not None
        long = (*x.shape[:k], add(x.shape[k], same.shape[k]), *x.shape[k + 1 :])
        d.emit("Concat", [x.name, same.name], x.dtype, long, axis=k)
    elif kind == "embed" and x.dtype == "int64":
        rows = d.emit("Mod", [x.name, d.const(i64(11))], "int64", x.shape)
        if rows:
            d.emit("Gather", [d.weights(11, 8), rows.name], "float32", (*x.shape, 8), axis=0)
    elif kind == "range":
        sizes = d.emit("Shape", [x.name], "int64", (len(x.shape),))
        assert sizes is not None
        count = d.emit("Gather", [sizes.name, d.const(i64(k))], "int64", (), axis=0)
        assert count is not None
        d.emit("Range", [d.const(i64(0)), count.name, d.const(i64(1))], "int64", (x.shape[k],))


RULES: Final = (maps, joins, folds, products, views, pieces)


@st.composite
def models(draw: Draw, steps: int = 12) -> OnnxProgram:
    """A model of one to three inputs."""
    d = Draft(draw)
    extents = st.sampled_from([*SYMBOLS, *FIXED])
    for i in range(draw(st.integers(1, 3))):
        dtype = draw(st.sampled_from(("float32", "float32", "float32", "int64")))
        d.values.append(Tensor(f"x{i}", dtype, tuple(draw(st.lists(extents, min_size=1, max_size=4)))))
    inputs = tuple(d.values)
    for _ in range(draw(st.integers(1, steps))):
        draw(st.sampled_from(RULES))(d)
    if not d.nodes:
        d.emit("Identity", [inputs[0].name], inputs[0].dtype, inputs[0].shape)
    read = {name for n in d.nodes for name in n.input}
    results = [v for v in d.values if v.name not in read and v not in inputs][-3:]
    stored = [t for t in d.stored if t.name in read]  # those of nodes that became too large are left
    graph = helper.make_graph(d.nodes, "random", infos(inputs), infos(results), stored)
    proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)
    return OnnxProgram(proto, inputs)


def infos(tensors: tuple[Tensor, ...] | list[Tensor]) -> list[Any]:
    """What the model states of its inputs and outputs: formulas are left open."""
    found = []
    for t in tensors:
        shape = [d if isinstance(d, int) else to_text(d) if isinstance(d, Dim) else None for d in t.shape]
        found.append(helper.make_tensor_value_info(t.name, CODES[t.dtype], shape))
    return found
