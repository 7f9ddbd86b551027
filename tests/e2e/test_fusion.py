"""Functions that fusion joins: compiled with and without it they agree with the interpreter, at sizes from 0 on."""

from __future__ import annotations

import pytest

from tests.e2e.agreement import Setup, disagreements
from tests.e2e.fusion_cases import CASES

SIZES = (0, 1, 3, 17, 33)


@pytest.mark.parametrize("name", CASES)
def test_fused_function(name: str) -> None:
    assert not disagreements(CASES[name], Setup(sizes=SIZES))


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4"])
@pytest.mark.parametrize("name", ["residual", "attention", "reduce_both", "slices"])
def test_other_vectors_and_threads(name: str, target: str) -> None:
    """Other lanes and tiles, and two threads."""
    assert not disagreements(CASES[name], Setup((target,), threads=2, pipelines=(None,), sizes=SIZES))
