"""Small modules used by the end-to-end tests: each a builder, and inputs at given sizes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

import relaxir as rx
from relaxir.ir import IRModule
from relaxir.sym import min_


def mlp(rows: int = 24, hidden: int = 40) -> IRModule:
    """``gelu(x @ w + b)`` with constant weights and ``n`` rows."""
    rng = np.random.default_rng(0)
    n = rx.dim("n", min=1, max=4096)
    x = rx.Var("x", rx.TensorType((n, rows), "float32"))
    w = rx.const(rng.standard_normal((rows, hidden)).astype(np.float32))
    b = rx.const(rng.standard_normal(hidden).astype(np.float32))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            h = bb.emit(rx.op.matmul(x, w))
            h = bb.emit(rx.op.add(h, b))
            y = bb.emit_output(rx.op.gelu(h))
        bb.emit_func_output(y)
    return bb.get()


def softmax_rows() -> IRModule:
    """Softmax over the last axis of ``(n, k)``, scaled, with a second result."""
    n, k = rx.dim("n"), rx.dim("k")
    x = rx.Var("x", rx.TensorType((n, k), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        with bb.dataflow():
            s = bb.emit(rx.op.softmax(x, axis=-1))
            y = bb.emit_output(rx.op.multiply(s, 2.0))
            total = bb.emit_output(rx.op.sum(s, axes=(1,)))
        bb.emit_func_output((y, total))
    return bb.get()


def behind_a_branch(work: Callable[[rx.BlockBuilder, rx.Var], Any]) -> IRModule:
    """An If whose branches give different lengths, and what is made of its result, whose length is a fresh symbol."""
    x = rx.Var("x", rx.TensorType((rx.dim("n"),), "float32"))
    flag = rx.Var("flag", rx.TensorType((), "bool"))
    bb = rx.BlockBuilder()
    with bb.function("main", [flag, x]):
        y = bb.if_then_else(flag, lambda: rx.op.concat([x, x], axis=0), lambda: rx.op.exp(x))
        bb.emit_func_output(work(bb, y))
    return bb.get()


def branches() -> IRModule:
    """An If whose branches give different lengths: the result's length is a fresh symbol."""
    return behind_a_branch(lambda _, y: rx.op.add(y, 1.0))


def branch_then_work() -> IRModule:
    """Temporaries sized by what a branch gives, by itself and by a minimum of it: known only behind the branch."""

    def work(bb: rx.BlockBuilder, y: rx.Var) -> Any:
        sums = bb.emit(rx.op.cumsum(y, axis=0))
        few = bb.emit(rx.op.strided_slice(sums, axes=(0,), begin=(0,), size=(min_(y.type.shape[0], 3),)))
        return rx.op.cumsum(bb.emit(rx.op.cumsum(few, axis=0)), axis=0)

    return behind_a_branch(work)


def positive() -> IRModule:
    """Positions of the elements above 0: a data-dependent size."""
    n = rx.dim("n")
    x = rx.Var("x", rx.TensorType((n,), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        mask = bb.emit(rx.op.greater(x, 0.0))
        where = bb.emit(rx.op.nonzero(mask))
        bb.emit_func_output(rx.op.reshape(where, shape=where.type.shape[1:]))
    return bb.get()


def factorial() -> IRModule:
    """Recursion: ``f(i, x) = x if i < 1 else f(i - 1, x * i)`` elementwise."""
    n = rx.dim("n")
    bb = rx.BlockBuilder()
    result = rx.TensorType((n,), "float32")
    i, x = rx.Var("i", rx.TensorType((), "int64")), rx.Var("x", result)
    with bb.function("fact", [i, x], ret=result):
        done = bb.emit(rx.op.less(i, 1))

        def step() -> rx.Var:
            times = bb.emit(rx.op.multiply(x, rx.op.astype(i, dtype="float32")))
            return bb.call("fact", rx.op.subtract(i, 1), times)

        bb.emit_func_output(bb.if_then_else(done, lambda: x, step))
    m = rx.dim("m")
    j, y = rx.Var("i", rx.TensorType((), "int64")), rx.Var("x", rx.TensorType((m,), "float32"))
    with bb.function("main", [j, y]):
        bb.emit_func_output(bb.call("fact", j, y))
    return bb.get()
