"""Typing of loops: types that hold in every iteration, and the result's type."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from relaxir.ir.expr import Constant, Expr, Loop, ShapeExpr, TupleExpr
from relaxir.ir.op import InferCtx
from relaxir.ir.relations import Subtype, subtype
from relaxir.ir.types import ShapeType, TensorType, TupleType, Type, describe, substitute_type
from relaxir.sym import Dim, DimLike, Facts, Proof, free_dims, max_

SCALAR = TensorType((), "bool")
COUNTER = TensorType((), "int64")


def is_true(e: Expr | None) -> bool:
    """Whether a condition is left out or the constant true."""
    return e is None or (isinstance(e, Constant) and bool(e.data))


def exact_count(loop: Loop, facts: Facts) -> DimLike | None:
    """The number of iterations as a dimension, where nothing can end the loop early."""
    if not isinstance(loop.trips, ShapeExpr) or not is_true(loop.start) or not is_true(loop.goes_on):
        return None
    (count,) = loop.trips.dims
    return count if facts.prove_le(0, count) is Proof.PROVED else max_(count, 0)


def loop_type(loop: Loop, ctx: InferCtx, defines: Sequence[Dim] | None = None) -> TupleType:
    """Type of a loop's result from its parameters and its body.

    A carried dimension that changes is fresh, and so is a scan output's that is known inside the body alone. The
    leading dimension of the scan outputs is the number of iterations. ``defines`` are the symbols that a recorded type
    owns: a count recorded as one of them stays one, also where more has become known.
    """
    fields: list[Type] = []
    for p in loop.params[1:]:
        changing = {d: ctx.fresh(f"{d.name}_end", min=d.min, max=d.max) for d in loop.dims if d in _symbols(p.type)}
        fields.append(substitute_type(p.type, dict(changing)))
    if not loop.scans:
        return TupleType(tuple(fields))
    count = exact_count(loop, ctx.facts)
    if defines is not None and isinstance(loop.type, TupleType):
        recorded = loop.type.fields[-1]
        count = None if isinstance(recorded, TensorType) and recorded.shape[0] in defines else count
    leading = ctx.fresh("trips") if count is None else count
    for e in loop.scans:
        if not isinstance(e.type, TensorType):
            ctx.fail(f"a scan output must be a tensor, got {describe(e.type)}", code="type-kind")
        shape = tuple(d if _known(d, ctx.facts) else ctx.fresh("s") for d in e.type.shape)
        fields.append(TensorType((leading, *shape), e.type.dtype))
    return TupleType(tuple(fields))


def _symbols(t: Type) -> set[Dim]:
    return {s for d in t.shape for s in free_dims(d)} if isinstance(t, TensorType) else set()


def _known(d: DimLike, facts: Facts) -> bool:
    return all(s in facts.dims for s in free_dims(d))


def widen(params: Sequence[TensorType], results: Sequence[Type], facts: Facts, ctx: InferCtx) -> tuple[TensorType, ...]:
    """Parameter types with a new symbol for each dimension that an iteration changes; equal ones when none does.

    Raises:
        InferError: an iteration changes the rank or dtype.
    """
    found: list[TensorType] = []
    for n, (have, got) in enumerate(zip(params, results, strict=True)):
        if not isinstance(got, TensorType) or got.rank != have.rank or got.dtype != have.dtype:
            ctx.fail(
                f"carried value {n} is {describe(have)}, but an iteration gives {describe(got)}",
                code="type-kind",
                help="the rank and dtype of a carried value never change",
            )
        shape: list[DimLike] = []
        for a, b in zip(have.shape, got.shape, strict=True):
            bare = isinstance(a, Dim) and a in ctx.defined
            if bare or facts.prove_equal(a, b) is Proof.PROVED:
                shape.append(a)
            else:
                shape.append(ctx.fresh("c"))
        found.append(TensorType(tuple(shape), have.dtype))
    return tuple(found)


def loop_problems(loop: Loop, facts: Facts) -> Iterator[str]:
    """What does not fit in a loop; ``facts`` are those at the end of its body."""
    trips, start = loop.trips, loop.start
    counts = trips is None or trips.type == COUNTER or (isinstance(trips.type, ShapeType) and len(trips.type.dims) == 1)
    if not counts:
        yield "the trip count of a Loop is neither i64[] nor a shape of one dimension"
    if start is not None and start.type != SCALAR:
        yield f"the start condition of a Loop is {describe(start.type)}, not bool[]"
    if not loop.params or loop.params[0].type != COUNTER or len(loop.params) != 1 + len(loop.init):
        yield "a Loop's parameters are not a number i64[] and one for each initial value"
        return
    if not isinstance(loop.body.result, TupleExpr) or len(loop.body.result.fields) < len(loop.params):
        yield "a Loop's body does not give a tuple of a condition and the carried values"
        return
    if loop.goes_on.type != SCALAR:
        yield f"the condition that a Loop's body gives is {describe(loop.goes_on.type)}, not bool[]"
    for p, first, later in zip(loop.params[1:], loop.init, loop.carried, strict=True):
        changing = p.type.shape if isinstance(p.type, TensorType) else ()
        for e, what in ((first, "starts as"), (later, "becomes")):
            e_type = e.type
            if isinstance(e_type, TensorType) and len(e_type.shape) == len(changing):
                shape = tuple(c if c in loop.dims else have for c, have in zip(changing, e_type.shape, strict=True))
                e_type = TensorType(shape, e_type.dtype)
            if subtype(e_type, p.type, facts) <= Subtype.STATIC_MISMATCH:
                yield f"`{p.name}` of a Loop is {describe(p.type)} but {what} {describe(e.type)}"
