"""Arguments and elements at which operators of torch are special: one natively compiled program for all of a kind."""

from __future__ import annotations

from collections.abc import Callable
from math import inf, nan
from types import MappingProxyType
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxir as rx
from relaxir.support.errors import ArgumentError
from tests.frontends.torch_cases import Wrapped, agree, check, export, torch

F = torch.nn.functional
AUTO = torch.export.Dim.AUTO
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about itself

WEIGHT = torch.linspace(-1, 1, 24).reshape(3, 4, 2)
TARGET = torch.tensor([[3, 1, -1, 2], [-1, 0, 1, 2], [0, 0, 3, 1], [2, -1, -1, 0]])
ROWS = torch.tensor([1, 0, 3, 2, 1])
OPERATORS: MappingProxyType[str, Callable[[Any], Any]] = MappingProxyType(
    {
        "softplus beyond a low threshold": lambda x: F.softplus(x, 2.0, 0.5),
        "softplus of doubles at the threshold": lambda x: F.softplus(x.double() * 20),
        "corners aligned over a scaled extent": lambda x: F.interpolate(x[None], scale_factor=1.7, mode="linear", align_corners=True),
        "convolution by time": lambda x: torch.conv_tbc(WEIGHT * x.sum(), WEIGHT.mT, WEIGHT[0, :, 0], 1),
        "swapped axes": lambda x: torch.swapaxes(x[None], 0, 2),
        "diagonals written": lambda x: [
            torch.diagonal_scatter(x[:, :, None] * x[:, None], x[:, :k], offset, *axes)
            for k, offset, axes in ((4, 0, (1, 2)), (3, -1, (1, -1)), (2, 2, (2, 1)))
        ],
        "operands of two dtypes": lambda x: [
            torch.outer(torch.arange(x.shape[0]), x[0]), torch.atan2(torch.arange(4), x), torch.atan2(torch.arange(4), torch.tensor(2)),
        ],
        "determinants": lambda x: [torch.linalg.det(x[:, :2, None] * x[:, None, 2:]), torch.det(x[:4, :4])],
        "indices behind the last offset": lambda x: F.embedding_bag(
            ROWS, x, torch.tensor([0, 2, 2, 4]), mode="sum", include_last_offset=True
        ),
        "inputs without a batch": lambda x: [
            F.pixel_shuffle(x.T[:, :, None], 2), F.pixel_unshuffle(x[None, :, None, :].repeat(1, 1, 2, 1), 2),
            F.scaled_dot_product_attention(x, x, x), F.scaled_dot_product_attention(x, x, x, x @ x.T > 0, scale=0.3),
        ],
        "bools": lambda x: [
            *(f(x > 0, x > 0.5) for f in (torch.gt, torch.le, torch.add, torch.maximum)), *(x > 0).max(1), *(x > 0).cummax(1),
            (x > 0).index_put((ROWS[:2] * 0,), x[:1] > 9, accumulate=True), (x > 0).index_add(1, ROWS[:1], x[:, :1] > 0),
        ],
        "broadcast along": lambda x: torch.take_along_dim(x[:1], ROWS[:, None], 1),
        "products with logarithms": lambda x: [torch.xlogy(x, 2.0), torch.xlogy(0, x.abs())],
        "targets before the first -1": lambda x: [
            F.multilabel_margin_loss(x[:4], TARGET, reduction=r) for r in ("none", "mean", "sum")
        ],
    }
)  # fmt: skip


@pytest.mark.parametrize("core", [False, True])
def test_operators(core: bool) -> None:
    """All of them, over a dynamic extent; as core ATen in the interpreter."""
    kept = [f for name, f in OPERATORS.items() if not core or "-1" not in name]  # torch decomposes that loss wrongly

    def run(x: Any) -> list[Any]:
        return [f(x) for f in kept]

    generator = torch.Generator().manual_seed(0)
    bindings = [(torch.randn(n, 4, generator=generator),) for n in (5, 4, 7)]
    check(run, bindings, {"args": ({0: AUTO},)}, cores=(core,), native=not core)


