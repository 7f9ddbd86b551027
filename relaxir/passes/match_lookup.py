"""Recognise the lookup in a product with a one-hot matrix.

Before:
    lv0 = R.astype(R.equal(R.expand_dims(ids, axes=(-1,)), R.const([0, 1, ..., 256])))   # (b, s, 257), one 1 a row
    lv1 = R.matmul(lv0, R.const("table"))                                                # table: (257, 64)
After:
    lv1 = R.take(R.const("table and a row of zeros"), R.where(R.less(ids, 0), 257, ids), axis=0, mode="clip")

A product with a one-hot row is one row of the table exactly, if the table is finite; an index outside gives zeros.
`one_hot` is taken in as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

import numpy as np

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Constant, Expr, OpCall
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import map_functions
from relaxir.ops import op
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.fold_constant import constant
from relaxir.passes.patterns import PatternRewriter, dtype_of, rank_of, shape_of

FLOATS = ("float32", "float64")
INDICES = ("int32", "int64")


class _Matcher(PatternRewriter):
    def replacement(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        if call.op.name != "matmul" or dtype_of(call) not in FLOATS:
            return None
        rows, table = call.args
        if not isinstance(table, Constant) or rank_of(table) != 2 or not np.isfinite(table.data).all():
            return None
        index = self.compared(rows, bb) or self.one_hot(rows, bb)
        if index is None:
            return None
        depth, width = table.data.shape
        more = constant(np.concatenate([table.data, np.zeros((1, width), table.data.dtype)]), dtype_of(table))
        past = constant(np.asarray(depth, dtype_of(index)), dtype_of(index))
        none = constant(np.asarray(0, dtype_of(index)), dtype_of(index))
        inside = bb.emit(op.where(bb.emit(op.less(index, none)), past, index))
        return bb.emit(op.take(more, inside, axis=0, mode="clip"))

    def compared(self, rows: Expr, bb: BlockBuilder) -> Expr | None:
        """The index of ``astype(index[..., 1] == [0, 1, ...])``."""
        cast = self.made(rows, "astype")
        equal = self.made(cast.args[0], "equal") if cast is not None else None
        if equal is None:
            return None
        for index, places in (equal.args, equal.args[::-1]):
            wanted, have = (*shape_of(rows)[:-1], 1), shape_of(index)
            if dtype_of(index) in INDICES and have == wanted and is_count(places, shape_of(rows)[-1]):
                return bb.emit(op.reshape(index, shape=have[:-1]))
        return None

    def one_hot(self, rows: Expr, bb: BlockBuilder) -> Expr | None:
        """The index of a `one_hot` of 0 and 1 along the last axis."""
        made = self.made(rows, "one_hot")
        if made is None or getattr(made.attrs, "axis", 0) not in (-1, rank_of(rows) - 1):
            return None
        index, values = made.args
        if not isinstance(values, Constant) or values.data.tolist() != [0, 1]:
            return None
        kind = dtype_of(index)
        depth, none = (constant(np.asarray(v, kind), kind) for v in (shape_of(rows)[-1], 0))
        return bb.emit(op.where(bb.emit(op.less(index, none)), bb.emit(op.add(index, depth)), index))


def is_count(places: Expr, extent: object) -> bool:
    """Whether a constant is 0, 1, ... along its last axis, of this extent, and its other axes are 1."""
    if not isinstance(places, Constant) or dtype_of(places) not in INDICES or not rank_of(places):
        return False
    data = places.data
    return data.size == data.shape[-1] == extent and bool((data.reshape(-1) == np.arange(data.size)).all())


@dataclass(frozen=True)
class MatchLookup(Pass):
    """Replace products with one-hot matrices by lookups."""

    name: ClassVar[str] = "MatchLookup"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Matcher(f).function(f))
