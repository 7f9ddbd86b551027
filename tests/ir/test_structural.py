"""Structural equality."""

from __future__ import annotations

import numpy as np

from relaxir.ir import BlockBuilder, Function, IRModule, TensorType, Var, const
from relaxir.ir.structural import structural_equal
from relaxir.ops import op
from relaxir.sym import dim


def module(local: str = "lv", param: str = "x", value: float = 1.5, low: int = 0, big: float = 0.0) -> IRModule:
    """A function with one constant inline and one by key."""
    bb = BlockBuilder()
    x = Var(param, TensorType((dim("n", min=low), 10), "f32"))
    with bb.function("main", [x]):
        y = bb.emit(op.add(x, const(value)), local)
        table = np.zeros((10, 10), np.float32)
        table[9, 9] = big
        bb.emit_func_output((y, const(table)))
    return bb.get()


def test_local_names_do_not_matter() -> None:
    assert structural_equal(module(), module("other"))


def test_what_matters() -> None:
    for other in (module(param="y"), module(value=2.5), module(low=1), module(big=1.0), module(value=-0.0)):
        assert not structural_equal(module(), other)
    assert not structural_equal(module(value=0.0), module(value=-0.0))
    assert structural_equal(module(value=float("nan")), module(value=float("nan")))


def test_functions() -> None:
    a, b = module()["main"], module("other")["main"]
    assert isinstance(a, Function)
    assert isinstance(b, Function)
    assert structural_equal(a, b)
    assert not structural_equal(a, module())  # type: ignore[arg-type]  # another kind of thing
