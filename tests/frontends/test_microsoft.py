"""Operators of com.microsoft against ONNX Runtime: every size is a symbol, and several sizes are run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import onnxruntime as ort  # type: ignore[import-untyped]  # it has no types
import pytest
from onnx import ModelProto, NodeProto, helper

from relaxir.ir.expr import Array
from tests.frontends.models import f32, folded, i64, model, node, run

RNG = np.random.default_rng(5)
Sizes = Mapping[str, int]
Feeds = dict[str, Array]


def real(*shape: int) -> Array:
    return RNG.standard_normal(shape).astype(np.float32)


def ints(dtype: str, high: int, *shape: int, low: int = 0) -> Array:
    return RNG.integers(low, high, shape).astype(dtype)


def u8(value: int) -> Array:
    return np.array(value, np.uint8)


def q8(name: str, *shape: int) -> Feeds:
    """A quantised tensor with its scale and zero point."""
    return {name: ints("uint8", 256, *shape), f"s{name}": f32(0.02), f"z{name}": u8(125)}


def ms(op: str, inputs: str, outputs: str = "y", **attrs: Any) -> NodeProto:
    made = node(op, inputs, outputs, domain="com.microsoft", **attrs)
    made.output[:] = [o.strip("_") for o in made.output]
    return made


def proto_of(n: NodeProto, feeds: Feeds, outputs: str) -> ModelProto:
    """A model of one node whose inputs have these ranks and dtypes, and symbols for sizes."""
    declared = "; ".join(
        f"{name} {a.dtype.name}[{','.join(f'{name}{k}' for k in range(a.ndim))}]" for name, a in feeds.items()
    )
    made = model([n], declared, outputs, 17)
    made.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    tables = "EmbedLayerNormalization" in n.op_type  # ORT needs their sizes
    return folded(made, feeds, *(k for k in "wptgc" if k in feeds)) if tables else made


Case = tuple[NodeProto, str, Callable[[int, int], Feeds]]
H = 8  # width of a row: two heads of four
D = 16  # of a head where heads are grouped: ONNX Runtime rotates multiples of 16 only


def rows(b: int, s: int) -> Feeds:
    return {"x": real(b, s, H)}


def normed(b: int, s: int) -> Feeds:
    return {"x": real(b, s, H), "k": real(b, s, H), "g": real(H), "c": real(H)}


def embedded(b: int, s: int) -> Feeds:
    tables = {"w": real(20, H), "p": real(12, H), "t": real(2, H), "g": real(H), "c": real(H)}
    return {"i": ints("int32", 20, b, s), "u": ints("int32", 2, b, s), **tables, "m": ints("int32", 2, b, s)}


def embedded8(b: int, s: int) -> Feeds:
    rows = {"w": (20, H), "p": (12, H), "t": (2, H), "g": (H,), "c": (H,)}
    tables = {k: v for name, shape in rows.items() for k, v in q8(name, *shape).items()}
    return {**embedded(b, s), **tables}


def projected(b: int, s: int) -> Feeds:
    return {"x": real(b, s, H), "w": real(H, 3 * H), "c": real(3 * H)}


def cached(b: int, s: int) -> Feeds:
    return {**projected(b, s), "m": ints("int32", 2, b, s + 3) | 1, "p": real(2, b, 2, 3, H // 2)}


def separate(b: int, s: int) -> Feeds:
    return {"q": real(b, s, H), "k": real(b, s + 1, H), "v": real(b, s + 1, H)}


def grouped(b: int, s: int) -> Feeds:
    """A first call: no cache yet, as many keys as queries in each batch."""
    return {
        "q": real(b, s, 4 * D), "k": real(b, s, 2 * D), "v": real(b, s, 2 * D),
        "pk": real(b, 2, 0, D), "pv": real(b, 2, 0, D),
        "l": np.full(b, s - 1, np.int32), "n": np.array(s, np.int32),
        "cos": real(16, D // 2), "sin": real(16, D // 2),
    }  # fmt: skip


def decoding(b: int, s: int) -> Feeds:
    """One new token after caches of several lengths, zero behind them (ONNX Runtime clears what is there)."""
    lengths = np.array([(s + k) % 4 + 1 for k in range(b)], np.int32)
    used = np.arange(5)[:, None] < lengths[:, None, None, None]
    return {
        **grouped(b, 1), "pk": real(b, 2, 5, D) * used, "pv": real(b, 2, 5, D) * used, "l": lengths,
        "n": np.array(lengths.max() + 1, np.int32),
    }  # fmt: skip


GQA: dict[str, Any] = {"num_heads": 4, "kv_num_heads": 2}
GQA_INPUTS = "q k v pk pv l n"
CASES: dict[str, Case] = {
    "bias gelu": (ms("BiasGelu", "x c"), "y float32", lambda b, s: {"x": real(b, s, H), "c": real(H)}),
    "fast gelu": (ms("FastGelu", "x"), "y float32", rows),
    "quick gelu": (ms("QuickGelu", "x", alpha=1.3), "y float32", rows),
    "skip layer norm": (
        ms("SkipLayerNormalization", "x k g c c", "y _ _ t", epsilon=1e-5), "y float32; t float32", normed,
    ),
    "skip rms norm": (
        ms("SkipSimplifiedLayerNormalization", "x k g", "y _ _ t", epsilon=1e-5), "y float32; t float32",
        lambda b, s: {k: v for k, v in normed(b, s).items() if k != "c"},
    ),
    "rms norm": (
        node("SimplifiedLayerNormalization", "x g", "y", epsilon=1e-5, axis=-1), "y float32",
        lambda b, s: {"x": real(b, s, H), "g": real(H)},
    ),
    "embedding": (
        ms("EmbedLayerNormalization", "i u w p t g c m", "y l e"), "y float32; l int32; e float32", embedded,
    ),
    "fused conv": (
        ms("FusedConv", "x w c", activation="LeakyRelu", activation_params=[0.2], pads=[1, 1, 1, 1]), "y float32",
        lambda b, s: {"x": real(b, 3, s + 2, 5), "w": real(4, 3, 3, 3), "c": real(4)},
    ),
    "fused gemm": (
        ms("FusedGemm", "x w c", activation="Relu", transB=1, alpha=0.5), "y float32",
        lambda b, s: {"x": real(s, H), "w": real(5, H), "c": real(5)},
    ),
    "fused matmul": (
        ms("FusedMatMul", "x w", transA=1, alpha=0.5), "y float32", lambda b, s: {"x": real(b, H, s), "w": real(b, H, 3)},
    ),
    "fused matmul, batch inside": (
        ms("FusedMatMul", "x w", transBatchA=1, transBatchB=1), "y float32",
        lambda b, s: {"x": real(s, b, H), "w": real(H, b, 3)},
    ),
    "distances": (
        ms("CDist", "x k", metric="euclidean"), "y float32", lambda b, s: {"x": real(s, H), "k": real(b, H)},
    ),
    "attention": (ms("Attention", "x w c", num_heads=2), "y float32", projected),
    "attention, causal": (ms("Attention", "x w c", num_heads=2, unidirectional=1), "y float32", projected),
    "attention, lengths": (
        ms("Attention", "x w c m", num_heads=2), "y float32",
        lambda b, s: {**projected(b, s), "m": ints("int32", s + 1, b, low=1)},
    ),
    "attention, cache": (
        ms("Attention", "x w c m p", "y z", num_heads=2), "y float32; z float32", cached,
    ),
    "heads": (ms("MultiHeadAttention", "q k v", num_heads=2), "y float32", separate),
    "heads, bias and mask": (
        ms("MultiHeadAttention", "q k v c m a", num_heads=2, scale=0.4), "y float32",
        lambda b, s: {
            **separate(b, s), "c": real(3 * H), "m": ints("int32", 2, b, s + 1) | 1, "a": real(1, 2, s, s + 1),
        },
    ),
    "heads, cache": (
        ms("MultiHeadAttention", "q k v _ _ _ pk pv", "y z w", num_heads=2), "y float32; z float32; w float32",
        lambda b, s: {
            "q": real(b, s, H), "k": real(b, s, H), "v": real(b, s, H),
            "pk": real(b, 2, 3, H // 2), "pv": real(b, 2, 3, H // 2),
        },
    ),
    "groups, first call": (
        ms("GroupQueryAttention", GQA_INPUTS, "y pk2 pv2", **GQA), "y float32; pk2 float32; pv2 float32",
        lambda b, s: {k: v for k, v in grouped(b, s).items() if k not in ("cos", "sin")},
    ),
    "groups, rotary": (
        ms("GroupQueryAttention", f"{GQA_INPUTS} cos sin", "y pk2 pv2", do_rotary=1, **GQA),
        "y float32; pk2 float32; pv2 float32", grouped,
    ),
    "groups, decoding": (
        ms("GroupQueryAttention", f"{GQA_INPUTS} cos sin", "y pk2 pv2", do_rotary=1, **GQA),
        "y float32; pk2 float32; pv2 float32", decoding,
    ),
    "groups, window": (
        ms("GroupQueryAttention", GQA_INPUTS, "y pk2 pv2", local_window_size=2, **GQA),
        "y float32; pk2 float32; pv2 float32",
        lambda b, s: {k: v for k, v in grouped(b, s + 3).items() if k not in ("cos", "sin")},
    ),
    "rotary": (
        ms("RotaryEmbedding", "x p cos sin", num_heads=2), "y float32",
        lambda b, s: {"x": real(b, s, 16), "p": i64([2]), "cos": real(16, 4), "sin": real(16, 4)},
    ),
    "rotary, interleaved": (
        ms("RotaryEmbedding", "x p cos sin", interleaved=1), "y float32",
        lambda b, s: {"x": real(b, 2, s, 8), "p": ints("int64", 16, b, s), "cos": real(16, 4), "sin": real(16, 4)},
    ),
    "quantised sum": (
        ms("QLinearAdd", "x sx zx k sk zk sy zy"), "y uint8",
        lambda b, s: {**q8("x", b, s, H), **q8("k", b, 1, H), "sy": f32(0.05), "zy": u8(120)},
    ),
    "quantised concat": (
        ms("QLinearConcat", "sy zy x sx zx k sk zk", axis=1), "y uint8",
        lambda b, s: {"sy": f32(0.03), "zy": u8(120), **q8("x", b, s, H), **q8("k", b, 2, H)},
    ),
    "quantised choice": (
        ms("QLinearWhere", "m x sx zx k sk zk sy zy"), "y uint8",
        lambda b, s: {
            "m": ints("bool", 2, b, s, H), **q8("x", b, s, H), **q8("k", b, s, H), "sy": f32(0.02), "zy": u8(120),
        },
    ),
    "quantised pool": (
        ms("QLinearAveragePool", "x sx zx sy zy", kernel_shape=[2, 2], channels_last=1), "y uint8",
        lambda b, s: {**q8("x", b, s + 1, 4, 3), "sy": f32(0.02), "zy": u8(130)},
    ),
    "quantised mean of an image": (
        ms("QLinearGlobalAveragePool", "x sx zx sy zy"), "y uint8",
        lambda b, s: {**q8("x", b, 3, s, 4), "sy": f32(0.02), "zy": u8(130)},
    ),
    "quantised softmax": (
        ms("QLinearSoftmax", "x sx zx sy zy", axis=-1, opset=13), "y uint8",
        lambda b, s: {**q8("x", b, s, H), "sy": f32(1 / 256), "zy": u8(0)},
    ),
    "quantised sigmoid": (
        ms("QLinearSigmoid", "x sx zx sy zy"), "y uint8", lambda b, s: {**q8("x", b, s), "sy": f32(1 / 256), "zy": u8(0)},
    ),
    "quantised product": (
        ms("QGemm", "x sx zx k sk zk c sy zy", transB=1), "y uint8",
        lambda b, s: {
            **q8("x", s, H), **q8("k", 5, H), "c": ints("int32", 99, 5), "sy": f32(0.2), "zy": u8(128),
        },
    ),
    "quantised product to floats": (
        ms("QGemm", "x sx zx k sk zk"), "y float32", lambda b, s: {**q8("x", s, H), **q8("k", H, 5)},
    ),
    "quantised multiplication": (
        ms("QLinearMul", "x sx zx k sk zk sy zy"), "y uint8",
        lambda b, s: {**q8("x", b, s, H), **q8("k", b, 1, H), "sy": f32(0.05), "zy": u8(120)},
    ),
    "quantised leaky relu": (
        ms("QLinearLeakyRelu", "x sx zx sy zy", alpha=0.1), "y uint8",
        lambda b, s: {**q8("x", b, s, H), "sy": f32(0.02), "zy": u8(100)},
    ),
    "integers to floats": (
        ms("MatMulIntegerToFloat", "x w sx sw zx zw c"), "y float32",
        lambda b, s: {**q8("x", b, s, H), **q8("w", H, 5), "c": real(5)},
    ),
    "product quantised at run time": (
        ms("DynamicQuantizeMatMul", "x w sw zw c"), "y float32",
        lambda b, s: {"x": real(b, s, H), **q8("w", H, 5), "c": real(5)},
    ),
    "quantised embedding": (
        ms("QEmbedLayerNormalization", "i u w p t g c m sw sp st sg sc zw zp zt zg zc", "y l"), "y float32; l int32",
        embedded8,
    ),
    "quantised embedding, words and places": (
        ms("QEmbedLayerNormalization", "i _ w p _ g c _ sw sp _ sg sc zw zp _ zg zc", "y l"), "y float32; l int32",
        lambda b, s: {k: v for k, v in embedded8(b, s).items() if k[-1] not in "utm"},
    ),
    "quantised attention": (
        ms("QAttention", "x w c sx sw m zx zw", num_heads=2), "y float32",
        lambda b, s: {
            **q8("x", b, s, H), **q8("w", H, 3 * H), "c": real(3 * H), "m": ints("int32", s + 1, b, low=1),
        },
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_runtime(name: str) -> None:
    made, outputs, feeds_of = CASES[name]
    for sizes in ((2, 3), (1, 5)):
        feeds = feeds_of(*sizes)
        proto = proto_of(made, feeds, outputs)
        given = {v.name: feeds[v.name] for v in proto.graph.input}
        want = ort.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"]).run(None, given)
        got = run(proto, **given)
        assert len(got) == len(want)
        for g, w in zip(got, want, strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape)
            floats = g.dtype.kind == "f"  # a float next to a tie may round to either integer
            np.testing.assert_allclose(g.astype(np.float64), w, rtol=1e-3 * floats, atol=1e-4 if floats else 1)
