"""Operators whose results are empty at enormous sizes: an empty array at once, whatever else the sizes would take.

One extent is 0 and another one 2**40, so that a temporary sized by the second alone would have terabytes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import permutations
from math import prod
from typing import Any, Final

import numpy as np
import pytest

from relaxir.api import compile as rx_compile
from relaxir.api import memory
from relaxir.ir import Op, TensorType, TupleType
from relaxir.ir.types import free_dims_of_type
from relaxir.support.dtypes import info
from relaxir.sym import evaluate
from tests.ops import cases
from tests.ops.builds import Case, cases_of, module_of, widened
from tests.ops.compiled import chunks

HUGE: Final = 1 << 40
SMALL: Final = 2
FEW: Final = 1 << 16
"""Bytes of temporary memory that a call may take for its small extents."""

Shapes = list[tuple[int, ...]]


def shapes(types: tuple[Any, ...], env: Mapping[str, int]) -> Shapes:
    return [tuple(evaluate(d, env) for d in t.shape) for t in types if isinstance(t, TensorType)]


def empty_calls(case: Case) -> Iterator[tuple[dict[str, int], Shapes, Shapes]]:
    """Sizes at which all results are empty and no operand is large, with the shapes of operands and results."""
    symbols = {d.name: d for t in case.types for d in free_dims_of_type(t)}
    result, ctx = cases.infer(case.op, case.types, case.attrs, symbols)
    if ctx.defined or not isinstance(result, TensorType | TupleType):
        return
    for none, huge in permutations(sorted(symbols), 2):
        env = {**dict.fromkeys(symbols, SMALL), **case.example.sizes, none: 0, huge: HUGE}
        if not cases.holds(ctx, env) or any(env[n] < d.min for n, d in symbols.items()):
            continue
        given, found = shapes(case.types, env), shapes(cases.outputs(result), env)
        exist = all(prod(max(d, 1) for d in s) < 1 << 58 for s in (*given, *found))  # NumPy has no larger ones
        if exist and max(map(prod, given)) <= FEW and not any(map(prod, found)):
            yield env, given, found


def most_calls(op: Op[Any]) -> list[tuple[Case, list[tuple[dict[str, int], Shapes, Shapes]]]]:
    """The example with the most such calls, constant extents symbols too; nothing where none has any."""
    wide = [(widened([case]) or [case])[0] for case in {c.name: c for c in cases_of(op, 1)}.values()]
    found = [(case, list(empty_calls(case))) for case in wide]
    return [max(found, key=lambda f: len(f[1]))] if any(calls for _, calls in found) else []


@pytest.mark.parametrize("group", [pytest.param(c, id=f"{c[0].name}-{c[-1].name}") for c in chunks(160)])
def test_empty_results_take_nothing(group: tuple[Op[Any], ...]) -> None:
    found = [f for op in group for f in most_calls(op)]
    exe = rx_compile(module_of([case for case, _ in found]), threads=1)
    for case, calls in found:
        types = [t for t in case.types if isinstance(t, TensorType)]
        for env, given, wanted in calls:
            arrays = [np.zeros(s, info(t.dtype).numpy) for s, t in zip(given, types, strict=True)]
            results = exe[case.name](*arrays)
            got = [r.shape for r in (results if isinstance(results, tuple) else (results,))]
            assert got == wanted, (case.name, env)
            needed = memory(exe, case.name)
            sizes = {d.name: env[d.name] for d in needed.symbols if d.name in env}
            if len(sizes) == len(needed.symbols):  # none is computed from an operand
                assert needed(**sizes) <= FEW, (case.name, env)
