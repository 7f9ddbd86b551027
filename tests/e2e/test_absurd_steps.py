"""Sizes and loops that no machine can have: refused at the call, in words, compiled and interpreted alike."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.cost.steps import MOST_STEPS, steps_of
from relaxir.ops import TABLE
from relaxir.pipelines import REFERENCE
from relaxir.support.errors import RuntimeFailure
from relaxir.sym import parse, split_factors
from tests.e2e.test_absurd_sizes import runs

MIB = 1 << 20
N, M, K = (rx.dim(d) for d in "nmk")


def var(*shape: Any) -> rx.Var:
    return rx.Var("x", rx.TensorType(shape, "float32"))


def one(x: rx.Var, result: Any) -> rx.IRModule:
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        bb.emit_func_output(result)
    return bb.get()


def zeros(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def test_empty_results_have_sizes_too() -> None:
    """No array has strides beyond 64 bits, and NumPy refuses to make one."""
    x = var(N, M, 0)
    for run in runs(one(x, rx.op.zeros((N * MIB, M * MIB, 0)))):
        assert run(zeros(1, 0, 0)).shape == (MIB, 0, 0)
        with pytest.raises(RuntimeFailure, match="does not fit 64 bits") as caught:
            run(zeros(1 << 13, 1 << 15, 0))
        assert caught.value.code == "runtime-overflow"


def test_loops_that_never_end() -> None:
    """A sum over what is never stored would take years."""
    x = var(N)
    for run in runs(one(x, rx.op.sum(rx.op.broadcast_to(x, (N * MIB, N * MIB, N))))):
        with pytest.raises(RuntimeFailure):
            run(zeros(1 << 10))


def test_searches_that_never_end() -> None:
    """Their loops are cut into blocks, each of which counts whole."""
    x = var(N)
    for run in runs(one(x, rx.op.argmax(rx.op.broadcast_to(x, (1 << 60, N)), axis=0))):
        with pytest.raises(RuntimeFailure):
            run(zeros(1))


def test_temporaries_of_unscheduled_kernels() -> None:
    """No address space has room for all pairs of rows."""
    x = var(1, 1, N, 1)
    main: Any = rx.compile(one(x, rx.op.attention(x, x, x)), pipeline=REFERENCE)["main"]
    with pytest.raises(RuntimeFailure, match="bytes of temporary memory could not be allocated") as caught:
        main(zeros(1, 1, 1 << 23, 1))
    assert caught.value.code == "runtime-allocation"


def test_the_message_of_an_endless_loop() -> None:
    x = var(N)
    main: Any = rx.compile(one(x, rx.op.sum(rx.op.broadcast_to(x, (N * MIB, N * MIB, N)))))["main"]
    with pytest.raises(
        RuntimeFailure, match=r"main: the loops of `fused_broadcast_to_sum` .* 2\*\*56 steps; n is 1024"
    ):
        main(zeros(1 << 10))
    assert main(zeros(0)) == 0


@pytest.mark.parametrize(
    ("name", "shapes", "attrs", "count"),
    [
        ("exp", [(N, M, 4)], {}, 0),  # as many steps as elements
        ("softmax", [(N, M)], {}, 0),
        ("sum", [(N, M)], {}, 0),
        ("matmul", [(N, K), (K, M)], {}, 1),
        ("matmul", [(8, 64), (64, 8)], {}, 0),
    ],
)
def test_which_loops_need_a_check(name: str, shapes: Any, attrs: Any, count: int) -> None:
    op: Any = TABLE[name]
    types = tuple(rx.TensorType(s, "float32") for s in shapes)
    ctx = rx.ir.InferCtx(name, rx.sym.Facts((N, M, K)))
    record = op.Attrs(**attrs)
    func = op.lower(types, record, (op.infer(types, record, ctx),))
    found = steps_of(func)
    assert len(found) == count
    for steps in found:
        assert set(steps.dims) == {N, M, K}
        assert steps.number == 1


def test_factors() -> None:
    assert split_factors(parse("8 * n * ((m + 1) // 16)", {"n": N, "m": M})) in ((0.5, (N, M + 1)), (0.5, (M + 1, N)))
    assert split_factors(N * N * 3) == (3.0, (N, N))
    assert split_factors(7) == (7.0, ())
    assert MOST_STEPS == 1 << 56


def test_an_arm_that_only_checks() -> None:
    """Its relation may wrap, so that it seems to hold."""
    text = """
@I.module
class Module:
    @R.function
    def main(c: R.Tensor((), "bool"), x: R.Tensor(("n", 0), "f32")) -> R.Tensor((), "bool"):
        n = R.dim("n")
        if c:
            R.check(n * n * n * n <= 5, "runtime-shape", "n is too large")
            y = c
        else:
            y = c
        return y
"""
    mod = rx.parse(text)
    for main in runs(mod):
        assert main(np.array(True), zeros(1, 0))
        assert not main(np.array(False), zeros(1 << 16, 0))
        with pytest.raises(rx.RelaxirError, match=r"64 bits|too large"):
            main(np.array(True), zeros(1 << 16, 0))
