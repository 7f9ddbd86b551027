"""Symbols of an exported program: its size expressions, ranges and guards as dimensions and relations."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from math import isfinite, isnan, nan
from types import MappingProxyType
from typing import Any, Final, Literal

from relaxir.frontends.torch.ratio import Ratio
from relaxir.support.errors import UnsupportedError
from relaxir.sym import (
    Dim,
    DimLike,
    Facts,
    Proof,
    Relation,
    SymError,
    add,
    dim,
    floordiv,
    free_dims,
    fresh,
    max_,
    min_,
    mod,
    mul,
    product,
    sub,
    substitute,
    total,
)
from relaxir.sym.parser import comparison

DEFAULT_MIN: Final = 2
"""Least size that torch assumes of every dynamic dimension; it is no restriction of the program."""
FARTHEST: Final = 4096
"""Greatest lower bound whose origin is looked for."""
MAX_SIZE: Final = 2**31
"""Upper bounds from here on say nothing."""
FUNCTIONS: Final[Mapping[str, Callable[..., DimLike]]] = MappingProxyType(
    {
        "Add": lambda *xs: total(xs),
        "Mul": lambda *xs: product(xs),
        "FloorDiv": floordiv,
        "CleanDiv": floordiv,
        "Mod": mod,
        "PythonMod": mod,
        "Max": max_,
        "Min": min_,
        "Pow": lambda base, exponent: product([base] * int(exponent)),
    }
)
"""Functions of torch's size expressions."""

ORDERS: Final[Mapping[str, Literal["<", "<="]]] = MappingProxyType(
    {"StrictLessThan": "<", "StrictGreaterThan": "<", "LessThan": "<=", "GreaterThan": "<="}
)
"""Torch's orders of sizes, from the lesser to the greater side."""


