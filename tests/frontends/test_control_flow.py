"""Loop, Scan, LSTM, GRU and RNN of ONNX against onnxruntime."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import GraphProto, ModelProto, helper, numpy_helper

from relaxir.api import compile as rx_compile
from relaxir.frontends.onnx import from_onnx
from relaxir.support.errors import RuntimeShapeError
from tests.frontends.models import f32, i64, model, node, values

RNG = np.random.default_rng(4)


def agree(proto: ModelProto, *feeds: dict[str, Any]) -> None:
    """Compile once, and compare for all feeds."""
    main = rx_compile(from_onnx(proto))["main"]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    for feed in feeds:
        got, want = main(**feed), session.run(None, feed)
        for g, w in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape)
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)


def body(nodes: list[Any], inputs: str, outputs: str, **consts: Any) -> GraphProto:
    stored = [numpy_helper.from_array(np.asarray(v), k) for k, v in consts.items()]
    return helper.make_graph(nodes, "body", values(inputs), values(outputs), stored)


def test_loop_that_grows() -> None:
    inner = body(
        [
            node("Identity", "go_in", "on"),
            node("Concat", "v x", "longer", axis=0),
            node("ReduceSum", "longer", "total", keepdims=0),
        ],
        "i int64[]; go_in bool[]; v float32[k]",
        "on bool[]; longer float32[j]; total float32[]",
    )
    proto = model([node("Loop", "trips go x", "last sums", body=inner)], "x float32[n]; trips int64[]; go bool[]",
                  "last float32[m]; sums float32[t]")  # fmt: skip
    agree(
        proto,
        *({"x": RNG.normal(size=n).astype(np.float32), "trips": i64(t), "go": np.array(go)}
          for n, t, go in ((2, 3, True), (1, 0, True), (3, 4, False), (4, -1, True))),
    )  # fmt: skip


def test_loop_that_reads_sizes() -> None:
    """A slice whose end is the iteration's number, and a value around the loop seen as a size in it."""
    inner = body(
        [
            node("Less", "i limit", "go"),
            node("Add", "i one", "next"),
            node("Unsqueeze", "next zero", "stop"),
            node("Slice", "x zero stop", "head"),
            node("ReduceSum", "head", "total", keepdims=0),
            node("Add", "acc total", "sum"),
        ],
        "i int64[]; go_in bool[]; acc float32[]",
        "go bool[]; sum float32[]; total float32[]",
        one=i64(1),
        zero=i64([0]),
    )
    proto = model([node("Loop", "_ _ start", "last sums", body=inner)], "x float32[n]; limit int64[]",
                  "last float32[]; sums float32[t]", start=f32(0.5))  # fmt: skip
    agree(proto, *({"x": RNG.normal(size=6).astype(np.float32), "limit": i64(k)} for k in (0, 3, 5)))


@pytest.mark.parametrize("attrs", [{"axis": 0}, {"axis": 1}, {"axis": 0, "new_axis": 1}, {"axis": -1, "new_axis": 1}])
def test_loop_that_appends_to_a_sequence(attrs: dict[str, int]) -> None:
    """As torch exports lists that grow in a loop: the tensors of the sequence are rows that the loop collects."""
    inner = body(
        [
            node("Less", "i limit", "go"),
            node("Cast", "i", "number", to=1),
            node("Mul", "x number", "part"),
            node("SequenceInsert", "parts part", "longer"),
            node("Add", "acc number", "sum"),
        ],
        "i int64[]; go_in bool[]; parts float32; acc float32[]",
        "go bool[]; longer float32; sum float32[]",
    )
    element = helper.make_tensor_type_proto(1, None)
    for v in (inner.input[2], inner.output[1]):
        v.type.CopyFrom(helper.make_sequence_type_proto(element))
    proto = model(
        [
            node("SequenceEmpty", "", "none"),
            node("Loop", "_ _ none start", "all sum", body=inner),
            node("ConcatFromSequence", "all", "y", **attrs),
        ],
        "x float32[n,3]; limit int64[]",
        "y float32; sum float32[]",
        start=f32(0.5),
    )
    agree(
        proto,
        *({"x": RNG.normal(size=(n, 3)).astype(np.float32), "limit": i64(k)} for n, k in ((2, 4), (1, 0), (5, 1))),
    )


