"""Temporaries that only kernels without work would read: not made, not stored, and no difference anywhere else."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir import Var
from relaxir.passes.demand import MOST_NEEDS, known_needs
from relaxir.pipelines import DEFAULT
from relaxir.runtime.executable import Executable
from relaxir.support.errors import RuntimeIndexError
from relaxir.tir import If
from relaxir.tir.visit import walk

N, M = rx.dim("n"), rx.dim("m")
HUGE = 1 << 40
op = rx.op
Build = Callable[[rx.BlockBuilder, Var], object]


def module(*builds: Build) -> rx.IRModule:
    """Functions of one matrix, called as what makes them."""
    bb = rx.BlockBuilder()
    for build in builds:
        x = rx.Var("x", rx.TensorType((N, M), "float32"))
        with bb.function(build.__name__, [x]):
            bb.emit_func_output(build(bb, x))  # type: ignore[arg-type]  # calls and variables
    return bb.get()


def centred(bb: rx.BlockBuilder, x: Var) -> object:
    return op.subtract(x, bb.emit(op.mean(x, axes=(0,), keepdims=True)))


def chain(bb: rx.BlockBuilder, x: Var) -> object:
    """A temporary that another temporary is made of."""
    total = bb.emit(op.cumsum(bb.emit(op.sum(x, axes=(0,), keepdims=True)), axis=1))
    return op.multiply(bb.emit(op.divide(x, bb.emit(op.std(x, axes=(0,), keepdims=True)))), total)


def branched(bb: rx.BlockBuilder, x: Var) -> object:
    """Read in one arm only."""
    means = bb.emit(op.mean(x, axes=(0,), keepdims=True))
    many = bb.emit(op.greater(bb.emit(op.sum(x, axes=(0, 1))), 0.0))
    return bb.if_then_else(many, lambda: bb.emit(op.subtract(x, means)), lambda: bb.emit(op.abs(x)))


def repeated(bb: rx.BlockBuilder, x: Var) -> object:
    """Made in each iteration of what the one before left."""

    def body(i: Var, carried: tuple[Var, ...]) -> tuple[object, list[object], list[object]]:
        return rx.const(True), [bb.emit(op.add(carried[0], bb.emit(op.sum(carried[0], axes=(0,)))))], []

    return bb.item(bb.loop(body, [x], 2), 0)  # type: ignore[arg-type]  # as in `module`


def picked(bb: rx.BlockBuilder, x: Var) -> object:
    """A sum of which one element is taken, that may not exist, and added to nothing."""
    row = bb.emit(op.take(bb.emit(op.sum(x, axes=(0,))), bb.emit(op.arange(start=3, stop=4)), axis=0))
    return op.add(x, bb.emit(op.cumsum(row, axis=0)))


BUILDS = (centred, chain, branched, repeated)


@pytest.fixture(scope="module")
def built() -> tuple[rx.IRModule, rx.IRModule, Executable]:
    """All of them as they are, planned, and compiled."""
    mod = module(*BUILDS, picked)
    return mod, DEFAULT(mod), rx.compile(mod)


@pytest.mark.parametrize("name", [b.__name__ for b in BUILDS])
def test_empty_results_take_no_memory_for_what_they_would_be_made_of(
    built: tuple[rx.IRModule, rx.IRModule, Executable], name: str
) -> None:
    mod, planned, exe = built
    assert any(isinstance(s, If) for s in walk(planned.prim_funcs()[name].body))
    assert rx.memory(exe, name)(n=0, m=HUGE) < 2000
    assert exe[name](np.empty((0, HUGE), np.float32)).shape == (0, HUGE)
    for shape in ((0, 3), (3, 0), (1, 1), (5, 3), (70, 17)):
        x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
        want = rx.evaluate(mod, name, x)
        for got in (exe[name](x), rx.evaluate(planned, name, x)):
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-4 * np.abs(want).max(initial=1))


def test_what_fails_is_called_for_nobody(built: tuple[rx.IRModule, rx.IRModule, Executable]) -> None:
    """An index out of range is an error although what it takes is added to nothing."""
    run = built[2]["picked"]
    assert run(np.ones((0, 9), np.float32)).shape == (0, 9)
    with pytest.raises(RuntimeIndexError):
        run(np.ones((0, 2), np.float32))


def test_needs_in_known_symbols() -> None:
    both, one = frozenset((N, M)), frozenset((N,))
    assert known_needs((both,), (N, M)) == (both,)
    assert known_needs((both, frozenset((M,))), (N,)) == (frozenset(),)
    many = tuple(frozenset((N, rx.dim(f"k{i}"))) for i in range(MOST_NEEDS + 1))
    assert known_needs(many, (N, *(d for needs in many for d in needs))) == (one,)
