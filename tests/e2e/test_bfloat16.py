"""Modules in bfloat16 take and give arrays of the type of ml_dtypes, whichever way they were made; bits are taken too."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import relaxir as rx

BITS = np.array([0x3F80, 0x4000], np.uint16)
VALUES = np.array([1, 2], ml_dtypes.bfloat16)
N = rx.dim("n")


def built() -> rx.IRModule:
    x = rx.Var("x", rx.TensorType((N,), "bfloat16"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        twice = bb.emit(rx.op.add(x, x))
        wide = bb.emit(rx.op.astype(twice, dtype="float32"))
        pair = rx.ir.TupleExpr((wide, twice))
        bb.emit_func_output(rx.ir.TupleExpr((twice, pair)))
    return bb.get()


def agree(results: Any) -> None:
    first, wide, last = results
    assert wide.dtype == np.float32
    for found in (first, last):
        assert found.dtype == ml_dtypes.bfloat16
        np.testing.assert_array_equal(found.astype(np.float32), wide)


@pytest.mark.parametrize("given", [BITS, VALUES, [1.0, 2.0]], ids=["bits", "values", "numbers"])
def test_compiled_functions(given: Any, tmp_path: Path) -> None:
    exe = rx.compile(built())
    exe.export(tmp_path / "model.so")
    for main in (exe["main"], rx.load(tmp_path / "model.so")["main"], rx.compile(rx.parse(str(built())))["main"]):
        agree(main(given))
        agree(main(given))  # the second call has a shorter way


@pytest.mark.parametrize("given", [BITS, VALUES], ids=["bits", "values"])
def test_interpreted_functions(given: Any) -> None:
    first, (wide, last) = rx.evaluate(built(), "main", given)
    agree((first, wide, last))


@pytest.mark.parametrize("dtype", [np.uint16, ml_dtypes.bfloat16])
def test_outputs_of_the_caller(dtype: Any) -> None:
    outs = [np.empty(2, dtype), np.empty(2, np.float32), np.empty(2, dtype)]
    rx.compile(built())["main"].into(outs, BITS)
    for found in (outs[0], outs[2]):
        np.testing.assert_array_equal(found.view(np.uint16), [0x4000, 0x4080])
