"""Converters of arithmetic on sizes (SymInt, SymBool, SymFloat), of asserts, and of reads of a tensor's element."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from math import isfinite
from types import MappingProxyType
from typing import Final

from relaxir.frontends.torch.node import FARTHEST, Arg, Converter, Node
from relaxir.frontends.torch.ratio import Ratio
from relaxir.frontends.values import Value
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, Proof, Relation, add, ceildiv, floordiv, max_, min_, mod, mul, product, sub, total


def floats(x: Arg) -> bool:
    """Whether an argument is a float, a quotient or a tensor: no size."""
    return isinstance(x, float | Ratio | Value)


def ratio(x: Arg) -> Ratio | None:
    """A size, quotient or float as a quotient of sizes; None for what is none."""
    if isinstance(x, Ratio):
        return x
    if isinstance(x, float):
        return Ratio.of(x) if isfinite(x) else None
    return None if isinstance(x, Value | Relation) else Ratio(x)


def arithmetic(
    on_sizes: Callable[..., DimLike], on_floats: str, on_ratios: Callable[[Ratio, Ratio], Ratio] | None = None
) -> Converter:
    """Arithmetic of two sizes, of quotients and floats, or of numbers as tensors."""

    def convert(n: Node) -> Arg:
        a, b = n.args["0"], n.args["1"]
        if not (floats(a) or floats(b)):
            return on_sizes(a, b)
        left, right = ratio(a), ratio(b)
        if on_ratios is not None and left is not None and right is not None:
            return on_ratios(left, right)
        return n.emit(on_floats, n.operand(a, "float64"), n.operand(b, "float64"))

    return convert


def quotient(n: Node) -> Arg:
    """True quotient: a number, a `Ratio` of sizes, or a tensor."""
    a, b = n.args["0"], n.args["1"]
    if isinstance(a, int | float) and isinstance(b, int | float):
        return a / b
    left, right = ratio(a), ratio(b)
    if left is not None and right is not None and surely_positive(n, right.numerator):
        return left / right
    return n.emit("divide", n.operand(a, "float64"), n.operand(b, "float64"))


def surely_positive(n: Node, size: DimLike) -> bool:
    """Whether a divisor keeps the direction of rounding; sizes of tensors do where they are not 0."""
    return n.facts.prove_le(0, size) is Proof.PROVED


def rounded(on_ratio: Callable[[Node, DimLike, DimLike], DimLike]) -> Converter:
    """A quotient as a size; sizes stay."""

    def convert(n: Node) -> Arg:
        x = n.args["0"]
        if isinstance(x, float | Ratio) and (found := ratio(x)) is not None:
            return on_ratio(n, found.numerator, found.denominator)
        if isinstance(x, float | Value):
            n.unsupported("a size computed in floating point")
        return x

    return convert


def toward_zero(n: Node, a: DimLike, b: DimLike) -> DimLike:
    """``a / b`` without its fraction, for positive ``b``."""
    if n.facts.prove_le(0, a) is Proof.PROVED:
        return floordiv(a, b)
    return sub(floordiv(max_(a, 0), b), floordiv(max_(mul(-1, a), 0), b))


def half_to_even(n: Node, a: DimLike, b: DimLike) -> DimLike:
    """The integer next to ``a / b``, for positive ``b``; the even one of two."""
    twice, width = add(mul(2, a), b), mul(2, b)
    up = floordiv(twice, width)
    tie = sub(1, min_(mod(twice, width), 1))
    return sub(up, mul(tie, mod(up, 2)))


def power(n: Node) -> Arg:
    """A power of a size with a constant exponent."""
    base, exponent = n.args["0"], n.args["1"]
    if floats(base) or not isinstance(exponent, int) or exponent < 0:
        return n.emit("power", n.operand(base, "float64"), n.operand(exponent, "float64"))
    return product([base] * exponent)


def root(n: Node) -> Value:
    """Square root of a size."""
    return n.emit("sqrt", n.operand(n.args["0"], "float64"))


def as_float(n: Node) -> Arg:
    """A size as a float."""
    x = n.args["0"]
    return float(x) if isinstance(x, int) else x if floats(x) else Ratio(x)


def compared(make: Callable[[DimLike, DimLike], Relation], on_floats: str) -> Converter:
    """A comparison of sizes: decided where it is known, else a relation."""

    def convert(n: Node) -> Arg:
        a, b = n.args["0"], n.args["1"]
        if floats(a) or floats(b):
            return n.emit(on_floats, n.operand(a, "float64"), n.operand(b, "float64"))
        relation = make(a, b)
        verdict = n.facts.prove(relation)
        return relation if verdict is Proof.UNKNOWN else verdict is Proof.PROVED

    return convert


def differ(a: DimLike, b: DimLike) -> Relation:
    """``a != b``: the square of the difference is at least 1."""
    return Relation("<=", 1, mul(sub(a, b), sub(a, b)))


def negation(n: Node) -> Arg:
    """The opposite of a comparison."""
    x = n.args["0"]
    if isinstance(x, bool):
        return not x
    if not isinstance(x, Relation):
        n.unsupported("the negation of a value of this kind")
    opposite = {
        "==": differ(x.left, x.right),
        "<=": Relation("<", x.right, x.left),
        "<": Relation("<=", x.right, x.left),
    }
    return opposite[x.op]


def size_of(n: Node) -> DimLike | tuple[DimLike, ...]:
    """Extent of an axis, or the whole shape."""
    return n.shape[n.axis()] if "dim" in n.args else n.shape


def numel(n: Node) -> DimLike:
    """Number of elements."""
    return product(n.shape)


def stride_of(n: Node) -> DimLike:
    """Distance of neighbours along an axis; tensors are compact."""
    return product(n.shape[n.axis() + 1 :])


def item(n: Node) -> Arg:
    """The element of a tensor: a size where it is an integer."""
    x = n.value()
    scalar = n.reshape(x, ())
    if info(x.type.dtype).is_float:
        return scalar
    if scalar.known is not None:
        return scalar.known[()]
    low, high = n.host.bounds(symbol_name(n))
    wide = n.cast(scalar, "int64")
    return n.read(wide, FARTHEST if low is None else low, "u", high)[0]


def symbol_name(n: Node) -> str:
    """Torch's symbol for a value read from a tensor."""
    meta = n.fx.meta.get("val")
    return "" if meta is None or not hasattr(meta, "node") else str(meta.node.expr)


