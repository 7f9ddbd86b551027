"""Converters of reductions, running reductions, orders and softmax."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.values import Value
from relaxir.sym import floordiv, max_, mul, sub

INFINITY: Final = float("inf")


def reduction(name: str) -> Converter:
    """A reduction in the result's dtype (bools and integers are summed as int64)."""

    def convert(n: Node) -> Value:
        x = n.cast(n.value(), n.out_dtype)
        return n.emit(name, x, axes=n.axes(), keepdims=n.flag("keepdim"))

    return convert


def truth_reduction(name: str) -> Converter:
    """``any`` or ``all``."""

    def convert(n: Node) -> Value:
        y = n.emit(name, n.truth(n.value()), axes=n.axes(), keepdims=n.flag("keepdim"))
        return n.cast(y, n.out_dtype)

    return convert


def extreme(op: str) -> Converter:
    """``max`` and ``min``: of all elements, along an axis with positions, or of two tensors."""

    def convert(n: Node) -> Value | tuple[Value, ...]:
        if "other" in n.args:
            return n.emit({"max": "maximum", "min": "minimum"}[op], *n.pair())
        x = n.value()
        if not n.has("dim"):
            return n.emit(op, x, axes=None)
        if not x.type.rank:
            return x, n.scalar(0, "int64")
        axis, keep = n.axis(), n.flag("keepdim")
        y = n.emit(op, x, axes=(axis,), keepdims=keep)
        ranked = n.cast(x, "uint8") if x.type.dtype == "bool" else x
        return y, n.emit(f"arg{op}", ranked, axis=axis, keepdims=keep)

    return convert


def arg_reduction(name: str) -> Converter:
    """Position of an extreme along an axis, or among all elements."""

    def convert(n: Node) -> Value:
        x = n.value()
        if x.type.dtype == "bool":
            x = n.cast(x, "uint8")
        if not x.type.rank:
            return n.scalar(0, "int64")
        if n.has("dim"):
            return n.emit(name, x, axis=n.axis(), keepdims=n.flag("keepdim"))
        flat = n.emit(name, n.reshape(x, (n.count(x.type.shape),)), axis=0)
        return n.reshape(flat, (1,) * x.type.rank) if n.flag("keepdim") else flat

    return convert


def correction(n: Node) -> float:
    """Subtracted from the count of a variance."""
    if "unbiased" in n.args:
        return float(n.flag("unbiased", True))
    return float(n.number("correction", 1))


def variance(name: str, with_mean: bool = False) -> Converter:
    """Variance or deviation, optionally with the mean."""

    def convert(n: Node) -> Value | tuple[Value, ...]:
        x = n.value()
        less = correction(n)
        if not less.is_integer():
            n.unsupported(f"correction {less}")
        attrs = {"axes": n.axes(), "keepdims": n.flag("keepdim")}
        y = n.emit(name, x, correction=int(less), **attrs)
        return (y, n.emit("mean", x, **attrs)) if with_mean else y

    return convert


def vector_norm(n: Node) -> Value:
    """p-norm over axes."""
    x = n.cast(n.value(), n.out_dtype)
    order = float(n.number("ord" if "ord" in n.args else "p", 2))
    return p_norm(n, x, order, n.axes(), n.flag("keepdim"))


def distance(n: Node) -> Value:
    """p-norm of a difference."""
    a, b = n.pair(n.out_dtype)
    return p_norm(n, n.emit("subtract", a, b), float(n.number("p", 2)), None)


def p_norm(n: Node, x: Value, order: float, axes: tuple[int, ...] | None, keepdims: bool = False) -> Value:
    """``sum(abs(x) ** order) ** (1 / order)``; infinite orders are extremes, order 0 counts."""
    attrs = {"axes": axes, "keepdims": keepdims}
    if order in (1.0, 2.0):
        return n.emit("l1_norm" if order == 1.0 else "l2_norm", x, **attrs)
    size = n.emit("abs", x)
    if abs(order) == INFINITY:
        return n.emit("max" if order > 0 else "min", size, **attrs)
    if order == 0.0:
        return n.emit("sum", n.cast(n.truth(x), x.type.dtype), **attrs)
    total = n.emit("sum", n.emit("power", size, n.scalar(order, x.type.dtype)), **attrs)
    return n.emit("power", total, n.scalar(1 / order, x.type.dtype))


def distances(n: Node, a: Value, b: Value) -> Value:
    """p-norms of the differences of all rows of two tensors."""
    left, right = n.emit("expand_dims", a, axes=(-2,)), n.emit("expand_dims", b, axes=(-3,))
    return p_norm(n, n.emit("subtract", left, right), float(n.number("p", 2)), (-1,))


def pair_distances(n: Node) -> Value:
    """Distances of rows ``i < j`` of a matrix, as a vector."""
    x = n.value()
    rows = x.type.shape[0]
    above = n.emit("triu", n.full((rows, rows), 1, "bool"), k=1)
    flat = [n.reshape(v, (mul(rows, rows),)) for v in (distances(n, x, x), above)]
    return n.reshape(n.emit("compress", *flat, axis=0), (floordiv(mul(rows, sub(rows, 1)), 2),))


def count_nonzero(n: Node) -> Value:
    """Number of elements that are not 0."""
    return n.emit("sum", n.cast(n.truth(n.value()), "int64"), axes=n.axes())


def scan(name: str) -> Converter:
    """Running sum or product."""

    def convert(n: Node) -> Value:
        x = n.cast(n.value(), n.out_dtype)
        return n.emit(name, x, axis=n.axis()) if x.type.rank else x

    return convert


def softmax(name: str) -> Converter:
    """Softmax or its logarithm."""

    def convert(n: Node) -> Value:
        x = n.cast(n.value(), n.out_dtype)
        if x.type.rank:
            return n.emit(name, x, axis=n.axis())
        return n.reshape(n.emit(name, n.reshape(x, (1,)), axis=0), ())

    return convert


