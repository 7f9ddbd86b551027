"""Transpositions and sums over lanes that the emitter writes with shuffles."""

from __future__ import annotations

import numpy as np
import pytest

import relaxir as rx

TARGETS = ("native", "x86-64-v3", "x86-64-v2")
N, M = rx.dim("n"), rx.dim("m")


def compiled(call: object, *params: rx.Var, target: str) -> object:
    bb = rx.BlockBuilder()
    with bb.function("main", params):
        bb.emit_func_output(call)
    return rx.compile(bb.get(), target=target, cache=False, jobs=1)["main"]


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("dtype", ["float32", "int32", "float64", "int8"])
def test_transposition(target: str, dtype: str) -> None:
    x = rx.Var("x", rx.TensorType((N, M), dtype))
    main = compiled(rx.op.permute_dims(x, axes=(1, 0)), x, target=target)
    for shape in ((0, 3), (1, 16), (16, 1), (16, 16), (15, 17), (33, 48), (64, 32)):
        value = np.arange(shape[0] * shape[1]).reshape(shape).astype(dtype)
        np.testing.assert_array_equal(main(value), value.T)


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [7, 16, 23, 40])
def test_transposition_writes_nothing_else(target: str, columns: int) -> None:
    x = rx.Var("x", rx.TensorType((N, columns), "float32"))
    main = compiled(rx.op.permute_dims(x, axes=(1, 0)), x, target=target)
    for n in (1, 2, 7, 15, 16, 17, 31, 37):
        value = np.arange(n * columns, dtype=np.float32).reshape(n, columns)
        room = np.full(value.size + 40, -1, np.float32)
        out = room[20 : 20 + value.size].reshape(columns, n)
        main.into([out], value)
        np.testing.assert_array_equal(out, value.T)
        assert (room[:20] == -1).all()
        assert (room[-20:] == -1).all()


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("columns", [48, 257, 2500])
@pytest.mark.parametrize("threads", [1, 3])
def test_sums_of_columns(target: str, columns: int, threads: int) -> None:
    kinds = [rx.TensorType((N, columns), "float32"), rx.TensorType((N, M), "float32")]
    sums = []
    for kind in kinds:
        x = rx.Var("x", kind)
        bb = rx.BlockBuilder()
        with bb.function("main", [x]):
            bb.emit_func_output((rx.op.sum(x, axes=(0,)), rx.op.max(x, axes=(0,))))
        sums.append(rx.compile(bb.get(), target=target, threads=threads, cache=False, jobs=1)["main"])
    for n in (0, 1, 7, 63, 64, 131):
        value = np.random.default_rng(n).integers(-9, 9, (n, columns)).astype(np.float32)
        if n > 2:
            value[n // 2, columns // 2] = np.nan
        for total, top in (main(value) for main in sums):
            np.testing.assert_array_equal(total, value.sum(0))
            np.testing.assert_array_equal(top, value.max(0, initial=-np.inf))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("width", [3, 64, 100, 1000])
def test_softmax_of_rows_with_nan_and_infinity(target: str, width: int) -> None:
    x = rx.Var("x", rx.TensorType((N, width), "float32"))
    softmax, logs = (compiled(f(x), x, target=target) for f in (rx.op.softmax, rx.op.log_softmax))
    value = np.random.default_rng(1).standard_normal((9, width)).astype(np.float32)
    value[0, 0], value[1, -1], value[2, width // 2], value[3, 1] = np.nan, np.nan, np.inf, -np.inf
    value[4], value[5] = np.nan, -np.inf
    value[6] *= 1e30
    with np.errstate(all="ignore"):
        shifted = value.astype(np.float64) - np.max(value, 1, keepdims=True, initial=-np.inf)
        want = np.exp(shifted) / np.exp(shifted).sum(1, keepdims=True)
        np.testing.assert_allclose(softmax(value), want, rtol=2e-6, atol=1e-38)
        np.testing.assert_allclose(
            logs(value), shifted - np.log(np.exp(shifted).sum(1, keepdims=True)), rtol=2e-6, atol=2e-6
        )


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("depth", [8, 16, 24, 33, 64, 96, 200])
def test_dot_products_side_by_side(target: str, depth: int) -> None:
    q, k = (rx.Var(n, rx.TensorType((d, depth), "float32")) for n, d in (("q", N), ("k", M)))
    turned = rx.op.permute_dims(k, axes=(1, 0))
    main = compiled(rx.op.matmul(q, turned), q, k, target=target)
    rng = np.random.default_rng(depth)
    for n, m in ((1, 1), (1, 5), (2, 8), (1, 33)):
        a, b = (rng.standard_normal((s, depth)).astype(np.float32) for s in (n, m))
        np.testing.assert_allclose(main(a, b), a @ b.T, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("target", TARGETS)
def test_maximum_of_lanes_keeps_nan(target: str) -> None:
    x = rx.Var("x", rx.TensorType((N, 48), "float32"))
    main = compiled(rx.op.max(x, axes=(1,)), x, target=target)
    value = np.random.default_rng(0).standard_normal((49, 48)).astype(np.float32)
    for row in range(48):
        value[row, row] = np.nan if row % 2 else np.inf
    np.testing.assert_array_equal(main(value), value.max(1))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("threads", [1, 3])
def test_reduction_to_one_element(target: str, threads: int) -> None:
    x = rx.Var("x", rx.TensorType((N,), "int64"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(rx.op.sum(x))
    main = rx.compile(bb.get(), target=target, threads=threads, cache=False, jobs=1)["main"]
    for size in (0, 1, 65535, 65536, 65599, 200001):
        value = np.arange(size)
        assert main(value) == value.sum()
