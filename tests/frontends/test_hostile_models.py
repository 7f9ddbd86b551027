"""Models built to harm: nesting, recursion, names, sizes and files that only a hostile or broken writer makes."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Final

import numpy as np
import pytest
from onnx import FunctionProto, GraphProto, ModelProto, NodeProto, TensorProto, helper, numpy_helper

import relaxir as rx
from relaxir.frontends.onnx import from_onnx
from relaxir.frontends.onnx.load import MAX_DEPTH
from relaxir.support.errors import LoadError, RelaxirError, RuntimeFailure, UnsupportedError
from tests.frontends.bases import externalized
from tests.frontends.models import f32, graph, i64, model, node, run

VECTOR: Final = "x float32[n]"
RESULT: Final = "y float32"


def relu() -> ModelProto:
    """The smallest good model."""
    return model([node("Relu", "x", "y")], VECTOR, RESULT)


def nested(depth: int) -> ModelProto:
    """An If in an If in an If."""
    made = model([], f"{VECTOR}; c bool[]", RESULT)
    inner: GraphProto = made.graph
    for i in range(depth):
        branch = inner.node.add(op_type="If", input=["c"], output=[f"y{i}" if i else "y"], name=f"If{i}")
        other = branch.attribute.add(name="else_branch", type=5)
        other.g.CopyFrom(graph([node("Exp", "x", "e")], "", "e float32"))
        inner = branch.attribute.add(name="then_branch", type=5).g
        inner.output.add(name=f"y{i + 1}")
    inner.node.add(op_type="Relu", input=["x"], output=[f"y{depth}"])
    return made


def test_nesting_up_to_the_limit_runs() -> None:
    main = rx.compile(from_onnx(nested(MAX_DEPTH)), cache=False)["main"]
    np.testing.assert_array_equal(main(f32([-1, 2]), np.array(True)), [0, 2])


@pytest.mark.parametrize("depth", [MAX_DEPTH + 1, 200])
def test_deeper_nesting_is_refused(depth: int) -> None:
    with pytest.raises(LoadError, match=rf"`If{MAX_DEPTH}` .If.: subgraphs are nested"):
        from_onnx(nested(depth))
    with pytest.raises(LoadError, match="`model` is not an ONNX file"):  # the format itself goes no deeper
        from_onnx(nested(depth + 1).SerializeToString())


# ---- functions of the model ------------------------------------------------------------------------------------------


def local(name: str, operands: str, result: str, label: str = "") -> NodeProto:
    """A call of a function of the model."""
    made = node(name, operands, result, name=label)
    made.domain = "local"
    return made


def function(name: str, *nodes: NodeProto) -> FunctionProto:
    """A function from ``x`` to ``y``."""
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    return helper.make_function("local", name, ["x"], ["y"], nodes, opsets)


def calling(*functions: FunctionProto) -> ModelProto:
    """A model that calls the first function."""
    made = model([local(functions[0].name, "x", "y", "call")], VECTOR, RESULT)
    made.functions.extend(functions)
    made.opset_import.append(helper.make_opsetid("local", 1))
    return made


LEAF: Final = node("Relu", "x", "y")
FUNCTIONS: dict[str, tuple[list[FunctionProto], str]] = {
    "itself": ([function("f", local("f", "x", "y", "again"))], "`again` .local::f.: the function calls itself"),
    "each other": (
        [function("f", local("g", "x", "y", "down")), function("g", local("f", "x", "y", "up"))],
        "`up` .local::f.: the function calls itself",
    ),
    "twice": ([function("f", LEAF), function("f", LEAF)], "function `local::f` twice"),
    "long chain": (
        [function(f"f{i}", local(f"f{i + 1}", "x", "y", f"call{i}")) for i in range(300)] + [function("f300", LEAF)],
        r"`call\d+` .local::f\d+.: functions call each other more than",
    ),
    "doubling": (
        [function(f"f{i}", local(f"f{i + 1}", "x", "a", "one"), local(f"f{i + 1}", "a", "y", "two")) for i in range(40)]
        + [function("f40", LEAF)],
        r"`two` .local::f\d+.: functions expand to more than",
    ),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions_that_do_not_end(name: str) -> None:
    functions, words = FUNCTIONS[name]
    with pytest.raises(LoadError, match=words):
        from_onnx(calling(*functions))


def test_functions_that_end() -> None:
    made = calling(function("f", local("g", "x", "a"), local("g", "a", "y")), function("g", node("Add", "x x", "y")))
    np.testing.assert_array_equal(run(made, x=f32([1, 2]))[0], [4, 8])


# ---- single claims ---------------------------------------------------------------------------------------------------


def edited(change: Callable[[ModelProto], object]) -> ModelProto:
    """The good model, changed."""
    made = relu()
    change(made)
    return made


def sparse(m: ModelProto) -> None:
    made = m.graph.sparse_initializer.add(dims=[2**40])
    made.values.CopyFrom(numpy_helper.from_array(f32([1]), "w"))
    made.indices.CopyFrom(numpy_helper.from_array(i64([0]), "at"))
    m.graph.node[0].op_type = "Add"
    m.graph.node[0].input.append("w")


def claimed(dims: list[int]) -> ModelProto:
    tensor = TensorProto(name="t", data_type=TensorProto.FLOAT, dims=dims, float_data=[1])
    return model([node("Constant", "", "y", name="const", value=tensor)], VECTOR, RESULT)


SLICE: Final = {"a": i64([0]), "e": i64([2**62]), "s": i64([-(2**63)])}
CLAIMS: dict[str, tuple[ModelProto, str]] = {
    "sparse": (edited(sparse), "initializer `w` is sparse"),
    "opset": (edited(lambda m: m.opset_import[0].__setattr__("version", 2**62)), f"opset {2**62} of `main`"),
    "negative opset": (edited(lambda m: m.opset_import[0].__setattr__("version", -1)), "opset -1 of `main`"),
    "lost output": (edited(lambda m: m.graph.node[0].output.__setitem__(0, "")), "`y` is defined by nothing"),
    "no inputs": (edited(lambda m: m.graph.node[0].input.pop()), "`y` .Relu.*input 0"),
    "input of many axes": (model([LEAF], f"x float32[{','.join('n' * 99)}]", RESULT), "`x` has rank 99"),
    "huge input": (model([LEAF], f"x float32[{2**40},{2**40}]", RESULT), "`x` has an absurd shape"),
    "constant of many axes": (claimed([1] * 99), "`const` .Constant.: tensor `t` has rank 99"),
    "constant of many elements": (claimed([2**40]), "`const` .Constant.: tensor `t` has 1 elements"),
    "constant of negative size": (claimed([-1, -1]), "`const` .Constant.: tensor `t` has a negative"),
    "index of a shape": (
        model([node("Shape", "x", "s"), node("Gather", "s i", "y", name="pick")], VECTOR, "y int64", i=i64([7])),
        "`pick` .Gather.*index 7 is out of range.*extent 1",
    ),
    "axis of a shape": (
        model([node("Shape", "x", "s"), node("ReduceMax", "s i", "y", name="most")], VECTOR, "y int64", i=i64([7])),
        "`most` .ReduceMax.*axis 7",
    ),
    "axis of a size": (
        model([node("Size", "x", "s"), node("ReduceSum", "s i", "y", name="all")], VECTOR, "y int64", i=i64([0])),
        "`all` .ReduceSum.*axis 0",
    ),
    "einsum": (model([node("Einsum", "x", "y", equation="i" * 60)], VECTOR, RESULT), "`y` .Einsum."),
    "repeats": (
        model([node("Tile", "x p", "a"), node("Tile", "a p", "y")], "x float32[3]", RESULT, p=i64([2**62])),
        "`a` .Tile.",
    ),
    "concatenated claims": (
        model([node("Expand", "x p", "a"), node("Concat", "a a a", "y", axis=0)], "x float32[1]", RESULT, p=i64([2**62])),
        "`y` .Concat.",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CLAIMS)
def test_claims(name: str) -> None:
    proto, words = CLAIMS[name]
    with pytest.raises(RelaxirError, match=words):
        from_onnx(proto)


def test_errors_list_the_tensors_of_a_node() -> None:
    proto = model([node("MatMul", "x w", "y", name="fc")], "x float32[n,4]", RESULT, w=np.ones((5, 2), np.float32))
    with pytest.raises(RelaxirError, match=r"`fc` .MatMul.") as caught:
        from_onnx(proto)
    assert "the node reads `x` f32[n, 4], `w` f32[5, 2] and gives `y`" in caught.value.notes


def test_failures_of_calls_name_the_node() -> None:
    nodes = [node("MatMul", "x w", "h", name="100%/fc{}"), node("Add", "h x", "y", name="/add")]
    proto = model(nodes, "x float32[n,k]", RESULT, w=np.ones((4, 4), np.float32))
    main = rx.compile(from_onnx(proto), cache=False)["main"]
    np.testing.assert_array_equal(main(np.ones((2, 4), np.float32)), np.full((2, 4), 5))
    with pytest.raises(RelaxirError, match=r"k is 3; in main \(node `100%/fc\{\}` \(MatMul\)\)"):
        main(np.ones((2, 3), np.float32))


@pytest.mark.parametrize("pads", [[2**62, 2**62], [2**60, 0]])
def test_sizes_beyond_memory_fail_the_call(pads: list[int]) -> None:
    main = rx.compile(from_onnx(model([node("Pad", "x p", "y")], VECTOR, RESULT, p=i64(pads))), cache=False)["main"]
    with pytest.raises(RuntimeFailure, match="main: "):
        main(f32([1, 2]))


def test_long_and_odd_names() -> None:
    for name in ("x" * 100_000, "名", "a b", "\n", "def", "%lld", "{}", "`"):
        proto = model([node("Relu", "x", "y")], "x float32[k]", "y float32[k]")
        proto.graph.node[0].input[0] = proto.graph.input[0].name = name
        proto.graph.input[0].type.tensor_type.shape.dim[0].dim_param = name
        main = rx.compile(from_onnx(proto), cache=False)["main"]
        np.testing.assert_array_equal(main(f32([-1, 1])), [0, 1])


def test_long_models_are_linear() -> None:
    count = 6000
    nodes = [node("Add", f"v{i} x", f"v{i + 1}") for i in range(count)]
    nodes[0].input[0] = "x"
    module = from_onnx(model(nodes, VECTOR, f"v{count} float32"))
    assert len(module["main"].body.bindings) >= count  # type: ignore[union-attr]  # a graph function


# ---- files -----------------------------------------------------------------------------------------------------------


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.onnx")
    for path in (tmp_path / "pipe.onnx", Path("/dev/zero"), tmp_path):
        with pytest.raises(LoadError, match=r"cannot read .*regular file"):
            from_onnx(path)


def save(folder: Path, proto: ModelProto, data: bytes) -> Path:
    """A model and the file beside it."""
    (folder / "model.onnx").write_bytes(proto.SerializeToString())
    (folder / "weights.bin").write_bytes(data)
    return folder / "model.onnx"


def test_external_tensors_may_share_bytes_but_not_overlap(tmp_path: Path) -> None:
    """A small file cannot fill the memory: what is shared is read once, what overlaps is refused."""
    count = 400
    sums = [node("Add", f"v{i} w{i}", f"v{i + 1}") for i in range(count)]
    stored = {f"w{i}": f32([1]) for i in range(count)}
    proto, _ = externalized(model(sums, "v0 float32[n]", f"v{count} float32", **stored))
    for tensor in proto.graph.initializer:
        tensor.dims[:] = [1024]
        for entry in tensor.external_data:
            entry.value = {"offset": "0", "length": "4096"}.get(entry.key, entry.value)
    from_onnx(save(tmp_path, proto, bytes(8192)))
    for i, tensor in enumerate(proto.graph.initializer):
        for entry in tensor.external_data:
            entry.value = str(4 * i) if entry.key == "offset" else entry.value
    with pytest.raises(LoadError, match=r"tensor `w2`: tensors overlap in `weights.bin`"):
        from_onnx(save(tmp_path, proto, bytes(8192)))


def test_external_data_is_no_device_and_no_pipe(tmp_path: Path) -> None:
    proto, data = externalized(model([node("Add", "x w", "y")], VECTOR, RESULT, w=f32([1, 2])))
    path = save(tmp_path, proto, data)
    for make in (os.mkfifo, lambda p: p.symlink_to("/dev/zero"), Path.mkdir):
        (tmp_path / "weights.bin").unlink()
        make(tmp_path / "weights.bin")
        with pytest.raises(LoadError, match="tensor `w`"):
            from_onnx(path)
        if (tmp_path / "weights.bin").is_dir():
            break


def test_unsupported_sparse_constants_name_the_node() -> None:
    made = node("Constant", "", "y", name="const")
    attribute = made.attribute.add(name="sparse_value", type=11)
    attribute.sparse_tensor.values.CopyFrom(numpy_helper.from_array(f32([1]), "v"))
    with pytest.raises(UnsupportedError, match=r"`const` .Constant."):
        from_onnx(model([made], VECTOR, RESULT))
