"""Donated inputs: results in their memory where each element only needs the one it replaces; never any other input."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings

import relaxir as rx
from relaxir.backends.llvm.emit import emit_module
from relaxir.backends.llvm.emit_sites import SiteTable
from relaxir.backends.llvm.symbols import kernel_symbol
from relaxir.backends.llvm.target import Target
from relaxir.ir.expr import Array
from relaxir.passes import Schedule
from relaxir.passes.reuse_inputs import in_place
from relaxir.pipelines import GRAPH, KERNELS, LOWER
from relaxir.runtime.executable import CompiledFunction
from relaxir.tir import ProgramBuilder
from tests.e2e.agreement import assignments, results
from tests.e2e.random_graphs import Program, programs

N, M = rx.dim("n"), rx.dim("m")
T = rx.TensorType((N, 4), "float32")
Build = Callable[[rx.Var, rx.Var], object]
op = rx.op


def module(build: Build, first: rx.TensorType = T, second: rx.TensorType = T) -> rx.IRModule:
    """A function of two tensors."""
    x, y = rx.Var("x", first), rx.Var("y", second)
    bb = rx.BlockBuilder()
    with bb.function("main", [x, y]):
        bb.emit_func_output(build(x, y))  # type: ignore[arg-type]  # calls, or tuples of them
    return bb.get()


def compiled(build: Build, first: rx.TensorType = T, second: rx.TensorType = T) -> CompiledFunction:
    """Such a function as native code."""
    return rx.compile(module(build, first, second))["main"]


def arrays(n: int = 257) -> tuple[Array, Array]:
    """Operands."""
    rng = np.random.default_rng(n)
    return rng.standard_normal((n, 4), np.float32), rng.standard_normal((n, 4), np.float32)


def pairs(module: rx.IRModule) -> tuple[str, ...]:
    """What the pass states."""
    done = rx.Pipeline((*GRAPH, *LOWER, *KERNELS))(module)
    found = done.graph_functions()["main"].attrs.get("reuse", ())
    assert isinstance(found, tuple)
    return found


FITS: tuple[tuple[str, Build, tuple[str, ...]], ...] = (
    ("update", lambda x, y: op.add(op.multiply(x, 0.5), y), ("0>0", "1>0")),
    ("one of two", lambda x, y: op.add(x, op.flip(y, axes=(0,))), ("0>0",)),
    ("broadcast", lambda x, y: op.add(x, op.sum(y, axes=(0,), keepdims=True)), ("0>0", "1>0")),
    ("view", lambda x, y: op.reshape(op.add(op.reshape(x, (N * 4,)), 1.0), (N, 4)), ("0>0", "1>0")),
    ("dead before", lambda x, y: op.tanh(op.multiply(y, op.sum(x, axes=(0, 1), keepdims=True))), ("0>0", "1>0")),
    ("two results", lambda x, y: (op.exp(x), op.matmul(y, rx.const(np.eye(4, dtype="f")))), ("0>0", "0>1")),
    ("transposed", lambda x, y: op.exp(op.flip(x, axes=(1,))), ("1>0",)),
    ("reduction", lambda x, y: op.softmax(x, axis=1), ("1>0",)),
    ("epilogue", lambda x, y: op.add(op.matmul(y, rx.const(np.eye(4, dtype="f"))), x), ()),
    ("returned too", lambda x, y: (op.exp(x), x, y), ()),
    (
        "read later",
        lambda x, y: (op.softmax(op.add(x, y), axis=0), op.softmax(op.flip(x, axes=(0,)), axis=1), y),
        ("0>1",),
    ),
    ("another dtype", lambda x, y: op.astype(op.add(x, y), "float64"), ()),
    ("another size", lambda x, y: op.concat([x, y], axis=0), ()),
)


@pytest.mark.parametrize(("build", "expected"), [c[1:] for c in FITS], ids=[c[0] for c in FITS])
def test_which_results_may_lie_in_an_input(build: Build, expected: tuple[str, ...]) -> None:
    built = module(build)
    assert pairs(built) == expected
    main, operands = rx.compile(built)["main"], arrays()
    wants = [np.array(r) for r in results(main(*operands))]
    for donated in (("x",), ("y",), ("x", "y")):
        given = [a.copy() for a in operands]
        got = results(main.donating(*donated)(*given))
        for g, w, e in zip(got, wants, results(rx.evaluate(built, "main", *operands)), strict=True):
            np.testing.assert_array_equal(g, w)
            np.testing.assert_allclose(g, e, rtol=1e-5, atol=1e-5)
        kept = [i for i, name in enumerate(("x", "y")) if name not in donated]
        for i in kept:
            np.testing.assert_array_equal(given[i], operands[i])
            assert not any(np.may_share_memory(given[i], g) for g in got)


@pytest.mark.parametrize("n", [0, 1, 5, 100_003])
def test_the_result_is_the_donated_array(n: int) -> None:
    main = compiled(lambda x, y: op.add(op.multiply(x, 0.5), y))
    x, y = arrays(n)
    want, kept = main(x, y), y.copy()
    result = main.donating("x")(x, y)
    assert isinstance(result, np.ndarray)
    assert result.ctypes.data == x.ctypes.data
    np.testing.assert_array_equal(x, want)
    np.testing.assert_array_equal(y, kept)
    assert main(x, y).ctypes.data != x.ctypes.data  # nothing is donated for good


def test_a_cache_is_updated_in_place() -> None:
    cache = rx.TensorType((N, 4), "float32")
    at, new = rx.TensorType((M, 4), "int64"), rx.TensorType((M, 4), "float32")
    c, i, u = rx.Var("cache", cache), rx.Var("at", at), rx.Var("new", new)
    bb = rx.BlockBuilder()
    with bb.function("main", [c, i, u]):
        bb.emit_func_output(op.scatter_elements(c, i, u, axis=0))
    main = rx.compile(bb.get())["main"]
    memory, places, rows = arrays(9)[0], np.full((1, 4), 3), np.ones((1, 4), np.float32)
    want = memory.copy()
    want[3] = 1
    result = main.donating("cache")(memory, places, rows)
    assert result is memory
    np.testing.assert_array_equal(memory, want)


def test_memory_that_is_needed_otherwise_is_not_written() -> None:
    main = compiled(lambda x, y: op.add(x, op.flip(y, axes=(0,))))
    x, _ = arrays()
    want, kept = main(x, x), x.copy()
    fixed = x.copy()
    fixed.flags.writeable = False
    for operands in ((x, x), (x[:200], x[57:]), (fixed, x)):
        got = main.donating("x")(*operands)
        assert not np.may_share_memory(np.asarray(got), x)
        np.testing.assert_array_equal(x, kept)
        np.testing.assert_array_equal(got, main(*operands))
    np.testing.assert_array_equal(main(x, x), want)


def test_a_converted_input_leaves_the_callers_array_alone() -> None:
    main = compiled(lambda x, y: op.exp(x))
    x = np.ones((4, 9), np.float32).T  # not compact: the call gets a copy
    result = main.donating("x")(x, x)
    assert not np.may_share_memory(np.asarray(result), x)
    assert (x == 1).all()


def test_a_failed_call_leaves_the_donated_array_to_its_owner() -> None:
    at = rx.TensorType((N, 4), "int64")
    main = compiled(lambda x, i: (op.exp(x), op.gather_elements(op.exp(x), i, axis=0)), T, at)
    x, _ = arrays(3)
    for _ in range(3):
        with pytest.raises(rx.RelaxirError):
            main.donating("x")(x, np.full((3, 4), 7))
    assert x.shape == (3, 4)
    x[:] = 0  # still the caller's


def test_loaded_libraries_reuse_too(tmp_path: Path) -> None:
    exe = rx.compile(module(op.add))
    main = rx.load(exe.export(tmp_path / "m.so"))["main"]
    assert "out 0 may be given the memory of in 1" in (tmp_path / "m.h").read_text()
    x, y = arrays()
    assert main.donating("y")(x, y) is y


def test_the_backend_does_not_take_the_two_for_apart() -> None:
    done = Schedule()(rx.Pipeline((*GRAPH, *LOWER, *KERNELS))(module(lambda x, y: op.add(x, op.flip(y, axes=(0,))))))
    ((name, func),) = done.prim_funcs().items()
    donated = func.attrs["donated"]
    assert isinstance(donated, tuple) and len(donated) == 2
    text = emit_module({name: func}, Target.parse("x86-64-v3"), SiteTable())
    head = next(line for line in text.splitlines() if line.startswith("define") and f"{kernel_symbol(name)}(" in line)
    parameters = [p for p in head.split(", ") if "%p" in p]
    apart = {b.name: "noalias" in p for b, p in zip(func.params, parameters, strict=True)}
    assert apart == {b.name: b.name not in donated for b in func.params}


def _program(kind: str) -> bool:
    f = ProgramBuilder("f")
    x, y = f.input("x", (N,), "f32"), f.output("y", (N,), "f32")
    if kind == "twice":
        f.compute(y, lambda i: x[i] + x[i])
    elif kind == "shifted":
        f.compute(y, lambda i: x[N - 1 - i])
    else:
        t = f.temp("t", (N,), "f32")
        f.compute(t, lambda i: x[i])
        f.compute(y, lambda i: t[i] if kind == "before" else t[i] + x[i])
    func = f.build()
    return in_place(func, func.inputs[0], func.results[0])


@pytest.mark.parametrize(("kind", "fits"), [("twice", True), ("shifted", False), ("before", False), ("both", False)])
def test_programs_in_place(kind: str, fits: bool) -> None:
    assert _program(kind) is fits


@settings(max_examples=10)
@given(programs())
def test_random_programs_with_everything_donated(program: Program) -> None:
    main = rx.compile(program.module, threads=1, cache=False, jobs=1)["main"]
    for env in assignments(program.symbols, (0, 1, 7, 33)):
        operands = [np.asarray(a) for a in program.inputs(env, False)]
        want = results(main(*operands))
        got = results(main.donating(*main.input_names)(*(a.copy() for a in operands)))
        for g, w in zip(got, want, strict=True):
            np.testing.assert_array_equal(g, w)
