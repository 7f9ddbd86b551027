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
from relaxir.ir import TensorType, Var
from relaxir.sym import SymError
from tests.building import dataflow
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


@pytest.mark.parametrize("command", ["compile", "run", "bench", "show", "check"])
@pytest.mark.parametrize("option", ["--dim", "-s"])
def test_names_that_the_model_does_not_have(relaxir: Run, onnx_model: Path, command: str, option: str) -> None:
    for value in ("nope=3", "nope=1..2"):
        block = fails(relaxir, command, onnx_model, option, value)
        assert "argument-name" in block
        assert "no dimension `nope`" in block
        assert "have batch" in block or "it has batch" in block


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["-d", "k=3"], "no dimension `k`"),
        (["-d", "n=0"], "--dim n=1"),
        (["-d", "n=99999999999999"], "outside of what is declared: 1 <= n"),
        (["-d", f"n={2**61}"], "argument-extent"),
        (["-f", "other"], "no function `other`"),
        (["-o", "/no/such/folder/o.npz"], "no folder `/no/such/folder`"),
        (["--trace", "/proc/t.json"], "`/proc/t.json`"),
        (["-d", "n=1..2"], "only dimensions of ONNX models can be fixed or given a range"),
        (["-i", "missing.npy"], "cannot read"),
        (["-i", "missing=missing.npy"], "no argument `missing`"),
        (["-i", "x="], "no file is named"),
        (["-i", ""], "no file is named"),
    ],
)
def test_bad_runs(relaxir: Run, text_model: Path, args: list[str], words: str) -> None:
    assert words in fails(relaxir, "run", text_model, *args)


def test_bad_inputs(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    good, wide, extra = tmp_path / "good.npy", tmp_path / "wide.npy", tmp_path / "extra.npz"
    np.save(good, np.zeros((2, 4), np.float32))
    np.save(wide, np.zeros((2, 5), np.float32))
    np.savez(extra, nope=np.zeros(1))
    nothing = tmp_path / "nothing.npz"
    np.savez(nothing)
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
        ([empty], "neither a .npy nor a .npz"),
        ([nothing], "no array is in it"),
        ([onnx_model], "neither a .npy nor a .npz"),
    ):
        for command in ("run", "check"):
            assert words in fails(relaxir, command, onnx_model, *(o for f in files for o in ("-i", f)))
    for command in ("run", "check", "bench"):
        block = fails(relaxir, command, onnx_model, "-i", good, "-d", "batch=3")
        assert "`batch` is 3 by --dim, and 2 in a file of --input" in block
        assert relaxir(command, onnx_model, "-d", "x:1=4").exit_code == 0
        assert "axis 1 of input `x` is 4 in the model, and 5 is asked for" in fails(
            relaxir, command, onnx_model, "-d", "x:1=5"
        )


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (["--target", "pentium"], "target-unknown"),
        (["--target", "wasm32"], "target-features"),
        (["--target", "x86_64-pc-windows-msvc"], "target-features"),
        (["--target", "aarch64-apple-darwin"], "target-features"),
        (["-d", "n=3"], "only dimensions of ONNX models"),
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


@pytest.mark.parametrize("folder", ["m.so", "m.h"])
def test_folders_in_the_place_of_files(relaxir: Run, text_model: Path, tmp_path: Path, folder: str) -> None:
    (tmp_path / folder).mkdir()
    assert "a folder stands there" in fails(relaxir, "compile", text_model, "-o", tmp_path / "m.so")
    assert [p.name for p in tmp_path.iterdir()] == [folder], "nor is the other file written"


def test_results_over_constants(relaxir: Run, text_model: Path) -> None:
    constants = text_model.with_suffix(".npz")
    before = constants.read_bytes()
    assert "the constants of" in fails(relaxir, "run", text_model, "-o", constants)
    assert constants.read_bytes() == before


