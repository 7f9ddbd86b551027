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


def test_inner_parts_count_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """The time of a part inside another is the inner one's alone."""
    ticks = iter((0.0, 1.0, 4.0, 10.0))
    monkeypatch.setattr("relaxir.support.clock.time.perf_counter", lambda: next(ticks))
    clock = Clock()
    with clock("outer"), clock("inner"):
        pass
    assert clock.seconds == {"inner": 3.0, "outer": 7.0}
