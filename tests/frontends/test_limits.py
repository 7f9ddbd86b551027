"""The limits that the support table states: a node beyond each is refused, with the node in the message."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from onnx import ModelProto, helper

from relaxir.frontends.onnx import from_onnx
from relaxir.frontends.onnx.limits import LIMITS
from relaxir.support.errors import UnsupportedError
from tests.frontends.models import graph, i64, model, node

Make = Callable[[], ModelProto]


def one(op: str, inputs: str, declared: str, opset: int = 18, **attrs: Any) -> Make:
    """A model of one node."""
    return lambda: model([node(op, inputs, "y", **attrs)], declared, "y float32", opset)


def other(domain: str, op: str, inputs: str, declared: str, **attrs: Any) -> Make:
    """A model of one node of another domain."""

    def make() -> ModelProto:
        made = model([node(op, inputs, "y", domain=domain, **attrs)], declared, "y float32", 17)
        made.opset_import.append(helper.make_opsetid(domain, 1))
        return made

    return make


ms = partial(other, "com.microsoft")
ml = partial(other, "ai.onnx.ml")


def of_sequence(op: str, inputs: str, declared: str) -> Make:
    """A node behind a sequence of two tensors of two ranks."""
    nodes = [
        node("SequenceConstruct", "a b", "s"),
        node(op, inputs, "y" if op == "SequenceAt" else "t"),
        node("SequenceAt", "t k", "y"),
    ]
    return lambda: model(
        nodes[:-1] if op == "SequenceAt" else nodes, f"a float32[n]; b float32[n,m]; {declared}", "y float32", k=i64(0)
    )


def loop() -> ModelProto:
    body = graph(
        [node("SequenceInsert", "s x zero", "t"), node("Identity", "g", "h")],
        "i int64[]; g bool[]; s float32",
        "h bool; t float32",
    )
    nodes = [
        node("SequenceEmpty", "", "e"),
        node("Loop", "n _ e", "s2", body=body),
        node("ConcatFromSequence", "s2", "y", axis=0),
    ]
    return model(nodes, "x float32[k]; n int64[]", "y float32", 17, zero=i64(0))


def parts() -> ModelProto:
    nodes = [node("SplitToSequence", "x", "s"), node("ConcatFromSequence", "s", "y", axis=1)]
    return model(nodes, "x float32[n,m]", "y float32", 17)


def two_ranks() -> ModelProto:
    then, other = (
        graph([node("Relu", "x", "t")], "", "t float32"),
        graph([node("ReduceSum", "x", "e", keepdims=0)], "", "e float32"),
    )
    return model([node("If", "f", "y", then_branch=then, else_branch=other)], "x float32[n]; f bool[]", "y float32")


def old_scan() -> ModelProto:
    body = graph([node("Add", "s v", "t"), node("Identity", "t", "o")], "s float32; v float32", "t float32; o float32")
    return model(
        [node("Scan", "l s x", "t y", body=body, num_scan_inputs=1)],
        "l int64[b]; s float32[b]; x float32[b,n]",
        "y float32",
        8,
    )


Q = "q float32[b,s,8]; k float32[b,s,8]; v float32[b,s,8]; "
BEYOND: dict[tuple[str, str], Make] = {
    ("", "AffineGrid"): lambda: model([node("AffineGrid", "t s", "y")], "t float32[n,a,b]; s int64[k]", "y float32", 20),
    ("", "ConcatFromSequence"): parts,
    ("", "Constant"): one("Constant", "", "x float32[n]", value_string="text"),
    ("", "DeformConv"): one("DeformConv", "x w o", "x float32[n,c,l]; w float32[m,c,k]; o float32[n,p,q]", 19),
    ("", "Dropout"): one("Dropout", "x r t", "x float32[n]; r float32[]; t bool[]"),
    ("", "GRU"): one("GRU", "x w r", "x float32[s,b,i]; w float32[1,k,i]; r float32[1,k,h]"),
    ("", "GatherND"): one("GatherND", "x i", "x float32[n,m]; i int64[k,d]"),
    ("", "GroupNormalization"): one("GroupNormalization", "x g c", "x float32[n,c,l]; g float32[2]; c float32[2]", num_groups=2),
    ("", "If"): two_ranks,
    ("", "LSTM"): one("LSTM", "x w r", "x float32[s,b,i]; w float32[1,k,i]; r float32[1,k,h]"),
    ("", "Loop"): loop,
    ("", "LpPool"): one("LpPool", "x", "x float32[n,c,l]", 1, kernel_shape=[2], p=1.5),
    ("", "RNN"): one("RNN", "x w r", "x float32[s,b,i]; w float32[1,k,i]; r float32[1,k,h]"),
    ("", "Reshape"): one("Reshape", "x t", "x float32[n]; t int64[k]"),
    ("", "Scan"): old_scan,
    ("", "ScatterND"): one("ScatterND", "x i u", "x float32[n]; i int64[k,d]; u float32[a,b,c]"),
    ("", "SequenceAt"): of_sequence("SequenceAt", "s i", "i int64[]"),
    ("", "SequenceErase"): of_sequence("SequenceErase", "s i", "i int64[]"),
    ("", "SequenceInsert"): of_sequence("SequenceInsert", "s a i", "i int64[]"),
    ("", "Squeeze"): one("Squeeze", "x", "x float32[n,m]"),
    ("", "TfIdfVectorizer"): one("TfIdfVectorizer", "x", "x int64[n]", 9, mode="TF", pool_strings=["a"], ngram_counts=[0], ngram_indexes=[0], max_gram_length=1, min_gram_length=1, max_skip_count=0),
    ("", "Unsqueeze"): one("Unsqueeze", "x a", "x float32[n]; a int64[k]"),
    **{
        ("", f"Reduce{k}"): one(f"Reduce{k}", "x a", "x float32[n,m]; a int64[k]", keepdims=0)
        for k in "L1 L2 LogSum LogSumExp Max Mean Min Prod Sum SumSquare".split()
    },
    ("com.microsoft", "Attention"): ms("Attention", "x w c", "x float32[b,s,8]; w float32[8,24]; c float32[24]", num_heads=2, do_rotary=1),
    ("com.microsoft", "CDist"): ms("CDist", "x k", "x float32[n,3]; k float32[m,3]", metric="cosine"),
    ("com.microsoft", "DynamicQuantizeLSTM"): ms(
        "DynamicQuantizeLSTM", "x w r _ _ _ _ _ sw zw sr zr",
        "x float32[s,b,i]; w int8[1,i,16]; r int8[1,4,16]; sw float32[1,16]; zw int8[1,16]; sr float32[1,16]; zr int8[1,16]", hidden_size=4,
    ),
    ("com.microsoft", "FusedConv"): ms("FusedConv", "x w", "x float32[n,3,h,w0]; w float32[4,3,1,1]", activation="Softmax"),
    ("com.microsoft", "FusedGemm"): ms("FusedGemm", "x w", "x float32[n,3]; w float32[3,2]", activation="Softmax"),
    ("com.microsoft", "GroupQueryAttention"): ms(
        "GroupQueryAttention", "q k v _ _ l t", f"{Q} l int32[b]; t int32[]", num_heads=1, kv_num_heads=1, smooth_softmax=1,
    ),
    ("com.microsoft", "MatMulNBits"): ms(
        "MatMulNBits", "x w s", "x float32[n,32]; w uint8[4,1,8]; s float32[4]", K=32, N=4, bits=2, block_size=32,
    ),
    ("com.microsoft", "MultiHeadAttention"): ms(
        "MultiHeadAttention", "q k v _ _ _ _ _ p", f"{Q} p int32[1]", num_heads=2
    ),
    ("ai.onnx.ml", "LinearClassifier"): ml(
        "LinearClassifier", "x", "x float32[n,2]", coefficients=[1.0, 2.0], classlabels_strings=["a", "b"]
    ),
    ("ai.onnx.ml", "LinearRegressor"): ml(
        "LinearRegressor", "x", "x float32[n,2]", coefficients=[1.0, 2.0], post_transform="PROBIT"
    ),
    ("ai.onnx.ml", "OneHotEncoder"): ml("OneHotEncoder", "x", "x int64[n]", cats_int64s=[1], zeros=0),
    ("com.microsoft", "RotaryEmbedding"): ms(
        "RotaryEmbedding", "x p c s", "x float32[b,s0,8]; p int64[1]; c float32[9,2]; s float32[9,2]", is_packed_batching=1,
    ),
}  # fmt: skip


def test_every_limit_is_tried() -> None:
    assert set(BEYOND) == set(LIMITS)


@pytest.mark.parametrize("key", BEYOND, ids=lambda k: k[1])
def test_beyond(key: tuple[str, str]) -> None:
    with pytest.raises(UnsupportedError, match=key[1]):
        from_onnx(BEYOND[key]())


def test_all_problems_at_once() -> None:
    nodes = [node("RandomNormal", "", "a", shape=[2]), node("Neg", "x", "b"), node("Multinomial", "b", "y")]
    with pytest.raises(UnsupportedError, match="2 nodes") as info:
        from_onnx(model(nodes, "x float32[n,m]", "y float32"))
    assert all(any(name in note for note in info.value.notes) for name in ("RandomNormal", "Multinomial"))
