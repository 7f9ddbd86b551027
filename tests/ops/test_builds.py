"""Every operator's examples as graph functions: the interpreter at several stages of the pipeline must agree with the
reference, and raise where a check of inference fails; compiled builds likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxir import ops
from relaxir.ir import IRModule, Op, TupleType
from relaxir.passes import FoldConstant, PassContext, Pipeline
from relaxir.pipelines import GRAPH, LOWER
from relaxir.runtime.interp import evaluate
from relaxir.support.errors import RuntimeShapeError
from tests.ops import cases
from tests.ops.builds import Case, cases_of, module_of

Run = Callable[[str, tuple[np.ndarray, ...]], Any]
LIMIT = 4
"""Assignments of sizes for each example: the loops themselves are tested at all of them in test_contract."""


def interpreted(module: IRModule) -> Run:
    return lambda name, arrays: evaluate(module, name, *arrays)


def legal(module: IRModule) -> Run:
    return interpreted(Pipeline((*GRAPH, *LOWER))(module))


BUILDS: dict[str, Callable[[IRModule], Run]] = {"interpreted": interpreted, "legal": legal}


@pytest.fixture(params=sorted(BUILDS))
def build(request: pytest.FixtureRequest) -> Callable[[IRModule], Run]:
    return BUILDS[request.param]


def agree(case: Case, got: Any) -> None:
    want = case.want()
    results = got if isinstance(got, tuple) else (got,)
    types = case.out
    assert len(results) == len(want) == len(types)
    for g, w, t in zip(results, want, types, strict=True):
        cases.close(g, w, t, case.example)


@pytest.mark.parametrize("op", ops.OPS, ids=lambda o: o.name)
def test_dynamic_build(op: Op[Any], build: Callable[[IRModule], Run]) -> None:
    """One build for all sizes."""
    found = list(cases_of(op, LIMIT))
    if not found:
        pytest.skip("needs symbols that no tensor defines")
    run = build(module_of(tuple({c.name: c for c in found}.values())))
    for case in found:
        if case.holds:
            agree(case, run(case.name, case.arrays))
        else:
            with pytest.raises(RuntimeShapeError):
                run(case.name, case.arrays)


@pytest.mark.parametrize("op", ops.OPS, ids=lambda o: o.name)
@pytest.mark.parametrize("folded", [False, True], ids=["static", "folded"])
def test_static_build(op: Op[Any], folded: bool, build: Callable[[IRModule], Run]) -> None:
    """Sizes, and operands too, known at compile time."""
    found = [c for c in cases_of(op, LIMIT) if c.holds]
    if not found:
        pytest.skip("needs symbols that no tensor defines")
    module = module_of(found, static=True, folded=folded)
    run = build(module)
    for k, case in enumerate(found):
        agree(case, run(f"{case.name}_{k}", () if folded else case.arrays))
