"""Functions of complex numbers: of real and imaginary part, in real operators.

The formulas and their values at zeros and infinities are those of C99 (annex G) where a model may meet them.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import log
from typing import Final, TypeAlias

from relaxir.frontends.torch.complexes import (
    Complex,
    argument,
    by_parts,
    chosen,
    holds,
    part,
    quotient,
    scaled,
    times,
    with_args,
)
from relaxir.frontends.torch.elementwise import hypotenuse, signed
from relaxir.frontends.torch.node import Arg, Converter, Node
from relaxir.frontends.torch.tensors import promoted
from relaxir.frontends.values import Value
from relaxir.support.dtypes import info

Function: TypeAlias = Callable[[Node, Complex], Arg]
"""A function of complex numbers, with the node that operators are emitted for."""
MOST_FACTORS: Final = 16
"""Greatest power that is computed by products."""
STEEP: Final = 20.0
"""Where `tanh` is 1 but for less than a rounding, in float64 too."""


def length(n: Node, z: Complex) -> Value:
    """Distances from 0."""
    return hypotenuse(n, z.real, z.imag)


def number(n: Node, value: float, z: Complex) -> Complex:
    """A real number in the dtype of others."""
    return Complex(n.scalar(value, z.dtype), n.scalar(0, z.dtype))


def conjugate(n: Node) -> Complex:
    """With the other sign of the imaginary part."""
    z = argument(n)
    return Complex(z.real, n.emit("negative", z.imag))


def from_parts(n: Node) -> Complex:
    """Numbers of given parts, which broadcast."""
    real, imag = n.value("real"), n.value("imag")
    shape = n.ctx().broadcast([real.type.shape, imag.type.shape])
    return Complex(n.broadcast(real, shape), n.broadcast(imag, shape))


def polar(n: Node) -> Complex:
    """Numbers of given lengths and angles."""
    turn = n.value("angle")
    return scaled(n, Complex(n.emit("cos", turn), n.emit("sin", turn)), n.value("abs"))


def exponential(n: Node, z: Complex) -> Complex:
    """``e ** z``: 0 where the real part is minus infinity, real where the imaginary part is 0."""
    size, zero = n.emit("exp", z.real), n.scalar(0, z.dtype)
    none = n.emit("equal", size, zero)
    real, imag = (
        n.emit("where", none, zero, n.emit("multiply", size, n.emit(turn, z.imag))) for turn in ("cos", "sin")
    )
    return Complex(real, n.emit("where", n.emit("equal", z.imag, zero), z.imag, imag))


def logarithm(n: Node, z: Complex) -> Complex:
    """Logarithm of the length, and the angle."""
    return Complex(n.emit("log", length(n, z)), n.emit("atan2", z.imag, z.real))


def logarithm_to(base: float) -> Converter:
    """The logarithm to another base."""

    def convert(n: Node) -> Complex:
        z = argument(n)
        return scaled(n, logarithm(n, z), n.scalar(1 / log(base), z.dtype))

    return convert


def root(n: Node, z: Complex) -> Complex:
    """The square root with a real part of at least 0; the greater part of it first, so that nothing cancels."""
    half = n.scalar(0.5, z.dtype)
    size = n.emit("abs", z.real)
    great = n.emit("sqrt", n.emit("add", n.emit("multiply", half, length(n, z)), n.emit("multiply", half, size)))
    small = n.emit("divide", n.emit("multiply", half, n.emit("abs", z.imag)), great)
    small = n.emit("where", n.emit("equal", great, 0), n.scalar(0, z.dtype), small)
    right = n.emit("greater_equal", z.real, 0)
    return Complex(n.emit("where", right, great, small), signed(n, n.emit("where", right, small, great), z.imag))


def reciprocal(n: Node, z: Complex) -> Complex:
    """``1 / z``."""
    return quotient(n, number(n, 1, z), z)


def power(n: Node) -> Complex:
    """Small whole powers by products, square roots, and others by the logarithm."""
    z, exponent = argument(n), n.get("exponent")
    if isinstance(exponent, int | float):
        if exponent == 0:
            return Complex(*(n.full(z.shape, v, z.dtype) for v in (1, 0)))
        if abs(exponent) <= MOST_FACTORS and exponent == int(exponent):
            found = reduce(lambda a, b: times(n, a, b), (z,) * int(abs(exponent)))
            return found if exponent > 0 else reciprocal(n, found)
        if abs(exponent) == 0.5:
            return root(n, z) if exponent > 0 else reciprocal(n, root(n, z))
    w = argument(n, "exponent")
    zero, one = number(n, 0, z), number(n, 1, z)
    at_zero = chosen(n, equal(n, w, zero), one, zero)
    return chosen(n, equal(n, z, zero), at_zero, exponential(n, times(n, w, logarithm(n, z))))


def divide(n: Node) -> Complex:
    """``self / other``."""
    if n.has("rounding_mode"):
        n.unsupported("a rounded quotient of complex numbers")
    return quotient(n, argument(n), argument(n, "other"))


def sign(n: Node) -> Complex:
    """``z / abs(z)``; 0 for 0."""
    z = argument(n)
    size = length(n, z)
    return chosen(n, n.emit("equal", size, 0), number(n, 0, z), scaled(n, z, size, "divide"))


def hyperbolic_sine(n: Node, z: Complex) -> Complex:
    """``(e ** z - e ** -z) / 2``."""
    return crossed(n, z, "sinh", "cosh")


def hyperbolic_cosine(n: Node, z: Complex) -> Complex:
    """``(e ** z + e ** -z) / 2``."""
    return crossed(n, z, "cosh", "sinh")


def crossed(n: Node, z: Complex, along: str, across: str) -> Complex:
    """``along(x) * cos(y) + i * across(x) * sin(y)``."""
    return Complex(
        n.emit("multiply", n.emit(along, z.real), n.emit("cos", z.imag)),
        n.emit("multiply", n.emit(across, z.real), n.emit("sin", z.imag)),
    )


def hyperbolic_tangent(n: Node, z: Complex) -> Complex:
    """``sinh(z) / cosh(z)`` by Kahan's formula; far from 0 it is 1 or -1."""
    near = n.emit("maximum", n.emit("minimum", z.real, STEEP), -STEEP)
    slope, rise = n.emit("tan", z.imag), n.emit("sinh", near)
    spread = n.emit("add", n.emit("multiply", slope, slope), 1)
    square = n.emit("add", n.emit("multiply", rise, rise), 1)
    below = n.emit("add", n.emit("multiply", spread, n.emit("multiply", rise, rise)), 1)
    real = n.emit("multiply", n.emit("multiply", spread, n.emit("sqrt", square)), rise)
    return scaled(n, Complex(real, slope), below, "divide")


