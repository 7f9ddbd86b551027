"""Converters of elementwise operators and reductions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from onnx import TensorProto

from relaxir.frontends.onnx.axes import around, axis_flags, kept_extents, split_axes
from relaxir.frontends.onnx.narrow import BY_NAME, NARROW, Narrow, decoded, encoded
from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.tensors import element_type
from relaxir.frontends.onnx.values import Value
from relaxir.ops.indexing import normalize_index
from relaxir.support.dtypes import info
from relaxir.sym import min_, product, sub


def unary(name: str) -> Converter:
    """An operator of one tensor without attributes."""
    return lambda n: n.emit(name, n.input(0))


def binary(name: str) -> Converter:
    """An operator of two tensors without attributes."""
    return lambda n: n.emit(name, *operands(n))


def operands(n: Node) -> tuple[Value, Value]:
    """Two tensors that broadcast; before opset 7 the second's axes line up with the first's from ``axis`` on."""
    a, b = n.input(0), n.input(1)
    if n.opset >= 7 or not n.attr("broadcast", 0) or not n.has("axis"):
        return a, b
    behind = a.type.rank - n.axis(n.attr("axis", 0), a.type.rank) - b.type.rank
    return a, n.emit("reshape", b, shape=(*b.type.shape, *(1,) * max(behind, 0)))


def with_alpha(name: str, **defaults: float) -> Converter:
    """An operator of one tensor with float attributes of the same names."""
    return lambda n: n.emit(name, n.input(0), **{k: n.attr(k, v) for k, v in defaults.items()})


def variadic(name: str) -> Converter:
    """A binary operator applied from left to right."""

    def convert(n: Node) -> Result:
        result = n.input(0)
        for index in range(1, len(n.inputs)):
            result = n.emit(name, result, n.input(index))
        return result

    return convert


def mean_of(n: Node) -> Result:
    """Mean of several tensors."""
    total = variadic("add")(n)
    assert isinstance(total, Value)
    return n.emit("divide", total, float(len(n.inputs)))


def div(n: Node) -> Result:
    """Integers truncate."""
    integer = info(n.type(0).dtype).is_integer
    return n.emit("trunc_divide" if integer else "divide", *operands(n))


def mod(n: Node) -> Result:
    """``fmod`` keeps the dividend's sign."""
    return n.emit("trunc_mod" if n.attr("fmod", 0) else "floor_mod", n.input(0), n.input(1))


def power(n: Node) -> Result:
    """The result has the base's dtype."""
    base, exponent = operands(n)
    if base.type.dtype == exponent.type.dtype:
        return n.emit("power", base, exponent)
    if info(base.type.dtype).is_integer and info(exponent.type.dtype).is_float:
        wide = n.emit("power", n.emit("astype", base, dtype=exponent.type.dtype), exponent)
        return n.emit("astype", wide, dtype=base.type.dtype)
    return n.emit("power", base, n.emit("astype", exponent, dtype=base.type.dtype))


def shift(n: Node) -> Result:
    """Bit shift by direction."""
    return n.emit("left_shift" if n.attr("direction", "") == "LEFT" else "right_shift", n.input(0), n.input(1))


def cast(n: Node) -> Result:
    """To the dtype of the attribute ``to``, a name until opset 5."""
    code = TensorProto.DataType.Value(n.attr("to", "").upper()) if n.opset < 6 else n.attr("to", 0)
    narrow = NARROW.get(code)
    return converted(n, narrow) if narrow else numbers_as(n, element_type(code, "attribute `to`"))


def numbers_as(n: Node, dtype: str) -> Value:
    """The first input converted to a dtype of the IR."""
    return n.emit("astype", decoded(n, n.input(0)), dtype=dtype)


def converted(n: Node, narrow: Narrow) -> Value:
    """The first input in a narrow format."""
    rounding = n.attr("round_mode", "up") if narrow.name == "float8_e8m0fnu" else "nearest"
    return encoded(n, n.input(0), narrow, bool(n.attr("saturate", 1)), rounding)


def cast_like(n: Node) -> Result:
    """To the second input's dtype."""
    like = n.input(1)
    return converted(n, BY_NAME[like.element]) if like.element else numbers_as(n, like.type.dtype)


def bit_cast(n: Node) -> Result:
    """The bits read as another type."""
    return n.emit("bitcast", n.input(0), dtype=element_type(n.attr("to", 0), "attribute `to`"))


def clip(n: Node) -> Result:
    """Bounds are attributes until opset 10, inputs after."""
    if n.opset < 11:
        low, high = n.attr("min", -3.4028234663852886e38), n.attr("max", 3.4028234663852886e38)
        return n.emit("clip", n.input(0), min=low, max=high)
    x, low_value, high_value = n.input(0), n.optional(1), n.optional(2)
    if low_value is None and high_value is None:
        return x
    if low_value is not None and high_value is not None:
        return n.emit("clip", x, low_value, high_value)
    if low_value is not None:
        return n.emit("maximum", x, low_value)
    assert high_value is not None
    return n.emit("minimum", x, high_value)


