"""Calls that native code takes itself: what it takes, what it hands on, and that nothing is kept or lost."""

from __future__ import annotations

import ctypes
import gc
import resource
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import relaxir as rx
from relaxir.runtime import quick
from relaxir.support.errors import ArgumentError, RuntimeShapeError

N, M = rx.dim("n"), rx.dim("m")


def build(result: object, *params: rx.Var) -> rx.Executable:
    bb = rx.BlockBuilder()
    with bb.function("main", params):
        bb.emit_func_output(result)
    return rx.compile(bb.get(), jobs=1)


def variables(*types: tuple[tuple[object, ...], str]) -> list[rx.Var]:
    return [rx.Var(f"x{i}", rx.TensorType(*t)) for i, t in enumerate(types)]


def live_blocks(exe: rx.Executable) -> int:
    context, counts = exe.context, (ctypes.c_int64 * 5)()
    context.library.cdll.rx_stats(context.address, counts)
    return counts[1]


@pytest.fixture(scope="module")
def difference() -> rx.Executable:
    x, y = variables(((N,), "float32"), ((N,), "float32"))
    exe = build(rx.op.subtract(x, y), x, y)
    exe["main"](np.ones(2, np.float32), np.ones(2, np.float32))
    return exe


@pytest.fixture
def pair() -> tuple[np.ndarray, np.ndarray]:
    return np.arange(5, dtype=np.float32), np.full(5, 2, np.float32)


def test_the_call_is_native_after_the_first(difference: rx.Executable) -> None:
    if quick.INTERFACE is None:
        pytest.skip("objects of this Python lie elsewhere")
    assert type(difference["main"].__call__) is type(len)


def test_places_and_names_in_any_order(difference: rx.Executable, pair: tuple[np.ndarray, np.ndarray]) -> None:
    (x, y), main = pair, difference["main"]
    made = "".join(["x", "1"])  # equal to the input's name, and another object
    for got in (main(x, y), main(x, x1=y), main(x1=y, x0=x), main(**{made: y, "x0": x})):
        assert type(got) is np.ndarray
        np.testing.assert_array_equal(got, x - y)
        assert got.flags.writeable
        assert got.flags.c_contiguous


def test_what_native_code_does_not_take_is_converted(difference: rx.Executable, pair: tuple[np.ndarray, ...]) -> None:
    (x, y), main = pair, difference["main"]
    strided, swapped = np.repeat(x, 2)[::2], y.astype(">f4")
    shifted = np.frombuffer(b"\0" + x.tobytes(), np.uint8)[1:].view(np.float32)

    class Own(np.ndarray):
        pass

    for a, b in ((strided, y), (x, swapped), (shifted, y), (x.view(Own), y), ([0, 1, 2, 3, 4], y)):
        np.testing.assert_array_equal(main(a, x1=b), x - y)


@pytest.mark.parametrize(
    ("args", "feeds", "words"),
    [
        ((1,), {}, "missing argument `x1`"),
        ((1, 2, 3), {}, "takes 2 arguments, got 3"),
        ((1,), {"x0": 1}, "`x0` is given twice"),
        ((1,), {"z": 1}, "no argument `z`"),
        ((), {"x0": 1, "x1": 1, "z": 1}, "no argument `z`"),
    ],
)
def test_counts_and_names(difference: rx.Executable, args: tuple[int, ...], feeds: dict[str, int], words: str) -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(ArgumentError, match=words):
        difference["main"](*(x for _ in args), **dict.fromkeys(feeds, x))


def test_dtypes_and_ranks(difference: rx.Executable) -> None:
    x = np.ones(3, np.float32)
    with pytest.raises(ArgumentError, match="dtype float64"):
        difference["main"](x, x.astype(np.float64))
    with pytest.raises(ArgumentError, match="rank 2"):
        difference["main"](x[None], x)


