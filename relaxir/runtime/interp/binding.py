"""Binding symbols to the sizes of actual values, and checking values against types, with errors in the user's words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relaxir.ir.types import ShapeType, TensorType, TupleType, Type, describe, free_dims_of_type
from relaxir.support.dtypes import info
from relaxir.support.errors import ArgumentError, InternalError, RuntimeShapeError
from relaxir.sym import Dim, DimLike, Facts, Relation, SymError, evaluate, exact, free_dims, to_text, unify

Array = NDArray[Any]
Value: TypeAlias = "Array | tuple[Any, ...]"
"""A tensor, a tuple of values, or a shape value (a tuple of ints)."""

Pair: TypeAlias = "tuple[DimLike, int, str]"
"""A dimension of a type, the extent met there, and where in words."""


def match_value(t: Type, value: Value, what: str) -> Iterator[Pair]:
    """Compare kind, dtype and rank of a value with its type; yield its dimensions.

    Raises:
        ArgumentError: naming ``what`` where they differ.
    """
    if isinstance(t, TensorType):
        if not isinstance(value, np.ndarray):
            raise ArgumentError(
                f"{what} must be an array for {describe(t)}, got {type(value).__name__}", code="argument-type"
            )
        if value.dtype != info(t.dtype).numpy:
            raise ArgumentError(f"{what} must be {t.dtype}, got {value.dtype}", code="argument-dtype")
        if value.ndim != t.rank:
            raise ArgumentError(
                f"{what} must have rank {t.rank} as {describe(t)}, got {value.ndim}", code="argument-rank"
            )
        for axis, (d, size) in enumerate(zip(t.shape, value.shape, strict=True)):
            yield d, size, f"axis {axis} of {what}"
    elif isinstance(t, TupleType):
        if not isinstance(value, tuple) or len(value) != len(t.fields):
            raise ArgumentError(f"{what} must be a tuple of {len(t.fields)} values", code="argument-type")
        for n, (part, item) in enumerate(zip(t.fields, value, strict=True)):
            yield from match_value(part, item, f"field {n} of {what}")
    elif isinstance(t, ShapeType):
        if not isinstance(value, tuple) or len(value) != len(t.dims):
            raise ArgumentError(f"{what} must be a shape of {len(t.dims)} sizes", code="argument-type")
        for n, (d, size) in enumerate(zip(t.dims, value, strict=True)):
            yield d, int(size), f"entry {n} of {what}"


def bind_dims(pairs: Sequence[Pair], dims: dict[str, int], names: Sequence[Dim], where: str) -> None:
    """Give the symbols ``names`` their values from the extents met, adding to ``dims``, then check all of ``pairs``.

    Raises:
        RuntimeShapeError: when extents disagree, or a symbol cannot be determined.
        ArgumentError: when an extent is not the constant that the type says, or outside a declared range.
    """
    wanted = [d for d in names if d.name not in dims]
    relevant = [(d, size) for d, size, _ in pairs if any(s in wanted for s in free_dims(d))]
    known = [(d, dims[d.name]) for formal, _ in relevant for d in free_dims(formal) if d.name in dims]
    try:
        solved = unify([*known, *relevant], Facts()).bindings
    except SymError as error:
        raise RuntimeShapeError(f"{where}: {error.message}") from error
    for d in wanted:
        if d not in solved:
            raise RuntimeShapeError(f"{where}: the sizes of the arguments do not determine `{d.name}`")
        dims[d.name] = evaluate(solved[d], {})
    for formal, size, place in pairs:
        _check_extent(formal, size, place, dims, where)
    for d in wanted:
        _check_range(d, dims[d.name], where)


def _check_extent(formal: DimLike, size: int, place: str, dims: Mapping[str, int], where: str) -> None:
    expected = exact(formal, dims)
    if expected == size:
        return
    if isinstance(formal, int):
        raise ArgumentError(f"{where}: {place} must be {formal}, got {size}", code="argument-extent")
    values = ", ".join(f"{s.name} is {dims[s.name]}" for s in free_dims(formal))
    raise RuntimeShapeError(f"{where}: {place} must be `{to_text(formal)}` = {expected}, got {size}", notes=(values,))


def _check_range(d: Dim, value: int, where: str) -> None:
    limits = [] if value >= d.min else [f"at least {d.min}"]
    if d.max is not None and value > d.max:
        limits.append(f"at most {d.max}")
    if value % d.multiple_of:
        limits.append(f"a multiple of {d.multiple_of}")
    if limits:
        raise ArgumentError(f"{where}: `{d.name}` must be {limits[0]}, got {value}", code="argument-extent")


def check_relations(relations: Sequence[Relation], dims: Mapping[str, int], where: str) -> None:
    """Check declared relations between symbols.

    Raises:
        RuntimeShapeError: for the first that does not hold, with both sides' values.
    """
    for relation in relations:
        if not holds(relation, dims):
            left, right = exact(relation.left, dims), exact(relation.right, dims)
            raise RuntimeShapeError(f"{where}: needs {relation}, but the sides are {left} and {right}")


def holds(relation: Relation, dims: Mapping[str, int]) -> bool:
    """Whether a relation is true at given sizes."""
    left, right = exact(relation.left, dims), exact(relation.right, dims)
    return {"==": left == right, "<=": left <= right, "<": left < right}[relation.op]


def learn_result(t: Type, value: Value, dims: dict[str, int], names: Sequence[Dim], what: str) -> None:
    """Bind the fresh symbols of a computed value and check it against its recorded type.

    Raises:
        InternalError: when the value contradicts the type: inference or a reference is wrong.
    """
    try:
        pairs = list(match_value(t, value, "the result"))
        bind_dims(pairs, dims, names, what)
    except (ArgumentError, RuntimeShapeError) as error:
        raise InternalError(f"the value of {what} contradicts its type: {error.message}") from error


def allocate_results(t: Type, dims: Mapping[str, int]) -> tuple[Array, ...]:
    """Zeroed arrays for a tensor type or a tuple of them, flattened."""
    if isinstance(t, TensorType):
        return (np.zeros(tuple(exact(d, dims) for d in t.shape), info(t.dtype).numpy),)
    if isinstance(t, TupleType):
        return tuple(a for part in t.fields for a in allocate_results(part, dims))
    raise InternalError(f"a call cannot fill a result of type {describe(t)}")


def rebuild(t: Type, arrays: Iterator[Array]) -> Value:
    """Inverse of the flattening of `allocate_results`."""
    if isinstance(t, TupleType):
        return tuple(rebuild(part, arrays) for part in t.fields)
    return next(arrays)


def unbound(t: Type, dims: Mapping[str, int]) -> tuple[Dim, ...]:
    """Symbols of a type that have no value yet."""
    return tuple(d for d in free_dims_of_type(t) if d.name not in dims)
