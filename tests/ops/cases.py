"""Cases from the operators' own examples: types, assignments of sizes to symbols, operand arrays."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from relaxir.ir import Attrs, Example, InferCtx, Op, ShapeType, TensorType, TupleType, Type
from relaxir.ir.attrs import map_attrs
from relaxir.ir.types import parse_type, split_commas
from relaxir.support.bfloat16 import bfloat16_to_float32, float32_to_bfloat16
from relaxir.support.dtypes import info
from relaxir.sym import Dim, Facts, dim, evaluate, free_dims, parse

SIZES = (0, 1, 2, 3, 7, 16, 33)
WORDS = frozenset({"min", "max", "floordiv", "mod", "ceildiv", "broadcast", "shape"})


def scope_of(
    texts: tuple[str, ...], attrs: Attrs, min_size: int = 0, pinned: Mapping[str, int] = MappingProxyType({})
) -> dict[str, Dim]:
    """Symbols named in type texts and held by attributes; at least ``min_size``, or what they are pinned to."""
    found: dict[str, Dim] = {}

    def note(d: Any) -> Any:
        for s in free_dims(d):
            found[s.name] = s
        return d

    map_attrs(attrs, note)
    for text in texts:
        inner = re.sub(r"^\s*\w+", "", text)
        for word in re.findall(r"[A-Za-z_]\w*", inner):
            if word not in WORDS:
                found.setdefault(word, dim(word, min=min(min_size, pinned.get(word, min_size))))
    return found


def read_type(text: str, scope: dict[str, Dim]) -> Type:
    """`f32[n, 4]`, or `shape(n, 4)` for a shape operand."""
    match = re.fullmatch(r"\s*shape\((.*)\)\s*", text)
    return ShapeType(tuple(parse(p, scope) for p in split_commas(match[1]))) if match else parse_type(text, scope)


def assignments(example: Example, scope: dict[str, Dim]) -> Iterator[dict[str, int]]:
    """Sizes for the symbols: each of `SIZES`, all equal and staggered; pinned ones and minima respected."""
    names = sorted(scope)
    seen = set()
    for stagger in (0, 2, 5):
        for i in range(len(SIZES)):
            env = {}
            for k, name in enumerate(names):
                size = SIZES[(i + stagger * k) % len(SIZES)]
                low = max(example.min_size, scope[name].min)
                step = scope[name].multiple_of
                size = -(-max(size, low) // step) * step
                if scope[name].max is not None:
                    size = min(size, scope[name].max)
                env[name] = example.sizes.get(name, size)
            if tuple(env.items()) not in seen and volume_ok(env):
                seen.add(tuple(env.items()))
                yield env


def volume_ok(env: dict[str, int]) -> bool:
    """Keep the slow evaluator quick."""
    return int(np.prod([max(1, v) for v in env.values()])) <= 800


def holds(ctx: InferCtx, env: dict[str, int]) -> bool:
    """Whether the run-time checks that inference left behind hold for these sizes."""
    compare = {"==": lambda a, b: a == b, "<=": lambda a, b: a <= b, "<": lambda a, b: a < b}
    return all(
        compare[c.relation.op](evaluate(c.relation.left, env), evaluate(c.relation.right, env)) for c in ctx.checks
    )


def infer(op: Op[Any], types: tuple[Type, ...], attrs: Attrs, scope: dict[str, Dim]) -> tuple[Type, InferCtx]:
    """Type of a call of the example, with what inference left behind."""
    ctx = InferCtx(op.name, Facts(scope.values()), tuple(scope))
    return op.type_of(types, attrs, ctx), ctx


def draw(t: TensorType, env: dict[str, int], example: Example, rng: np.random.Generator) -> np.ndarray:
    """A random array as programs hold it."""
    shape = tuple(evaluate(d, env) for d in t.shape)
    kind = info(t.dtype)
    if kind.name == "bool":
        return rng.integers(0, 2, shape).astype(bool)
    if kind.is_float:
        values = np.asarray(rng.uniform(example.low, example.high, shape))
        return float32_to_bfloat16(values) if t.dtype == "bfloat16" else np.asarray(values.astype(kind.numpy))
    limits = np.iinfo(kind.numpy)
    low, high = max(limits.min, int(example.low)), min(limits.max, int(example.high))
    return np.asarray(rng.integers(low, high, shape, kind.numpy, endpoint=True))


def operands(types: tuple[Type, ...], env: dict[str, int], example: Example, seed: int = 0) -> tuple[np.ndarray, ...]:
    """Arrays for the tensor operands, literals where the example has them."""
    rng = np.random.default_rng([seed, *env.values()])
    found = []
    for i, t in enumerate(types):
        if not isinstance(t, TensorType):
            continue
        given = example.values[i] if i < len(example.values) else None
        found.append(draw(t, env, example, rng) if given is None else np.asarray(given).astype(info(t.dtype).numpy))
    return tuple(found)


def outputs(t: Type) -> tuple[TensorType, ...]:
    """Result types as a tuple of tensors."""
    fields = t.fields if isinstance(t, TupleType) else (t,)
    assert all(isinstance(f, TensorType) for f in fields)
    return fields  # type: ignore[return-value]  # tensors, as asserted


def fixed(attrs: Attrs, env: dict[str, int]) -> Attrs:
    """Attributes with their symbols replaced by sizes."""
    return map_attrs(attrs, lambda d: evaluate(d, env))


TOLERANCE = {"float16": (2e-3, 2e-3), "bfloat16": (1.6e-2, 1.6e-2), "float32": (2e-5, 2e-5), "float64": (1e-9, 1e-9)}


def close(got: np.ndarray, want: np.ndarray, t: TensorType, example: Example) -> None:
    """Equal exactly for integers and bools, within the dtype's tolerance for floats (NaN equal NaN).

    A bfloat16 result is an array of ml_dtypes' type if something in this process has imported ml_dtypes, else its bits.
    """
    if t.dtype == got.dtype.name == "bfloat16":
        got = got.view(np.uint16)
    assert got.dtype == want.dtype
    assert got.shape == want.shape
    if t.dtype == "bfloat16":
        got, want = bfloat16_to_float32(got), bfloat16_to_float32(want)
    if not info(t.dtype).is_float:
        np.testing.assert_array_equal(got, want)
        return
    rtol, atol = TOLERANCE[t.dtype]
    rtol = rtol if example.rtol is None else example.rtol
    atol = atol if example.atol is None else example.atol
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), rtol, atol, equal_nan=True)
