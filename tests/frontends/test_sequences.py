"""Sequences and optionals: they exist at import only, whatever the sizes of their tensors."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, NodeProto

from relaxir.frontends.onnx import from_onnx
from relaxir.ir.expr import Array
from relaxir.support.errors import LoadError, RuntimeIndexError, RuntimeShapeError, UnsupportedError
from tests.frontends.models import f32, graph, i64, model, node, run

A, B, C = (np.full((2, k), k, np.float32) for k in (1, 3, 2))
THREE = "a float32[n,p]; b float32[n,q]; c float32[n,r]"
ABC = node("SequenceConstruct", "a b c", "s")


def of_three(*nodes: NodeProto, **constants: Any) -> ModelProto:
    return model([ABC, *nodes], THREE, "y float32", 17, **constants)


CASES: dict[str, tuple[ModelProto, Array]] = {
    "at": (of_three(node("SequenceAt", "s i", "y"), i=i64(1)), B),
    "at, from the end": (of_three(node("SequenceAt", "s i", "y"), i=i64(-1)), C),
    "joined": (of_three(node("ConcatFromSequence", "s", "y", axis=1)), np.concatenate([A, B, C], 1)),
    "erased": (
        of_three(node("SequenceErase", "s i", "t"), node("ConcatFromSequence", "t", "y", axis=-1), i=i64(0)),
        np.concatenate([B, C], 1),
    ),
    "last erased": (
        of_three(node("SequenceErase", "s", "t"), node("ConcatFromSequence", "t", "y", axis=-1)),
        np.concatenate([A, B], 1),
    ),
    "inserted": (
        of_three(
            node("SequenceInsert", "s a i", "t"), node("SequenceInsert", "t b", "u"),
            node("ConcatFromSequence", "u", "y", axis=-1), i=i64(-1),
        ),
        np.concatenate([A, B, A, C, B], 1),
    ),
    "from nothing": (
        model(
            [node("SequenceEmpty", "", "e"), node("SequenceInsert", "e a", "s"), node("SequenceAt", "s i", "y")],
            THREE, "y float32", 17, i=i64(0),
        ),
        A,
    ),
    "each": (
        of_three(
            node("SequenceMap", "s", "t", body=graph([node("Neg", "v", "w")], "v float32", "w float32")),
            node("ConcatFromSequence", "t", "y", axis=1),
        ),
        -np.concatenate([A, B, C], 1),
    ),
    "optional": (
        of_three(node("Optional", "s", "o"), node("OptionalGetElement", "o", "t"), node("SequenceAt", "t i", "y"), i=i64(2)),
        C,
    ),
    "branch": (
        of_three(
            node("SequenceConstruct", "b a c", "t"), node("Constant", "", "f", value_int=0), node("Cast", "f", "flag", to=9),
            node(
                "If", "flag", "u",
                then_branch=graph([node("Identity", "s", "p")], "", "p float32"),
                else_branch=graph([node("Identity", "t", "q")], "", "q float32"),
            ),
            node("SequenceAt", "u i", "y"), i=i64(0),
        ),
        B,
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_sequence(name: str) -> None:
    proto, want = CASES[name]
    np.testing.assert_array_equal(run(proto, a=A, b=B, c=C)[0], want)


X = np.arange(10, dtype=np.float32).reshape(2, 5)


@pytest.mark.parametrize("size", ["5", "n"])
def test_parts_of_one_size(size: str) -> None:
    """Also where the number of parts is a size of its own."""
    nodes = [
        node("SplitToSequence", "x k", "s", axis=1),
        node("SequenceAt", "s i", "y"),
        node("SequenceLength", "s", "l"),
    ]
    proto = model(nodes, f"x float32[2,{size}]", "y float32; l int64", 17, k=i64(2), i=i64(2))
    y, length = run(proto, x=X)
    np.testing.assert_array_equal(y, X[:, 4:])
    assert length == 3


def test_part_that_does_not_exist() -> None:
    nodes = [node("SplitToSequence", "x", "s", axis=1, keepdims=0), node("SequenceAt", "s i", "y")]
    proto = model(nodes, "x float32[2,n]", "y float32", 17, i=i64(3))
    np.testing.assert_array_equal(run(proto, x=X)[0], X[:, 3])
    with pytest.raises(RuntimeShapeError, match="part 3"):
        run(proto, x=X[:, :3])


@pytest.mark.parametrize("keepdims", [0, 1])
def test_positions_in_a_sequence_of_a_run_time_length(keepdims: int) -> None:
    """From the end, or known only at run time: where there is none, the call fails."""
    nodes = [node("SplitToSequence", "x", "s", axis=1, keepdims=keepdims), node("SequenceAt", "s i", "y")]
    for k in (-1, -3):
        proto = model(nodes, "x float32[2,n]", "y float32", 17, i=i64(k))
        np.testing.assert_array_equal(run(proto, x=X)[0].reshape(2), X[:, k])
        with pytest.raises(RuntimeShapeError, match="SequenceAt"):
            run(proto, x=X[:, : -k - 1])
    proto = model(nodes, "x float32[2,n]; i int64[]", "y float32", 17)
    for k in (0, 4, -1, -5):
        np.testing.assert_array_equal(run(proto, x=X, i=i64(k))[0].reshape(2), X[:, k])
    with pytest.raises(RuntimeIndexError, match="5"):
        run(proto, x=X, i=i64(5))


def test_shorter_last_part_from_the_end() -> None:
    nodes = [node("SplitToSequence", "x k", "s", axis=1), node("SequenceAt", "s i", "y")]
    proto = model(nodes, "x float32[2,n]", "y float32", 17, k=i64(2), i=i64(-1))
    np.testing.assert_array_equal(run(proto, x=X)[0], X[:, 4:])
    np.testing.assert_array_equal(run(proto, x=X[:, :4])[0], X[:, 2:4])


def test_run_time_position() -> None:
    nodes = [node("SequenceConstruct", "a b", "s"), node("SequenceAt", "s i", "y")]
    proto = model(nodes, "a float32[n]; b float32[n]; i int64[]", "y float32", 17)
    a, b = f32([1, 2]), f32([3, 4])
    for i, want in ((0, a), (1, b), (-1, b), (-2, a)):
        np.testing.assert_array_equal(run(proto, a=a, b=b, i=i64(i))[0], want)


@pytest.mark.parametrize("flag", [True, False])
def test_run_time_choice_of_sequences(flag: bool) -> None:
    branches = {
        f"{name}_branch": graph([node("SequenceConstruct", order, "p")], "", "p float32")
        for name, order in (("then", "a b"), ("else", "b a"))
    }
    nodes = [node("If", "f", "s", **branches), node("ConcatFromSequence", "s", "y", axis=0)]
    proto = model(nodes, "a float32[n]; b float32[n]; f bool[]", "y float32", 17)
    (got,) = run(proto, a=f32([1]), b=f32([2]), f=np.array(flag))
    np.testing.assert_array_equal(got, [1, 2] if flag else [2, 1])


def collecting(turns: str) -> ModelProto:
    """A loop that appends ``x * i`` in each turn."""
    body = graph(
        [node("Cast", "i", "f", to=1), node("Mul", "x f", "v"), node("SequenceInsert", "s v", "t"), node("Identity", "g", "h")],
        "i int64[]; g bool[]; s float32", "h bool; t float32",
    )  # fmt: skip
    nodes = [
        node("SequenceEmpty", "", "e"),
        node("Loop", "n _ e", "all", body=body),
        node("ConcatFromSequence", "all", "y", axis=0, new_axis=1),
    ]
    constants = {} if turns else {"n": i64(3)}
    return model(nodes, "x float32[k]" + turns, "y float32", 17, **constants)


def test_loop_that_collects() -> None:
    """Turn by turn where their number is constant, otherwise as rows of a loop."""
    want = [[0, 0], [1, 2], [2, 4]]
    np.testing.assert_array_equal(run(collecting(""), x=f32([1, 2]))[0], want)
    np.testing.assert_array_equal(run(collecting("; n int64[]"), x=f32([1, 2]), n=i64(3))[0], want)


def test_wrong_position() -> None:
    with pytest.raises(LoadError, match="position 3 is out of range for a sequence of 3"):
        from_onnx(of_three(node("SequenceAt", "s i", "y"), i=i64(3)))
    with pytest.raises(LoadError, match="is not a sequence"):
        from_onnx(model([node("SequenceLength", "x", "y")], "x float32[n]", "y int64"))
    with pytest.raises(UnsupportedError, match="a sequence where a tensor is needed"):
        from_onnx(of_three(node("Neg", "s", "y")))


def test_presence() -> None:
    nodes = [node("Optional", "x", "o"), node("OptionalHasElement", "o", "y"), node("OptionalHasElement", "", "z")]
    y, z = run(model(nodes, "x float32[n]", "y bool; z bool", 18), x=f32([1]))
    assert y and not z
