"""Compiled code of a random program against the interpreter, on guarded memory in a child process."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.api import compile as rx_compile
from relaxir.passes import ClassifyPatterns, DispatchLibrary, LegalizeOps, Pipeline
from relaxir.pipelines import DEFAULT, GRAPH, HOST, KERNELS, REFERENCE
from relaxir.runtime.interp import evaluate
from relaxir.runtime.signature import signature_of
from relaxir.support.bfloat16 import bfloat16_to_float32
from relaxir.sym import Dim, SymError
from tests.e2e.random_graphs import SIZES, Program
from tests.ops.guarded import call_guarded
from tests.ops.isolated import failures

LEVELS: Final[Mapping[str, Pipeline]] = MappingProxyType(
    {
        "default": DEFAULT,
        "unfused": Pipeline((*GRAPH, DispatchLibrary(), LegalizeOps(), ClassifyPatterns(), *KERNELS, *HOST)),
        "reference": REFERENCE,
    }
)
"""Levels of optimisation: all, each operator its own kernel, and nothing."""
TARGETS = ("x86-64-v2", "x86-64-v3", "x86-64-v4")
TOLERANCE = 2e-4
"""Relative to the largest magnitude of a result: random chains lose digits to cancellation."""
COARSE = {"float16": 2e-2, "bfloat16": 1e-1}
"""Where a value has few digits, those that fused code does not round between two operators count."""
EXACT = 1e-6
"""On whole numbers only what exceeds the mantissa may differ."""


def assignments(symbols: Sequence[Dim], sizes: Sequence[int] = SIZES) -> list[dict[str, int]]:
    """Sizes of the symbols: all equal, and staggered; ranges and multiples respected."""
    found: dict[tuple[int, ...], dict[str, int]] = {}
    for shift in (0, 2, 5):
        for i in range(len(sizes)):
            env = {d.name: allowed(d, sizes[(i + shift * k) % len(sizes)]) for k, d in enumerate(symbols)}
            found[tuple(env.values())] = env
    return list(found.values())


def allowed(symbol: Dim, size: int) -> int:
    """The nearest size that a symbol may have."""
    step = symbol.multiple_of
    size = -(-max(size, symbol.min) // step) * step
    return size if symbol.max is None else min(size, symbol.max)


def results(value: object) -> tuple[np.ndarray, ...]:
    """One result or several."""
    return value if isinstance(value, tuple) else (np.asarray(value),)


def same(got: Sequence[np.ndarray], want: Sequence[np.ndarray], types: Sequence[str], tolerance: float) -> None:
    """Equal within a tolerance, which is relative to the largest magnitude."""
    for i, (g, w, dtype) in enumerate(zip(got, want, types, strict=True)):
        assert (g.dtype, g.shape) == (w.dtype, w.shape), i
        if dtype == "bfloat16":
            g, w = bfloat16_to_float32(g), bfloat16_to_float32(w)
        finite = np.abs(w[np.isfinite(w)], dtype=np.float64)
        allowed = 0.0 if g.dtype.kind in "iub" else max(tolerance, COARSE.get(dtype, 0.0))
        scale = max(1.0, float(finite.max())) if finite.size else 1.0
        np.testing.assert_allclose(g, w, rtol=allowed, atol=allowed * scale, err_msg=f"result {i}")


@dataclass(frozen=True)
class Setup:
    """How programs are compiled and run.

    Attributes:
        targets: instruction sets.
        threads: most threads of a call.
        levels: of optimisation, see `LEVELS`.
        sizes: of symbols.
        whole: operands are whole numbers, and results must be equal but for overflow.
    """

    targets: Sequence[str] = ("x86-64-v3",)
    threads: int = 1
    levels: Sequence[str] = tuple(LEVELS)
    sizes: Sequence[int] = SIZES
    whole: bool = False


def agree(program: Program, setup: Setup) -> None:
    """No disagreement; a failure shows the program's text, which is what hypothesis has left of it."""
    bad = disagreements(program, setup)
    assert not bad, "\n".join((*(f"{place}: {text}" for place, text in bad.items()), str(program.module)))


def disagreements(program: Program, setup: Setup = Setup()) -> dict[str, str]:  # frozen
    """Compile for every target with every pipeline, and compare at many sizes: what differs, by place."""
    envs, arrays, wants = [], [], []
    for env in assignments(program.symbols, setup.sizes):
        try:
            operands = program.inputs(env, setup.whole)
            with np.errstate(all="ignore"):
                wants.append(results(evaluate(program.module, "main", *operands)))
        except SymError:  # an extent of the program divides by 0
            continue
        envs.append(env)
        arrays.append(operands)
    types = [o.type.dtype for o in signature_of("main", program.module.graph_functions()["main"]).outputs]
    found: dict[str, str] = {}
    for target, level in product(setup.targets, setup.levels):
        exe = rx_compile(program.module, target, setup.threads, LEVELS[level], cache=False, jobs=1)
        kind = f"{target} {level} "

        def run(i: int) -> None:
            outs = [np.full_like(w, 1) for w in wants[i]]
            got = call_guarded(exe["main"].into, arrays[i], outs)  # noqa: B023  # called in this iteration
            same(got, wants[i], types, EXACT if setup.whole else TOLERANCE)

        found |= failures([kind + str(env) for env in envs], run)
    return found
