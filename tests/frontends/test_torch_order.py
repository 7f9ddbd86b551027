"""Torch operators of ranks, running extremes, distinct elements and counts, and others that few models have."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.frontends.torch_cases import check, torch

SIZES = (4, 1, 7)
AUTO = torch.export.Dim.AUTO
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about itself


def rows(*shape: int, seed: int = 0) -> Any:
    """Floats that are the same in each run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def compare(run: Callable[..., Any], binding: Callable[[int], Any], dynamic: int, native: bool = False) -> None:
    """A module of several results at all sizes; the first axis of each of ``dynamic`` arguments is not fixed."""
    shapes = {"args": ({0: AUTO},) * dynamic}
    check(run, [binding(n) for n in SIZES], shapes, cores=(False,), native=native)


def with_nan(n: int) -> Any:
    x = rows(n, 5)
    x[0, 2] = float("nan")
    return x


def test_ranks() -> None:
    """Elements of a rank; a NaN counts as the largest, or is left out."""

    def run(x: Any, nan: Any, i: Any) -> Any:
        return (
            x.kthvalue(2, 1), x.kthvalue(5, keepdim=True), x.median(), x.median(1), nan.median(), nan.median(1).values,
            nan.nanmedian(), nan.nanmedian(1).values, i.median(1).values, torch.msort(x), x.aminmax(dim=1),
        )  # fmt: skip

    compare(run, lambda n: (rows(n, 5), with_nan(n), torch.arange(n * 5).reshape(n, 5).flip(1)), 3)


def test_search() -> None:
    """Places in one sorted vector, and in rows."""

    def run(x: Any) -> Any:
        edges, order = x.sort(1).values, x.argsort(1)
        return (
            torch.searchsorted(torch.tensor([-1.0, 0.0, 1.0]), x), torch.searchsorted(edges, x, right=True),
            torch.searchsorted(edges, x + 0.1, out_int32=True), torch.searchsorted(x, x, side="left", sorter=order),
        )  # fmt: skip

    compare(run, lambda n: (rows(n, 3),), 1)


def test_running_extremes() -> None:
    """Loops over the axis: extremes with their places, and sums of exponentials."""

    def run(x: Any, nan: Any, i: Any) -> Any:
        return x.cummax(1), x.cummin(0), nan.cummax(1)[0], nan.cummin(1)[0], i.cummax(0), torch.logcumsumexp(x, 1)

    compare(run, lambda n: (rows(n, 5), with_nan(n), torch.arange(n * 3).reshape(n, 3) % 4), 3, native=True)


def test_distinct() -> None:
    """Distinct elements, of all and of neighbours, with where they went and how often they occur."""

    def run(i: Any) -> Any:
        return (
            torch.unique(i), torch.unique(i, return_inverse=True, return_counts=True), torch.unique(i, dim=0),
            torch.unique_consecutive(i, return_inverse=True, return_counts=True), torch.unique_consecutive(i, dim=0),
        )  # fmt: skip

    compare(run, lambda n: (torch.arange(n * 3).reshape(n, 3) // 2 % 3,), 1)


def test_counts() -> None:
    """How often numbers occur; a fixed number of positions; repeats given by a tensor."""

    def run(i: Any, x: Any) -> Any:
        return (
            torch.bincount(i, minlength=5), torch.bincount(i, x[:, 0]), torch.nonzero_static(x > 0, size=5),
            x.repeat_interleave(i, 0), x.repeat_interleave(torch.tensor([1, 2, 0]), 1), torch.repeat_interleave(i),
        )  # fmt: skip

    compare(run, lambda n: (torch.arange(n) % 4 + 1, rows(n, 3)), 2)


@pytest.mark.parametrize("kind", ["sum", "prod", "mean", "amax", "amin"])
def test_scatter_reductions(kind: str) -> None:
    """With what was there, and without."""

    def run(x: Any, y: Any, i: Any) -> Any:
        place = (y > 0).long()
        results = [x.scatter_reduce(1, place, y, kind, include_self=s) for s in (True, False)]
        if kind == "sum":
            return results
        return *results, i.index_reduce(1, torch.tensor([0, 2]), i[:, :2], kind, include_self=False)

    compare(run, lambda n: (rows(n, 3), rows(n, 3, seed=5), torch.arange(n * 3).reshape(n, 3)), 3)


def test_elementwise() -> None:
    """Signs, lengths, extremes that ignore NaN, rounding to decimals, triangles."""

    def run(x: Any, nan: Any) -> Any:
        zero = x[:, :1] * -0.0
        product = torch.addbmm(x[:1].T, x[:, :, None], x[:, None, :1], alpha=2)
        return (
            x.signbit(), zero.signbit(), x.copysign(zero), torch.hypot(x, x + 1), torch.hypot(zero, zero),
            torch.fmax(x, nan), torch.fmin(nan, x), x.round(decimals=2), (x * 1e3).round(decimals=-1), product,
            torch.nn.functional.rrelu(x), torch.tril_indices(3, 4, -1), torch.triu_indices(3, 3),
            torch.zeros_like(torch.empty_strided((2, 3), (3, 1))),
        )  # fmt: skip

    compare(run, lambda n: (rows(n, 5), with_nan(n)), 2)


def test_divisors() -> None:
    """Common divisors and multiples of integers of both signs, 0 and broadcast ones, natively too."""

    def run(i: Any) -> Any:
        j, small = i - 4, (i + 3).to(torch.uint8)
        return (
            torch.gcd(j, i * 6),
            torch.lcm(j, j + 6),
            torch.gcd(i.int(), torch.tensor(6).int()),
            torch.lcm(small, small + 1),
        )

    compare(run, lambda n: (torch.arange(n * 3).reshape(n, 3),), 1, native=True)


def test_modes_and_histograms() -> None:
    """The least of the most frequent elements with its last place; intervals given and found."""

    def run(i: Any, x: Any) -> Any:
        few = i * 7 % 5
        return (
            few.mode(), few.mode(0, keepdim=True), few.float().mode(1), torch.histc(x, 5, -1, 1), torch.histc(x, bins=4),
            torch.histc(x * 0, 3), torch.bincount(few.flatten(), minlength=3),
        )  # fmt: skip

    compare(run, lambda n: (torch.arange(n * 5).reshape(n, 5), rows(n, 5)), 2)


def test_written_elements() -> None:
    """Elements of flattened tensors, diagonals, rows of a table kept to a norm."""
    table = rows(6, 4)

    def run(x: Any, i: Any) -> Any:
        put = (
            x.put(torch.tensor([0, -1]), torch.tensor([7.0, 8.0])),
            x.put(torch.tensor([1, 1]), x[0, :2], accumulate=True),
        )
        return *put, torch.ops.aten.embedding_renorm(table, i, 1.5, 1.0)

    compare(run, lambda n: (rows(n, 3), torch.arange(n) % 4), 2)
    check(lambda x: x.clone().fill_diagonal_(3.0), [(rows(4, 3),)], None, cores=(False,))


def test_parts_and_bits() -> None:
    """Operators that torch writes by views, bits as another dtype, windows, and functions of real numbers."""

    def run(x: Any, i: Any) -> Any:
        return (
            x.tensor_split(2, 1), x.hsplit(3), x.view(torch.int32), i.view(torch.float64), torch.hamming_window(6),
            torch.kaiser_window(5), torch.angle(x), torch.real(x), torch.ldexp(x, i), torch.dist(x, x * 2, 1),
        )  # fmt: skip

    compare(run, lambda n: (rows(n, 3), torch.arange(n * 3).reshape(n, 3)), 2)
