"""Types of graph-level values: every tensor has a rank, a dtype and a symbolic shape."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from relaxir.support.dtypes import dtype as canonical_dtype
from relaxir.support.dtypes import short
from relaxir.support.errors import SymError
from relaxir.sym import LARGEST, Dim, DimLike, free_dims, normalize, parse, substitute, to_text


def _size(d: DimLike) -> DimLike:
    """A dimension of a type; constants are 64-bit integers."""
    value = normalize(d)
    if isinstance(value, int) and not -(1 << 63) <= value < 1 << 63:
        raise SymError("a size does not fit 64 bits")
    return value


def _sizes(shape: Iterable[DimLike], one: Callable[[DimLike], DimLike]) -> tuple[DimLike, ...]:
    """The dimensions of a shape."""
    if isinstance(shape, str) or not isinstance(shape, Iterable):
        raise SymError(f"a shape is a tuple of dimensions, got {shape!r}", help=f"write ({shape},)")
    return tuple(map(one, shape))


def _extent(d: DimLike) -> DimLike:
    """The size of an axis."""
    value = _size(d)
    if isinstance(value, int) and value < 0:
        raise SymError(f"the size of an axis must be at least 0, got {value}")
    if isinstance(value, Dim) and value.min < 0:
        raise SymError(
            f"the size of an axis must be at least 0, and `{value}` is declared from {value.min} on",
            help=f'declare it as rx.dim("{value}", min=0)',
        )
    return value


class Type:
    """What is known of a value; frozen, compared by structure."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class AnyType(Type):
    """Nothing is known (top of the subtype order)."""

    def __str__(self) -> str:
        return "R.Any"


@dataclass(frozen=True, slots=True)
class PrimType(Type):
    """A scalar outside tensors."""

    dtype: str

    def __str__(self) -> str:
        return f'R.Prim("{short(self.dtype)}")'


@dataclass(frozen=True, slots=True)
class ShapeType(Type):
    """A shape value: a list of dimensions known as symbolic expressions."""

    dims: tuple[DimLike, ...]

    def __post_init__(self) -> None:
        object.__setattr__(self, "dims", _sizes(self.dims, _size))

    def __str__(self) -> str:
        return f"R.Shape({dims_text(self.dims)})"


@dataclass(frozen=True, slots=True)
class TensorType(Type):
    """A tensor of known rank: ``shape`` holds ints and symbolic expressions, ``dtype`` is canonical.

    Raises:
        UnsupportedError: for an unknown dtype.
        SymError: when a dimension is not an integer expression, negative, or beyond 64 bits; when the product of the
            constant ones without 0 is: no array has such strides, empty ones included.
    """

    shape: tuple[DimLike, ...]
    dtype: str

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _sizes(self.shape, _extent))
        if prod(d for d in self.shape if isinstance(d, int) and d) > LARGEST:
            raise SymError(f"a tensor of the size {dims_text(self.shape)} does not fit 64 bits")
        object.__setattr__(self, "dtype", canonical_dtype(self.dtype))

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    def __str__(self) -> str:
        return f'R.Tensor({dims_text(self.shape)}, "{short(self.dtype)}")'


@dataclass(frozen=True, slots=True)
class TupleType(Type):
    """Several values."""

    fields: tuple[Type, ...]

    def __str__(self) -> str:
        return f"R.Tuple({', '.join(map(str, self.fields))})"


@dataclass(frozen=True, slots=True)
class FuncType(Type):
    """A function's signature; symbols of the parameters are its own and scope over the result."""

    params: tuple[Type, ...]
    ret: Type
    pure: bool = True

    def __str__(self) -> str:
        return f"R.Func(({', '.join(map(str, self.params))}), {self.ret})"


def dims_text(dims: Sequence[DimLike]) -> str:
    """``(n, 4)`` as text, ``(n,)`` for one."""
    return f"({', '.join(map(to_text, dims))}{',' if len(dims) == 1 else ''})"


def describe(t: Type) -> str:
    """Short form for messages: ``f32[n, 4]``."""
    if isinstance(t, TensorType):
        return f"{short(t.dtype)}[{', '.join(map(to_text, t.shape))}]"
    if isinstance(t, TupleType):
        return f"({', '.join(map(describe, t.fields))})"
    if isinstance(t, ShapeType):
        return f"shape{dims_text(t.dims)}"
    return str(t)


def parse_type(text: str, scope: Mapping[str, Dim]) -> TensorType:
    """Inverse of `describe` for tensors: ``f32[n, 2 * m]``; symbols come from ``scope``."""
    match = re.fullmatch(r"\s*(\w+)\[(.*)\]\s*", text)
    if match is None:
        raise ValueError(f"`{text}` is not a tensor type such as f32[n, 4]")
    return TensorType(tuple(parse(part, scope) for part in split_commas(match[2])), match[1])


def split_commas(text: str) -> tuple[str, ...]:
    """Split at the commas outside parentheses; empty text gives nothing."""
    parts: list[str] = []
    depth = 0
    for piece in text.split(","):
        if depth:
            parts[-1] += "," + piece
        elif piece.strip():
            parts.append(piece)
        depth += piece.count("(") - piece.count(")")
    return tuple(p.strip() for p in parts)


def map_type(t: Type, fn: Callable[[DimLike], DimLike]) -> Type:
    """Rewrite every dimension of a type."""
    if isinstance(t, TensorType):
        return TensorType(tuple(fn(d) for d in t.shape), t.dtype)
    if isinstance(t, ShapeType):
        return ShapeType(tuple(fn(d) for d in t.dims))
    if isinstance(t, TupleType):
        return TupleType(tuple(map_type(f, fn) for f in t.fields))
    if isinstance(t, FuncType):
        return FuncType(tuple(map_type(p, fn) for p in t.params), map_type(t.ret, fn), t.pure)
    return t


def substitute_type(t: Type, mapping: Mapping[Dim, DimLike]) -> Type:
    """Replace symbols in a type."""
    return map_type(t, lambda d: substitute(d, mapping)) if mapping else t


def leaf_types(t: Type) -> tuple[Type, ...]:
    """The types inside a nested tuple type, flattened; another type is its only leaf."""
    if isinstance(t, TupleType):
        return tuple(leaf for f in t.fields for leaf in leaf_types(f))
    return (t,)


def type_dims(t: Type) -> tuple[DimLike, ...]:
    """Every dimension expression of a type, left to right."""
    if isinstance(t, TensorType):
        return t.shape
    if isinstance(t, ShapeType):
        return t.dims
    if isinstance(t, TupleType):
        return tuple(d for f in t.fields for d in type_dims(f))
    return ()


def free_dims_of_type(t: Type) -> tuple[Dim, ...]:
    """Symbols of a type in order of first appearance."""
    found: dict[Dim, None] = {}
    for d in type_dims(t):
        for s in free_dims(d):
            found.setdefault(s)
    return tuple(found)
