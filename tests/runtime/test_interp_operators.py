"""The interpreter on the loops of every operator gives what the operator's reference gives."""

from __future__ import annotations

import numpy as np
import pytest

from relaxir.ir import TensorType, TupleType
from relaxir.runtime.interp import run_prim_func
from relaxir.support.dtypes import info
from relaxir.sym import evaluate
from tests.ops import cases
from tests.ops.test_contract import EXAMPLES, setup


@pytest.mark.parametrize(("op", "example"), EXAMPLES)
def test_operator(op, example):
    scope, types = setup(op, example)
    result, ctx = cases.infer(op, types, example.attrs, scope)
    if ctx.defined or not isinstance(result, TensorType | TupleType):
        pytest.skip("sizes depend on data")
    outs = cases.outputs(result)
    tensors = tuple(t for t in types if isinstance(t, TensorType))
    try:
        func = op.lower(types, example.attrs, outs)
    except NotImplementedError:
        pytest.skip("decomposed, no loops of its own")
    for env in [env for env in cases.assignments(example, scope) if cases.holds(ctx, env)][:3]:
        arrays = cases.operands(types, env, example)
        want = op.evaluate(arrays, tensors, cases.fixed(example.attrs, env), result)
        got = [np.empty(tuple(evaluate(d, env) for d in t.shape), info(t.dtype).numpy) for t in outs]
        run_prim_func(func, (*map(np.ascontiguousarray, arrays), *got), env)
        for g, w, t in zip(got, want if isinstance(want, tuple) else (want,), outs, strict=True):
            cases.close(g, w, t, example)
