"""Interleaved rounds, their figures, peaks, and reports."""

from __future__ import annotations

import json
import os
import time
from math import inf
from pathlib import Path

import numpy as np
import pytest

import relaxir as rx
from relaxir.measure import Comparison, Peaks, Timing, interleave, measure_peaks
from relaxir.measure.others import Others, busy_seconds
from relaxir.measure.report import Case, Row, cells, difference, doubts, milliseconds, record, rows_table
from tests.e2e import models

PEAKS = Peaks(flops=1e11, dram=1e10, cache=5e10, threads=1, cache_bytes=1 << 20)


def test_turns_alternate() -> None:
    order: list[str] = []
    ticks: list[int] = []
    calls = {"a": lambda: order.append("a"), "b": lambda: order.append("b")}
    found = interleave(calls, rounds=3, seconds=0, tick=lambda: ticks.append(1))
    assert [x for x, y in zip(order[2:], order[1:], strict=False) if x != y] == ["a", "b"] * 3
    assert len(ticks) == 6
    assert all(len(t.rounds) == 3 and t.calls == 6 for t in found.values())


def test_a_ratio_is_the_median_of_the_rounds() -> None:
    ours = Timing(((1.0, 1.0), (2.0, 2.0), (9.0, 9.0)))
    theirs = Timing(((2.0, 2.0), (4.0, 4.0), (3.0, 3.0)))
    found = Comparison.of(ours, theirs)
    assert found.ratio == 0.5, "one disturbed round does not count"
    assert found.low <= found.ratio <= found.high
    assert (ours.median, ours.p10) == (2.0, 1.0)
    assert str(Comparison(0.5, 0.25, 1.0)) == "0.50 (0.25-1.00)"


def test_peaks_are_plausible_and_measured_once() -> None:
    peaks = measure_peaks(1)
    assert measure_peaks(1) is peaks
    assert 1e8 < peaks.flops < 1e13
    assert 1e8 < peaks.dram < 1e12
    assert 1e8 < peaks.cache < 1e13


def test_peaks_bound_work() -> None:
    assert PEAKS.seconds(10**9, 0) == pytest.approx(0.01)
    assert PEAKS.seconds(0, 10**6) == pytest.approx(10**6 / 5e10)
    assert PEAKS.seconds(0, 10**7) == pytest.approx(10**7 / 1e10)
    assert PEAKS.roof(1.0, PEAKS.dram) == 1e10
    assert PEAKS.roof(1e3, PEAKS.dram) == 1e11


def test_a_case_measures_ours_and_peers() -> None:
    exe = rx.compile(models.mlp(24, 40), threads=1)
    x = np.ones((5, 24), np.float32)
    call = exe["main"]
    row = Case("mlp", {"n": 5}, lambda: call(x), {"again": lambda: call(x)}, rx.cost(exe)).measure(2, 0)
    assert row.difference == 0
    assert row.work == (rx.cost(exe)(n=5).flops, rx.cost(exe)(n=5).bytes)
    assert row.share(PEAKS) is not None
    assert row.best == "again"


def test_costs_that_depend_on_data_are_left_out() -> None:
    exe = rx.compile(models.positive(), threads=1)
    x = np.ones(5, np.float32)
    row = Case("positive", {"n": 5}, lambda: exe["main"](x), cost=rx.cost(exe)).measure(1, 0)
    assert row.work is None
    assert row.share(PEAKS) is None
    assert row.difference is None


def test_reports() -> None:
    one, two = Timing(((1e-3,), (1e-3,))), Timing(((2e-3,), (2e-3,)))
    rows = [Row("a", {"n": 1}, one, {"peer": two}, (10**6, 10**6), 0.0), Row("b", {}, two, {}, None, None)]
    table = rows_table(rows, PEAKS)
    assert table.row_count == 3
    data = json.loads(json.dumps(record(rows, PEAKS)))
    assert data["means"] == {"peer": pytest.approx(0.5)}
    assert data["rows"][0]["peers"]["peer"]["ratio"] == pytest.approx(0.5)
    assert data["rows"][1]["flops"] is None
    assert data["versions"]["numpy"] == np.__version__
    assert data["versions"]["relaxir"] == rx.__version__
    assert data["machine"]["processors"] > 0


def test_differences_are_relative() -> None:
    a = np.array([1.0, 100.0])
    assert difference(a, [np.array([1.0, 101.0])]) == pytest.approx(1 / 101)
    assert difference((a, a), [a, a]) == 0
    assert difference(a, a[:1]) == inf


def test_figures_that_vary_are_marked() -> None:
    steady, wild = (
        Timing(tuple((t,) for t in (1.0, 1.01, 1.02, 1.0))),
        Timing(tuple((t,) for t in (1.0, 2.0, 1.1, 1.9))),
    )
    assert not steady.uncertain
    assert wild.uncertain
    assert not Timing(((1.0, 9.0),)).uncertain, "one round tells nothing of the others"
    assert not Comparison(1.0, 0.95, 1.1).uncertain
    assert Comparison(1.0, 0.85, 1.1).uncertain
    calm, rough = Row("a", {}, steady, {"p": steady}), Row("b", {}, wild, {"p": steady})
    assert not any(c.endswith("?") for c in cells(calm, PEAKS, ["p"]))
    assert sum(c.endswith("?") for c in cells(rough, PEAKS, ["p"])) == 2, "the time and the ratio"
    assert doubts([calm]) == []
    (doubt,) = doubts([calm, rough])
    assert "marked ? varies by more than 20% between rounds" in doubt
    (busy,) = doubts([Row("c", {}, steady, {}, others=1.25)])
    assert "1.2 processors busy" in busy


def test_what_others_do_is_told_from_the_counts_of_the_system(tmp_path: Path) -> None:
    cpu = min(os.sched_getaffinity(0))
    stat = tmp_path / "stat"
    stat.write_text(f"cpu 9 9 9 9 9 9 9 9\ncpu{cpu} 100 20 30 9999 7 40 5 5 0 0\ncpu99999 1 1 1 1 1 1 1 1 0 0\n")
    assert busy_seconds(stat) == 200 / os.sysconf("SC_CLK_TCK"), "idle and waiting are not busy"
    assert busy_seconds(tmp_path / "none") is None
    now = time.monotonic()
    assert Others(start=now, busy=None).processors() is None
    busy = busy_seconds()
    assert busy is not None
    found = Others(start=now - 10.0, busy=busy - 15.0, own=time.process_time() - 5.0).processors()
    assert found == pytest.approx(1.0, abs=0.1)


def test_short_times_keep_their_digits() -> None:
    assert [milliseconds(t) for t in (1.5, 1e-3, 4.567e-7)] == ["1500.000", "1.000", "0.000457"]
