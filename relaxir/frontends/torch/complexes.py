"""Converters of complex numbers: a `Complex` is two real tensors, and what is linear works on each of them.

Rotary embeddings written as products of complex numbers, spectra and their inverses are imported so. Operators that
only move, select or add elements are those for real tensors, run for the real and for the imaginary parts; bilinear
ones run for the four pairs of parts. Only what is left has converters of its own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from types import MappingProxyType
from typing import Any, Final

import torch
from torch.fx import Node as FxNode

from relaxir.frontends.torch.creation import FILLED
from relaxir.frontends.torch.elementwise import ELEMENTWISE, hypotenuse
from relaxir.frontends.torch.index import INDEX
from relaxir.frontends.torch.nn import NN
from relaxir.frontends.torch.node import Arg, Complex, Converter, Node
from relaxir.frontends.torch.reduction import REDUCTION
from relaxir.frontends.torch.shape import SHAPE
from relaxir.frontends.torch.sizes import SIZES
from relaxir.frontends.values import Value
from relaxir.sym import product

DATA: Final = frozenset({"self", "other", "input", "tensors", "src", "source", "value", "values"})
"""Arguments that hold numbers, so that a real one has imaginary part 0; others hold places, sizes or conditions."""


def involves_complex(fx: FxNode, args: Mapping[str, Arg]) -> bool:
    """Whether an argument or the (first) result of a node is complex."""
    found = fx.meta.get("val")
    results = found if isinstance(found, tuple | list) else (found,)
    if any(isinstance(r, torch.Tensor) and r.is_complex() for r in results):
        return True
    return any(isinstance(a, complex | Complex) for a in flat(tuple(args.values())))


def flat(args: tuple[Arg, ...]) -> Iterator[Arg]:
    """Arguments, those in tuples one by one."""
    for a in args:
        if isinstance(a, tuple):
            yield from flat(a)
        else:
            yield a


# ---- parts ---------------------------------------------------------------------------------------------------------


def real_part(arg: Arg) -> Arg:
    """The real part of a complex argument, anything else as it is."""
    if isinstance(arg, tuple):
        return tuple(real_part(a) for a in arg)
    return arg.real if isinstance(arg, complex | Complex) else arg


def imaginary_part(n: Node, arg: Arg) -> Arg:
    """The imaginary part of an argument that holds numbers: 0 for a real one."""
    if isinstance(arg, tuple):
        return tuple(imaginary_part(n, a) for a in arg)
    if isinstance(arg, complex | Complex):
        return arg.imag
    if isinstance(arg, Value):
        return n.full(arg.type.shape, 0, arg.type.dtype)
    return None if arg is None else 0


def with_args(n: Node, args: Mapping[str, Arg]) -> Node:
    """The node with other arguments."""
    return Node(n.fx, {**n.args, **args}, n.host)


def joined(real: Arg, imag: Arg) -> Arg:
    """Results of the parts as complex results."""
    if isinstance(real, tuple):
        return tuple(joined(a, b) for a, b in zip(real, imag, strict=True))
    return Complex(real, imag)


def of_parts(converter: Converter) -> Converter:
    """What is linear: the converter for real tensors on the real and on the imaginary parts."""

    def convert(n: Node) -> Arg:
        real = {k: real_part(v) for k, v in n.args.items()}
        imag = {k: imaginary_part(n, v) if k in DATA else v for k, v in real.items()}
        imag |= {k: imaginary_part(n, v) for k, v in n.args.items() if k in DATA}
        return joined(converter(with_args(n, real)), converter(with_args(n, imag)))

    return convert


def of_real_part(converter: Converter) -> Converter:
    """What looks at the shape alone: the converter for real tensors on the real part."""
    return lambda n: converter(with_args(n, {k: real_part(v) for k, v in n.args.items()}))


def created(converter: Converter) -> Converter:
    """A tensor of one number."""

    def convert(n: Node) -> Complex:
        number = n.get("fill_value", 0)
        real = of_real_part(converter)(n)
        return Complex(real, n.full(real.type.shape, imaginary_part(n, number), real.type.dtype))

    return convert


def bilinear(converter: Converter) -> Converter:
    """A product of the first two arguments: ``(a + bi)(c + di) = (ac - bd) + (ad + bc)i``."""

    def convert(n: Node) -> Complex:
        first, second = list(n.args)[:2]
        left, right = n.args[first], n.args[second]

        def of(a: Arg, b: Arg) -> Value:
            found = converter(with_args(n, {first: a, second: b}))
            assert isinstance(found, Value)
            return found

        a, c = real_part(left), real_part(right)
        real = of(a, c)
        b, d = (x.imag if isinstance(x, complex | Complex) else None for x in (left, right))
        if b is None or d is None:
            imag = of(a, d) if d is not None else of(b, c)
        else:
            real = n.emit("subtract", real, of(b, d))
            imag = n.emit("add", of(a, d), of(b, c))
        return Complex(real, imag)

    return convert


def complex_of(n: Node, arg: Arg, dtype: str) -> Complex:
    """A number or tensor as a complex one with parts of a dtype."""
    real = n.operand(real_part(arg), dtype)
    return Complex(real, n.operand(imaginary_part(n, arg), dtype))


def argument(n: Node, name: str = "self") -> Complex:
    """A complex argument, or a real one with imaginary part 0."""
    found = n.args[name]
    return found if isinstance(found, Complex) else Complex(found, imaginary_part(n, found))


def scaled(n: Node, x: Complex, by: Value) -> Complex:
    """The product with a real tensor."""
    return Complex(n.emit("multiply", x.real, by), n.emit("multiply", x.imag, by))


def negated(n: Node, x: Value) -> Value:
    """The negative of a part."""
    return n.emit("negative", x)


def conjugate(n: Node) -> Complex:
    """The imaginary part negated."""
    x = argument(n)
    return Complex(x.real, negated(n, x.imag))


# ---- arithmetic ----------------------------------------------------------------------------------------------------


def summed(operator: str) -> Converter:
    """``self + alpha * other`` or the like."""

    def convert(n: Node) -> Complex:
        dtype = n.out_dtype
        a, b = (complex_of(n, n.args[k], dtype) for k in ("self", "other"))
        if n.get("alpha", 1) != 1:
            b = scaled(n, b, n.operand(n.get("alpha"), dtype))
        return Complex(n.emit(operator, a.real, b.real), n.emit(operator, a.imag, b.imag))

    return convert


def divided(n: Node) -> Complex:
    """``a / b``: by a real number part by part, else the product with the conjugate over the squared length."""
    dtype = n.out_dtype
    a, b = complex_of(n, n.args["self"], dtype), n.args["other"]
    if not isinstance(b, complex | Complex):
        by = n.operand(b, dtype)
        return Complex(n.emit("divide", a.real, by), n.emit("divide", a.imag, by))
    return times_reciprocal(n, a, complex_of(n, b, dtype))


def times_reciprocal(n: Node, a: Complex, b: Complex) -> Complex:
    """``a * conj(b) / |b|^2``."""

    def of(x: Value, y: Value, op: str, z: Value, w: Value) -> Value:
        top = n.emit(op, n.emit("multiply", x, y), n.emit("multiply", z, w))
        return n.emit("divide", top, squares)

    squares = n.emit("add", n.emit("multiply", b.real, b.real), n.emit("multiply", b.imag, b.imag))
    return Complex(of(a.real, b.real, "add", a.imag, b.imag), of(a.imag, b.real, "subtract", a.real, b.imag))


def reciprocal(n: Node) -> Complex:
    """``1 / self``."""
    return times_reciprocal(n, complex_of(n, 1, n.out_dtype), argument(n))


def square(n: Node) -> Complex:
    """``self * self``."""
    x = argument(n)
    product_of_parts = n.emit("multiply", x.real, x.imag)
    real = n.emit("subtract", n.emit("multiply", x.real, x.real), n.emit("multiply", x.imag, x.imag))
    return Complex(real, n.emit("add", product_of_parts, product_of_parts))


def power(n: Node) -> Complex:
    """The square; other powers are not linear in any form."""
    if n.get("exponent") != 2:
        n.unsupported("a power of complex numbers other than the square")
    return square(n)


def length(n: Node) -> Value:
    """``|self|``."""
    x = argument(n)
    return hypotenuse(n, x.real, x.imag)


def angle(n: Node) -> Value:
    """Direction of a number from the real axis."""
    x = argument(n)
    return n.emit("atan2", x.imag, x.real)


def direction(n: Node, size: Value, turn: Value) -> Complex:
    """The number of a length and an angle."""
    real, imag = (n.emit("multiply", size, n.emit(f, turn)) for f in ("cos", "sin"))
    return Complex(real, imag)


def exponential(n: Node) -> Complex:
    """``e ** self``."""
    x = argument(n)
    return direction(n, n.emit("exp", x.real), x.imag)


def polar(n: Node) -> Complex:
    """Numbers of given lengths and angles."""
    return direction(n, n.value("abs"), n.value("angle"))


def from_parts(n: Node) -> Complex:
    """Numbers of given real and imaginary parts."""
    real, imag = n.value("real"), n.value("imag")
    shape = n.ctx().broadcast((real.type.shape, imag.type.shape))
    return Complex(n.broadcast(real, shape), n.broadcast(imag, shape))


# ---- forms ---------------------------------------------------------------------------------------------------------


def from_pairs(n: Node) -> Complex:
    """Pairs in the last axis as numbers."""
    return unpaired(n, n.value())


def unpaired(n: Node, x: Value) -> Complex:
    """Pairs in the last axis as numbers."""
    last = x.type.rank - 1
    real, imag = (
        n.emit("squeeze", n.emit("strided_slice", x, axes=(last,), begin=(i,), size=(1,)), axes=(last,)) for i in (0, 1)
    )
    return Complex(real, imag)


def paired(n: Node, x: Complex) -> Value:
    """Numbers as pairs in a new last axis."""
    return n.emit("stack", x.real, x.imag, axis=x.real.type.rank)


def to_dtype(n: Node) -> Value | Complex:
    """Another precision, a complex number of a real one, or the real part."""
    found = n.meta()
    if isinstance(found, torch.Tensor) and not found.is_complex():
        return n.cast(argument(n).real, n.out_dtype)
    return complex_of(n, n.args["self"], n.out_dtype)


# ---- spectra -------------------------------------------------------------------------------------------------------


def normalized(n: Node, x: Value, points: Value, inverse: bool) -> Value:
    """A transform by torch's norm: 0 none, 1 over the root of the number of points, 2 over it (an inverse has 2)."""
    mode = n.integer("normalization")
    if mode == (2 if inverse else 0):
        return x
    by = n.emit("sqrt", points) if mode == 1 else points
    return n.emit("multiply" if inverse else "divide", x, by)


