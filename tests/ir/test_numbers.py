"""Python numbers as operands, and shape arguments."""

from __future__ import annotations

import numpy as np
import pytest

from relaxir.ir import BlockBuilder, ShapeType, TensorType, Var
from relaxir.ops import op
from relaxir.runtime.interp import evaluate
from relaxir.support.errors import InferError
from relaxir.sym import dim


def test_a_number_beside_a_mask_takes_the_dtype_of_the_values() -> None:
    bb = BlockBuilder()
    mask, x = Var("mask", TensorType((3,), "bool")), Var("x", TensorType((3,), "float32"))
    with bb.function("main", [mask, x]):
        bb.emit_func_output(bb.emit(op.where(mask, x, 0.25)))
        with pytest.raises(InferError):
            bb.emit(op.add(mask, 2))
    got = evaluate(bb.get(), "main", np.array([True, False, True]), np.ones(3, np.float32))
    np.testing.assert_array_equal(got, np.float32([1, 0.25, 1]))


def test_a_shape_argument_may_be_a_vector() -> None:
    n = dim("n")
    bb = BlockBuilder()
    with bb.function("main", [Var("shape", ShapeType((n,)))]):
        bb.emit_func_output(bb.emit(op.full(1.5, shape=(n,))))
    for given in ((2,), np.array([2])):
        np.testing.assert_array_equal(evaluate(bb.get(), "main", given), np.float32([1.5, 1.5]))
