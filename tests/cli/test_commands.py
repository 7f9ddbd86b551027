"""Every command does what its help says."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import relaxir as rx
from relaxir.pipelines import DEFAULT
from relaxir.support import version
from relaxir.support.errors import codes
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[2]
MODULE = "@I.module\nclass Module:\n    @R.function\n    def main{}:\n        {}\n"


def test_compile_writes_a_library_and_a_header(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    library = tmp_path / "model.so"
    done = relaxir("compile", onnx_model, "-o", library, "--dim", "batch=1..8", "--threads", "1")
    assert done.exit_code == 0, done.output
    assert f"wrote {library}" in done.stdout
    assert "where  1 <= batch <= 8" in library.with_suffix(".h").read_text()
    main = rx.load(library)["main"]
    x = np.ones((2, 4), np.float32)
    y, total = main(x)
    assert total == pytest.approx(y.sum())
    with pytest.raises(rx.RelaxirError, match="at most 8"):
        main(np.ones((9, 4), np.float32))


def test_compile_names_the_library_after_the_model(relaxir: Run, tmp_path: Path) -> None:
    model = tmp_path / "m.rx"
    model.write_text(MODULE.format('(x: R.Tensor(("n",), "f32")) -> R.Tensor(("n",), "f32")', "return x"))
    assert relaxir("compile", model, "--no-cache").exit_code == 0
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.h", "m.rx", "m.so"]


def test_compile_for_another_machine(relaxir: Run, text_model: Path, tmp_path: Path) -> None:
    library = tmp_path / "arm.so"
    assert relaxir("compile", text_model, "-o", library, "--target", "aarch64").exit_code == 0
    assert library.read_bytes()[18:20] == (183).to_bytes(2, "little")  # EM_AARCH64


def test_timing_lists_every_step(relaxir: Run, text_model: Path, tmp_path: Path) -> None:
    done = relaxir("compile", text_model, "-o", tmp_path / "m.so", "--timing", "--check-each")
    assert done.exit_code == 0, done.output
    for step in (*(p.name for p in DEFAULT), "emit", "LLVM", "link", "load", "total"):
        assert step in done.stdout


def test_run_on_generated_inputs_and_save(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    saved = tmp_path / "out.npz"
    done = relaxir("run", onnx_model, "-s", "batch=3", "-o", saved)
    assert done.exit_code == 0, done.output
    assert "(3, 3)" in done.stdout
    with np.load(saved) as results:
        assert results["y"].shape == (3, 3)
        assert results["total"] == pytest.approx(results["y"].sum(), rel=1e-5)


def test_run_on_files(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(5, 4)
    np.save(tmp_path / "x.npy", x)
    np.savez(tmp_path / "x.npz", x=x)
    want = np.maximum(x @ (np.arange(12, dtype=np.float32).reshape(4, 3) / 10), 0)
    for option in (f"{tmp_path}/x.npy", f"x={tmp_path}/x.npy", f"{tmp_path}/x.npz"):
        done = relaxir("run", onnx_model, "-i", option, "-o", tmp_path / "out.npz")
        assert done.exit_code == 0, done.output
        np.testing.assert_allclose(np.load(tmp_path / "out.npz")["y"], want, rtol=1e-5, atol=1e-6)


def test_generated_inputs_fit_the_files(relaxir: Run, tmp_path: Path) -> None:
    model = tmp_path / "add.rx"
    head = '(x: R.Tensor(("n",), "f32"), y: R.Tensor(("n",), "bf16"), k: R.Tensor(("m",), "i64")) -> R.Tensor(("n",), "f32")'
    body = ('m = R.dim("m", min=4, multiple_of=3)', 'w = R.astype(y, dtype="float32")', "z = R.add(x, w)", "return z")
    model.write_text(MODULE.format(head, "\n        ".join(body)))
    np.save(tmp_path / "x.npy", np.zeros(7, np.float32))
    done = relaxir("run", model, "-i", tmp_path / "x.npy", "-o", tmp_path / "z.npy")
    assert done.exit_code == 0, done.output
    z = np.load(tmp_path / "z.npy")
    assert z.shape == (7,)
    assert np.abs(z).max() < 10  # random bfloat16 values, not their bits taken for numbers


def test_run_a_library(relaxir: Run, text_model: Path, tmp_path: Path) -> None:
    library = tmp_path / "m.so"
    assert relaxir("compile", text_model, "-o", library).exit_code == 0
    results = []
    for model in (text_model, library):
        done = relaxir("run", model, "-s", "n=3", "--seed", "5", "--threads", "1", "-o", tmp_path / "o.npy")
        assert done.exit_code == 0, done.output
        results.append(np.load(tmp_path / "o.npy"))
    np.testing.assert_array_equal(*results)


@pytest.mark.parametrize("after", ["", "FoldConstant", "fuse_ops", "Schedule", "PlanMemory"])
def test_show_prints_text_that_parses(relaxir: Run, text_model: Path, after: str) -> None:
    done = relaxir("show", text_model, *(("--after", after) if after else ()))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("# relaxir")
    assert "\x1b[" not in done.stdout
    assert "def main" in done.stdout


def test_show_all_and_in_colour(relaxir: Run, text_model: Path) -> None:
    every = relaxir("show", text_model, "--after", "all").stdout
    changed = relaxir("show", text_model, "--after", "all", "--changed").stdout
    assert every.count("# after") == len(DEFAULT.passes)
    assert 2 < changed.count("# after") < every.count("# after")
    assert "\x1b[" in relaxir("show", text_model, "--color").stdout


def test_a_narrow_terminal_breaks_no_line(relaxir: Run, text_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "20")
    shown = re.sub(r"\x1b\[[0-9;]*m", "", relaxir("show", text_model, "--color").stdout)
    assert shown == relaxir("show", text_model, "--no-color").stdout


def test_explain(relaxir: Run) -> None:
    page = relaxir("explain", "shape-mismatch").stdout
    assert page.startswith("shape-mismatch: ")
    assert page == relaxir("explain", "error[shape-mismatch]").stdout == relaxir("explain", "[SHAPE_MISMATCH]").stdout
    assert "Fix:" in page
    lines = relaxir("explain").stdout.splitlines()
    assert [line.split()[0] for line in lines] == list(codes())
    assert all(len(line.split()) > 2 for line in lines), "each with what it means"


def test_version(relaxir: Run) -> None:
    assert re.fullmatch(r"relaxir \d+\.\d+\.\d+\n", relaxir("--version").stdout)
    assert relaxir("--version").stdout.split()[1] == rx.__version__
    settings = configparser.ConfigParser()
    settings.read(ROOT / "setup.cfg")
    where = settings["metadata"]["version"]  # read from the one place, so that a copy cannot differ
    assert where == f"attr: {version.__name__}.__version__"


def test_as_a_module(text_model: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relaxir", "run", text_model, "-s", "n=2"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    assert "(2, 40)" in done.stdout
    assert not done.stderr
