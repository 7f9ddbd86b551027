"""Calls side by side through the real runtime: each iteration once, errors, other callers, any number of threads."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from relaxir.sym import dim
from relaxir.tir import (
    AllocOutput,
    Assert,
    BindDim,
    Buffer,
    CallKernel,
    Combine,
    Extent,
    For,
    ForKind,
    If,
    PrimFunc,
    Seq,
    Size,
    Stmt,
    Store,
    Together,
    Var,
    as_expr,
    const,
)
from tests.backends.test_host_emit import Program, host

N = dim("n")
SITES = ("runtime-index", "x has a negative element")


def vector(name: str) -> Buffer:
    return Buffer(name, (N,), "float32")


def kernel(times: int, shape: str) -> PrimFunc:
    """Adds ``times * x`` to its result, so that a part that runs twice shows."""
    k = dim("k")
    x, y = Buffer("x", (k,), "float32"), Buffer("y", (k,), "float32")
    i, r = Var("i"), Var("r")
    checked = Seq((Assert(x[i] >= 0.0, *SITES), For(r, const(times), Store(y, (i,), x[i], Combine.SUM))))
    loop: Stmt = For(i, Size(k), checked, ForKind.SERIAL if shape == "serial" else ForKind.PARALLEL)
    if shape == "arms":  # the last loop depends on the size
        j = Var("j")
        other = For(j, Size(k), Store(y, (j,), x[j] * float(times), Combine.SUM))
        loop = If(as_expr(k) > const(3), loop, other)
    return PrimFunc((x, y), loop, (k,), 1)


KERNELS = {
    "light": kernel(1, "parallel"), "heavy": kernel(3000, "parallel"), "middle": kernel(200, "parallel"),
    "serial": kernel(1000, "serial"), "arms": kernel(500, "arms"),
}  # fmt: skip
TIMES = {"light": 1, "heavy": 3000, "middle": 200, "serial": 1000, "arms": 500}


def program(names: tuple[str, ...], alone: tuple[str, ...] = (), whole: bool = False) -> Program:
    """A host program that runs some kernels together, then some alone; each has an input and a result of its own."""
    all_ = (*names, *alone)
    inputs = [vector(f"x{i}") for i in range(len(all_))]
    outputs = [vector(f"y{i}") for i in range(len(all_))]
    calls = [CallKernel(c, (x, y), (N,)) for c, x, y in zip(all_, inputs, outputs, strict=True)]
    body = [
        BindDim(N, Extent(inputs[0], 0)),
        *(AllocOutput(y, i) for i, y in enumerate(outputs)),
        Together(tuple(calls[: len(names)]), whole),
        *calls[len(names) :],
    ]
    funcs = {n: KERNELS[n] for n in all_}
    return Program({**funcs, "main": host((*inputs, *outputs), body, len(all_))})


def run(p: Program, inputs: list[np.ndarray]) -> list[np.ndarray]:
    results = [np.zeros_like(x) for x in inputs]
    answer = p.call("main", inputs, results, null=False)
    assert isinstance(answer, list), answer
    return results


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize(
    ("names", "alone"),
    [
        (("heavy", "heavy"), ()),
        (("heavy", "light", "middle"), ("heavy",)),
        (("serial", "serial"), ("serial",)),
        (("serial", "heavy", "arms", "light"), ("arms",)),
        (("middle",) * 11, ()),
    ],
)
def test_every_iteration_runs_once(names: tuple[str, ...], alone: tuple[str, ...], whole: bool) -> None:
    p = program(names, alone, whole)
    for n in (0, 1, 2, 3, 7, 64, 65, 301):
        inputs = [np.arange(n, dtype=np.float32) + i for i in range(len(names) + len(alone))]
        for threads in (1, 2, 3, 5):
            p.loaded.cdll.rx_set_threads(threads)
            for got, x, name in zip(run(p, inputs), inputs, (*names, *alone), strict=True):
                np.testing.assert_array_equal(got, x * TIMES[name])


@pytest.mark.parametrize("name", ["heavy", "light", "serial"])
@pytest.mark.parametrize("place", [0, 1])
def test_an_error_in_one_of_them(name: str, place: int) -> None:
    p = program((name, "heavy") if place == 0 else ("heavy", name))
    p.loaded.cdll.rx_set_threads(2)
    inputs = [np.ones(50, np.float32) for _ in range(2)]
    bad = [x.copy() for x in inputs]
    bad[place][37] = -1.0
    assert p.call("main", bad, [np.zeros(50, np.float32) for _ in bad], null=False) == SITES
    run(p, inputs)  # and the next call is a good one


def test_callers_at_the_same_time() -> None:
    p = program(("heavy", "serial", "middle"))
    p.loaded.cdll.rx_set_threads(2)

    def one(seed: int) -> bool:
        inputs = [np.full(40, seed + i, np.float32) for i in range(3)]
        results = run(p, inputs)
        return all(np.array_equal(y, x * TIMES[n]) for y, x, n in zip(results, inputs, ("heavy", "serial", "middle"),
                                                                      strict=True))  # fmt: skip

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(one, range(40)))
