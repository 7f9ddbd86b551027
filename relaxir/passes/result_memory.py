"""Which results of a function can be computed right in the caller's memory: made by a call here, and only once."""

from __future__ import annotations

from collections.abc import Iterable, Set
from dataclasses import dataclass, replace

from relaxir.ir.expr import Body, CallDPS, CallTIR, Check, Expr, MatchCast, OpCall, TupleExpr, TupleGetItem, Var
from relaxir.ir.types import TensorType, TupleType, leaf_types, type_dims
from relaxir.sym import Dim, free_dims


@dataclass(frozen=True, slots=True)
class Claim:
    """The memory that one tensor of a call's result is computed in: the result ``index`` of the function.

    ``type`` is the result's type as far as it can be told before the call.
    """

    index: int
    type: TensorType


@dataclass(frozen=True, slots=True)
class _Origin:
    """Where a value was made: an item of a call's result, before which some symbols were known."""

    call: Var
    item: int
    known: Set[Dim]
    type: TensorType | None = None
    """The type before a match_cast gave its dimensions other names."""


def claims_of(body: Body, bound: Set[Dim]) -> dict[Var, tuple[Claim | None, ...]]:
    """For each call that makes results of the function: the memory of each of its tensors, None where it has its own.

    Args:
        body: of the function.
        bound: symbols that are known at its start.
    """
    result = body.result
    leaves = result.fields if isinstance(result, TupleExpr) else (result,)
    if any(isinstance(x.type, TupleType) for x in leaves):
        return {}
    origins = _origins(body, bound)
    taken: dict[Var, dict[int, Claim]] = {}
    for index, leaf in enumerate(leaves):
        origin = origins.get(leaf)
        if origin is None or not isinstance(leaf.type, TensorType):
            continue
        items, type_ = taken.setdefault(origin.call, {}), origin.type or leaf.type
        if origin.item not in items and origin.known >= set(_symbols(type_)):
            items[origin.item] = Claim(index, type_)
    return {var: tuple(map(items.get, range(len(leaf_types(var.type))))) for var, items in taken.items()}


def _origins(body: Body, bound: Set[Dim]) -> dict[Expr, _Origin]:
    """Where each value was made that is a call's result, an item of one, or the same memory under another name."""
    origins: dict[Expr, _Origin] = {}
    known = set(bound)
    for b in body.bindings:
        if isinstance(b, Check):
            continue
        value = b.value
        if isinstance(b, MatchCast):
            if isinstance(value.type, TensorType) and value in origins and _renames(b):
                origins[b.var] = replace(origins[value], type=origins[value].type or value.type)
        elif isinstance(value, CallTIR | CallDPS):
            origins[b.var] = _Origin(b.var, 0, known | set(b.defines))
        elif isinstance(value, TupleGetItem) and value.value in origins:
            origins[b.var] = replace(origins[value.value], item=value.index)
        elif isinstance(value, Var) and value in origins:
            origins[b.var] = origins[value]
        elif isinstance(value, OpCall) and value.op.name == "reshape" and value.args[0] in origins:
            origins[b.var] = replace(origins[value.args[0]], type=None)
        known.update(b.defines)
    return origins


def _renames(b: MatchCast) -> bool:
    """Whether a match_cast only gives new names to dimensions."""
    pairs = zip(type_dims(b.value.type), type_dims(b.var.type), strict=True)
    return all(wanted == actual or wanted in b.defines for actual, wanted in pairs)


def _symbols(t: TensorType) -> Iterable[Dim]:
    return (s for d in t.shape for s in free_dims(d))
