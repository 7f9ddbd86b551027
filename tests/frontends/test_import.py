"""What an imported module looks like: parameters, symbols, results, opset forms."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

import relaxir as rx
from relaxir.frontends.onnx import from_onnx
from relaxir.ir.expr import Array
from relaxir.runtime.interp import evaluate
from relaxir.support.errors import ArgumentError, InferError, SymError, UnsupportedError
from tests.frontends.models import f32, graph, i64, main_of, model, node, op_names, run

TWO = model(
    [node("Add", "x y", "sum"), node("Relu", "x", "pos")], "x float32[n,3]; y float32[n,1]", "sum float32; pos float32"
)


def test_names_and_symbols() -> None:
    func = main_of(from_onnx(TWO))
    assert [p.name for p in func.params] == ["x", "y"]
    assert [str(p.type) for p in func.params] == ['R.Tensor((n, 3), "f32")', 'R.Tensor((n, 1), "f32")']
    assert func.attrs["output_names"] == ("sum", "pos")
    assert func.params[0].type.shape[0] == func.params[1].type.shape[0]  # type: ignore[attr-defined]  # they are tensors


def test_path_bytes_and_proto_agree(tmp_path: Any) -> None:
    path = tmp_path / "m.onnx"
    onnx.save(TWO, path)
    bodies = {str(from_onnx(m)).replace("m.onnx", "main").replace('source="model"', 'source="main"') for m in
              (TWO, str(path), path, TWO.SerializeToString())}  # fmt: skip
    assert len(bodies) == 1


@pytest.mark.parametrize("key", ["n", "x:0"])
def test_dims(key: str) -> None:
    proto = model([node("Relu", "x", "y")], "x float32[n,3]", "y float32")
    func = main_of(from_onnx(proto, dims={key: rx.dim("b", min=4, multiple_of=4)}))
    (symbol,) = func.params[0].type.shape[:1]  # type: ignore[attr-defined]  # it is a tensor
    assert (symbol.name, symbol.min) == ("b", 4)
    assert str(main_of(from_onnx(proto, dims={key: 5})).params[0].type) == 'R.Tensor((5, 3), "f32")'


def test_dims_of_a_fixed_axis() -> None:
    proto = model([node("Relu", "x", "y")], "x float32[n,3]", "y float32")
    types = [str(main_of(from_onnx(proto, dims={"x:1": d})).params[0].type) for d in (rx.dim("k"), 3)]
    assert types == ['R.Tensor((n, k), "f32")', 'R.Tensor((n, 3), "f32")']
    with pytest.raises(ArgumentError, match="axis 1 of input `x` is 3 in the model, and 5 is asked for"):
        from_onnx(proto, dims={"x:1": 5})
    with pytest.raises(ArgumentError, match="`n` and `x:0` are one dimension, given twice"):
        from_onnx(proto, dims={"n": 4, "x:0": 4})


@pytest.mark.parametrize("wrong", ["8", 2.5, None])
def test_dims_that_are_none(wrong: Any) -> None:
    with pytest.raises(SymError, match="dims: `n`"):
        from_onnx(TWO, dims={"n": wrong})


def test_unknown_dims() -> None:
    with pytest.raises(ArgumentError, match="no dimension `batch`") as caught:
        from_onnx(TWO, dims={"batch": 3})
    assert caught.value.code == "argument-name"
    assert caught.value.help.startswith("it has n")


def test_unnamed_dimensions_are_different() -> None:
    proto = model([node("Relu", "x", "y")], "x float32[a,b,c]", "y float32")
    dims = proto.graph.input[0].type.tensor_type.shape.dim
    dims[0].ClearField("dim_param")
    dims[1].dim_param = "?"
    dims[2].dim_param = "2*seq + 1"
    shape = main_of(from_onnx(proto)).params[0].type.shape  # type: ignore[attr-defined]  # it is a tensor
    assert len({d.name for d in shape}) == 3


def test_refuted_dimension_is_an_error() -> None:
    proto = model([node("Add", "x c", "y")], "x float32[n,3]", "y float32", c=f32([1, 2, 3, 4]))
    with pytest.raises(InferError, match="`y`"):
        from_onnx(proto)


@pytest.mark.parametrize("opset", [0, 99])
def test_opset_outside(opset: int) -> None:
    with pytest.raises(UnsupportedError, match=f"opset {opset}"):
        from_onnx(model([node("Relu", "x", "y")], "x float32[n]", "y float32", opset))


X = np.arange(12, dtype=np.float32).reshape(3, 1, 4) - 5
FORMS: dict[str, tuple[int, list[Any], dict[str, Array], Array]] = {
    "clip 6": (7, [node("Clip", "x", "y", min=-1.0, max=2.0)], {}, X.clip(-1, 2)),
    "clip 11": (11, [node("Clip", "x lo hi", "y")], {"lo": f32(-1), "hi": f32(2)}, X.clip(-1, 2)),
    "clip, one bound": (13, [node("Clip", "x _ hi", "y")], {"hi": f32(2)}, X.clip(None, 2)),
    "clip, none": (13, [node("Clip", "x", "y")], {}, X),
    "squeeze 1": (11, [node("Squeeze", "x", "y", axes=[1])], {}, X[:, 0]),
    "squeeze 13": (13, [node("Squeeze", "x a", "y")], {"a": i64([-2])}, X[:, 0]),
    "unsqueeze 1": (11, [node("Unsqueeze", "x", "y", axes=[0, 4])], {}, X[None, ..., None]),
    "unsqueeze 13": (13, [node("Unsqueeze", "x a", "y")], {"a": i64([-1, 0])}, X[None, ..., None]),
    "sum 1": (11, [node("ReduceSum", "x", "y", axes=[0], keepdims=0)], {}, X.sum(0)),
    "sum 13": (13, [node("ReduceSum", "x a", "y", keepdims=0)], {"a": i64([0])}, X.sum(0)),
    "mean 13": (17, [node("ReduceMean", "x", "y", axes=[-1])], {}, X.mean(-1, keepdims=True)),
    "mean 18": (18, [node("ReduceMean", "x a", "y")], {"a": i64([-1])}, X.mean(-1, keepdims=True)),
    "mean of all": (18, [node("ReduceMean", "x", "y", keepdims=0)], {}, X.mean()),
    "max, no axes": (18, [node("ReduceMax", "x a", "y", noop_with_empty_axes=1)], {"a": i64([])}, X),
    "square sum, no axes": (18, [node("ReduceSumSquare", "x", "y", noop_with_empty_axes=1)], {}, X * X),
    "slice 1": (9, [node("Slice", "x", "y", starts=[1], ends=[99], axes=[2])], {}, X[..., 1:]),
    "slice 10": (10, [node("Slice", "x s e a", "y")], {"s": i64([1]), "e": i64([99]), "a": i64([2])}, X[..., 1:]),
    "slice, int32": (13, [node("Slice", "x s e", "y")], {"s": np.array([1], np.int32), "e": np.array([-1], np.int32)}, X[1:-1]),
    "pad 2": (7, [node("Pad", "x", "y", pads=[0, 0, 1, 0, 0, 0], value=3.0)], {}, np.pad(X, ((0, 0), (0, 0), (1, 0)), constant_values=3)),
    "pad 11": (11, [node("Pad", "x p v", "y")], {"p": i64([0, 0, 1, 0, 0, 0]), "v": f32(3)}, np.pad(X, ((0, 0), (0, 0), (1, 0)), constant_values=3)),
    "split 2": (11, [node("Split", "x", "y z", axis=2, split=[1, 3])], {}, X[..., :1]),
    "split 13": (13, [node("Split", "x k", "y z", axis=-1)], {"k": i64([1, 3])}, X[..., :1]),
    "split, equal": (13, [node("Split", "x", "y z", axis=2)], {}, X[..., :2]),
    "split 18, last smaller": (18, [node("Split", "x", "z y", axis=0, num_outputs=2)], {}, X[2:]),
    "softmax 1": (11, [node("Softmax", "x", "y", axis=1)], {}, np.exp(X - X.max((1, 2), keepdims=True)) / np.exp(X - X.max((1, 2), keepdims=True)).sum((1, 2), keepdims=True)),
    "softmax 13": (13, [node("Softmax", "x", "y")], {}, np.exp(X - X.max(-1, keepdims=True)) / np.exp(X - X.max(-1, keepdims=True)).sum(-1, keepdims=True)),
    "dropout": (13, [node("Dropout", "x", "y")], {}, X),
    "cast": (13, [node("Cast", "x", "i", to=TensorProto.INT32), node("Cast", "i", "y", to=TensorProto.FLOAT)], {}, np.trunc(X)),
    "upsample 9": (9, [node("Upsample", "x s", "y", mode="nearest")], {"s": f32([1, 1, 2])}, X.repeat(2, -1)),
    "resize 10": (10, [node("Resize", "x s", "y", mode="nearest")], {"s": f32([1, 1, 2])}, X.repeat(2, -1)),
    "topk 10": (10, [node("TopK", "x k", "y i", axis=0)], {"k": i64([1])}, X[2:]),
    "gemm": (13, [node("Reshape", "x t", "m"), node("Gemm", "m m c", "y", transB=1, alpha=0.5, beta=2.0)], {"t": i64([3, 4]), "c": f32([1])}, 0.5 * X[:, 0] @ X[:, 0].T + 2),
    "pow of ints": (15, [node("Cast", "x", "i", to=TensorProto.INT64), node("Pow", "i e", "p"), node("Cast", "p", "y", to=TensorProto.FLOAT)], {"e": f32(2)}, X * X),
    "mod": (13, [node("Mod", "x d", "y", fmod=1)], {"d": f32(3)}, np.fmod(X, 3)),
    "shape of a part": (15, [node("Shape", "x", "s", start=-2), node("Cast", "s", "y", to=TensorProto.FLOAT)], {}, f32([1, 4])),
    "constants": (13, [node("Constant", "", "c", value_floats=[1.0, 2.0, 3.0, 4.0]), node("Add", "x c", "y")], {}, X + f32([1, 2, 3, 4])),
    "function body": (18, [node("Celu", "x", "y", alpha=2.0)], {}, np.maximum(X, 0) + np.minimum(0, 2 * np.expm1(X / 2))),
    "domain ai.onnx": (18, [helper.make_node("Relu", ["x"], ["y"], domain="ai.onnx")], {}, np.maximum(X, 0)),
}  # fmt: skip


@pytest.mark.parametrize("name", FORMS)
def test_opset_forms(name: str) -> None:
    opset, nodes, consts, want = FORMS[name]
    proto = model(
        nodes, "x float32[a,b,c]" if "squeeze" not in name else "x float32[a,1,c]", "y float32", opset, **consts
    )
    (got,) = run(proto, x=X)
    assert got.dtype == want.dtype
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_if_on_a_known_condition_takes_a_branch() -> None:
    then, other = graph([node("Relu", "x", "t")], "", "t float32"), graph([node("Neg", "x", "e")], "", "e float32")
    nodes = [
        node("Shape", "x", "s"),
        node("Size", "s", "r"),
        node("Equal", "r two", "c"),
        node("If", "c", "y", then_branch=then, else_branch=other),
    ]
    module = from_onnx(model(nodes, "x float32[a,b]", "y float32", two=i64(2)))
    assert op_names(module) == ["relu"]


def test_if_at_run_time() -> None:
    then, other = graph([node("Relu", "x", "t")], "", "t float32"), graph([node("Neg", "x", "e")], "", "e float32")
    proto = model([node("If", "c", "y", then_branch=then, else_branch=other)], "x float32[n]; c bool[]", "y float32")
    for flag in (True, False):
        x = f32([-1, 2])
        np.testing.assert_array_equal(run(proto, x=x, c=np.array(flag))[0], np.maximum(x, 0) if flag else -x)


def test_local_functions_are_expanded() -> None:
    body = helper.make_function("own", "Twice", ["a"], ["b"], [node("Add", "a a", "b")], [helper.make_opsetid("", 18)])
    nodes = [
        helper.make_node("Twice", ["x"], ["h"], domain="own"),
        helper.make_node("Twice", ["h"], ["y"], domain="own"),
    ]
    made = model(nodes, "x float32[n]", "y float32")
    made.opset_import.add(domain="own", version=1)
    made.functions.append(body)
    np.testing.assert_array_equal(run(made, x=f32([1, 2]))[0], [4, 8])


def test_text_round_trip() -> None:
    module = from_onnx(TWO)
    again = rx.parse(str(module))
    assert str(again) == str(module)
    x, y = np.ones((2, 3), np.float32), np.ones((2, 1), np.float32)
    for a, b in zip(evaluate(module, "main", x, y), evaluate(again, "main", x, y), strict=True):
        np.testing.assert_array_equal(a, b)
