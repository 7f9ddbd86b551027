"""Independent neighbours run as one region, with the same results for any number of threads."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

import relaxir as rx
from relaxir.cost import TargetInfo
from relaxir.ir import IRModule
from relaxir.ir.expr import TupleGetItem
from relaxir.ir.verify import verify_module
from relaxir.ops import op
from relaxir.passes import PassContext, Pipeline
from relaxir.pipelines import DEFAULT
from relaxir.tir import PrimFunc, Together
from relaxir.tir.visit import walk
from tests.building import Emit, dataflow

N = rx.dim("n")
RNG = np.random.default_rng(0)
Body = Callable[[Emit, rx.Var], list[rx.Var]]


def weights(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32) / 16


def build(body: Body, shape: tuple[object, ...] = (N, 96)) -> IRModule:
    return dataflow(body, rx.Var("x", rx.TensorType(shape, "float32")))


def planned(module: IRModule, threads: int = 4) -> IRModule:
    return DEFAULT.run(module, PassContext(target=TargetInfo(threads=threads)))


def groups(module: IRModule) -> list[int]:
    """Calls of each group."""
    main = planned(module).functions["main"]
    assert isinstance(main, PrimFunc)
    return [len(s.calls) for s in walk(main.body) if isinstance(s, Together)]


def attention(e: Emit, x: rx.Var) -> list[rx.Var]:
    q, k, v = (e(op.add(e(op.matmul(x, weights(96, 64))), weights(64))) for _ in range(3))
    scores = e(op.softmax(e(op.matmul(q, e(op.permute_dims(k, axes=(1, 0))))), axis=-1))
    return [e(op.matmul(scores, v))]


def branches(e: Emit, x: rx.Var) -> list[rx.Var]:
    """Other widths and epilogues, results of the function among them."""
    a, b, c = (e(op.matmul(x, weights(96, k))) for k in (48, 200, 33))
    return [e(op.gelu(a)), b, e(op.tanh(c)), e(op.softmax(b, axis=-1))]


def chain(e: Emit, x: rx.Var) -> list[rx.Var]:
    for _ in range(3):
        x = e(op.relu(e(op.matmul(x, weights(96, 96)))))
    return [x]


def many(e: Emit, x: rx.Var) -> list[rx.Var]:
    return [e(op.matmul(x, weights(96, 64 + k))) for k in range(11)]


def copies(e: Emit, x: rx.Var) -> list[rx.Var]:
    return [e(op.permute_dims(x, axes=(1, 0))), e(op.exp(x)), e(op.tanh(x))]


def large(e: Emit, x: rx.Var) -> list[rx.Var]:
    y = e(op.concat(*[x] * 4, axis=1))
    return [e(op.matmul(y, weights(384, 4096))) for _ in range(2)]


@pytest.mark.parametrize(
    ("body", "calls"), [(attention, [3]), (branches, [3]), (chain, []), (many, [8, 3]), (copies, [])]
)
def test_which_calls_are_grouped(body: Body, calls: list[int]) -> None:
    assert groups(build(body)) == calls


def test_what_gains_nothing_is_left_alone() -> None:
    assert groups(build(large, (4096, 96))) == [], "long, and wide enough for all threads"
    assert not any(isinstance(s, Together) for f in planned(build(attention), 1).prim_funcs().values()
                   for s in walk(f.body))  # fmt: skip


@pytest.mark.parametrize("body", [attention, branches, many])
def test_memory_of_the_plan(body: Body) -> None:
    """What is alive together lies apart: native code agrees with the interpreter, at every size."""
    module = build(body)
    assert not verify_module(planned(module))
    exe = rx.compile(module, threads=3)
    main = exe["main"]
    for n in (0, 1, 2, 5, 40, 130):
        x = RNG.standard_normal((n, 96)).astype(np.float32)
        want = rx.evaluate(module, "main", x)
        first = None
        for threads in (1, 2, 3, 4):
            exe.set_threads(threads)
            got = main(x)
            first = got if first is None else first
            for a, b, c in zip(got, first, want, strict=True):
                np.testing.assert_array_equal(a, b)
                np.testing.assert_allclose(a, c, rtol=1e-4, atol=1e-5)


def test_stage_runs_in_the_interpreter() -> None:
    module = build(branches)
    x = RNG.standard_normal((3, 96)).astype(np.float32)
    for got, want in zip(rx.evaluate(planned(module), "main", x), rx.evaluate(module, "main", x), strict=True):
        np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


HOST = """
@I.module
class Module:
    @T.prim_func(outputs=1)
    def double(x: T.Buffer(("n",), "f32"), y: T.Buffer(("n",), "f32")):
        n = T.dim("n")
        for i in T.parallel(n):
            y[i] = x[i] + x[i]

    @T.prim_func(scope="host", outputs=2{attrs})
    def main(x: T.Buffer(("n",), "f32"), a: T.Buffer(("n",), "f32"), b: T.Buffer(("n",), "f32")):
        n = T.bind_dim("n", T.extent(x, 0))
        a = T.alloc_output(0, (n,), "f32")
        b = T.alloc_output(1, (n,), "f32")
        with T.together():
            T.call_kernel(Module.double, (x, a), dims=(n,))
            T.call_kernel(Module.double, ({second}, b), dims=(n,))
