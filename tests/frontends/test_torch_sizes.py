"""Sizes of torch programs: arithmetic in floats, scales, and bounds that torch only derives from its own."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.support.errors import RelaxirError
from tests.frontends.torch_cases import Wrapped, check, export, torch

F = torch.nn.functional
AUTO = torch.export.Dim.AUTO
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about itself


def rows(*shape: int, seed: int = 0) -> Any:
    """Floats that are the same in each run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def test_sizes_through_floats() -> None:
    """Products, sums and quotients with floats, rounded in each way; halves to even."""

    def run(x: Any) -> Any:
        n = x.shape[0]
        sizes = (
            math.floor(n * 0.7),
            math.floor(n * 2.3 + 0.5),
            math.ceil(n / 3),
            math.floor(n * 1.1),
            round(n / 2),
            torch.sym_int((n - 1) * 0.5),
        )
        return (*(x.new_zeros(s) for s in sizes), x * (n * 0.3), torch.full((2,), n / 4))

    check(run, [(rows(n, 3),) for n in (10, 1, 3, 5, 7)], {"args": ({0: AUTO},)})


SCALES = (
    {"scale_factor": (1.5, 2.3)},
    {"scale_factor": 0.3, "mode": "nearest"},
    {"scale_factor": 1.7, "mode": "bicubic"},
    {"scale_factor": 1.3, "mode": "bilinear", "recompute_scale_factor": True},
    {"scale_factor": 0.5, "mode": "area"},
)


def test_scaled_images() -> None:
    """``floor(10 * 2.3)`` is 23, whole or decomposed."""
    sizes = ((2, 9, 11), (1, 8, 12), (3, 15, 10))
    bindings = [(rows(n, 2, h, w),) for n, h, w in sizes]
    check(lambda x: [F.interpolate(x, **kind) for kind in SCALES], bindings, {"args": ({0: AUTO, 2: AUTO, 3: AUTO},)})


def test_bounds_of_computed_sizes() -> None:
    """Where torch assumes that the third of an extent, or one less than a length, is at least 2, less is allowed."""
    thirds = [(rows(n, 2, 3 * h, 6),) for n, h in ((2, 3), (1, 1), (3, 4))]
    check(torch.nn.PixelUnshuffle(3), thirds, ({0: AUTO, 2: AUTO},))
    bag = torch.nn.EmbeddingBag(10, 4, include_last_offset=True)
    bags = [(torch.arange(s) % 10, torch.tensor(o)) for s, o in ((9, [0, 2, 2, 9]), (5, [0, 5]), (1, [0, 1, 1]))]
    check(bag, bags, ({0: AUTO}, {0: AUTO}), cores=(False,))
    tables = [(torch.arange(n * s).reshape(n, s) % 10,) for n, s in ((4, 9), (1, 8), (3, 1))]
    check(torch.nn.EmbeddingBag(10, 4), tables, ({0: AUTO, 1: AUTO},), cores=(False,))


def test_bounds_of_the_program_hold() -> None:
    """A bound that the user declares is one, and an order of two inputs that the program branches on."""
    least = {"args": ({0: torch.export.Dim("n", min=5)},)}
    module = rx.from_torch(export(Wrapped(lambda x: x + 1), (rows(6, 2),), least))
    with pytest.raises(RelaxirError, match="at least 5"):
        rx.evaluate(module, "main", np.ones((4, 2), np.float32))

    def branch(x: Any, y: Any) -> Any:
        return x.sum() if x.shape[0] < y.shape[0] else y.sum()

    program = export(Wrapped(branch), (rows(3), rows(5)), {"args": ({0: AUTO}, {0: AUTO})})
    module = rx.from_torch(program)
    with pytest.raises(RelaxirError, match="needs"):
        rx.evaluate(module, "main", np.ones(4, np.float32), np.ones(4, np.float32))