def assert_scalar(n: Node) -> None:
    """A condition on sizes that must hold."""
    test = n.get("self", n.args.get("0"))
    message = str(n.get("assert_msg", "an assertion of the program failed"))
    if isinstance(test, Relation):
        n.check(test, message)
    elif isinstance(test, Value):
        n.read(n.cast(n.reshape(test, ()), "int64"), 1, "holds", 1)
    elif test is False or test == 0:
        n.fail(f"the assertion never holds: {message}")


def assert_tensor(n: Node) -> None:
    """A condition computed in a tensor that must hold."""
    n.read(n.cast(n.reshape(n.value(), ()), "int64"), 1, "holds", 1)


def constrain(n: Node) -> None:
    """Bounds of a size."""
    size = n.get("size", n.get("self"))
    low, high = n.get("min"), n.get("max")
    if low is not None:
        n.check(Relation("<=", low, size), f"a size must be at least {low}")
    if high is not None:
        n.check(Relation("<=", size, high), f"a size must be at most {high}")


def nothing(n: Node) -> None:
    """Something that was checked when the program was traced."""


def item_of(n: Node) -> Arg:
    """A field of a tuple."""
    return n.args["0"][n.args["1"]]


def extreme(fn: Callable[..., DimLike], name: str) -> Converter:
    """Larger or smaller of two."""
    return arithmetic(fn, name)


OPERATOR: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "add": arithmetic(add, "add", operator.add),
        "eq": compared(lambda a, b: Relation("==", a, b), "equal"),
        "floordiv": arithmetic(floordiv, "floor_divide"),
        "ge": compared(lambda a, b: Relation("<=", b, a), "greater_equal"),
        "getitem": item_of,
        "gt": compared(lambda a, b: Relation("<", b, a), "greater"),
        "le": compared(lambda a, b: Relation("<=", a, b), "less_equal"),
        "lt": compared(lambda a, b: Relation("<", a, b), "less"),
        "mod": arithmetic(mod, "floor_mod"),
        "mul": arithmetic(mul, "multiply", operator.mul),
        "ne": compared(differ, "not_equal"),
        "neg": lambda n: mul(-1, n.args["0"]),
        "not_": negation,
        "pos": lambda n: n.args["0"],
        "pow": power,
        "sub": arithmetic(sub, "subtract", operator.sub),
        "truediv": quotient,
    }
)
"""Functions of the module operator."""

FUNCTION: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **{f"operator.{k}": v for k, v in OPERATOR.items()},
        "builtins.max": extreme(max_, "maximum"),
        "builtins.min": extreme(min_, "minimum"),
        "builtins.round": rounded(half_to_even),
        "math.ceil": rounded(lambda _, a, b: ceildiv(a, b)),
        "math.floor": rounded(lambda _, a, b: floordiv(a, b)),
        "math.sqrt": root,
        "math.trunc": rounded(toward_zero),
        "torch._sym_sqrt": root,
        "torch.sym_float": as_float,
        "torch.sym_int": rounded(toward_zero),
        "torch.sym_max": extreme(max_, "maximum"),
        "torch.sym_min": extreme(min_, "minimum"),
        "torch.sym_not": negation,
        "torch.sym_sum": lambda n: total(n.args["0"]),
    }
)
"""Functions of sizes by module and name."""

SIZES: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "_assert_async": assert_tensor,
        "_assert_scalar": assert_scalar,
        "_functional_assert_async": assert_tensor,
        "_make_dep_token": nothing,
        "_assert_tensor_metadata": nothing,
        "_local_scalar_dense": item,
        "item": item,
        "sym_constrain_range": constrain,
        "sym_constrain_range_for_size": constrain,
        "sym_numel": numel,
        "sym_size": size_of,
        "sym_storage_offset": lambda n: 0,
        "sym_stride": stride_of,
    }
)
"""Sizes and asserts by the name of the ATen packet."""
