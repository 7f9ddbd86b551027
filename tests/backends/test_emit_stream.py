"""Stores past the caches: the same results at every size and alignment, and never outside the result."""

from __future__ import annotations

import numpy as np
import pytest

import relaxir as rx
from relaxir.backends.llvm import emit_parallel, emit_stream
from relaxir.backends.llvm.emit_linear import LANE, Linear

N = rx.dim("n")


@pytest.fixture(autouse=True)
def everything_is_large(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(emit_parallel, "LARGE", 0)


def compiled(make: object, *types: rx.TensorType, threads: int = 1, target: str = "native") -> object:
    params = [rx.Var(f"x{i}", t) for i, t in enumerate(types)]
    bb = rx.BlockBuilder()
    with bb.function("main", params):
        bb.emit_func_output(make(*params))
    return rx.compile(bb.get(), target=target, threads=threads, cache=False, jobs=1)["main"]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("target", ["native", "x86-64-v3"])
@pytest.mark.parametrize("dtype", ["float32", "int8", "float16"])
def test_sums_of_rows_of_any_length(dtype: str, target: str, threads: int) -> None:
    for columns in (1, 24, 1000):
        kind = rx.TensorType((N, columns), dtype)
        main = compiled(rx.op.add, kind, kind, threads=threads, target=target)
        for n in (0, 3, 300):
            x = (np.arange(n * columns) % 50).reshape(n, columns).astype(dtype)
            np.testing.assert_array_equal(main(x, x), x + x)


def test_permuted_rows() -> None:
    main = compiled(lambda x: rx.op.permute_dims(x, axes=(0, 2, 1, 3)), rx.TensorType((N, 5, 3, 64), "float32"))
    for n in (0, 1, 7):
        x = np.arange(n * 960, dtype=np.float32).reshape(n, 5, 3, 64)
        np.testing.assert_array_equal(main(x), x.transpose(0, 2, 1, 3))


@pytest.mark.parametrize("start", [0, 1, 4, 8, 16])
def test_a_callers_array_anywhere_in_memory(start: int) -> None:
    kind = rx.TensorType((N, 64), "float32")
    main = compiled(rx.op.add, kind, kind)
    x = np.arange(33 * 64, dtype=np.float32).reshape(33, 64)
    room = np.full(x.size + 64, -1, np.float32)
    out = room[start : start + x.size].reshape(x.shape)
    main.into([out], x, x)
    np.testing.assert_array_equal(out, x + x)
    assert (room[:start] == -1).all()
    assert (room[start + x.size :] == -1).all()


def test_alignment_of_places() -> None:
    def aligned(terms: dict[tuple[str, ...], int], size: int = 4) -> int:
        return emit_stream.alignment(Linear(terms), {"%i": 16}, size)

    assert aligned({(LANE,): 1}) == 64
    assert aligned({("%i",): 1, (LANE,): 1, (): 32}) == 64
    assert aligned({("%j",): 1000, ("%i",): 1}) == 32
    assert aligned({("%j",): 1, (LANE,): 1}) == 4
    assert aligned({("%j", "%n"): 8}) == 32
    assert aligned({(): 3}, size=8) == 8
