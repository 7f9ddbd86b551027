"""Whatever is wrong, the user sees one block on standard error and status 1, and no file is damaged."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import relaxir as rx
from relaxir.cli.failures import as_error
from relaxir.cli.inputs import parse_dims, symbol
from relaxir.sym import SymError
from tests.cli.conftest import Run

ROOT = Path(__file__).resolve().parents[2]


def fails(relaxir: Run, *args: object) -> str:
    """Run a command that must fail; return its block."""
    done = relaxir(*args)
    assert done.exit_code == 1, done.output
    assert done.stderr.startswith(("error[", "internal error: ")), done.output
    return done.stderr


@pytest.mark.parametrize("command", ["compile", "run", "show", "check"])
@pytest.mark.parametrize(
    ("name", "content", "words"),
    [
        ("missing.onnx", None, ["load-path", "no file", "missing.onnx"]),
        ("folder.onnx", "", ["load-path", "is a folder"]),
        ("empty.onnx", b"", ["load-malformed", "empty.onnx"]),
        ("damaged.onnx", b"\xff\xfe damaged", ["load-malformed", "damaged.onnx"]),
        ("binary.rx", b"\xff\xfe\x00", ["load-malformed", "not text"]),
        ("wrong.rx", b"def main(:\n", ["parse-syntax", "wrong.rx:1"]),
        ("model.py", b"x = 1\n", ["load-malformed", ".onnx", ".rx"]),
    ],
)
def test_bad_models(
    relaxir: Run, tmp_path: Path, command: str, name: str, content: bytes | None, words: list[str]
) -> None:
    path = tmp_path / name
    if content == "":
        path.mkdir()
    elif content is not None:
        path.write_bytes(content)
    block = fails(relaxir, command, path)
    assert all(w in block for w in words), block


@pytest.mark.parametrize(
    ("option", "words"),
    [
        ("batch", "expected NAME=MIN..MAX"),
        ("batch=", "expected NAME=MIN..MAX"),
        ("=3", "expected NAME=MIN..MAX"),
        ("batch=a..b", "expected NAME=MIN..MAX"),
        ("batch=-1", "expected NAME=MIN..MAX"),
        ("batch=8..2", "batch"),
        ("nope=3", "no dimension `nope`"),
    ],
)
def test_bad_dims(relaxir: Run, onnx_model: Path, option: str, words: str) -> None:
    assert words in fails(relaxir, "show", onnx_model, "--dim", option)


def test_dims() -> None:
    dims = parse_dims(["batch=1..64", "seq len=2..", "k=8"])
    batch, seq = dims["batch"], dims["seq len"]
    assert (batch.min, batch.max, batch.name) == (1, 64, "batch")
    assert (seq.min, seq.max, seq.name) == (2, None, "seq_len")
    assert dims["k"] == 8
    assert symbol("3d") == "d3d"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-s", "n"], "expected NAME=N"),
        (["-s", "n=x"], "expected NAME=N"),
        (["-s", "k=3"], "no symbol `k`"),
        (["-s", "n=0"], "at least 1"),
        (["-s", "n=99999999999999"], "runtime-allocation"),
        (["-f", "other"], "no function `other`"),
        (["-o", "results.txt"], ".npz"),
        (["-o", "/no/such/folder/o.npz"], "load-path"),
        (["--trace", "/proc/t.json"], "`/proc/t.json`"),
        (["--dim", "n=1..2"], "--dim is for ONNX"),
        (["-i", "missing.npy"], "cannot read"),
    ],
)
def test_bad_runs(relaxir: Run, text_model: Path, args: list[str], words: str) -> None:
    assert words in fails(relaxir, "run", text_model, *args)


@pytest.mark.parametrize("value", ["nan", "-1"])
def test_tolerance_must_be_a_number(relaxir: Run, text_model: Path, value: str) -> None:
    assert "--rtol" in fails(relaxir, "check", text_model, "--rtol", value)


def test_bad_inputs(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    good, wide, extra = tmp_path / "good.npy", tmp_path / "wide.npy", tmp_path / "extra.npz"
    np.save(good, np.zeros((2, 4), np.float32))
    np.save(wide, np.zeros((2, 5), np.float32))
    np.savez(extra, nope=np.zeros(1))
    objects, cut, empty = tmp_path / "objects.npy", tmp_path / "cut.npy", tmp_path / "empty.npy"
    np.save(objects, np.array([{}], object), allow_pickle=True)
    cut.write_bytes(good.read_bytes()[:-8])
    empty.write_bytes(b"")
    for files, words in (
        ([good, good], "all 1 inputs have a file"),
        ([good, f"x={good}"], "given twice"),
        ([wide], "got 5"),
        ([extra], "no argument `nope`"),
        ([objects], "cannot read"),
        ([cut], "cannot read"),
        ([empty], "cannot read"),
        ([onnx_model], "cannot read"),
    ):
        for command in ("run", "check"):
            assert words in fails(relaxir, command, onnx_model, *(o for f in files for o in ("-i", f)))


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--target", "pentium"], "target-unknown"),
        (["--target", "wasm32"], "target-features"),
        (["-o", "{model}"], "cannot end in .rx"),
        (["-o", "{folder}/model.h"], "cannot end in .h"),
        (["-o", "{folder}"], "a folder stands there"),
        (["-o", "{folder}/no/model.so"], "no folder"),
        (["-o", "/proc/model.so"], "cannot write"),
    ],
)
def test_bad_compilations(relaxir: Run, text_model: Path, tmp_path: Path, args: list[str], words: str) -> None:
    before = text_model.read_bytes()
    block = fails(relaxir, "compile", text_model, *(a.format(model=text_model, folder=tmp_path) for a in args))
    assert words in block
    assert text_model.read_bytes() == before
    assert not list(tmp_path.iterdir())


def test_a_library_is_no_model(relaxir: Run, tmp_path: Path) -> None:
    path = tmp_path / "m.so"
    path.write_bytes(b"\x7fELF")
    assert "is compiled" in fails(relaxir, "compile", path)
    assert "not a relaxir library" in fails(relaxir, "run", path)


def test_unknown_names(relaxir: Run, text_model: Path) -> None:
    assert "pass-unknown" in fails(relaxir, "show", text_model, "--after", "Nope")
    assert "no error code" in fails(relaxir, "explain", "nope")
    assert "no function" in fails(relaxir, "check", text_model, "-f", "nope")
    assert relaxir("compile", text_model, "--threads", "0").exit_code == 2  # click's own: wrong usage


def test_interrupts_and_bugs(relaxir: Run, text_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    def bug(*_: object) -> None:
        raise ZeroDivisionError("oops")

    monkeypatch.setattr("relaxir.cli.commands.stage_text", interrupt)
    done = relaxir("show", text_model)
    assert (done.exit_code, done.stderr) == (1, "interrupted\n")
    monkeypatch.setattr("relaxir.cli.commands.stage_text", bug)
    assert "internal error: ZeroDivisionError: oops" in fails(relaxir, "show", text_model)
    assert as_error(SymError("bad")).code == "dimension"
    assert as_error(MemoryError()).code == "runtime-allocation"


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_unwritable_folder(relaxir: Run, text_model: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o500)
    assert "cannot write" in fails(relaxir, "compile", text_model, "-o", tmp_path / "m.so")


def test_a_failed_process_writes_to_stderr_only(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "relaxir", "show", tmp_path / "no.rx"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error[load-path]: no file")


@pytest.mark.parametrize(
    "words", [["run"], ["nonsense"], ["run", "model.rx", "--inptu", "a"], ["check", "--seed", "x"]]
)
def test_what_is_not_written_as_the_help_says(relaxir: Run, words: list[str]) -> None:
    done = relaxir(*words)
    assert done.exit_code == 2
    assert "Usage:" in done.stderr
    assert "status" in relaxir("--help").stdout


@pytest.mark.parametrize(
    ("array", "code", "words"),
    [
        (np.ones((2, 3)), "argument-dtype", "float64, expected float32"),
        (np.ones((2, 3, 1), np.float32), "argument-rank", "rank 3, expected rank 2"),
        (np.ones((2, 4), np.float32), "runtime-shape", "got 4, expected 3"),
        (np.array(["a"]), "argument-dtype", "expected float32"),
        (np.array([{}], object), "load-malformed", "Object arrays"),
    ],
)
def test_arrays_that_do_not_fit(relaxir: Run, tmp_path: Path, array: np.ndarray, code: str, words: str) -> None:
    x = rx.Var("x", rx.TensorType((rx.dim("n"), 3), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(rx.op.exp(x)))
    bb.get().save(tmp_path / "m.rx")
    np.save(tmp_path / "x.npy", array)
    block = fails(relaxir, "run", tmp_path / "m.rx", "-i", tmp_path / "x.npy")
    assert f"error[{code}]" in block
    assert words in block