def transformed(n: Node, x: Value, axes: tuple[int, ...], inverse: bool = False) -> Value:
    """Full transforms of pairs along some axes."""
    for axis in axes:
        x = n.emit("dft", x, axis=axis, inverse=inverse)
    return x


def spectrum(n: Node) -> Complex:
    """Transform of complex numbers along some axes."""
    x, inverse = argument(n), not n.flag("forward")
    axes, shape = n.axes_of(x.real), x.real.type.shape
    points = n.operand(product(shape[a] for a in axes), x.real.type.dtype)
    return unpaired(n, normalized(n, transformed(n, paired(n, x), axes, inverse), points, inverse))


def real_spectrum(n: Node) -> Complex:
    """Transform of real numbers along some axes; along the last one the first half where ``onesided``."""
    x = n.value()
    axes = n.axes_of(x)
    points = n.operand(product(n.shape[a] for a in axes), x.type.dtype)
    y = n.emit("expand_dims", x, axes=(x.type.rank,))
    y = n.emit("dft", y, axis=axes[-1], onesided=n.flag("onesided"))
    return unpaired(n, normalized(n, transformed(n, y, axes[:-1]), points, False))


def real_signal(n: Node) -> Value:
    """Real numbers of half a spectrum; the last axis gets a given extent."""
    x, size = argument(n), n.get("last_dim_size")
    axes, shape = n.axes_of(x.real), x.real.type.shape
    points = n.operand(product([*(shape[a] for a in axes[:-1]), size]), x.real.type.dtype)
    y = transformed(n, paired(n, x), axes[:-1], True)
    y = n.emit("dft", y, axis=axes[-1], inverse=True, onesided=True, length=size)
    y = n.emit("squeeze", y, axes=(y.type.rank - 1,))
    return normalized(n, y, points, True)


