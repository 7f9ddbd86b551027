"""Sorting rows by whole numbers: keys that order as the elements do, counted digit by digit.

A key is an unsigned integer of the element's width. Keys of a short row are placed by their rank, those of a longer one
by a stable radix sort from the lowest digit (D. Knuth, The Art of Computer Programming, volume 3, 5.2.5): no comparison
decides a branch, so random elements cost no more than sorted ones.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from relaxir.ops.kernels import assign, cell, let, loop, scoped, seq, when
from relaxir.support.dtypes import info
from relaxir.sym import DimLike
from relaxir.tir import (
    BinOp,
    Bits,
    Buffer,
    Combine,
    Expr,
    If,
    Intrinsic,
    ProgramBuilder,
    Scope,
    Stmt,
    Store,
    as_expr,
    binary,
    call,
    cast,
    const,
    eq,
    select,
)

DIGIT: Final = 8
"""Bits of a digit: its counts fill a part of the first-level cache."""
BINS: Final = 1 << DIGIT
SHORT: Final = 40
"""Elements up to which comparing each with each is faster than counting digits."""


def key_dtype(dtype: str) -> str:
    """Type of the keys of a dtype."""
    return f"uint{max(info(dtype).bits, 8)}"


def sort_key(value: Expr, descending: bool = False) -> Expr:
    """A key whose order is that of the values: NaN above all numbers and equal to NaN, -0.0 equal to 0.0."""
    kind = key_dtype(value.dtype)
    bits = info(kind).bits
    top, every = const(1 << (bits - 1), kind), const((1 << bits) - 1, kind)
    if value.dtype == "bool" or value.dtype.startswith("uint"):
        key = cast(value, kind)
    elif not info(value.dtype).is_float:
        key = binary(BinOp.XOR, cast(value, kind), top)
    else:
        raw = Bits(value, kind)
        wide = cast(value, "float32") if bits == 16 else value
        number = select(raw >= top, binary(BinOp.XOR, raw, every), binary(BinOp.OR, raw, top))
        key = select(call(Intrinsic.ISNAN, wide), every, select(eq(wide, const(0.0, wide.dtype)), top, number))
    return binary(BinOp.XOR, key, every) if descending else key


@dataclass(frozen=True, slots=True)
class Rows:
    """Room for the keys of rows and the positions they come from: two halves, between which a sort moves them."""

    keys: Buffer
    places: Buffer

    @staticmethod
    def of(f: ProgramBuilder, rows: tuple[DimLike, ...], extent: DimLike, dtype: str) -> Rows:
        """Room for rows of ``extent`` elements of a dtype."""
        shape = (*rows, 2, extent)
        return Rows(f.temp("keys", shape, key_dtype(dtype)), f.temp("places", shape, "int64"))

    def put(self, row: tuple[Expr, ...], half: Expr, at: Expr, key: Expr, place: Expr) -> Stmt:
        """Set one entry."""
        return seq(Store(self.keys, (*row, half, at), key), Store(self.places, (*row, half, at), place))

    def key(self, row: tuple[Expr, ...], half: Expr, at: Expr) -> Expr:
        """Key of an entry."""
        return self.keys.at((*row, half, at))

    def place(self, row: tuple[Expr, ...], half: Expr, at: Expr) -> Expr:
        """Position of an entry."""
        return self.places.at((*row, half, at))


def sort_row(rows: Rows, row: tuple[Expr, ...], half: Buffer, count: Expr) -> Stmt:
    """Put the first ``count`` entries of a row's current half in order of their keys, equal ones as they are.

    ``half`` is a cell that says where the entries are, before and after.
    """
    return If(count <= SHORT, _by_rank(rows, row, half, count), _by_digits(rows, row, half, count))


def _by_rank(rows: Rows, row: tuple[Expr, ...], half: Buffer, count: Expr) -> Stmt:
    """Each entry goes to where as many others come before it as do."""
    rank, own = cell("rank"), half[()]

    def entry(i: Expr) -> Stmt:
        def before(j: Expr) -> Stmt:
            other = rows.key(row, own, j)
            ahead = (other < mine) | (eq(other, mine) & (j < i))
            return Store(rank, (), cast(ahead, "int64"), Combine.SUM)

        mine = rows.key(row, own, i)
        move = rows.put(row, 1 - own, rank[()], mine, rows.place(row, own, i))
        return seq(assign(rank, 0), loop("j", count, before), move)

    return scoped((rank,), loop("i", count, entry), assign(half, 1 - own))


def _by_digits(rows: Rows, row: tuple[Expr, ...], half: Buffer, count: Expr) -> Stmt:
    """Count all digits in one pass, then move the entries once per digit that is not the same in all of them."""
    kind = rows.keys.dtype
    digits = info(kind).bits // DIGIT
    counts, total = Buffer("counts", (digits * BINS,), "int64", Scope.STACK), cell("total")
    own = half[()]

    def bin_of(key: Expr, digit: int) -> Expr:
        low = binary(BinOp.SHR, key, const(digit * DIGIT, kind)) if digit else key
        return cast(binary(BinOp.AND, low, const(BINS - 1, kind)), "int64") + digit * BINS

    def count_one(i: Expr) -> Stmt:
        return let(
            "key",
            rows.key(row, own, i),
            lambda key: seq(*(Store(counts, (bin_of(key, d),), const(1), Combine.SUM) for d in range(digits))),
        )

    def starts(digit: int) -> Stmt:
        def step(b: Expr) -> Stmt:
            at = b + digit * BINS
            return let(
                "here", counts[at], lambda here: seq(Store(counts, (at,), total[()]), assign(total, total[()] + here))
            )

        return seq(assign(total, 0), loop("b", BINS, step))

    def move(digit: int) -> Stmt:
        def one(i: Expr) -> Stmt:
            def to(key: Expr, at: Expr, target: Expr) -> Stmt:
                return seq(
                    rows.put(row, 1 - own, target, key, rows.place(row, own, i)), Store(counts, (at,), target + 1)
                )

            return let(
                "key",
                rows.key(row, own, i),
                lambda key: let(
                    "bin",
                    bin_of(key, digit),
                    lambda at: let("target", counts[at], lambda target: to(key, at, target)),
                ),
            )

        return loop("i", count, one)

    def by(digit: int) -> Stmt:
        differs = counts[bin_of(rows.key(row, own, const(0)), digit)] < count
        return when(differs, starts(digit), move(digit), assign(half, 1 - own))

    return scoped(
        (counts, total),
        loop("b", digits * BINS, lambda b: Store(counts, (b,), const(0))),
        loop("i", count, count_one),
        *(by(d) for d in range(digits)),
    )


Write = Callable[[tuple[Expr, ...], Expr, Expr], Stmt]
"""(row, rank, place): what becomes of the element that is ``rank``-th in its row and stands at ``place``."""


def sort_rows(f: ProgramBuilder, x: Buffer, axis: int, descending: bool, count: DimLike, write: Write) -> None:
    """Add a stage that sorts ``x`` along an axis, stably, and hands out the first ``count`` of each row in order.

    Needs two keys and two int64 positions for each element.
    """
    others = (*x.shape[:axis], *x.shape[axis + 1 :])
    rows, extent = Rows.of(f, others, x.shape[axis], x.dtype), x.shape[axis]

    def sort(*row: Expr) -> Stmt:
        half = cell("half")

        def enter(i: Expr) -> Stmt:
            return rows.put(row, const(0), i, sort_key(x.at((*row[:axis], i, *row[axis:])), descending), i)

        def leave(rank: Expr) -> Stmt:
            return let("place", rows.place(row, half[()], rank), lambda place: write(row, rank, place))

        return scoped(
            (half,),
            assign(half, 0),
            loop("i", extent, enter),
            sort_row(rows, row, half, as_expr(extent)),
            loop("m", count, leave),
        )

    f.block("sort", others, sort)
