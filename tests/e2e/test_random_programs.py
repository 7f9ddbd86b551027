"""Random programs compiled, with and without fusion and schedules: the same as interpreted, and no access outside arrays."""

from __future__ import annotations

from hypothesis import given, settings

from relaxir.ir import IRModule
from relaxir.tir import PrimFunc
from tests.e2e.agreement import Setup, disagreements
from tests.e2e.random_graphs import Program, programs
from tests.e2e.random_kernels import caller
from tests.strategies import block_programs, graph_modules, loop_programs

FEW = settings(max_examples=6)
"""Each example is compiled twice; the profile ``fuzz`` is for hundreds."""
SIZES = (0, 1, 3, 7, 17)
WHOLE = Setup(sizes=SIZES, whole=True)


@FEW
@given(programs())
def test_graph_of_fusible_operators(program: Program) -> None:
    assert not disagreements(program, Setup(sizes=SIZES))


@FEW
@given(graph_modules())
def test_graph_with_control_flow(module: IRModule) -> None:
    assert not disagreements(Program(module), Setup(sizes=SIZES))


@FEW
@given(block_programs(exact=True))
def test_tensor_program_in_block_form(func: PrimFunc) -> None:
    assert not disagreements(caller(func), WHOLE)


@FEW
@given(loop_programs(exact=True))
def test_tensor_program_in_loop_form(func: PrimFunc) -> None:
    assert not disagreements(caller(func), WHOLE)
