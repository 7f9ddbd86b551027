"""Misuse of the builder and of types: each gives an error of relaxir, early and in words."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.support.errors import RuntimeFailure

X = rx.TensorType((rx.dim("n"),), "float32")
ONES = np.ones(3, np.float32)


def _endless() -> rx.IRModule:
    bb = rx.BlockBuilder()
    x = rx.Var("x", X)
    with bb.function("main", [x], ret=X):
        bb.emit_func_output(bb.call("main", x))
    return bb.get()


@pytest.mark.parametrize("call", [lambda m: rx.compile(m)["main"], lambda m: lambda x: rx.evaluate(m, "main", x)])
def test_recursion_without_end(call: Callable[[rx.IRModule], Callable[[object], object]]) -> None:
    main = call(_endless())
    for _ in range(2):
        with pytest.raises(RuntimeFailure, match="nested too deeply"):
            main(ONES)
