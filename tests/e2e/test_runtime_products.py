"""Products of two run-time operands: every orientation, at extents on both sides of where another kernel takes over."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import relaxir as rx
from relaxir.runtime.executable import Executable
from relaxir.schedule.streams import FEW_ROWS, WIDE
from relaxir.schedule.turning import MANY_LANES, MANY_ROWS
from relaxir.sym import Dim

ROWS = (0, 1, FEW_ROWS, FEW_ROWS + 1, MANY_ROWS - 1, MANY_ROWS, 37)
DEPTHS = (0, 1, 7, 8, 65)
COLUMNS = (0, 1, MANY_LANES - 1, MANY_LANES, WIDE - 1, WIDE, 2 * WIDE + 1)


def product(equation: str, dtype: str, dims: dict[str, int | Dim]) -> Executable:
    """An einsum of two operands with a bias and an activation behind it."""
    terms, result = equation.split("->")
    left, right = terms.split(",")
    shapes = [tuple(dims[c] for c in term) for term in (left, right)]
    a, b = (rx.Var(name, rx.TensorType(shape, dtype)) for name, shape in zip("ab", shapes, strict=True))
    bias = rx.Var("bias", rx.TensorType((dims[result[-1]],), dtype))
    bb = rx.BlockBuilder()
    with bb.function("main", [a, b, bias]):
        with bb.dataflow():
            out = bb.emit_output(rx.op.relu(rx.op.add(rx.op.einsum((a, b), equation=equation), bias)))
        bb.emit_func_output(out)
    return rx.compile(bb.get())


def agree(exe: Executable, equation: str, dtype: str, sizes: dict[str, int]) -> None:
    rng = np.random.default_rng(0)
    terms, result = equation.split("->")
    left, right = terms.split(",")
    a, b, bias = (rng.standard_normal([sizes[c] for c in term]).astype(dtype) for term in (left, right, result[-1]))
    wide = "float64" if dtype == "float64" else "float32"
    expected = np.maximum(np.einsum(equation, a.astype(wide), b.astype(wide)) + bias, 0)
    tolerance = {"float16": 2e-2, "float32": 1e-4, "float64": 1e-12}[dtype]
    np.testing.assert_allclose(exe["main"](a, b, bias), expected, rtol=tolerance, atol=tolerance, err_msg=str(sizes))


@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("equation", ["mk,kn->mn", "mk,nk->mn", "km,kn->mn", "km,nk->mn"])
def test_all_sizes_of_one_build(equation: str, dtype: str) -> None:
    exe = product(equation, dtype, {c: rx.dim(c) for c in "mkn"})
    for (m, n), k in zip(itertools.product(ROWS, COLUMNS), itertools.cycle(DEPTHS), strict=False):
        agree(exe, equation, dtype, {"m": m, "k": k, "n": n})


@pytest.mark.parametrize("equation", ["bmk,bkn->bmn", "bmk,bnk->bmn", "bmhk,bnhk->bhmn", "mbk,kn->bmn", "mik,ikn->mn"])
def test_batches_and_several_reduced_axes(equation: str) -> None:
    symbols = {c: rx.dim(c) for c in "bmkn"} | {"h": 3, "i": 2}
    exe = product(equation, "float32", symbols)
    for m, n in itertools.product((1, 3, 40), (5, MANY_LANES + 3, WIDE + 1)):
        agree(exe, equation, "float32", {"b": 2, "h": 3, "i": 2, "m": m, "k": 19, "n": n})


@pytest.mark.parametrize("equation", ["mk,kn->mn", "mk,nk->mn"])
@pytest.mark.parametrize(("m", "n"), [(1, 300), (2, 300), (64, 300), (64, 40)])
def test_known_sizes(equation: str, m: int, n: int) -> None:
    sizes = {"m": m, "k": 300, "n": n}
    agree(product(equation, "float32", dict(sizes)), equation, "float32", sizes)
