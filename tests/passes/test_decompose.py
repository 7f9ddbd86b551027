"""Composite operators in simpler ones: what comes out is a module that verifies, of empty tensors too."""

from __future__ import annotations

import pytest

import relaxir as rx
from relaxir.ir import PendingCall
from relaxir.ir.verify import check_module
from relaxir.passes import Decompose, InsertChecks, LegalizeOps

op = rx.op


def module(call: PendingCall, *params: rx.Var) -> rx.IRModule:
    """A function whose result leaves a dataflow block."""
    bb = rx.BlockBuilder()
    with bb.function("main", params):
        with bb.dataflow():
            result = bb.emit_output(call)
        bb.emit_func_output(result)
    return bb.get()


X = rx.Var("x", rx.TensorType((rx.dim("n"),), "float32"))
NONE = rx.Var("x", rx.TensorType((3, 0), "float32"))


@pytest.mark.parametrize("call", [op.dynamic_quantize_linear(X), op.unique(X)], ids=lambda c: c.op.name)
def test_parts_of_a_result_are_seen_outside_their_block(call: PendingCall) -> None:
    out = Decompose()(module(call, X))
    check_module(out)
    assert str(rx.parse(str(out))) == str(out)


EMPTY = (op.sort(NONE, axis=1), op.argsort(NONE, axis=1), op.topk(NONE, k=0, axis=1))


@pytest.mark.parametrize("call", EMPTY, ids=lambda c: c.op.name)
def test_programs_of_empty_tensors_verify(call: PendingCall) -> None:
    """They name elements that are never looked at."""
    out = LegalizeOps()(InsertChecks()(Decompose()(module(call, NONE))))
    check_module(out)
    assert str(rx.parse(str(out))) == str(out)
