"""Every operator's examples as functions of modules, in all the ways to run them, which must agree with the reference.

All sizes dynamic, sizes static, operands constant too (folded); interpreted at several stages of the pipeline.
Sizes that break a check of inference must fail the call. Compiled builds: test_native_builds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

from relaxir import ops
from relaxir.ir import IRModule, Op, ShapeType
from relaxir.passes import Pipeline
from relaxir.pipelines import DEFAULT, GRAPH, LOWER
from relaxir.runtime.interp import evaluate
from relaxir.support.errors import ArgumentError, RuntimeShapeError
from relaxir.text import parse
from tests.ops import cases
from tests.ops.builds import Case, cases_of, module_of

Run = Callable[[str, tuple[np.ndarray, ...]], Any]
LIMIT = 3
"""Assignments of sizes for each example: the loops themselves are tested at all of them in test_contract."""


def interpreted(module: IRModule) -> Run:
    return lambda name, arrays: evaluate(module, name, *arrays)


def legal(module: IRModule) -> Run:
    return interpreted(Pipeline((*GRAPH, *LOWER))(module))


def hosted(module: IRModule) -> Run:
    lowered = DEFAULT(module)
    table = lowered.attrs.get("constants", ())
    constants = [c.data for c in table]  # type: ignore[union-attr]  # LowerHost put Constants there
    return lambda name, arrays: evaluate(lowered, name, *arrays, constants=constants)


BUILDS: Mapping[str, Callable[[IRModule], Run]] = {
    "interpreted": interpreted,
    "legal": legal,
    "hosted": hosted,
}


def agree(case: Case, got: Any) -> None:
    result, want = case.expected()
    if isinstance(result, ShapeType):
        assert tuple(got) == tuple(want)
        return
    types = cases.outputs(result)
    for g, w, t in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), types, strict=True):
        cases.close(g, w, t, case.example)


def dynamic(run: Run, found: list[Case], checked: bool = True) -> None:
    for case in found:
        if case.holds:
            agree(case, run(case.name, case.arrays))
        elif checked:
            with pytest.raises((RuntimeShapeError, ArgumentError)):
                run(case.name, case.arrays)


def examples(op: Op[Any], limit: int = LIMIT) -> list[Case]:
    found = list(cases_of(op, limit))
    if not found:
        pytest.skip("needs symbols that no tensor defines")
    return found


@pytest.mark.parametrize("op", ops.OPS, ids=lambda o: o.name)
def test_text_parses_back(op: Op[Any]) -> None:
    """What is printed of a call reads as the same call."""
    text = str(module_of(tuple({c.name: c for c in examples(op, 1)}.values())))
    assert str(parse(text, ops.TABLE)) == text


@pytest.mark.parametrize("build", BUILDS)
@pytest.mark.parametrize("op", ops.OPS, ids=lambda o: o.name)
def test_builds_agree(op: Op[Any], build: str) -> None:
    """One module holds the dynamic, static and folded functions of all examples."""
    found = examples(op)
    exact = list({c.name: c for c in found if c.holds}.values())
    module = module_of(tuple({c.name: c for c in found}.values()))
    module = module_of(exact, folded=True, base=module_of(exact, static=True, base=module))
    run = BUILDS[build](module)
    dynamic(run, found, checked=build != "interpreted")  # checks are inserted by the pipeline
    for k, case in enumerate(exact):
        agree(case, run(case.function(k, True, False), case.arrays))
        agree(case, run(case.function(k, False, True), ()))
