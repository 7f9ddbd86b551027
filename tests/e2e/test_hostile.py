"""Wrong use from outside: every mistake is one of relaxir's errors, never a crash, a wrong result or a raw exception."""

from __future__ import annotations

import platform
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

import relaxir as rx
from relaxir.support.errors import LoadError


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


@pytest.mark.parametrize("text", ["[]", "{}", '{"functions": 5}', "[" * 4000, '{"functions": [], "format": 1}'])
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