REAL: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **ELEMENTWISE,
        **INDEX,
        **NN,
        **REDUCTION,
        **SHAPE,
        **SIZES,
    }
)
"""Converters for real tensors."""
LINEAR: Final = (
    *(k for k in SHAPE if k not in ("pixel_shuffle", "pixel_unshuffle")),
    *"alias clone contiguous detach detach_ lift lift_fresh lift_fresh_copy positive neg".split(),
    *"where masked_fill copy fill zero gather index index_select index_put index_add _unsafe_index".split(),
    *"_unsafe_index_put take take_along_dim masked_select masked_scatter scatter scatter_add sum mean cumsum".split(),
    *"resolve_conj resolve_neg".split(),
)
"""Operators that only move, select or add numbers."""
SHAPE_ONLY: Final = tuple(k for k in SIZES if k.startswith(("sym_", "_assert_tensor")))
"""Operators that look at the shape alone."""
FORMS: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "_fft_c2c": spectrum,
        "_fft_c2r": real_signal,
        "_fft_r2c": real_spectrum,
        "complex": from_parts,
        "imag": lambda n: argument(n).imag,
        "polar": polar,
        "view_as_complex": from_pairs,
        "view_as_real": lambda n: paired(n, argument(n)),
    }
)
"""Operators of complex numbers alone."""
BILINEAR: Final = ("mul", "multiply", "matmul", "mm", "bmm", "mv", "dot", "outer")
"""Products."""
OWN: Final[Mapping[str, Callable[[Node], Any]]] = MappingProxyType(
    {
        **FORMS,
        **dict.fromkeys(("_conj", "conj_physical", "conj"), conjugate),
        **dict.fromkeys(("div", "divide", "true_divide"), divided),
        **dict.fromkeys(("sub", "subtract"), summed("subtract")),
        **dict.fromkeys(("to", "_to_copy", "type_as"), to_dtype),
        "abs": length,
        "add": summed("add"),
        "angle": angle,
        "exp": exponential,
        "pow": power,
        "real": lambda n: argument(n).real,
        "reciprocal": reciprocal,
        "scalar_tensor": lambda n: complex_of(n, n.get("s"), n.out_dtype),
        "square": square,
    }
)
"""Operators whose parts depend on both parts."""
COMPLEX: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **{k: of_parts(REAL[k]) for k in LINEAR},
        **{k: of_real_part(REAL[k]) for k in SHAPE_ONLY},
        **{k: bilinear(REAL[k]) for k in BILINEAR},
        **{k: created(v) for k, v in FILLED.items()},
        **OWN,
    }
)
"""Converters of nodes with complex arguments or results, by the name of the ATen packet."""
