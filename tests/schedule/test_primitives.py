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
from relaxir.tir import Block, Combine, For, ForKind, PrimFunc, ProgramBuilder, Scope, Seq, Stmt
from relaxir.tir.visit import map_stmt, walk
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


def test_inline_drops_the_temporary() -> None:
    func = chain()
    temp = func.body.buffer  # type: ignore[attr-defined]
    done = same(func, lambda s: place.inline(s, temp))
    assert len([s for s in walk(done.body) if isinstance(s, Block)]) == 1


def test_compute_at_moves_the_producer_inside() -> None:
    func = chain()
    temp = func.body.buffer  # type: ignore[attr-defined]
    first, second = (prim.from_block(b) for b in walk(func.body) if isinstance(b, Block))
    assert isinstance(second, For)
    second = prim.split(second, "i1", 2)
    second = replace(second, var=second.var)  # type: ignore[type-var]
    seq = Seq((prim.fuse(first, "i0", "i1") if False else first, second))
    renamed = map_stmt(seq, on_stmt=lambda s: s)
    outer = renamed.stmts[1]  # type: ignore[attr-defined]
    target = replace(outer, var=type(outer.var)("row"))
    from relaxir.tir.visit import substitute_vars

    target = replace(target, body=substitute_vars(outer.body, {outer.var: target.var}))
    body = place.compute_at(Seq((first, target)), temp, "row")
    same(func, lambda s: replace(s, body=body))  # type: ignore[type-var]
    assert len([s for s in walk(body) if isinstance(s, For) and s.var.name == "i0"]) == 0


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
    shifted = replace(body, body=replace(body.body, value=y[body.var + 1]))  # type: ignore[type-var]
    with pytest.raises(ScheduleError, match="at each other's places"):
        prim.parallel(shifted, "i0")
    assert Combine.SUM in Combine