def test_special_functions() -> None:
    """Series agree with torch to its own precision, also at poles, ends and infinities."""

    def run(x: Any, u: Any) -> tuple[Any, ...]:
        return (
            torch.lgamma(x),
            torch.digamma(x),
            torch.erfinv(u),
            torch.erfinv(u.double()),
            torch.lgamma(x.double()),
            torch.sign(x),
        )

    given = [-3.0, -2.5, -1.0, -0.3, 0.0, 1e-3, 0.2, 1.0, 1.4616, 2.0, 7.5, 40.0, 3e8, inf, nan]
    x = torch.tensor(given)
    u = torch.tensor([-1.0, -0.999999, -0.7, -1e-6, 0.0, 1e-20, 0.3, 0.9, 0.99999, 1.0, 1.5, -2.0, nan, inf, 0.5])
    check(
        run, [(x, u), (x[:7], u[:7]), (x[8:9], u[8:9])], {"args": ({0: AUTO}, {0: AUTO})}, cores=(False,), native=True
    )


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_half_precision_layers(dtype: str) -> None:
    """The default epsilon of RMS norms is that of float32, in which halves are computed; results are of their type."""
    program = Wrapped(lambda x: F.rms_norm(x, (6,)))
    x = (torch.randn(40, 6, generator=torch.Generator().manual_seed(0)) * 0.01).to(getattr(torch, dtype))
    run = rx.compile(rx.from_torch(export(program, (x,), {"args": ({0: AUTO},)})), threads=1)["main"]
    for rows in (40, 1, 7):
        got = run(x[:rows])  # by DLPack
        assert np.asarray(got).dtype == (np.float16 if dtype == "float16" else ml_dtypes.bfloat16)
        agree(np.asarray(got).astype(np.float32), program(x[:rows]).float(), 1e-2)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sums_of_many_halves(dtype: Any) -> None:
    """Running sums are kept in float32: in 16 bits they would stand still."""

    def run(x: Any) -> list[Any]:
        place, zeros = torch.arange(x.shape[0]) % 2, torch.zeros(2, dtype=x.dtype)
        added = (
            zeros.scatter_add(0, place, x),
            zeros.index_add(0, place, x),
            zeros.scatter_reduce(0, place, x, "mean"),
        )
        return [*added, x[:200].logcumsumexp(0), F.embedding_bag(torch.arange(x.shape[0])[None], x[:, None])]

    x = torch.linspace(0.5, 1, 4096).to(dtype)
    found = rx.compile(rx.from_torch(export(Wrapped(run), (x,), None)), threads=1)["main"](x)
    agree([np.asarray(f).astype(np.float64) for f in found], run(x.double()), 8e-3)


def test_places_that_are_none() -> None:
    """Where ``grid_sample`` keeps places inside an image, NaN is its first element, and infinity where it reflects."""
    x, nan, inf = torch.arange(1.0, 13).reshape(1, 1, 3, 4), float("nan"), float("inf")
    grid = torch.tensor([[nan, 0.2], [0.2, nan], [nan, nan], [0.3, -0.4]]).reshape(1, 4, 1, 2)
    far = torch.tensor([[inf, 0.2], [0.2, -inf]]).reshape(1, 2, 1, 2)

    def run(x: Any, grid: Any, far: Any) -> list[Any]:
        ways = [
            (pad, mode, flag) for pad in ("border", "reflection") for mode in ("bilinear", "nearest") for flag in (0, 1)
        ]
        given = [(g, *way) for way in ways for g in (grid, far) if g is grid or way[0] == "reflection"]
        return [F.grid_sample(x, g, mode, pad, bool(flag)) for g, pad, mode, flag in given]

    check(run, [(x, grid, far)], None, cores=(False,))


def test_other_dtypes_are_refused_for_bfloat16() -> None:
    """A float32 tensor is no bfloat16, and bits of another kind are taken only as uint16."""
    program = export(Wrapped(lambda x: x + x), (torch.ones(3, dtype=torch.bfloat16),), {"args": ({0: AUTO},)})
    run = rx.compile(rx.from_torch(program), threads=1)["main"]
    with pytest.raises(ArgumentError, match="float32, expected bfloat16"):
        run(torch.ones(3))
    bits = np.full(2, 0x3F80, np.uint16)
    assert run(bits).astype(np.float32).tolist() == [2.0, 2.0]
