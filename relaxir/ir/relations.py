"""Relations between types: the four-valued subtype test, joins of branches, and calls by signature."""

from __future__ import annotations

import enum
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from relaxir.ir.op import InferCtx
from relaxir.ir.types import (
    AnyType,
    FuncType,
    PrimType,
    ShapeType,
    TensorType,
    TupleType,
    Type,
    describe,
    free_dims_of_type,
    substitute_type,
    type_dims,
)
from relaxir.sym import Dim, DimLike, Facts, Proof, Relation, free_dims, substitute, unify


class Subtype(enum.IntEnum):
    """Outcome of ``value is a base``, worst first."""

    REFUTED = 0  # no value can satisfy both (different rank, dtype, kind, or dimension proved different)
    STATIC_MISMATCH = 1  # the base is known more precisely than the value (value is Any)
    UNPROVED = 2  # only the equality of symbolic dimensions is open: becomes a run-time check
    PROVED = 3


def subtype(value: Type, base: Type, facts: Facts) -> Subtype:
    """Whether every value of type ``value`` has type ``base``."""
    if isinstance(base, AnyType) or value == base:
        return Subtype.PROVED
    if isinstance(value, AnyType):
        return Subtype.STATIC_MISMATCH
    if isinstance(value, TensorType) and isinstance(base, TensorType):
        return Subtype.REFUTED if value.dtype != base.dtype else _dims(value.shape, base.shape, facts)
    if isinstance(value, ShapeType) and isinstance(base, ShapeType):
        return _dims(value.dims, base.dims, facts)
    if isinstance(value, TupleType) and isinstance(base, TupleType):
        if len(value.fields) != len(base.fields):
            return Subtype.REFUTED
        pairs = zip(value.fields, base.fields, strict=True)
        return min((subtype(v, b, facts) for v, b in pairs), default=Subtype.PROVED)
    if isinstance(value, FuncType) and isinstance(base, FuncType):
        if len(value.params) != len(base.params) or (base.pure and not value.pure):
            return Subtype.REFUTED
        # parameters are contravariant, the result covariant
        pairs = zip(base.params, value.params, strict=True)
        return min((subtype(b, v, facts) for b, v in pairs), default=subtype(value.ret, base.ret, facts))
    return Subtype.REFUTED


def _dims(value: Sequence[DimLike], base: Sequence[DimLike], facts: Facts) -> Subtype:
    if len(value) != len(base):
        return Subtype.REFUTED
    worst = Subtype.PROVED
    for a, b in zip(value, base, strict=True):
        verdict = facts.prove_equal(a, b)
        if verdict is Proof.REFUTED:
            return Subtype.REFUTED
        if verdict is Proof.UNKNOWN:
            worst = Subtype.UNPROVED
    return worst


def cast_values(known: Type, cast: Type, new: Collection[Dim], facts: Facts) -> Mapping[Dim, DimLike]:
    """The new symbols of a match_cast in the symbols known before it, without those that the value does not determine.

    A bare symbol is an extent of the value. One in a compound dimension is solved for, as those of parameters are.
    """
    pairs = tuple(zip(type_dims(cast), type_dims(known), strict=False))
    outer = dict.fromkeys(d for wanted, _ in pairs for d in free_dims(wanted) if d not in new)
    solved = unify((*((d, d) for d in outer), *pairs), facts).bindings
    return {d: solved[d] for d in new if d in solved}


def cast_problem(known: Type, cast: Type, new: Collection[Dim], facts: Facts) -> str:
    """Why a match_cast makes no sense for any value; empty where it does for some."""
    if subtype(known, cast, facts) is Subtype.REFUTED:
        return f"a value of type {describe(known)} is never {describe(cast)}"
    values = cast_values(known, cast, new, facts)
    missing = [d.name for d in new if d not in values]
    return f"a value of type {describe(known)} does not determine `{missing[0]}` of {describe(cast)}" if missing else ""


def learn_cast(facts: Facts, known: Type, cast: Type, new: Collection[Dim]) -> Facts:
    """The facts after a match_cast: a new bare symbol names the value's dimension, any other dimension equals it.

    Raises:
        ConflictError: when the value can never have that type.
    """
    if isinstance(known, TensorType | ShapeType) and isinstance(cast, TensorType | ShapeType):
        named: set[Dim] = set()
        for a, b in zip(type_dims(known), type_dims(cast), strict=False):
            if isinstance(b, Dim) and b in new and b not in named:
                facts = facts.with_definition(b, a)
                named.add(b)
            elif a != b:
                facts = facts.with_(Relation("==", a, b))
    return facts.with_dims(*new)


