"""Compiled code meets NaN, infinities, signed zeros, subnormals and wrapping quotients as the references do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from relaxir import api
from relaxir.ir import Attrs, BlockBuilder, PendingCall, TensorType, Var
from relaxir.ops import OPS, TABLE
from relaxir.ops.elementwise import Unary
from relaxir.runtime.executable import Executable
from relaxir.support.errors import RuntimeFailure
from relaxir.sym import dim

SPECIAL = (np.nan, np.inf, -np.inf, 0, -0.0, -1, 1, 0.5, 2.5, 200, -200, 1e-40, 3e38)
LENGTH = 29  # whole vectors and a tail
FUNCTIONS = tuple(o for o in OPS if isinstance(o, Unary) and "float32" in o.dtypes)
QUOTIENTS = ("divide", "floor_divide", "floor_mod", "trunc_mod")


@pytest.fixture(scope="module")
def exe() -> Executable:
    """All functions in one module: one compilation."""
    bb, n = BlockBuilder(), dim("n")
    for op in (*FUNCTIONS, *(TABLE[q] for q in QUOTIENTS)):
        dtype = "int32" if op.name in QUOTIENTS else "float32"
        params = [Var(p.name, TensorType((n,), dtype)) for p in op.params]
        with bb.function(op.name, params):
            with bb.dataflow():
                result = bb.emit_output(PendingCall(op, tuple(params), op.Attrs(), None))
            bb.emit_func_output(result)
    return api.compile(bb.get(), threads=1, cache=False)


@pytest.mark.parametrize("op", FUNCTIONS, ids=lambda o: o.name)
def test_special_floats(op: Unary[Any], exe: Executable) -> None:
    x = np.resize(np.float32(SPECIAL), LENGTH)
    out = TensorType(x.shape, op.result or "float32")
    want = op.evaluate((x,), (TensorType(x.shape, "float32"),), op.Attrs(), out)
    got = np.asarray(exe[op.name](x))
    np.testing.assert_allclose(got.astype(np.float64), want.astype(np.float64), 1e-5, 1e-6, equal_nan=True)


@pytest.mark.parametrize("name", QUOTIENTS)
def test_quotients(name: str, exe: Executable) -> None:
    a, b = np.int32([-(2**31), -(2**31), 7, -7]), np.int32([-1, 1, -3, 3])
    t = TensorType(a.shape, "int32")
    np.testing.assert_array_equal(exe[name](a, b), TABLE[name].evaluate((a, b), (t, t), Attrs(), t))
    with pytest.raises(RuntimeFailure, match=f"{name}: .* divided by zero"):
        exe[name](a, b * 0)