@pytest.mark.parametrize(
    ("run", "good", "bad"),
    [
        (lambda x: F.interpolate(x[None, None], scale_factor=1.7, mode="area"), 9, 10),  # torch fixes 15 elements
        (lambda x: x.view(-1, 4).sum(0), 12, 10),
        (lambda x: x.reshape(x.shape[0] // 3, 3), 12, 13),
    ],
    ids=["trunc", "mod", "floordiv"],
)
def test_equalities_of_one_size_hold(run: Any, good: int, bad: int) -> None:
    """A guard on a single size is a relation of the function: other sizes are refused as torch's program refuses them."""
    program = export(Wrapped(run), (rows(good),), {"args": ({0: AUTO},)})
    main = rx.compile(rx.from_torch(program))["main"]
    np.testing.assert_allclose(main(rows(good).numpy()), run(rows(good)).numpy(), rtol=1e-5, atol=1e-6)
    with pytest.raises(RelaxirError):
        main(rows(bad).numpy())


@pytest.mark.parametrize(
    ("run", "good", "bad"),
    [
        (lambda x: x * 2 if x.shape[0] % 2 == 1 else x, (5, 3, 1), (4, 6)),
        (lambda x: x if x.shape[0] % 3 == 1 else x * 2, (5, 2, 3), (4, 7)),
        (lambda x: x * 2 if x.shape[0] % 512 > 0 else x, (513, 1), (512, 1024)),
    ],
    ids=["odd", "unequal", "positive"],
)
def test_branches_by_remainders_hold(run: Any, good: Any, bad: Any) -> None:
    """Where a program branches on a remainder, sizes with another one than it was traced with are refused."""
    module = rx.from_torch(export(Wrapped(run), (rows(good[0]),), {"args": ({0: AUTO},)}))
    for n in good:
        np.testing.assert_array_equal(rx.evaluate(module, "main", np.ones(n, np.float32)), np.full(n, 2, np.float32))
    for n in bad:
        with pytest.raises(RelaxirError, match="needs"):
            rx.evaluate(module, "main", np.ones(n, np.float32))


def test_remainders_that_a_program_does_not_ask_for() -> None:
    """Torch's own branches and notes of remainders are none of the program: results are those of the size at hand."""

    def run(x: Any) -> Any:
        return (*x.tensor_split(2), *x.tensor_split(3), *x.tensor_split((1, -2)), x.new_zeros(x.shape[0] % 3 + 1))

    check(run, [(rows(n, 3),) for n in (7, 4, 1, 6, 3)], {"args": ({0: AUTO},)}, cores=(False,))
    module = rx.from_torch(export(Wrapped(lambda x: x.view(2, -1)), (rows(5, 6),), {"args": ({0: AUTO},)}))
    for n in (2, 4, 5):  # torch notes that 5 rows are no 2, and odd
        np.testing.assert_array_equal(rx.evaluate(module, "main", rows(n, 6).numpy()), rows(n, 6).view(2, -1).numpy())


@pytest.mark.parametrize("strict", [False, True])
def test_branches_by_inequality_hold(strict: bool) -> None:
    """Sizes that the program's own code found to differ must."""
    run = Wrapped(lambda x, y: x.sum() * 2 if x.shape[0] != y.shape[0] and x.shape[0] % y.shape[0] != 0 else y.sum())
    program = torch.export.export(run, (rows(5), rows(3)), dynamic_shapes={"args": ({0: AUTO},) * 2}, strict=strict)
    module = rx.from_torch(program)
    assert rx.evaluate(module, "main", np.ones(3, np.float32), np.ones(5, np.float32)) == 6
    for n, m in ((4, 4), (6, 3)):
        with pytest.raises(RelaxirError, match="needs"):
            rx.evaluate(module, "main", np.ones(n, np.float32), np.ones(m, np.float32))


def test_no_elements_are_arranged_in_rows() -> None:
    """Torch's own relations divide by the size here."""
    for run in (lambda x: x.view(-1, 4), lambda x: x.view(-1, 4).sum(0)):
        program = export(Wrapped(run), (rows(4, 6),), {"args": ({0: AUTO},)})
        main = rx.compile(rx.from_torch(program))["main"]
        for n in (0, 2, 4, 6):
            np.testing.assert_allclose(main(rows(n, 6).numpy()), run(rows(n, 6)).numpy(), rtol=1e-5, atol=1e-6)
