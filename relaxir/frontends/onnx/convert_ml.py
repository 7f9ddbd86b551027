"""Converters of ai.onnx.ml: those of its operators that are arithmetic on tensors of numbers.

The standard leaves corners open; there the results are those of ONNX Runtime.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.values import Value
from relaxir.support.dtypes import info
from relaxir.sym import product

NORMS: Final[Mapping[str, str]] = MappingProxyType({"MAX": "max", "L1": "l1_norm", "L2": "l2_norm"})
"""Reductions by `norm`; the largest element is meant, not the largest magnitude."""


def numbers(n: Node) -> Value:
    """The first input in float64, if that is what it is, else in float32."""
    x = n.input(0)
    return n.emit("astype", x, dtype="float64" if x.type.dtype == "float64" else "float32")


def features(n: Node, x: Value) -> Value:
    """The features of one example, or of one example in each row.

    Raises:
        UnsupportedError: a tensor of another rank.
    """
    if x.type.rank not in (1, 2):
        n.unsupported(f"features of rank {x.type.rank}")
    return x


def per_feature(n: Node, x: Value, *names: str) -> tuple[Value, ...]:
    """The features, then attributes of one number, or of as many as there are features.

    A number of features that is known only at run time is checked then: one feature is not repeated for several
    numbers.

    Raises:
        LoadError: another count.
    """
    found = []
    for name in names:
        width = x.type.shape[-1]
        given = (n.ints(name) if info(x.type.dtype).is_integer else n.floats(name)) or ()
        if not given or (len(given) > 1 and isinstance(width, int) and len(given) != width):
            n.fail(f"attribute `{name}` has {len(given)} numbers for {width} features")
        if len(given) > 1 and not isinstance(width, int):
            x = n.cast_shape(x, (*x.type.shape[:-1], len(given)))
        found.append(n.literal(np.array(given), x.type.dtype))
    return x, *found


def scaler(n: Node) -> Result:
    """Scaler: ``(x - offset) * scale``."""
    x, offset, scale = per_feature(n, features(n, numbers(n)), "offset", "scale")
    return n.emit("astype", n.emit("multiply", n.emit("subtract", x, offset), scale), dtype="float32")


def normalizer(n: Node) -> Result:
    """Normalizer: each row divided by its size; a row of size 0 stays."""
    x, norm = features(n, numbers(n)), n.attr("norm", "MAX")
    if norm not in NORMS:
        n.fail(f"norm {norm}")
    size = n.emit(NORMS[norm], x, axes=(-1,), keepdims=True)
    divisor = n.emit("where", n.emit("equal", size, 0.0), n.scalar(1.0, x.type.dtype), size)
    return n.emit("astype", n.emit("divide", x, divisor), dtype="float32")


def binarizer(n: Node) -> Result:
    """Binarizer: 1 where an element is greater than the threshold, else 0."""
    over = n.emit("greater", numbers(n), n.attr("threshold", 0.0))
    return n.emit("astype", over, dtype=n.type().dtype)


def imputer(n: Node) -> Result:
    """Imputer: elements of one value, or NaN, get the value of their feature."""
    x = features(n, n.input(0))
    if info(x.type.dtype).is_integer:
        x, imputed = per_feature(n, x, "imputed_value_int64s")
        return n.emit("where", n.emit("equal", x, n.attr("replaced_value_int64", 0)), imputed, x)
    x, imputed = per_feature(n, x, "imputed_value_floats")
    missing = n.attr("replaced_value_float", 0.0)
    hole = n.emit("isnan", x) if np.isnan(missing) else n.emit("equal", x, missing)
    return n.emit("where", hole, imputed, x)


def extract(n: Node) -> Result:
    """ArrayFeatureExtractor: elements of the last axis by position; a vector counts as one row."""
    x, places = n.input(0), n.input(1)
    flat = n.emit("reshape", places, shape=(product(places.type.shape),))
    y = n.emit("take", x, flat, axis=-1)
    return y if y.type.rank > 1 else n.emit("expand_dims", y, axes=(0,))


def one_hot(n: Node) -> Result:
    """OneHotEncoder: a last axis with a 1 at the place of each element among the categories, the last one if several.

    Raises:
        LoadError: no categories.
    """
    if n.has("cats_strings") or not n.attr("zeros", 1):
        n.unsupported("categories that are strings, or zeros=0 (other elements are an error)")
    cats = n.ints("cats_int64s")
    if cats is None:
        n.fail("it has no categories (`cats_int64s`)")
    x = n.emit("expand_dims", n.input(0), axes=(-1,))
    same = n.emit("equal", n.emit("astype", x, dtype="int64"), n.literal(np.array(cats, np.int64), "int64"))
    if info(x.type.dtype).is_float:
        same = n.emit("logical_and", same, n.emit("equal", x, x))  # NaN is in no category
    places = {c: i for i, c in enumerate(cats)}
    if len(places) < len(cats):
        last = [places[c] == i for i, c in enumerate(cats)]
        same = n.emit("logical_and", same, n.literal(np.array(last), "bool"))
    return n.emit("astype", same, dtype="float32")


def scores(n: Node, targets: int) -> Value:
    """One column for each target: a weighted sum of the features, and an intercept.

    Raises:
        LoadError: other numbers of coefficients or intercepts.
    """
    x, weights, intercepts = features(n, numbers(n)), n.floats("coefficients") or (), n.floats("intercepts") or ()
    if targets < 1 or not weights or len(weights) % targets or len(intercepts) not in (0, targets):
        n.fail(f"{len(weights)} coefficients and {len(intercepts)} intercepts for {targets} targets")
    rows = x if x.type.rank == 2 else n.emit("expand_dims", x, axes=(0,))
    y = n.emit("matmul", rows, n.literal(np.array(weights).reshape(targets, -1).T, x.type.dtype))
    return n.emit("add", y, n.literal(np.array(intercepts), x.type.dtype)) if intercepts else y


def transformed(n: Node, y: Value) -> Value:
    """Scores after ``post_transform``, in float32."""
    kind = n.attr("post_transform", "NONE")
    if kind == "LOGISTIC":
        y = n.emit("sigmoid", y)
    elif kind == "SOFTMAX":
        y = n.emit("softmax", y, axis=-1)
    elif kind != "NONE":
        n.unsupported(f"post_transform {kind}")
    return n.emit("astype", y, dtype="float32")


def regressor(n: Node) -> Result:
    """LinearRegressor: scores of each target."""
    return transformed(n, scores(n, n.attr("targets", 1)))


def classifier(n: Node) -> Result:
    """LinearClassifier: labels and scores of the classes; a single score is that of the second of two classes."""
    if n.has("classlabels_strings"):
        n.unsupported("class labels that are strings", help="train or export the model with integer labels")
    labels = n.ints("classlabels_ints") or ()
    raw = scores(n, len(n.floats("intercepts") or labels))
    single = raw.type.shape[1] == 1
    if single and n.attr("post_transform", "NONE") == "SOFTMAX":
        n.unsupported("softmax of a single score")
    if len(labels) != (2 if single else raw.type.shape[1]):
        n.unsupported(f"{len(labels)} class labels for {raw.type.shape[1]} scores")
    if not single:
        return label(n, labels, n.emit("argmax", raw, axis=1, keepdims=False)), transformed(n, raw)
    won = n.emit("reshape", n.emit("greater", raw, 0.0), shape=raw.type.shape[:1])
    second = transformed(n, raw)
    first = n.emit("subtract", n.scalar(1.0, "float32"), second)
    return label(n, labels, n.emit("astype", won, dtype="int64")), n.emit("concat", first, second, axis=1)


def label(n: Node, labels: tuple[int, ...], winner: Value) -> Value:
    """The labels of the winning classes."""
    return n.emit("take", n.literal(np.array(labels), "int64"), winner, axis=0)


ML: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "ArrayFeatureExtractor": extract,
        "Binarizer": binarizer,
        "Imputer": imputer,
        "LinearClassifier": classifier,
        "LinearRegressor": regressor,
        "Normalizer": normalizer,
        "OneHotEncoder": one_hot,
        "Scaler": scaler,
    }
)
"""Operators of ai.onnx.ml by name."""
