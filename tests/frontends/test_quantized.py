"""Quantised operators of ONNX: against the reference evaluator, in three builds; those of com.microsoft by formula."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import helper
from onnx.reference import ReferenceEvaluator

import relaxir as rx
from relaxir.frontends.onnx import from_onnx
from relaxir.ir.expr import Array
from relaxir.support.errors import RelaxirError
from tests.frontends.models import f32, folded, model, node, op_names, run

RNG = np.random.default_rng(11)


def ints(dtype: str, *shape: int) -> Array:
    """Random integers of the whole range."""
    limits = np.iinfo(dtype)
    return RNG.integers(limits.min, limits.max, shape, dtype, endpoint=True)


U8, I8 = np.uint8, np.int8
SCALES = {"sa": f32(0.02), "sb": f32(0.03), "sy": f32(9.0), "za": U8(120), "zb": I8(-4), "zy": U8(100)}
CASES: tuple[tuple[str, list[Any], str, dict[str, Array], int], ...] = (
    ("per tensor", [node("QuantizeLinear", "x s z", "y")], "uint8", {"x": f32([[0.25, 0.75, 1.25, -0.25, 1e3, -1e3]]), "s": f32(0.5), "z": U8(3)}, 13),
    ("per axis", [node("QuantizeLinear", "x s z", "y", axis=1)], "int8", {"x": f32(RNG.uniform(-9, 9, (2, 3, 5))), "s": f32([0.1, 0.2, 0.05]), "z": I8([1, -2, 0])}, 13),
    ("blocked", [node("QuantizeLinear", "x s", "y", axis=0, block_size=3)], "uint8", {"x": f32(RNG.uniform(0, 9, (7, 2))), "s": f32(RNG.uniform(0.1, 1, (3, 2)))}, 21),
    ("dequantize", [node("DequantizeLinear", "x s z", "y", axis=0)], "float32", {"x": ints("int8", 3, 5), "s": f32([0.1, 0.2, 3]), "z": I8([0, 5, -128])}, 19),
    ("bias", [node("DequantizeLinear", "x s", "y")], "float32", {"x": ints("int32", 9), "s": f32(0.001)}, 19),
    ("sums", [node("MatMulInteger", "x b za zb", "y")], "int32", {"x": ints("uint8", 5, 40), "b": ints("int8", 40, 9), "za": U8(7), "zb": ints("int8", 9)}, 13),
    ("second zero only", [node("MatMulInteger", "x b _ zb", "y")], "int32", {"x": ints("int8", 5, 20), "b": ints("uint8", 20, 9), "zb": U8(7)}, 13),
    ("product", [node("QLinearMatMul", "x sa za b sb zb sy zy", "y")], "uint8", {"x": ints("uint8", 4, 33), "b": ints("int8", 33, 6), **SCALES}, 13),
    ("windows", [node("ConvInteger", "x w zx", "y", pads=[1, 1, 1, 1])], "int32", {"x": ints("uint8", 1, 3, 6, 5), "w": ints("int8", 4, 3, 3, 3), "zx": U8(128)}, 13),
)  # fmt: skip


def builds(proto: Any, feeds: dict[str, Array]) -> list[Array]:
    """Compiled with symbolic shapes, interpreted, everything constant."""
    dynamic = from_onnx(proto)
    names = [p.name for p in dynamic.graph_functions()["main"].params]
    args = [feeds[n] for n in names]
    constant = run(folded(proto, feeds))[0]
    return [rx.compile(dynamic)["main"](*args), run(proto, **feeds)[0], constant]


@pytest.mark.parametrize(("nodes", "dtype", "feeds", "opset"), [pytest.param(*c[1:], id=c[0]) for c in CASES])
def test_against_reference(nodes: list[Any], dtype: str, feeds: dict[str, Array], opset: int) -> None:
    declared = "; ".join(
        f"{k} {np.asarray(v).dtype}[{','.join(f'{k}{i}' for i in range(np.ndim(v)))}]" for k, v in feeds.items()
    )
    proto = model(nodes, declared, f"y {dtype}", opset)
    (want,) = ReferenceEvaluator(proto).run(None, feeds)
    for got in builds(proto, feeds):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-6)


def test_dynamic_range() -> None:
    proto = model([node("DynamicQuantizeLinear", "x", "y s z")], "x float32[n]", "y uint8; s float32; z uint8")
    main = rx.compile(from_onnx(proto))["main"]
    for x in ([0.0, 2, -3, -2.5, 1.34, 0.5], [1.0, 2.1], [-1.0, -4.0], [0.0]):
        want = ReferenceEvaluator(proto).run(None, {"x": f32(x)})
        for got, right in zip(main(f32(x)), want, strict=True):
            np.testing.assert_array_equal(got, right)


def microsoft(op: str, inputs: str, declared: str, feeds: dict[str, Array], **attrs: Any) -> Array:
    """Import and run one operator of com.microsoft."""
    proto = model([node(op, inputs, "y", domain="com.microsoft", **attrs)], declared, "y float32", 18)
    proto.opset_import.append(helper.make_opsetid("com.microsoft", 1))
    return np.asarray(run(proto, **feeds)[0])


@pytest.mark.parametrize("zeros", [True, False])
def test_four_bit_weight(zeros: bool) -> None:
    k, n, block = 70, 5, 32
    blocks = -(-k // block)
    nibbles = RNG.integers(0, 16, (n, blocks * block), np.uint8)
    zero = RNG.integers(0, 16, (n, blocks + 1), np.uint8) if zeros else np.full((n, blocks + 1), 8, np.uint8)
    scale, x = f32(RNG.uniform(0.01, 0.1, (n, blocks))), f32(RNG.standard_normal((3, k)))
    feeds = {"x": x, "w": pairs(nibbles).reshape(n, blocks, block // 2), "s": scale.reshape(-1)}
    declared = f"x float32[m,{k}]; w uint8[{n},{blocks},{block // 2}]; s float32[{n * blocks}]"
    if zeros:
        feeds["z"] = pairs(zero).reshape(-1)
        declared += f"; z uint8[{feeds['z'].size}]"
    got = microsoft("MatMulNBits", "x w s z" if zeros else "x w s", declared, feeds, K=k, N=n, bits=4, block_size=block)
    real = (nibbles.astype(np.float32) - np.repeat(zero[:, :blocks], block, 1)) * np.repeat(scale, block, 1)
    np.testing.assert_allclose(got, x @ real[:, :k].T, rtol=1e-4, atol=1e-4)


def pairs(nibbles: Array) -> Array:
    """Two values a byte, the first in the low half."""
    return np.asarray(nibbles[..., ::2] | nibbles[..., 1::2] << 4)


def test_dynamic_product() -> None:
    x, b = f32(RNG.standard_normal((4, 32))), ints("int8", 32, 6)
    got = microsoft(
        "DynamicQuantizeMatMul", "x b s", "x float32[m,32]; b int8[32,6]; s float32[]", {"x": x, "b": b, "s": f32(0.1)}
    )
    np.testing.assert_allclose(got, x @ (b * f32(0.1)), atol=0.02 * np.abs(x).max() * 32 * 6)


ISLAND = [
    node("QuantizeLinear", "x sx zx", "q"),
    node("DequantizeLinear", "q sx zx", "d"),
    node("DequantizeLinear", "w sw zw", "dw", axis=1),
    node("MatMul", "d dw", "y"),
]


def test_island_becomes_an_integer_product() -> None:
    """The weight stays 8 bits wide, and the result is as near as the float sum."""
    w, sw = ints("int8", 48, 20), f32(RNG.uniform(0.01, 0.02, 20))
    constants = {"sx": f32(0.05), "zx": U8(110), "w": w, "sw": sw, "zw": np.zeros(20, I8)}
    proto = model(ISLAND, "x float32[m,48]", "y float32", 19, **constants)
    seen: list[str] = []

    class Watch:
        def before(self, name: str, number: int, module: Any) -> None: ...

        def after(self, name: str, number: int, before: Any, module: Any) -> None:
            if name == "FoldQuantize":
                seen.extend(op_names(module))

    main = rx.compile(from_onnx(proto), instruments=(Watch(),))["main"]
    assert "matmul_integer" in seen and "matmul" not in seen
    for m in (1, 3, 16):
        x = f32(RNG.uniform(-5, 6, (m, 48)))
        (want,) = ReferenceEvaluator(proto).run(None, {"x": x})
        np.testing.assert_allclose(main(x), want, rtol=1e-5, atol=1e-4)


def test_scale_along_the_sum_stays_float() -> None:
    nodes = [
        node("DequantizeLinear", "w sw", "dw", axis=0),
        node("DequantizeLinear", "q sx", "d"),
        node("MatMul", "d dw", "y"),
    ]
    w, sw = ints("int8", 24, 6), f32(RNG.uniform(0.01, 0.02, 24))
    proto = model(nodes, "q uint8[m,24]", "y float32", 19, w=w, sw=sw, sx=f32(0.1))
    q = ints("uint8", 5, 24)
    (want,) = ReferenceEvaluator(proto).run(None, {"q": q})
    np.testing.assert_allclose(rx.compile(from_onnx(proto))["main"](q), want, rtol=1e-4, atol=1e-4)


def test_wrong_zero_point() -> None:
    proto = model([node("QuantizeLinear", "x s z", "y")], "x float32[n,3]; s float32[]; z int64[]", "y int8", 13)
    with pytest.raises(RelaxirError, match="zero_point must be one of"):
        from_onnx(proto)
