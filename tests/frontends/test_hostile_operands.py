"""Operands that decide sizes, with values of every kind in compiled code: onnxruntime's answer, or an error of relaxir."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from typing import Any

import numpy as np
import onnxruntime
import pytest
from onnx import ModelProto

from relaxir.api import compile as rx_compile
from relaxir.frontends.onnx import from_onnx
from relaxir.ir.expr import Array
from relaxir.support.errors import RelaxirError
from tests.frontends.models import f32, i64, model, node

X = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
LINE = np.arange(10, dtype=np.float32)
ENDS = (2**63 - 1, -(2**63))
SMALL = (0, 1, 3, -1, -3, 100)
HUGE = (2**40, 2**62)
Case = tuple[ModelProto, dict[str, Array], dict[str, list[Array]]]


def one(op: str, operands: str, types: str, rank: int = 3, opset: int = 18, **attrs: Any) -> ModelProto:
    dims = ",".join(f"o{i}" for i in range(rank))
    return model([node(op, operands, "y", **attrs)], types, f"y float32[{dims}]", opset)


def vectors(count: int, *extra: tuple[int, ...]) -> list[Array]:
    """The same number everywhere, and given vectors."""
    return [*(i64([v] * count) for v in (*SMALL, *HUGE, *ENDS)), *map(i64, extra)]


def scalars(dtype: type = np.int64) -> list[Array]:
    return [np.array(v, dtype) for v in (*SMALL, *HUGE, *ENDS)]


def bounds() -> dict[str, list[Array]]:
    """Starts, ends and steps in all combinations but one: onnxruntime takes the largest end for the first, going back."""
    combined = product((0, 3, -3, 100, -100, *ENDS), (0, 7, -2, *ENDS), (1, -2, *ENDS))
    found = [b for b in combined if b[1] != ENDS[0] or b[2] > 0]
    return {name: [i64([b[k]]) for b in found] for k, name in enumerate(("s", "e", "t"))}


PADS = ((1, 0, -1, 2), (4, 2, -2, 4), (1, 0, -2, -1), (0, -2, 2, -2), (2**63 - 1, 0, 2**63 - 1, 0), (-3, 1, 1, 1))
CASES: dict[str, Case] = {
    "Reshape": (one("Reshape", "x t", "x float32[a,b,c]; t int64[3]"), {"x": X},
                {"t": vectors(3, (4, -1, 2), (0, -1, 0), (2**32, 2**32, -1), (24, 1, 1), (-1, 0, -1))}),
    "Expand": (one("Expand", "x t", "x float32[a,b]; t int64[3]"), {"x": X[0, :, :1]},
               {"t": vectors(3, (2, 3, 5), (2, 1, 0), (0, 3, 1), (1, 2, 1))}),
    "Slice": (one("Slice", "x s e a t", "x float32[n]; s int64[1]; e int64[1]; a int64[1]; t int64[1]", 1),
              {"x": LINE, "a": i64([0])}, bounds()),
    **{f"Pad {mode}": (one("Pad", "x p", "x float32[a,b]; p int64[4]", 2, 19, mode=mode), {"x": X[0]},
                       {"p": vectors(4, *PADS)}) for mode in ("constant", "edge", "wrap")},
    "Tile": (one("Tile", "x r", "x float32[a,b,c]; r int64[3]"), {"x": X}, {"r": vectors(3, (2, 0, 1), (1, 2, 2**62))}),
    "Range": (model([node("Range", "a b c", "y")], "a int64[]; b int64[]; c int64[]", "y int64[n]"), {},
              {"a": scalars(), "b": scalars()[::-1], "c": [i64(1), i64(-2), i64(0), i64(2**62)]}),
    "Range of floats": (model([node("Range", "a b c", "y")], "a float32[]; b float32[]; c float32[]", "y float32[n]"), {},
                        {"a": [*map(f32, (0, 1, 5, np.nan, 0, np.inf))], "b": [*map(f32, (1, 5, 1, 2, np.inf, 1))],
                         "c": [*map(f32, (0.3, 1, -1.5, 1, 1, 1))]}),
    "Resize": (one("Resize", "x _ _ s", "x float32[a,b,c]; s int64[3]", mode="linear"), {"x": X},
               {"s": vectors(3, (2, 3, 7), (1, 2, 5), (4, 3, 1))}),
    "Resize by factors": (one("Resize", "x _ s", "x float32[a,b,c]; s float32[3]"), {"x": X},
                          {"s": [*map(f32, ([1, 2, 1.5], [2, 0.5, 3], [0, 1, 1], [-1, 1, 1], [np.nan, 1, 1], [np.inf, 1, 1],
                                            [1e30, 1, 1], [1e12, 1e12, 1]))]}),
    "TopK": (model([node("TopK", "x k", "v i")], "x float32[a,n]; k int64[1]", "v float32[a,k]; i int64[a,k]"), {"x": X[0]},
             {"k": vectors(1, (4,), (5,))}),
    "ConstantOfShape": (one("ConstantOfShape", "s", "s int64[3]"), {}, {"s": vectors(3, (2, 0, 3), (2, 1, 3))}),
    "OneHot": (one("OneHot", "i d v", "i int64[n]; d int64[]; v float32[2]", 2), {"v": f32([0, 5]), "i": i64([0, 4, -1])},
               {"d": scalars()}),
    "Split": (model([node("Split", "x s", "y z", axis=1)], "x float32[a,b,c]; s int64[2]",
                    "y float32[p,q,r]; z float32[s,t,u]"), {"x": X}, {"s": vectors(2, (1, 2), (3, 0), (4, -1), (2, 2))}),
    "Trilu": (one("Trilu", "x k", "x float32[a,b,c]; k int64[]"), {"x": X}, {"k": scalars()}),
    "CumSum": (one("CumSum", "x a", "x float32[a,b,c]; a int64[]"), {"x": X}, {"a": scalars()}),
    "AffineGrid": (one("AffineGrid", "t s", "t float32[n,2,3]; s int64[4]", 4, 20), {"t": np.ones((2, 2, 3), np.float32)},
                   {"s": vectors(4, (2, 3, 4, 5), (2, 1, 3, 2), (1, 3, 4, 5), (2, 3, -4, 5))}),
}  # fmt: skip
ZERO_SIZES = frozenset({"Resize", "Resize by factors", "OneHot", "AffineGrid"})
"""Operators that onnxruntime refuses to give an empty result, or to index it by."""


def feeds(case: Case) -> Iterator[dict[str, Array]]:
    _, fixed, given = case
    for k in range(max(map(len, given.values()))):
        yield {**fixed, **{name: options[k % len(options)] for name, options in given.items()}}


def reference(session: Any, feed: dict[str, Array]) -> list[Array] | None:
    """The answer of onnxruntime; it is not asked for results that fill the memory."""
    try:
        return list(session.run(None, feed))
    except Exception:
        return None


@pytest.mark.parametrize("name", CASES)
def test_answer_or_error(name: str) -> None:
    proto = CASES[name][0]
    main = rx_compile(from_onnx(proto), threads=1)["main"]
    session = onnxruntime.InferenceSession(proto.SerializeToString(), providers=["CPUExecutionProvider"])
    answers = 0
    for feed in feeds(CASES[name]):
        try:
            found = main(**feed)
        except RelaxirError:
            continue
        results = found if isinstance(found, tuple) else (found,)
        wanted = reference(session, feed)
        if wanted is None:
            assert name in ZERO_SIZES and not results[0].size, (feed, results)
            continue
        answers += 1
        for got, want in zip(results, wanted, strict=True):
            assert (got.dtype, got.shape) == (want.dtype, want.shape), feed
            np.testing.assert_allclose(got, want, rtol=1e-6, atol=1e-6, err_msg=str(feed))
    assert answers >= 2, "too few values are accepted"