def test_a_failed_call_gives_its_blocks_back(difference: rx.Executable) -> None:
    before = live_blocks(difference)
    for _ in range(3):
        with pytest.raises(RuntimeShapeError, match="x1"):
            difference["main"](np.ones(3, np.float32), np.ones(4, np.float32))
    assert live_blocks(difference) == before


def test_several_results_of_any_rank() -> None:
    x, y = variables(((N, M), "int32"), ((), "float64"))
    bb = rx.BlockBuilder()
    with bb.function("main", [x, y]):
        total = bb.emit(rx.op.sum(x))
        bb.emit_func_output((rx.op.negative(x), total, rx.op.add(y, y), rx.op.sum(x, axes=(0,))))
    main = rx.compile(bb.get(), jobs=1)["main"]
    for shape in ((0, 3), (3, 0), (1, 1), (7, 13)):
        value = np.arange(np.prod(shape), dtype=np.int32).reshape(shape)
        for _ in range(2):
            got = main(value, np.array(1.5))
            assert type(got) is tuple
            want = (-value, value.sum(), 3.0, value.sum(0))
            assert [g.shape for g in got] == [np.shape(w) for w in want]
            for g, w in zip(got, want, strict=True):
                np.testing.assert_array_equal(g, w)


def test_results_return_their_memory_and_outlive_the_executable(pair: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = variables(((N,), "float32"), ((N,), "float32"))
    exe = build(rx.op.add(x, y), x, y)
    main = exe["main"]
    kept = [main(*pair) for _ in range(4)]
    views = kept[3][1:]
    assert live_blocks(exe) == 4
    del kept[1:]
    gc.collect()
    assert live_blocks(exe) == 2  # the first, and the one under the view
    del exe, main
    gc.collect()
    np.testing.assert_array_equal(kept[0], pair[0] + pair[1])
    np.testing.assert_array_equal(views, (pair[0] + pair[1])[1:])


def test_the_native_function_outlives_what_made_it(pair: tuple[np.ndarray, np.ndarray]) -> None:
    x, y = variables(((N,), "float32"), ((N,), "float32"))
    main = build(rx.op.add(x, y), x, y)["main"]
    main(*pair)
    native = main.__call__
    del main
    gc.collect()
    names = [b"%d" % i * 8 for i in range(5000)]  # takes what was freed
    np.testing.assert_array_equal(native(*pair), pair[0] + pair[1])
    np.testing.assert_array_equal(native(x1=list(pair[1]), x0=pair[0]), pair[0] + pair[1])
    with pytest.raises(RuntimeShapeError):
        native(pair[0], pair[1][1:])
    assert len(names) == 5000


def test_nothing_is_kept(difference: rx.Executable, pair: tuple[np.ndarray, np.ndarray]) -> None:
    main, dtype, name = difference["main"], np.dtype(np.float32), difference["main"].input_names[0]
    held = (*pair, dtype, name, difference.context, None)
    counts = [sys.getrefcount(h) for h in held]
    for _ in range(2000):
        main(*pair)
        main(x0=pair[0], x1=pair[1])
    assert all(abs(sys.getrefcount(h) - c) < 100 for h, c in zip(held, counts, strict=True))


def test_concurrent_callers(difference: rx.Executable) -> None:
    main = difference["main"]

    def work(seed: int) -> bool:
        x = np.full(100 + seed, seed, np.float32)
        return all((main(x, x1=x) == 0).all() and len(main(x, x)) == len(x) for _ in range(200))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(work, range(8)))


@pytest.mark.parametrize("rows", [64, 2000])
def test_steady_calls_touch_no_new_pages(rows: int) -> None:
    (x,) = variables(((N, 1024), "float32"))
    main = build(rx.op.softmax(rx.op.multiply(x, x)), x)["main"]
    value = np.zeros((rows, 1024), np.float32)
    for _ in range(3):
        main(value)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(10):
        main(value)
    faults = resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before
    assert faults < value.nbytes // 4096 // 4  # ten results and temporaries would be at least ten times their pages
