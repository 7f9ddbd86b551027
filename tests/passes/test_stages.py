"""Every stage of the pipeline prints, parses back to an equal module, verifies and evaluates alike."""

from __future__ import annotations

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir.printer import module_arrays
from relaxir.ir.structural import structural_equal
from relaxir.ir.verify import verify_module
from relaxir.passes import PassContext
from relaxir.pipelines import DEFAULT
from tests.e2e import models

CASES = {
    "mlp": (models.mlp, lambda rng: (rng.standard_normal((3, 24)).astype(np.float32),)),
    "softmax": (models.softmax_rows, lambda rng: (rng.standard_normal((3, 7)).astype(np.float32),)),
    "branches": (models.branches, lambda rng: (np.array(True), rng.standard_normal(4).astype(np.float32))),
    "positive": (models.positive, lambda rng: (rng.standard_normal(9).astype(np.float32),)),
    "factorial": (models.factorial, lambda rng: (np.array(3), np.ones(2, np.float32))),
}


@pytest.mark.parametrize("name", CASES)
def test_every_stage(name: str) -> None:
    make, inputs = CASES[name]
    module, args = make(), inputs(np.random.default_rng(0))
    want = rx.evaluate(module, "main", *args)
    want = want if isinstance(want, tuple) else (want,)
    for step in DEFAULT:
        module = step.run(module, PassContext())
        assert not verify_module(module), step.name
        text = str(module)
        again = rx.parse(text, module_arrays(module.functions, module.attrs))
        assert str(again) == text, step.name
        assert structural_equal(again, module), step.name
        got = rx.evaluate(again, "main", *args)
        for g, w in zip(got if isinstance(got, tuple) else (got,), want, strict=True):
            np.testing.assert_allclose(g, w, rtol=1e-5, atol=1e-5, err_msg=step.name)