def safe_softmax(n: Node) -> Value:
    """Softmax that gives 0 where a whole row is minus infinity."""
    x = n.cast(n.value(), n.out_dtype)
    axis = n.axis()
    masked = n.emit("equal", n.emit("max", x, axes=(axis,), keepdims=True), n.scalar(-INFINITY, x.type.dtype))
    return n.emit("where", masked, n.scalar(0, x.type.dtype), n.emit("softmax", x, axis=axis))


def sort(n: Node) -> tuple[Value, ...]:
    """Sorted elements and their positions."""
    x = n.value()
    if not x.type.rank:
        return x, n.scalar(0, "int64")
    attrs = {"axis": n.axis(default=-1), "descending": n.flag("descending")}
    positions = n.emit("argsort", x, **attrs)
    return n.emit("gather_elements", x, positions, axis=attrs["axis"]), positions


def argsort(n: Node) -> Value:
    """Positions in order."""
    return sort(n)[1]


def topk(n: Node) -> tuple[Value, ...]:
    """The k largest or smallest with positions."""
    return n.emit_tuple("topk", n.value(), k=n.get("k"), axis=n.axis(default=-1), largest=n.flag("largest", True))


def logsumexp(n: Node) -> Value:
    """Logarithm of the sum of exponentials."""
    return n.emit("logsumexp", n.floating(n.value()), axes=n.axes(), keepdims=n.flag("keepdim"))


def cosine_similarity(n: Node) -> Value:
    """Scalar product of unit vectors."""
    dtype = n.out_dtype
    a, b = (n.operand(n.args[k], dtype) for k in ("x1", "x2"))
    rank = max(a.type.rank, b.type.rank)
    axis = n.integer("dim", 1) % rank - rank
    eps = n.scalar(float(n.number("eps", 1e-8)), dtype)
    units = []
    for v in (a, b):
        length = n.emit("l2_norm", v, axes=(axis,), keepdims=True)
        units.append(n.emit("divide", v, n.emit("maximum", length, eps)))
    return n.emit("sum", n.emit("multiply", *units), axes=(axis,))


def linspace(n: Node) -> Value:
    """Even steps from start to end; the second half counts from the end, as in torch."""
    dtype = n.out_dtype
    wide = "float64" if dtype == "float64" else "float32"
    start, end = (n.operand(n.args[k], wide) for k in ("start", "end"))
    steps = n.get("steps")
    if isinstance(steps, int) and steps < 2:
        return n.cast(n.full((steps,), start, wide), dtype)
    place = n.cast(n.emit("arange", start=0, stop=steps, step=1, dtype="int64"), wide)
    last = n.operand(steps - 1, wide)
    step = n.emit("divide", n.emit("subtract", end, start), last)
    low = n.emit("add", start, n.emit("multiply", place, step))
    high = n.emit("subtract", end, n.emit("multiply", n.emit("subtract", last, place), step))
    first_half = n.emit("less", place, n.operand(steps // 2, wide))
    return n.cast(n.emit("where", first_half, low, high), dtype)


def bucketize(n: Node) -> Value:
    """Positions in a sorted vector."""
    edges, values = n.value("boundaries"), n.value()
    dtype = "float64" if edges.type.dtype != values.type.dtype else edges.type.dtype
    found = n.emit("searchsorted", n.cast(edges, dtype), n.cast(values, dtype), right=n.flag("right"))
    return n.cast(found, n.out_dtype)


def diff(n: Node) -> Value:
    """Differences of neighbours along an axis, repeatedly."""
    axis = n.axis(default=-1)
    parts = [p for p in (n.optional("prepend"), n.value(), n.optional("append")) if p is not None]
    x = n.emit("concat", *parts, axis=axis) if len(parts) > 1 else parts[0]
    for _ in range(n.integer("n", 1)):
        less = max_(0, sub(x.type.shape[axis], 1))
        begin = sub(x.type.shape[axis], less)
        low, high = (n.emit("strided_slice", x, axes=(axis,), begin=(b,), size=(less,)) for b in (0, begin))
        x = n.emit("logical_xor" if x.type.dtype == "bool" else "subtract", high, low)
    return x


REDUCTION: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "_cdist_forward": lambda n: distances(n, n.value("x1"), n.value("x2")),
        "_log_softmax": softmax("log_softmax"),
        "_pdist_forward": pair_distances,
        "_safe_softmax": safe_softmax,
        "_softmax": softmax("softmax"),
        "all": truth_reduction("all"),
        "amax": reduction("max"),
        "amin": reduction("min"),
        "any": truth_reduction("any"),
        "argmax": arg_reduction("argmax"),
        "argmin": arg_reduction("argmin"),
        "argsort": argsort,
        "bucketize": bucketize,
        "cosine_similarity": cosine_similarity,
        "count_nonzero": count_nonzero,
        "cumprod": scan("cumprod"),
        "cumsum": scan("cumsum"),
        "diff": diff,
        "dist": distance,
        "linalg_vector_norm": vector_norm,
        "linspace": linspace,
        "log_softmax": softmax("log_softmax"),
        "logsumexp": logsumexp,
        "max": extreme("max"),
        "mean": reduction("mean"),
        "min": extreme("min"),
        "norm": vector_norm,
        "prod": reduction("prod"),
        "softmax": softmax("softmax"),
        "sort": sort,
        "std": variance("std"),
        "std_mean": variance("std", with_mean=True),
        "sum": reduction("sum"),
        "topk": topk,
        "var": variance("variance"),
        "var_mean": variance("variance", with_mean=True),
    }
)
"""Reductions and orders by the name of the ATen packet."""
