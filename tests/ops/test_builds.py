"""Every operator's examples as graph functions: the interpreter at several stages of the pipeline must agree with the
reference, and raise where a check of inference fails; compiled builds likewise.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from relaxir import ops
from relaxir.ir import IRModule, Op, ShapeType
from relaxir.passes import Pass, Pipeline
from relaxir.pipelines import DEFAULT, GRAPH, LOWER, REFERENCE
from relaxir.runtime.interp import evaluate
from relaxir.support.errors import RuntimeShapeError
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


def compiled(module: IRModule, pipeline: Pass | None = None) -> Run:
    api = pytest.importorskip("relaxir.api", reason="no backend yet", exc_type=ImportError)
    exe = api.compile(module, threads=1, pipeline=pipeline, cache=False)
    return lambda name, arrays: exe[name](*arrays)


def reference(module: IRModule) -> Run:
    return compiled(module, REFERENCE)


BUILDS: dict[str, Callable[[IRModule], Run]] = {
    "interpreted": interpreted,
    "legal": legal,
    "hosted": hosted,
    "compiled": compiled,
    "reference": reference,
}


@pytest.fixture(params=sorted(BUILDS))
def build(request: pytest.FixtureRequest) -> Callable[[IRModule], Run]:
    return BUILDS[request.param]


def agree(case: Case, got: Any) -> None:
    result, want = case.expected()
    if isinstance(result, ShapeType):
        assert tuple(got) == tuple(want)
        return
    types = cases.outputs(result)
    for g, w, t in zip(*(x if isinstance(x, tuple) else (x,) for x in (got, want)), types, strict=True):
        cases.close(g, w, t, case.example)


@pytest.mark.parametrize("op", ops.OPS, ids=lambda o: o.name)
def test_text_parses_back(op: Op[Any]) -> None:
    """What is printed of a call reads as the same call."""
    found = {c.name: c for c in cases_of(op, 1)}
    text = str(module_of(tuple(found.values())))
    assert str(parse(text, ops.TABLE)) == text


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