@pytest.mark.parametrize("axes", [(0, 0), (1, 1), (-1, 2)])
@pytest.mark.parametrize("reverse", [(0, 0), (1, 1)])
def test_scan(axes: tuple[int, int], reverse: tuple[int, int]) -> None:
    inner = body(
        [node("Add", "s x", "new"), node("Mul", "new new", "y")],
        "s float32[4,4]; x float32[4,4]",
        "new float32[4,4]; y float32[4,4]",
    )
    scan = node("Scan", "s x", "last ys", body=inner, num_scan_inputs=1, scan_input_axes=[axes[0]],
                scan_output_axes=[axes[1]], scan_input_directions=[reverse[0]],
                scan_output_directions=[reverse[1]])  # fmt: skip
    shape = ["4", "4", "4"]
    shape[axes[0]] = "t"
    proto = model([scan], f"s float32[4,4]; x float32[{','.join(shape)}]", "last float32[4,4]; ys float32[a,b,c]")
    feeds = []
    for t in (1, 3):
        size = [t if d == "t" else 4 for d in shape]
        feeds.append({"s": np.ones((4, 4), np.float32), "x": RNG.normal(size=size).astype(np.float32)})
    agree(proto, *feeds)


RECURRENT = (
    ("LSTM", 4, {"direction": "bidirectional"}, ("B", "lengths", "h0", "c0", "P")),
    ("LSTM", 4, {"direction": "reverse", "clip": 0.3}, ("B",)),
    ("LSTM", 4, {"activations": ["HardSigmoid", "Softsign", "Relu"], "activation_alpha": [0.3]}, ("h0",)),
    ("GRU", 3, {"direction": "bidirectional", "linear_before_reset": 1}, ("B", "lengths", "h0")),
    ("GRU", 3, {"activations": ["Sigmoid", "LeakyRelu"], "activation_alpha": [0.1]}, ("B",)),
    ("LSTM", 4, {"input_forget": 1}, ("B", "P")),
    ("GRU", 3, {"direction": "reverse", "clip": 0.5}, ("lengths", "h0")),
    ("RNN", 1, {"direction": "reverse"}, ("B", "lengths", "h0")),
    ("RNN", 1, {"direction": "bidirectional", "activations": ["Relu", "Affine"], "activation_alpha": [0.5],
                "activation_beta": [0.1]}, ("B", "lengths")),
)  # fmt: skip


@pytest.mark.parametrize(("kind", "gates", "attrs", "given"), RECURRENT)
def test_recurrent(kind: str, gates: int, attrs: dict[str, Any], given: tuple[str, ...]) -> None:
    hidden, width, ways = 20, 7, 2 if attrs.get("direction") == "bidirectional" else 1
    consts = {
        "W": RNG.normal(size=(ways, gates * hidden, width)).astype(np.float32) * 0.3,
        "R": RNG.normal(size=(ways, gates * hidden, hidden)).astype(np.float32) * 0.3,
        "B": RNG.normal(size=(ways, 2 * gates * hidden)).astype(np.float32) * 0.3,
        "P": RNG.normal(size=(ways, 3 * hidden)).astype(np.float32) * 0.3,
    }
    names = ["X", "W", "R", *(k if k in given else "_" for k in ("B", "lengths", "h0", "c0", "P"))]
    names = names[: 6 if kind != "LSTM" else 8]
    outputs = "Y Yh Yc" if kind == "LSTM" else "Y Yh"
    stated = {
        "lengths": "lengths int32[b]",
        "h0": f"h0 float32[{ways},b,{hidden}]",
        "c0": f"c0 float32[{ways},b,{hidden}]",
    }
    inputs = "; ".join([f"X float32[s,b,{width}]", *(stated[k] for k in given if k in stated)])
    shapes = "Y float32[s,d,b,h]; Yh float32[d,b,h]" + ("; Yc float32[d,b,h]" if kind == "LSTM" else "")
    proto = model([node(kind, " ".join(names), outputs, hidden_size=hidden, **attrs)], inputs, shapes,
                  **{k: v for k, v in consts.items() if k in names})  # fmt: skip
    feeds = []
    for steps, batch in ((5, 1), (1, 3), (4, 6)):
        feed: dict[str, Any] = {"X": RNG.normal(size=(steps, batch, width)).astype(np.float32)}
        if "lengths" in given:
            feed["lengths"] = RNG.integers(1, steps + 1, batch).astype(np.int32)
        for k in ("h0", "c0"):
            if k in given:
                feed[k] = RNG.normal(size=(ways, batch, hidden)).astype(np.float32)
        feeds.append(feed)
    agree(proto, *feeds)


