"""Whole fused programs keep their meaning, whatever mixture of rules schedules them."""

from __future__ import annotations

import pytest

from relaxir.schedule import schedule
from relaxir.sym import dim
from relaxir.tir import For, ForKind, PrimFunc, const
from relaxir.tir.visit import walk
from tests.schedule.agree import TARGET, agree
from tests.schedule.fused import (
    any_true,
    argmax,
    attention,
    avg_pool,
    concat,
    group_norm,
    half_product,
    max_pool,
    norm_product,
    quantized,
    residual_block,
    scaled_norm,
    scatter_add,
    two_maps,
)
from tests.schedule.programs import softmax

N, M, K = dim("n"), dim("m"), dim("k")

PROGRAMS: tuple[tuple[PrimFunc, tuple[str, ...]], ...] = (
    (attention(2, N, 8), ("contraction", "rows", "contraction")),
    (attention(N, 5, 8), ("contraction", "rows", "contraction")),
    (group_norm(N, 6, 2, M), ("rows",)),
    (max_pool(1, 2, N, M), ("reduction",)),
    (concat(N, M, 5), ("injective",)),
    (concat(3, N, M), ("injective",)),
    (argmax(N, M), ("fallback",)),
    (scatter_add(N, M), ("injective", "lanes")),
    (quantized(N, 9, 20), ("contraction",)),
    (half_product(N, 9, 20), ("contraction",)),
    (norm_product(N, 12, 24), ("rows", "contraction")),
    (any_true(N, M), ("reduction",)),
    (avg_pool(N, 3, M), ("rows",)),
    (two_maps(N, M), ("injective", "injective")),
    (scaled_norm(N, M), ("rows",)),
    (residual_block(N, 4, 5, M), ("windows", "reduction")),
)


@pytest.mark.parametrize(
    ("func", "rules"), PROGRAMS, ids=[f"{f.attrs['name']}-{n}" for n, (f, _) in enumerate(PROGRAMS)]
)
def test_fused_program(func: PrimFunc, rules: tuple[str, ...]) -> None:
    agree(func, (0, 1, 3, 17), rules=rules)


def test_vector_loops_that_hand_over_values_join() -> None:
    done = schedule(softmax(N, M), TARGET)
    assert sum(isinstance(s, For) and s.kind is ForKind.VECTOR for s in walk(done.body)) == 3


def test_a_window_keeps_its_columns_as_lanes() -> None:
    done = schedule(avg_pool(N, 3, 40), TARGET)
    extents = [s.extent for s in walk(done.body) if isinstance(s, For) and s.kind is ForKind.VECTOR]
    assert extents
    assert all(e == const(40) for e in extents)
