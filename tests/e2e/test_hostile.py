"""Wrong use from outside: every mistake is one of relaxir's errors, never a crash, a wrong result or a raw exception."""

from __future__ import annotations

import os
import platform
import struct
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

import relaxir as rx
from relaxir.cli import main as cli
from relaxir.support.errors import ArgumentError, LoadError


def program(f: Callable[..., object], *types: rx.TensorType) -> rx.IRModule:
    """A module whose ``main`` takes x0, x1, ..."""
    bb = rx.BlockBuilder()
    params = [rx.Var(f"x{i}", t) for i, t in enumerate(types)]
    with bb.function("main", params):
        bb.emit_func_output(f(*params))
    return bb.get()


N = rx.dim("n")
X = rx.TensorType((N,), "float32")


def ones(k: int) -> np.ndarray:
    """A vector of ones."""
    return np.ones(k, np.float32)


@pytest.fixture(scope="module")
def plus_one() -> rx.Executable:
    return rx.compile(program(lambda x: rx.op.add(x, 1.0), X))


@pytest.fixture(scope="module")
def total() -> rx.Executable:
    return rx.compile(program(rx.op.add, X, X))


def test_a_truncated_library_is_refused(plus_one: rx.Executable, tmp_path: Path) -> None:
    data = plus_one.export(tmp_path / "m.so").read_bytes()
    for size in (0, 10, 64, 100, len(data) // 2, len(data) - 1):
        cut = tmp_path / f"{size}.so"
        cut.write_bytes(data[:size])
        with pytest.raises(LoadError, match="relaxir library"):
            rx.load(cut)


def test_an_exported_file_that_was_replaced_is_loaded_anew(plus_one: rx.Executable, tmp_path: Path) -> None:
    path = plus_one.export(tmp_path / "m.so")
    old = rx.load(path)
    rx.compile(program(lambda x: rx.op.multiply(x, 5.0), X)).export(path)
    new = rx.load(path)
    assert (float(old["main"](ones(1))[0]), float(new["main"](ones(1))[0])) == (2.0, 5.0)


def test_a_library_for_another_machine_says_which(plus_one: rx.Executable, tmp_path: Path) -> None:
    there = "x86-64" if platform.machine() == "aarch64" else "aarch64"
    path = plus_one.export(tmp_path / "m.so")
    data = bytearray(path.read_bytes())
    struct.pack_into("<H", data, 18, 62 if there == "x86-64" else 183)
    path.write_bytes(data)
    with pytest.raises(LoadError, match=f"for {there}"):
        rx.load(path)


@pytest.mark.parametrize("text", ["[]", "{}", '{"functions": 5}', "[" * 4000, '{"functions": [], "format": 2}'])
def test_damaged_metadata(plus_one: rx.Executable, tmp_path: Path, text: str) -> None:
    path = plus_one.export(tmp_path / "m.so")
    data = path.read_bytes()
    start = data.index(b'{"codes"')
    end = data.index(b"\0", start)
    path.write_bytes(data[:start] + text.encode().ljust(end - start, b" ")[: end - start] + data[end:])
    with pytest.raises(LoadError, match="damaged metadata"):
        rx.load(path)


def test_a_path_that_cannot_be(tmp_path: Path) -> None:
    for path in ("x" * 5000, "a\0b.so", tmp_path):
        with pytest.raises(LoadError) as caught:
            rx.load(path)
        assert caught.value.code == "load-path"


def test_no_library_over_its_header_or_over_what_is_no_file(plus_one: rx.Executable, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    os.mkfifo(tmp_path / "other.h")
    for path in ("", "/", "a\0b.so", tmp_path, tmp_path / "m.h", tmp_path / "pipe", tmp_path / "other.so", "x" * 5000):
        with pytest.raises(LoadError, match="cannot write") as caught:
            plus_one.export(path)
        assert caught.value.code == "load-path"
    assert sorted(p.name for p in tmp_path.iterdir()) == ["other.h", "pipe"]
    with pytest.raises(ArgumentError, match="path"):
        plus_one.export(5)


def test_outputs_share_no_memory(total: rx.Executable) -> None:
    room = ones(12)
    total["main"].into([room[8:]], room[:4], room[4:8])
    np.testing.assert_array_equal(room[8:], 2 * ones(4))
    for out, a, b in ((room[:4], room[:4], room[4:8]), (room[3:7], room[:4], room[8:]), (room[5:9], ones(4), room[8:])):
        with pytest.raises(ArgumentError, match="shares memory with input"):
            total["main"].into([out], a, b)
    two = rx.compile(program(lambda x: (rx.op.add(x, 1.0), rx.op.exp(x)), X))["main"]
    two.into([room[:4], room[4:8]], ones(4))
    with pytest.raises(ArgumentError, match="shares memory with output"):
        two.into([room[:4], room[3:7]], ones(4))


def test_exceptions_of_callbacks_stay_in_their_thread() -> None:
    meet = threading.Barrier(8)

    def broken(x: np.ndarray, _: np.ndarray) -> None:
        meet.wait(timeout=20)
        raise KeyError(int(x[0]))

    bb, x = rx.BlockBuilder(), rx.Var("x", X)
    with bb.function("main", [x]):
        bb.emit_func_output(bb.emit(bb.call_dps_packed(broken, [x], out=X)))
    main = rx.compile(bb.get())["main"]

    def call(i: int) -> int:
        with pytest.raises(KeyError) as caught:
            main(np.full(3, i, np.float32))
        return int(caught.value.args[0])

    with ThreadPoolExecutor(8) as pool:
        assert list(pool.map(call, range(8))) == list(range(8))


def test_arguments_that_make_no_array(plus_one: rx.Executable, total: rx.Executable) -> None:
    small = rx.compile(program(lambda x: rx.op.add(x, x), rx.TensorType((N,), "uint8")))["main"]
    for call in (
        lambda: plus_one["main"]([[1.0], [1.0, 2.0]]),
        lambda: plus_one["main"](["a"]),
        lambda: small([300]),
        lambda: total["main"].into(None, ones(1)),
        lambda: total["main"].into(np.ones((1, 1), np.float32), ones(1), ones(1)),
        lambda: plus_one[[]],
        lambda: plus_one[None],
    ):
        with pytest.raises(ArgumentError):
            call()


def test_arguments_of_the_compiler(plus_one: rx.Executable) -> None:
    module = program(lambda x: rx.op.add(x, 1.0), X)
    for call in (
        lambda: rx.compile(module, jobs=-3),
        lambda: rx.compile(module, jobs=0),
        *(lambda t=t: rx.compile(module, threads=t) for t in ("2", 1.5, 0, -1, True)),
        *(lambda t=t: plus_one.set_threads(t) for t in ("2", 1.5, 0, -1, 1 << 40)),
        lambda: rx.compile(module, target=5),
        lambda: rx.compile(None),
        lambda: rx.evaluate(None, "main"),
        lambda: rx.from_onnx(b"", dims=5),
        lambda: rx.parse(None),
        lambda: rx.load(5),
    ):
        with pytest.raises(ArgumentError):
            call()


def test_sizes_of_the_memory_formula(total: rx.Executable) -> None:
    formula = rx.memory(total)
    assert formula(n=5) >= 0
    for sizes in ({"n": -5}, {"n": 2.5}, {"n": 5, "wrong": 1}):
        with pytest.raises(ArgumentError):
            formula(**sizes)


def test_bfloat16_of_ml_dtypes() -> None:
    bfloat16 = pytest.importorskip("ml_dtypes").bfloat16
    module = program(lambda x: rx.op.add(x, x), rx.TensorType((N,), "bfloat16"))
    main = rx.compile(module)["main"]
    x = np.array([1.5, -2.0, 3.25], bfloat16)
    out = np.empty(3, bfloat16)
    main.into([out], x)
    np.testing.assert_array_equal(out, x + x)
    for got in (main(x), main([1.5, -2.0, 3.25]), rx.evaluate(module, "main", x)):
        np.testing.assert_array_equal(np.asarray(got).view(bfloat16), x + x)


def test_mistakes_on_the_command_line(tmp_path: Path) -> None:
    model = tmp_path / "m.rx"
    model.write_text(str(program(lambda x: rx.op.add(x, 1.0), X)))
    result = CliRunner().invoke(cli, ["run", str(model), "--seed", "-1"])
    assert result.exit_code == 2
    assert "--seed" in result.output
    result = CliRunner().invoke(cli, ["run", str(model), "-i", str(tmp_path / "nope.npy")])
    assert result.exit_code == 1
    assert "load-path" in result.output
