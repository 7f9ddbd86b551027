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


N = rx.dim("n")


@pytest.mark.parametrize(
    "make",
    [
        lambda: rx.dim("a b"),
        lambda: N // 0,
        lambda: rx.TensorType((2.5,), "float32"),  # type: ignore[arg-type]
    ],
)
def test_bad_dimensions(make: Callable[[], object]) -> None:
    with pytest.raises(rx.RelaxirError) as caught:
        make()
    assert caught.value.code == "dimension"
    assert isinstance(caught.value, ValueError)


def test_contradictory_where() -> None:
    with pytest.raises(rx.RelaxirError, match="dimension-conflict"), rx.BlockBuilder().function("f", [rx.Var("x", X)], "n < 0"):
        pass
