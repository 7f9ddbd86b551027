"""Lanes in bodies written by hand, checks made together, one pass for extremum and place: the forms that are chosen."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from relaxir.runtime.interp import run_prim_func
from relaxir.schedule import schedule
from relaxir.support.errors import RuntimeIndexError
from relaxir.sym import DimLike, dim
from relaxir.tir import (
    Alloc,
    Assert,
    Buffer,
    Combine,
    Expr,
    For,
    ForKind,
    If,
    PrimFunc,
    ProgramBuilder,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
    alike,
    as_expr,
    const,
    maximum,
    select,
)
from relaxir.tir.visit import walk
from tests.schedule.agree import TARGET, agree

N, M = dim("n"), dim("m")
F = "float32"
SIZES = (0, 1, 3, 7, 33)


def loops(stmt: Stmt, kind: ForKind) -> list[For]:
    return [s for s in walk(stmt) if isinstance(s, For) and s.kind is kind]


def down(n: DimLike, m: DimLike, more: Callable[[Buffer, Expr, Expr], Stmt] | None = None) -> PrimFunc:
    """Running sums down columns; ``more`` adds a statement at the end of each step."""
    f = ProgramBuilder("down")
    x, y = f.input("x", (n, m), F), f.output("y", (n, m), F)

    def column(j: Expr) -> Stmt:
        total, k = Buffer("total", (), F, Scope.STACK), Var("k")
        steps = [Store(total, (), total[()] + x[k, j]), Store(y, (k, j), total[()])]
        steps += [] if more is None else [more(y, k, j)]  # type: ignore[list-item]  # any statement
        return Alloc(total, Seq((Store(total, (), const(0.0, F)), For(k, as_expr(n), Seq(tuple(steps))))))

    f.block("scan", (m,), column)
    return f.build()


def place(n: DimLike, m: DimLike, how: Combine, axis: int, keep: bool = False) -> PrimFunc:
    """Where the extremum of rows or columns is; with ``keep`` the extremum is a result too."""
    f = ProgramBuilder("place")
    shape, kept = (n, m), (m if axis == 0 else n,)
    x = f.input("x", shape, F)
    best = f.output("best", kept, F) if keep else f.temp("best", kept, F)
    y = f.output("y", kept, "int64")
    last = how is Combine.MIN
    never = const(-1 if last else np.iinfo(np.int64).max)

    def at(i: Expr, k: Expr) -> Expr:
        return x[k, i] if axis == 0 else x[i, k]

    f.reduce(best, (shape[axis],), how, at)
    found = Combine.MAX if last else Combine.MIN
    f.reduce(y, (shape[axis],), found, lambda i, k: select(alike(at(i, k), best[i]), k, never), init=never)
    return f.build()


def lookup(n: DimLike, m: DimLike, costly: bool = False) -> PrimFunc:
    """Elements at indices that are checked first."""
    f = ProgramBuilder("lookup")
    x, i, y = f.input("x", (n + 3,), F), f.input("i", (m,), "int64"), f.output("y", (m,), F)
    size = as_expr(n + 3)
    f.block("check", (m,), lambda j: Assert(i[j] < size, "runtime-index", "index {} of {}", (i[j], size)))
    f.compute(y, lambda j: maximum(x[i[j]] * x[i[j]] + 1.0, x[i[j]] - 2.0) if costly else x[i[j]])
    return f.build()


@pytest.mark.parametrize("extent", [M, 5, 100, 3000])
def test_columns_move_inside_the_loop(extent: DimLike) -> None:
    """Many columns are a vector loop in each step, few are lanes of the whole walk."""
    done = agree(down(N, extent), SIZES, rules=("lanes",))
    outer = [v for v in loops(done.body, ForKind.VECTOR) if loops(v.body, ForKind.SERIAL)]
    inner = [s for s in loops(done.body, ForKind.SERIAL) if loops(s.body, ForKind.VECTOR)]
    assert bool(outer) == (extent in (M, 5))
    assert bool(inner) == (extent in (M, 100, 3000))


def test_a_condition_on_the_lane_stays_inside() -> None:
    """A branch that lanes take apart belongs to the vector loop with the stores around it."""

    def twice(y: Buffer, k: Expr, j: Expr) -> Stmt:
        return If(j < 2, Store(y, (k, j), y[k, j] * 2.0))

    agree(down(N, 100, twice), SIZES, rules=("lanes",))


def test_what_neighbours_do_apart_stays_apart() -> None:
    """An inner loop whose length depends on the column is not shared by lanes."""

    def ragged(y: Buffer, k: Expr, j: Expr) -> Stmt:
        return For(Var("r"), j, Store(y, (k, j), y[k, j] + 1.0))

    agree(down(N, 6, ragged), SIZES, rules=("fallback",))


@pytest.mark.parametrize("how", [Combine.MAX, Combine.MIN])
@pytest.mark.parametrize("extent", [M, 9, 70, 200])
def test_extremum_and_place_are_one_pass(how: Combine, extent: DimLike) -> None:
    done = agree(place(N, extent, how, 1), (1, 2, 17, 70, 150) if extent is M else (1, 5), rules=("extremum",))
    assert done.workspaces == 0


def test_places_in_columns_keep_their_lanes() -> None:
    agree(place(N, M, Combine.MAX, 0), (1, 2, 17, 33), rules=("reduction", "reduction"))


def test_an_extremum_that_is_asked_for_again_is_kept() -> None:
    """The one pass leaves no extremum behind."""
    agree(place(N, M, Combine.MAX, 1, keep=True), (1, 2, 17, 33), rules=("rows",))


def test_lookups_are_singles_and_their_checks_lanes() -> None:
    """Copies of looked-up elements gain nothing by lanes; more work on them does."""
    for costly in (False, True):
        done = schedule(lookup(N, M, costly), TARGET)
        stores = [v.body for v in loops(done.body, ForKind.VECTOR) if isinstance(v.body, Store)]
        assert [s.buffer.name for s in stores] == (["some", "y"] if costly else ["some"])
    x, y = np.arange(8, dtype=np.float32), np.zeros(9000, np.float32)
    index = np.arange(9000) % 8
    run_prim_func(done, [x, index, y], {"n": 5, "m": 9000})
    np.testing.assert_array_equal(y, np.maximum(x * x + 1, x - 2)[index])
    index[[5000, 8999]] = 8, 11
    with pytest.raises(RuntimeIndexError, match="index 8 of 8"):
        run_prim_func(done, [x, index, y], {"n": 5, "m": 9000})
