"""Compiled code against the interpreter: shapes, control flow, data-dependent sizes, errors, threads, libraries."""

from __future__ import annotations

import gc
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest

import relaxir as rx
from relaxir.passes import PassContext
from relaxir.passes.instruments import VerifyEach
from relaxir.pipelines import DEFAULT
from relaxir.runtime.interp.host import run_host
from relaxir.runtime.records import CallRecord
from relaxir.support.errors import ArgumentError, LoadError, RuntimeShapeError, TargetError
from tests.e2e import models

RNG = np.random.default_rng(1)


def floats(*shape: int) -> np.ndarray:
    """Random float32 values."""
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.fixture(scope="module")
def mlp() -> tuple[rx.IRModule, object]:
    module = models.mlp()
    return module, rx.compile(module)


@pytest.mark.parametrize("n", [1, 2, 3, 5, 6, 7, 13, 16, 33, 100])
def test_mlp_agrees_at_every_row_count(mlp, n: int) -> None:
    module, exe = mlp
    x = floats(n, 24)
    np.testing.assert_allclose(exe["main"](x), rx.evaluate(module, "main", x), rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize(("n", "k"), [(0, 3), (3, 0), (1, 1), (4, 7), (3, 33), (17, 257)])
def test_two_results(n: int, k: int) -> None:
    module = models.softmax_rows()
    main = rx.compile(module)["main"]
    x = floats(n, k)
    for got, want in zip(main(x), rx.evaluate(module, "main", x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_branches_of_different_length() -> None:
    module = models.branches()
    main = rx.compile(module)["main"]
    for flag in (True, False):
        for n in (0, 1, 5):
            x = floats(n)
            got = main(np.array(flag), x)
            want = np.concatenate([x, x]) + 1 if flag else np.exp(x) + 1
            assert got.shape == want.shape
            np.testing.assert_allclose(got, want, rtol=1e-6)


def test_what_a_branch_sizes_is_placed_behind_it() -> None:
    module = models.branch_then_work()
    planned = DEFAULT.run(module, PassContext(instruments=(VerifyEach(),)))
    main = rx.compile(module)["main"]
    for flag in (True, False):
        for n in (0, 1, 5):
            x = floats(n)
            got = main(np.array(flag), x)
            (want,) = run_host(planned, "main", (np.array(flag), x), planned.attrs["constants"])
            np.testing.assert_allclose(got, rx.evaluate(module, "main", np.array(flag), x), rtol=1e-6)
            np.testing.assert_allclose(got, want, rtol=1e-6)


@pytest.mark.parametrize("n", [0, 1, 7, 100])
def test_data_dependent_size(n: int) -> None:
    main = rx.compile(models.positive())["main"]
    x = floats(n)
    np.testing.assert_array_equal(main(x), np.nonzero(x > 0)[0])


def test_recursion() -> None:
    module = models.factorial()
    main = rx.compile(module)["main"]
    np.testing.assert_array_equal(main(np.array(5), np.ones(3, np.float32)), np.full(3, 120, np.float32))
    np.testing.assert_array_equal(main(np.array(0), np.ones(0, np.float32)), np.ones(0, np.float32))


def test_results_are_the_callers_own(mlp) -> None:
    _, exe = mlp
    x = floats(3, 24)
    first = exe["main"](x)
    kept = first.copy()
    for _ in range(5):
        exe["main"](floats(3, 24))
    np.testing.assert_array_equal(first, kept)
    main = exe["main"]
    del exe
    gc.collect()
    np.testing.assert_array_equal(main(x), kept)


def test_into_writes_the_callers_array(mlp) -> None:
    _, exe = mlp
    x, out = floats(4, 24), np.empty((4, 40), np.float32)
    exe["main"].into([out], x)
    np.testing.assert_array_equal(out, exe["main"](x))
    with pytest.raises(RuntimeShapeError, match="40"):
        exe["main"].into([np.empty((4, 41), np.float32)], x)
    with pytest.raises(ArgumentError, match="out0"):
        exe["main"].into([np.empty((4, 40), np.float64)], x)


def test_inputs_of_any_layout(mlp) -> None:
    _, exe = mlp
    wide = floats(24, 6).T
    bytes_ = np.zeros(6 * 24 * 4 + 1, np.uint8)
    odd = np.frombuffer(bytes_.data, np.float32, 6 * 24, 1).reshape(6, 24)
    odd_copy = np.frombuffer(bytes_.data, np.float32, 6 * 24, 1)
    odd_copy[:] = wide.reshape(-1)
    want = exe["main"](np.ascontiguousarray(wide))
    for x in (wide, odd, wide.astype(">f4"), np.asfortranarray(wide)):
        np.testing.assert_array_equal(exe["main"](x), want)


@pytest.mark.parametrize(
    ("args", "feeds", "words"),
    [
        ((), {}, ("missing", "`x`")),
        ((np.zeros((2, 24), np.float32),) * 2, {}, ("takes 1", "got 2")),
        ((), {"y": np.zeros(1)}, ("no argument `y`",)),
        ((np.zeros((2, 24), np.float32),), {"x": 1}, ("twice",)),
        ((np.zeros((2, 24)),), {}, ("float64", "float32", "`x`")),
        ((np.zeros(24, np.float32),), {}, ("rank 1", "rank 2", "`x`")),
        (("text",), {}, ("str", "`x`")),
    ],
)
def test_wrong_arguments(mlp, args: tuple[object, ...], feeds: dict[str, object], words: tuple[str, ...]) -> None:
    _, exe = mlp
    with pytest.raises(ArgumentError) as caught:
        exe["main"](*args, **feeds)
    assert all(w in str(caught.value) for w in words)


def test_extents_are_checked_in_the_users_words(mlp) -> None:
    _, exe = mlp
    with pytest.raises(RuntimeShapeError, match=r"argument `x`, axis 1: got 25, expected 24"):
        exe["main"](floats(2, 25))
    with pytest.raises(RuntimeShapeError, match=r"n is 0, but must be at least 1"):
        exe["main"](floats(0, 24))


def test_concurrent_calls(mlp) -> None:
    _, exe = mlp
    inputs = [floats(n, 24) for n in range(1, 17)]
    want = [exe["main"](x) for x in inputs]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(5):
            for got, w in zip(pool.map(exe["main"], inputs), want, strict=True):
                np.testing.assert_array_equal(got, w)


def test_library_round_trip(mlp, tmp_path: Path) -> None:
    _, exe = mlp
    path = exe.export(tmp_path / "model.so")
    assert path.with_suffix(".h").is_file()
    moved = tmp_path / "elsewhere" / "renamed.so"
    moved.parent.mkdir()
    path.rename(moved)
    lib = rx.load(moved)
    x = floats(5, 24)
    np.testing.assert_array_equal(lib["main"](x), exe["main"](x))
    assert lib["main"].input_names == ("x",)
    assert str(lib["main"].signature) == str(exe["main"].signature)
    assert str(rx.memory(lib)) == str(rx.memory(exe))


def test_exports_are_identical_bytes(tmp_path: Path) -> None:
    script = "import relaxir as rx\nfrom tests.e2e import models\nrx.compile(models.mlp(), target='x86-64-v3', cache=False).export({!r})"
    files = [tmp_path / f"{i}" / "m.so" for i in range(2)]
    for seed, file in enumerate(files):
        file.parent.mkdir()
        code = script.format(str(file))
        subprocess.run(
            [sys.executable, "-c", code], check=True, env={"PYTHONHASHSEED": str(seed), "PATH": "", "PYTHONPATH": "."}
        )
    assert files[0].read_bytes() == files[1].read_bytes()


def test_bad_targets_and_places(mlp, tmp_path: Path) -> None:
    module, exe = mlp
    with pytest.raises(TargetError, match="pentium"):
        rx.compile(module, target="pentium")
    with pytest.raises(LoadError, match="cannot write"):
        exe.export(tmp_path / "no" / "such" / "folder.so")
    with pytest.raises(LoadError, match="no file"):
        rx.load(tmp_path / "missing.so")
    broken = tmp_path / "broken.so"
    broken.write_bytes(b"not an ELF file")
    with pytest.raises(LoadError, match="not a relaxir library"):
        rx.load(broken)


def query(exe, *arrays: np.ndarray) -> tuple[int, list[tuple[int, ...]], int]:
    """What ``rx_query`` says of a call: status, shapes, frame bytes."""
    signature = exe.signatures["main"]
    context = exe.context
    record = CallRecord(signature, context.address, 0)
    for i, a in enumerate(arrays):
        record.set(i, a)
    size = np.zeros(1, np.int64)
    status = context.library.cdll.rx_query(*record.words[:6], size.ctypes.data)
    return status, [record.shape(len(arrays) + i) for i in range(len(signature.outputs))], int(size[0])


def test_shapes_and_memory_can_be_asked_for() -> None:
    exe = rx.compile(models.softmax_rows())
    status, shapes, size = query(exe, floats(5, 7))
    assert (status, shapes) == (0, [(5, 7), (5,)])
    assert size == rx.memory(exe)(n=5, k=7)
    assert query(rx.compile(models.positive()), floats(4))[0] == 3  # the size depends on data
    assert query(rx.compile(models.branches()), np.array(True), floats(4))[0] == 3


def test_the_peak_has_the_longer_branch() -> None:
    exe = rx.compile(models.branch_then_work())
    assert "  where j = max(n * 2, n)" in str(rx.memory(exe)).splitlines()


def test_the_peak_has_the_frames_of_called_functions() -> None:
    n, m = rx.dim("n"), rx.dim("m")
    bb = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorType((m, 64), "float32"))
    with bb.function("inner", [x]):
        wide = bb.emit(rx.op.matmul(x, np.ones((64, 512), np.float32)))
        bb.emit_func_output(bb.emit(rx.op.matmul(rx.op.exp(wide), np.ones((512, 64), np.float32))))
    y = rx.Var("y", rx.TensorType((n, 64), "float32"))
    with bb.function("main", [y]):
        first = bb.call("inner", bb.emit(rx.op.exp(y)))
        bb.emit_func_output(bb.call("inner", bb.emit(rx.op.concat((first, first), axis=0))))
    exe = rx.compile(bb.get())
    peak, inner = rx.memory(exe), rx.memory(exe, "inner")
    assert inner(m=6) > 6 * 512 * 4 - 1
    assert peak(n=3) >= inner(m=6) + 6 * 64 * 4  # twice the rows in the second call, and its argument
    assert [d.name for d in peak.symbols] == ["n"]