@pytest.mark.parametrize(("kind", "gates"), [("LSTM", 4), ("GRU", 3), ("RNN", 1)])
def test_batch_first(kind: str, gates: int) -> None:
    """Layout 1, which onnxruntime lacks, is layout 0 with axes exchanged in sequences and states."""
    hidden, width, ways = 5, 3, 2
    consts = {"W": RNG.normal(size=(ways, gates * hidden, width)).astype(np.float32),
              "R": RNG.normal(size=(ways, gates * hidden, hidden)).astype(np.float32)}  # fmt: skip
    names = ["X", "W", "R", "_", "lengths", "h0"] + ["c0"] * (kind == "LSTM")
    results = ["Y", "Yh"] + ["Yc"] * (kind == "LSTM")
    stated = "; ".join(f"{s} float32[a{s},b{s},{hidden}]" for s in names[5:])

    def layer(layout: int) -> ModelProto:
        made = node(
            kind, " ".join(names), " ".join(results), hidden_size=hidden, direction="bidirectional", layout=layout
        )
        inputs = f"X float32[s,b,{width}]; lengths int32[k]; {stated}"
        return model([made], inputs, "; ".join(f"{r} float32" for r in results), **consts)

    session = onnxruntime.InferenceSession(layer(0).SerializeToString(), providers=["CPUExecutionProvider"])
    main = rx_compile(from_onnx(layer(1)), threads=1)["main"]
    for steps, batch in ((4, 2), (1, 1), (3, 5)):
        feed: dict[str, Any] = {"X": RNG.normal(size=(steps, batch, width)).astype(np.float32)}
        feed["lengths"] = RNG.integers(1, steps + 1, batch).astype(np.int32)
        feed |= {s: RNG.normal(size=(ways, batch, hidden)).astype(np.float32) for s in names[5:]}
        y, *last = session.run(None, feed)
        wanted = (y.transpose(2, 0, 1, 3), *(v.swapaxes(0, 1) for v in last))
        got = main(**{k: v if v.ndim == 1 else v.swapaxes(0, 1) for k, v in feed.items()})
        for g, w in zip(got, wanted, strict=True):
            np.testing.assert_allclose(g, w, rtol=2e-5, atol=2e-6)


def test_optional_squeeze() -> None:
    squeezed = body([node("Squeeze", "x axes", "y")], "", "y float32[n]", axes=i64([1]))
    kept = body([node("Identity", "x", "z")], "", "z float32[n,m]")
    proto = model(
        [
            node("Shape", "x", "shape"),
            node("Gather", "shape one", "size"),
            node("Equal", "size one", "single"),
            node("If", "single", "y", then_branch=squeezed, else_branch=kept),
            node("Neg", "y", "out"),
        ],
        "x float32[n,m]", "out float32[n]", one=i64(1))  # fmt: skip
    main = rx_compile(from_onnx(proto))["main"]
    np.testing.assert_array_equal(main(np.ones((3, 1), np.float32)), f32([-1] * 3))
    with pytest.raises(RuntimeShapeError, match="squeeze"):
        main(np.ones((3, 2), np.float32))
