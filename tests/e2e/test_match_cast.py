"""A match_cast to symbols of its own: ranges, repeats and compound dimensions are checked, compiled and interpreted."""

from __future__ import annotations

import numpy as np
import pytest

import relaxir as rx
from relaxir.pipelines import REFERENCE
from relaxir.support.errors import ArgumentError, InferError, RelaxirError, RuntimeShapeError
from relaxir.sym import DimLike

N, M, A = rx.dim("n"), rx.dim("m"), rx.dim("a")
NARROW = rx.dim("b", min=3, max=8, multiple_of=3)


def module(*shape: DimLike) -> rx.IRModule:
    """``x + 1`` of ``x`` seen at a shape."""
    x = rx.Var("x", rx.TensorType((N, M), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        seen = bb.match_cast(x, rx.TensorType(shape, "float32"))
        bb.emit_func_output(bb.emit(rx.op.add(seen, 1.0)))
    return bb.get()


CASES: tuple[tuple[tuple[DimLike, ...], tuple[tuple[int, int], ...], tuple[tuple[int, int], ...]], ...] = (
    ((A, A), ((0, 0), (3, 3)), ((3, 4), (0, 1))),
    ((2 * A + 1, 3), ((1, 3), (7, 3)), ((4, 3), (0, 3), (7, 2))),
    ((A, 3 * A), ((2, 6), (0, 0)), ((2, 5),)),
    ((NARROW, M), ((3, 1), (6, 0)), ((4, 1), (0, 1), (9, 1))),
)


@pytest.mark.parametrize(("shape", "good", "bad"), CASES, ids=[str(c[0]) for c in CASES])
def test_what_does_not_fit_is_refused(
    shape: tuple[DimLike, ...], good: tuple[tuple[int, int], ...], bad: tuple[tuple[int, int], ...]
) -> None:
    mod = module(*shape)
    planned = REFERENCE(mod)
    ways = [
        lambda x: rx.evaluate(mod, "main", x),
        lambda x: rx.evaluate(planned, "main", x),
        rx.compile(mod, pipeline=REFERENCE)["main"],
    ]
    assert str(rx.parse(str(mod))) == str(mod)
    for run in ways:
        for size in good:
            assert run(np.ones(size, np.float32)).shape == size
        for size in bad:
            with pytest.raises((RuntimeShapeError, ArgumentError), match=r"match_cast|must be at least"):
                run(np.ones(size, np.float32))


@pytest.mark.parametrize("shape", [(A // 2, M), (rx.max(A, 2), M), (A * NARROW, NARROW)])
def test_symbols_that_no_extent_gives(shape: tuple[DimLike, ...]) -> None:
    with pytest.raises(InferError, match=r"does not determine `a` of f32\["):
        module(*shape)
    text = str(module(A, M)).replace('((a, m), "f32")', '((a // 2, m), "f32")')
    with pytest.raises(RelaxirError, match="does not determine `a`"):
        rx.parse(text)
