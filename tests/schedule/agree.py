"""Block form and loop form of a program compute the same: the property that every schedule test checks."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from relaxir.cost import Config, TargetInfo
from relaxir.runtime.interp import run_prim_func
from relaxir.schedule import schedule
from relaxir.support.dtypes import info
from relaxir.sym import evaluate
from relaxir.tir import Buffer, PrimFunc

TARGET = TargetInfo()
SIZES = (0, 1, 2, 3, 7, 16, 33)


def array(buffer: Buffer, dims: Mapping[str, int], rng: np.random.Generator) -> np.ndarray[Any, Any]:
    shape = tuple(evaluate(d, dims) for d in buffer.shape)
    kind = info(buffer.dtype).numpy
    if kind.kind == "f":
        return rng.standard_normal(shape).astype(kind)
    return rng.integers(0, 3, shape).astype(kind)


def run(func: PrimFunc, inputs: Sequence[np.ndarray[Any, Any]], dims: Mapping[str, int]) -> list[np.ndarray[Any, Any]]:
    rng = np.random.default_rng(1)
    results = [array(b, dims, rng) for b in func.params[len(inputs) :]]
    run_prim_func(func, [*inputs, *results], dims)
    return results[: func.outputs]


def agree(
    func: PrimFunc,
    sizes: Sequence[int] = SIZES,
    target: TargetInfo = TARGET,
    config: Config | None = None,
    rules: tuple[str, ...] | None = None,
) -> PrimFunc:
    """Compare for every assignment of ``sizes`` to the program's symbols; returns the scheduled program."""
    done = schedule(func, target, config)
    if rules is not None:
        assert done.attrs["rules"] == rules
    names = [d.name for d in func.dims]
    for values in (
        itertools.product(sizes, repeat=len(names)) if len(names) < 3 else zip(*[sizes] * len(names), strict=True)
    ):
        dims = dict(zip(names, values, strict=True))
        rng = np.random.default_rng(0)
        inputs = [array(b, dims, rng) for b in func.inputs]
        expected, got = run(func, inputs, dims), run(done, inputs, dims)
        for e, g in zip(expected, got, strict=True):
            np.testing.assert_allclose(g.reshape(e.shape), e, rtol=2e-4, atol=2e-4, err_msg=str(dims))
    return done
