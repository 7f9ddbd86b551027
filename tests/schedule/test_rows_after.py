"""Row stages behind a product: they follow each block of its rows where that is right and can gain, else stand alone."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from relaxir.cost import Config, TargetInfo
from relaxir.schedule import block_rows, schedule
from relaxir.schedule.row_blocks import least_height, split_rows
from relaxir.sym import DimLike, dim
from relaxir.tir import (
    Buffer,
    Combine,
    For,
    ForKind,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    as_expr,
    call,
    cast,
)
from relaxir.tir.visit import stores_of, walk
from tests.schedule.agree import agree

N, M = dim("n"), dim("m")
F = "float32"
SMALL = Config(mr=6, nr=16, block=32)
Rows = Callable[[ProgramBuilder, Buffer, Buffer], None]


def softmax(f: ProgramBuilder, x: Buffer, y: Buffer) -> None:
    *rows, columns = x.shape
    top, total = f.temp("top", rows, F), f.temp("total", rows, F)
    power = f.temp("power", x.shape, F)
    f.reduce(top, (columns,), Combine.MAX, lambda *i: x[i])
    f.compute(power, lambda *i: call(Intrinsic.EXP, x[i] - top[i[:-1]]))
    f.reduce(total, (columns,), Combine.SUM, lambda *i: power[i])
    f.compute(y, lambda *i: power[i] / total[i[:-1]])


def next_row(f: ProgramBuilder, x: Buffer, y: Buffer) -> None:
    """A row that needs another one: it cannot follow its own block."""
    n, columns = x.shape
    top = f.temp("top", (n,), F)
    f.reduce(top, (columns,), Combine.MAX, lambda i, k: x[as_expr(n) - 1 - i, k])
    f.compute(y, lambda i, j: x[i, j] - top[i])


def column_sums(f: ProgramBuilder, x: Buffer, y: Buffer) -> None:
    """A reduction over the rows themselves."""
    n, columns = x.shape
    total = f.temp("total", (columns,), F)
    f.reduce(total, (n,), Combine.SUM, lambda j, i: x[i, j])
    f.compute(y, lambda i, j: x[i, j] - total[j])


def product_rows(n: DimLike, k: int, m: DimLike, rows: Rows, heads: int = 0, batch: DimLike = 0) -> PrimFunc:
    """``rows`` of a product with bias and residual; columns may be (heads, m), rows (batch, n)."""
    f = ProgramBuilder("product_rows")
    lead, tail = (batch, n) if batch else (n,), (heads, m) if heads else (m,)
    x, w, b = f.input("x", (*lead, k), F), f.input("w", (k, *tail), F), f.input("b", tail, F)
    r, y = f.input("r", (*lead, *tail), F), f.output("y", (*lead, *tail), F)
    s, t = f.temp("s", y.shape, F), f.temp("t", y.shape, F)
    split = len(lead)
    f.reduce(s, (k,), Combine.SUM, lambda *i: x[(*i[:split], i[-1])] * w[(i[-1], *i[split:-1])])
    f.compute(t, lambda *i: s[i] + b[i[split:]] + r[i])
    rows(f, t, y)
    return f.build()


def follows(func: PrimFunc) -> bool:
    """Whether a parallel loop of the scheduled program both fills a register tile and stores a row's maximum."""
    regions = [s for s in walk(func.body) if isinstance(s, For) and s.kind is ForKind.PARALLEL]
    named = [{s.buffer.name for s in stores_of(region)} for region in regions]
    return any({"acc", "top"} <= names for names in named)


