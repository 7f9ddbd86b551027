"""Operators of ai.onnx.ml against ONNX Runtime, for one example and for rows of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from onnx import ModelProto, ValueInfoProto, helper

from relaxir.api import compile as rx_compile
from relaxir.frontends.onnx import from_onnx
from relaxir.ir.expr import Array
from relaxir.support.errors import LoadError, RuntimeShapeError
from tests.frontends.models import f32, i64, model, node, run
from tests.frontends.onnx_session import run_onnxruntime

Attrs = dict[str, Any]
ROWS = f32([[1, -2, 0.5], [-3, -4, -1], [0, 0, 0], [0.25, 0.5, np.nan]])
W = [1.0, 0.5, -1.0, 0.25, 2.0, -0.5]


def ml(op: str, inputs: str, outputs: str, declared: str, **attrs: Any) -> ModelProto:
    made = model([node(op, inputs, outputs, domain="ai.onnx.ml", **attrs)], declared, "")
    made.opset_import.append(helper.make_opsetid("ai.onnx.ml", 3))
    made.graph.output.extend(ValueInfoProto(name=o) for o in outputs.split())
    return made


def agree(proto: ModelProto, x: Array, **feeds: Array) -> None:
    names = [i.name for i in proto.graph.input]
    found = run(proto, **dict(zip(names, (x, *feeds.values()), strict=True)))
    wanted = run_onnxruntime(proto, dict(zip(names, (x, *feeds.values()), strict=True)))
    for got, want in zip(found, wanted, strict=True):
        assert got.dtype == want.dtype
        np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6)


TABLE: list[tuple[str, str, Attrs]] = [
    ("Scaler", "y", {"offset": [1.0, 2.0, -1.0], "scale": [2.0, 0.5, 3.0]}),
    ("Scaler", "y", {"offset": [1.0], "scale": [2.0]}),
    ("Normalizer", "y", {}),
    ("Normalizer", "y", {"norm": "L1"}),
    ("Normalizer", "y", {"norm": "L2"}),
    ("Binarizer", "y", {"threshold": 0.25}),
    ("Imputer", "y", {"imputed_value_floats": [7.0, 8.0, 9.0], "replaced_value_float": 0.0}),
    ("Imputer", "y", {"imputed_value_floats": [7.0], "replaced_value_float": float("nan")}),
    ("LinearRegressor", "y", {"coefficients": W, "intercepts": [0.5, -1.0], "targets": 2}),
    ("LinearRegressor", "y", {"coefficients": W, "targets": 2, "post_transform": "LOGISTIC"}),
    ("LinearClassifier", "l s", {"coefficients": W[:3], "intercepts": [0.1], "classlabels_ints": [5, 7]}),
]
TABLE += [
    (
        "LinearClassifier",
        "l s",
        {"coefficients": w, "intercepts": b, "classlabels_ints": labels, "post_transform": post},
    )
    for post in ("NONE", "LOGISTIC", "SOFTMAX")
    for w, b, labels in ((W, [0.1, 0.2], [5, 7]), (W + W[:3], [0.1, 0.2, 0.3], [5, 9, 7]))
] + [
    (
        "LinearClassifier",
        "l s",
        {"coefficients": W[:3], "intercepts": [0.1], "classlabels_ints": [5, 7], "post_transform": "LOGISTIC"},
    )
]


@pytest.mark.parametrize(("op", "outputs", "attrs"), TABLE, ids=lambda v: v if isinstance(v, str) else "")
def test_against_onnxruntime(op: str, outputs: str, attrs: Attrs) -> None:
    rows = np.nan_to_num(ROWS) if op != "Imputer" else ROWS
    for x in (rows, rows[:1], rows[1]):
        agree(ml(op, "x", outputs, f"x float32[{'n,3' if x.ndim == 2 else '3'}]", **attrs), x)


@pytest.mark.parametrize(
    ("op", "x", "attrs"),
    [
        ("Scaler", i64([[1, 2], [3, 4]]), {"offset": [1.0], "scale": [0.5]}),
        ("Scaler", np.array([[1e9 + 1, 2]]), {"offset": [1e9], "scale": [0.5]}),
        ("Normalizer", i64([[1, -3], [0, 0]]), {"norm": "L1"}),
        ("Imputer", i64([[1, 0], [0, 4]]), {"imputed_value_int64s": [7, 9], "replaced_value_int64": 0}),
        ("OneHotEncoder", i64([[1, 3], [9, 1]]), {"cats_int64s": [1, 3], "zeros": 1}),
        ("OneHotEncoder", f32([1, 3.5]), {"cats_int64s": [1, 3], "zeros": 1}),
        ("OneHotEncoder", i64([[1, 3], [9, 1]]), {"cats_int64s": [1, 3, 1]}),
        ("OneHotEncoder", f32([0, np.nan]), {"cats_int64s": [0, 3]}),
    ],
)
def test_other_dtypes(op: str, x: Array, attrs: Attrs) -> None:
    dims = ",".join("nm"[: x.ndim])
    agree(ml(op, "x", "y", f"x {x.dtype.name}[{dims}]", **attrs), x)


@pytest.mark.parametrize("x", [f32([3, 1, 2]), f32([[3, 1, 2], [5, 4, 6]]), f32([[[3, 1, 2]], [[5, 4, 6]]])])
@pytest.mark.parametrize("places", [i64([2]), i64([[0, 2], [1, 1]])])
def test_extraction(x: Array, places: Array) -> None:
    declared = f"x float32[{','.join('nmk'[: x.ndim])}]; i int64[{','.join('ab'[: places.ndim])}]"
    agree(ml("ArrayFeatureExtractor", "x i", "y", declared), x, i=places)


def test_constants_of_classifiers_compile() -> None:
    proto = ml(
        "LinearClassifier", "x", "l s", "x float32[n,3]", coefficients=W, intercepts=[0.1, 0.2], classlabels_ints=[5, 7]
    )
    x = np.nan_to_num(ROWS)
    label, scores = rx_compile(from_onnx(proto), threads=1)["main"](x)
    wanted = run_onnxruntime(proto, {"x": x})
    assert label.tolist() == wanted[0].tolist()
    np.testing.assert_allclose(scores, wanted[1], rtol=1e-6)


@pytest.mark.parametrize(
    ("op", "attrs", "words"),
    [
        ("Scaler", {"offset": [1.0, 2.0], "scale": [1.0]}, "`offset` has 2 numbers for 3 features"),
        ("Imputer", {}, "`imputed_value_floats` has 0 numbers"),
        ("LinearRegressor", {"coefficients": [1.0] * 4, "targets": 3}, "4 coefficients and 0 intercepts for 3 targets"),
        ("Normalizer", {"norm": "L3"}, "norm L3"),
        ("OneHotEncoder", {"zeros": 1}, "no categories"),
        ("OneHotEncoder", {"cats_int64s": ["a"]}, "`cats_int64s` must be a list of int"),
        ("Scaler", {"offset": ["a"], "scale": [1.0]}, "`offset` must be a list of float"),
        ("LinearRegressor", {"coefficients": [1.0] * 3, "intercepts": ["a"]}, "`intercepts` must be a list of float"),
    ],
)
def test_malformed(op: str, attrs: Attrs, words: str) -> None:
    with pytest.raises(LoadError, match=words):
        from_onnx(ml(op, "x", "y", "x float32[n,3]", **attrs))


@pytest.mark.parametrize(
    ("op", "dtype", "attrs"),
    [
        ("Imputer", "int64", {"imputed_value_int64s": [3, -2], "replaced_value_int64": 0}),
        ("Imputer", "float32", {"imputed_value_floats": [3.0, -2.0]}),
        ("Scaler", "float32", {"offset": [1.0, 2.0], "scale": [2.0, 3.0]}),
    ],
)
def test_a_feature_is_not_repeated_for_several_numbers(op: str, dtype: str, attrs: Attrs) -> None:
    proto = ml(op, "x", "y", f"x {dtype}[n,m]", **attrs)
    agree(proto, np.arange(6).reshape(3, 2).astype(dtype))
    with pytest.raises(RuntimeShapeError, match="m is 1"):
        run(proto, x=np.arange(3).reshape(3, 1).astype(dtype))
