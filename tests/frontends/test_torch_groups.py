"""Products whose rows are in groups, as mixtures of experts use them, and normalised weights."""

from __future__ import annotations

from itertools import pairwise
from typing import Any

import numpy as np
import pytest

import relaxir as rx
from tests.frontends.torch_cases import Wrapped, array, check, export, torch

DYNAMIC = torch.export.Dim.DYNAMIC
pytestmark = pytest.mark.filterwarnings("ignore")  # torch warns about itself


@torch.library.custom_op(  # type: ignore[misc]  # torch may be missing
    "transformers::grouped_mm_fallback", mutates_args=(), schema="(Tensor input, Tensor weight, Tensor offs) -> Tensor"
)
def grouped(input: Any, weight: Any, offs: Any) -> Any:  # the name is in the schema
    """What the operator of that name computes."""
    ends = [0, *offs.tolist()]
    parts = [input[a:b] @ w for (a, b), w in zip(pairwise(ends), weight, strict=True)]
    return torch.cat([*parts, torch.zeros(len(input) - ends[-1], weight.shape[2])])


@grouped.register_fake  # type: ignore[misc]  # torch may be missing
def _(input: Any, weight: Any, offs: Any) -> Any:
    return input.new_empty(input.shape[0], weight.shape[2])


@pytest.mark.parametrize("native", [False, True], ids=["evaluated", "compiled"])
def test_groups_of_rows(native: bool) -> None:
    """Groups of any size, empty ones among them, and rows after the last; the memory of a group is as large as it is."""
    weight = torch.randn(3, 32, 48)

    def model(x: Any, ends: Any) -> Any:
        return torch.ops.transformers.grouped_mm_fallback(x, weight.to(x.dtype), ends)

    cases = [(6, (2, 2, 6)), (1, (0, 0, 1)), (7, (1, 3, 5)), (34, (20, 34, 34)), (2, (0, 0, 0))]
    bindings = [(torch.randn(rows, 32), torch.tensor(ends, dtype=torch.int32)) for rows, ends in cases]
    check(model, bindings, (({0: DYNAMIC}, None),), cores=(False,), native=native)


def test_ends_that_no_groups_have_are_refused() -> None:
    """Falling ends, and ends beyond the rows."""
    weight = torch.randn(2, 4, 5)
    x = torch.randn(6, 4)
    model = Wrapped(lambda x, ends: torch.ops.transformers.grouped_mm_fallback(x, weight, ends))
    imported = rx.from_torch(export(model, (x, torch.tensor([2, 6])), None))
    for ends, message in (([4, 2], "must not fall"), ([2, 7], "after the last row")):
        with pytest.raises(rx.RelaxirError, match=message):
            rx.evaluate(imported, "main", array(x), np.array(ends))


def test_weight_norm_stays_whole() -> None:
    """Weights of both ways to normalise them, along any axis: no rewriting of the program by torch."""
    layers = [torch.nn.utils.weight_norm(torch.nn.Conv1d(4, 6, 3, padding=1), dim=d) for d in (0, 2)]
    layers.append(torch.nn.utils.parametrizations.weight_norm(torch.nn.Conv1d(6, 4, 1), dim=None))
    model = torch.nn.Sequential(layers[0], layers[2], layers[1])
    check(model, [(torch.randn(b, 4, t),) for b, t in ((2, 5), (1, 1), (3, 7))], ({0: DYNAMIC, 2: DYNAMIC},))
