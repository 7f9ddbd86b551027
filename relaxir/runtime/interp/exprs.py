"""Evaluation of scalar expressions for all lanes at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from relaxir.runtime.interp import numerics
from relaxir.runtime.interp.lanes import Affine, Lanes
from relaxir.runtime.interp.memory import Memory, of_array
from relaxir.support.errors import InternalError
from relaxir.sym import DimLike, exact
from relaxir.tir import (
    Bcast,
    Binary,
    BinOp,
    Bits,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Extent,
    Load,
    Select,
    Size,
    Var,
    Word,
)

Array = NDArray[Any]
Value: TypeAlias = "Array | Affine"
"""A scalar of every lane."""


class Evaluator:
    """Values of variables, contents of buffers, sizes of dims, and the mask of active lanes."""

    def __init__(self, rank: int, dims: Mapping[str, int], arrays: Mapping[Buffer, Array]) -> None:
        """Evaluate over at most ``rank`` batch axes; ``arrays`` are the parameters, worked on in place."""
        self.lanes = Lanes(rank)
        self.dims = dict(dims)
        self.arrays = dict(arrays)
        self.values: dict[Var, Value] = {}
        self.memories: dict[Buffer, Memory] = {}
        self.mask: Array | None = None
        self._sizes: dict[int, tuple[DimLike, int]] = {}
        # one statement's results by node, so that shared subtrees are evaluated once; keeps its masks alive
        self._memo: dict[tuple[int, int], tuple[Array | None, Value]] = {}

    # ---- sizes and memory --------------------------------------------------------------------------------------------

    def size(self, dim: DimLike) -> int:
        """Value of a dimension expression."""
        if isinstance(dim, int):
            return dim
        known = self._sizes.get(id(dim))
        if known is None:
            known = self._sizes[id(dim)] = (dim, exact(dim, self.dims))
        return known[1]

    def set_dim(self, name: str, value: int | None) -> None:
        """Bind a dimension, or unbind it with None."""
        self._sizes.clear()
        if value is None:
            self.dims.pop(name, None)
        else:
            self.dims[name] = value

    def memory(self, buffer: Buffer) -> Memory:
        """Memory of a buffer; a parameter is bound at its first use, when its dims are known."""
        found = self.memories.get(buffer)
        if found is None:
            if buffer not in self.arrays:
                raise InternalError(f"buffer `{buffer.name}` is used outside its allocation")
            shape = tuple(self.size(d) for d in buffer.shape)
            found = of_array(self.arrays[buffer], buffer.dtype, shape, f"buffer `{buffer.name}`")
            self.memories[buffer] = found
        return found

    def locate(self, buffer: Buffer, indices: tuple[Expr, ...]) -> Value | None:
        """Flat offset of an element for each lane; None where the buffer is empty (then no lane may be active).

        Raises:
            InternalError: when an active lane would access memory outside the buffer.
        """
        memory = self.memory(buffer)
        offset, rest = memory.private, None
        for axis, index in enumerate(indices):
            value, extent = self.eval(index), memory.shape[axis]
            if isinstance(value, Affine):
                low, high = self.lanes.bounds(value)
                if low >= 0 and high < extent:
                    offset = offset.plus(value.times(memory.strides[axis]))
                    continue
            positions = self.array(value)
            wrong = (positions < 0) | (positions >= extent)
            if np.any(wrong):
                failing = wrong if self.mask is None else wrong & self.mask
                if np.any(failing):
                    at = np.broadcast_to(positions, failing.shape)[failing].flat[0] if failing.ndim else positions
                    raise InternalError(
                        f"access outside buffer `{buffer.name}`: index {int(at)} of axis {axis} of extent {extent}"
                    )
                if extent == 0:
                    return None
                positions = np.clip(positions, 0, extent - 1)
            step = positions * np.int64(memory.strides[axis])
            rest = step if rest is None else rest + step
        if rest is None:
            return offset
        return np.asarray(rest + self.lanes.array(offset))

    # ---- expressions -------------------------------------------------------------------------------------------------

    def array(self, value: Value) -> Array:
        """A value as a NumPy array or scalar."""
        return self.lanes.array(value) if isinstance(value, Affine) else value

    def values_of(self, expr: Expr) -> Array:
        """Evaluate to a NumPy array or scalar."""
        return self.array(self.eval(expr))

    def number(self, expr: Expr) -> int:
        """Evaluate an integer that is the same for all active lanes."""
        value = self.eval(expr)
        if isinstance(value, Affine) and not value.terms:
            return value.base
        array = self.array(value)
        if array.size != 1:
            raise InternalError("a value that must be the same for all lanes is not")
        return int(array.reshape(-1)[0])

    def forget(self) -> None:
        """Drop remembered results: called before each statement, because memory may have changed."""
        if self._memo:
            self._memo.clear()

    def eval(self, expr: Expr) -> Value:
        """Value of an expression in the active lanes; in others it is arbitrary, but computed without a fault."""
        if isinstance(expr, Const):
            if expr.dtype == "int64":
                return Affine(int(expr.value))
            return numerics.rounded(np.asarray(expr.value), expr.dtype)
        if isinstance(expr, Var):
            if expr not in self.values:
                raise InternalError(f"variable `{expr.name}` is used outside its scope")
            return self.values[expr]
        if isinstance(expr, Size):
            return Affine(self.size(expr.expr))
        if isinstance(expr, Bcast):
            return Affine(0) if self.size(expr.extent) == 1 else self.eval(expr.index)
        if isinstance(expr, Extent):
            return Affine(int(self.arrays[expr.buffer].shape[expr.axis]))
        key = (id(expr), id(self.mask))
        known = self._memo.get(key)
        if known is None:
            known = self._memo[key] = (self.mask, self._compute(expr))
        return known[1]

    def _compute(self, expr: Expr) -> Value:
        if isinstance(expr, Word):
            return self._word(expr)
        if isinstance(expr, Load):
            return self._load(expr)
        if isinstance(expr, Binary):
            return self._binary(expr)
        if isinstance(expr, Call):
            return numerics.intrinsic(expr.fn, self.values_of(expr.arg), expr.dtype)
        if isinstance(expr, Cast):
            value = self.eval(expr.value)
            if expr.dtype == expr.value.dtype:
                return value
            return numerics.cast(self.array(value), expr.value.dtype, expr.dtype)
        if isinstance(expr, Bits):
            return numerics.bits(self.values_of(expr.value), expr.value.dtype, expr.dtype)
        if isinstance(expr, Select):
            return self._select(expr)
        raise InternalError(f"the interpreter does not know the expression {type(expr).__name__}")

    def _load(self, expr: Load) -> Value:
        memory = self.memory(expr.buffer)
        offset = self.locate(expr.buffer, expr.indices)
        if offset is None:
            return np.zeros((), numerics.flight_dtype(expr.dtype))
        if not isinstance(offset, Affine):
            return numerics.from_memory(np.take(memory.flat, offset), expr.dtype)
        if not offset.terms:
            return numerics.from_memory(memory.flat[offset.base], expr.dtype)
        return numerics.from_memory(memory.view(offset, self.lanes), expr.dtype)

    def _word(self, expr: Word) -> Value:
        offset = self.locate(expr.buffer, expr.indices)
        if offset is None:
            return np.zeros((), np.int32)
        positions, flat = self.array(offset), self.memory(expr.buffer).flat
        wrong = positions + 3 >= flat.size
        if np.any(wrong if self.mask is None else wrong & self.mask):
            raise InternalError(f"a word reaches past the end of buffer `{expr.buffer.name}`")
        parts = [np.take(flat, positions + n, mode="clip").astype(np.uint8).astype(np.uint32) for n in range(4)]
        word = parts[0] | parts[1] << np.uint32(8) | parts[2] << np.uint32(16) | parts[3] << np.uint32(24)
        return np.asarray(word).astype(np.int32)

    def _binary(self, expr: Binary) -> Value:
        a, b = self.eval(expr.a), self.eval(expr.b)
        if isinstance(a, Affine) and isinstance(b, Affine):
            exact = self._affine(expr.op, a, b)
            if exact is not None:
                return exact
        return numerics.binary(expr.op, self.array(a), self.array(b), expr.dtype)

    def _affine(self, op: BinOp, a: Affine, b: Affine) -> Value | None:
        """Index arithmetic that stays symbolic, and comparisons that the bounds decide."""
        if not (a.small and b.small):
            return None
        if op is BinOp.ADD:
            return a.plus(b)
        if op is BinOp.SUB:
            return a.plus(b, -1)
        if op is BinOp.MUL and not (a.terms and b.terms):
            product = a.times(b.base) if not b.terms else b.times(a.base)
            return product if product.small else None
        if op in (BinOp.FLOORDIV, BinOp.MOD):
            return self._divided(op, a, b)
        return self._decided(op, a, b)

    def _divided(self, op: BinOp, a: Affine, b: Affine) -> Affine | None:
        if b.terms or b.base <= 0:
            return None
        low, high = self.lanes.bounds(a)
        quotient = low // b.base
        if quotient == high // b.base:  # the same quotient for all lanes
            return Affine(quotient) if op is BinOp.FLOORDIV else Affine(a.base - quotient * b.base, a.terms)
        if all(step % b.base == 0 for _, step in a.terms):
            if op is BinOp.MOD:
                return Affine(a.base % b.base)
            return Affine(a.base // b.base, tuple((axis, step // b.base) for axis, step in a.terms))
        return None

    def _decided(self, op: BinOp, a: Affine, b: Affine) -> Value | None:
        low, high = self.lanes.bounds(a.plus(b, -1))
        verdicts = {
            BinOp.LT: (high < 0, low >= 0),
            BinOp.LE: (high <= 0, low > 0),
            BinOp.GT: (low > 0, high <= 0),
            BinOp.GE: (low >= 0, high < 0),
            BinOp.EQ: (low == high == 0, low > 0 or high < 0),
            BinOp.NE: (low > 0 or high < 0, low == high == 0),
            BinOp.MIN: (high <= 0, low >= 0),
            BinOp.MAX: (low >= 0, high <= 0),
        }
        certain = verdicts.get(op)
        if certain is None or not any(certain):
            return None
        if op in (BinOp.MIN, BinOp.MAX):
            return a if certain[0] else b
        return np.asarray(certain[0])

    def _select(self, expr: Select) -> Value:
        cond = self.values_of(expr.cond)
        if cond.size == 1:
            return self.eval(expr.then if bool(cond.reshape(-1)[0]) else expr.other)
        outer = self.mask
        chosen = cond if outer is None else cond & outer
        refused = ~cond if outer is None else ~cond & outer
        if not refused.any():
            return self.eval(expr.then)
        if not chosen.any():
            return self.eval(expr.other)
        try:
            self.mask = chosen
            then = self.values_of(expr.then)
            self.mask = refused
            other = self.values_of(expr.other)
        finally:
            self.mask = outer
        return np.where(cond, then, other)
