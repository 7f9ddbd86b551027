"""Integer inputs that index something are known, with the extent of what they index."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir import BlockBuilder, Op, TensorType, Var
from relaxir.ir.expr import Constant, const
from relaxir.ir.positions import extents_of_positions
from relaxir.ops import OPS
from relaxir.runtime.signature import from_json, signature_of, to_json
from relaxir.sym import dim, to_text
from tests.building import dataflow
from tests.ops.builds import complete
from tests.ops.cases import fixed, operands, read_type, scope_of

INDEXING = [op for op in OPS if type(op).positions is not Op.positions and op.name != "equal"]
N, M = dim("n"), dim("m")
IDS = TensorType((N,), "int64")


def below(module: rx.IRModule) -> dict[str, str]:
    """The parameters that hold positions, with their extents as text."""
    found = extents_of_positions(module.graph_functions()["main"])
    return {p.name: to_text(d) for p, d in found.items()}


def table(rows: int, columns: int = 3) -> Constant:
    """A table to look up."""
    return const(np.arange(rows * columns, dtype=np.float32).reshape(rows, columns))


@pytest.mark.parametrize("op", INDEXING, ids=str)
def test_largest_position_is_one(op: Op[Any]) -> None:
    example = complete(op, op.examples[0])
    scope = scope_of(example.args, example.attrs)
    types = tuple(read_type(a, scope) for a in example.args)
    sizes = {name: example.sizes.get(name, 2) for name in scope}
    variables = tuple(Var(f"x{n}", t) for n, t in enumerate(types))
    found = op.positions(variables, fixed(example.attrs, sizes))
    assert found
    arrays = list(operands(types, sizes, example))
    for place, extent in found.items():
        last = rx.sym.evaluate(extent, sizes) - 1
        arrays[place] = np.full_like(arrays[place], last)
    with np.errstate(all="ignore"):
        op.reference(tuple(arrays), fixed(example.attrs, sizes))  # no error


@pytest.mark.parametrize("op", [op for op in OPS if op.moves], ids=str)
def test_moving_operators_make_no_numbers(op: Op[Any]) -> None:
    for example in (complete(op, e) for e in op.examples):
        scope = scope_of(example.args, example.attrs, 2)
        types = tuple(read_type(a, scope) for a in example.args)
        sizes = {name: example.sizes.get(name, max(2, scope[name].min)) for name in scope}
        if not all(isinstance(t, TensorType) for t in types) or "bfloat16" in str(types) or op.name == "astype":
            continue
        arrays = operands(types, sizes, example)
        result = op.reference(arrays, fixed(example.attrs, sizes))
        parts = result if isinstance(result, tuple) else (result,)
        for part in parts:
            given = np.concatenate([a.ravel() for a in arrays])
            assert (np.isin(part, given) | np.isnan(part)).all()


def test_through_moves_and_conditions() -> None:
    def lookup(emit: Any, ids: Var) -> Var:
        wrapped = emit(rx.op.where(emit(rx.op.less(ids, 0)), emit(rx.op.add(ids, 9)), ids))
        return emit(rx.op.take(table(9), emit(rx.op.astype(emit(rx.op.reshape(wrapped, (1, N))), "int32"))))

    assert below(dataflow(lookup, Var("ids", IDS))) == {"ids": "9"}


def test_least_of_several_and_symbolic() -> None:
    def lookup(emit: Any, x: Var, ids: Var) -> list[Var]:
        return [emit(rx.op.take(table(9), ids)), emit(rx.op.take(x, ids))]

    x = Var("x", TensorType((M, 2), "float32"))
    assert below(dataflow(lookup, x, Var("ids", IDS))) == {"ids": "min(m, 9)"}


def test_pieces_of_a_split() -> None:
    def lookup(emit: Any, ids: Var) -> Var:
        first = emit(rx.op.split(ids, 2))
        return emit(rx.op.take(table(9), rx.ir.expr.TupleGetItem(first, 1)))

    assert below(dataflow(lookup, Var("ids", TensorType((4,), "int64")))) == {"ids": "9"}


def test_one_hot_by_comparison_but_not_masks() -> None:
    def compare(emit: Any, ids: Var, mask: Var) -> list[Var]:
        choices = const(np.arange(7, dtype=np.int64).reshape(7, 1))
        return [emit(rx.op.equal(ids, choices)), emit(rx.op.equal(mask, 0))]

    assert below(dataflow(compare, Var("ids", IDS), Var("mask", IDS))) == {"ids": "7"}


def test_sums_and_sizes_inside_say_nothing() -> None:
    def lookup(emit: Any, ids: Var, flags: Var, other: Var) -> list[Var]:
        found = emit(rx.op.nonzero(flags))
        return [emit(rx.op.take(table(9), emit(rx.op.add(ids, 2)))), emit(rx.op.take(found, other, axis=1))]

    params = (Var("ids", IDS), Var("flags", TensorType((N,), "bool")), Var("other", IDS))
    assert below(dataflow(lookup, *params)) == {}


def test_branches_and_loops() -> None:
    bb = BlockBuilder()
    flag, ids, start = Var("flag", TensorType((), "bool")), Var("ids", IDS), Var("start", IDS)
    trips = Var("trips", TensorType((), "int64"))
    with bb.function("main", (flag, ids, start, trips)):
        inside = bb.if_then_else(flag, lambda: ids, lambda: bb.emit(rx.op.flip(ids, 0)))
        rows = bb.emit(rx.op.take(table(5), inside))

        def step(i: Var, carried: tuple[Var, ...]) -> tuple[Any, list[Var], list[Any]]:
            return flag, [bb.emit(rx.op.flip(carried[0], 0))], [bb.emit(rx.op.take(table(4), carried[0]))]

        looped = bb.loop(step, [start], trips=trips)
        bb.emit_func_output((rows, bb.item(looped, 1)))
    assert below(bb.get()) == {"ids": "5", "start": "4"}


def test_kept_with_a_library(tmp_path: Any) -> None:
    module = dataflow(lambda emit, ids: emit(rx.op.take(table(9), ids)), Var("ids", IDS))
    signature = signature_of("main", module.graph_functions()["main"])
    assert signature.inputs[0].below == 9
    assert from_json(to_json([signature], {}))[0] == (signature,)
    rx.compile(module).export(tmp_path / "lookup.so")
    assert rx.load(tmp_path / "lookup.so").signatures["main"].inputs[0].below == 9
