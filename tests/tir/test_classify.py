"""Patterns follow from loads and stores, in programs written by hand as in generated ones."""

from __future__ import annotations

import pytest

from relaxir.sym import dim
from relaxir.tir import Block, Combine, PrimFunc, ProgramBuilder, Var, as_expr, const, select
from relaxir.tir.access import affine, stride
from relaxir.tir.classify import Pattern, classify, match_contraction
from relaxir.tir.visit import reads_of, walk
from tests.schedule.programs import (
    F,
    add,
    add_bias,
    add_broadcast,
    batched,
    conv,
    cumsum,
    gather,
    layer_norm,
    matmul,
    reduce,
    softmax,
    transpose,
)

N, M, K = dim("n"), dim("m"), dim("k")

CASES = [
    (add(N, M), Pattern.ELEMENTWISE),
    (add_bias(N, M), Pattern.BROADCAST),
    (add_broadcast(N, M, K), Pattern.BROADCAST),
    (transpose(N, M), Pattern.INJECTIVE),
    (gather(N, M), Pattern.INJECTIVE),
    (reduce((N, M), (0,)), Pattern.REDUCTION),
    (softmax(N, M), Pattern.REDUCTION),
    (layer_norm(2, N, 4), Pattern.REDUCTION),
    (matmul(N, K, M), Pattern.CONTRACTION),
    (batched(N, 2, K, M, transposed=True), Pattern.CONTRACTION),
    (conv(N, 3, M, M, 4, 3, 1, 1), Pattern.CONTRACTION),
    (conv(N, 4, M, M, 4, 3, 1, 1, depthwise=True), Pattern.CONTRACTION),
    (cumsum(N, M), Pattern.OPAQUE),
]


@pytest.mark.parametrize(("func", "pattern"), CASES)
def test_pattern(func: PrimFunc, pattern: Pattern) -> None:
    assert classify(func) is pattern


def contraction_axes(func: PrimFunc) -> tuple[list[str], ...]:
    found = next(match_contraction(s) for s in walk(func.body) if isinstance(s, Block))
    assert found is not None
    return tuple([v.name for v in group] for group in (found.batch, found.rows, found.columns, found.reduce))


def test_axes_of_contractions() -> None:
    assert contraction_axes(matmul(N, K, M)) == ([], ["i0"], ["i1"], ["k0"])
    assert contraction_axes(batched(N, 2, K, M, transposed=False)) == (["i0"], ["i1"], ["i2"], ["k0"])
    assert contraction_axes(conv(N, 3, M, M, 4, 3, 1, 1)) == ([], ["i0", "i2", "i3"], ["i1"], ["k0", "k1", "k2"])


def test_a_row_product_is_a_reduction() -> None:
    f = ProgramBuilder("dot")
    x, y, z = f.input("x", (N, M), F), f.input("y", (N, M), F), f.output("z", (N,), F)
    f.reduce(z, (M,), Combine.SUM, lambda i, k: x[i, k] * y[i, k])
    assert classify(f.build()) is Pattern.REDUCTION


def test_affine_forms() -> None:
    i, j, k = Var("i"), Var("j"), Var("k")
    form = affine((i * 2 + j - 1) * as_expr(N) + k, (i, j))
    assert form is not None
    assert dict(form[0]) == {i: 2 * N, j: N}
    assert affine(i * j, (i, j)) is None
    assert affine(i // const(2), (i,)) is None
    assert affine(k // const(2), (i,)) == ({}, k // const(2))
    assert affine(i - i, (i,)) == ({}, const(0))


def test_strides_follow_the_shape() -> None:
    func = transpose(N, M)
    load = reads_of(func.body)[0]
    i, j = load.indices[1], load.indices[0]
    assert isinstance(i, Var)
    assert isinstance(j, Var)
    assert stride(load, i) == 1
    assert stride(load, j) == N


def test_guarded_loads_are_injective() -> None:
    f = ProgramBuilder("odd")
    x, z = f.input("x", (N,), F), f.output("z", (N,), F)
    f.compute(z, lambda i: select(i // const(2) < const(1), x[i // const(2)], const(0.0, F)))
    assert classify(f.build()) is Pattern.INJECTIVE
