"""The first few of rows in order, without sorting the rows: what is worse than the worst kept so far is passed over.

A block of elements at a time is compared with the worst one kept; only where one of them comes before it are they
looked at singly. Few results are kept in order where they go; more are collected unsorted, and cut to what was asked
for whenever their room is full.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from relaxir.ops.kernels import assign, cell, let, loop, scoped, seq, when
from relaxir.ops.merge import precedes
from relaxir.ops.radix import Rows, sort_key, sort_row
from relaxir.sym import DimLike, add, min_, mul
from relaxir.tir import (
    Buffer,
    Combine,
    Const,
    Expr,
    If,
    Intrinsic,
    ProgramBuilder,
    Stmt,
    Store,
    While,
    as_expr,
    call,
    const,
    eq,
    maximum,
    minimum,
)

BLOCK: Final = 32
"""Elements compared with the worst kept one at once."""
FEW: Final = 32
"""Most results that are kept in order by insertion."""

Element = Callable[[Expr], Expr]
"""Element of the row at a position."""
Each = Callable[[Expr], Stmt]
"""What is done with a position."""
Put = Callable[[Expr, Expr, Expr], Stmt]
"""(rank, value, place): set one result."""


def find_leading(f: ProgramBuilder, x: Buffer, axis: int, largest: bool, values: Buffer, positions: Buffer) -> None:
    """Add stages that find the first ``values.shape[axis]`` elements of ``x`` along an axis, and their positions.

    In order, NaN larger than every number, the earlier one of equals first; ``largest`` begins at the largest.
    """
    count = values.shape[axis]
    others = (*x.shape[:axis], *x.shape[axis + 1 :])
    known = isinstance(count, int)
    room = Rows.of(f, others, _room(count, x.shape[axis]), x.dtype) if not known or int(count) > FEW else None

    def find(*row: Expr) -> Stmt:
        def at(buffer: Buffer, place: Expr) -> Expr:
            return buffer.at(along(place))

        def along(place: Expr) -> tuple[Expr, ...]:
            return (*row[:axis], place, *row[axis:])

        def put(rank: Expr, value: Expr, place: Expr) -> Stmt:
            return seq(Store(values, along(rank), value), Store(positions, along(rank), place))

        size, wanted = as_expr(x.shape[axis]), as_expr(count)

        def shift(rank: Expr) -> Stmt:
            return put(rank, at(values, rank - 1), at(positions, rank - 1))

        element: Element = lambda place: at(x, place)  # noqa: E731  # a name for what two forms share
        few = _by_insertion(element, size, wanted, largest, lambda rank: at(values, rank), shift, put)
        if room is None:
            return few
        many = _by_batches(room, row, element, size, wanted, largest, put)
        return many if known else If(wanted <= FEW, few, many)

    f.block("leading", others, find)


def _room(count: DimLike, extent: DimLike) -> DimLike:
    """Entries that are collected before they are cut: at least as many again as are kept, and a block."""
    return min_(extent, add(mul(2, count), 4 * BLOCK))


def _blockwise(
    element: Element, first: Expr, size: Expr, compared: Expr, worst: Expr, largest: bool, each: Each
) -> Stmt:
    """Run ``each`` for the places of one block, unless ``compared`` holds and none comes before ``worst``."""
    some = cell("some", "bool")

    def test(j: Expr) -> Stmt:
        return Store(some, (), precedes(element(first + j), worst, largest), Combine.OR)

    return scoped(
        (some,),
        assign(some, True),
        when(compared & (first + BLOCK <= size), assign(some, False), loop("j", BLOCK, test)),
        when(some[()], loop("j", minimum(size - first, const(BLOCK)), lambda j: each(first + j))),
    )


def _by_insertion(
    element: Element,
    size: Expr,
    wanted: Expr,
    largest: bool,
    kept: Element,
    shift: Each,
    put: Put,
) -> Stmt:
    """Keep the results in order where they go; a new one moves those after it by one place."""
    have, to = cell("have"), cell("to")

    def insert(place: Expr) -> Stmt:
        def among(value: Expr) -> Stmt:
            moves = (to[()] > 0) & precedes(value, kept(maximum(to[()] - 1, 0)), largest)
            return when(
                (have[()] < wanted) | precedes(value, kept(wanted - 1), largest),
                assign(to, minimum(have[()], wanted - 1)),
                While(moves, seq(shift(to[()]), assign(to, to[()] - 1))),
                put(to[()], value, place),
                assign(have, minimum(have[()] + 1, wanted)),
            )

        return let("value", element(place), among)

    def block(b: Expr) -> Stmt:
        return _blockwise(element, b * BLOCK, size, have[()] >= wanted, kept(wanted - 1), largest, insert)

    scan = scoped((have, to), assign(have, 0), loop("b", (size + (BLOCK - 1)) // BLOCK, block))
    return scan if isinstance(wanted, Const) and wanted.value > 0 else when(wanted > 0, scan)


def _by_batches(
    room: Rows,
    row: tuple[Expr, ...],
    element: Element,
    size: Expr,
    wanted: Expr,
    largest: bool,
    put: Put,
) -> Stmt:
    """Collect what may belong to the result until the room is full, sort it, keep the front, go on."""
    half, fill, at = cell("half"), cell("fill"), cell("at")
    limited, worst = cell("limited", "bool"), cell("worst", element(const(0)).dtype)
    most = as_expr(room.keys.shape[-1])

    def collect(place: Expr) -> Stmt:
        def enter(value: Expr) -> Stmt:
            return when(
                call(Intrinsic.NOT, limited[()]) | precedes(value, worst[()], largest),
                room.put(row, half[()], fill[()], sort_key(value, largest), place),
                assign(fill, fill[()] + 1),
            )

        return let("value", element(place), enter)

    fits = (at[()] < size) & (fill[()] + minimum(size - at[()], const(BLOCK)) <= most)
    batch = seq(
        While(
            fits,
            seq(
                _blockwise(element, at[()], size, limited[()], worst[()], largest, collect),
                assign(at, at[()] + BLOCK),
            ),
        ),
        sort_row(room, row, half, fill[()]),
        assign(fill, minimum(fill[()], wanted)),
        when(
            eq(fill[()], wanted),
            assign(worst, element(room.place(row, half[()], wanted - 1))),
            assign(limited, True),
        ),
    )

    def leave(rank: Expr) -> Stmt:
        return let("place", room.place(row, half[()], rank), lambda place: put(rank, element(place), place))

    return scoped(
        (half, fill, at, limited, worst),
        *(assign(c, 0) for c in (half, fill, at)),
        assign(limited, False),
        assign(worst, const(0, worst.dtype)),
        While(at[()] < size, batch),
        loop("m", wanted, leave),
    )
