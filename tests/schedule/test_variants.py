"""Variants of a contraction: known extents decide when the kernel is built, others when it runs."""

from __future__ import annotations

import pytest

from relaxir.cost import TargetInfo
from relaxir.schedule import schedule
from relaxir.schedule.variants import Range
from relaxir.sym import DimLike, dim
from relaxir.tir import Alloc, Combine, If, PrimFunc, ProgramBuilder
from relaxir.tir.visit import walk

K = dim("k")


def product(m: DimLike, n: DimLike, transposed: bool) -> PrimFunc:
    f = ProgramBuilder("product")
    a = f.input("a", (m, K), "float32")
    b = f.input("b", (n, K) if transposed else (K, n), "float32")
    f.reduce(
        f.output("c", (m, n), "float32"),
        [K],
        Combine.SUM,
        lambda i, j, k: a[i, k] * (b[j, k] if transposed else b[k, j]),
    )
    return schedule(f.build(), TargetInfo())


def buffers(func: PrimFunc) -> set[str]:
    inside = {s.buffer.name for s in walk(func.body) if isinstance(s, Alloc)}
    return (inside | {b.name for b in func.params}) & {"turned_rows", "turned_columns", "sums"}


@pytest.mark.parametrize(
    ("m", "n", "transposed", "expected"),
    [
        (1, 512, False, {"sums"}),
        (64, 512, False, {"turned_rows"}),
        (64, 512, True, {"turned_rows", "turned_columns"}),
        (64, 100, False, set()),
        (4, 512, False, set()),
        (dim("m"), 512, False, {"sums", "turned_rows"}),
    ],
)
def test_which_variants_exist(m: DimLike, n: DimLike, transposed: bool, expected: set[str]) -> None:
    assert buffers(product(m, n, transposed)) == expected


def test_known_extents_leave_no_choice() -> None:
    assert not any(isinstance(s, If) and "k" not in str(s.cond) for s in walk(product(64, 512, True).body))


def test_a_range_is_known_when_its_extent_is() -> None:
    assert Range(16, low=16).known is True
    assert Range(15, low=16).known is False
    assert Range(3, high=2).known is False
    assert Range(K, high=2).known is None
