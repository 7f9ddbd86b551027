"""Complex numbers: they exist at import only, as a real and an imaginary part of one shape.

What is true of every operator on them: one that works on each part alone (views, sums, differences) runs its own
converter twice (`by_parts`), a product of any kind once for each choice of parts (`products`). Which operator is of
which kind, and those of no kind, stand in `relaxir.frontends.torch.complex_table`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeAlias

from relaxir.frontends.torch.node import Arg, Converter, Node
from relaxir.frontends.values import Value
from relaxir.support.dtypes import info
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


def real_parts(n: Node) -> Node:
    """The node with the real part of each complex argument in its place."""
    return with_args(n, **{k: part(n, a, False) for k, a in n.args.items() if holds(a)})


def real_alone(convert: Converter) -> Converter:
    """A converter of real numbers, such as ones, that are wanted as complex ones."""

    def run(n: Node) -> Complex:
        found = convert(real_parts(n))
        return Complex(found, n.full(found.type.shape, 0, found.type.dtype))

    return run


def products(convert: Converter, names: Sequence[str], added: str = "") -> Converter:
    """A converter that is linear in each of its factors: some arguments, or the members of one that is a list.

    Each choice of one part from every factor is a term; with ``k`` imaginary parts it is multiplied by ``i ** k``.
    ``added`` names what the converter adds to its product if it is given: the first term of each part does.
    """

    def run(n: Node) -> Complex:
        lists = {k: n.args[k] if isinstance(n.args[k], tuple) else (n.args[k],) for k in names}
        factors = [tuple(part(n, f, imag) for imag in (False, True)) for members in lists.values() for f in members]
        sums: dict[bool, Value] = {}
        for choice in product((0, 1), repeat=len(factors)):
            imag = sum(choice) % 2 == 1
            chosen = iter([f[c] for f, c in zip(factors, choice, strict=True)])
            given = {k: tuple(next(chosen) for _ in members) for k, members in lists.items()}
            args: dict[str, Arg] = {k: a if isinstance(n.args[k], tuple) else a[0] for k, a in given.items()}
            if added:
                args[added] = part(n, n.get(added), imag) if imag not in sums else None
            term = convert(with_args(n, **args))
            op = "add" if sum(choice) % 4 < 2 else "subtract"
            sums[imag] = n.emit(op, sums[imag], term) if imag in sums else term
        return Complex(sums[False], sums[True])

    return run


def argument(n: Node, name: str = "self") -> Complex:
    """A complex argument, in the dtype of a result of floats; a real one gets an imaginary part of 0."""
    real, imag = (part(n, n.get(name), which) for which in (False, True))
    dtype = n.out_dtype
    if not info(dtype).is_float:
        dtype = real.type.dtype if isinstance(real, Value) else "float32"
    return Complex(n.operand(real, dtype), n.operand(imag, dtype))


# ---- arithmetic ----------------------------------------------------------------------------------------------------


def scaled(n: Node, z: Complex, factor: Value, op: str = "multiply") -> Complex:
    """Both parts times, or divided by, real numbers."""
    return Complex(n.emit(op, z.real, factor), n.emit(op, z.imag, factor))


def times(n: Node, a: Complex, b: Complex) -> Complex:
    """The product."""
    crossed = [
        n.emit("multiply", p, q) for p, q in ((a.real, b.real), (a.imag, b.imag), (a.real, b.imag), (a.imag, b.real))
    ]
    return Complex(n.emit("subtract", *crossed[:2]), n.emit("add", *crossed[2:]))


def quotient(n: Node, a: Complex, b: Complex) -> Complex:
    """The quotient; the divisor is scaled by its greater part, so that squares do not overflow. By 0 each part is."""
    big = n.emit("maximum", n.emit("abs", b.real), n.emit("abs", b.imag))
    unit = scaled(n, b, big, "divide")
    square = n.emit("add", n.emit("multiply", unit.real, unit.real), n.emit("multiply", unit.imag, unit.imag))
    found = times(n, a, Complex(unit.real, n.emit("negative", unit.imag)))
    found = scaled(n, found, n.emit("multiply", square, big), "divide")
    return chosen(n, n.emit("equal", big, 0), scaled(n, a, big, "divide"), found)


def chosen(n: Node, test: Value, a: Complex, b: Complex) -> Complex:
    """``a`` where a test holds, else ``b``."""
    return Complex(n.emit("where", test, a.real, b.real), n.emit("where", test, a.imag, b.imag))


# ---- parts beside each other ---------------------------------------------------------------------------------------


def view_as_complex(n: Node) -> Complex:
    """The last axis as real and imaginary part."""
    return unstacked(n, n.value())


def view_as_real(n: Node) -> Value:
    """Real and imaginary part along a new last axis."""
    return stacked(n, argument(n))


def stacked(n: Node, z: Complex) -> Value:
    """Parts along a new last axis."""
    return n.emit("stack", z.real, z.imag, axis=len(z.shape))


def unstacked(n: Node, y: Value) -> Complex:
    """Complex numbers of a tensor whose last axis holds their parts."""
    real, imag = (n.emit("squeeze", p, axes=(-1,)) for p in n.emit_tuple("split", y, axis=-1, sizes=(1, 1)))
    return Complex(real, imag)
