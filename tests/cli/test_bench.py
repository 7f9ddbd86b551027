"""Measuring on the command line: bench, run --profile, compile --profile."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from relaxir.measure import Peaks
from tests.cli.conftest import Run

PEAKS = Peaks(flops=1e11, dram=1e10, cache=5e10, threads=1, cache_bytes=1 << 20)


@pytest.fixture(autouse=True)
def _known_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    """Peaks are measured in a test of their own, turns are as short as can be."""
    for module in ("relaxir.cli.bench", "relaxir.measure.profiles"):
        monkeypatch.setattr(f"{module}.measure_peaks", lambda threads: PEAKS)
    monkeypatch.setattr("relaxir.cli.bench.SECONDS", 0.0)


def test_bench_measures_every_combination(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    file = tmp_path / "b.json"
    done = relaxir("bench", onnx_model, "--dim", "batch=1,8", "--rounds", "2", "--threads", "1", "--json", file)
    assert done.exit_code == 0, done.output
    assert "batch=1" in done.stdout
    assert "batch=8" in done.stdout
    assert "100 GFLOP/s" in done.stdout
    data = json.loads(file.read_text())
    assert [r["sizes"] for r in data["rows"]] == [{"batch": 1}, {"batch": 8}]
    assert data["rows"][1]["flops"] == 8 * (2 * 4 * 3) + 8 * 3 * 2
    assert all(r["median"] > 0 and r["peers"] == {} for r in data["rows"])


def test_bench_against_onnxruntime(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("onnxruntime")
    file = tmp_path / "b.json"
    options = ("--dim", "batch=3", "--rounds", "2", "--threads", "1", "--against", "onnxruntime", "--json", file)
    done = relaxir("bench", onnx_model, *options)
    assert done.exit_code == 0, done.output
    (row,) = json.loads(file.read_text())["rows"]
    peer = row["peers"]["onnxruntime"]
    assert peer["interval"][0] <= peer["ratio"] <= peer["interval"][1]
    assert row["difference"] < 1e-5


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--dim", "rows=1"), "no dimension `rows`"),
        (("--dim", "rows=1..2"), "no dimension `rows`"),
        (("--dim", "batch=1..2", "--dim", "batch=3"), "outside of what is declared: 1 <= batch <= 2"),
        (("--json", "nowhere/out.json"), "no folder `nowhere`"),
        (("--function", "other"), "no function `other`"),
    ],
)
def test_mistakes_are_named(relaxir: Run, onnx_model: Path, options: tuple[str, ...], message: str) -> None:
    done = relaxir("bench", onnx_model, *options)
    assert done.exit_code == 1
    assert message in done.stderr


def test_what_bench_prints(relaxir: Run, onnx_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("onnxruntime")
    monkeypatch.setattr("relaxir.measure.report.Others.processors", lambda _: 1.5)
    done = relaxir("bench", onnx_model, "--rounds", "2", "--threads", "1", "--against", "onnxruntime")
    assert done.exit_code == 0, done.output
    for column in ("ms", "p10", "GFLOP/s", "GB/s", "of peak", "onnxruntime: ms, ratio (95 %)"):
        assert column in done.stdout
    assert "note: other programs kept up to 1.5 processors busy" in done.stdout
    monkeypatch.setattr("relaxir.measure.report.Others.processors", lambda _: 0.0)
    assert "other programs" not in relaxir("bench", onnx_model, "--rounds", "2", "--threads", "1").stdout


def test_peers_read_onnx_only(relaxir: Run, text_model: Path) -> None:
    done = relaxir("bench", text_model, "--against", "onnxruntime")
    assert done.exit_code == 1
    assert "needs an ONNX model" in done.stderr


@pytest.mark.parametrize(
    ("package", "module", "options", "extra"),
    [
        ("onnxruntime", "peers", ("bench", "--against", "onnxruntime"), "bench"),
        ("matplotlib", "roofline", ("run", "--roofline", "r.png"), "plot"),
    ],
)
def test_missing_extras_are_named(
    relaxir: Run, onnx_model: Path, monkeypatch: pytest.MonkeyPatch, package: str, module: str,
    options: tuple[str, ...], extra: str,
) -> None:  # fmt: skip
    for name in [n for n in sys.modules if n.partition(".")[0] == package]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"relaxir.measure.{module}", raising=False)
    done = relaxir(*options[:1], onnx_model, *options[1:])
    assert done.exit_code == 1
    assert f"needs the package `{package}`" in done.stderr
    assert f'pip install "relaxir[{extra}]"' in done.stderr


def test_run_with_a_profile(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    trace = tmp_path / "t.json"
    done = relaxir("run", onnx_model, "-s", "batch=3", "--profile", "--trace", trace)
    assert done.exit_code == 0, done.output
    assert "outside kernels" in done.stdout
    assert json.loads(trace.read_text())["traceEvents"]


def test_a_library_built_for_profiling(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    for name, options in (("p.so", ("--profile",)), ("q.so", ())):
        assert relaxir("compile", onnx_model, "-o", tmp_path / name, *options).exit_code == 0
    done = relaxir("run", tmp_path / "p.so", "-s", "batch=3", "--profile")
    assert done.exit_code == 0, done.output
    assert "outside kernels" in done.stdout
    refused = relaxir("run", tmp_path / "q.so", "-s", "batch=3", "--profile")
    assert refused.exit_code == 1
    assert not refused.stdout, "found out before it runs"
    assert "notes no times" in refused.stderr
    assert "--profile" in refused.stderr


def test_rooflines(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    picture = tmp_path / "r.png"
    done = relaxir("run", onnx_model, "-s", "batch=3", "--roofline", picture)
    assert done.exit_code == 0, done.output
    assert picture.read_bytes().startswith(b"\x89PNG")


def test_timing_tells_import_export_and_the_cache(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    done = relaxir("compile", onnx_model, "-o", tmp_path / "m.so", "--timing")
    assert done.exit_code == 0, done.output
    assert "import" in done.stdout
    assert "export" in done.stdout
    assert "objects from the cache" in done.stdout
    uncached = relaxir("compile", onnx_model, "-o", tmp_path / "m.so", "--timing", "--no-cache")
    assert "no object cache" in uncached.stdout
