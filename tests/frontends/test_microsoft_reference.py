"""Operators of com.microsoft that ONNX Runtime runs on other devices only: against NumPy, every size a symbol."""

from __future__ import annotations

from collections.abc import Callable
from math import erf
from typing import Any

import numpy as np
import pytest

from relaxir.ir.expr import Array
from tests.frontends.models import f32, run
from tests.frontends.test_microsoft import Case, Feeds, H, ms, proto_of, q8, real, u8

Reference = Callable[..., Array]


def gelu(x: Array) -> Array:
    found: Array = x * (1 + np.vectorize(erf, otypes=[np.float64])(x / np.sqrt(2))) / 2
    return found


def bias_split_gelu(x: Array, c: Array) -> Array:
    left, right = np.split(x + c, 2, axis=-1)
    return left * gelu(right)


def softmax(x: Array, axes: tuple[int, ...]) -> Array:
    e = np.exp(x - x.max(axes, keepdims=True))
    found: Array = e / e.sum(axes, keepdims=True)
    return found


def group_norm(x: Array, g: Array, c: Array, groups: int, active: bool) -> Array:
    """Channels last."""
    parts = x.reshape(x.shape[0], -1, groups, x.shape[-1] // groups)
    centred = parts - parts.mean((1, 3), keepdims=True)
    y = (centred / np.sqrt((centred**2).mean((1, 3), keepdims=True) + 1e-5)).reshape(x.shape) * g + c
    found: Array = y / (1 + np.exp(-y)) if active else y
    return found


def conv_nhwc(x: Array, w: Array, c: Array) -> Array:
    """Weights as (out, height, width, in); one pixel of padding on each side."""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[1:3], axis=(1, 2))
    found: Array = np.einsum("bhwcij,oijc->bhwo", windows, w) + c
    return found


def as_complex(x: Array) -> Array:
    found: Array = x[..., 0] + 1j * x[..., 1]
    return found


def as_pairs(x: Array) -> Array:
    return np.stack([x.real, x.imag], axis=-1)


def quantised_mean(x: Array, sx: Array, zx: Array, sy: Array, zy: Array, **how: Any) -> Array:
    mean = ((x.astype(np.float64) - zx) * sx).mean(**how)
    return np.clip(np.rint(mean / sy) + zy, 0, 255)


def biased(b: int, s: int) -> Feeds:
    return {"x": real(b, s, H), "c": real(H)}


def image(b: int, s: int) -> Feeds:
    return {"x": real(b, s, 3, H), "g": real(H), "c": real(H)}


CASES: dict[str, tuple[Case, Reference]] = {
    "sum with a residual": (
        (ms("BiasAdd", "x c k"), "y float32", lambda b, s: {**biased(b, s), "k": real(b, s, H)}),
        lambda x, c, k: x + c + k,
    ),
    "split gelu": ((ms("BiasSplitGelu", "x c"), "y float32", biased), bias_split_gelu),
    "softmax, bias of inner axes": (
        (
            ms("BiasSoftmax", "x c", axis=2, is_inner_broadcast=1), "y float32",
            lambda b, s: {"x": real(b, 2, s, H), "c": real(b, 1, s, H)},
        ),
        lambda x, c: softmax(x + c, (2, 3)),
    ),
    "softmax, bias of outer axes": (
        (
            ms("BiasSoftmax", "x c", axis=-1, is_inner_broadcast=0), "y float32",
            lambda b, s: {"x": real(b, 2, s, H), "c": real(b, 1, 1, H)},
        ),
        lambda x, c: softmax(x + c, (3,)),
    ),
    "group norm": (
        (ms("GroupNorm", "x g c", groups=2, activation=0), "y float32", image),
        lambda x, g, c: group_norm(x, g, c, 2, active=False),
    ),
    "group norm and silu": (
        (ms("GroupNorm", "x g c", groups=4, activation=1), "y float32", image),
        lambda x, g, c: group_norm(x, g, c, 4, active=True),
    ),
    "convolution, channels last": (
        (
            ms("NhwcConv", "x w c", pads=[1, 1, 1, 1]), "y float32",
            lambda b, s: {"x": real(b, s, 5, 3), "w": real(4, 3, 3, 3), "c": real(4)},
        ),
        conv_nhwc,
    ),
    "complex product": (
        (ms("ComplexMul", "x w"), "y float32", lambda b, s: {"x": real(b, s, 2), "w": real(b, s, 2)}),
        lambda x, w: as_pairs(as_complex(x) * as_complex(w)),
    ),
    "complex product, conjugated": (
        (ms("ComplexMulConj", "x w"), "y float32", lambda b, s: {"x": real(b, s, 2), "w": real(s, 2)}),
        lambda x, w: as_pairs(as_complex(x) * as_complex(w).conj()),
    ),
    "quantised mean": (
        (
            ms("QLinearReduceMean", "x sx zx sy zy", axes=[1], keepdims=0), "y uint8",
            lambda b, s: {**q8("x", b, s, H), "sy": f32(0.02), "zy": u8(100)},
        ),
        lambda **feeds: quantised_mean(**feeds, axis=1),
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_against_numpy(name: str) -> None:
    (made, outputs, feeds_of), reference = CASES[name]
    for sizes in ((2, 3), (1, 5), (3, 1)):
        feeds = feeds_of(*sizes)
        want = reference(**{k: v.astype(np.float64) for k, v in feeds.items()})
        (got,) = run(proto_of(made, feeds, outputs), **feeds)
        assert got.shape == want.shape
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 if got.dtype.kind == "f" else 1)
