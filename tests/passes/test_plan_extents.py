"""Extents as memory is planned with: symbols of at least 1 for what grows with its symbols, one of its own for the rest."""

import numpy as np

import relaxir as rx
from relaxir.ir import TensorType, Var
from relaxir.passes.frame_symbols import is_opaque
from relaxir.sym import dim, floordiv, mul, sub
from tests.building import Emit, dataflow

n, m = dim("n"), dim("m")


def test_what_rises() -> None:
    """Polynomials that no symbol makes smaller."""
    for rising in (n, mul(n, m), sub(mul(n, 2), 5), sub(n, 1)):
        assert not is_opaque(rising)
    for other in (sub(n, m), sub(5, n), mul(n, sub(m, n)), floordiv(n, 2)):
        assert is_opaque(other)


def test_differences_are_planned_as_they_are() -> None:
    """With a symbol of 0 that counted as 1, temporaries of n - m rows would be a row short and overlap."""

    def make(emit: Emit, x: Var, y: Var) -> list[Var]:
        tail = emit(rx.op.strided_slice(x, axes=(0,), begin=(m,), size=(sub(n, m),)))
        first = emit(rx.op.softmax(tail, axis=1))
        second = emit(rx.op.cumsum(first, axis=0))
        third = emit(rx.op.matmul(second, emit(rx.op.permute_dims(first))))
        return [emit(rx.op.matmul(third, emit(rx.op.add(first, second)))), emit(rx.op.sum(y))]

    x, y = Var("x", TensorType((n, 16), "float32")), Var("y", TensorType((m,), "float32"))
    module = dataflow(make, x, y)
    exe = rx.compile(module)
    for count, start in ((5, 0), (1, 0), (7, 2), (3, 3)):
        given = np.random.default_rng(0).standard_normal((count, 16)).astype(np.float32), np.ones(start, np.float32)
        for got, want in zip(exe["main"](*given), rx.evaluate(module, "main", *given), strict=True):
            np.testing.assert_allclose(got, want, rtol=1e-5)
