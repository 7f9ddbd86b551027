"""Converters of activation functions."""

from __future__ import annotations

from collections.abc import Mapping
from math import exp
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.torch.elementwise import unary
from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.values import Value


def hardtanh(n: Node) -> Value:
    """Clamped to constant bounds."""
    x = n.value()
    low, high = n.get("min_val", -1), n.get("max_val", 1)
    return n.emit("minimum", n.emit("maximum", x, n.operand(low, x.type.dtype)), n.operand(high, x.type.dtype))


def relu6(n: Node) -> Value:
    """Clamped to 0..6."""
    return n.emit("minimum", n.emit("maximum", n.value(), 0), 6)


def gelu(n: Node) -> Value:
    """Exact or by tanh."""
    return n.emit("gelu", n.value(), approximate=n.get("approximate", "none"))


def with_number(name: str, argument: str, attr: str, default: float) -> Converter:
    """An operator of a float with one number."""
    return lambda n: n.emit(name, n.value(), **{attr: float(n.number(argument, default))})


def elu(n: Node) -> Value:
    """Exponential linear unit with its three factors."""
    x = n.value()
    alpha, scale, inner = (float(n.number(k, 1.0)) for k in ("alpha", "scale", "input_scale"))
    if inner != 1.0:
        n.unsupported("input_scale other than 1")
    if scale == 1.0:
        return n.emit("elu", x, alpha=alpha)
    return n.emit("multiply", n.emit("elu", x, alpha=alpha), scale)


def softplus(n: Node) -> Value:
    """``log(1 + exp(beta * x)) / beta``; ``x`` where ``beta * x`` is above the threshold."""
    x = n.value()
    beta, threshold = float(n.number("beta", 1.0)), float(n.number("threshold", 20.0))
    inner = x if beta == 1.0 else n.emit("multiply", x, beta)
    y = n.emit("softplus", inner)
    y = y if beta == 1.0 else n.emit("divide", y, beta)
    eps = np.finfo(np.float64 if x.type.dtype == "float64" else np.float32).eps
    if threshold > 0 and exp(-threshold) < threshold * eps:
        return y  # both agree there
    return n.emit("where", n.emit("greater", inner, n.scalar(threshold, x.type.dtype)), x, y)


def log_sigmoid(n: Node) -> Value | tuple[Value, ...]:
    """``-softplus(-x)``."""
    x = n.value()
    y = n.emit("negative", n.emit("softplus", n.emit("negative", x)))
    return (y, x) if isinstance(n.fx.meta.get("val"), tuple | list) else y


def prelu(n: Node) -> Value:
    """Slopes of channels, or as they broadcast."""
    x, slope = n.value(), n.value("weight")
    if slope.type.rank == 1 and x.type.rank > 2:
        slope = n.reshape(slope, (slope.type.shape[0], *(1,) * (x.type.rank - 2)))
    return n.emit("prelu", x, slope)


def glu(n: Node) -> Value:
    """First half times the sigmoid of the second."""
    x = n.value()
    axis = n.axis(default=-1)
    half = x.type.shape[axis] // 2
    a, b = n.emit_tuple("split", x, sizes=(half, half), axis=axis)
    return n.emit("multiply", a, n.emit("sigmoid", b))


def rrelu(n: Node) -> Value | tuple[Value, ...]:
    """At inference a leaky relu of the mean slope; the functional form also gives the noise."""
    if n.flag("training"):
        n.unsupported("training mode")
    slope = (n.number("lower", 1 / 8) + n.number("upper", 1 / 3)) / 2
    y = n.emit("leaky_relu", n.value(), alpha=float(slope))
    return (y, n.value("noise")) if isinstance(n.fx.meta.get("val"), tuple | list) else y


ACTIVATION: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "celu": with_number("celu", "alpha", "alpha", 1.0),
        "elu": elu,
        "gelu": gelu,
        "glu": glu,
        "hardsigmoid": lambda n: n.emit("hard_sigmoid", n.value(), alpha=1 / 6, beta=0.5),
        "hardswish": unary("hard_swish"),
        "hardtanh": hardtanh,
        "leaky_relu": with_number("leaky_relu", "negative_slope", "alpha", 0.01),
        "log_sigmoid": log_sigmoid,
        "log_sigmoid_forward": log_sigmoid,
        "mish": unary("mish"),
        "prelu": prelu,
        "_prelu_kernel": prelu,
        "relu": unary("relu"),
        "relu6": relu6,
        "rrelu": rrelu,
        "rrelu_with_noise": rrelu,
        "rrelu_with_noise_functional": rrelu,
        "selu": unary("selu"),
        "silu": unary("silu"),
        "softplus": softplus,
    }
)
"""Activation functions by the name of the ATen packet."""
