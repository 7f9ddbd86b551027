"""What every operator must satisfy, over the operator table and the operators' own examples.

These tests look at one operator's methods; test_builds runs the same examples as functions of modules.
"""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from relaxir import ops
from relaxir.ir import BadExample, Example, Op, TensorType, TupleType, Var
from relaxir.ir.types import describe, free_dims_of_type, type_dims
from relaxir.runtime.interp import run_prim_func
from relaxir.support.errors import RelaxirError
from relaxir.sym import evaluate
from tests.ops import cases
from tests.ops.builds import complete, fixed_types
from tests.ops.scalar import run_blocks

EXAMPLES = [pytest.param(o, complete(o, e), id=f"{o.name}-{i}") for o in ops.OPS for i, e in enumerate(o.examples)]
BAD = [pytest.param(o, complete(o, e), id=f"{o.name}-{i}") for o in ops.OPS for i, e in enumerate(o.bad_examples)]


def setup(op: Op[Any], example: Example | BadExample) -> tuple[dict[str, Any], tuple[Any, ...]]:
    low, pinned = (example.min_size, example.sizes) if isinstance(example, Example) else (0, {})
    scope = cases.scope_of(example.args, example.attrs, low, pinned)
    return scope, tuple(cases.read_type(a, scope) for a in example.args)


SLOW_LIMIT = 4
"""Assignments of sizes at which the loops also run one scalar at a time, beside the interpreter."""


@pytest.mark.parametrize(("op", "example"), EXAMPLES)
def test_inferred_type(op: Op[Any], example: Example) -> None:
    scope, types = setup(op, example)
    result, _ = cases.infer(op, types, example.attrs, scope)
    want = (example.out,) if isinstance(example.out, str) else example.out
    got = cases.outputs(result) if isinstance(result, TensorType | TupleType) else (result,)
    names = {d.name: d for t in got for x in type_dims(t) for d in cases.free_dims(x)} | scope
    assert tuple(map(describe, got)) == tuple(describe(cases.read_type(w, names)) for w in want)


@pytest.mark.parametrize(("op", "example"), EXAMPLES)
def test_inference_erases_nothing(op: Op[Any], example: Example) -> None:
    """Every symbol of the result is known or declared fresh, and knowing the sizes gives the same type with sizes."""
    scope, types = setup(op, example)
    result, ctx = cases.infer(op, types, example.attrs, scope)
    assert set(free_dims_of_type(result)) <= set(scope.values()) | set(ctx.defined)
    if ctx.defined:
        return
    for env in cases.assignments(example, scope):
        if cases.holds(ctx, env):
            exact, _ = cases.infer(op, fixed_types(types, env), cases.fixed(example.attrs, env), {})
            assert exact == fixed_types((result,), env)[0]


@pytest.mark.parametrize(("op", "example"), EXAMPLES)
def test_loops_equal_reference(op: Op[Any], example: Example) -> None:
    """Over many sizes: the reference has the inferred shape, and the lowered loops compute what it says."""
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
    ran = 0
    for env in cases.assignments(example, scope):
        if not cases.holds(ctx, env):
            continue
        arrays = cases.operands(types, env, example)
        want = op.evaluate(arrays, tensors, cases.fixed(example.attrs, env), result)
        wants = want if isinstance(want, tuple) else (want,)
        for w, t in zip(wants, outs, strict=True):
            assert w.shape == tuple(evaluate(d, env) for d in t.shape), env
        fast = tuple(np.full_like(w, 1) for w in wants)
        run_prim_func(func, [*arrays, *fast], {d.name: env[d.name] for d in func.dims})
        slow = run_blocks(func, arrays, env) if ran < SLOW_LIMIT else fast
        for g, h, w, t in zip(fast, slow, wants, outs, strict=True):
            cases.close(g, w, t, example)
            cases.close(h, w, t, example)
        ran += 1
    assert ran, "no assignment of sizes satisfies the checks"


@pytest.mark.parametrize(("op", "example"), BAD)
def test_bad_example(op: Op[Any], example: BadExample) -> None:
    scope, types = setup(op, example)
    with pytest.raises(RelaxirError) as caught:
        cases.infer(op, types, example.attrs, scope)
    assert caught.value.code == example.code
    assert example.phrase in caught.value.message
    assert caught.value.message.startswith(f"{op.name}: ")


@pytest.mark.parametrize("op", ops.OPS, ids=lambda o: o.name)
def test_table_entry(op: Op[Any]) -> None:
    """Documented, with examples; reachable by name through the namespace; arity is checked."""
    doc = type(op).__doc__ or ""
    assert "TVM:" in doc
    assert "ONNX:" in doc
    assert op.examples
    assert ops.TABLE[op.name] is op
    assert getattr(ops.op, op.name).__doc__ == op.__doc__
    example = complete(op, op.examples[0])
    _, types = setup(op, example)
    operands = tuple(Var(f"v{i}", t) for i, t in enumerate(types))
    pending = getattr(ops.op, op.name)(
        *operands, **{f.name: getattr(example.attrs, f.name) for f in fields(example.attrs)}
    )
    assert pending.op is op
    assert pending.args == operands
    assert pending.attrs == example.attrs


def test_names_are_unique() -> None:
    assert len(ops.TABLE) == len(ops.OPS)
