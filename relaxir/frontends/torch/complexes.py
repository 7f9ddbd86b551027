"""Complex numbers: they exist at import only, as a real and an imaginary part of one shape.

Operators that work on each part alone (`BY_PARTS`: views, sums, differences) run their own converter twice; products
of all kinds (`BILINEAR`) run it once per pair of parts; what is left has converters here.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Final, TypeAlias

from relaxir.frontends.torch.elementwise import hypotenuse
from relaxir.frontends.torch.node import Arg, Converter, Node
from relaxir.frontends.values import Value
from relaxir.sym import DimLike


@dataclass(frozen=True, slots=True)
class Complex:
    """A tensor of complex numbers."""

    real: Value
    imag: Value

    @property
    def shape(self) -> tuple[DimLike, ...]:
        """Its shape."""
        return self.real.type.shape

    @property
    def dtype(self) -> str:
        """Dtype of each part."""
        return self.real.type.dtype


Pair: TypeAlias = tuple[Arg, Arg | None]
"""Real and imaginary part of an argument; None for a number or tensor that is real."""


def holds(arg: Arg) -> bool:
    """Whether an argument is complex, or a list with a complex tensor."""
    if isinstance(arg, tuple):
        return any(holds(a) for a in arg)
    return isinstance(arg, Complex | complex)


def pair(arg: Arg) -> Pair:
    """The parts of a tensor or number."""
    return (arg.real, arg.imag) if isinstance(arg, Complex | complex) else (arg, None)


def part(n: Node, arg: Arg, imag: bool) -> Arg:
    """One part of a tensor, a number, or each of a list of them; the imaginary part of what is real is 0."""
    if isinstance(arg, tuple):
        return tuple(part(n, a, imag) for a in arg)
    real, other = pair(arg)
    if not imag or arg is None:
        return real
    if other is not None:
        return other
    return n.full(real.type.shape, 0, real.type.dtype) if isinstance(real, Value) else 0


def with_args(n: Node, **args: Arg) -> Node:
    """The node with some arguments replaced."""
    return Node(n.fx, {**n.args, **args}, n.host)


def joined(real: Arg, imag: Arg) -> Arg:
    """Results for each part as complex numbers."""
    if isinstance(real, tuple):
        return tuple(joined(r, i) for r, i in zip(real, imag, strict=True))
    return Complex(real, imag)


def by_parts(convert: Converter, names: tuple[str, ...]) -> Converter:
    """A converter that treats each part alone; ``names`` are the arguments that may be complex."""

    def run(n: Node, imag: bool) -> Arg:
        given = [k for k in names if k in n.args]
        return convert(with_args(n, **{k: part(n, n.args[k], imag) for k in given}))

    return lambda n: joined(run(n, False), run(n, True))


def bilinear(convert: Converter, names: tuple[str, str]) -> Converter:
    """A converter that is linear in each of two arguments."""

    def run(n: Node) -> Complex:
        (ar, ai), (br, bi) = (pair(n.args[k]) for k in names)

        def of_parts(a: Arg, b: Arg) -> Value:
            found = convert(with_args(n, **{names[0]: a, names[1]: b}))
            assert isinstance(found, Value)
            return found

        if bi is None:
            return Complex(of_parts(ar, br), of_parts(ai, br))
        if ai is None:
            return Complex(of_parts(ar, br), of_parts(ar, bi))
        return Complex(
            n.emit("subtract", of_parts(ar, br), of_parts(ai, bi)), n.emit("add", of_parts(ar, bi), of_parts(ai, br))
        )

    return run


def argument(n: Node, name: str = "self") -> Complex:
    """A complex argument; a real one gets an imaginary part of 0."""
    given = n.get(name)
    if isinstance(given, Complex):
        return given
    if isinstance(given, complex):
        dtype = n.out_dtype
        return Complex(n.scalar(given.real, dtype), n.scalar(given.imag, dtype))
    real = given if isinstance(given, Value) else n.operand(given, n.out_dtype)
    return Complex(real, n.full(real.type.shape, 0, real.type.dtype))


def scaled(n: Node, z: Complex, factor: Value, op: str = "multiply") -> Complex:
    """Both parts times, or divided by, real numbers."""
    return Complex(n.emit(op, z.real, factor), n.emit(op, z.imag, factor))


# ---- parts and polar form ------------------------------------------------------------------------------------------


def view_as_complex(n: Node) -> Complex:
    """The last axis as real and imaginary part."""
    x = n.value()
    parts = n.emit_tuple("split", x, axis=-1, sizes=(1, 1))
    real, imag = (n.emit("squeeze", p, axes=(-1,)) for p in parts)
    return Complex(real, imag)


def view_as_real(n: Node) -> Value:
    """Real and imaginary part along a new last axis."""
    return stacked(n, argument(n))


def stacked(n: Node, z: Complex) -> Value:
    """Parts along a new last axis."""
    return n.emit("stack", z.real, z.imag, axis=len(z.shape))


def unstacked(n: Node, y: Value) -> Complex:
    """Complex numbers of a tensor whose last axis holds their parts."""
    return view_as_complex(with_args(n, self=y))


def conjugate(n: Node) -> Complex:
    """With the other sign of the imaginary part."""
    z = argument(n)
    return Complex(z.real, n.emit("negative", z.imag))


def absolute(n: Node) -> Value:
    """Lengths."""
    z = argument(n)
    return hypotenuse(n, z.real, z.imag)


def polar(n: Node) -> Complex:
    """Numbers of given lengths and angles."""
    length, turn = n.value("abs"), n.value("angle")
    return turned(n, length, turn)


def turned(n: Node, length: Value, turn: Value) -> Complex:
    """``length * e ** (i * turn)``."""
    return scaled(n, Complex(n.emit("cos", turn), n.emit("sin", turn)), length)


def exponential(n: Node) -> Complex:
    """``e ** z``."""
    z = argument(n)
    return turned(n, n.emit("exp", z.real), z.imag)


def logarithm(n: Node) -> Complex:
    """Logarithm of the length, and the angle."""
    z = argument(n)
    return Complex(n.emit("log", hypotenuse(n, z.real, z.imag)), n.emit("atan2", z.imag, z.real))


def power(n: Node) -> Complex:
    """Whole powers, by products."""
    exponent = n.get("exponent")
    if not isinstance(exponent, int) or not 1 <= exponent <= MOST_FACTORS:
        n.unsupported(f"a power of complex numbers other than 1 to {MOST_FACTORS}")
    return reduce(lambda a, b: times(n, a, b), (argument(n),) * exponent)


def times(n: Node, a: Complex, b: Complex) -> Complex:
    """The product."""
    crossed = [
        n.emit("multiply", p, q) for p, q in ((a.real, b.real), (a.imag, b.imag), (a.real, b.imag), (a.imag, b.real))
    ]
    return Complex(n.emit("subtract", *crossed[:2]), n.emit("add", *crossed[2:]))


def quotient(n: Node, a: Complex, b: Complex) -> Complex:
    """The quotient; the divisor is scaled by its greater part, so that squares do not overflow."""
    big = n.emit("maximum", n.emit("abs", b.real), n.emit("abs", b.imag))
    unit = scaled(n, b, big, "divide")
    square = n.emit("add", n.emit("multiply", unit.real, unit.real), n.emit("multiply", unit.imag, unit.imag))
    found = times(n, a, Complex(unit.real, n.emit("negative", unit.imag)))
    return scaled(n, found, n.emit("multiply", square, big), "divide")


def divide(n: Node) -> Complex:
    """``self / other``."""
    if not holds(n.get("other")):
        return scaled(n, argument(n), n.operand(n.get("other"), n.out_dtype), "divide")
    return quotient(n, argument(n), argument(n, "other"))


def reciprocal(n: Node) -> Complex:
    """``1 / z``."""
    z = argument(n)
    return quotient(n, Complex(n.scalar(1, z.dtype), n.scalar(0, z.dtype)), z)


def equality(n: Node) -> Value:
    """Whether both parts are equal."""
    a, b = argument(n), argument(n, "other")
    return n.emit("logical_and", n.emit("equal", a.real, b.real), n.emit("equal", a.imag, b.imag))


def converted(real: Converter) -> Converter:
    """A change of dtype: to the parts' dtype, or to real numbers, which the real part alone becomes."""

    def convert(n: Node) -> Arg:
        z = argument(n)
        if not n.meta().dtype.is_complex:
            return real(with_args(n, self=z.real))
        return Complex(n.cast(z.real, n.out_dtype), n.cast(z.imag, n.out_dtype))

    return convert


