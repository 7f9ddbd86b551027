"""A match_cast to symbols of its own: ranges, repeats and compound dimensions are checked, compiled and interpreted."""

from __future__ import annotations

import numpy as np
import pytest

import relaxir as rx
from relaxir.pipelines import REFERENCE
from relaxir.runtime.executable import Executable
from relaxir.support.errors import ArgumentError, InferError, RelaxirError, RuntimeShapeError
from relaxir.sym import DimLike

N, M, A = rx.dim("n"), rx.dim("m"), rx.dim("a")
NARROW = rx.dim("b", min=3, max=8, multiple_of=3)


def module(*shapes: tuple[DimLike, ...]) -> rx.IRModule:
    """Functions ``f0`` and so on: ``x + 1`` of ``x`` seen at each shape."""
    bb = rx.BlockBuilder()
    for number, shape in enumerate(shapes):
        x = rx.Var("x", rx.TensorType((N, M), "float32"))
        with bb.function(f"f{number}", [x]):
            seen = bb.match_cast(x, rx.TensorType(shape, "float32"))
            bb.emit_func_output(bb.emit(rx.op.add(seen, 1.0)))
    return bb.get()


CASES: tuple[tuple[tuple[DimLike, ...], tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]], ...] = (
    ((A, A), ((0, 0), (3, 3)), ((3, 4), (0, 1))),
    ((2 * A + 1, 3), ((1, 3), (7, 3)), ((4, 3), (0, 3), (7, 2))),
    ((A, 3 * A), ((2, 6), (0, 0)), ((2, 5),)),
    ((NARROW, M), ((3, 1), (6, 0)), ((4, 1), (0, 1), (9, 1))),
)


@pytest.fixture(scope="module")
def built() -> tuple[rx.IRModule, rx.IRModule, Executable]:
    """The cases as they are, planned, and compiled."""
    mod = module(*(c[0] for c in CASES))
    assert str(rx.parse(str(mod))) == str(mod)
    return mod, REFERENCE(mod), rx.compile(mod, pipeline=REFERENCE)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[str(c[0]) for c in CASES])
def test_what_does_not_fit_is_refused(built: tuple[rx.IRModule, rx.IRModule, Executable], number: int) -> None:
    name, (_, good, bad), (mod, planned, exe) = f"f{number}", CASES[number], built
    for run in (lambda x: rx.evaluate(mod, name, x), lambda x: rx.evaluate(planned, name, x), exe[name]):
        for size in good:
            assert run(np.ones(size, np.float32)).shape == size
        for size in bad:
            with pytest.raises((RuntimeShapeError, ArgumentError), match=r"match_cast|must be at least"):
                run(np.ones(size, np.float32))


@pytest.mark.parametrize("shape", [(A // 2, M), (rx.max(A, 2), M), (A * NARROW, NARROW)])
def test_symbols_that_no_extent_gives(shape: tuple[DimLike, ...]) -> None:
    with pytest.raises(InferError, match=r"does not determine `a` of f32\["):
        module(shape)
    text = str(module((A, M))).replace('((a, m), "f32")', '((a // 2, m), "f32")')
    with pytest.raises(RelaxirError, match="does not determine `a`"):
        rx.parse(text)
