"""Forms that operators had in opsets 1 to 9, where they differ from those of later ones."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import TensorProto

from relaxir.ir.expr import Array
from tests.frontends.models import f32, i64, model, node, run

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4) - 11
C, T = f32([1, -2, 3]), f32([0.5, 2, -1, 4])
STATS = {"g": f32([1, 2, 0.5]), "c": f32([0, 1, -1]), "m": f32([0.1, -0.2, 3]), "v": f32([1, 4, 0.25])}
COLUMN = (slice(None), None)


def normalised(x: Array, mean: Array, variance: Array, g: Array, c: Array) -> Array:
    return np.asarray((x - mean[COLUMN]) / np.sqrt(variance[COLUMN] + 1e-5) * g[COLUMN] + c[COLUMN])


MEAN, VARIANCE = X.mean((0, 2)), X.var((0, 2))
IN_TRAINING = normalised(X, MEAN, VARIANCE, STATS["g"], STATS["c"])
Form = tuple[int, list[Any], dict[str, Array], Array]
FORMS: dict[str, Form] = {
    "add, axis": (6, [node("Add", "x c", "y", broadcast=1, axis=1)], {"c": C}, X + C[COLUMN]),
    "sub, negative axis": (6, [node("Sub", "x c", "y", broadcast=1, axis=-2)], {"c": C}, X - C[COLUMN]),
    "mul, trailing": (1, [node("Mul", "x t", "y", broadcast=1)], {"t": T}, X * T),
    "div, leading": (6, [node("Div", "x b", "y", broadcast=1, axis=0)], {"b": X[..., 0] + 20}, X / (X[..., :1] + 20)),
    "pow, axis": (6, [node("Pow", "x c", "y", broadcast=1, axis=1)], {"c": f32([1, 2, 3])}, X ** f32([1, 2, 3])[COLUMN]),
    "cast to a name": (1, [node("Cast", "x", "i", to="INT32"), node("Cast", "i", "y", to="FLOAT")], {}, X),
    "concat, default axis": (3, [node("Concat", "x x", "y")], {}, np.concatenate([X, X], 1)),
    "pad 1": (1, [node("Pad", "x", "y", paddings=[0, 0, 1, 0, 0, 2])], {}, np.pad(X, ((0, 0), (0, 0), (1, 2)))),
    "reshape 1": (4, [node("Reshape", "x", "y", shape=[0, -1])], {}, X.reshape(2, 12)),
    "split by an input": (1, [node("Split", "x k", "z y", axis=2)], {"k": i64([1, 3])}, X[..., 1:]),
    "tile 1": (5, [node("Tile", "x n a", "y")], {"n": i64(2), "a": i64(1)}, np.tile(X, (1, 2, 1))),
    "tile 1, floats": (5, [node("Tile", "x n a", "y")], {"n": f32([2]), "a": f32([1])}, np.tile(X, (1, 2, 1))),
    "prelu, channels": (6, [node("PRelu", "x c", "y")], {"c": C}, np.where(X < 0, X * C[COLUMN], X)),
    "selu 1": (1, [node("Selu", "x", "y")], {}, np.where(X > 0, 1.0507 * X, 1.0507 * 1.6732 * np.expm1(X)).astype(np.float32)),
    "dropout 6": (6, [node("Dropout", "x", "y", is_test=1)], {}, X),
    "dropout 1, of nothing": (1, [node("Dropout", "x", "y", ratio=0.0)], {}, X),
    "gemm 6": (6, [node("Gemm", "x t c", "y", broadcast=1)], {"t": np.eye(4, dtype=np.float32), "c": T}, X[0] + T),
    "p norm of pools": (
        1, [node("LpPool", "x", "y", kernel_shape=[2], p=1.0)], {}, np.abs(X[..., :-1]) + np.abs(X[..., 1:]),
    ),
    "p norm of images": (1, [node("GlobalLpPool", "x", "y", p=1.0)], {}, np.abs(X).sum(2, keepdims=True)),
    "upsample 7": (7, [node("Upsample", "x", "y", scales=[1.0, 1.0, 2.0])], {}, X.repeat(2, 2)),
    "batch norm 6, in test": (
        6, [node("BatchNormalization", "x g c m v", "y", is_test=1)], STATS,
        normalised(X, STATS["m"], STATS["v"], STATS["g"], STATS["c"]),
    ),
    "batch norm 6, in training": (6, [node("BatchNormalization", "x g c m v", "y")], STATS, IN_TRAINING),
    "batch norm 9, in training": (9, [node("BatchNormalization", "x g c m v", "y p q r s")], STATS, IN_TRAINING),
    "batch norm 14, in training": (
        14, [node("BatchNormalization", "x g c m v", "y p q", training_mode=1)], STATS, IN_TRAINING,
    ),
    "batch norm 14, moving mean": (
        14, [node("BatchNormalization", "x g c m v", "z y q", training_mode=1, momentum=0.75)], STATS,
        0.75 * STATS["m"] + 0.25 * MEAN,
    ),
    "batch norm 7, each element": (
        7, [node("BatchNormalization", "x g c m v", "y", spatial=0)],
        {k: np.outer(v, f32([1, 1, 1, 1])) for k, v in STATS.items()},
        normalised(X, STATS["m"], STATS["v"], STATS["g"], STATS["c"]),
    ),
    "softmax 1, default axis": (
        1, [node("Softmax", "x", "y")], {}, (np.exp(X) / np.exp(X).sum((1, 2), keepdims=True)).astype(np.float32),
    ),
    "topk 1": (1, [node("TopK", "x", "y i", k=2)], {}, X[..., :1:-1]),
    "clip 1": (1, [node("Clip", "x", "y", max=2.0)], {}, np.minimum(X, 2)),
    "scatter 9": (
        9, [node("Scatter", "x i u", "y", axis=2)], {"i": i64([[[0]]]), "u": f32([[[99]]])},
        np.concatenate([f32([99]), X.reshape(-1)[1:]]).reshape(X.shape),
    ),
}  # fmt: skip


def test_tile_by_a_float_from_data() -> None:
    proto = model([node("Tile", "x n a", "y")], "x float32[2,3]; n float32[1]", "y float32", 5, a=f32([1]))
    x = f32([[1, 2, 3], [4, 5, 6]])
    for count in (0, 1, 3):
        np.testing.assert_array_equal(run(proto, x=x, n=f32([count]))[0], np.tile(x, (1, count)))


@pytest.mark.parametrize("name", FORMS)
def test_form(name: str) -> None:
    opset, nodes, constants, want = FORMS[name]
    x = X[0] if "gemm" in name else X
    declared = "x float32[r,s]" if x.ndim == 2 else "x float32[a,b,c]"
    (got,) = run(model(nodes, declared, "y float32", opset, **constants), x=x)
    assert (got.dtype, got.shape) == (want.dtype, want.shape)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_upsample_of_images() -> None:
    proto = model([node("Upsample", "x", "y", height_scale=2.0, width_scale=3.0)], "x float32[a,b,c,d]", "y float32", 1)
    (got,) = run(proto, x=X[None])
    np.testing.assert_array_equal(got, X[None].repeat(2, 2).repeat(3, 3))


def test_names_of_types() -> None:
    """Opset 5 still names types; 6 has their numbers."""
    for opset, to in ((5, "DOUBLE"), (6, TensorProto.DOUBLE)):
        (got,) = run(model([node("Cast", "x", "y", to=to)], "x float32[n]", "y float64", opset), x=f32([1.5]))
        assert got.dtype == np.float64
