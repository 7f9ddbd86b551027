"""A clock adds up by name, also when the work fails."""

import pytest

from relaxir.support.clock import Clock


def test_adds_up() -> None:
    clock = Clock()
    clock.add("b", 1.0)
    clock.add("a", 2.0)
    clock.add("b", 0.5)
    assert clock.seconds == {"b": 1.5, "a": 2.0}
    assert list(clock.seconds) == ["b", "a"]


def test_counts_failing_work() -> None:
    clock = Clock()
    with pytest.raises(ZeroDivisionError), clock("fail"):
        raise ZeroDivisionError
    assert clock.seconds["fail"] >= 0
