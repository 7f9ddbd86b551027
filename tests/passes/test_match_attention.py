"""Attention as exporters write it becomes the operator, with the same results."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op
from relaxir.passes import Pipeline
from relaxir.pipelines import GRAPH
from tests.building import Emit, dataflow

B, S, T = rx.dim("b", min=1), rx.dim("s", min=1), rx.dim("t", min=1)
LOW = float(np.finfo(np.float32).min)


def split(e: Emit, x: rx.Var, heads: int, length: object = S) -> rx.Var:
    view = e(op.reshape(x, shape=(B, length, heads, 8)))
    return e(op.permute_dims(view, axes=(0, 2, 1, 3)))


def exporter(e: Emit, q: rx.Var, k: rx.Var, v: rx.Var, mask: rx.Var) -> rx.Var:
    """Both factors scaled, keys transposed as (b * h, t, d), a guard against NaN, heads merged again."""
    q, k, v = split(e, q, 4), split(e, k, 4, T), split(e, v, 4, T)
    flat = e(op.permute_dims(e(op.reshape(k, shape=(B * 4, T, 8))), axes=(0, 2, 1)))
    turned = e(op.reshape(flat, shape=(B, 4, 8, T)))
    scores = e(op.matmul(e(op.multiply(q, 0.5)), e(op.multiply(turned, 0.5))))
    added = e(op.where(mask, 0.0, LOW))
    p = e(op.softmax(e(op.add(scores, added)), axis=-1))
    p = e(op.where(e(op.isnan(p)), 0.0, p))
    y = e(op.permute_dims(e(op.matmul(p, v)), axes=(0, 2, 1, 3)))
    return e(op.reshape(y, shape=(B, S, 32)))


def hidden(e: Emit, q: rx.Var, k: rx.Var, v: rx.Var, mask: rx.Var) -> rx.Var:
    """Scores divided, hidden keys by a mask that is true there."""
    q, k, v = split(e, q, 4), split(e, k, 4, T), split(e, v, 4, T)
    scores = e(op.divide(e(op.matmul(q, e(op.permute_dims(k, axes=(0, 1, 3, 2))))), 2.0))
    kept = e(op.where(e(op.logical_not(mask)), -1e9, scores))
    return e(op.matmul(e(op.softmax(kept, axis=3)), v))


def groups(e: Emit, q: rx.Var, k: rx.Var, v: rx.Var, mask: rx.Var) -> rx.Var:
    """Two key heads for four query heads, repeated by broadcasting."""

    def repeat(x: rx.Var) -> rx.Var:
        half = e(op.strided_slice(split(e, x, 4, T), axes=(1,), begin=(0,), size=(2,), step=(1,)))
        wide = e(op.broadcast_to(e(op.expand_dims(half, axes=(2,))), shape=(B, 2, 2, T, 8)))
        return e(op.reshape(wide, shape=(B, 4, T, 8)))

    scores = e(op.matmul(split(e, q, 4), e(op.permute_dims(repeat(k), axes=(0, 1, 3, 2)))))
    kept = e(op.where(mask, scores, float("-inf")))
    return e(op.matmul(e(op.softmax(kept)), repeat(v)))


def three_axes(e: Emit, q: rx.Var, k: rx.Var, v: rx.Var, mask: rx.Var) -> rx.Var:
    """No heads."""
    scores = e(op.matmul(q, e(op.permute_dims(k, axes=(0, 2, 1)))))
    hide = e(op.squeeze(mask, axes=(1,)))
    return e(op.matmul(e(op.softmax(e(op.add(scores, e(op.where(hide, 0.0, -5.0)))))), v))


def build(make: Callable[..., rx.Var]) -> rx.IRModule:
    shapes = ((B, S, 32), (B, T, 32), (B, T, 32))
    params = [rx.Var(n, rx.TensorType(s, "float32")) for n, s in zip("qkv", shapes, strict=True)]
    params.append(rx.Var("mask", rx.TensorType((B, 1, 1, T), "bool")))
    return dataflow(make, *params)


@pytest.mark.parametrize("make", [exporter, hidden, groups, three_axes])
def test_found_and_equal(make: Callable[..., rx.Var]) -> None:
    module = build(make)
    after = Pipeline(GRAPH)(module)
    text = str(after)
    assert "R.attention(" in text
    assert "R.softmax(" not in text and "R.matmul(" not in text
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((2, n, 32)).astype(np.float32) for n in (3, 5, 5))
    for mask in (rng.random((2, 1, 1, 5)) < 0.6, np.zeros((2, 1, 1, 5), bool)):
        with np.errstate(all="ignore"):
            want, got = (rx.evaluate(m, "main", q, k, v, mask) for m in (module, after))
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_transpositions_disappear() -> None:
    assert "permute_dims" not in str(Pipeline(GRAPH)(build(exporter)))


def test_keys_stored_transposed_stay_a_product() -> None:
    def make(e: Emit, q: rx.Var, k: rx.Var, v: rx.Var, mask: rx.Var) -> rx.Var:
        turned = e(op.reshape(k, shape=(B, 4, 8, T)))
        return e(op.matmul(e(op.softmax(e(op.matmul(split(e, q, 4), turned)))), split(e, v, 4, T)))

    assert "R.attention(" not in str(Pipeline(GRAPH)(build(make)))


def test_no_keys_at_all() -> None:
    """The product of a softmax and values sums over nothing where there are no keys: 0, not NaN."""
    s, t = rx.dim("s"), rx.dim("t")
    q, k, v = (rx.Var(n, rx.TensorType((1, 2, d, 8), "float32")) for n, d in (("q", s), ("k", t), ("v", t)))
    bb = rx.BlockBuilder()
    with bb.function("main", [q, k, v]):
        scores = bb.emit(op.matmul(q, bb.emit(op.permute_dims(k, axes=(0, 1, 3, 2)))))
        bb.emit_func_output(bb.emit(op.matmul(bb.emit(op.softmax(scores)), v)))
    module = bb.get()
    assert "R.attention(" in str(Pipeline(GRAPH)(module))
    main = rx.compile(module, jobs=1)["main"]
    for length in (0, 1):
        args = [np.ones((1, 2, n, 8), np.float32) for n in (3, length, length)]
        np.testing.assert_array_equal(main(*args), rx.evaluate(module, "main", *args))
        np.testing.assert_array_equal(main(*args), np.full((1, 2, 3, 8), length, np.float32))
