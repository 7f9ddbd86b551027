"""The watch over memory works: what reads or writes outside an array is found and named."""

from __future__ import annotations

import ctypes

import numpy as np
import pytest

from tests.ops.guarded import call_guarded
from tests.ops.isolated import failures


def touch(array: np.ndarray, offset: int, value: int | None = None) -> None:
    """Read or write a byte relative to the start of an array."""
    place = ctypes.cast(array.ctypes.data + offset, ctypes.POINTER(ctypes.c_uint8))
    if value is None:
        assert place[0] >= 0
    else:
        place[0] = value


def test_reading_behind_an_array_kills_only_the_child() -> None:
    def work(i: int) -> None:
        call_guarded(lambda outs, x: touch(x, x.nbytes if i == 1 else 0), [np.ones(5, np.float32)], [])

    assert failures(("first", "behind", "last"), work) == {"behind": "the process died: SIGSEGV"}


@pytest.mark.parametrize("offset", [-1, -200])
def test_writing_before_an_array_is_seen(offset: int) -> None:
    with pytest.raises(AssertionError, match="before result 0"):
        call_guarded(lambda outs: touch(outs[0], offset, 0), [], [np.ones(3, np.int64)])


def test_writing_an_operand_is_seen() -> None:
    with pytest.raises(AssertionError, match="operand 0 was changed"):
        call_guarded(lambda outs, x: touch(x, 0, 7), [np.ones(3, np.int64)], [])


def test_failures_carry_their_text() -> None:
    def work(i: int) -> None:
        if i:
            raise ValueError(f"item {i}")

    assert failures(("a", "b"), work) == {"b": "ValueError: item 1"}
