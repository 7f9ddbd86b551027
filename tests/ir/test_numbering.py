"""Equal constants have one number, whatever their samples say."""

from __future__ import annotations

import numpy as np
import pytest

from relaxir.ir import const
from relaxir.ir.numbering import SAMPLES, ConstantNumbers


def test_equal_values_share_a_number() -> None:
    number = ConstantNumbers()
    first, again = const(np.arange(1000.0)), const(np.arange(1000.0))
    assert number(first) == number(again) == number(first) == 0
    assert number.items == [first]


@pytest.mark.parametrize("size", [0, 1, SAMPLES, 10 * SAMPLES + 3])
def test_every_element_counts(size: int) -> None:
    number = ConstantNumbers()
    base = np.zeros(size, np.float32)
    assert number(const(base)) == 0
    for count, i in enumerate(range(0, size, max(1, size // 20)), 1):
        other = base.copy()
        other[i] = -0.0  # equal, but not the same bits
        assert number(const(other)) == count


def test_dtypes_and_shapes_are_told_apart() -> None:
    number = ConstantNumbers()
    data = np.zeros((2, 6), np.float32)
    found = [number(const(d)) for d in (data, data.reshape(3, 4), data.view(np.int32), data.astype(np.int64), data)]
    assert found == [0, 1, 2, 3, 0]


def test_values_that_are_no_numbers_are_compared_bit_for_bit() -> None:
    number = ConstantNumbers()
    assert number(const(np.array([np.nan]))) == number(const(np.array([np.nan])))
