"""Primitives keep what a program computes, and refuse to do otherwise."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from relaxir.schedule import placement as place
from relaxir.schedule import primitives as prim
from relaxir.support.errors import ScheduleError
from relaxir.sym import dim
from relaxir.tir import Alloc, Block, Buffer, For, ForKind, PrimFunc, ProgramBuilder, Scope, Seq, Stmt, Store, Var
from relaxir.tir.visit import map_stmt, substitute_vars, walk
from tests.schedule.agree import array, run
from tests.schedule.programs import F, add, cumsum, matmul, reduce

N = dim("n")


def loops(func: PrimFunc) -> PrimFunc:
    return replace(func, body=map_stmt(func.body, on_stmt=lambda s: prim.from_block(s) if isinstance(s, Block) else s))


def same(func: PrimFunc, rewrite: Callable[[Stmt], Stmt]) -> PrimFunc:
    done = replace(func, body=rewrite(func.body))
    for n in (0, 1, 5, 8) if func.dims else (0,):
        dims = {"n": n}
        inputs = [array(b, dims, np.random.default_rng(0)) for b in func.inputs]
        np.testing.assert_allclose(run(done, inputs, dims)[0], run(func, inputs, dims)[0], rtol=1e-5, atol=1e-5)
    return done


REWRITES: dict[str, Callable[[Stmt], Stmt]] = {
    "split": lambda s: prim.split(s, "i0", 4),
    "split and peel": lambda s: prim.peel(prim.split(s, "i0", 4), "i0_inner", 4),
    "split whole": lambda s: prim.split(s, "i1", 3),
    "fuse": lambda s: prim.fuse(s, "i0", "i1"),
    "parallel": lambda s: prim.parallel(s, "i0"),
    "vectorize": lambda s: prim.vectorize(s, "i1"),
    "unroll": lambda s: prim.unroll(s, "i1"),
    "reorder": lambda s: prim.reorder(s, ["i1", "i0"]),
    "tile": lambda s: prim.vectorize(prim.parallel(prim.split(s, "i0", 2), "i0_outer"), "i1"),
}


@pytest.mark.parametrize("name", REWRITES)
def test_loops_of_a_map(name: str) -> None:
    same(loops(add(N, 6)), REWRITES[name])


def test_loops_of_a_sum() -> None:
    func = loops(reduce((N, 6), (1,)))
    same(func, lambda s: prim.vectorize(s, "k0"))
    same(func, lambda s: prim.decompose_reduction(s, "i0"))
    same(func, lambda s: prim.reorder(prim.decompose_reduction(s, "i0"), ["k0", "i0"]))
    same(func, lambda s: place.stage(s, "i0", func.results[0], Scope.REGISTER))


def test_product_by_primitives() -> None:
    func = loops(matmul(N, 4, 8, epilogue=False))

    def recipe(s: Stmt) -> Stmt:
        s = prim.decompose_reduction(s, "i1")
        s = prim.reorder(s, ["k0", "i1"])
        return prim.parallel(prim.vectorize(s, "i1"), "i0")

    done = same(func, recipe)
    assert next(s.kind for s in walk(done.body) if isinstance(s, For)) is ForKind.PARALLEL


def chain() -> PrimFunc:
    f = ProgramBuilder("chain")
    x, y, t = f.input("x", (N, 4), F), f.output("y", (N, 4), F), f.temp("t", (N, 4), F)
    f.compute(t, lambda i, j: x[i, j] * x[i, j])
    f.compute(y, lambda i, j: t[i, j] + t[i, j])
    return f.build()


def temporary(func: PrimFunc) -> Buffer:
    return next(s.buffer for s in walk(func.body) if isinstance(s, Alloc))


def test_inline_drops_the_temporary() -> None:
    func = chain()
    done = same(func, lambda s: place.inline(s, temporary(func)))
    assert len([s for s in walk(done.body) if isinstance(s, Block)]) == 1


def row_loop(block: Block) -> Stmt:
    """A stage as loops, the outer one called ``row``."""
    loop = prim.from_block(block)
    assert isinstance(loop, For)
    row = Var("row")
    return For(row, loop.extent, substitute_vars(loop.body, {loop.var: row}))


def test_compute_at_moves_the_producer_inside() -> None:
    func = chain()
    first, second = (s for s in walk(func.body) if isinstance(s, Block))
    apart = Seq((prim.from_block(first), row_loop(second)))
    merged = place.compute_at(apart, temporary(func), "row")
    same(func, lambda s: Alloc(temporary(func), merged))
    assert [s.var.name for s in walk(merged) if isinstance(s, For)] == ["row", "i1", "i1"]
    with pytest.raises(ScheduleError, match="is not made by one loop nest in front of"):
        place.compute_at(row_loop(second), temporary(func), "row")


@pytest.mark.parametrize(
    ("func", "rewrite", "message"),
    [
        (reduce((N, 6), (1,)), lambda s: prim.parallel(s, "k0"), "`k0` carries the store to `z`"),
        (add(N, 6), lambda s: prim.vectorize(s, "i0"), "`i0` contains loops"),
        (add(N, 6), lambda s: prim.unroll(s, "i0"), "the extent of `i0` is not constant"),
        (add(N, 6), lambda s: prim.split(s, "q", 2), "there is no loop `q`"),
        (add(N, 6), lambda s: prim.split(s, "i0", 0), "pieces of 0 iterations"),
        (add(N, 6), lambda s: prim.fuse(s, "i1", "i0"), "`i0` is not directly inside `i1`"),
        (cumsum(N, 6), lambda s: prim.vectorize(s, "j"), "`j` carries the store to `sum`"),
        (add(N, 6), lambda s: prim.decompose_reduction(s, "i0"), "does not begin with an initialising store"),
        (add(N, 6), lambda s: prim.peel(s, "i0", 4), "is not the smaller of 4 and a rest"),
    ],
)
def test_illegal_rewrites_say_why(func: PrimFunc, rewrite: Callable[[Stmt], Stmt], message: str) -> None:
    with pytest.raises(ScheduleError, match=message.replace("`", ".")):
        rewrite(loops(func).body)


def test_neighbours_are_a_dependence() -> None:
    f = ProgramBuilder("shift")
    x, y = f.input("x", (8,), F), f.output("y", (8,), F)
    f.compute(y, lambda i: x[i])
    body = prim.from_block(next(s for s in walk(f.build().body) if isinstance(s, Block)))
    assert isinstance(body, For)
    shifted = For(body.var, body.extent, Store(y, (body.var,), y[body.var + 1]))
    with pytest.raises(ScheduleError, match="at each other's places"):
        prim.parallel(shifted, "i0")