def turned(function: Function) -> Function:
    """``-i * f(i * z)``: the circular function of a hyperbolic sine or tangent."""

    def run(n: Node, z: Complex) -> Complex:
        found = function(n, Complex(n.emit("negative", z.imag), z.real))
        return Complex(found.imag, n.emit("negative", found.real))

    return run


def cosine(n: Node, z: Complex) -> Complex:
    """``cosh(i * z)``."""
    return hyperbolic_cosine(n, Complex(n.emit("negative", z.imag), z.real))


def logistic(n: Node, z: Complex) -> Complex:
    """``1 / (1 + e ** -z)``."""
    found = exponential(n, Complex(n.emit("negative", z.real), n.emit("negative", z.imag)))
    return reciprocal(n, Complex(n.emit("add", found.real, 1), found.imag))


# ---- real results --------------------------------------------------------------------------------------------------


def equal(n: Node, a: Complex, b: Complex) -> Value:
    """Whether both parts are equal."""
    return n.emit("logical_and", n.emit("equal", a.real, b.real), n.emit("equal", a.imag, b.imag))


def equality(n: Node) -> Value:
    """Whether both parts are equal, in the common dtype."""
    names = ("self", "other")
    real = [part(n, n.args[k], False) for k in names]
    imag = [part(n, n.args[k], True) for k in names]
    common = promoted(*real)
    dtype = common if info(common).is_float else "float32"
    found = [n.emit("equal", *(n.operand(a, dtype) for a in operands)) for operands in (real, imag)]
    return n.emit("logical_and", *found)


def truth(n: Node, z: Complex) -> Value:
    """Whether either part is not 0."""
    return n.emit("logical_or", n.truth(z.real), n.truth(z.imag))


def first(convert: Converter, of: Function) -> Converter:
    """A converter given something real in the place of its complex arguments."""

    def run(n: Node) -> Arg:
        found = {k: of(n, argument(n, k)) for k, a in n.args.items() if holds(a)}
        return convert(with_args(n, **found))

    return run


def either(convert: Converter, op: str) -> Converter:
    """A test of each part; both answers as one."""

    def run(n: Node) -> Value:
        both = by_parts(convert, ("self",))(n)
        return n.emit(op, both.real, both.imag)

    return run


def spread(convert: Converter, deviation: bool = False) -> Converter:
    """A variance, the sum of that of both parts, or its root; ``convert`` gives variances."""

    def run(n: Node) -> Value:
        found = either(convert, "add")(n)
        return n.emit("sqrt", found) if deviation else found

    return run


def converted(real: Converter) -> Converter:
    """A change of dtype: to the parts' dtype, to real numbers, which the real part alone becomes, or to bools."""

    def convert(n: Node) -> Arg:
        z = argument(n)
        if not n.meta().dtype.is_complex:
            return real(with_args(n, self=truth(n, z) if n.out_dtype == "bool" else z.real))
        return Complex(n.cast(z.real, n.out_dtype), n.cast(z.imag, n.out_dtype))

    return convert
