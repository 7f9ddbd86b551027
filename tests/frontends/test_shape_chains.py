"""Shape arithmetic by tensors becomes dimensions: no tensor of sizes is left in the program."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto, TensorProto, helper

from relaxir.frontends.onnx import from_onnx
from relaxir.ir.expr import Array
from tests.frontends.models import i64, main_of, model, node, op_names, run

FORBIDDEN = {"dims_to_tensor", "shape_of", "tensor_to_shape", "shape_to_tensor", "size"}
ONE = helper.make_tensor("one", TensorProto.INT64, [1], [1])
INPUT = "x float32[n,m,8]"
CONSTS: dict[str, Any] = {
    "zero": i64(0), "one": i64(1), "two": i64([2]), "minus": i64([-1]), "axis0": i64([0]), "axis1": i64([1]), "four": i64(4),
    "eight": i64([8]), "first": i64([0]), "last2": i64([1, 2]), "big": i64([2**63 - 1]), "rank": i64([3]),
}  # fmt: skip


def chain(*nodes: NodeProto, out: str = "y float32") -> ModelProto:
    return model([node("Shape", "x", "s"), *nodes], INPUT, out, **CONSTS)


def g(index: str, out: str) -> NodeProto:
    return node("Gather", f"s {index}", out, axis=0)


CHAINS: dict[str, tuple[ModelProto, Callable[[Array], Array]]] = {
    "merge heads": (
        chain(
            g("zero", "a"), g("one", "b"),
            node("Unsqueeze", "a axis0", "a1"), node("Unsqueeze", "b axis0", "b1"),
            node("Concat", "a1 b1 two minus", "t", axis=0), node("Reshape", "x t", "y"),
        ),
        lambda x: x.reshape(x.shape[0], x.shape[1], 2, 4),
    ),
    "product": (
        chain(g("zero", "a"), g("one", "b"), node("Mul", "a b", "p"), node("Unsqueeze", "p axis0", "p1"),
              node("Concat", "p1 eight", "t", axis=0), node("Reshape", "x t", "y")),
        lambda x: x.reshape(-1, 8),
    ),
    "slice of the shape": (
        chain(node("Slice", "s axis1 big axis0", "tail"), node("Concat", "minus tail", "t", axis=0), node("Reshape", "x t", "y")),
        lambda x: x.reshape(-1, *x.shape[1:]),
    ),
    "slice end by division": (
        chain(g("one", "b"), node("Div", "b four", "q"), node("Unsqueeze", "q axis0", "e"),
              node("Slice", "x first e axis1", "y")),
        lambda x: x[:, : x.shape[1] // 4],
    ),
    "cast to int32 and back": (
        chain(node("Cast", "s", "s32", to=TensorProto.INT32), node("Cast", "s32", "t", to=TensorProto.INT64), node("Reshape", "x t", "y")),
        lambda x: x,
    ),
    "zeros of the shape": (
        chain(node("ConstantOfShape", "s", "z"), node("Add", "x z", "y")),
        lambda x: x,
    ),
    "expand with where and equal": (
        chain(
            node("ConstantOfShape", "rank", "ones", value=ONE),
            node("Mul", "ones minus", "minus3"), node("Equal", "ones minus3", "is"),
            node("Where", "is ones ones", "w"), node("Mul", "w s", "t"), node("Expand", "x t", "y"),
        ),
        lambda x: x,
    ),
    "range over an axis": (
        chain(g("one", "b"), node("Range", "zero b one", "r"), node("Cast", "r", "rf", to=TensorProto.FLOAT),
              node("Unsqueeze", "rf axis1", "c"), node("Add", "x c", "y")),
        lambda x: x + np.arange(x.shape[1], dtype=np.float32)[:, None],
    ),
    "split of the shape": (
        chain(node("Split", "s", "p q r", axis=0, num_outputs=3), node("Concat", "q p r", "t", axis=0), node("Reshape", "x t", "y")),
        lambda x: x.reshape(x.shape[1], x.shape[0], 8),
    ),
    "transposed size": (
        chain(node("Gather", "s last2", "t", axis=0), node("ReduceProd", "t", "p", keepdims=1), node("Concat", "minus p", "u", axis=0),
              node("Reshape", "x u", "y")),
        lambda x: x.reshape(x.shape[0], -1),
    ),
    "size": (
        chain(node("Size", "x", "k"), node("Unsqueeze", "k axis0", "t"), node("Reshape", "x t", "y")),
        lambda x: x.reshape(-1),
    ),
    "scatter into the shape": (
        chain(node("ScatterElements", "s axis1 minus", "t", axis=0), node("Reshape", "x t", "y")),
        lambda x: x,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CHAINS)
def test_becomes_dimensions(name: str) -> None:
    proto, expected = CHAINS[name]
    names = op_names(from_onnx(proto))
    assert not FORBIDDEN & set(names), names
    for n, m in ((2, 5), (1, 1), (3, 8), (2, 0)):
        x = np.arange(n * m * 8, dtype=np.float32).reshape(n, m, 8)
        if n * m == 0 and "reshape" in names and name in ("slice of the shape", "transposed size"):
            continue  # -1 beside an empty axis has no meaning
        (y,) = run(proto, x=x)
        np.testing.assert_array_equal(y, expected(x))


def test_result_of_shape_arithmetic_as_data() -> None:
    """A shape that the model returns is written once, from dimensions."""
    proto = model([node("Shape", "x", "s"), node("Mul", "s two", "y")], INPUT, "y int64", **CONSTS)
    module = from_onnx(proto)
    assert op_names(module) == ["dims_to_tensor"]
    assert str(main_of(module).ret) == 'R.Tensor((3,), "i64")'
    np.testing.assert_array_equal(run(proto, x=np.zeros((3, 4, 8), np.float32))[0], [6, 8, 16])


def test_comparison_of_dimensions_that_is_open_stays_data() -> None:
    proto = chain(g("zero", "a"), g("one", "b"), node("Equal", "a b", "y"), out="y bool")
    for n, m in ((2, 2), (2, 3)):
        (y,) = run(proto, x=np.zeros((n, m, 8), np.float32))
        assert bool(y) == (n == m)
