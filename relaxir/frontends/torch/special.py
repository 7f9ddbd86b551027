"""Converters of special functions: by series in float64, rounded to the result's dtype at the end.

Sources: C. Lanczos, A precision approximation of the gamma function (1964), with the coefficients of g = 7, n = 9;
the asymptotic series of digamma, NIST Digital Library of Mathematical Functions 5.11.2; M. Giles, Approximating the
erfinv function (2010), single precision, improved by Newton's steps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import reduce
from math import log, pi, sqrt
from types import MappingProxyType
from typing import Final

from relaxir.frontends.torch.node import Converter, Node
from relaxir.frontends.values import Value

LANCZOS: Final = (
    0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
    12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
)  # fmt: skip
"""A constant, then numerators over ``x + 1``, ``x + 2``, ..."""
DIGAMMA: Final = (1 / 132, -1 / 240, 1 / 252, -1 / 120, 1 / 12)
"""Coefficients of ``y ** -10``, ..., ``y ** -2``, taken off."""
SHIFT: Final = 8
"""Steps of the recurrence before digamma's series, which then has an error of 1e-13."""
CENTRE: Final = (
    2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087, -0.00125372503, -0.00417768164,
    0.246640727, 1.50140941,
)  # fmt: skip
TAIL: Final = (
    -0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773, -0.0076224613, 0.00943887047,
    1.00167406, 2.83297682,
)  # fmt: skip


def polynomial(n: Node, coefficients: Sequence[float], x: Value) -> Value:
    """A polynomial by Horner's rule, the highest power first."""
    first, *others = coefficients
    return reduce(
        lambda y, c: n.emit("add", n.emit("multiply", y, x), c), others, n.full(x.type.shape, first, "float64")
    )


def wide(function: Callable[[Node, Value], Value]) -> Converter:
    """A function of float64 as a converter of floats and integers."""
    return lambda n: n.cast(function(n, n.cast(n.value(), "float64")), n.out_dtype)


def reflected(n: Node, x: Value) -> tuple[Value, Value]:
    """Whether ``x`` is below 1/2, and ``1 - x`` in its place there."""
    low = n.emit("less", x, 0.5)
    return low, n.emit("where", low, n.emit("subtract", n.scalar(1.0, "float64"), x), x)


def lgamma(n: Node, x: Value) -> Value:
    """Logarithm of the absolute gamma function; infinite at 0, -1, -2, ... and both infinities."""
    low, above = reflected(n, x)
    less = n.emit("subtract", above, 1.0)
    total: Value = n.full(x.type.shape, LANCZOS[0], "float64")
    for k, c in enumerate(LANCZOS[1:], 1):
        total = n.emit("add", total, n.emit("divide", n.scalar(c, "float64"), n.emit("add", less, float(k))))
    t = n.emit("add", less, 7.5)
    y = n.emit("subtract", n.emit("multiply", n.emit("add", less, 0.5), n.emit("log", t)), t)
    y = n.emit("add", n.emit("add", y, n.emit("log", total)), log(2 * pi) / 2)
    # sin(pi * x) by the distance to the next integer, which is exact
    near = n.emit("abs", n.emit("subtract", x, n.emit("round", x)))
    sine = n.emit("sin", n.emit("multiply", near, pi))
    mirrored = n.emit("subtract", n.emit("subtract", n.scalar(log(pi), "float64"), n.emit("log", sine)), y)
    y = n.emit("where", low, mirrored, y)
    return n.emit("where", n.emit("isinf", x), n.scalar(float("inf"), "float64"), y)


def digamma(n: Node, x: Value) -> Value:
    """Derivative of `lgamma`; NaN at -1, -2, ..., infinite at 0 with the other sign."""
    low, above = reflected(n, x)
    steps = [n.emit("reciprocal", n.emit("add", above, float(k))) for k in range(SHIFT)]
    y = n.emit("add", above, float(SHIFT))
    inverse = n.emit("reciprocal", y)
    square = n.emit("multiply", inverse, inverse)
    series = n.emit("multiply", polynomial(n, DIGAMMA, square), square)
    value = n.emit("subtract", n.emit("subtract", n.emit("log", y), n.emit("multiply", inverse, 0.5)), series)
    value = reduce(lambda v, s: n.emit("subtract", v, s), steps, value)
    turn = n.emit("subtract", x, n.emit("round", x))
    slope = n.emit("divide", n.scalar(pi, "float64"), n.emit("tan", n.emit("multiply", turn, pi)))
    value = n.emit("where", low, n.emit("subtract", value, slope), value)
    pole = n.emit("logical_and", n.emit("less", x, 0.0), n.emit("equal", turn, 0.0))
    value = n.emit("where", pole, n.scalar(float("nan"), "float64"), value)
    return n.emit("where", n.emit("equal", x, 0.0), n.emit("negative", n.emit("reciprocal", x)), value)


def erfinv(n: Node, x: Value) -> Value:
    """Inverse of the error function; infinite at -1 and 1, NaN beyond."""
    one = n.scalar(1.0, "float64")
    inside = n.emit("multiply", n.emit("subtract", one, x), n.emit("add", one, x))
    w = n.emit("negative", n.emit("log", inside))
    middle = polynomial(n, CENTRE, n.emit("subtract", w, 2.5))
    ends = polynomial(n, TAIL, n.emit("subtract", n.emit("sqrt", w), 3.0))
    y = n.emit("multiply", n.emit("where", n.emit("less", w, 5.0), middle, ends), x)
    for _ in range(2):
        slope = n.emit("multiply", n.emit("exp", n.emit("negative", n.emit("multiply", y, y))), 2 / sqrt(pi))
        y = n.emit("subtract", y, n.emit("divide", n.emit("subtract", n.emit("erf", y), x), slope))
    end = n.emit("multiply", x, float("inf"))
    return n.emit("where", n.emit("equal", n.emit("abs", x), one), end, y)


SPECIAL: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "digamma": wide(digamma),
        "erfinv": wide(erfinv),
        "lgamma": wide(lgamma),
    }
)
"""Special functions by the name of the ATen packet."""