class Symbols:
    """Dimensions by torch's names, made from the ranges of a program."""

    def __init__(self, ranges: Mapping[Any, Any]) -> None:
        self.ranges = {str(symbol): value_range for symbol, value_range in ranges.items()}
        self.dims: dict[str, Dim] = {}
        self.places: dict[tuple[str, int], DimLike] = {}

    def bounds(self, name: str) -> tuple[int | None, int | None]:
        """Least and greatest value of a symbol, None where unbounded."""
        value_range = self.ranges.get(name)
        if value_range is None:
            return None, None
        return finite(value_range.lower), finite(value_range.upper)

    def symbol(self, name: str) -> Dim:
        """The dimension of a torch symbol; torch's own lower bound of 2 is dropped, others are kept."""
        if name not in self.dims:
            low, high = self.bounds(name)
            least = 0 if low is None or low == DEFAULT_MIN else max(low, 0)
            self.dims[name] = fresh(name, (), min=least, max=None if high is None or high >= MAX_SIZE else high)
        return self.dims[name]

    def size(self, value: Any) -> DimLike:
        """A size of a tensor: a number or torch's expression."""
        return value if isinstance(value, int) else self.convert(value.node.expr)

    def convert(self, expr: Any) -> DimLike:
        """A size expression of torch.

        Raises:
            UnsupportedError: a function that sizes do not have here.
        """
        if expr.is_Symbol:
            return self.symbol(expr.name)
        if expr.is_Integer:
            return int(expr)
        args = [self.convert(a) for a in expr.args]
        name = expr.func.__name__
        if name not in FUNCTIONS:
            raise UnsupportedError(f"size expression {expr} uses `{name}`", code="import-unsupported")
        return FUNCTIONS[name](*args)

    def place(self, name: str, shape: Sequence[Any]) -> tuple[DimLike, ...]:
        """Shape of an input, remembered for the guards."""
        dims = tuple(self.size(s) for s in shape)
        self.places.update({(name, axis): d for axis, d in enumerate(dims)})
        return dims

    # ---- guards ----------------------------------------------------------------------------------------------------

    def relations(self, guards: Sequence[str]) -> tuple[Relation, ...]:
        """Relations between sizes that the program was traced under, and equalities of one.

        Bounds of a single symbol are in its range, and inequalities (``!=``) hold off a few sizes only: torch makes
        them for its bookkeeping of memory layouts (`taken` has those of the program). So it does the bound of 2 for
        sizes that are computed from others, and what holds wherever every size is at least 2. Equalities that divide
        by a size of 0 are of that kind: operators check for themselves that elements can be arranged as a shape says.
        """
        found: dict[Relation, None] = {}
        for node in parsed(guards):
            try:
                relation = self.guard(node)
            except (SymError, KeyError, UnsupportedError):
                continue  # a guard about something else than sizes
            if relation is not None and states(relation):
                found.setdefault(relation)
        links = [r for r in found if r.op == "==" and len(symbols_of(r)) > 1]
        return tuple(r for r in found if r in links or not self.own(r, links))

    def own(self, relation: Relation, links: Sequence[Relation]) -> bool:
        """Whether a relation is nothing but torch's bound of 2, or follows from it and equalities of several sizes."""
        order = relation.op != "==" and isinstance(relation.left, int)
        if order and relation.left + (relation.op == "<") == DEFAULT_MIN:
            return True
        torchs = {d: Dim(name, self.bounds(name)[0] or 0, d.max) for name, d in self.dims.items()}
        facts = Facts(torchs.values(), [substituted(r, torchs) for r in links])
        return facts.prove(substituted(relation, torchs)) is Proof.PROVED

    def assumed(self, guards: Sequence[str]) -> Mapping[Dim, tuple[DimLike, ...]]:
        """For each symbol the sizes, computed from it alone, that torch assumed to be at least 2."""
        found: dict[Dim, tuple[DimLike, ...]] = {}
        for node in parsed(guards):
            match node:
                case ast.Compare(left=left, ops=[ast.NotEq() | ast.Gt()], comparators=[ast.Constant(value=1)]):
                    pass
                case ast.Compare(left=left, ops=[ast.GtE()], comparators=[ast.Constant(value=2)]):
                    pass
                case _:
                    continue
            try:
                size = self.term(left)
            except (SymError, KeyError, UnsupportedError):
                continue
            symbols = free_dims(size)
            if len(symbols) == 1:
                (symbol,) = symbols
                found[symbol] = (*found.get(symbol, ()), size)
        return found

    def guard(self, node: ast.expr) -> Relation | None:
        """A comparison as a relation."""
        if not isinstance(node, ast.Compare) or len(node.ops) != 1:
            return None
        return comparison(node.ops[0], self.term(node.left), self.term(node.comparators[0]))

    def taken(self, branches: Iterable[Any]) -> tuple[Relation, ...]:
        """What a program's own code found true of its inputs' sizes, beside the range of each: torch's comparisons."""
        found: dict[Relation, None] = {}
        for branch in branches:
            kind = branch.func.__name__
            range_of_one = kind in ORDERS and {a.is_Symbol for a in branch.args} == {a.is_Integer for a in branch.args}
            if range_of_one or not {s.name for s in branch.free_symbols} <= self.dims.keys():
                continue
            with suppress(UnsupportedError, SymError):
                if kind == "Unequality":
                    apart = sub(*map(self.convert, branch.args))
                    found.setdefault(Relation("<=", 1, mul(apart, apart)))
                elif kind in ORDERS:
                    found.setdefault(Relation(ORDERS[kind], self.convert(branch.lts), self.convert(branch.gts)))
        return tuple(found)

    def term(self, node: ast.expr) -> DimLike:
        """A side of a guard.

        Raises:
            UnsupportedError: anything but linear arithmetic, ``//`` and ``%`` of sizes, and their floats rounded down.
        """
        match node:
            case ast.Constant(value=int(number)):
                return number
            case ast.UnaryOp(op=ast.USub(), operand=inner):
                return mul(-1, self.term(inner))
            case ast.BinOp(left=a, op=op, right=b) if type(op) in BINARY:
                return BINARY[type(op)](self.term(a), self.term(b))
            case ast.Subscript(
                value=ast.Call(func=ast.Attribute(value=source, attr="size")), slice=ast.Constant(value=int(axis))
            ):
                return self.places[input_name(source), axis]
            case ast.Call(func=ast.Attribute(value=ast.Name(id="math"), attr="trunc" | "floor" as how), args=[inner]):
                size = self.quotient(inner)
                above = size.numerator
                if how == "floor" or Facts(free_dims(above)).prove_le(0, above) is Proof.PROVED:
                    return floordiv(above, size.denominator)
        raise UnsupportedError("a guard about something else", code="import-unsupported")

    def quotient(self, node: ast.expr) -> Ratio:
        """A float computed from sizes; constants count as in `sizes`."""
        match node:
            case ast.Constant(value=float(number)) if isfinite(number) and number >= 0:
                return Ratio.of(number)
            case ast.Call(func=ast.Attribute(value=ast.Name(id="torch"), attr="sym_float"), args=[inner]):
                return Ratio(self.term(inner))
            case ast.BinOp(left=a, op=ast.Mult(), right=b):
                return self.quotient(a) * self.quotient(b)
            case ast.BinOp(left=a, op=ast.Div(), right=b):
                divisor = self.quotient(b)
                if isinstance(divisor.numerator, int) and divisor.numerator > 0:
                    return self.quotient(a) / divisor
        return Ratio(self.term(node))

    def relax(self, relations: Sequence[Relation], guards: Sequence[str] = ()) -> Mapping[Dim, Dim]:
        """Symbols whose lower bound only follows from torch's bound of 2 for other sizes, with what replaces them.

        The length of an attention mask is such a one: at least 4, for it is a past and a new length of at least 2 each.
        So is an extent of at least 6 whose third is the extent of another tensor.
        """
        changed: dict[Dim, Dim] = {}
        assumed = self.assumed(guards)
        for name, d in self.dims.items():
            if d.min <= DEFAULT_MIN:
                continue
            low, high = d.min, d.max
            computed = [
                s for s in assumed.get(d, ()) if low <= FARTHEST and at(s, d, low - 1) < DEFAULT_MIN <= at(s, d, low)
            ]
            if computed:
                least = next(v for v in range(low + 1) if all(at(s, d, v) >= 0 for s in computed))
                changed[d] = self.dims[name] = dim(d.name, min=least, max=high)
                continue
            free = dim(d.name, min=0, max=high)
            others = {o: Dim(n, self.bounds(n)[0] or 0, o.max) for n, o in self.dims.items() if o != d}
            stated = [substituted(r, {**others, d: free}) for r in relations]
            facts = Facts([free, *others.values()], stated)
            if facts.prove_le(low, free) is Proof.PROVED:
                changed[d] = free
                self.dims[name] = free
        return changed


