"""Operations and bytes of tensor programs are what the maths asks for."""

from __future__ import annotations

from relaxir.cost import RuleChooser, TargetInfo, bytes_moved, flops, work_of
from relaxir.ops import TABLE
from relaxir.schedule import schedule
from relaxir.sym import dim, evaluate, to_text
from relaxir.text import parse
from relaxir.tir import Combine, Intrinsic, PrimFunc, ProgramBuilder, call, cast

N, M = dim("n"), dim("m")


def matmul() -> PrimFunc:
    f = ProgramBuilder("matmul")
    x, w = f.input("x", (N, 768), "float32"), f.input("w", (768, M), "float32")
    y = f.output("y", (N, M), "float32")
    f.reduce(y, (768,), Combine.SUM, lambda i, j, k: x[i, k] * w[k, j])
    return f.build()


def test_a_product_takes_two_operations_a_step() -> None:
    assert to_text(flops(matmul())) == to_text(2 * 768 * N * M)
    world = {"n": 3, "m": 5}
    assert evaluate(bytes_moved(matmul()), world) == 4 * (3 * 768 + 768 * 5 + 3 * 5)


def test_the_schedule_records_the_cost_of_the_maths() -> None:
    done = schedule(matmul(), TargetInfo(), RuleChooser().choose(matmul(), TargetInfo()))
    assert work_of(done) == work_of(matmul())
    assert done.attrs["flops"] == to_text(flops(matmul()))


def test_what_does_not_depend_on_an_axis_counts_once_for_it() -> None:
    f = ProgramBuilder("norm")
    x, s, y = f.input("x", (N, M), "float32"), f.input("s", (N,), "float32"), f.output("y", (N, M), "float32")
    f.compute(y, lambda i, j: x[i, j] * call(Intrinsic.RSQRT, s[i] + 1.0))
    assert evaluate(flops(f.build()), {"n": 7, "m": 100}) == 7 * 100 + 7 * 11


def test_equal_parts_of_a_statement_count_once() -> None:
    f = ProgramBuilder("square")
    x, y = f.input("x", (N,), "float32"), f.output("y", (N,), "float32")
    f.compute(y, lambda i: (x[i] - 1.0) * (x[i] - 1.0))
    assert evaluate(flops(f.build()), {"n": 10}) == 20


def test_conversions_and_index_arithmetic_are_free() -> None:
    f = ProgramBuilder("copy")
    x, y = f.input("x", (N, 4), "int8"), f.output("y", (4 * N,), "float32")
    f.compute(y, lambda i: cast(x[i // 4, i % 4], "float32"))
    assert flops(f.build()) == 0


GATHER = """
@I.module
class Module:
    @T.prim_func
    def take(x: T.Buffer((30000, 64), "f32"), at: T.Buffer(("n",), "i64"), y: T.Buffer(("n", 64), "f32")):
        n = T.dim("n")
        with T.block("y", i=n, j=64):
            y[i, j] = x[at[i], j]
"""


def test_a_table_counts_as_far_as_it_can_be_read() -> None:
    func = parse(GATHER, TABLE, None, "<test>").prim_funcs()["take"]
    size = bytes_moved(func)
    assert evaluate(size, {"n": 10}) == 10 * 8 + 2 * 10 * 64 * 4
    assert evaluate(size, {"n": 10**6}) == 10**6 * 8 + 30000 * 64 * 4 + 10**6 * 64 * 4