def join(a: Type, b: Type, ctx: InferCtx) -> Type:
    """Least type of both branches; a dimension that differs becomes a fresh symbol with joined bounds.

    Raises:
        InferError: for different ranks, dtypes, arities or kinds.
    """
    if isinstance(a, TensorType) and isinstance(b, TensorType):
        if a.rank != b.rank or a.dtype != b.dtype:
            ctx.fail(f"branches give {describe(a)} and {describe(b)}", help="make both the same rank and dtype")
        return TensorType(tuple(_join_dim(x, y, ctx) for x, y in zip(a.shape, b.shape, strict=True)), a.dtype)
    if isinstance(a, ShapeType) and isinstance(b, ShapeType) and len(a.dims) == len(b.dims):
        return ShapeType(tuple(_join_dim(x, y, ctx) for x, y in zip(a.dims, b.dims, strict=True)))
    if isinstance(a, TupleType) and isinstance(b, TupleType) and len(a.fields) == len(b.fields):
        return TupleType(tuple(join(x, y, ctx) for x, y in zip(a.fields, b.fields, strict=True)))
    if isinstance(a, PrimType | AnyType) and a == b:
        return a
    return ctx.fail(f"branches give {describe(a)} and {describe(b)}")


def _join_dim(a: DimLike, b: DimLike, ctx: InferCtx) -> DimLike:
    if ctx.facts.prove_equal(a, b) is Proof.PROVED:
        return a
    (low_a, high_a), (low_b, high_b) = ctx.facts.bounds(a), ctx.facts.bounds(b)
    low = min(low_a or 0, low_b or 0)
    return ctx.fresh("j", min=max(low, 0), max=None if high_a is None or high_b is None else max(high_a, high_b))


@dataclass(frozen=True, slots=True)
class Applied:
    """Result of applying a signature: the result type in the caller's symbols, and the callee's symbols' values."""

    type: Type
    bindings: dict[Dim, DimLike]


def apply_signature(signature: FuncType, args: Sequence[Type], ctx: InferCtx) -> Applied:
    """Type of a call from the callee's signature alone: bind its symbols, check, substitute.

    Symbols of the result that no argument determines become fresh symbols of the caller (sizes known at run time).
    """
    if len(args) != len(signature.params):
        ctx.fail(f"expected {len(signature.params)} arguments, got {len(args)}", code="arity")
    pairs: list[tuple[DimLike, DimLike]] = []
    for position, (formal, actual) in enumerate(zip(signature.params, args, strict=True)):
        _static_match(formal, actual, f"argument {position}", ctx)
        pairs.extend(zip(type_dims(formal), type_dims(actual), strict=True))
    unified = unify(pairs, ctx.facts)
    bindings = dict(unified.bindings)
    for formal_dim, actual_dim, _ in unified.checks:
        ctx.require_equal(substitute(formal_dim, bindings), actual_dim, "argument extent")
    for symbol in free_dims_of_type(signature.ret):
        if symbol not in bindings:
            bindings[symbol] = ctx.fresh(symbol.name, min=symbol.min, max=symbol.max)
    return Applied(substitute_type(signature.ret, bindings), bindings)


def _static_match(formal: Type, actual: Type, what: str, ctx: InferCtx) -> None:
    """Kinds, dtypes, ranks and arities must agree; dimensions are unified later."""
    if isinstance(formal, TensorType) and isinstance(actual, TensorType):
        if formal.dtype != actual.dtype:
            ctx.fail(f"{what} must be {describe(formal)}, got {describe(actual)}", code="dtype-mismatch")
        if formal.rank != actual.rank:
            ctx.fail(f"{what} must be {describe(formal)}, got {describe(actual)}", code="rank-mismatch")
        return
    if isinstance(formal, ShapeType) and isinstance(actual, ShapeType) and len(formal.dims) == len(actual.dims):
        return
    if isinstance(formal, TupleType) and isinstance(actual, TupleType) and len(formal.fields) == len(actual.fields):
        for n, (f, a) in enumerate(zip(formal.fields, actual.fields, strict=True)):
            _static_match(f, a, f"{what} field {n}", ctx)
        return
    if formal != actual and not isinstance(formal, AnyType):
        ctx.fail(f"{what} must be {describe(formal)}, got {describe(actual)}", code="type-kind")
