"""Converters of counts and common divisors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.torch.order import dropped
from relaxir.frontends.values import Value
from relaxir.ops.indexing import expand_target
from relaxir.sym import max_, product, sub

STEPS: Final = 93
"""Steps of Euclid's algorithm with 64 bits: neighbours among Fibonacci's numbers take the most."""

# ---- common divisors -----------------------------------------------------------------------------------------------


def size(n: Node, x: Value) -> Value:
    """Integers without their sign."""
    return x if x.type.dtype.startswith("u") else n.emit("abs", x)


def divisor(n: Node, a: Value, b: Value) -> Value:
    """Greatest common divisor of each pair, by Euclid's algorithm: a loop until all remainders are 0."""
    shape = expand_target(a.type.shape, b.type.shape, n.facts)
    first, second = n.broadcast(size(n, a), shape), n.broadcast(size(n, b), shape)

    def step(_: Value, states: tuple[Value, ...]) -> tuple[Value, Sequence[Value], Sequence[Value]]:
        large, small = states
        stays = n.emit("equal", small, 0)
        rest = n.emit("floor_mod", large, n.emit("where", stays, n.scalar(1, large.type.dtype), small))
        later = n.emit("where", stays, large, small), n.emit("where", stays, small, rest)
        return n.truth(n.emit("max", later[1], axes=None)), later, ()

    return n.host.run_loop(step, (first, second), STEPS, None, ())[0]


def gcd(n: Node) -> Value:
    """Greatest common divisor."""
    return divisor(n, *n.pair())


def lcm(n: Node) -> Value:
    """Least common multiple; 0 where one of both is 0."""
    a, b = n.pair()
    common = n.emit("maximum", divisor(n, a, b), 1)
    return size(n, n.emit("multiply", n.emit("floor_divide", a, common), b))


# ---- counts --------------------------------------------------------------------------------------------------------


def bincount(n: Node) -> Value:
    """How often each number occurs, or the sum of its weights."""
    x = n.cast(n.value(), "int64")
    most = n.emit("max", n.emit("concat", x, n.literal(np.array([-1]), "int64"), axis=0), axes=(0,))
    (size,) = n.read(n.emit("add", most, 1), 0, "bins")
    bins = max_(size, n.get("minlength", 0))
    zeros = n.full((bins,), 0, n.out_dtype)
    count = x.type.shape[0]
    weights = n.cast(n.value("weights"), n.out_dtype) if n.has("weights") else n.full((count,), 1, n.out_dtype)
    return n.emit("scatter_nd", zeros, n.reshape(x, (count, 1)), weights, reduction="add")


def histc(n: Node) -> Value:
    """How many elements lie in each of some intervals of equal width; those outside of all count nowhere.

    With both ends 0 the intervals span the elements themselves, and one of width 0 is widened by 1 to each side.
    """
    x, bins = n.value(), n.integer("bins", 100)
    dtype, count = x.type.dtype, product(x.type.shape)
    line = n.reshape(x, (count,))
    low, high = (n.operand(n.get(k, 0), dtype) for k in ("min", "max"))
    if n.get("min", 0) == n.get("max", 0) == 0:
        low, high = (n.emit(k, line, axes=None) for k in ("min", "max"))
    narrow = n.cast(n.emit("equal", low, high), dtype)
    low, high = n.emit("subtract", low, narrow), n.emit("add", high, narrow)
    share = n.emit("divide", n.emit("multiply", n.emit("subtract", line, low), bins), n.emit("subtract", high, low))
    inside = n.emit("logical_and", n.emit("less_equal", low, line), n.emit("less_equal", line, high))
    place = n.cast(n.emit("where", inside, share, n.scalar(0, dtype)), "int64")
    place = n.reshape(n.emit("minimum", place, bins - 1), (count, 1))
    return n.emit("scatter_nd", n.full((bins,), 0, dtype), place, n.cast(inside, dtype), reduction="add")


def mode(n: Node) -> tuple[Value, ...]:
    """The element that occurs most often along an axis, the least one of several, and its last place."""
    x = n.value()
    if not x.type.rank:
        return x, n.scalar(0, "int64")
    axis = n.axis(default=-1)
    order = n.emit("sort", x, axis=axis, descending=False)
    rows, columns = (n.emit("expand_dims", order, axes=(axis + k,)) for k in (1, 0))
    counts = n.emit("sum", n.cast(n.emit("equal", rows, columns), "int64"), axes=(axis + 1,))
    best = n.emit("argmax", counts, axis=axis, keepdims=True)
    value = n.emit("gather_elements", order, best, axis=axis)
    same = n.cast(n.emit("equal", x, value), "uint8")
    last = n.emit("argmax", n.emit("flip", same, axes=(axis,)), axis=axis, keepdims=True)
    place = n.emit("subtract", n.operand(sub(x.type.shape[axis], 1), "int64"), last)
    return (value, place) if n.flag("keepdim") else (dropped(n, value, axis), dropped(n, place, axis))


COUNTS: Final[Mapping[str, Converter]] = MappingProxyType(
    {"bincount": bincount, "gcd": gcd, "histc": histc, "lcm": lcm, "mode": mode}
)
"""Counts and common divisors by the name of the ATen packet."""
