"""Whole fused programs keep their meaning, whatever mixture of rules schedules them."""

from __future__ import annotations

import pytest

from relaxir.sym import dim
from relaxir.tir import PrimFunc
from tests.schedule.agree import agree
from tests.schedule.fused import (
    any_true,
    argmax,
    attention,
    concat,
    group_norm,
    half_product,
    max_pool,
    norm_product,
    quantized,
    residual_block,
    scatter_add,
)

N, M, K = dim("n"), dim("m"), dim("k")

PROGRAMS: tuple[tuple[PrimFunc, tuple[str, ...]], ...] = (
    (attention(2, N, 8), ("contraction", "rows", "contraction")),
    (attention(N, 5, 8), ("contraction", "rows", "contraction")),
    (group_norm(N, 6, 2, M), ("rows",)),
    (max_pool(1, 2, N, M), ("reduction",)),
    (concat(N, M, 5), ("injective",)),
    (concat(3, N, M), ("injective",)),
    (argmax(N, M), ("fallback",)),
    (scatter_add(N, M), ("injective", "fallback")),
    (quantized(N, 9, 20), ("contraction",)),
    (half_product(N, 9, 20), ("contraction",)),
    (norm_product(N, 12, 24), ("rows", "contraction", "reduction")),
    (any_true(N, M), ("reduction",)),
    (residual_block(N, 4, 5, M), ("contraction", "reduction")),
)


@pytest.mark.parametrize(("func", "rules"), PROGRAMS, ids=[f"{f.attrs['name']}-{n}" for n, (f, _) in enumerate(PROGRAMS)])
def test_fused_program(func: PrimFunc, rules: tuple[str, ...]) -> None:
    agree(func, (0, 1, 3, 17), rules=rules)
