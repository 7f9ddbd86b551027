"""Frames whose sizes have no value at some assignments."""

from __future__ import annotations

from relaxir.passes.layout_frame import place
from relaxir.passes.liveness import Lifetime
from relaxir.sym import Facts, dim, floordiv, mul
from relaxir.tir import Buffer


def test_sizes_that_may_divide_by_zero() -> None:
    n, m = dim("n"), dim("m")
    sizes = [mul(64, floordiv(n, m)), mul(64, n), mul(64, m)]
    lives = [Lifetime(Buffer("b", (), "float32"), 0, 2) for _ in sizes]
    assert len(place(lives, sizes, Facts((n, m))).offsets) == len(sizes)
