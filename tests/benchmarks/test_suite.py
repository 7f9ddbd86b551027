"""The benchmark suite: its graphs are right, and it measures."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path
from types import MappingProxyType

import numpy as np
import pytest

pytest.importorskip("onnx")
pytest.importorskip("onnxruntime")

import relaxir as rx
from benchmarks import __main__ as suite
from benchmarks.graphs import decoder, encoder, mlp
from benchmarks.workloads import WORKLOADS, Workload, step, tokens
from relaxir.measure.peers import OnnxRuntime
from relaxir.measure.report import difference

SMALL = {
    "mlp": (partial(mlp, (8, 12, 8)), {"x": np.ones((3, 8), np.float32)}),
    "encoder": (partial(encoder, 1, 24, 2, 32, 50), tokens({"batch": 2, "length": 5}, 50)),
    "decoder": (partial(decoder, 1, 24, 2, 32, 50), step({"length": 3, "past": 4}, 1, 2, 12, 50)),
}


@pytest.mark.parametrize("name", SMALL)
def test_models_agree_with_onnxruntime(name: str) -> None:
    make, feeds = SMALL[name]
    model = make()
    got = rx.compile(rx.from_onnx(model), threads=1)["main"](**feeds)
    assert difference(got, OnnxRuntime(model, 1).caller(feeds)()) < 1e-4


@pytest.mark.parametrize("workload", [w for w in WORKLOADS if w.name.startswith("mem_")], ids=lambda w: w.name)
def test_what_moves_memory_agrees_with_its_peers(workload: Workload) -> None:
    model, feeds = workload.model(), workload.inputs({"n": 3})
    want = OnnxRuntime(model, 1).caller(feeds)()
    for name, call in suite.peers(workload, model, list(feeds.values())).items():
        assert difference(call(), want) < 1e-4, name


def test_quick_sizes_are_among_all() -> None:
    assert all({str(q) for q in w.quick} <= {str(p) for p in w.points} for w in WORKLOADS)
    assert len({w.name for w in WORKLOADS}) == len(WORKLOADS)


def test_the_suite_writes_a_record(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    small = Workload("tiny", partial(mlp, (8, 12, 8)), lambda s: {"x": np.ones((s["n"], 8), np.float32)}, (),
                     (MappingProxyType({"n": 2}),))  # fmt: skip
    monkeypatch.setattr(suite, "WORKLOADS", (small,))
    file = tmp_path / "b.json"
    assert suite.main(["--quick", "--rounds", "1", "--threads", "1", "--json", str(file)]) == 0
    (row,) = json.loads(file.read_text())["rows"]
    assert row["name"] == "tiny"
    assert row["peers"]["onnxruntime"]["ratio"] > 0
    assert "onnxruntime" in capsys.readouterr().out


def test_unknown_workloads_are_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        suite.main(["gem_*"])
    assert "no workload `gem_*`; there are gemm_768_768" in capsys.readouterr().err
