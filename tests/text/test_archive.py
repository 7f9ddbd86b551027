"""Modules as files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from relaxir.ir import BlockBuilder, IRModule, TensorType, Var, const
from relaxir.ir.structural import structural_equal
from relaxir.ops import TABLE, op
from relaxir.support.errors import LoadError, ParseError
from relaxir.text import load, parse, save


def model(*weights: np.ndarray) -> IRModule:
    """A function that adds constants."""
    bb = BlockBuilder()
    x = Var("x", TensorType((10, 10), "f32"))
    with bb.function("main", [x]):
        y = x
        for w in weights:
            y = bb.emit(op.add(y, const(w)))
        bb.emit_func_output(y)
    return bb.get()


WEIGHT = np.arange(100, dtype=np.float32).reshape(10, 10)


def test_save_and_load(tmp_path: Path) -> None:
    module = model(WEIGHT, WEIGHT, WEIGHT + 1)
    save(module, tmp_path / "m.rx")
    assert sorted(p.name for p in tmp_path.iterdir()) == ["m.npz", "m.rx"]
    assert sorted(np.load(tmp_path / "m.npz")) == ["w0", "w1"]  # equal data is stored once
    assert structural_equal(load(tmp_path / "m.rx", TABLE), module)
    text = (tmp_path / "m.rx").read_text()
    assert structural_equal(parse(text, TABLE, tmp_path / "m.npz"), module)


def test_same_bytes_again(tmp_path: Path) -> None:
    save(model(WEIGHT), tmp_path / "a.rx")
    save(load(tmp_path / "a.rx", TABLE), tmp_path / "b.rx")
    assert (tmp_path / "a.rx").read_bytes() == (tmp_path / "b.rx").read_bytes()
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()


def test_small_modules_need_no_archive(tmp_path: Path) -> None:
    save(model(np.float32(1)), tmp_path / "m.rx")
    assert [p.name for p in tmp_path.iterdir()] == ["m.rx"]
    assert structural_equal(load(tmp_path / "m.rx", TABLE), model(np.float32(1)))


def test_a_failed_write_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(LoadError, match="cannot write"):
        save(model(WEIGHT), tmp_path / "missing" / "m.rx")
    (tmp_path / "m.rx").mkdir()
    with pytest.raises(LoadError, match="cannot write"):
        save(model(WEIGHT), tmp_path / "m.rx")
    assert not [p.name for p in tmp_path.iterdir() if p.name.startswith(".")]


@pytest.mark.parametrize(
    ("arrays", "phrase"),
    [
        ({}, "no data for constant `w0`"),
        ({"w0": WEIGHT + 1}, "not what the text was written with"),
        ({"w0": WEIGHT.astype(np.float64)}, "its data is float64"),
        ({"w0": WEIGHT.reshape(5, 20)}, "its data is float32"),
    ],
)
def test_wrong_data(arrays: dict[str, np.ndarray], phrase: str) -> None:
    with pytest.raises(ParseError, match=phrase) as caught:
        parse(str(model(WEIGHT)), TABLE, arrays)
    assert caught.value.code == "parse-constant"


def test_any_damage_of_an_archive(tmp_path: Path) -> None:
    """Headers are parsed as Python and members unpacked by several libraries: each has its own exceptions."""
    save(model(WEIGHT), tmp_path / "m.rx")
    text, whole = (tmp_path / "m.rx").read_text(), (tmp_path / "m.npz").read_bytes()
    rng, ends = np.random.default_rng(0), (0, len(whole) - 200)
    magics = [m + rng.bytes(200) for m in (b"PK\x03\x04", b"\x93NUMPY\x01\x00v\x00") for _ in range(40)]
    broken = []
    for n in range(400):
        content = bytearray(whole)
        for place in rng.integers(0, 200, 3):
            content[ends[n % 2] + place] = rng.integers(0, 256)
        broken.append(bytes(content))
    kinds = set()
    for content in (*broken, *magics, *(whole[:n] for n in range(0, len(whole), 37))):
        (tmp_path / "m.npz").write_bytes(content)
        try:
            parse(text, TABLE, tmp_path / "m.npz")
        except (LoadError, ParseError) as error:
            kinds.add(error.code)
    assert kinds == {"load-malformed", "parse-constant"}


def test_damaged_files(tmp_path: Path) -> None:
    save(model(WEIGHT), tmp_path / "m.rx")
    whole = (tmp_path / "m.npz").read_bytes()
    for content in (b"", b"nonsense", whole[:50], whole[:-40], whole.replace(b"NUMPY", b"NUMPX")):
        (tmp_path / "m.npz").write_bytes(content)
        with pytest.raises(LoadError):
            load(tmp_path / "m.rx", TABLE)
    (tmp_path / "m.rx").write_bytes(b"\xff\xfe")
    with pytest.raises(LoadError, match="not UTF-8"):
        load(tmp_path / "m.rx", TABLE)
    with pytest.raises(LoadError, match="cannot read"):
        load(tmp_path / "other.rx", TABLE)
    np.save(tmp_path / "one.npy", WEIGHT)
    with pytest.raises(LoadError, match="not a NumPy archive"):
        parse(str(model(WEIGHT)), TABLE, tmp_path / "one.npy")