def input_name(node: ast.expr) -> str:
    """Name of the input that a guard calls ``L['x'][0]``: torch joins the path by underscores.

    Raises:
        UnsupportedError: something else than a path.
    """
    match node:
        case ast.Subscript(value=ast.Name(id="L"), slice=ast.Constant(value=key)):
            return str(key)
        case ast.Subscript(value=inner, slice=ast.Constant(value=int(key) | str(key))):
            return f"{input_name(inner)}_{key!s}"
        case ast.Attribute(value=inner, attr=key):
            return f"{input_name(inner)}_{key!s}"
    raise UnsupportedError("a guard about something else", code="import-unsupported")


def parsed(guards: Sequence[str]) -> Iterator[ast.expr]:
    """Guards as expressions of Python, as far as they are."""
    for text in guards:
        with suppress(SyntaxError):
            yield ast.parse(text, mode="eval").body


def at(size: DimLike, symbol: Dim, value: int) -> float:
    """What a size computed from one symbol is at a value of it; NaN, which fails comparisons, where that is nothing."""
    try:
        return int(substitute(size, {symbol: value}))
    except SymError:
        return nan


def symbols_of(relation: Relation) -> set[Dim]:
    """Every symbol of a relation."""
    return {*free_dims(relation.left), *free_dims(relation.right)}


def states(relation: Relation) -> bool:
    """Whether a relation says something of several sizes, or is an equality of one that is defined where it is 0."""
    symbols = symbols_of(relation)
    if len(symbols) != 1 or relation.op != "==":
        return len(symbols) > 1
    (symbol,) = symbols
    return not any(isnan(at(side, symbol, 0)) for side in (relation.left, relation.right))


def substituted(relation: Relation, mapping: Mapping[Dim, Dim]) -> Relation:
    """A relation in other symbols."""
    return Relation(relation.op, substitute(relation.left, mapping), substitute(relation.right, mapping))


def finite(value: Any) -> int | None:
    """A bound as a number, None for an infinite one."""
    try:
        return int(value)
    except (TypeError, ValueError, OverflowError, AttributeError):
        return None


BINARY: Final[Mapping[type[ast.operator], Callable[[DimLike, DimLike], DimLike]]] = MappingProxyType(
    {ast.Add: add, ast.Sub: sub, ast.Mult: mul, ast.FloorDiv: floordiv, ast.Mod: mod}
)
"""Arithmetic of guards."""
