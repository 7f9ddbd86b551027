"""Converters of elementwise operators."""

from __future__ import annotations

from collections.abc import Mapping
from math import inf, log, pi
from types import MappingProxyType
from typing import Final

from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.torch.tensors import promoted
from relaxir.frontends.values import Value
from relaxir.support.dtypes import info

LOGICAL: Final[Mapping[str, str]] = MappingProxyType(
    {
        "add": "logical_or",
        "multiply": "logical_and",
        "maximum": "logical_or",
        "minimum": "logical_and",
        "bitwise_and": "logical_and",
        "bitwise_or": "logical_or",
        "bitwise_xor": "logical_xor",
        "bitwise_not": "logical_not",
    }
)
"""Operators that mean these on bools."""
ORDERS: Final = ("greater", "greater_equal", "less", "less_equal")
"""Comparisons that take bools as 0 and 1."""


def unary(name: str) -> Converter:
    """An operator that keeps the dtype."""

    def convert(n: Node) -> Value:
        x = n.value()
        return n.emit(LOGICAL.get(name, name) if x.type.dtype == "bool" else name, x)

    return convert


def float_unary(name: str) -> Converter:
    """An operator of floats; integers become the default float."""
    return lambda n: n.emit(name, n.floating(n.value()))


def rounding(name: str) -> Converter:
    """Rounding: integers stay as they are."""

    def convert(n: Node) -> Value:
        x, decimals = n.value(), n.integer("decimals")
        if not info(x.type.dtype).is_float:
            return x
        if not decimals:
            return n.emit(name, x)
        before, after = ("multiply", "divide") if decimals > 0 else ("divide", "multiply")
        factor = n.scalar(10.0 ** abs(decimals), x.type.dtype)
        return n.emit(after, n.emit(name, n.emit(before, x, factor)), factor)

    return convert


def binary(name: str) -> Converter:
    """An operator in the common dtype."""

    def convert(n: Node) -> Value:
        a, b = n.pair()
        if a.type.dtype == "bool" and name in ORDERS:
            a, b = n.cast(a, "uint8"), n.cast(b, "uint8")
        return n.emit(LOGICAL.get(name, name) if a.type.dtype == "bool" else name, a, b)

    return convert


def scaled(name: str, reverse: bool = False) -> Converter:
    """Sum or difference with a factor ``alpha`` of the second operand."""

    def convert(n: Node) -> Value:
        a, b = n.pair(n.out_dtype)
        if reverse:
            a, b = b, a
        alpha = n.get("alpha", 1)
        if alpha != 1:
            b = n.emit("multiply", b, n.operand(alpha, b.type.dtype))
        return n.emit(LOGICAL.get(name, name) if a.type.dtype == "bool" else name, a, b)

    return convert


def divide(n: Node) -> Value:
    """True quotient, or rounded as asked."""
    mode = n.get("rounding_mode")
    a, b = n.pair(n.out_dtype)
    if mode is None:
        return n.emit("divide", a, b)
    return n.emit({"floor": "floor_divide", "trunc": "trunc_divide"}[mode], a, b)


def power(n: Node) -> Value:
    """Small constant exponents are products and roots, as in torch."""
    exponent = n.args["exponent"]
    dtype = n.out_dtype
    x = n.operand(n.args["self"], dtype)
    if isinstance(exponent, int | float) and not isinstance(exponent, bool):
        if exponent in (2, 3):
            square = n.emit("multiply", x, x)
            return square if exponent == 2 else n.emit("multiply", square, x)
        if exponent == 1:
            return x
        if exponent in (0.5, -0.5, -1) and info(dtype).is_float:
            return n.emit({0.5: "sqrt", -0.5: "rsqrt", -1: "reciprocal"}[exponent], x)
    return n.emit("power", x, n.operand(exponent, dtype))


def logical(name: str) -> Converter:
    """An operator of truth values; numbers are true unless 0."""

    def convert(n: Node) -> Value:
        names = [k for k in ("self", "other") if k in n.args]
        return n.emit(name, *(n.truth(n.value(k)) for k in names))

    return convert


def clamp(n: Node) -> Value:
    """Bounds may be numbers, tensors or missing."""
    dtype = n.out_dtype
    result = n.operand(n.args["self"], dtype)
    for name, op in (("min", "maximum"), ("max", "minimum")):
        if n.has(name):
            result = n.emit(op, result, n.operand(n.get(name), dtype))
    return result


def where(n: Node) -> Value | tuple[Value, ...]:
    """Choice by a mask; without values the positions where it holds."""
    condition = n.truth(n.value("condition"))
    if "self" not in n.args:
        rows = n.emit("nonzero", condition)
        return tuple(column(n, rows, axis) for axis in range(max(condition.type.rank, 1)))
    dtype = promoted(n.args["self"], n.args["other"])
    return n.emit("where", condition, *(n.operand(n.args[k], dtype) for k in ("self", "other")))