def test_several_results_for_a_file_of_one(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    assert "there are 2 results" in fails(relaxir, "run", onnx_model, "-o", tmp_path / "out.npy")
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


def test_what_this_user_may_not_touch(
    relaxir: Run, text_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Found out before any work, also where the tests run as a user who may do anything."""
    monkeypatch.setattr("os.access", lambda _, mode: mode != os.W_OK)
    for command, option, name in (
        ("compile", "-o", "m.so"),
        ("run", "-o", "x.npz"),
        ("run", "--trace", "t.json"),
        ("bench", "--json", "f.json"),
    ):
        assert "cannot be written" in fails(relaxir, command, text_model, option, tmp_path / name)
    monkeypatch.setattr("os.access", lambda _, mode: mode != os.R_OK)
    for command in ("compile", "run", "bench", "show", "check"):
        assert "cannot be read" in fails(relaxir, command, text_model)
    assert not list(tmp_path.iterdir())


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
    ("words", "line"),
    [
        ("run", "Missing argument"),
        ("nonsense", "No such command"),
        ("--nonsense", "No such option"),
        ("run {m} --inptu a", "No such option"),
        ("run {m} {m}", "unexpected extra argument"),
        ("run {m} --seed x", "'--seed'"),
        ("run {m} --seed -1", "'--seed'"),
        ("run {m} --threads 0", "'--threads'"),
        ("run {m} -d n", "`n` is no size of a dimension; write NAME=8"),
        ("run {m} -d n=", "no size of a dimension"),
        ("run {m} -d =3", "no size of a dimension"),
        ("run {m} -s n=-1", "a size is at least 0, not -1"),
        ("run {m} -d n=1.5", "a whole number, not `1.5`"),
        ("run {m} -d n=٣", "a whole number"),
        ("run {m} -d n=1..x", "a whole number, not `x`"),
        ("run {m} -d n=..4", "a size is missing"),
        ("run {m} -d n=99999999999999999999", "does not fit 64 bits"),
        ("run {m} -d n=1 -d n=2", "`n` is given twice"),
        ("run {m} -d n=1 -s n=2", "`n` is given twice"),
        ("run {m} -d n=1,2", "this command takes one"),
        ("compile {m} -d n=1,2", "this command takes one"),
        ("compile {m} -d n=1 -d n=1..2", "given twice"),
        ("bench {m} -d n=1,,2", "a size is missing"),
        ("bench {m} -d n=8..2", "no size lies between 8 and 2"),
        ("bench {m} --rounds 0", "'--rounds'"),
        ("bench {m} --against nothing", "'--against'"),
        ("bench {m} --json out.txt", "must end in .json"),
        ("check {m} --rtol nan", "no number of at least 0"),
        ("check {m} --rtol inf", "no number of at least 0"),
        ("check {m} --rtol -1", "no number of at least 0"),
        ("check {m} --rtol x", "not a valid float"),
        ("show {m} --changed", "--after all"),
        ("run {m} -o out.txt", "must end in .npz or .npy"),
        ("run {m} --trace out.txt", "must end in .json"),
        ("run {m} --roofline out.gif", "must end in .png or .svg or .html"),
        ("compile {m} -o {m}", "must end in .so"),
        ("compile {m} -o model.h", "must end in .so"),
        ("compile {m} -o weights.npz", "must end in .so"),
        ("compile {m} -o .", "must end in .so"),
    ],
)
def test_what_is_not_written_as_the_help_says(relaxir: Run, text_model: Path, words: str, line: str) -> None:
    """Usage, where to find help, and one line: status 2, whatever the files hold."""
    done = relaxir(*words.format(m=text_model).split())
    assert done.exit_code == 2, done.output
    *usage, last = done.stderr.splitlines()
    assert usage[0].startswith("Usage: relaxir")
    assert last.startswith("Error: ")
    assert line in last


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


@pytest.mark.parametrize("command", ["run", "check", "bench"])
def test_sizes_that_a_model_cannot_take_are_told(relaxir: Run, tmp_path: Path, command: str) -> None:
    """The model was exported for pairs alone; nothing in its inputs' shapes says so."""
    x = Var("x", TensorType((rx.dim("n"), 4), "float32"))
    path = tmp_path / "pairs.rx"
    dataflow(lambda emit, x: emit(rx.op.reshape(x, (2, 4))), x).save(path)
    result = relaxir(command, path, "-d", "n=3")
    assert result.exit_code == 1
    assert "the sizes were n=3" in result.output
    assert "with --dim or by the files of --input" in result.output
    assert relaxir(command, path, "-d", "n=2").exit_code == 0
