"""The interpreter on host programs: frames, calls, results, checks."""

from __future__ import annotations

from types import MappingProxyType

import numpy as np
import pytest

from relaxir.ir.module import IRModule
from relaxir.runtime.interp import evaluate, run_host
from relaxir.support.errors import ArgumentError, InternalError, RuntimeFailure, RuntimeShapeError, UnsupportedError
from relaxir.sym import dim
from relaxir.tir import (
    Alias,
    AllocFrame,
    AllocOutput,
    Assert,
    BindDim,
    Buffer,
    CallHost,
    CallKernel,
    CallLibrary,
    ConstantData,
    Copy,
    Extent,
    If,
    OpenFrame,
    PrimFunc,
    ProgramBuilder,
    Scope,
    Seq,
    Size,
    Store,
    eq,
)

N, M = dim("n"), dim("m")


def scale_kernel():
    f = ProgramBuilder("scale")
    x, w, y = f.input("x", (M,), "float32"), f.input("w", (1,), "float32"), f.output("y", (M,), "float32")
    f.compute(y, lambda i: x[i] * w[0])
    return f.build()


def host(params, stmts, outputs=1):
    return PrimFunc(tuple(params), Seq(tuple(stmts)), (), outputs, 0, MappingProxyType({"scope": "host"}))


def vector(name, extent=N, scope=Scope.FRAME):
    return Buffer(name, (extent,), "float32", scope)


def program(first=0, second=64, size=128):
    x, w, a, b, y = vector("x"), Buffer("w", (1,), "float32"), vector("a"), vector("b"), vector("y")
    return host(
        (x, y),
        (
            BindDim(N, Extent(x, 0)),
            Assert(eq(Size(N) % 2, 0), "runtime-shape", "n is {}, which is odd", (Size(N),)),
            OpenFrame(0, size),
            ConstantData(w, 0),
            AllocFrame(a, 0, first),
            CallKernel("scale", (x, w, a), (N,)),
            AllocFrame(b, 0, second),
            CallKernel("scale", (x, w, b), (N,)),
            CallKernel("scale", (b, w, b), (N,)),
            AllocOutput(y, 0),
            CallLibrary("add", (a, b, y)),
        ),
    )


def add(a, b, out):
    out[...] = a + b


W = (np.array([3.0], "f4"),)


def test_frames_and_calls():
    m = IRModule({"main": program(), "scale": scale_kernel()})
    x = np.arange(4, dtype="f4")
    assert evaluate(m, "main", x, libraries={"add": add}, constants=W).tolist() == (x * 12).tolist()
    overlapping = IRModule({"main": program(0, 8), "scale": scale_kernel()})
    assert evaluate(overlapping, "main", x, libraries={"add": add}, constants=W).tolist() != (x * 12).tolist()
    unplanned = IRModule({"main": program(None, None), "scale": scale_kernel()})
    assert evaluate(unplanned, "main", x, libraries={"add": add}, constants=W).tolist() == (x * 12).tolist()


def test_failures():
    m = IRModule({"main": program(), "scale": scale_kernel()})
    x = np.arange(4, dtype="f4")
    with pytest.raises(RuntimeShapeError, match="n is 3, which is odd"):
        evaluate(m, "main", x[:3])
    with pytest.raises(ArgumentError, match="argument `x` must be float32, got float64"):
        evaluate(m, "main", x.astype("f8"))
    with pytest.raises(ArgumentError, match="expected 1 arguments, got 2"):
        evaluate(m, "main", x, x)
    with pytest.raises(UnsupportedError, match="library function `add`"):
        evaluate(m, "main", x, constants=W)
    with pytest.raises(RuntimeFailure, match="status 3"):
        evaluate(m, "main", x, constants=W, libraries={"add": lambda *a: 3})
    small = IRModule({"main": program(size=70), "scale": scale_kernel()})
    with pytest.raises(InternalError, match="outside its frame of 70"):
        evaluate(small, "main", x, constants=W)


def test_aliases_branches_and_sizes_from_data():
    t, x = Buffer("t", (), "int64"), vector("x")
    tail, y = vector("tail", M), vector("y", M)
    main = host(
        (t, x, y),
        (
            BindDim(N, Extent(x, 0)),
            BindDim(M, t[()]),
            AllocOutput(y, 0),
            If(Size(M) > 2, Seq((Alias(tail, x, N - M), Copy(y, tail))), Seq((Alias(tail, x, 0), Copy(y, tail)))),
        ),
    )
    m = IRModule({"main": main})
    x = np.arange(5, dtype="f4")
    assert evaluate(m, "main", np.asarray(2), x).tolist() == [0, 1]
    assert evaluate(m, "main", np.asarray(3), x).tolist() == [2, 3, 4]
    with pytest.raises(InternalError, match="alias `tail` reaches outside `x`"):
        evaluate(m, "main", np.asarray(6), x)


def test_recursion_and_given_results():
    """``main(c, x)`` doubles x as often as c says, by calling itself."""
    c, x, y = Buffer("c", (), "int64"), vector("x"), vector("y")
    less, double = Buffer("less", (), "int64", Scope.FRAME), vector("double")
    again = Seq(
        (
            AllocFrame(less),
            AllocFrame(double),
            ConstantData(w := Buffer("w", (1,), "float32"), 0),
            Store(less, (), c[()] - 1),
            CallKernel("scale", (x, w, double), (N,)),
            CallHost("main", (less, double), (y,)),
        )
    )
    main = host((c, x, y), (BindDim(N, Extent(x, 0)), AllocOutput(y, 0), If(c[()] > 0, again, Copy(y, x))))
    m = IRModule({"main": main, "scale": scale_kernel()})
    x = np.arange(3, dtype="f4")
    two = (np.array([2.0], "f4"),)
    assert evaluate(m, "main", np.asarray(3), x, constants=two).tolist() == [0, 8, 16]
    mine = np.empty(3, "f4")
    (got,) = run_host(m, "main", (np.asarray(1), x), two, given=(mine,))
    assert np.shares_memory(got, mine) and mine.tolist() == [0, 2, 4]
    with pytest.raises(RuntimeShapeError, match="result 0 has shape"):
        run_host(m, "main", (np.asarray(0), x), two, given=(mine[:2],))
