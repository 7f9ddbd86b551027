"""One grammar of sizes for all commands."""

from __future__ import annotations

from pathlib import Path

import pytest

import relaxir as rx
from relaxir.cli.dims import Range, collect_dims, parse_dim, symbol
from tests.cli.conftest import Run


@pytest.mark.parametrize(
    ("option", "name", "found"),
    [
        ("batch=8", "batch", (8,)),
        ("batch=0", "batch", (0,)),
        ("batch=1,8, 64", "batch", (1, 8, 64)),
        ("batch=1..64", "batch", Range(1, 64)),
        ("batch = 1 .. 64", "batch", Range(1, 64)),
        ("batch=2..", "batch", Range(2, None)),
        ("x:0=3", "x:0", (3,)),
        ("a=b=3", "a=b", (3,)),
        ("seq len=9223372036854775807", "seq len", (2**63 - 1,)),
    ],
)
def test_forms(option: str, name: str, found: Range | tuple[int, ...]) -> None:
    assert parse_dim(option) == (name, found)


def test_sizes_and_ranges_go_where_they_belong() -> None:
    dims = collect_dims(["batch=1..64", "batch=1,8", "seq len=2..", "k=3..3", "m=5"])
    declared = dims.declared()
    batch, seq = declared["batch"], declared["seq len"]
    assert isinstance(batch, type(rx.dim("n")))
    assert (batch.min, batch.max, batch.name) == (1, 64, "batch")
    assert isinstance(seq, type(batch))
    assert (seq.min, seq.max, seq.name) == (2, None, "seq_len")
    assert declared["k"] == 3, "a range of one size is that size"
    assert dims.points() == [{"batch": 1, "m": 5}, {"batch": 8, "m": 5}]
    assert collect_dims([]).points() == [{}]


def test_a_command_without_inputs_fixes_sizes() -> None:
    dims = collect_dims(["batch=8"], fixes=True)
    assert (dims.declared(), dims.points()) == ({"batch": 8}, [{}])


def test_names_of_symbols() -> None:
    assert [symbol(n) for n in ("batch size", "3d", "class", "x:0", "?")] == [
        "batch_size",
        "d_3d",
        "class_",
        "x_0",
        "d",
    ]


@pytest.mark.parametrize("option", ["-d", "--dim", "-s", "--size"])
def test_all_spellings_give_a_size(relaxir: Run, onnx_model: Path, option: str) -> None:
    done = relaxir("run", onnx_model, option, "batch=3")
    assert done.exit_code == 0, done.output
    assert "(3, 3)" in done.stdout


def test_each_command_takes_ranges_of_a_model(relaxir: Run, onnx_model: Path, tmp_path: Path) -> None:
    text = relaxir("show", onnx_model, "-d", "batch=1..8").stdout
    assert 'R.dim("batch", min=1, max=8)' in text
    assert "R.dim" not in relaxir("show", onnx_model, "-d", "batch=8").stdout
    assert "R.dim" not in relaxir("show", onnx_model, "-d", "batch=8..8").stdout
    for command in ("run", "check"):
        assert relaxir(command, onnx_model, "-d", "batch=1..8", "-d", "batch=3").exit_code == 0
        refused = relaxir(command, onnx_model, "-d", "batch=1..8", "-d", "batch=9")
        assert refused.exit_code == 1
        assert "1 <= batch <= 8" in refused.stderr


def test_only_one_place_explains_them(relaxir: Run) -> None:
    """The help of each command has the option once, in the forms that make sense there."""
    for command, forms in (
        ("compile", "NAME=N|MIN..MAX"),
        ("show", "NAME=N|MIN..MAX"),
        ("run", "NAME=N|MIN..MAX"),
        ("check", "NAME=N|MIN..MAX"),
        ("bench", "NAME=N,...|MIN..MAX"),
    ):
        page = relaxir(command, "--help").stdout
        assert f"-d, --dim {forms}" in page
        assert "--size" not in page


def test_names_of_the_model_and_of_its_symbols_give_sizes(relaxir: Run, tmp_path: Path) -> None:
    onnx = pytest.importorskip("onnx")
    x, y = (onnx.helper.make_tensor_value_info(n, 1, ["batch size", None]) for n in "xy")
    graph = onnx.helper.make_graph([onnx.helper.make_node("Relu", ["x"], ["y"])], "g", [x], [y])
    path = tmp_path / "model.onnx"
    onnx.save(onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8), path)
    for first, second in (("batch size", "x:1"), ("batch_size", "x_1")):
        done = relaxir("run", path, "-d", f"{first}=3", "-d", f"{second}=2")
        assert done.exit_code == 0, done.output
        assert "(3, 2)" in done.stdout
    assert relaxir("show", path, "-d", "batch size=1..4", "-d", "x:1=5").exit_code == 0
    twice = relaxir("run", path, "-d", "batch size=3", "-d", "batch_size=4")
    assert twice.exit_code == 1
    assert "given twice" in twice.stderr