def column(n: Node, rows: Value, axis: int) -> Value:
    """One row of positions as a vector."""
    row = n.emit("strided_slice", rows, axes=(0,), begin=(axis,), size=(1,))
    return n.emit("squeeze", row, axes=(0,))


def masked_fill(n: Node) -> Value:
    """A value where the mask holds."""
    x = n.value()
    return n.emit("where", n.truth(n.value("mask")), n.operand(n.args["value"], x.type.dtype), x)


def fused(op: str) -> Converter:
    """``self + value * (tensor1 op tensor2)``."""

    def convert(n: Node) -> Value:
        dtype = n.out_dtype
        x, a, b = (n.operand(n.args[k], dtype) for k in ("self", "tensor1", "tensor2"))
        term = n.emit(op, a, b)
        factor = n.get("value", 1)
        return n.emit("add", x, term if factor == 1 else n.emit("multiply", term, n.operand(factor, dtype)))

    return convert


def lerp(n: Node) -> Value:
    """``start + weight * (end - start)``."""
    dtype = n.out_dtype
    start, end, weight = (n.operand(n.args[k], dtype) for k in ("self", "end", "weight"))
    return n.emit("add", start, n.emit("multiply", weight, n.emit("subtract", end, start)))


def to_dtype(n: Node) -> Value:
    """Another dtype; device and memory layout mean nothing here."""
    return n.cast(n.value(), n.out_dtype)


def identity(n: Node) -> Value:
    """The first argument."""
    return n.value(next(iter(n.args)))


def copied(n: Node) -> Value:
    """``src`` at the shape and dtype of ``self``."""
    x = n.value()
    return n.broadcast(n.cast(n.value("src"), x.type.dtype), x.type.shape)


def dropout(n: Node) -> Value | tuple[Value, ...]:
    """The input, at inference."""
    if n.flag("train") or n.flag("training"):
        n.unsupported("training mode")
    x = n.value(next(iter(n.args)))
    return (x, n.full(x.type.shape, True, "bool")) if isinstance(n.fx.meta.get("val"), tuple | list) else x


def times(name: str, factor: float, inside: bool = False) -> Converter:
    """An operator with a factor inside or outside."""

    def convert(n: Node) -> Value:
        x = n.floating(n.value())
        if inside:
            return n.emit(name, n.emit("multiply", x, factor))
        return n.emit("multiply", n.emit(name, x), factor)

    return convert


def erfc(n: Node) -> Value:
    """``1 - erf(x)``."""
    return n.emit("subtract", n.scalar(1.0, n.out_dtype), n.emit("erf", n.floating(n.value())))


def square(n: Node) -> Value:
    """``x * x``."""
    return n.emit("multiply", n.value(), n.value())


def frac(n: Node) -> Value:
    """Part after the point."""
    return n.emit("subtract", n.value(), n.emit("trunc", n.value()))


def sign(n: Node) -> Value:
    """-1, 0 or 1; 0 for NaN."""
    x = n.value()
    if not info(x.type.dtype).is_float:
        return x if x.type.dtype == "bool" else n.emit("sign", x)
    return n.emit("where", n.emit("isnan", x), n.scalar(0, x.type.dtype), n.emit("sign", x))


def signbit(n: Node) -> Value:
    """Whether the sign is negative: of -0.0 too."""
    x = n.value()
    below = n.emit("less", x, 0)
    if not info(x.type.dtype).is_float:
        return below
    return n.emit("logical_or", below, n.emit("less", n.emit("reciprocal", x), 0))


def copysign(n: Node) -> Value:
    """The first operand's size with the second one's sign."""
    a, b = n.pair(n.out_dtype)
    return signed(n, n.emit("abs", a), b)


def signed(n: Node, size: Value, b: Value) -> Value:
    """A number of at least 0 with the sign of another one, which may be -0.0."""
    below = n.emit("logical_or", n.emit("less", b, 0), n.emit("less", n.emit("reciprocal", b), 0))
    return n.emit("where", below, n.emit("negative", size), size)


def ldexp(n: Node) -> Value:
    """``self * 2 ** other``."""
    a, b = n.pair(n.out_dtype)
    return n.emit("multiply", a, n.emit("power", n.scalar(2, n.out_dtype), b))


def angle(n: Node) -> Value:
    """0 for what is positive, pi for what is negative, NaN for NaN."""
    x = n.floating(n.value())
    turned = n.emit("where", n.emit("less", x, 0), n.scalar(pi, x.type.dtype), n.scalar(0, x.type.dtype))
    return n.emit("where", n.emit("isnan", x), x, turned)


def ignoring_nan(name: str) -> Converter:
    """An extreme of two operands; a NaN gives way to the other one."""

    def convert(n: Node) -> Value:
        a, b = n.pair()
        if not info(a.type.dtype).is_float:
            return n.emit(LOGICAL.get(name, name) if a.type.dtype == "bool" else name, a, b)
        other = n.emit("where", n.emit("isnan", b), a, n.emit(name, a, b))
        return n.emit("where", n.emit("isnan", a), b, other)

    return convert


