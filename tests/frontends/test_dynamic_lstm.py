"""com.microsoft's DynamicQuantizeLSTM against ONNX Runtime, interpreted and compiled."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]  # it has no types
import pytest
from onnx import ModelProto, helper

import relaxir as rx
from relaxir.frontends.onnx import from_onnx
from relaxir.ir.expr import Array
from tests.frontends.models import model, node, op_names

RNG = np.random.default_rng(11)
WIDTH, HIDDEN = 7, 18  # neither is whole words


def layer(ways: int, dtype: str, zero: int, columns: bool, given: tuple[str, ...], **attrs: Any) -> ModelProto:
    """One layer of constant weights."""
    gates, shape = 4 * HIDDEN, (ways, 4 * HIDDEN) if columns else (ways,)
    limits = np.iinfo(dtype)
    consts: dict[str, Array] = {
        "W": RNG.integers(limits.min, limits.max, (ways, WIDTH, gates), dtype, endpoint=True),
        "R": RNG.integers(limits.min, limits.max, (ways, HIDDEN, gates), dtype, endpoint=True),
        "B": RNG.normal(size=(ways, 2 * gates)).astype(np.float32) * 0.3,
        "P": RNG.normal(size=(ways, 3 * HIDDEN)).astype(np.float32) * 0.3,
        **{s: RNG.uniform(0.002, 0.004, shape).astype(np.float32) for s in ("ws", "rs")},
        **{z: np.full(shape, zero, dtype) for z in ("wz", "rz")},
    }
    names = [
        "X",
        "W",
        "R",
        *(k if k in given else "_" for k in ("B", "lengths", "h0", "c0", "P")),
        "ws",
        "wz",
        "rs",
        "rz",
    ]
    made = node("DynamicQuantizeLSTM", " ".join(names), "Y Yh Yc", domain="com.microsoft", hidden_size=HIDDEN, **attrs)
    stated = {"lengths": "lengths int32[b]", **{s: f"{s} float32[{ways},b,{HIDDEN}]" for s in ("h0", "c0")}}
    inputs = "; ".join([f"X float32[s,b,{WIDTH}]", *(stated[k] for k in given if k in stated)])
    used = {k: v for k, v in consts.items() if k in names}
    proto = model([made], inputs, "Y float32; Yh float32; Yc float32", 17, **used)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return proto


def feeds(ways: int, given: tuple[str, ...], steps: int, batch: int) -> dict[str, Array]:
    found = {"X": RNG.normal(size=(steps, batch, WIDTH)).astype(np.float32)}
    if "lengths" in given:
        found["lengths"] = RNG.integers(1, steps + 1, batch).astype(np.int32)
    found |= {s: RNG.uniform(-1, 1, (ways, batch, HIDDEN)).astype(np.float32) for s in ("h0", "c0") if s in given}
    return found


@pytest.mark.parametrize(
    ("direction", "dtype", "zero", "columns", "given"),
    [
        ("bidirectional", "int8", 0, False, ("B", "h0", "c0")),
        ("forward", "int8", 0, True, ("B", "P")),
        ("reverse", "int8", 0, False, ("lengths", "h0", "c0")),
        ("bidirectional", "uint8", 120, False, ("B",)),
    ],
)
def test_against_runtime(direction: str, dtype: str, zero: int, columns: bool, given: tuple[str, ...]) -> None:
    """ONNX Runtime has one range for the states of all sequences, relaxir one each: for one sequence they agree.

    Nor does it look at inputs behind the end of the longest sequence.
    """
    ways = 2 if direction == "bidirectional" else 1
    proto = layer(ways, dtype, zero, columns, given, direction=direction)
    session = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    module = from_onnx(proto)
    signed = dtype == "int8"
    assert ("quantized_lstm" in op_names(module)) is signed
    main = rx.compile(module)["main"]
    for steps, batch in ((6, 1), (1, 1), (5, 3), (4, 6)):
        feed = feeds(ways, given, steps, batch)
        want = session.run(None, feed)
        ordered = [feed[n] for n in main.input_names]
        close = 1e-4 if signed and batch == 1 and "lengths" not in given else 2e-2
        for got in (main(**feed), rx.evaluate(module, "main", *ordered)):
            for g, w in zip(got, want, strict=True):
                np.testing.assert_allclose(g, w, rtol=0, atol=close)


def test_nothing() -> None:
    main = rx.compile(from_onnx(layer(1, "int8", 0, False, ("B",))))["main"]
    for steps, batch in ((0, 2), (3, 0)):
        y, h, c = main(**feeds(1, (), steps, batch))
        assert y.shape == (steps, 1, batch, HIDDEN)
        assert not h.any()
        assert not c.any()