"""


def doubled(second: str = "x", attrs: str = "") -> str:
    """Text of a program that doubles x, and what is named second, side by side."""
    return HOST.format(second=second, attrs=attrs)


def test_text_and_verifier() -> None:
    module = rx.parse(doubled())
    assert not verify_module(module)
    assert str(rx.parse(str(module))) == str(module)
    assert "with T.together():" in str(module)
    whole = doubled().replace("together()", "together(whole=True)")
    assert "with T.together(whole=True):" in str(rx.parse(whole))
    (error,) = verify_module(rx.parse(doubled("a")))
    assert "`double` and `double` run together, but one writes what the other uses" in error.message
    with pytest.raises(rx.RelaxirError, match="only T"):
        rx.parse(doubled().replace("with T.together():", "with T.together():\n            T.grow(0, n)"))


def layer(e: Emit, x: rx.Var, cell: str, hidden: int = 32) -> list[rx.Var]:
    gates = {"lstm": 4, "gru": 3, "rnn": 1}[cell] * hidden
    assert isinstance(x.type, rx.TensorType)
    _, batch, width = x.type.shape
    start = e(op.zeros(shape=(2, batch, hidden), dtype="float32"))
    more = (start,) if cell == "lstm" else ()
    operands = (x, weights(2, gates, int(width)), weights(2, gates, hidden), weights(2, 2 * gates), start, *more)
    result = e(getattr(op, cell)(*operands, direction="bidirectional"))
    return [e(TupleGetItem(result, k)) for k in range(2)]


@pytest.mark.parametrize("cell", ["lstm", "gru", "rnn"])
def test_directions_of_a_recurrence(cell: str) -> None:
    t, b = rx.dim("t"), rx.dim("b")
    module = build(lambda e, x: layer(e, x, cell), (t, b, 20))
    main_program = planned(module).functions["main"]
    assert isinstance(main_program, PrimFunc)
    found = [s for s in walk(main_program.body) if isinstance(s, Together)]
    assert [c.callee.split("_")[0] for c in found[-1].calls] == ["recurrent"] * 2
    assert [s.whole for s in found] == [False] if cell == "rnn" else [True, False], "a thread makes what it reads"
    exe = rx.compile(module, threads=2)
    main = exe["main"]
    for size in ((0, 1), (1, 1), (30, 1), (60, 3), (9, 6)):
        x = RNG.standard_normal((*size, 20)).astype(np.float32)
        exe.set_threads(1)
        alone = main(x)
        exe.set_threads(2)
        for got, one, want in zip(main(x), alone, rx.evaluate(module, "main", x), strict=True):
            np.testing.assert_array_equal(got, one)
            np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


def test_a_donated_input_is_read_before_it_is_overwritten() -> None:
    """Two products and a sum: the sum's result may lie in x, which the products read."""

    def body(e: Emit, x: rx.Var) -> list[rx.Var]:
        return [*(e(op.matmul(x, weights(96, 96))) for _ in range(3)), e(op.exp(e(op.multiply(x, x))))]

    module = build(body)
    exe = rx.compile(module, threads=2)
    for n in (1, 3, 64, 200):
        x = RNG.standard_normal((n, 96)).astype(np.float32)
        want = rx.evaluate(module, "main", x)
        for got, w in zip(exe["main"].donating("x")(x.copy()), want, strict=True):
            np.testing.assert_allclose(got, w, rtol=1e-4, atol=1e-4)


def test_results_that_may_lie_in_an_input() -> None:
    """The first result is written over the input that the second call reads."""
    assert len(verify_module(rx.parse(doubled(attrs=', reuse=("0>1",)')))) == 1


def test_a_profile_has_every_kernel() -> None:
    module = build(branches)
    exe = rx.compile(module, threads=2, profile=True)
    x = RNG.standard_normal((40, 96)).astype(np.float32)
    assert sum(k.calls for k in rx.profile(exe, [x], repeat=3, peaks=None).kernels) >= 4
    plain = rx.compile(module, threads=2, pipeline=Pipeline(p for p in DEFAULT if p.name != "RunTogether"))
    for got, want in zip(exe["main"](x), plain["main"](x), strict=True):
        np.testing.assert_array_equal(got, want)
