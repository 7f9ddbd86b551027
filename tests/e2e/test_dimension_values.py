"""Dimensions without a value at some sizes: an error in the user's names, not a value that another build does not give."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

import relaxir as rx
from relaxir.passes import InsertChecks
from relaxir.pipelines import REFERENCE
from relaxir.runtime.executable import Executable
from relaxir.support.errors import ArgumentError, RuntimeShapeError, ShapeMismatchError
from relaxir.sym import DimLike, conditions

N, M = rx.dim("n"), rx.dim("m")
BOTH = rx.broadcast(N, M)
op = rx.op


def module(
    build: Callable[..., object],
    *shapes: Sequence[DimLike],
    where: str = "",
    name: str = "main",
    base: rx.IRModule | None = None,
) -> rx.IRModule:
    """A function of vectors of n and m elements, and of other tensors."""
    params = [rx.Var(f"x{i}", rx.TensorType(tuple(s), "float32")) for i, s in enumerate(((N,), (M,), *shapes))]
    bb = rx.BlockBuilder(base)
    with bb.function(name, params, where=where):
        bb.emit_func_output(build(*params))  # type: ignore[arg-type]  # each gives a call of an operator
    return bb.get()


def ones(*sizes: int) -> tuple[np.ndarray, ...]:
    """A vector of each size."""
    return tuple(np.ones(s, np.float32) for s in sizes)


@dataclass(frozen=True)
class Case:
    """A function, sizes at which some dimension of it has no value, others at which all have, and words of the error."""

    build: Callable[..., object]
    bad: tuple[int, ...]
    good: tuple[int, ...]
    words: str
    shapes: tuple[tuple[DimLike, ...], ...] = ()
    where: str = ""


CASES = (
    Case(lambda x, y: op.dims_to_tensor(dims=(N // M, N % M)), (5, 0), (5, 2), "the divisor m must not be 0"),
    Case(lambda x, y: op.dims_to_tensor(dims=(BOTH,)), (2, 3), (1, 3), "n and m must be equal, or one of them 1"),
    Case(lambda x, y, z: op.abs(z), (3, 2, 3), (3, 1, 3), "must be equal, or|expected broadcast", shapes=((BOTH,),)),
    Case(lambda x, y: op.abs(x), (4, 0), (4, 2), "where, `n % m`: the divisor m must not be 0", where="n % m == 0"),
    Case(lambda x, y: op.broadcast_to(x, shape=(N - M, N)), (3, 5), (3, 2), "n - m must be at least 0"),
    Case(
        lambda x, y, z: op.abs(z), (1, 1, 1), (1, 1, 2), "a is -1, but must be at least 0", shapes=((rx.dim("a") + 2,),)
    ),
    Case(lambda x, y: op.pad(x, pads=((BOTH, 0),)), (2, 3), (3, 3), "n and m must be equal"),
)


@pytest.fixture(scope="module")
def built() -> tuple[rx.IRModule, rx.IRModule, Executable]:
    """All cases as they are, planned, and compiled."""
    mod = rx.IRModule({})
    for number, case in enumerate(CASES):
        mod = module(case.build, *case.shapes, where=case.where, name=f"f{number}", base=mod)
    return mod, REFERENCE(mod), rx.compile(mod, pipeline=REFERENCE)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[c.words for c in CASES])
def test_sizes_without_a_value_are_refused(built: tuple[rx.IRModule, rx.IRModule, Executable], number: int) -> None:
    name, case, (mod, planned, exe) = f"f{number}", CASES[number], built
    want = rx.evaluate(mod, name, *ones(*case.good))
    for got in (exe[name](*ones(*case.good)), rx.evaluate(planned, name, *ones(*case.good))):
        np.testing.assert_array_equal(got, want)
    with pytest.raises(RuntimeShapeError, match=case.words):
        exe[name](*ones(*case.bad))
    for interpreted in (mod, planned):
        with pytest.raises((RuntimeShapeError, ArgumentError)):
            rx.evaluate(interpreted, name, *ones(*case.bad))


def test_what_can_never_be_is_refused_when_it_is_built() -> None:
    for shape, words in (((rx.broadcast(N + 2, N + 3),), "on the left"), ((-1 - N,), "must be at least 0")):
        with pytest.raises(ShapeMismatchError, match=words):
            module(lambda x, y: op.broadcast_to(x, shape=shape))  # noqa: B023  # called at once


def test_checks_are_written_once() -> None:
    mod = module(lambda x, y: op.add(op.add(x, y), op.reshape(op.add(x, y), (BOTH,))))
    once = InsertChecks()(mod)
    assert str(once).count("R.check(") == 1
    assert str(InsertChecks()(once)) == str(once)


def test_conditions() -> None:
    assert conditions(4) == conditions(N * 3) == conditions(N // 2) == ((), ())
    assert conditions(rx.broadcast(N // (M + 1), 3)) == (((N // (M + 1), 3),), (M + 1,))