def hypot(n: Node) -> Value:
    """``sqrt(self * self + other * other)``."""
    return hypotenuse(n, *n.pair(n.out_dtype))


def hypotenuse(n: Node, a: Value, b: Value) -> Value:
    """``sqrt(a * a + b * b)``, scaled so that squares do not overflow; infinite where one side is, beside NaN too."""
    a, b = n.emit("abs", a), n.emit("abs", b)
    big = n.emit("maximum", a, b)
    unit = n.emit("divide", n.emit("minimum", a, b), big)
    length = n.emit("multiply", big, n.emit("sqrt", n.emit("add", n.emit("multiply", unit, unit), 1)))
    length = n.emit("where", n.emit("equal", big, 0), big, length)
    infinite = n.emit("logical_or", n.emit("isinf", a), n.emit("isinf", b))
    return n.emit("where", infinite, n.scalar(inf, a.type.dtype), length)


def classify(name: str) -> Converter:
    """NaN and infinity tests; integers are finite."""

    def convert(n: Node) -> Value:
        x = n.value()
        if not info(x.type.dtype).is_float:
            return n.full(x.type.shape, name == "isfinite", "bool")
        if name != "isfinite":
            return n.emit(name, x)
        return n.emit("logical_not", n.emit("logical_or", n.emit("isnan", x), n.emit("isinf", x)))

    return convert


FLOAT_UNARY: Final = (
    "acos acosh asin asinh atan atanh cos cosh erf exp expm1 log log1p log2 reciprocal rsqrt sigmoid sin sinh sqrt tan "
    "tanh"
)
BINARY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "bitwise_and": "bitwise_and",
        "bitwise_or": "bitwise_or",
        "bitwise_xor": "bitwise_xor",
        "__and__": "bitwise_and",
        "__or__": "bitwise_or",
        "__xor__": "bitwise_xor",
        "bitwise_left_shift": "left_shift",
        "__lshift__": "left_shift",
        "bitwise_right_shift": "right_shift",
        "__rshift__": "right_shift",
        "eq": "equal",
        "ne": "not_equal",
        "lt": "less",
        "le": "less_equal",
        "gt": "greater",
        "ge": "greater_equal",
        "fmod": "trunc_mod",
        "remainder": "floor_mod",
        "floor_divide": "floor_divide",
        "mul": "multiply",
        "multiply": "multiply",
        "maximum": "maximum",
        "minimum": "minimum",
    }
)

ELEMENTWISE: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **{k: float_unary(k) for k in FLOAT_UNARY.split()},
        **{
            k: unary(v)
            for k, v in (
                ("abs", "abs"),
                ("bitwise_not", "bitwise_not"),
                ("neg", "negative"),
            )
        },
        **{k: rounding(k) for k in ("ceil", "floor", "round", "trunc")},
        **{k: binary(v) for k, v in BINARY.items()},
        **{k: logical(k) for k in ("logical_and", "logical_not", "logical_or", "logical_xor")},
        **{k: classify(k) for k in ("isnan", "isinf", "isfinite")},
        **dict.fromkeys(
            (
                "alias",
                "clone",
                "contiguous",
                "detach",
                "detach_",
                "lift",
                "lift_fresh",
                "lift_fresh_copy",
                "positive",
                "resolve_conj",
                "resolve_neg",
                "_conj",
                "_conj_physical",
                "conj_physical",
                "real",
            ),
            identity,
        ),
        **dict.fromkeys(("to", "_to_copy", "type_as"), to_dtype),
        **dict.fromkeys(("dropout", "feature_dropout", "alpha_dropout", "native_dropout"), dropout),
        "add": scaled("add"),
        "angle": angle,
        **dict.fromkeys(("arctan2", "atan2"), lambda n: n.emit("atan2", *n.pair(n.out_dtype))),
        "addcdiv": fused("divide"),
        "addcmul": fused("multiply"),
        "clamp": clamp,
        "clamp_max": clamp,
        "clamp_min": clamp,
        "clip": clamp,
        "copy": copied,
        "copysign": copysign,
        "fmax": ignoring_nan("maximum"),
        "fmin": ignoring_nan("minimum"),
        "hypot": hypot,
        "fill": lambda n: n.full(n.shape, n.get("value"), n.value().type.dtype),
        "zero": lambda n: n.full(n.shape, 0, n.value().type.dtype),
        "deg2rad": times("negative", -pi / 180),
        "div": divide,
        "divide": divide,
        "erfc": erfc,
        "exp2": times("exp", log(2), inside=True),
        "frac": frac,
        "ldexp": ldexp,
        "lerp": lerp,
        "log10": times("log", 1 / log(10)),
        "masked_fill": masked_fill,
        "pow": power,
        "rsub": scaled("subtract", reverse=True),
        "sgn": sign,
        "sign": sign,
        "signbit": signbit,
        "special_expit": float_unary("sigmoid"),
        "square": square,
        "sub": scaled("subtract"),
        "subtract": scaled("subtract"),
        "true_divide": divide,
        "where": where,
    }
)
"""Elementwise operators by the name of the ATen packet."""