@pytest.mark.parametrize("threads", [1, 2, 5])
@pytest.mark.parametrize(
    ("func", "sizes"),
    [
        (product_rows(N, 7, 24, softmax), (0, 1, 2, 17, 31, 32, 67, 161)),
        (product_rows(161, 7, 33, softmax), ()),
        (product_rows(N, 3, M, softmax), (0, 1, 17, 33, 160)),
        (product_rows(N, 5, 20, softmax, heads=3), (0, 1, 161)),
        (product_rows(N, 5, 20, softmax, batch=3), (0, 1, 67)),
        (product_rows(N, 7, 24, next_row), (0, 1, 67)),
        (product_rows(N, 7, 24, column_sums), (0, 1, 67)),
    ],
    ids=["dynamic", "constant", "columns", "heads", "batch", "next_row", "column_sums"],
)
def test_rows_after_a_product(func: PrimFunc, sizes: tuple[int, ...], threads: int) -> None:
    agree(func, sizes, TargetInfo(threads=threads), SMALL)


@pytest.mark.parametrize(
    ("func", "expected"),
    [
        (product_rows(N, 7, 24, softmax), True),
        (product_rows(N, 7, M, softmax), True),
        (product_rows(N, 7, 20, softmax, heads=3), True),
        (product_rows(N, 7, 20, softmax, batch=3), True),
        (product_rows(64, 7, 24, softmax), True),
        (product_rows(63, 7, 24, softmax), False),  # less than 16 rows for each of four threads
        (product_rows(1, 7, 24, softmax), False),
        (product_rows(N, 7, 8192, softmax), True),
        (product_rows(N, 7, 8193, softmax), False),  # 16 rows leave the cache
        (product_rows(N, 7, 24, next_row), False),
        (product_rows(N, 7, 24, column_sums), False),
    ],
)
def test_where_rows_follow(func: PrimFunc, expected: bool) -> None:
    target = TargetInfo(vector_bytes=64, registers=32, masked=True, threads=4)
    assert follows(schedule(func, target)) is expected


def test_sums_are_the_same_for_any_number_of_threads() -> None:
    """Tiles of two rows of four vectors: one of a single row sums in two parts, and blocks would decide which it is."""
    func, narrow = product_rows(N, 7, 24, softmax), Config(mr=2, nr=16)
    assert not follows(schedule(func, TargetInfo(vector_bytes=16, threads=2), narrow))
    assert follows(schedule(func, TargetInfo(vector_bytes=16, threads=2), Config(mr=4, nr=16)))


def test_a_product_that_is_a_result_keeps_its_place() -> None:
    """Bytes and 16-bit results: the stages after the product read what it rounds."""
    f = ProgramBuilder("rounded")
    x, w = f.input("x", (N, 9), "float16"), f.input("w", (9, 40), "float16")
    y, z = f.output("y", (N, 40), "float16"), f.output("z", (N,), "float16")
    s = f.temp("s", y.shape, F)
    f.reduce(s, (9,), Combine.SUM, lambda i, j, k: cast(x[i, k], F) * cast(w[k, j], F))
    f.compute(y, lambda i, j: cast(s[i, j], "float16"))
    f.reduce(z, (40,), Combine.MAX, lambda i, j: y[i, j])
    agree(f.build(), (0, 1, 33, 70), TargetInfo(threads=2), SMALL, rules=("contraction",))


@pytest.mark.parametrize("mr", [1, 2, 6, 8])
@pytest.mark.parametrize("shares", [1, 2, 3])
def test_blocks_cover_rows_once_in_tiles_of_the_promised_heights(mr: int, shares: int) -> None:
    for size in range(8 * shares, 140):
        blocks = split_rows(size, 16, mr, 8 * shares, shares)
        many = int(blocks.axis.extent)
        counts = [(b + 1) * size // many - b * size // many for b in range(many)]
        assert many % shares == 0
        assert sum(counts) == size
        assert max(counts) <= 16
        assert min(counts) >= 8
        assert least_height(8, mr) <= blocks.rows.least <= blocks.rows.most <= mr


def test_how_many_rows_stay_in_cache() -> None:
    assert block_rows(384, 4) == 341
    assert block_rows(8192, 4) == 16
    assert block_rows(8192, 8) is None
    assert block_rows(0, 4) is not None
    assert block_rows(M, 4) == block_rows(2048, 4)
