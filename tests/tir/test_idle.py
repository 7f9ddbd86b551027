"""Nests of loops in which nothing happens are not entered; everything else stays as it is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.sym import evaluate
from relaxir.tir import If
from relaxir.tir.idle import happens, least, positive, without_idle_nests
from tests.e2e.test_absurd_sizes import runs
from tests.e2e.test_absurd_steps import one, var, zeros

HUGE = 1 << 42
N, M = rx.dim("n"), rx.dim("m")
op = rx.op


LOOPS = """
@I.module
class Module:
    @T.prim_func
    def f(x: T.Buffer(("n", "m"), "f32"), y: T.Buffer(("n", "m"), "f32"), z: T.Buffer(("n",), "f32")):
        n = T.dim("n")
        m = T.dim("m")
        for i in T.{kind}(n):
            top = T.alloc((), "f32", scope="register")
            top[()] = 0.0
            for j in T.serial(m):
                top[()] = T.combine("max", top[()], x[i, j])
            {after}
"""


@pytest.mark.parametrize(
    ("after", "guarded"),
    [
        ("for j in T.vector(m):\n                y[i, j] = top[()]", True),
        ("z[i] = top[()]", False),
        ('T.require(top[()] > 0.0, "runtime-failure", "small")', False),
        ("for j in T.serial(7):\n                y[i, j] = top[()]", False),
        ("for j in T.serial(7 * m):\n                y[i, j] = top[()]", True),
    ],
)
def test_what_is_guarded(after: str, guarded: bool) -> None:
    for kind in ("serial", "parallel"):
        func: Any = rx.parse(LOOPS.format(kind=kind, after=after)).functions["f"]
        changed = without_idle_nests(func.body)
        assert isinstance(changed, If) == guarded
        assert (changed is func.body) == (not guarded)


@pytest.mark.parametrize(
    ("extents", "wanted"),
    [
        ((8 * N * M,), {N, M}),
        ((rx.ceildiv(M, 16), N + 1), {M}),
        ((M // 16,), {M // 16}),
        ((-N * M,), {-N * M}),
        ((0,), {0}),
    ],
)
def test_what_must_be_positive(extents: Any, wanted: set[Any]) -> None:
    assert positive(extents) == wanted


def test_least_needs() -> None:
    n, m = frozenset({N}), frozenset({M})
    assert least([n | m, n, m, n]) == (n, m)
    assert least([n, frozenset(), m]) == (frozenset(),)
    assert [evaluate(happens((n | m,)), {"n": a, "m": b}) for a, b in ((0, 5), (5, 0), (5, 5))] == [0, 0, 1]


X = var(N, M)
EMPTY: tuple[tuple[str, Any, tuple[int, ...], tuple[int, ...]], ...] = (
    ("add", lambda x: op.add(x, op.sum(x, axes=(0,))), (HUGE, 0), (HUGE, 0)),
    ("concat", lambda x: op.concat([x, x], axis=1), (HUGE, 0), (HUGE, 0)),
    ("permute", lambda x: op.permute_dims(x, (1, 0)), (HUGE, 0), (0, HUGE)),
    ("cumsum", lambda x: op.cumsum(x, axis=1), (HUGE, 0), (HUGE, 0)),
    ("softmax of columns", lambda x: op.softmax(x, axis=0), (HUGE, 0), (HUGE, 0)),
    ("sum", op.sum, (HUGE, 0), ()),
    ("take", lambda x: op.take(x, rx.const(np.array([1, 0])), axis=0), (HUGE, 0), (2, 0)),
)


@pytest.mark.parametrize(("build", "given", "result"), [c[1:] for c in EMPTY], ids=[c[0] for c in EMPTY])
def test_nothing_costs_nothing(build: Any, given: tuple[int, ...], result: tuple[int, ...]) -> None:
    for run in runs(one(X, build(X))):
        found: Any = run(zeros(*given))
        assert found.shape == result


@pytest.mark.parametrize(
    ("build", "result"),
    [
        (lambda x: op.softmax(x, axis=0), (0, HUGE)),
        (lambda x: op.sort(x, axis=0), (0, HUGE)),
        (lambda x: op.sum(op.sort(x, axis=0)), ()),
    ],
)
def test_temporaries_of_idle_kernels_take_nothing(build: Any, result: tuple[int, ...]) -> None:
    """NumPy, which the first of the runs uses, makes the maxima of columns."""
    for run in runs(one(X, build(X)))[1:]:
        found: Any = run(zeros(0, HUGE))
        assert found.shape == result
