"""Foreign functions: Python callables, symbols of a shared library, failures, and matmul sent to a library."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import numpy as np
import pytest

import relaxir as rx
from relaxir.passes import DispatchLibrary
from relaxir.pipelines import DEFAULT
from relaxir.support.errors import RuntimeFailure
from tests.e2e import models


def scaled(x: np.ndarray, out: np.ndarray) -> None:
    """Twice the input."""
    out[...] = x * 2


def call_of(target: object) -> rx.IRModule:
    """``f(x) + 1`` for a foreign ``f``."""
    n = rx.dim("n")
    x = rx.Var("x", rx.TensorType((n, 3), "float32"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x]):
        y = bb.emit(bb.call_dps_packed(target, [x], out=rx.TensorType((n, 3), "float32")))
        bb.emit_func_output(rx.op.add(y, 1.0))
    return bb.get()


@pytest.mark.parametrize("n", [0, 1, 5])
def test_a_python_callable(n: int) -> None:
    x = np.ones((n, 3), np.float32)
    module = call_of(scaled)
    np.testing.assert_array_equal(rx.compile(module)["main"](x), x * 2 + 1)
    np.testing.assert_array_equal(rx.evaluate(module, "main", x), x * 2 + 1)


def test_a_callable_given_by_name() -> None:
    exe = rx.compile(call_of("my_scale"), libraries={"my_scale": scaled})
    np.testing.assert_array_equal(exe["main"](np.ones((2, 3), np.float32)), np.full((2, 3), 3, np.float32))


def test_an_exception_comes_through() -> None:
    def broken(x: np.ndarray, out: np.ndarray) -> None:
        raise ZeroDivisionError("as planned")

    main = rx.compile(call_of(broken))["main"]
    with pytest.raises(ZeroDivisionError, match="as planned"):
        main(np.ones((2, 3), np.float32))


def test_a_missing_function_is_named() -> None:
    main = rx.compile(call_of("nowhere_to_be_found"))["main"]
    with pytest.raises(RuntimeFailure, match="nowhere_to_be_found"):
        main(np.ones((2, 3), np.float32))


@pytest.mark.skipif(shutil.which("cc") is None, reason="needs a C compiler")
def test_a_symbol_of_a_shared_library(tmp_path: Path) -> None:
    source = tmp_path / "f.c"
    source.write_text(
        "typedef struct {float*d; int t[2]; int n; char y[4]; long*s; long*st; unsigned long o;} T;"
        "int c_scale(T*x, T*y){for(long i=0;i<x->s[0]*x->s[1];i++) y->d[i]=3*x->d[i]; return 0;}"
        "int c_fail(T*x, T*y){return 7;}"
    )
    library = tmp_path / "f.so"
    subprocess.run(["cc", "-shared", "-fPIC", "-o", str(library), str(source)], check=True)
    x = np.ones((2, 3), np.float32)
    exe = rx.compile(call_of("c_scale"), libraries={"c_scale": library})
    np.testing.assert_array_equal(exe["main"](x), x * 3 + 1)
    exe = rx.compile(call_of("c_fail"), libraries={"c_fail": library})
    with pytest.raises(RuntimeFailure, match=r"c_fail.*7"):
        exe["main"](x)


def test_matmul_is_dispatched() -> None:
    calls = []

    def product(a: np.ndarray, b: np.ndarray, out: np.ndarray) -> None:
        calls.append(a.shape)
        np.matmul(a, b, out=out)

    module = models.mlp()
    pipeline = rx.Pipeline(DispatchLibrary("product") if p.name == "DispatchLibrary" else p for p in DEFAULT)
    exe = rx.compile(module, pipeline=pipeline, libraries={"product": product})
    x = np.random.default_rng(0).standard_normal((3, 24)).astype(np.float32)
    np.testing.assert_allclose(exe["main"](x), rx.evaluate(module, "main", x), rtol=1e-5, atol=1e-5)
    assert calls == [(3, 24)]
