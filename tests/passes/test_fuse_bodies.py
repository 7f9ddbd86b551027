"""Kernels are fused in branches and loops as they are elsewhere."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops import op
from relaxir.passes import Pipeline
from relaxir.pipelines import GRAPH, LOWER

N = rx.dim("n")
VECTOR = rx.TensorType((N,), "float32")


def chain(bb: rx.BlockBuilder, x: rx.Var, y: rx.Var) -> rx.Var:
    """Three operators that make one kernel."""
    return bb.emit(op.tanh(bb.emit(op.add(bb.emit(op.multiply(x, y)), y))))


def branch(bb: rx.BlockBuilder, flag: rx.Var, x: rx.Var, y: rx.Var) -> rx.Var:
    """A chain in one branch, of values around it and one that the branch makes."""
    return bb.if_then_else(flag, lambda: bb.emit(op.negative(chain(bb, x, y))), lambda: y)


def nested(bb: rx.BlockBuilder, flag: rx.Var, x: rx.Var, y: rx.Var) -> rx.Var:
    """The chain two bodies deep; what it reads is made between them, and read once more after."""

    def outer() -> rx.Var:
        z = bb.emit(op.exp(x))
        inner = bb.if_then_else(flag, lambda: chain(bb, z, y), lambda: z)
        return bb.emit(op.add(inner, z))

    return bb.if_then_else(flag, outer, lambda: x)


def repeated(bb: rx.BlockBuilder, flag: rx.Var, x: rx.Var, y: rx.Var) -> rx.Var:
    """The chain in every iteration, its operand read again by the next one."""
    result = bb.loop(lambda i, carried: (flag, [chain(bb, carried[0], y)], []), [x], trips=3)
    return bb.emit(rx.ir.expr.TupleGetItem(result, 0))


@pytest.mark.parametrize(("make", "count"), [(branch, 1), (nested, 3), (repeated, 1)])
def test_chains_in_bodies_are_one_kernel(make: Callable[..., rx.Var], count: int) -> None:
    bb = rx.BlockBuilder()
    flag, x, y = rx.Var("flag", rx.TensorType((), "bool")), rx.Var("x", VECTOR), rx.Var("y", VECTOR)
    with bb.function("main", [flag, x, y]):
        bb.emit_func_output(make(bb, flag, x, y))
    module = bb.get()
    found = [str(f.attrs["op"]) for f in Pipeline((*GRAPH, *LOWER))(module).prim_funcs().values()]
    assert len(found) == count, found
    assert any("multiply_add_tanh" in k for k in found)
    main = rx.compile(module)["main"]
    for n in (0, 1, 5, 40):
        values = [np.linspace(-1, 1, n, dtype=np.float32) for _ in range(2)]
        for taken in (True, False):
            inputs = (np.asarray(taken), *values)
            np.testing.assert_allclose(main(*inputs), rx.evaluate(module, "main", *inputs), rtol=1e-6, atol=1e-6)
