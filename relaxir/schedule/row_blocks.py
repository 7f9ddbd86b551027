"""Splitting the rows of a contraction into blocks that stay in cache, and the heights of the tiles inside a block."""

from __future__ import annotations

from dataclasses import dataclass

from relaxir.schedule.loops import loop
from relaxir.sym import DimLike, ceildiv, is_const, mul
from relaxir.tir import Axis, Expr, Let, Stmt, Var, as_expr, binary, const
from relaxir.tir.expr import BinOp


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a contraction: the first, how many, and how high their tiles may be."""

    start: Expr
    count: Expr
    least: int
    most: int

    def each(self, row: Var, body: Stmt) -> Stmt:
        """Run ``body`` for each of the rows, ``row`` counting from the first."""
        return loop(row, self.count, body)


ONE_ROW = Rows(const(0), const(1), 1, 1)


@dataclass(frozen=True, slots=True)
class RowBlocks:
    """Rows split evenly into blocks: ``axis`` runs over the blocks, ``rows`` are those of one block.

    Attributes:
        axis: the blocks.
        rows: the rows of one of them.
        names: what `rows` mentions, with its values over the axis.

    """

    axis: Axis
    rows: Rows
    names: tuple[tuple[Var, Expr], ...] = ()

    def named(self, body: Stmt) -> Stmt:
        """Bind in front of ``body`` what `rows` mentions."""
        for var, value in reversed(self.names):
            body = Let(var, value, body)
        return body


def split_rows(extent: DimLike, block: int, mr: int, fewest: int, shares: int = 1) -> RowBlocks:
    """Split rows evenly into blocks.

    Args:
        extent: how many rows there are.
        block: most rows of a block.
        mr: most rows of a tile.
        fewest: what the caller promises about the extent; even splits then never leave lower tiles than they must.
        shares: the number of blocks is a multiple of it, so that as many threads have equal work.

    """
    number = mul(ceildiv(extent, block * shares), shares)
    blocks = Axis(Var("rows"), number)
    if is_const(extent):
        size, many = int(extent), max(1, int(number))
        low, high = size // many, -(-size // many)
        heights = [h for c in (low, high) for h in _tile_heights(c, mr)]
        bounds = max(1, min(heights)), max(1, *heights)
        if low == high:
            return RowBlocks(blocks, Rows(blocks.var * low, const(low), *bounds))
    else:
        bounds = least_height(min(fewest // shares, block // 2), mr), mr
    start, count = Var("start"), Var("count")
    begin = binary(BinOp.FLOORDIV, blocks.var * as_expr(extent), as_expr(number))
    end = binary(BinOp.FLOORDIV, (blocks.var + 1) * as_expr(extent), as_expr(number))
    return RowBlocks(blocks, Rows(start, count, *bounds), ((start, begin), (count, end - start)))


def least_height(fewest: int, mr: int) -> int:
    """Height of the lowest tile that an even split of at least so many rows can have.

    >>> least_height(8, 6)
    4
    """
    return min(min(_tile_heights(count, mr)) for count in range(max(1, fewest), max(1, fewest) + mr * mr))


def _tile_heights(count: int, most: int) -> tuple[int, ...]:
    """Heights of the tiles of an even split."""
    tiles = max(1, -(-count // most))
    return tuple((t + 1) * count // tiles - t * count // tiles for t in range(tiles))
