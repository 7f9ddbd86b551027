"""Scheduled attention against its definition: layouts, masks, groups of heads, sizes that cross every block."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op
from relaxir.passes import Pipeline
from relaxir.pipelines import GRAPH, KERNELS, LOWER

B, S, T, H = (rx.dim(n) for n in "bsth")


def heads(count: object, kv: object, d: int, e: int) -> tuple[tuple[object, ...], ...]:
    return (B, count, S, d), (B, kv, T, d), (B, kv, T, e)


CASES: Final[Mapping[str, tuple]] = MappingProxyType(
    {
        "plain": (heads(2, 2, 32, 32), "float32", None, {}),
        "odd sizes": (heads(2, 2, 5, 37), "float32", ((S, T), "float32"), {}),
        "groups": (heads(4, 2, 16, 40), "float32", ((S, T), "float32"), {"empty_rows": "zero"}),
        "rows first": (
            ((B, S, 4, 32), (B, T, 4, 32), (B, T, 4, 32)),
            "float32",
            ((B, 1, 1, T), "bool"),
            {"rows_first": "qkvo", "empty_rows": "guard"},
        ),
        "causal": (heads(H, H, 8, 8), "float64", None, {"causal": True, "causal_offset": 1}),
        "half": (heads(2, 2, 8, 8), "float16", ((B, 2, S, T), "bool"), {"softcap": 3.0}),
        "filled": (heads(2, 2, 16, 16), "float32", ((B, 1, S, T), "bool"), {"fill": -1e9}),
        "wide": (heads(1, 1, 300, 130), "float32", None, {}),
    }
)
SIZES: Final = ((1, 1, 1, 2), (2, 3, 0, 2), (0, 3, 2, 1), (1, 0, 3, 1), (2, 5, 33, 3), (1, 4, 600, 1), (1, 140, 70, 1))


def attention(name: str) -> rx.IRModule:
    shapes, dtype, mask, attrs = CASES[name]
    types = [rx.TensorType(s, dtype) for s in shapes] + ([rx.TensorType(*mask)] if mask else [])
    params = [rx.Var(n, t) for n, t in zip("qkvm", types, strict=False)]
    bb = rx.BlockBuilder()
    with bb.function("main", params):
        bb.emit_func_output(op.attention(*params, **attrs))
    return bb.get()


def arrays(name: str, sizes: tuple[int, ...]) -> list[np.ndarray]:
    shapes, dtype, mask, _ = CASES[name]
    rng = np.random.default_rng(sizes)
    known = dict(zip((B, S, T, H), sizes, strict=True))
    made = [rng.standard_normal([known.get(d, d) for d in s]).astype(dtype) for s in shapes]
    if mask:
        values = rng.random([known.get(d, d) for d in mask[0]])
        made.append(values < 0.5 if mask[1] == "bool" else np.where(values < 0.2, -np.inf, values).astype(mask[1]))
    return made


@pytest.mark.parametrize("name", CASES)
def test_agrees_with_the_definition(name: str) -> None:
    module = attention(name)
    main = rx.compile(module, cache=False, jobs=1)["main"]
    limit = 4e-3 if CASES[name][1] == "float16" else 2e-5
    for sizes in SIZES:
        inputs = arrays(name, sizes)
        with np.errstate(all="ignore"):
            want = rx.evaluate(module, "main", *inputs)
        np.testing.assert_allclose(main(*inputs), want, rtol=limit, atol=limit, err_msg=f"{name} {sizes}")


@pytest.mark.parametrize("name", CASES)
def test_is_one_kernel_without_workspace(name: str) -> None:
    lowered = Pipeline((*GRAPH, *LOWER, *KERNELS))(attention(name))
    (kernel,) = lowered.prim_funcs().values()
    assert kernel.attrs["rules"] == ("attention",)
    assert kernel.workspaces == 0


def test_infinite_and_nan_scores_stay_in_their_rows() -> None:
    module = attention("plain")
    main = rx.compile(module, cache=False, jobs=1)["main"]
    q, k, v = arrays("plain", (1, 5, 9, 1))
    q[0, 0, 1, 3], q[0, 1, 2, 0] = np.nan, np.inf
    with np.errstate(all="ignore"):
        want = rx.evaluate(module, "main", q, k, v)
    np.testing.assert_allclose(main(q, k, v), want, rtol=2e-5, atol=2e-5)
