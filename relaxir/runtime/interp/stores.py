"""Stores of all lanes at once: plain ones, and those that combine, reducing over the batch axes they do not index."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxir.runtime.interp import numerics
from relaxir.runtime.interp.contract import sum_of_products
from relaxir.runtime.interp.exprs import Evaluator, Value
from relaxir.runtime.interp.lanes import Affine, varying
from relaxir.runtime.interp.memory import Memory
from relaxir.tir import Binary, BinOp, Combine, Store

Array = NDArray[Any]

LIMIT: Final = 1 << 22  # lanes evaluated at once: bounds an intermediate array to 32 MiB


class Storing(Evaluator):
    """Execution of `Store`."""

    def store(self, stmt: Store) -> None:
        """Write, or combine with what is there, for all active lanes."""
        where = self.locate(stmt.buffer, stmt.indices)
        if where is None:
            return
        memory = self.memory(stmt.buffer)
        if stmt.combine is None:
            self._write(memory, where, numerics.to_memory(self.values_of(stmt.value), stmt.buffer.dtype))
        else:
            self._combine(memory, where, stmt, stmt.combine)

    # ---- plain -------------------------------------------------------------------------------------------------------

    def _write(self, memory: Memory, where: Value, values: Array) -> None:
        if isinstance(where, Affine) and self.lanes.injective(where):
            kept = {axis for axis, _ in where.terms}
            # lanes that write the same element must agree or be ordered: the last one wins
            values = _last(values, [axis for axis in varying(values) if axis not in kept])
            if self.mask is None:
                memory.view(where, self.lanes)[...] = values
                return
            if set(varying(self.mask)) <= kept:
                np.copyto(memory.view(where, self.lanes), values, where=self.mask)
                return
        offsets, values = np.broadcast_arrays(self.array(where), values)
        if self.mask is not None:
            offsets, values, mask = np.broadcast_arrays(offsets, values, self.mask)
            offsets, values = offsets[mask], values[mask]
        memory.flat[offsets] = values

    # ---- combining ---------------------------------------------------------------------------------------------------

    def _combine(self, memory: Memory, where: Value, stmt: Store, combine: Combine) -> None:
        name = stmt.buffer.dtype
        kept = {a for a, _ in where.terms} if isinstance(where, Affine) else set(varying(where))
        sizes = self.lanes.sizes
        over = [axis for axis, size in enumerate(sizes) if size > 1 and axis not in kept]
        total = self._total(stmt, combine, over)
        fn = numerics.combine_ufunc(combine, name)
        mask = self.mask
        if isinstance(where, Affine) and self.lanes.injective(where) and set(varying(total)) <= kept:
            view = memory.view(where, self.lanes)
            old = numerics.from_memory(view, name)
            new = fn(old.astype(numerics.wide_dtype(name)), total)
            kept_mask = None if mask is None else mask.any(axis=tuple(over), keepdims=True) if mask.ndim else mask
            stored = numerics.to_memory(new, name)
            np.copyto(view, stored, where=True if kept_mask is None else kept_mask)
            return
        offsets, values = np.broadcast_arrays(self.array(where), total)
        if mask is not None:
            some = mask.any(axis=tuple(over), keepdims=True) if mask.ndim else mask
            offsets, values, some = np.broadcast_arrays(offsets, values, some)
            offsets, values = offsets[some], values[some]
        places, position = np.unique(offsets.reshape(-1), return_inverse=True)
        wide = numerics.from_memory(memory.flat[places], name).astype(numerics.wide_dtype(name))
        fn.at(wide, position.reshape(-1), values.reshape(-1))
        memory.flat[places] = numerics.to_memory(wide, name)

    def _total(self, stmt: Store, combine: Combine, over: Sequence[int]) -> Array:
        """Combination of the values over the axes ``over`` (kept with extent 1), in the accumulating dtype."""
        name, sizes, mask = stmt.buffer.dtype, self.lanes.sizes, self.mask
        value = stmt.value
        if mask is not None and not set(varying(mask)) & set(over):
            mask = None  # it decides which elements are stored, not what is summed
        if combine is Combine.SUM and over and isinstance(value, Binary) and value.op is BinOp.MUL and name != "bool":
            a, b = self.values_of(value.a), self.values_of(value.b)
            product = sum_of_products(a, b, mask, over, sizes, name)
            return self._sum_in_pieces(a, b, mask, over, name) if product is None else product
        return self._reduce(self.values_of(value), mask, over, combine, name)

    def _reduce(self, values: Array, mask: Array | None, over: Sequence[int], combine: Combine, name: str) -> Array:
        wide = numerics.wide_dtype(name)
        if mask is not None:
            values = np.where(mask, values, numerics.neutral(combine, name).astype(values.dtype))
        if not over:
            return values.astype(wide)
        shape = list(values.shape) if values.ndim else [1] * self.lanes.rank
        for axis in over:
            shape[axis] = self.lanes.sizes[axis]
        full = np.broadcast_to(values, shape)
        fn = numerics.combine_ufunc(combine, name)
        return np.asarray(fn.reduce(full, axis=tuple(over), keepdims=True, dtype=wide))

    def _sum_in_pieces(self, a: Array, b: Array, mask: Array | None, over: Sequence[int], name: str) -> Array:
        """Sum of ``a * b`` where no matrix product serves, along pieces of the longest axis to bound memory."""
        sizes = self.lanes.sizes
        axis = max(over, key=lambda d: sizes[d])
        count = max(1, sizes[axis] * LIMIT // max(self.lanes.count, 1))
        total: Array | None = None
        for low in range(0, sizes[axis], count):
            parts = [_piece(x, axis, low, count) for x in (a, b, mask)]
            product = numerics.binary(BinOp.MUL, parts[0], parts[1], name)
            reps = min(count, sizes[axis] - low)
            part = self._reduce_piece(product, parts[2], over, axis, reps, name)
            total = part if total is None else total + part
        assert total is not None  # a loop without iterations has no lanes
        return total

    def _reduce_piece(self, values: Array, mask: Any, over: Sequence[int], axis: int, size: int, name: str) -> Array:
        whole = self.lanes.sizes[axis]
        self.lanes.sizes[axis] = size
        try:
            return self._reduce(values, mask, over, Combine.SUM, name)
        finally:
            self.lanes.sizes[axis] = whole


def _piece(x: Any, axis: int, low: int, count: int) -> Any:
    if x is None or x.ndim == 0 or x.shape[axis] == 1:
        return x
    return x[(slice(None),) * axis + (slice(low, low + count),)]


def _last(values: Array, axes: Sequence[int]) -> Array:
    for axis in axes:
        values = values[(slice(None),) * axis + (slice(-1, None),)]
    return values
