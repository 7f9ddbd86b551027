"""What every pass promises: documented, verified output, no mutation, same results, and no change when run again."""

from __future__ import annotations

import inspect
import sys
from dataclasses import fields
from functools import cache

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir import IRModule
from relaxir.ir.verify import verify_module
from relaxir.passes import PASSES, Level, Pass, PassContext
from relaxir.pipelines import DEFAULT, REFERENCE
from tests.e2e import models

NAMES = [p.__name__ for p in PASSES]
BASE = {f.name for f in fields(Pass)}


@cache
def stages(name: str) -> tuple[IRModule, ...]:
    """A module and what each pass of the compiler makes of it."""
    found = [getattr(models, name)()]
    for step in DEFAULT:
        found.append(step.run(found[-1], PassContext()))
    return tuple(found)


def inputs_of(cls: type[Pass], name: str) -> list[IRModule]:
    """The modules that the compiler gives to a pass."""
    return [m for m, step in zip(stages(name), DEFAULT, strict=False) if type(step) is cls]


@pytest.mark.parametrize("cls", PASSES, ids=NAMES)
def test_documentation(cls: type[Pass]) -> None:
    page = sys.modules[cls.__module__].__doc__ or ""
    before, _, after = page.partition("\nAfter:\n")
    assert "\nBefore:\n" in before, "the module shows what goes in"
    assert after.strip(), "the module shows what comes out"
    assert before.split("\n\n")[0].rstrip().endswith((".", ":"))
    assert inspect.getdoc(cls)
    for option in fields(cls):
        if option.name not in BASE:
            assert f"``{option.name}``" in (inspect.getdoc(cls) or ""), f"option {option.name} is not documented"


def test_every_pass_is_listed_once_and_used() -> None:
    assert len({p.name for p in PASSES}) == len(PASSES)
    assert {type(step) for step in (*DEFAULT, *REFERENCE)} <= set(PASSES)
    assert {p for p in PASSES if p not in {type(step) for step in DEFAULT}} == set()
    assert all(isinstance(p.requires, Level) for p in PASSES)


@pytest.mark.parametrize("model", ["mlp", "softmax_rows", "branches", "positive", "factorial"])
@pytest.mark.parametrize("cls", PASSES, ids=NAMES)
def test_output_and_input(cls: type[Pass], model: str) -> None:
    for module in inputs_of(cls, model):
        text = str(module)
        out = cls()(module)
        assert not verify_module(out)
        assert str(module) == text, "the input was changed"
        assert str(cls()(module)) == str(out), "two runs differ"


# The others change the level of the module, or may find more on a second look by design.
IDEMPOTENT = ("Canonicalize", "FoldConstant", "Decompose", "CSE", "DeadCode", "SimplifyDims", "DispatchLibrary",
              "LegalizeOps", "ClassifyPatterns", "ChooseConfig", "FuseTIR")  # fmt: skip


@pytest.mark.parametrize("model", ["mlp", "softmax_rows", "branches"])
@pytest.mark.parametrize("cls", [p for p in PASSES if p.name in IDEMPOTENT], ids=lambda p: p.name)
def test_idempotent(cls: type[Pass], model: str) -> None:
    for module in inputs_of(cls, model):
        once = cls()(module)
        assert str(cls()(once)) == str(once)


def test_reference_pipeline_agrees() -> None:
    module = models.mlp()
    x = np.random.default_rng(0).standard_normal((5, 24)).astype(np.float32)
    want = rx.evaluate(module, "main", x)
    np.testing.assert_allclose(rx.compile(module, pipeline=REFERENCE)["main"](x), want, rtol=1e-5, atol=1e-5)
