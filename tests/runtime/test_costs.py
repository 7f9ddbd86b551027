"""``rx.cost`` and what an executable knows of its calls."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import relaxir as rx
from tests.e2e import models


def test_formulas_of_a_perceptron() -> None:
    module = models.mlp(24, 40)
    cost = rx.cost(rx.compile(module, threads=1))
    assert [s.name for s in cost.symbols] == ["n"]
    at = cost(n=10)
    product = 2 * 10 * 24 * 40
    assert product < at.flops < 2 * product
    assert at.bytes >= 4 * (10 * 24 + 24 * 40 + 40 + 10 * 40)
    assert sum(k.work.flops for k in at.kernels) == at.flops
    assert rx.cost(module)(n=10).flops == at.flops
    assert "n * " in str(cost)
    assert "calls" in str(cost) or "1 call" in str(cost)


def test_a_library_keeps_its_cost(tmp_path: Path) -> None:
    exe = rx.compile(models.softmax_rows(), threads=1)
    again = rx.load(exe.export(tmp_path / "m.so"))
    assert rx.cost(again)(n=3, k=50).kernels == rx.cost(exe)(n=3, k=50).kernels


def test_sizes_that_depend_on_data_are_asked_for() -> None:
    cost = rx.cost(rx.compile(models.positive(), threads=1))
    assert len(cost.symbols) >= 1
    sizes = {s.name: 4 for s in cost.symbols}
    assert cost(**sizes).bytes > 0


CALLS = """
@I.module
class Module:
    @R.function
    def inner(x: R.Tensor(("k", 8), "f32")) -> R.Tensor(("k", 8), "f32"):
        y = R.exp(x)
        return y

    @R.function
    def main(a: R.Tensor(("n", 8), "f32"), b: R.Tensor(("n", 8), "f32")) -> R.Tensor((2 * n, 8), "f32"):
        c = R.concat(a, b, axis=0)
        d = Module.inner(c)
        return d
"""


def test_calls_of_functions_count_in_the_callers_symbols() -> None:
    cost = rx.cost(rx.compile(rx.parse(CALLS), threads=1))
    assert cost(n=5).flops == 2 * 5 * 8 * 10


def test_mistakes_are_named() -> None:
    exe = rx.compile(models.mlp(), threads=1)
    with pytest.raises(rx.RelaxirError, match="cost of main: give a size for `n`"):
        rx.cost(exe)()
    with pytest.raises(rx.RelaxirError, match="cost of main: no symbol `m`"):
        rx.cost(exe)(m=3)
    with pytest.raises(rx.RelaxirError, match="no function `other`"):
        rx.cost(exe, "other")
    with pytest.raises(rx.RelaxirError, match="no function `other`"):
        rx.cost(models.mlp(), "other")
    for module in (models.mlp(), 3):
        with pytest.raises(rx.RelaxirError, match="exe: expected Executable"):
            rx.memory(module)  # type: ignore[arg-type]  # what the test is about
    with pytest.raises(rx.RelaxirError, match="the module has no functions"):
        rx.cost(rx.IRModule({}))
    with pytest.raises(rx.RelaxirError, match="compiled"):
        rx.cost(np.zeros(3))  # type: ignore[arg-type]  # what the test is about


def test_cache_hits_are_reported(tmp_path: Path) -> None:
    first, second = (rx.compile(models.mlp(), threads=1, cache=tmp_path).details["cache"] for _ in range(2))
    assert first[0] == 0 < first[1]
    assert second == (first[1], first[1])
    assert rx.compile(models.mlp(), threads=1, cache=False).details["cache"] == (0, 0)
