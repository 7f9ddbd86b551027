"""Frames: sizes without a value at some assignments, no overlap at any, formulas of bounded length."""

from __future__ import annotations

import random

import pytest

from relaxir.passes.layout_frame import MOST_CANDIDATES, place
from relaxir.passes.liveness import Lifetime
from relaxir.sym import DimLike, Facts, add, dim, evaluate, floordiv, mul, to_text
from relaxir.tir import Buffer


def test_sizes_that_may_divide_by_zero() -> None:
    n, m = dim("n"), dim("m")
    sizes = [mul(64, floordiv(n, m)), mul(64, n), mul(64, m)]
    lives = [Lifetime(Buffer("b", (), "float32"), 0, 2) for _ in sizes]
    assert len(place(lives, sizes, Facts((n, m))).offsets) == len(sizes)


def frame_of(count: int, symbols: int) -> tuple[list[Lifetime], list[DimLike], Facts]:
    """A chain of tensors of unlike sizes, each alive with the few around it."""
    rng = random.Random(count)
    dims = [dim(f"d{i}", min=1) for i in range(symbols)]
    lives = [Lifetime(Buffer("b", (), "float32"), i, i + rng.randrange(1, 9)) for i in range(count)]
    sizes = [
        mul(64, add(mul(rng.choice(dims), rng.choice(dims)), mul(rng.randrange(9), rng.choice(dims)))) for _ in lives
    ]
    return lives, sizes, Facts(tuple(dims))


@pytest.mark.parametrize("symbols", [1, 2, 5])
def test_no_two_tensors_alive_together_overlap_at_any_size(symbols: int) -> None:
    lives, sizes, facts = frame_of(60, symbols)
    placed = place(lives, sizes, facts)
    for at in ({d.name: 1 + (7 * i + k) % 13 for i, d in enumerate(facts.dims)} for k in range(5)):
        spans = [
            (start := evaluate(o, at), start + evaluate(s, at)) for o, s in zip(placed.offsets, sizes, strict=True)
        ]
        for i, (a, b) in enumerate(spans):
            assert 0 <= a <= b <= evaluate(placed.size, at)
            assert all(
                b <= c or d <= a for (c, d), o in zip(spans[:i], lives, strict=False) if lives[i].meets(o) and a < b
            )


def test_offsets_stay_short_in_large_frames() -> None:
    lives, sizes, facts = frame_of(100, 6)
    placed = place(lives, sizes, facts)
    assert max(to_text(o).count(", ") for o in (*placed.offsets, placed.size)) < MOST_CANDIDATES
