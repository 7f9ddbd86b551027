"""Dimensions are sympy integer expressions; this file builds them cheaply.

A *light* expression consists of ``Dim`` symbols, Python or sympy integers, sympy sums, products and
non-negative powers, and the six functions below.  Constants are always Python ints.  Division floors
and ``mod`` takes the sign of the divisor, as in Python.  A division by zero and a broadcast of two
different sizes neither of which is 1 have no value: proofs say nothing about such points.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from functools import lru_cache
from hashlib import blake2b
from keyword import iskeyword
from typing import Any, TypeAlias

import sympy

from relaxir.support.errors import SymError

DimLike: TypeAlias = int | sympy.Expr
"""A Python int or a sympy integer expression."""


_LONGEST_KEY = 400


class _Operators:
    """Floor division and remainder that build light forms; mixed into ``Dim`` and the functions."""

    __slots__ = ()
    _op_priority = 11.0  # so that `(n + 1) // m` asks m, not sympy's sum

    def __floordiv__(self, other: Any) -> DimLike:
        return floordiv(self, other)

    def __rfloordiv__(self, other: Any) -> DimLike:
        return floordiv(other, self)

    def __mod__(self, other: Any) -> DimLike:
        return mod(self, other)

    def __rmod__(self, other: Any) -> DimLike:
        return mod(other, self)

    def __divmod__(self, other: Any) -> tuple[DimLike, DimLike]:
        return floordiv(self, other), mod(self, other)

    def __rdivmod__(self, other: Any) -> tuple[DimLike, DimLike]:
        return floordiv(other, self), mod(other, self)


class Dim(_Operators, sympy.Symbol):  # type: ignore[misc]  # sympy is untyped
    """A symbolic dimension; its range and multiple are part of its identity.

    Build one with ``dim``, which checks the arguments.
    """

    __slots__ = ("max", "min", "multiple_of")

    min: int
    max: int | None
    multiple_of: int

    def __new__(cls, name: str, min: int = 0, max: int | None = None, multiple_of: int = 1) -> Dim:
        """Build a symbol without checks; sympy's own symbol cache does not know ranges, so it is avoided."""
        assumptions = {"integer": True}
        if min >= 0:
            assumptions["positive" if min > 0 else "nonnegative"] = True
        self: Dim = sympy.Symbol.__xnew__(cls, name, **assumptions)
        self.min, self.max, self.multiple_of = min, max, multiple_of
        return self

    def _hashable_content(self) -> tuple[Any, ...]:
        # sympy orders by these, so every field must be comparable: no None
        return (self.name, self.min, self.max is not None, self.max or 0, self.multiple_of)

    def __getnewargs_ex__(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        return (self.name, self.min, self.max, self.multiple_of), {}


def dim(name: str, min: int = 0, max: int | None = None, multiple_of: int = 1) -> Dim:
    """Return the dimension ``name`` with values in ``min..max`` that are multiples of ``multiple_of``.

    The default range is that of sizes. A negative ``min`` makes a number, such as the start of a slice that comes from
    data: formulas and shape values may have it, the axis of a tensor may not.

    Raises ``SymError`` for a name that is no identifier or a range that holds no value.
    """
    if not _is_identifier(name):
        raise SymError(f"a dimension needs an identifier as its name, not {name!r}")
    if iskeyword(name):
        raise SymError(f"{name!r} is a word of Python and cannot name a dimension", help=f"call it `{name}_`")
    low, step = _whole(min, "min"), _whole(multiple_of, "multiple_of")
    high = None if max is None else _whole(max, "max")
    if step < 1:
        raise SymError(f"dimension {name}: multiple_of must be at least 1, not {step}")
    if high is not None and high // step * step < low:
        what = "value" if step == 1 else f"multiple of {step}"
        raise SymError(f"dimension {name}: no {what} lies between min {low} and max {high}")
    return Dim(name, low, high, step)


def _is_identifier(name: object) -> bool:
    return isinstance(name, str) and name.isidentifier()


def _whole(value: Any, what: str) -> int:
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SymError(f"{what} must be an integer, not {value!r}")
    if not -(1 << 63) <= int(value) < 1 << 63:
        raise SymError(f"{what} does not fit 64 bits")
    return int(value)


def fresh(name: str, taken: Collection[str], min: int = 0, max: int | None = None) -> Dim:
    """Return a dimension whose name is ``name``, or the first of ``name_1, name_2 ...`` not in ``taken``.

    A bound above what 64 bits hold is none: no size reaches it.
    """
    unique, count = name, 0
    while unique in taken or iskeyword(unique):
        count += 1
        unique = f"{name}_{count}"
    return dim(unique, min, max if max is None or max < 1 << 63 else None)


class Light(_Operators, sympy.Expr):  # type: ignore[misc]  # sympy is untyped
    """Base of the light functions: plain sympy nodes that fold constants and nothing else."""

    __slots__ = ()
    is_integer = True
    is_commutative = True
    label = ""
    """The name the function has in text."""

    def __new__(cls, *args: Any) -> Any:
        """Rebuild through ``fold``: what sympy calls when it replaces arguments."""
        return sympy.sympify(cls.fold(*(unwrap(sympy.sympify(arg)) for arg in args)))

    @classmethod
    def fold(cls, *args: DimLike) -> DimLike:
        """Return the function of ``args``, folded where that is trivial."""
        raise NotImplementedError

    @classmethod
    def raw(cls, *args: DimLike) -> sympy.Expr:
        """Return the node itself, without folding."""
        return sympy.Expr.__new__(cls, *map(sympy.sympify, args))

    def _sympystr(self, printer: Any) -> str:
        return f"{self.label}({', '.join(map(printer._print, self.args))})"


class FloorDiv(Light):
    """``a // b``."""

    __slots__ = ()
    label = "floordiv"

    @classmethod
    def fold(cls, *args: DimLike) -> DimLike:
        """Return ``a // b``; divide constants and sums whose coefficients are all divisible."""
        a, b = args
        if isinstance(b, int):
            if b == 0:
                raise SymError("division of a dimension by zero")
            if isinstance(a, int):
                return a // b
            exact = divide_exactly(a, b)
            if exact is not None:
                return exact
        elif a == b:
            return 1
        return 0 if a == 0 else cls.raw(a, b)


class Mod(Light):
    """``a % b``, with the sign of ``b``."""

    __slots__ = ()
    label = "mod"

    @classmethod
    def fold(cls, *args: DimLike) -> DimLike:
        """Return ``a % b``; it is 0 for multiples of ``b``, and ``(x % b) % b`` is ``x % b``."""
        a, b = args
        if isinstance(b, int):
            if b == 0:
                raise SymError("remainder of a dimension by zero")
            if isinstance(a, int):
                return a % b
            if divide_exactly(a, b) is not None:
                return 0
        if a in (b, 0):
            return 0
        return a if isinstance(a, Mod) and unwrap(a.args[1]) == b else cls.raw(a, b)


class CeilDiv(Light):
    """``-(-a // b)``: the quotient rounded up."""

    __slots__ = ()
    label = "ceildiv"

    @classmethod
    def fold(cls, *args: DimLike) -> DimLike:
        """Return ``a / b`` rounded up; divide what divides exactly."""
        a, b = args
        if isinstance(a, int) and isinstance(b, int) and b != 0:
            return -(-a // b)
        quotient = FloorDiv.fold(a, b)
        return cls.raw(a, b) if isinstance(quotient, FloorDiv) else quotient


class _Extremum(Light):
    """Base of ``Min`` and ``Max``: flat, without duplicates, in a fixed order, the constant last."""

    __slots__ = ()

    @classmethod
    def choose(cls, values: Iterable[int]) -> int:
        """Return the extremum of constants."""
        raise NotImplementedError

    @classmethod
    def fold(cls, *args: DimLike) -> DimLike:
        """Return the extremum of ``args``, flattened, with all constants in one."""
        if not args:
            raise SymError(f"{cls.label}() needs at least one dimension")
        flat: dict[sympy.Expr, None] = {}
        constants: list[int] = []
        for arg in args:
            for part in map(unwrap, arg.args) if isinstance(arg, cls) else (arg,):
                if isinstance(part, int):
                    constants.append(part)
                else:
                    flat[part] = None
        ordered: list[DimLike] = sorted(flat, key=order_key)
        if constants:
            ordered.append(cls.choose(constants))
        return ordered[0] if len(ordered) == 1 else cls.raw(*ordered)


class Min(_Extremum):
    """The smallest of several dimensions."""

    __slots__ = ()
    label = "min"

    @classmethod
    def choose(cls, values: Iterable[int]) -> int:
        """Return the smallest of constants."""
        return min(values)


class Max(_Extremum):
    """The largest of several dimensions."""

    __slots__ = ()
    label = "max"

    @classmethod
    def choose(cls, values: Iterable[int]) -> int:
        """Return the largest of constants."""
        return max(values)


class Broadcast(Light):
    """The size that ``a`` and ``b`` have together: they are equal, or one of them is 1."""

    __slots__ = ()
    label = "broadcast"

    @classmethod
    def fold(cls, *args: DimLike) -> DimLike:
        """Return the broadcast size; a constant 1 gives the other size."""
        a, b = args
        if a in (1, b):
            return b
        if b == 1:
            return a
        if isinstance(a, int) and isinstance(b, int):
            raise SymError(f"sizes {a} and {b} do not broadcast")
        return cls.raw(a, b)


def unwrap(expr: Any) -> DimLike:
    """Return a sympy integer as a Python int and anything else unchanged."""
    if isinstance(expr, sympy.Integer):
        return int(expr)
    result: DimLike = expr
    return result


def divide_exactly(expr: sympy.Expr, divisor: int) -> DimLike | None:
    """Return ``expr / divisor`` where every coefficient of ``expr`` is divisible, else None."""
    parts = []
    for term in sympy.Add.make_args(expr):
        coefficient, rest = term.as_coeff_Mul()
        if not isinstance(coefficient, sympy.Integer) or int(coefficient) % divisor:
            return None
        parts.append(sympy.Integer(int(coefficient) // divisor) * rest)
    return unwrap(sympy.Add(*parts))


@lru_cache(maxsize=8192)
def order_key(expr: sympy.Expr) -> str:
    """Return a text that orders expressions the same way in every process."""
    if isinstance(expr, sympy.Integer):
        return str(expr)
    if isinstance(expr, Dim):
        return f"{expr.name}[{expr.min},{expr.max},{expr.multiple_of}]"
    parts = [order_key(arg) for arg in expr.args]
    if isinstance(expr, (sympy.Add, sympy.Mul)):
        parts.sort()
    return short_key(f"{type(expr).__name__}({','.join(parts)})" if parts else str(expr))


def short_key(key: str) -> str:
    """Cut a long key and mark it with a digest, so that shared subexpressions cannot make keys explode."""
    if len(key) <= _LONGEST_KEY:
        return key
    return f"{key[:_LONGEST_KEY]}#{blake2b(key.encode(), digest_size=16).hexdigest()}"


def floordiv(a: Any, b: Any) -> DimLike:
    """Return ``a // b``, rounding down."""
    return FloorDiv.fold(*map(as_dimlike, (a, b)))


def mod(a: Any, b: Any) -> DimLike:
    """Return ``a % b``, which has the sign of ``b``."""
    return Mod.fold(*map(as_dimlike, (a, b)))


def ceildiv(a: Any, b: Any) -> DimLike:
    """Return ``a / b`` rounded up."""
    return CeilDiv.fold(*map(as_dimlike, (a, b)))


def min_(*xs: Any) -> DimLike:
    """Return the smallest of ``xs``."""
    return Min.fold(*map(as_dimlike, xs))


def max_(*xs: Any) -> DimLike:
    """Return the largest of ``xs``."""
    return Max.fold(*map(as_dimlike, xs))


def broadcast(a: Any, b: Any) -> DimLike:
    """Return the size that ``a`` and ``b`` broadcast to; two constants that do not raise ``SymError``."""
    return Broadcast.fold(*map(as_dimlike, (a, b)))


def add(a: Any, b: Any) -> DimLike:
    """Return ``a + b``."""
    a, b = as_dimlike(a), as_dimlike(b)
    return a + b if isinstance(a, int) and isinstance(b, int) else unwrap(sympy.sympify(a + b))


def sub(a: Any, b: Any) -> DimLike:
    """Return ``a - b``."""
    a, b = as_dimlike(a), as_dimlike(b)
    return a - b if isinstance(a, int) and isinstance(b, int) else unwrap(sympy.sympify(a - b))


def mul(a: Any, b: Any) -> DimLike:
    """Return ``a * b``."""
    a, b = as_dimlike(a), as_dimlike(b)
    return a * b if isinstance(a, int) and isinstance(b, int) else unwrap(sympy.sympify(a * b))


def product(xs: Iterable[Any]) -> DimLike:
    """Return the product of ``xs``; 1 for none."""
    result: DimLike = 1
    for x in xs:
        result = mul(result, x)
    return result


def total(xs: Iterable[Any]) -> DimLike:
    """Return the sum of ``xs``; 0 for none."""
    result: DimLike = 0
    for x in xs:
        result = add(result, x)
    return result


def as_dimlike(value: Any) -> DimLike:
    """Return ints of any kind as Python ints and sympy expressions as they are; else raise ``SymError``."""
    if type(value) is int:
        return value
    if isinstance(value, sympy.Expr):
        return unwrap(value)
    if isinstance(value, bool) or not hasattr(value, "__index__"):
        raise SymError(f"a dimension must be an integer or a sympy integer expression, not {value!r}")
    return int(value.__index__())


def is_const(expr: DimLike) -> bool:
    """Tell whether ``expr`` is a constant."""
    return isinstance(unwrap(expr), int)


@lru_cache(maxsize=8192)
def _free_dims(expr: sympy.Expr) -> tuple[Dim, ...]:
    # not sympy's free_symbols: that visits shared subexpressions again and again
    if isinstance(expr, Dim):
        return (expr,)
    return tuple(sorted({d for arg in expr.args for d in _free_dims(arg)}, key=order_key))


def free_dims(expr: DimLike) -> tuple[Dim, ...]:
    """Return the dimensions that occur in ``expr``, sorted by name."""
    return () if isinstance(expr, int) else _free_dims(expr)


def substitute(expr: DimLike, mapping: Mapping[Dim, DimLike]) -> DimLike:
    """Replace dimensions by expressions, all at once."""
    if isinstance(expr, int) or not mapping:
        return expr
    return unwrap(expr.xreplace({old: sympy.sympify(new) for old, new in mapping.items()}))
