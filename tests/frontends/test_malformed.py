"""Damaged and hostile files: an error that names the node or tensor, no memory for what a file only claims."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import ModelProto, TensorProto

from relaxir.frontends.onnx import from_onnx
from relaxir.support.errors import LoadError, RelaxirError, UnsupportedError
from tests.frontends.models import f32, i64, model, node, run

GOOD = model(
    [node("MatMul", "x w", "h"), node("Add", "h b", "y")],
    "x float32[n,4]",
    "y float32",
    w=np.ones((4, 2), np.float32),
    b=f32([1, 2]),
)


def changed(change: Callable[[ModelProto], object], base: ModelProto = GOOD) -> ModelProto:
    copy: ModelProto = ModelProto.FromString(base.SerializeToString())
    change(copy)
    return copy


def set_dims(index: int, *dims: int) -> Callable[[ModelProto], object]:
    def change(m: ModelProto) -> None:
        del m.graph.initializer[index].dims[:]
        m.graph.initializer[index].dims.extend(dims)

    return change


def retype(m: ModelProto) -> None:
    m.graph.node[0].attribute.add(name="axis", type=onnx.AttributeProto.STRING, s=b"x")
    m.graph.node[0].op_type = "Concat"


def input_twice(m: ModelProto) -> None:
    m.graph.input.add().CopyFrom(m.graph.input[0])


def node_twice(m: ModelProto) -> None:
    m.graph.node.add().CopyFrom(m.graph.node[1])


BROKEN: dict[str, tuple[ModelProto, str]] = {
    "negative dimension": (changed(set_dims(0, -4, 2)), "`w`.*negative"),
    "billions of elements": (changed(set_dims(0, 2**31, 2**31)), "`w`.*absurd"),
    "too few bytes": (changed(set_dims(0, 4, 3)), "`w`.*32 bytes.*needs 48"),
    "absurd and empty": (changed(set_dims(1, 0, 2**62)), "`b`.*absurd"),
    "unknown name": (changed(lambda m: m.graph.node[1].input.__setitem__(0, "nowhere")), "Add.*`nowhere`"),
    "cycle": (model([node("Relu", "b", "a"), node("Relu", "a", "b")], "x float32[n]", "b float32"), "`a`.*`b`"),
    "node twice": (changed(node_twice), "`y` a second time"),
    "input twice": (changed(input_twice), "two inputs.*`x`"),
    "no output": (changed(lambda m: m.graph.output[0].__setattr__("name", "z")), "`z`"),
    "attribute type": (changed(retype), "`axis` must be int"),
    "empty": (ModelProto(), "no graph"),
    "rank": (model([node("MatMul", "x x", "y")], "x float32[3,4]", "y float32"), "`y` .MatMul."),
    "permutation": (model([node("Transpose", "x", "y", perm=[0, 0])], "x float32[a,b]", "y float32"), "Transpose"),
    "axis": (model([node("Concat", "x x", "y", axis=7)], "x float32[a,b]", "y float32"), "`y` .Concat.*axis 7"),
    "missing operand": (model([node("Add", "x", "y")], "x float32[a]", "y float32"), "`y` .Add.*input 1"),
    "broadcast": (model([node("Add", "x c", "y")], "x float32[3]", "y float32", c=f32([1, 2])), "`y` .Add.*`3`.*`2`"),
    "two -1": (model([node("Reshape", "x t", "y")], "x float32[a]", "y float32", t=i64([-1, -1])), "`y` .Reshape.*-1"),
    "step 0": (model([node("Slice", "x a b c a", "y")], "x float32[n]", "y float32", a=i64([0]), b=i64([3]), c=i64([0])), "Slice"),
    "negative fill": (model([node("ConstantOfShape", "t", "y")], "x float32[n]", "y float32", t=i64([-3])), "ConstantOfShape.*-3"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    proto, words = BROKEN[name]
    with pytest.raises(RelaxirError, match=words):
        from_onnx(proto)


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x08\x07", GOOD.SerializeToString()[:-9]])
def test_bytes(data: bytes) -> None:
    with pytest.raises(LoadError):
        from_onnx(data)


@pytest.mark.parametrize("name", ["missing.onnx", ".", "a\0b"])
def test_paths(tmp_path: Path, name: str) -> None:
    with pytest.raises(LoadError):
        from_onnx(tmp_path / name)


LARGE: dict[str, tuple[Any, dict[str, Any]]] = {
    "fill": (node("ConstantOfShape", "t", "y"), {"t": i64([2**20, 2**20])}),
    "expand": (node("Expand", "c t", "y"), {"c": i64([1]), "t": i64([2**20, 2**20])}),
    "tile": (node("Tile", "c t", "y"), {"c": i64([1]), "t": i64([2**40])}),
    "range": (node("Range", "a b c", "y"), {"a": i64(0), "b": i64(2**50), "c": i64(1)}),
    "one-hot": (node("OneHot", "i d v", "y"), {"i": i64([1]), "d": i64(2**50), "v": i64([0, 1])}),
    "pad": (node("Pad", "c t", "y"), {"c": i64([1]), "t": i64([2**40, 0])}),
}


@pytest.mark.parametrize("name", LARGE)
def test_large_constants_are_not_computed(name: str) -> None:
    made, consts = LARGE[name]
    module = from_onnx(model([made], "x float32[n]", "y int64", **consts))
    assert "y" not in consts
    assert sum(np.prod(v.shape) for v in consts.values()) < 10
    assert len(str(module)) < 3000


def test_random_damage() -> None:
    """Nothing but a RelaxirError comes out of a file with flipped bytes."""
    data = GOOD.SerializeToString()
    rng = random.Random(1)
    for _ in range(300):
        copy = bytearray(data)
        for _ in range(rng.choice((1, 2, 4))):
            copy[rng.randrange(len(copy))] = rng.randrange(256)
        try:
            from_onnx(bytes(copy))
        except RelaxirError:
            continue


def test_all_problems_at_once() -> None:
    nodes = [
        node("Foo", "x", "a"),
        node("Relu", "a", "b"),
        node("Bar", "b", "c"),
        node("Softmax", "x", "d", axis=9),
        node("TfIdfVectorizer", "x w w", "e"),
    ]
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(model([n for n in nodes if n.op_type != "Softmax"], "x float32[n]", "c float32", w=f32([1])))
    notes = "\n".join(caught.value.notes)
    for words in ("`a` (Foo)", "`c` (Bar)", "`e` (TfIdfVectorizer)"):
        assert words in notes
    with pytest.raises(RelaxirError, match="4 problems") as worse:
        from_onnx(model(nodes, "x float32[n]", "c float32", w=f32([1])))
    assert "(Softmax)" in "\n".join(worse.value.notes)


WEIGHTS = f32([1, 2, 3, 4])


def stored(location: str, **entries: str) -> ModelProto:
    made = model([node("Add", "x weight", "y")], "x float32[n,4]", "y float32")
    tensor = made.graph.initializer.add(
        name="weight", data_type=TensorProto.FLOAT, dims=[4], data_location=TensorProto.EXTERNAL
    )
    for k, v in {"location": location, "offset": "0", "length": "16", **entries}.items():
        tensor.external_data.add(key=k, value=v)
    return made


@pytest.fixture
def home(tmp_path: Path) -> Path:
    folder = tmp_path / "home"
    (folder / "sub").mkdir(parents=True)
    (tmp_path / "w.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "sub" / "w.bin").write_bytes(WEIGHTS.tobytes())
    (folder / "alias.bin").symlink_to(Path("..") / "w.bin")
    (folder / "up").symlink_to("..")
    return folder


def save(proto: ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize(
    "location", ["../w.bin", "/etc/passwd", "alias.bin", "up/w.bin", "sub/../../w.bin", "", "sub", "none.bin"]
)
def test_external_data_stays_inside(home: Path, location: str) -> None:
    with pytest.raises(LoadError, match="`weight`"):
        from_onnx(save(stored(location), home))


@pytest.mark.parametrize(
    "entries", [{"offset": "8"}, {"offset": "-4"}, {"length": "12"}, {"length": "x"}, {"offset": "99999999999999"}]
)
def test_external_data_of_wrong_range(home: Path, entries: dict[str, str]) -> None:
    with pytest.raises(LoadError, match="`weight`"):
        from_onnx(save(stored("sub/w.bin", **entries), home))


def test_external_data_inside(home: Path) -> None:
    module = from_onnx(save(stored("sub/w.bin"), home))
    assert "R.add" in str(module)
    with pytest.raises(LoadError, match="`weight`"):
        from_onnx(stored("sub/w.bin"))  # no folder to be inside of


def test_good_model_is_good() -> None:
    np.testing.assert_array_equal(run(GOOD, x=np.ones((2, 4), np.float32))[0], [[5, 6], [5, 6]])
