"""Damaged and hostile files: an error that names the node or tensor, no memory for what a file only claims."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

from relaxir.frontends.onnx import from_onnx
from relaxir.support.errors import ArgumentError, LoadError, RelaxirError, RuntimeShapeError, UnsupportedError
from tests.frontends.models import f32, i64, model, node, run, values

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


IMAGE = "x float32[1,3,8,8]"
KERNEL = np.ones((3, 3, 3, 3), np.float32)
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
    "list of floats": (model([node("Transpose", "x", "y", perm=[1.0, 0.0])], "x float32[a,b]", "y float32"), "`perm` must be a list of int"),
    "floats of a window": (model([node("MaxPool", "x", "y", kernel_shape=[2.0, 2.0])], IMAGE, "y float32"), "`kernel_shape` must be a list of int"),
    "empty": (ModelProto(), "no graph"),
    "rank": (model([node("MatMul", "x x", "y")], "x float32[3,4]", "y float32"), "`y` .MatMul."),
    "permutation": (model([node("Transpose", "x", "y", perm=[0, 0])], "x float32[a,b]", "y float32"), "Transpose"),
    "axis": (model([node("Concat", "x x", "y", axis=7)], "x float32[a,b]", "y float32"), "`y` .Concat.*axis 7"),
    "missing operand": (model([node("Add", "x", "y")], "x float32[a]", "y float32"), "`y` .Add.*input 1"),
    "broadcast": (model([node("Add", "x c", "y")], "x float32[3]", "y float32", c=f32([1, 2])), "`y` .Add.*`3`.*`2`"),
    "two -1": (model([node("Reshape", "x t", "y")], "x float32[a]", "y float32", t=i64([-1, -1])), "`y` .Reshape.*-1"),
    "step 0": (model([node("Slice", "x a b c a", "y")], "x float32[n]", "y float32", a=i64([0]), b=i64([3]), c=i64([0])), "Slice"),
    "rank of a kernel": (model([node("Conv", "x w", "y", kernel_shape=[3])], IMAGE, "y float32", w=KERNEL), "`y` .Conv.*1 axes.*2"),
    "flatten": (model([node("Flatten", "x", "y", axis=77)], "x float32[a,b]", "y float32"), "`y` .Flatten.*axis 77.*rank 2"),
    "flatten from the end": (model([node("Flatten", "x", "y", axis=-3)], "x float32[a,b]", "y float32"), "axis -3.*rank 2"),
    "dtype of an output": (model([node("Relu", "x", "y")], "x float32[n]", "y int64"), "`y`.*int64.*float32"),
    "strings as an output": (changed(lambda m: m.graph.output[0].type.tensor_type.__setattr__("elem_type", 8)), "`y`.*type 8.*float32"),
    "input's dimension": (changed(lambda m: m.graph.input[0].type.tensor_type.shape.dim[1].__setattr__("dim_value", -5)), "`x`.*axis 1 is -5"),
    "negative tile": (model([node("Tile", "x t", "y")], "x float32[n]", "y float32", t=i64([-1])), r"`y` .Tile.*repeats.0.: must be at least 0, got `-1`"),
    "negative fill": (model([node("ConstantOfShape", "t", "y")], "x float32[n]", "y float32", t=i64([-3])), "ConstantOfShape.*-3"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_broken(name: str) -> None:
    proto, words = BROKEN[name]
    with pytest.raises(RelaxirError, match=words):
        from_onnx(proto)


@pytest.mark.parametrize("op", ["Conv", "ConvTranspose", "ConvInteger", "QLinearConv"])
def test_kernel_shape_is_that_of_the_weight(op: str) -> None:
    integer = op in ("ConvInteger", "QLinearConv")
    inputs = "x s z w s z s z" if op == "QLinearConv" else "x w"
    image = "x uint8[1,3,8,8]" if integer else IMAGE
    consts = {"w": KERNEL.astype(np.uint8) if integer else KERNEL, "s": f32(1), "z": np.array(0, np.uint8)}
    dtype = {"ConvInteger": "int32", "QLinearConv": "uint8"}.get(op, "float32")
    for kernel, good in (([3, 3], True), ([3, 5], False), ([1, 3], False), ([3, 3, 3], False)):
        proto = model([node(op, inputs, "y", kernel_shape=kernel)], image, f"y {dtype}", 18, **consts)
        if good:
            from_onnx(proto)
            continue
        with pytest.raises(LoadError, match=rf"`y` .{op}.*`kernel_shape`"):
            from_onnx(proto)


def test_kernel_shape_of_a_computed_weight() -> None:
    """A kernel of unknown extents is checked at run time."""
    proto = model([node("Conv", "x w", "y", kernel_shape=[3, 3])], f"{IMAGE}; w float32[2,3,p,q]", "y float32")
    x = np.ones((1, 3, 8, 8), np.float32)
    (y,) = run(proto, x=x, w=np.ones((2, 3, 3, 3), np.float32))
    np.testing.assert_array_equal(y, np.full((1, 2, 6, 6), 27))
    with pytest.raises(RuntimeShapeError):
        run(proto, x=x, w=np.ones((2, 3, 3, 5), np.float32))


@pytest.mark.parametrize(("axis", "shape"), [(0, (1, 6)), (1, (2, 3)), (2, (6, 1)), (-1, (2, 3)), (-2, (1, 6))])
def test_flatten_up_to_its_rank(axis: int, shape: tuple[int, int]) -> None:
    proto = model([node("Flatten", "x", "y", axis=axis)], "x float32[2,b]", "y float32[p,q]")
    assert run(proto, x=np.ones((2, 3), np.float32))[0].shape == shape


def test_minus_one_is_a_dynamic_dimension() -> None:
    """Some exporters write it so; any other negative number is damage."""
    proto = changed(lambda m: m.graph.input[0].type.tensor_type.shape.dim[0].__setattr__("dim_value", -1))
    np.testing.assert_array_equal(run(proto, x=np.ones((3, 4), np.float32))[0], [[5, 6]] * 3)


def test_negative_dims_of_the_caller() -> None:
    with pytest.raises(ArgumentError, match="`n` is negative: -3"):
        from_onnx(GOOD, dims={"n": -3})


@pytest.mark.parametrize("data", [b"", b"garbage", b"\x08\x07", GOOD.SerializeToString()[:-9]])
def test_bytes(data: bytes) -> None:
    with pytest.raises(LoadError):
        from_onnx(data)


@pytest.mark.parametrize("name", ["missing.onnx", ".", "a\0b"])
def test_paths(tmp_path: Path, name: str) -> None:
    with pytest.raises(LoadError):
        from_onnx(tmp_path / name)


LARGE: dict[str, tuple[Any, dict[str, Any]]] = {
    "fill": (node("ConstantOfShape", "t", "y", value=numpy_helper.from_array(i64([7]))), {"t": i64([2**20, 2**20])}),
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
        node("TfIdfVectorizer", "x", "e"),
    ]
    with pytest.raises(UnsupportedError) as caught:
        from_onnx(model([n for n in nodes if n.op_type != "Softmax"], "x float32[n]", "c float32", w=f32([1])))
    notes = "\n".join(caught.value.notes)
    for words in ("`a` (Foo)", "`c` (Bar)", "`e` (TfIdfVectorizer)"):
        assert words in notes
    with pytest.raises(RelaxirError, match="4 problems") as worse:
        from_onnx(model(nodes, "x float32[n]", "c float32", w=f32([1])))
    assert "(Softmax)" in "\n".join(worse.value.notes)


@pytest.mark.parametrize("known", [True, False])
def test_problems_inside_graphs_are_listed_beside_those_around_them(known: bool) -> None:
    def branch(name: str, *nodes: NodeProto) -> GraphProto:
        return helper.make_graph([*nodes], name, [], values(f"{name} float32"))

    good = branch("t", node("Relu", "x", "t"))
    bad = branch("e", node("Softmax", "x", "s", axis=9), node("Bar", "s", "b"), node("Relu", "b", "e"))
    cond = [] if known else [node("ReduceMax", "x", "m", keepdims=0), node("Cast", "m", "c", to=TensorProto.BOOL)]
    nodes = [
        node("Foo", "x", "a"),
        *cond,
        node("If", "c", "g", then_branch=good, else_branch=good),
        node("Softmax", "g", "d", axis=9),
        node("If", "c", "h", then_branch=bad, else_branch=good),
        node("Relu", "h", "y"),
    ]
    consts = {"c": np.array(True)} if known else {}
    with pytest.raises(RelaxirError) as caught:
        from_onnx(model(nodes, "x float32[n]", "y float32", **consts))
    found = [note.split(":")[0] for note in caught.value.notes]
    assert found == ["node `a` (Foo)", "node `b` (Bar)", "node `d` (Softmax)", "node `s` (Softmax)"]


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
    (folder / "circle").symlink_to("circle")
    return folder


def save(proto: ModelProto, folder: Path) -> Path:
    path = folder / "model.onnx"
    path.write_bytes(proto.SerializeToString())
    return path


@pytest.mark.parametrize(
    "location",
    [
        "../w.bin",
        "/etc/passwd",
        "alias.bin",
        "up/w.bin",
        "sub/../../w.bin",
        "",
        "sub",
        "none.bin",
        "circle",
        "long" * 999,
    ],
)
def test_external_data_stays_inside(home: Path, location: str) -> None:
    with pytest.raises(LoadError, match="`weight`"):
        from_onnx(save(stored(location), home))


@pytest.mark.parametrize(
    "entries",
    [
        {"offset": "8"},
        {"offset": "-4"},
        {"offset": "abc"},
        {"length": "12"},
        {"length": "x"},
        {"offset": "99999999999999"},
    ],
)
def test_external_data_of_wrong_range(home: Path, entries: dict[str, str]) -> None:
    with pytest.raises(LoadError, match="`weight`"):
        from_onnx(save(stored("sub/w.bin", **entries), home))


@pytest.mark.parametrize("damage", [b"loc_tion", b"location"])
def test_external_data_without_a_location(home: Path, damage: bytes) -> None:
    """No entry of that name, or one that is not text."""
    data = stored("sub/w.bin").SerializeToString()
    text = b"sub/w.bin" if damage == b"location" else b"location"
    (home / "model.onnx").write_bytes(data.replace(text, b"\xff" * 9 if damage == b"location" else damage))
    with pytest.raises(LoadError, match="`weight`"):
        from_onnx(home / "model.onnx")


def test_external_data_inside(home: Path) -> None:
    module = from_onnx(save(stored("sub/w.bin"), home))
    assert "R.add" in str(module)
    with pytest.raises(LoadError, match="`weight`"):
        from_onnx(stored("sub/w.bin"))  # no folder to be inside of


def test_good_model_is_good() -> None:
    np.testing.assert_array_equal(run(GOOD, x=np.ones((2, 4), np.float32))[0], [[5, 6], [5, 6]])


SCAN = helper.make_graph(
    [node("Add", "s e", "t"), node("Identity", "t", "o")],
    "body",
    values("s float32[m]; e float32[m]"),
    values("t float32[m]; o float32[m]"),
)
IDF: dict[str, Any] = {"mode": "TF", "min_gram_length": 1, "max_gram_length": 2, "pool_int64s": [1, 2, 3, 4],
                       "ngram_counts": [0, 2], "ngram_indexes": [0, 1, 2], "max_skip_count": 0}  # fmt: skip
DEFORMED = "x float32[1,1,h,w]; f float32[1,8,p,q]"


@pytest.mark.parametrize(
    ("bad", "inputs", "words"),
    [
        (node("Scan", "s x", "y z", body=SCAN, num_scan_inputs=1, scan_input_axes=["a"]),
         "s float32[m]; x float32[n,m]", "`scan_input_axes` must be a list of int"),
        (node("Scan", "s x", "y z", body=SCAN, num_scan_inputs=1, scan_output_axes=[0.5]),
         "s float32[m]; x float32[n,m]", "`scan_output_axes` must be a list of int"),
        (node("Scan", "s x", "y z", body=SCAN, num_scan_inputs=2**62), "s float32[m]; x float32[n,m]", "scan inputs"),
        (node("TfIdfVectorizer", "x", "y", **(IDF | {"ngram_indexes": [0, 1, -2]})), "x int64[n]", "none below 0"),
        (node("TfIdfVectorizer", "x", "y", **(IDF | {"ngram_indexes": [0, 1]})), "x int64[n]", "must be 3 columns"),
        (node("TfIdfVectorizer", "x", "y", **(IDF | {"ngram_indexes": [0, 1, 2**40]})), "x int64[n]", "3 n-grams in"),
        (node("TfIdfVectorizer", "x", "y", **(IDF | {"ngram_counts": [0, 3]})), "x int64[n]", "does not divide"),
        (node("TfIdfVectorizer", "x", "y", **(IDF | {"max_skip_count": 2**62})), "x int64[n]", "max_skip_count"),
        (node("DeformConv", "x k f", "y", dilations=[0]), DEFORMED, "`dilations` must have 2 elements, got 1"),
        (node("DeformConv", "x k f", "y", pads=[1]), DEFORMED, "`pads` must have 4 elements, got 1"),
        (node("GRU", "x a b", "y", hidden_size=2**62), "x float32[s,n,i]; a float32[1,g,i]; b float32[1,g,h]", "hidden"),
        (node("Split", "x", "y z", axis=0, num_outputs=2**31), "x float32[n]", "`num_outputs` is 2147483648"),
        (node("Resize", "x _ r", "y"), "x float32[1]", "finite number above 0"),
        (node("Relu", "x x", "y"), "x float32[n]", "input 1 `x` is one too many"),
        (node("Relu", "x", "y z"), "x float32[n]", "output 1 `z` is one too many"),
    ],
    ids=lambda v: v.op_type if isinstance(v, NodeProto) else "",
)  # fmt: skip
def test_what_attributes_claim(bad: NodeProto, inputs: str, words: str) -> None:
    consts = {"k": np.ones((1, 1, 2, 2), np.float32), "r": f32([np.nan])}
    with pytest.raises(RelaxirError, match=words) as caught:
        from_onnx(model([bad], inputs, "y float32", **{k: v for k, v in consts.items() if k in bad.input}))
    assert f"({bad.op_type})" in caught.value.message


def test_a_billion_sizes_that_are_known_only_at_run_time() -> None:
    nodes = [node("Expand", "one many", "s"), node("Reshape", "x s", "y")]
    with pytest.raises(UnsupportedError, match=r"node `y` \(Reshape\): 1073741824 sizes"):
        from_onnx(model(nodes, "x float32[n]", "y float32", one=i64([1]), many=i64([2**30])))


def test_attributes_of_functions_outside_of_functions() -> None:
    alone = node("LeakyRelu", "x", "y")
    alone.attribute.append(onnx.AttributeProto(name="alpha", type=onnx.AttributeProto.FLOAT, ref_attr_name="slope"))
    with pytest.raises(LoadError, match="attribute `alpha` is that of a function"):
        from_onnx(model([alone], "x float32[n]", "y float32"))


def test_long_names_do_not_flood_messages() -> None:
    with pytest.raises(LoadError) as caught:
        from_onnx(model([node("Relu", "q" * 10**6, "y")], "x float32[n]", "y float32"))
    assert "node `y` (Relu) reads `qqq" in str(caught.value)
    assert len(str(caught.value)) < 10_000


def test_thousands_of_unknown_nodes_are_listed_in_time_that_grows_with_them() -> None:
    nodes = [node("Foo", "x", f"y{i}") for i in range(20_000)]
    with pytest.raises(UnsupportedError, match="20000 nodes"):
        from_onnx(model(nodes, "x float32[n]", "y0 float32"))
