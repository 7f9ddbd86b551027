"""Products of states and weights in a recurrence: of floats, or of bytes with scales."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ops.common import load_wide
from relaxir.ops.kernels import assign, cell, let, scoped, seq
from relaxir.ops.quantize import saturate, saturated
from relaxir.sym import DimLike
from relaxir.tir import (
    BinOp,
    Buffer,
    Combine,
    Expr,
    For,
    ForKind,
    Intrinsic,
    ProgramBuilder,
    Stmt,
    Store,
    Var,
    Word,
    binary,
    call,
    cast,
    const,
    eq,
    select,
)

BYTES: Final = 4
"""Elements of the state that one step of a product of bytes takes."""


class Product(Protocol):
    """One state of each sequence times the weights, a tile of columns at a time."""

    @property
    def dtype(self) -> str:
        """Type of the sums."""

    @property
    def steps(self) -> int:
        """Terms of a sum."""

    def prepare(self, source: Buffer, n: Expr) -> Stmt | None:
        """What must be done with the state of sequence ``n`` before it is multiplied."""

    def term(self, source: Buffer, n: Expr, tile: Expr, k: Expr, j: Expr) -> Expr:
        """Term ``k`` of column ``j`` of a tile."""

    def total(self, acc: Expr, n: Expr, column: Expr) -> Expr:
        """The product, given its sum."""


@dataclass(frozen=True, slots=True)
class FloatProduct:
    """Weights (tiles, hidden, lanes) as the state itself."""

    weights: Buffer
    dtype: str

    @property
    def steps(self) -> int:
        """One for each element of the state."""
        return int(self.weights.shape[1])

    def prepare(self, source: Buffer, n: Expr) -> Stmt | None:
        """Nothing."""
        return None

    def term(self, source: Buffer, n: Expr, tile: Expr, k: Expr, j: Expr) -> Expr:
        """Element times weight."""
        return source[n, k] * load_wide(self.weights, (tile, k, j))

    def total(self, acc: Expr, n: Expr, column: Expr) -> Expr:
        """The sum."""
        return acc


class ByteProduct:
    """Weights (tiles, words, lanes, 4) in int8; the state of a sequence is rounded to uint8 by its own range.

    ``sum of (q - z) * w * s * scale = (sum of q * w - z * sums) * s * scale``, where q, s, z are the rounded state, its
    scale and its zero point (formulas of `relaxir.ops.quantize.DynamicQuantizeLinear`).
    """

    dtype = "int32"

    def __init__(
        self, f: ProgramBuilder, weights: Buffer, scale: Buffer, sums: Buffer, batch: DimLike, size: int
    ) -> None:
        self.weights, self.scale, self.sums, self.size = weights, scale, sums, size
        self.steps = -(-size // BYTES)
        self.rounded = f.temp("rounded", (batch, self.steps * BYTES), "uint8")
        self.units = f.temp("units", (batch,), "float32")
        self.zeros = f.temp("zeros", (batch,), "int32")

    def prepare(self, source: Buffer, n: Expr) -> Stmt | None:
        """Round the state."""
        low, high, none = cell("low", "float32"), cell("high", "float32"), const(0.0, "float32")

        def lanes(body: Callable[[Var], Stmt]) -> Stmt:
            j = Var("j")
            return For(j, const(self.size), body(j), ForKind.VECTOR)

        def rounding(unit: Expr, zero: Expr) -> Stmt:
            def whole(j: Expr) -> Stmt:
                q = saturate(call(Intrinsic.ROUND, source[n, j] / unit), "uint8", zero)
                return Store(self.rounded, (n, j), q)

            fill = [Store(self.rounded, (n, const(j)), const(0, "uint8")) for j in range(self.size, self.steps * BYTES)]
            return seq(Store(self.units, (n,), unit), Store(self.zeros, (n,), zero), *fill, lanes(whole))

        def zero_point(unit: Var) -> Stmt:
            zero = saturate(call(Intrinsic.ROUND, (none - low[()]) / unit), "uint8")
            return let("zero", cast(zero, "int32"), lambda z: rounding(unit, z))

        size = select(eq(high[()], low[()]), const(1.0, "float32"), high[()] - low[()])
        return scoped(
            (low, high),
            assign(low, none),
            assign(high, none),
            lanes(lambda j: Store(low, (), source[n, j], Combine.MIN)),
            lanes(lambda j: Store(high, (), source[n, j], Combine.MAX)),
            let("unit", size / 255.0, zero_point),
        )

    def term(self, source: Buffer, n: Expr, tile: Expr, k: Expr, j: Expr) -> Expr:
        """Four elements times four weights."""
        return binary(BinOp.DOT4, Word(self.rounded, (n, k * BYTES)), Word(self.weights, (tile, k, j, const(0))))

    def total(self, acc: Expr, n: Expr, column: Expr) -> Expr:
        """Less what the zero point adds, scaled."""
        exact = acc - self.zeros[n] * self.sums[column]
        return cast(exact, "float32") * (self.units[n] * self.scale[column])


def byte_product(state: Array, weights: Array, scale: Array, sums: Array) -> Array:
    """For references: rows of a state times weights (tiles, words, lanes, 4), as `ByteProduct` has it."""
    tiles, words, lanes, _ = weights.shape
    matrix = weights.transpose(1, 3, 0, 2).reshape(words * BYTES, tiles * lanes)[: state.shape[1]]
    low, high = (fn(state, 1, keepdims=True, initial=np.float32(0)) for fn in (np.min, np.max))
    unit = np.where(high == low, np.float32(1), high - low) / np.float32(255)
    zero = saturated(np.rint((np.float32(0) - low) / unit), "uint8")
    whole = saturated(np.rint(state / unit), "uint8", zero).astype(np.int32)
    exact = whole @ matrix.astype(np.int32) - zero.astype(np.int32) * sums
    return np.asarray(exact.astype(np.float32) * (unit * scale))