def selu(n: Node) -> Result:
    """Scaled ELU; the defaults of opset 1 have four decimals."""
    alpha, gamma = (1.67326319217681884765625, 1.05070102214813232421875) if n.opset >= 6 else (1.6732, 1.0507)
    return n.emit("selu", n.input(0), alpha=n.attr("alpha", alpha), gamma=n.attr("gamma", gamma))


def prelu(n: Node) -> Result:
    """Slopes broadcast; before opset 7 a vector of them is one per channel (axis 1)."""
    x, slope = n.input(0), n.input(1)
    if n.opset < 7 and slope.type.rank == 1 and x.type.rank > 2:
        slope = n.emit("reshape", slope, shape=(*slope.type.shape, *(1,) * (x.type.rank - 2)))
    return n.emit("prelu", x, slope)


def gelu(n: Node) -> Result:
    """Exact or by tanh."""
    return n.emit("gelu", n.input(0), approximate=n.attr("approximate", "none"))


def is_inf(n: Node) -> Result:
    """Either sign may be left out."""
    flags = {k: bool(n.attr(k, 1)) for k in ("detect_negative", "detect_positive")}
    return n.emit("isinf", n.input(0), **flags)


def where(n: Node) -> Result:
    """Choice by a mask."""
    return n.emit("where", n.input(0), n.input(1), n.input(2))


def dropout(n: Node) -> Result:
    """At inference: the input, and a mask of all true."""
    x = n.input(0)
    if n.opset < 7:
        training = not n.attr("is_test", 0)
    else:
        training = n.opset >= 12 and n.given(2) and bool(n.constant(2, "training_mode"))
    if training and not drops_nothing(n):
        n.unsupported("training mode")
    mask_dtype = "bool" if n.opset >= 10 else x.type.dtype
    return x, n.emit("full", n.scalar(True, mask_dtype), shape=x.type.shape) if len(n.proto.output) > 1 else None


def drops_nothing(n: Node) -> bool:
    """Whether the ratio of a dropout is known to be 0."""
    if n.opset < 12:
        return not n.attr("ratio", 0.5)
    ratio = n.number(1)
    return n.given(1) and ratio is not None and not ratio.any()


def reduction(name: str, axes_input: int) -> Converter:
    """A reduction; axes are an attribute before opset ``axes_input``, an input from it on."""

    def convert(n: Node) -> Result:
        x = n.input(0)
        keepdims = bool(n.attr("keepdims", 1))
        by_input = n.opset >= axes_input and n.given(1)
        known = n.number(1) if by_input else None
        if by_input and known is None:
            return reduce_over(n, name, keepdims)
        axes = n.ints("axes") if n.opset < axes_input else None if known is None else tuple(map(int, known.reshape(-1)))
        if not axes and n.attr("noop_with_empty_axes", 0):
            # no axis is reduced, but an operator such as a norm still acts on every element
            return n.emit(name, n.emit("expand_dims", x, axes=(0,)), axes=(0,)) if name not in PLAIN_REDUCTIONS else x
        return n.emit(name, x, axes=axes or None, keepdims=keepdims)

    return convert


PLAIN_REDUCTIONS: Final = frozenset({"sum", "mean", "max", "min", "prod"})
"""Reductions that leave a single element as it is."""


def reduce_over(n: Node, name: str, keepdims: bool) -> Value:
    """A reduction over axes known only at run time."""
    x = n.input(0)
    rank = x.type.rank
    flags = axis_flags(n, 1, rank)
    count = n.type(1).shape[0] if n.rank(1) else 1
    if not n.attr("noop_with_empty_axes", 0):
        flags = n.emit("maximum", flags, n.emit("dims_to_tensor", dims=(sub(1, min_(1, count)),)))
    y = n.emit(name, split_axes(n, x, flags), axes=tuple(range(1, 2 * rank, 2)))
    if keepdims:
        return y
    stated = n.declared_rank()
    if isinstance(count, int):
        left = rank - count if count or n.attr("noop_with_empty_axes", 0) else 0
    elif stated is not None:
        left = stated
    else:
        n.unsupported("the number of axes is known only at run time")
    return n.emit("reshape", y, shape=kept_extents(n, x.type.shape, flags, left))


def arg_reduction(name: str) -> Converter:
    """Position of the largest or smallest element."""

    def convert(n: Node) -> Result:
        attrs = {
            "axis": n.attr("axis", 0),
            "keepdims": bool(n.attr("keepdims", 1)),
            "select_last_index": bool(n.attr("select_last_index", 0)),
        }
        return n.emit(name, n.input(0), **attrs)

    return convert


