"""Loops of the graph: interpreter, host program and native code agree; text, verifier and memory."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest

from relaxir.api import compile as rx_compile
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Bind, Expr, Loop, Var, const
from relaxir.ir.module import IRModule
from relaxir.ir.types import TensorType, describe
from relaxir.ir.verify import verify_module
from relaxir.ops import TABLE, op
from relaxir.runtime.executable import Executable
from relaxir.runtime.interp.graph import run_graph
from relaxir.support.errors import InferError, RuntimeShapeError
from relaxir.sym import dim
from relaxir.text import parse

N = dim("n")
VECTOR = TensorType((N,), "float32")
COUNT = TensorType((), "int64")
LIMIT = TensorType((), "float32")
FLAG = TensorType((), "bool")


def build(make: Callable[..., Expr], *types: TensorType) -> IRModule:
    """A module whose ``main`` is ``make(builder, parameters...)``."""
    bb = BlockBuilder()
    params = [Var(f"p{i}", t) for i, t in enumerate(types)]
    with bb.function("main", params):
        bb.emit_func_output(make(bb, *params))
    return bb.get()


def doubling(bb: BlockBuilder, v: Var, trips: Var, start: Var, limit: Var) -> Expr:
    """Carry v doubled and a vector that grows by the iteration's number; scan v and the number."""

    def body(i: Var, carried: tuple[Var, ...]) -> tuple[Expr, list[Expr], list[Expr]]:
        twice = bb.emit(op.multiply(carried[0], 2.0))
        number = bb.emit(op.astype(i, dtype="float32"))
        longer = bb.emit(op.concat(carried[1], bb.emit(op.expand_dims(number, axes=(0,)))))
        goes_on = bb.emit(op.less(bb.emit(op.max(twice)), limit))
        return goes_on, [twice, longer], [twice, number]

    return bb.loop(body, (v, v), trips, start)


def swapping(bb: BlockBuilder, a: Var, b: Var) -> Expr:
    """Fibonacci by swapping: every carried value is another's old one."""

    def body(_: Var, c: tuple[Var, ...]) -> tuple[Expr, list[Expr], list[Expr]]:
        return const(True), [c[1], bb.emit(op.add(c[0], c[1])), c[0], c[2]], [c[0]]

    return bb.loop(body, (a, b, a, b), 6)


def nested(bb: BlockBuilder, v: Var, trips: Var) -> Expr:
    """A triangle of sums: the inner loop runs as often as the outer one has."""

    def outer(i: Var, c: tuple[Var, ...]) -> tuple[Expr, list[Expr], list[Expr]]:
        def inner(_: Var, d: tuple[Var, ...]) -> tuple[Expr, list[Expr], list[Expr]]:
            return const(True), [bb.emit(op.concat(d[0], c[0]))], [bb.emit(op.sum(d[0]))]

        found = bb.loop(inner, (c[0],), i)
        longest = bb.item(found, 0)
        total = bb.emit(op.add(bb.emit(op.sum(longest)), bb.emit(op.sum(bb.item(found, 1)))))
        return const(True), [bb.emit(op.add(c[0], total))], [total]

    return bb.loop(outer, (v,), trips)


def counting(bb: BlockBuilder, v: Var) -> Expr:
    """As many iterations as v has elements: the scan's size is known before."""

    def body(i: Var, c: tuple[Var, ...]) -> tuple[Expr, list[Expr], list[Expr]]:
        x = bb.emit(op.take(v, i, axis=0))
        total = bb.emit(op.add(c[0], x))
        return const(True), [total], [total]

    return bb.loop(body, (const(0.0),), N)


def in_branch(bb: BlockBuilder, v: Var, trips: Var, start: Var) -> Expr:
    """A loop in a branch, and a branch in a loop."""

    def body(i: Var, c: tuple[Var, ...]) -> tuple[Expr, list[Expr], list[Expr]]:
        even = bb.emit(op.equal(bb.emit(op.floor_mod(i, 2)), 0))
        grown = bb.if_then_else(even, lambda: bb.emit(op.concat(c[0], v)), lambda: bb.emit(op.multiply(c[0], -1.0)))
        return const(True), [grown], []

    return bb.if_then_else(start, lambda: bb.item(bb.loop(body, (v,), trips), 0), lambda: v)


def growing_rows(bb: BlockBuilder, v: Var, trips: Var) -> Expr:
    """Rows of a scan that have different lengths from the second iteration on."""

    def body(_: Var, c: tuple[Var, ...]) -> tuple[Expr, list[Expr], list[Expr]]:
        longer = bb.emit(op.concat(c[0], v))
        return const(True), [longer], [longer]

    return bb.loop(body, (v,), trips)


