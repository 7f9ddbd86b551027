"""Functions that fusion joins: compiled with and without it they agree with the interpreter, at sizes from 0 on."""

from __future__ import annotations

import numpy as np
import pytest

from relaxir.api import compile as rx_compile
from tests.e2e.agreement import Setup, agree, results
from tests.e2e.fusion_cases import CASES

SIZES = (0, 1, 3, 17, 33)
USUAL = ("default", "reference")


@pytest.mark.parametrize("name", CASES)
def test_fused_function(name: str) -> None:
    agree(CASES[name], Setup(levels=USUAL, sizes=SIZES))


@pytest.mark.parametrize("target", ["x86-64-v2", "x86-64-v4"])
@pytest.mark.parametrize("name", ["residual", "attention", "reduce_both", "slices"])
def test_other_vectors_and_threads(name: str, target: str) -> None:
    """Other lanes and tiles, and two threads."""
    agree(CASES[name], Setup((target,), threads=2, levels=USUAL[:1], sizes=SIZES))


@pytest.mark.parametrize("name", ["attention", "constant_residual", "reduce_both"])
def test_results_do_not_depend_on_threads(name: str) -> None:
    program = CASES[name]
    exe = rx_compile(program.module, threads=2, cache=False)
    arrays = program.inputs({"n": 130, "m": 65, "k": 40})
    two = results(exe["main"](*arrays))
    exe.set_threads(1)
    for a, b in zip(two, results(exe["main"](*arrays)), strict=True):
        np.testing.assert_array_equal(a, b)
