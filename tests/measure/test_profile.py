"""Profiling builds note every kernel call, and profiles show them."""

from __future__ import annotations

import io
import json
import threading
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

import relaxir as rx
from relaxir.measure import Peaks, Profile, write_trace
from relaxir.measure.report import profile_table
from relaxir.runtime.executable import Executable
from tests.e2e import models

PEAKS = Peaks(flops=1e11, dram=1e10, cache=5e10, threads=1, cache_bytes=1 << 20)


@pytest.fixture(scope="module")
def exe() -> Executable:
    return rx.compile(models.mlp(24, 40), threads=1, profile=True)


@pytest.fixture(scope="module")
def found(exe: Executable) -> Profile:
    return rx.profile(exe, [np.ones((300, 24), np.float32)], repeat=5, peaks=PEAKS)


def test_every_call_of_every_kernel_is_there(exe: Executable, found: Profile) -> None:
    cost = rx.cost(exe)(n=300)
    assert {k.kernel: (k.calls, k.flops, k.bytes) for k in found.kernels} == {
        k.kernel: (k.calls, k.work.flops, k.work.bytes) for k in cost.kernels
    }
    assert len(found.spans) == 5
    assert len(found.events) == 5 * sum(k.calls for k in cost.kernels)
    for event in found.events:
        assert any(begin <= event.begin <= event.end <= end for begin, end in found.spans)
        assert event.sizes == (300,)
    assert 0 <= found.outside <= found.seconds
    for k in found.kernels:
        assert k.flop_rate == pytest.approx(k.flops / k.seconds)
        assert k.share(PEAKS) > 0


def test_results_are_the_same_with_and_without(exe: Executable) -> None:
    x = np.random.default_rng(0).standard_normal((7, 24)).astype(np.float32)
    assert np.array_equal(exe["main"](x), rx.compile(models.mlp(24, 40), threads=1)["main"](x))


def test_the_table_names_kernels_and_peaks(found: Profile) -> None:
    out = io.StringIO()
    Console(width=120, file=out).print(profile_table(found))
    for text in (out.getvalue(), str(found)):
        assert all(k.kernel[:20] in text for k in found.kernels)
        assert "outside kernels" in text
        assert "100 GFLOP/s" in text


def test_traces_are_what_viewers_read(found: Profile, tmp_path: Path) -> None:
    write_trace(found, tmp_path / "t.json")
    events = json.loads((tmp_path / "t.json").read_text())["traceEvents"]
    complete = [e for e in events if e["ph"] == "X"]
    assert len(complete) == len(found.spans) + len(found.events)
    assert all(e["dur"] >= 0 and {"name", "ts", "pid", "tid"} <= e.keys() for e in complete)
    kernel = next(e for e in complete if e["name"] == found.kernels[0].kernel)
    assert kernel["args"]["sizes"] == {"n": 300}


def test_sizes_from_data_are_those_of_the_call() -> None:
    exe = rx.compile(models.positive(), threads=1, profile=True)
    x = np.array([1.0, -1.0, 2.0, 3.0], np.float32)
    found = rx.profile(exe, [x], repeat=2, peaks=PEAKS)
    assert {4} < {s for e in found.events for s in e.sizes}
    assert 3 in {s for e in found.events for s in e.sizes}


def test_a_library_can_be_profiled(exe: Executable, tmp_path: Path, found: Profile) -> None:
    again = rx.load(exe.export(tmp_path / "m.so"))
    same = rx.profile(again, {"x": np.ones((300, 24), np.float32)}, repeat=2, peaks=PEAKS)
    assert {(k.kernel, k.calls, k.flops) for k in same.kernels} == {(k.kernel, k.calls, k.flops) for k in found.kernels}


def test_events_without_room_are_counted_not_written(exe: Executable) -> None:
    x = np.ones((3, 24), np.float32)
    with exe.recorder(1) as recorder:
        exe["main"](x)
        small = recorder.words
    need = recorder.asked
    assert need > 0
    if small < need:
        assert not list(recorder.events())
    exe["main"](x)
    assert recorder.asked == need, "what runs outside the block is not noted"


def test_threads_are_noted_side_by_side(exe: Executable) -> None:
    x = np.ones((3, 24), np.float32)
    with exe.recorder(1) as probe:
        exe["main"](x)
    with exe.recorder(40 * probe.asked) as recorder:
        threads = [threading.Thread(target=lambda: [exe["main"](x) for _ in range(10)]) for _ in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    events = list(recorder.events())
    assert len(events) == 40 * len(exe.facts.places or ())
    assert all(0 < e.end - e.begin < 10**9 for e in events)


def test_other_builds_note_nothing() -> None:
    plain = rx.compile(models.mlp(), threads=1)
    with pytest.raises(rx.RelaxirError, match="notes no times") as caught:
        rx.profile(plain, [np.ones((3, 24), np.float32)])
    assert "profile=True" in str(caught.value)


def test_a_module_without_kernels() -> None:
    text = '@I.module\nclass Module:\n    @R.function\n    def main(x: R.Tensor(("n",), "f32")) -> R.Tensor(("n",), "f32"):\n        return x\n'
    exe = rx.compile(rx.parse(text), threads=1, profile=True)
    found = rx.profile(exe, [np.ones(3, np.float32)], repeat=2, peaks=PEAKS)
    assert found.kernels == ()
    assert found.outside == found.seconds