def scan(name: str) -> Converter:
    """Running sum or product."""

    def convert(n: Node) -> Result:
        x = n.input(0)
        flags = {k: bool(n.attr(k, 0)) for k in ("exclusive", "reverse")}
        known = n.number(1)
        if known is not None:
            return n.emit(name, x, axis=int(known.reshape(-1)[0]), **flags)
        rank = x.type.rank
        (axis,) = n.dims(1, -rank, "axis", 1, high=rank - 1)
        lines = n.emit("reshape", x, shape=around(normalize_index(axis, rank, n.facts), x.type.shape))
        return n.emit("reshape", n.emit(name, lines, axis=1, **flags), shape=x.type.shape)

    return convert


def softmax(name: str) -> Converter:
    """Before opset 13 all axes from ``axis`` on count as one."""

    def convert(n: Node) -> Result:
        x = n.input(0)
        if n.opset >= 13:
            return n.emit(name, x, axis=n.attr("axis", -1))
        axis = n.axis(n.attr("axis", 1), x.type.rank)
        shape = x.type.shape
        flat = n.emit("reshape", x, shape=(product(shape[:axis]), product(shape[axis:])))
        return n.emit("reshape", n.emit(name, flat, axis=1), shape=shape)

    return convert


UNARY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Abs": "abs",
        "Acos": "acos",
        "Acosh": "acosh",
        "Asin": "asin",
        "Asinh": "asinh",
        "Atan": "atan",
        "Atanh": "atanh",
        "BitwiseNot": "bitwise_not",
        "Ceil": "ceil",
        "Cos": "cos",
        "Cosh": "cosh",
        "Erf": "erf",
        "Exp": "exp",
        "Floor": "floor",
        "HardSwish": "hard_swish",
        "IsNaN": "isnan",
        "Log": "log",
        "Mish": "mish",
        "Neg": "negative",
        "Not": "logical_not",
        "Reciprocal": "reciprocal",
        "Relu": "relu",
        "Round": "round",
        "Sigmoid": "sigmoid",
        "Sign": "sign",
        "Sin": "sin",
        "Sinh": "sinh",
        "Softplus": "softplus",
        "Softsign": "softsign",
        "Sqrt": "sqrt",
        "Tan": "tan",
        "Tanh": "tanh",
    }
)
BINARY: Final[Mapping[str, str]] = MappingProxyType(
    {
        "Add": "add",
        "And": "logical_and",
        "BitwiseAnd": "bitwise_and",
        "BitwiseOr": "bitwise_or",
        "BitwiseXor": "bitwise_xor",
        "Equal": "equal",
        "Greater": "greater",
        "GreaterOrEqual": "greater_equal",
        "Less": "less",
        "LessOrEqual": "less_equal",
        "MatMul": "matmul",
        "Mul": "multiply",
        "Or": "logical_or",
        "Sub": "subtract",
        "Xor": "logical_xor",
    }
)
REDUCTIONS: Final[tuple[tuple[str, str, int], ...]] = (
    ("ReduceSum", "sum", 13),
    ("ReduceMean", "mean", 18),
    ("ReduceMax", "max", 18),
    ("ReduceMin", "min", 18),
    ("ReduceProd", "prod", 18),
    ("ReduceL1", "l1_norm", 18),
    ("ReduceL2", "l2_norm", 18),
    ("ReduceLogSum", "log_sum", 18),
    ("ReduceLogSumExp", "logsumexp", 18),
    ("ReduceSumSquare", "sum_square", 18),
)


MATH: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **{k: unary(v) for k, v in UNARY.items()},
        **{k: binary(v) for k, v in BINARY.items()},
        **{k: reduction(v, opset) for k, v, opset in REDUCTIONS},
        "ArgMax": arg_reduction("argmax"),
        "ArgMin": arg_reduction("argmin"),
        "BitCast": bit_cast,
        "BitShift": shift,
        "Cast": cast,
        "CastLike": cast_like,
        "Celu": with_alpha("celu", alpha=1.0),
        "Clip": clip,
        "CumProd": scan("cumprod"),
        "CumSum": scan("cumsum"),
        "Div": div,
        "Dropout": dropout,
        "Elu": with_alpha("elu", alpha=1.0),
        "Gelu": gelu,
        "HardSigmoid": with_alpha("hard_sigmoid", alpha=0.2, beta=0.5),
        "Hardmax": softmax("hardmax"),
        "IsInf": is_inf,
        "LeakyRelu": with_alpha("leaky_relu", alpha=0.01),
        "LogSoftmax": softmax("log_softmax"),
        "Max": variadic("maximum"),
        "Mean": mean_of,
        "Min": variadic("minimum"),
        "Mod": mod,
        "PRelu": prelu,
        "Pow": power,
        "Selu": selu,
        "Shrink": with_alpha("shrink", bias=0.0, lambd=0.5),
        "Softmax": softmax("softmax"),
        "Sum": variadic("add"),
        "Swish": with_alpha("silu", alpha=1.0),
        "ThresholdedRelu": with_alpha("thresholded_relu", alpha=1.0),
        "Where": where,
    }
)
"""Elementwise operators and reductions by ONNX name."""