def vector(size: int) -> np.ndarray:
    """1, 2, 3 ..."""
    return np.arange(1, size + 1, dtype=np.float32)


CASES = (
    (doubling, (VECTOR, COUNT, FLAG, LIMIT), [
        (vector(n), np.array(t), np.array(s), np.array(limit, np.float32))
        for n in (1, 2, 5)
        for t, s, limit in ((3, True, 1e9), (0, True, 1e9), (-4, True, 1e9), (5, False, 1e9), (2**62, True, 100.0))
    ]),
    (swapping, (VECTOR, VECTOR), [(vector(n), vector(n) * 2) for n in (0, 1, 40)]),
    (nested, (VECTOR, COUNT), [(vector(n), np.array(t)) for n in (1, 3) for t in (0, 1, 4)]),
    (counting, (VECTOR,), [(vector(n),) for n in (0, 1, 9)]),
    (in_branch, (VECTOR, COUNT, FLAG), [(vector(2), np.array(t), np.array(s)) for t in (0, 3) for s in (True, False)]),
)  # fmt: skip


@pytest.mark.parametrize(("make", "types", "inputs"), CASES, ids=[c[0].__name__ for c in CASES])
def test_native_agrees(make: Callable[..., Expr], types: tuple[TensorType, ...], inputs: list[tuple]) -> None:
    module = build(make, *types)
    assert not verify_module(module)
    main = rx_compile(module)["main"]
    for args in inputs:
        want, got = run_graph(module, "main", args), main(*args)
        if not isinstance(want, tuple):
            want, got = (want,), (got,)
        for g, w in zip(got, want, strict=True):
            assert (g.dtype, g.shape) == (w.dtype, w.shape)
            np.testing.assert_allclose(g, w, rtol=1e-5)


@pytest.mark.parametrize(("make", "types", "inputs"), CASES, ids=[c[0].__name__ for c in CASES])
def test_text_round_trip(make: Callable[..., Expr], types: tuple[TensorType, ...], inputs: list[tuple]) -> None:
    text = str(build(make, *types))
    again = parse(text, TABLE)
    assert str(again) == text
    assert not verify_module(again)


def test_types() -> None:
    module = build(doubling, VECTOR, COUNT, FLAG, LIMIT)
    func = module.graph_functions()["main"]
    (bind,) = [b for b in func.body.bindings if isinstance(b, Bind) and isinstance(b.value, Loop)]
    loop = bind.value
    assert isinstance(loop, Loop)
    assert [d.name for d in loop.dims] == ["c"]  # the vector that grows; the doubled one keeps its size
    assert describe(bind.var.type) == "(f32[n], f32[c_end], f32[trips, n], f32[trips])"


def test_rank_may_not_change() -> None:
    def make(bb: BlockBuilder, v: Var) -> Expr:
        return bb.loop(lambda i, c: (const(True), [bb.emit(op.expand_dims(c[0], axes=(0,)))], []), (v,), 3)

    with pytest.raises(InferError, match=r"carried value 0 is f32\[n\], but an iteration gives f32\[1, n\]"):
        build(make, VECTOR)


def test_rows_of_a_scan_have_one_shape() -> None:
    module = build(growing_rows, VECTOR, COUNT)
    main = rx_compile(module)["main"]
    assert main(vector(2), np.array(1))[1].shape == (1, 4)
    for run in (main, lambda *a: run_graph(module, "main", a)):
        with pytest.raises(RuntimeShapeError, match="scan output"):
            run(vector(2), np.array(2))


def test_nothing_is_left_behind() -> None:
    executable = rx_compile(build(doubling, VECTOR, COUNT, FLAG, LIMIT))
    main = executable["main"]
    args = (vector(1000), np.array(50), np.array(True), np.array(np.inf, np.float32))
    bad = (vector(3), np.array(2))
    blocks = []
    for _ in range(3):
        main(*args)
        blocks.append(statistics(executable))
    assert blocks[0][1] == blocks[2][1] == 0  # blocks in the caller's hands
    assert blocks[1] == blocks[2]  # a steady call takes nothing new
    failing = rx_compile(build(growing_rows, VECTOR, COUNT))
    for _ in range(2):
        with pytest.raises(RuntimeShapeError):
            failing["main"](*bad)
        assert statistics(failing)[1] == 0


def statistics(executable: Executable) -> list[int]:
    """Bytes pooled, blocks in use, workspaces, bytes of frame stacks, threads."""
    out = np.zeros(5, np.int64)
    executable.context.library.cdll.rx_stats(executable.context.address, out.ctypes.data)
    return out.tolist()
