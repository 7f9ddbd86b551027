"""Access patterns of blocks and programs: what fusion and the schedule rules ask before they act.

The pattern follows from the loads and stores alone, so a program written by hand is fused and scheduled like one
that an operator generated.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass

from relaxir.tir.access import is_identity, loads_of, variables_of
from relaxir.tir.expr import COMPARISONS, Bcast, Binary, BinOp, Cast, Expr, Load, Select, Var
from relaxir.tir.func import PrimFunc
from relaxir.tir.stmt import Alloc, AxisKind, Block, Combine, Seq, Stmt, Store
from relaxir.tir.visit import walk_expr


class Pattern(enum.IntEnum):
    """How a block maps inputs to outputs; a larger value promises less, a program has the largest of its blocks."""

    ELEMENTWISE = 0  # every load at the index that is stored
    BROADCAST = 1  # loads use some of the stored index's variables, in order
    INJECTIVE = 2  # one store per point, loads anywhere
    REDUCTION = 3  # reduce axes, any combined value
    CONTRACTION = 4  # a sum of products of two factors over reduce axes
    OPAQUE = 5  # anything else


@dataclass(frozen=True, slots=True)
class Contraction:
    """A block ``out[spatial] = sum over reduce of left * right``, its axes sorted by which factor uses them.

    Attributes:
        block: the block.
        store: its combining store.
        left: first factor.
        right: second factor.
        batch: spatial axes that both factors use.
        rows: spatial axes that only ``left`` uses.
        columns: spatial axes that only ``right`` uses.
        reduce: the reduce axes, outermost first.

    """

    block: Block
    store: Store
    left: Expr
    right: Expr
    batch: tuple[Var, ...]
    rows: tuple[Var, ...]
    columns: tuple[Var, ...]
    reduce: tuple[Var, ...]


def spatial_vars(block: Block) -> tuple[Var, ...]:
    """Variables of the block's spatial axes, outermost first."""
    return tuple(a.var for a in block.axes if a.kind is AxisKind.SPATIAL)


def reduce_vars(block: Block) -> tuple[Var, ...]:
    """Variables of the block's reduce axes, outermost first."""
    return tuple(a.var for a in block.axes if a.kind is AxisKind.REDUCE)


def factors(value: Expr) -> tuple[Expr, Expr] | None:
    """Return the two sides of a product that both read memory, or None; a guard around it moves into the left side."""
    if isinstance(value, Cast):
        inner = factors(value.value)
        return None if inner is None or value.dtype != value.value.dtype else inner
    if isinstance(value, Select):
        inner = factors(value.then)
        if inner is None or loads_of(value.other) or loads_of(value.cond):
            return None
        left, right = inner
        # a window of a product of two windows (a sum of squares): the guard keeps both sides' loads in range
        if {i for load in loads_of(right) for i in load.indices} & compared(value.cond):
            right = Select(value.cond, right, value.other)
        return Select(value.cond, left, value.other), right
    if isinstance(value, Binary) and value.op is BinOp.MUL and loads_of(value.a) and loads_of(value.b):
        return value.a, value.b
    return None


def compared(cond: Expr) -> set[Expr]:
    """Operands of the comparisons in a condition."""
    found = (e for e in walk_expr(cond) if isinstance(e, Binary) and e.op in COMPARISONS)
    return {side for e in found for side in (e.a, e.b)}


def match_contraction(block: Block) -> Contraction | None:
    """Read the block as a contraction, or None: one SUM store of a product, reduce axes used by both factors."""
    store, over = block.body, reduce_vars(block)
    if (
        not over
        or not isinstance(store, Store)
        or store.combine is not Combine.SUM
        or not isinstance(block.init, Store)
    ):
        return None
    sides = factors(store.value)
    if sides is None or (isinstance(store.value, Select) and not _is_zero(store.value.other)):
        return None
    left, right = variables_of(sides[0]), variables_of(sides[1])
    spatial = spatial_vars(block)
    if not set(over) <= left | right or not set(over) & left & right:
        return None
    batch = tuple(v for v in spatial if v in left and v in right)
    rows = tuple(v for v in spatial if v in left and v not in right)
    columns = tuple(v for v in spatial if v in right and v not in left)
    if len(batch) + len(rows) + len(columns) != len(spatial) or not spatial:
        return None
    return Contraction(block, store, sides[0], sides[1], batch, rows, columns, over)


def _is_zero(expr: Expr) -> bool:
    return getattr(expr, "value", None) == 0


def _load_pattern(load: Load, store: Store, spatial: tuple[Var, ...]) -> Pattern:
    if load.indices == store.indices and load.buffer.shape == store.buffer.shape:
        return Pattern.ELEMENTWISE
    used: tuple[Var, ...] = ()
    for index in load.indices:
        inner = index.index if isinstance(index, Bcast) else index
        if isinstance(inner, Var) and inner in spatial:
            used += (inner,)
        elif variables_of(inner):
            return Pattern.INJECTIVE
    order = [spatial.index(v) for v in used]
    return Pattern.BROADCAST if order == sorted(set(order)) else Pattern.INJECTIVE


def classify_block(block: Block) -> Pattern:
    """Pattern of one block."""
    store = block.body
    if not isinstance(store, Store):
        return Pattern.OPAQUE
    if reduce_vars(block):
        if store.combine is None or not isinstance(block.init, Store):
            return Pattern.OPAQUE
        return Pattern.CONTRACTION if _is_tiled(block) else Pattern.REDUCTION
    if store.combine is not None or block.init is not None:
        return Pattern.OPAQUE
    spatial = spatial_vars(block)
    if not is_identity(store.indices, spatial):
        return Pattern.INJECTIVE
    return max((_load_pattern(e, store, spatial) for e in loads_of(store.value)), default=Pattern.ELEMENTWISE)


def _is_tiled(block: Block) -> bool:
    found = match_contraction(block)
    return found is not None and bool(found.rows or found.columns)


def stages(stmt: Stmt) -> tuple[Stmt, ...]:
    """Top-level statements of a program in order, with its temporaries' `Alloc` and nested `Seq` opened."""
    if isinstance(stmt, Alloc):
        return stages(stmt.body)
    if isinstance(stmt, Seq):
        return tuple(inner for s in stmt.stmts for inner in stages(s))
    return (stmt,)


def classify(func: PrimFunc) -> Pattern:
    """Pattern of a program: that of its most demanding stage; code outside blocks is OPAQUE."""
    found = [classify_block(s) if isinstance(s, Block) else Pattern.OPAQUE for s in stages(func.body)]
    return max(found, default=Pattern.ELEMENTWISE)


def plain_store(stmt: Stmt) -> Store | None:
    """Return the store of a stage that is one plain store per point of spatial axes only, or None."""
    if not isinstance(stmt, Block) or stmt.init is not None or reduce_vars(stmt):
        return None
    store = stmt.body
    return store if isinstance(store, Store) and store.combine is None else None
