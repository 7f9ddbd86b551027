"""Compiled code of a random program against the interpreter, on guarded memory in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from relaxir.api import compile as rx_compile
from relaxir.passes import Pass
from relaxir.pipelines import REFERENCE
from relaxir.runtime.interp import evaluate
from tests.e2e.random_graphs import SIZES, SYMBOLS, Program
from tests.ops.guarded import call_guarded
from tests.ops.isolated import failures

TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
TOLERANCE = 2e-4
"""Relative to the largest magnitude of a result: random chains lose digits to cancellation."""


def assignments() -> list[dict[str, int]]:
    """Sizes of the symbols: all equal, and staggered."""
    found = []
    for shift in (0, 2, 5):
        for i in range(len(SIZES)):
            sizes = (SIZES[(i + shift * k) % len(SIZES)] for k in range(len(SYMBOLS)))
            found.append({d.name: max(d.min, s) for d, s in zip(SYMBOLS, sizes, strict=True)})
    return found


def results(value: object) -> tuple[np.ndarray, ...]:
    """One result or several."""
    return value if isinstance(value, tuple) else (np.asarray(value),)


def same(got: Sequence[np.ndarray], want: Sequence[np.ndarray]) -> None:
    """Equal within the tolerance of random programs."""
    for i, (g, w) in enumerate(zip(got, want, strict=True)):
        assert (g.dtype, g.shape) == (w.dtype, w.shape), i
        finite = w[np.isfinite(w)]
        scale = float(np.abs(finite).max()) if finite.size else 0.0
        np.testing.assert_allclose(g, w, rtol=TOLERANCE, atol=TOLERANCE * max(1.0, scale), err_msg=f"result {i}")


def disagreements(
    program: Program, targets: Sequence[str] = TARGETS[1:2], threads: int = 1, pipelines: Sequence[Pass | None] = (None, REFERENCE)
) -> dict[str, str]:
    """Compile for every target with every pipeline, and compare at many sizes: what differs, by place."""
    envs = assignments() if any(d for p in program.module.graph_functions()["main"].params for d in p.type.shape if not isinstance(d, int)) else assignments()[:1]  # type: ignore[union-attr]
    cases: list[tuple[Mapping[str, int], tuple[np.ndarray, ...], tuple[np.ndarray, ...]]] = []
    for env in envs:
        arrays = program.inputs(env)
        with np.errstate(all="ignore"):
            cases.append((env, arrays, results(evaluate(program.module, "main", *arrays))))
    found: dict[str, str] = {}
    for target in targets:
        for pipeline in pipelines:
            exe = rx_compile(program.module, target, threads=threads, pipeline=pipeline, cache=False, jobs=1)
            kind = f"{target} {'default' if pipeline is None else 'reference'} "

            def run(i: int) -> None:
                _, arrays, wants = cases[i]
                outs = [np.full_like(w, 1) for w in wants]
                same(call_guarded(exe["main"].into, arrays, outs), wants)  # noqa: B023  # called in this iteration

            found |= failures([kind + str(dict(env)) for env, _, _ in cases], run)
    return found
