"""Reading attention off its stages: scores, their maximum, exponentials, sum, weighted sum, quotient."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

from relaxir.schedule.program import Program
from relaxir.tir import (
    Axis,
    AxisKind,
    Binary,
    BinOp,
    Block,
    Buffer,
    Call,
    Combine,
    Expr,
    Intrinsic,
    Load,
    Stmt,
    Store,
    Var,
)
from relaxir.tir.access import is_identity, loads_of, variables_of
from relaxir.tir.classify import match_contraction, plain_store, reduce_vars, spatial_vars
from relaxir.tir.visit import buffers_of, map_expr, stores_of, substitute_vars

STAGES = 7  # raw scores, scores, maximum, exponentials, sum, weighted sum, result

EXPONENTIALS: Final = (Intrinsic.EXP, Intrinsic.EXP_NONPOSITIVE)


@dataclass(frozen=True, slots=True)
class AttentionForm:
    """Attention over axes ``rows`` (all but the last are loops around), ``key``, ``depth`` and ``lane``.

    Attributes:
        rows: axes of one query: batch, heads and the queries themselves, in the order of the temporaries.
        key: the axis that the softmax runs over.
        depth: the axis that queries and keys share.
        lane: the axis of the result that comes from the values.
        query: element of the queries.
        keys: element of the keys.
        value: element of the values, over ``key`` and ``lane``.
        raw: the temporary of the raw scores; ``score`` and nothing else reads it, at its own point.
        score: what the softmax is of.
        mixed: the temporary of the weighted sums.
        total: the temporary of the sums of the weights.
        result: store of the result, which reads ``mixed`` and ``total`` at its own point.

    """

    rows: tuple[Axis, ...]
    key: Axis
    depth: Axis
    lane: Axis
    query: Expr
    keys: Expr
    value: Expr
    raw: Buffer
    score: Expr
    mixed: Buffer
    total: Buffer
    result: Store


def match_attention(program: Program, stages: Sequence[Stmt]) -> AttentionForm | None:
    """Read the first seven stages as attention, or None."""
    blocks = [s for s in stages[:STAGES] if isinstance(s, Block) and isinstance(s.body, Store)]
    if len(blocks) < STAGES:
        return None
    first, scores, top, power, total, mixed, last = blocks
    product = match_contraction(first)
    if product is None or len(product.reduce) != 1 or len(first.axes) < 3:
        return None
    canonical = first.axes[:-1]
    *rows, key = canonical
    key_side = {v for v in (*product.columns, *product.rows) if v is key.var}
    if not key_side:
        return None
    query, keys = (product.left, product.right) if key.var in product.columns else (product.right, product.left)
    named = _renamed(scores, canonical)
    if named is None or plain_store(named) is None or not _own(named, product.store.buffer, canonical):
        return None
    score = _store(named)
    peak, weights = _reduction(top, canonical, Combine.MAX, score.buffer), _renamed(power, canonical)
    sums = _reduction(total, canonical, Combine.SUM, _store(power).buffer)
    if peak is None or weights is None or sums is None:
        return None
    if plain_store(weights) is None or not _is_power(_store(weights), score, peak, canonical):
        return None
    weighted = _weighted(mixed, _store(weights).buffer, canonical)
    if weighted is None:
        return None
    value, lane = weighted
    final = _renamed(last, (*rows, lane))
    made = (product.store.buffer, score.buffer, peak, _store(weights).buffer, sums, _store(mixed).buffer)
    if final is None or plain_store(final) is None or not _closed(program, stages, made):
        return None
    result = _store(final)
    place = tuple(a.var for a in rows)
    for load in loads_of(result.value):
        at = (*place, lane.var) if load.buffer is made[5] else place if load.buffer is sums else None
        if (at is None and load.buffer in made) or (at is not None and not is_identity(load.indices, at)):
            return None
    return AttentionForm(
        tuple(rows), key, first.axes[-1], lane, query, keys, value, made[0], score.value, made[5], sums, result
    )


def _store(block: Block) -> Store:
    assert isinstance(block.body, Store)  # the caller looked
    return block.body


def _renamed(block: Block, axes: Sequence[Axis]) -> Block | None:
    """The block over other axes of the same extents, None if they differ."""
    if len(block.axes) != len(axes) or any(a.extent != b.extent for a, b in zip(block.axes, axes, strict=True)):
        return None
    names: dict[Var, Expr] = {a.var: b.var for a, b in zip(block.axes, axes, strict=True)}
    return replace(block, axes=tuple(axes), body=substitute_vars(block.body, names))


def _own(block: Block, source: Buffer, axes: Sequence[Axis]) -> bool:
    """Whether an elementwise stage stores at its own point and reads ``source`` there only."""
    own, store = tuple(a.var for a in axes), _store(block)
    if not is_identity(store.indices, own):
        return False
    return all(is_identity(e.indices, own) for e in loads_of(store.value) if e.buffer is source)


def _reduction(block: Block, axes: Sequence[Axis], how: Combine, source: Buffer) -> Buffer | None:
    """Buffer of a reduction of ``source`` itself over the last axis, or None."""
    named, store = _renamed(block, axes), _store(block)
    if named is None or store.combine is not how or [a.kind for a in block.axes].count(AxisKind.REDUCE) != 1:
        return None
    own = tuple(a.var for a in axes)
    inner = _store(named)
    whole = is_identity(inner.indices, own[:-1]) and block.axes[-1].kind is AxisKind.REDUCE
    same = isinstance(inner.value, Load) and inner.value.buffer is source and is_identity(inner.value.indices, own)
    return store.buffer if whole and same else None


def _is_power(store: Store, score: Store, peak: Buffer, axes: Sequence[Axis]) -> bool:
    """Whether a stage is ``exp(score - f(peak))`` at its own point, for any f."""
    own = tuple(a.var for a in axes)
    value = store.value
    if not (isinstance(value, Call) and value.fn in EXPONENTIALS and is_identity(store.indices, own)):
        return False
    inner = value.arg
    if not (isinstance(inner, Binary) and inner.op is BinOp.SUB and isinstance(inner.a, Load)):
        return False
    plain = inner.a.buffer is score.buffer and is_identity(inner.a.indices, own)
    shifts = loads_of(inner.b)
    return plain and bool(shifts) and all(e.buffer is peak and is_identity(e.indices, own[:-1]) for e in shifts)


def _weighted(block: Block, weights: Buffer, axes: Sequence[Axis]) -> tuple[Expr, Axis] | None:
    """Values' element (over the key axis of ``axes``) and lane axis of the weighted sum, or None."""
    spatial, over = spatial_vars(block), reduce_vars(block)
    rows = axes[:-1]
    if len(over) != 1 or len(spatial) != len(rows) + 1 or match_contraction(block) is None:
        return None
    *mine, lane = (a for a in block.axes if a.kind is AxisKind.SPATIAL)
    reduced = next(a for a in block.axes if a.kind is AxisKind.REDUCE)
    if any(a.extent != b.extent for a, b in zip((*mine, reduced), axes, strict=True)):
        return None
    names: dict[Var, Expr] = {a.var: b.var for a, b in zip((*mine, reduced), axes, strict=True)}
    store = substitute_vars(_store(block), names)
    assert isinstance(store, Store)
    place, own = tuple(a.var for a in rows), tuple(a.var for a in axes)
    product = store.value
    if not isinstance(product, Binary) or not is_identity(store.indices, (*place, lane.var)):
        return None
    for factor, other in ((product.a, product.b), (product.b, product.a)):
        if isinstance(factor, Load) and factor.buffer is weights and is_identity(factor.indices, own):
            fits = lane.var in variables_of(other) and all(e.buffer is not weights for e in loads_of(other))
            return (other, lane) if fits else None
    return None


def _closed(program: Program, stages: Sequence[Stmt], made: Sequence[Buffer]) -> bool:
    """Whether nothing but the seven stages uses the temporaries; one may live in the result of the last stage."""
    later = {b for s in stages[STAGES:] for b in buffers_of(s)}
    last = stages[STAGES - 1]
    results = {s.buffer for s in stores_of(last)}
    return all(b in results or (b in program.temps and b not in later) for b in made)


def replaced(expr: Expr, buffer: Buffer, value: Expr) -> Expr:
    """The expression with every load of ``buffer`` replaced."""
    return map_expr(expr, lambda e: value if isinstance(e, Load) and e.buffer is buffer else e)
