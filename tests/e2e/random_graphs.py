"""Random graph functions of the kind that fusion works on, with inputs at which they are well conditioned."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import numpy as np
from hypothesis import strategies as st

from relaxir.ir import BlockBuilder, IRModule, ShapeType, TensorType, Type, Var, const
from relaxir.ir.types import free_dims_of_type
from relaxir.ops import op
from relaxir.support.bfloat16 import float32_to_bfloat16
from relaxir.support.dtypes import info
from relaxir.sym import Dim, DimLike, dim, evaluate, product

Draw = Callable[..., object]

SYMBOLS = (dim("n"), dim("m"), dim("k", min=1))
FIXED = (1, 2, 3, 5, 8, 16, 17, 40)
SIZES = (0, 1, 2, 3, 7, 16, 33)
MAPS = ("tanh", "sigmoid", "relu", "negative", "abs", "silu", "gelu", "erf", "softsign", "mish", "cos")
JOINS = ("add", "subtract", "multiply", "maximum", "minimum")
FOLDS = ("sum", "max", "mean", "min")
WHOLE_MAPS = ("negative", "abs", "relu")
DTYPES = ("float32", "float32", "float32", "float64", "int32", "int64", "float16", "bfloat16")
MOST = 40_000
"""Elements of a value for sizes of 33: keeps the interpreter quick."""


@dataclass(frozen=True)
class Program:
    """A module with one function, ``main``."""

    module: IRModule

    @property
    def types(self) -> tuple[Type, ...]:
        """Types of the operands."""
        return tuple(p.type for p in self.module.graph_functions()["main"].params)

    @property
    def symbols(self) -> tuple[Dim, ...]:
        """Symbols of the operands."""
        return tuple(dict.fromkeys(d for t in self.types for d in free_dims_of_type(t)))

    def inputs(self, env: Mapping[str, int], whole: bool = False) -> tuple[np.ndarray, ...]:
        """Operands for an assignment of sizes: random floats, or whole numbers."""
        rng = np.random.default_rng(0)
        found = []
        for t in self.types:
            if isinstance(t, ShapeType):
                found.append(np.array([evaluate(d, env) for d in t.dims], np.int64))
                continue
            assert isinstance(t, TensorType)
            shape = tuple(evaluate(d, env) for d in t.shape)
            values = rng.integers(-2, 3, shape) if whole else rng.uniform(-2, 2, shape)
            found.append(held(np.asarray(values), t.dtype))
        return tuple(found)


def held(values: np.ndarray, dtype: str) -> np.ndarray:
    """Values as programs hold them in ``dtype``."""
    return float32_to_bfloat16(values.astype(np.float32)) if dtype == "bfloat16" else values.astype(info(dtype).numpy)


def large(shape: tuple[DimLike, ...]) -> bool:
    """Whether a value would be slow to compute."""
    return int(evaluate(product(shape), {d.name: 33 for d in SYMBOLS})) > MOST


@st.composite
def programs(draw: Draw, steps: int = 8) -> Program:
    """A function ``main`` of one to three tensors whose values are used by later ones again and again."""
    scope: tuple[Dim, ...] = draw(st.sampled_from([SYMBOLS[:1], SYMBOLS[:2], SYMBOLS, ()]))
    extents = st.sampled_from([*scope, *scope, *FIXED])
    base = tuple(draw(st.lists(extents, min_size=1, max_size=3).filter(lambda s: not large(tuple(s)))))
    bb = BlockBuilder()
    # every symbol is defined by an operand; the others have the base shape with some axes 1 or left out
    shapes = [base] + [variant(draw, base) for _ in range(draw(st.integers(0, 2)))]
    shapes += [(s,) for s in scope if not any(s in shape for shape in shapes)]
    dtype = draw(st.sampled_from(DTYPES))
    params = [Var(f"x{i}", TensorType(s, dtype)) for i, s in enumerate(shapes)]
    pool: list[Var] = list(params)
    with bb.function("main", params):
        with bb.dataflow():
            for _ in range(draw(st.integers(1, steps))):
                step(draw, bb, pool, extents)
            found = [pool[-1], *draw(st.lists(st.sampled_from(pool), max_size=2, unique_by=id))]
            results = [bb.emit_output(op.add(v, 1)) if v in params else bb.emit_output(v) for v in dict.fromkeys(found)]
        bb.emit_func_output(results[0] if len(results) == 1 else tuple(results))
    return Program(bb.get())


def variant(draw: Draw, shape: tuple[DimLike, ...]) -> tuple[DimLike, ...]:
    """A shape that broadcasts to ``shape``."""
    kept = shape[draw(st.integers(0, len(shape))) :]
    return tuple(1 if draw(st.integers(0, 3)) == 0 else d for d in kept)


def step(draw: Draw, bb: BlockBuilder, pool: list[Var], extents: st.SearchStrategy[DimLike]) -> None:
    """One more value; nothing where it would be too large or has no type."""
    a = draw(st.sampled_from(pool[-3:]))
    shape, rank, dtype = a.type.shape, a.type.rank, a.type.dtype
    whole = dtype.startswith("int")
    kind = draw(st.sampled_from(("map", "map", "join", "join", "fold", "matmul", "view", "norm", "weights", "pick")))
    if kind == "map":
        value = getattr(op, draw(st.sampled_from(WHOLE_MAPS if whole else MAPS)))(a)
    elif kind == "join":
        partners = [b for b in pool if fits(b.type.shape, shape)]
        value = getattr(op, draw(st.sampled_from(JOINS)))(a, draw(st.sampled_from(partners)))
    elif kind == "fold" and rank:
        axes = tuple(draw(st.sets(st.integers(0, rank - 1), min_size=1)))
        name = draw(st.sampled_from(FOLDS))
        if (name == "mean" and whole) or (name != "sum" and any(may_be_empty(shape[i]) for i in axes)):
            name = "sum"
        value = getattr(op, name)(a, axes=axes, keepdims=draw(st.booleans()))
    elif kind == "norm" and rank and not whole:
        axis = draw(st.integers(0, rank - 1))
        value = op.softmax(a, axis=axis) if draw(st.booleans()) else op.l2_norm(a, axes=(axis,), keepdims=True)
    elif kind == "weights" and rank and isinstance(shape[-1], int):
        columns = draw(st.sampled_from(FIXED))
        data = held(np.random.default_rng(columns).uniform(-1.5, 1.5, (shape[-1], columns)), dtype)
        value = op.matmul(a, const(data, dtype)) if not large((*shape[:-1], columns)) else op.relu(a)
    elif kind == "matmul" and rank >= 2:
        others = [
            b for b in pool if b.type.rank >= 2 and b.type.shape[-2] == shape[-1] and b.type.shape[:-2] == shape[:-2]
        ]
        if not others:
            others = [bb.emit(op.permute_dims(a, axes=(*range(rank - 2), rank - 1, rank - 2)))]
        value = op.matmul(a, draw(st.sampled_from(others)))
    elif kind == "view" and rank:
        value = view(draw, a)
    elif kind == "pick" and rank:
        value = pick(draw, bb, a, pool)
    else:
        value = op.multiply(a, 3 if whole else 0.5)
    emitted = bb.emit(value)
    assert isinstance(emitted.type, TensorType)
    if emitted.type.rank <= 4 and not large(emitted.type.shape):
        pool.append(emitted)


def view(draw: Draw, a: Var) -> object:
    """The same elements in another order or shape."""
    shape, rank = a.type.shape, a.type.rank
    kind = draw(st.sampled_from(("permute", "merge", "expand", "split", "flip")))
    if kind == "permute":
        return op.permute_dims(a, axes=tuple(draw(st.permutations(range(rank)))))
    if kind == "merge" and rank > 1:
        i = draw(st.integers(0, rank - 2))
        return op.reshape(a, shape=(*shape[:i], product(shape[i : i + 2]), *shape[i + 2 :]))
    if kind == "split":
        i = draw(st.integers(0, rank - 1))
        if isinstance(shape[i], int) and shape[i] % 2 == 0 and rank < 4:
            return op.reshape(a, shape=(*shape[:i], shape[i] // 2, 2, *shape[i + 1 :]))
    if kind == "flip":
        return op.flip(a, axes=(draw(st.integers(0, rank - 1)),))
    return op.expand_dims(a, axes=(draw(st.integers(0, rank)),))


def pick(draw: Draw, bb: BlockBuilder, a: Var, pool: list[Var]) -> object:
    """Some elements, chosen by place or by comparison with an input."""
    axis = draw(st.integers(0, a.type.rank - 1))
    kind = draw(st.sampled_from(("concat", "where", "cumsum", "pad")))
    if kind == "concat":
        same = [b for b in pool if b.type.shape == a.type.shape]
        return op.concat([a, draw(st.sampled_from(same))], axis=axis)
    if kind == "where":
        partners = [b for b in pool[:1] if fits(b.type.shape, a.type.shape)] or [a]
        return op.where(bb.emit(op.greater(partners[0], 0)), a, 1)
    if kind == "cumsum":
        return op.cumsum(a, axis=axis)
    return op.pad(a, pads=tuple((1, 2) if i == axis else (0, 0) for i in range(a.type.rank)))


def fits(small: tuple[DimLike, ...], shape: tuple[DimLike, ...]) -> bool:
    """Whether one shape broadcasts to the other for all sizes."""
    tail = shape[len(shape) - len(small) :] if small else ()
    return len(small) <= len(shape) and all(s in (1, d) for s, d in zip(small, tail, strict=True))


def may_be_empty(d: DimLike) -> bool:
    """Whether an extent may be 0."""
    return evaluate(d, {s.name: s.min for s in SYMBOLS}) < 1