MOST_FACTORS: Final = 16
"""Greatest power of complex numbers."""
MAKING: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "complex": lambda n: Complex(n.value("real"), n.value("imag")),
        "imag": lambda n: argument(n).imag,
        "polar": polar,
        "view_as_complex": view_as_complex,
        "view_as_real": view_as_real,
    }
)
"""Operators that make complex numbers of real ones, and that take nothing else, by the name of the ATen packet."""
OWN: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "_conj": conjugate,
        "abs": absolute,
        "angle": lambda n: n.emit("atan2", argument(n).imag, argument(n).real),
        "conj_physical": conjugate,
        "div": divide,
        "eq": equality,
        "exp": exponential,
        "log": logarithm,
        "ne": lambda n: n.emit("logical_not", equality(n)),
        "pow": power,
        "real": lambda n: argument(n).real,
        "reciprocal": reciprocal,
        "square": lambda n: times(n, argument(n), argument(n)),
    }
)
"""Operators with converters of their own for complex numbers."""
BILINEAR: Final = MappingProxyType(
    {
        "bmm": ("self", "mat2"),
        "dot": ("self", "tensor"),
        "matmul": ("self", "other"),
        "mm": ("self", "mat2"),
        "mul": ("self", "other"),
        "mv": ("self", "vec"),
        "outer": ("self", "vec2"),
    }
)
"""Products, and the names of their factors."""
CONVERTING: Final = ("_to_copy", "to", "type_as")
"""Changes of dtype."""
NUMBERS: Final = MappingProxyType(
    {
        "add": ("self", "other"),
        "cat": ("tensors",),
        "concat": ("tensors",),
        "constant_pad_nd": ("self", "value"),
        "copy": ("self", "src"),
        "full": ("fill_value",),
        "full_like": ("self", "fill_value"),
        "index_add": ("self", "source"),
        "index_copy": ("self", "source"),
        "index_put": ("self", "values"),
        "masked_fill": ("self", "value"),
        "pad": ("self", "value"),
        "rsub": ("self", "other"),
        "scatter": ("self", "src", "value"),
        "scatter_add": ("self", "src"),
        "scalar_tensor": ("s",),
        "select_scatter": ("self", "src"),
        "slice_scatter": ("self", "src"),
        "stack": ("tensors",),
        "sub": ("self", "other"),
        "where": ("self", "other"),
        "zeros": (),
    }
)
"""Operators that work on each part alone with more than ``self``, and the names of the arguments with numbers."""
SELF: Final = (
    "_reshape_alias _unsafe_index _unsafe_view alias broadcast_to chunk clone contiguous cumsum detach diagonal "
    "dropout empty_like expand expand_as flatten flip gather index index_select lift_fresh_copy mean movedim mT narrow "
    "neg new_zeros numpy_T permute repeat reshape reshape_as resolve_conj resolve_neg roll select slice split "
    "split_with_sizes squeeze sum swapaxes t take tile transpose tril triu unbind unflatten unfold unsqueeze "
    "view view_as zeros_like"
).split()
"""Operators that work on each part of ``self`` alone."""
SIZES: Final = ("_assert_tensor_metadata", "sym_numel", "sym_size", "sym_stride", "sym_storage_offset")
"""Operators that ask for nothing but sizes, which both parts have."""


def of_complex(real: Mapping[str, Converter]) -> Mapping[str, Converter]:
    """Converters of complex numbers by the name of the ATen packet, given those of real ones."""

    def of_first(convert: Converter) -> Converter:
        return lambda n: convert(with_args(n, **{k: part(n, a, False) for k, a in n.args.items() if holds(a)}))

    return MappingProxyType(
        {
            **OWN,
            **{name: bilinear(real[name], factors) for name, factors in BILINEAR.items()},
            **{name: by_parts(real[name], names) for name, names in NUMBERS.items()},
            **{name: by_parts(real[name], ("self",)) for name in SELF},
            **{name: converted(real[name]) for name in CONVERTING},
            **{name: of_first(real[name]) for name in SIZES},
        }
    )
