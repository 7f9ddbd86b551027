"""Shape operands become dimensions: constants, symbols and run-time values give what Python and NumPy define."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from relaxir.ir import InferCtx
from relaxir.ops.indexing import (
    choose,
    exact_quotient,
    expand_target,
    is_zero,
    negative,
    normalize_axes,
    normalize_index,
    pad_pairs,
    range_size,
    reshape_target,
    slice_range,
    unit_axes,
)
from relaxir.support.errors import InferError
from relaxir.sym import Facts, Relation, dim, evaluate, floordiv, mul, sub, to_text

n, m = dim("n"), dim("m")
# values that come from data: of any sign
s, e, t = dim("s", min=-(2**63)), dim("e", min=-(2**63)), dim("t", min=-(2**63))
INT64 = (-(2**63), -(2**63) + 1, 2**63 - 1)
ENDS = (None, *range(-7, 8), *INT64)


def expected(start: int | None, stop: int | None, step: int | None, extent: int) -> list[int]:
    return list(range(extent))[start:stop:step]


def elements(found, env) -> list[int]:
    begin, size, step = (evaluate(d, env) for d in (found.begin, found.size, found.step))
    return [begin + i * step for i in range(size)]


@pytest.mark.parametrize("extent", [0, 1, 2, 5])
def test_constant_slices(extent: int) -> None:
    for start, stop, step in itertools.product(ENDS, ENDS, (None, 1, 2, 3, -1, -2, -3, 9, -9)):
        assert elements(slice_range(start, stop, step, extent), {}) == expected(start, stop, step, extent)


def test_clamping_of_onnx() -> None:
    """Only a start before the first element of a backward slice differs: there it means the first element."""
    at_run_time = slice_range(s, e, t, n, onnx=True)
    for extent, start, stop, step in itertools.product((0, 1, 5), (-9, -5, -1, 0, 4, 9), ENDS[1::2], (2, -1, -2)):
        clamped = max(start, -extent) if step < 0 else start
        want = expected(clamped, stop, step, extent)
        assert elements(slice_range(start, stop, step, extent, onnx=True), {}) == want
        assert elements(at_run_time, {"n": extent, "s": start, "e": stop, "t": step}) == want


def test_far_constants() -> None:
    """Steps that reach no second element, and ends beyond every axis, also of an axis without elements."""
    far = (2**31 - 1, 2**63 - 1, -(2**31), -(2**63))
    for start, stop, step in itertools.product((*far, 0, 3, -2, s), (*far, 2, -1, e), (*far, 1, -1, 2)):
        found = slice_range(start, stop, step, n, onnx=True)
        for extent, first, last in itertools.product((0, 1, 5), (-9, 1), (-2, 4)):
            begin, end = (first if start is s else start), (last if stop is e else stop)
            begin = max(begin, -extent) if step < 0 else begin
            env = {"n": extent, "s": first, "e": last}
            assert elements(found, env) == expected(begin, end, step, extent), (begin, end, step, extent)


@pytest.mark.parametrize("step", [1, 3, -1, -2])
def test_symbolic_extent(step: int) -> None:
    """Constant ends of an axis of unknown extent: one formula for all extents."""
    for start, stop in itertools.product(ENDS[::2], ENDS[::2]):
        found = slice_range(start, stop, step, n)
        for extent in (0, 1, 2, 5):
            assert elements(found, {"n": extent}) == expected(start, stop, step, extent), (start, stop, extent)


def test_runtime_slices() -> None:
    """Nothing is known when the formula is built, not even the step's sign."""
    found = slice_range(s, e, t, n)
    open_start, open_stop = slice_range(None, e, t, n), slice_range(s, None, t, n)
    for extent, start, stop, step in itertools.product((0, 1, 4), (-6, -4, -1, 0, 2, 4, 9), ENDS[1::3], (1, 2, -1, -3)):
        env = {"n": extent, "s": start, "e": stop, "t": step}
        assert elements(found, env) == expected(start, stop, step, extent), env
        assert elements(open_start, env) == expected(None, stop, step, extent), env
        assert elements(open_stop, env) == expected(start, None, step, extent), env


def test_no_overflow_near_the_ends_of_int64() -> None:
    """Every intermediate value of the run-time formula fits 64 bits for the sentinels that models use."""
    found = slice_range(s, e, -1, n)
    for start, stop in itertools.product((*INT64, 0), repeat=2):
        env = {"n": 5, "s": start, "e": stop}
        for expr in (found.begin, found.size):
            for part in walk(expr):
                assert -(2**63) <= evaluate(part, env) < 2**63, (to_text(part), env)


def walk(expr):
    yield expr
    for arg in getattr(expr, "args", ()):
        yield from walk(arg)


@pytest.mark.parametrize(
    ("args", "begin", "size"),
    [
        ((None, None, 1, n), "0", "n"),
        ((0, 2**63 - 1, 1, n), "0", "n"),
        ((None, None, -1, n), "n - 1", "n"),
        ((0, n, 1, n), "0", "n"),
        ((n, 2 * n, 1, 2 * n), "n", "n"),
        ((0, floordiv(n, 2), 1, n), "0", "n // 2"),
        ((0, None, 2, 2 * n), "0", "n"),
        ((1, None, 1, n + 1), "1", "n"),
        ((-1, None, 1, n + 1), "n", "1"),
        ((0, -1, 1, n + 1), "0", "n"),
        ((-1, -(2**63), -1, n), "n - 1", "n"),
    ],
)
def test_short_forms(args, begin: str, size: str) -> None:
    """What everybody writes gives what everybody expects, not a formula."""
    found = slice_range(*args, Facts((n,)))
    facts = Facts((n,))
    assert (to_text(found.begin).replace(" ", ""), to_text(facts.simplify(found.size))) == (
        begin.replace(" ", ""),
        size,
    )


def test_zero_step() -> None:
    with pytest.raises(InferError, match="step"):
        slice_range(0, 1, 0, n)
    with pytest.raises(InferError, match="step"):
        range_size(0, 1, 0)


@pytest.mark.parametrize("value", [-3, -1, 0, 1, 5, -(2**63), 2**63 - 1])
def test_indicators(value: int) -> None:
    env = {"s": value}
    assert negative(value) == evaluate(negative(s), env) == int(value < 0)
    assert is_zero(value) == evaluate(is_zero(s), env) == int(value == 0)
    assert evaluate(choose(negative(s), 7, n), {**env, "n": 3}) == (7 if value < 0 else 3)
    assert choose(1, n, m) == n
    assert negative(n) == 0
    assert negative(-n - 1) == 1


def test_indices() -> None:
    assert normalize_index(-2, n) == n - 2
    assert normalize_index(3, n) == 3
    assert normalize_index(m, n) == m
    for value in range(-4, 4):
        assert evaluate(normalize_index(s, n), {"s": value, "n": 4}) == value % 4


@pytest.mark.parametrize(
    ("target", "source", "want"),
    [
        ((-1,), (n, 4), (4 * n,)),
        ((0, -1), (n, 4, m), (n, 4 * m)),
        ((n, -1), (n, 4, m), (n, 4 * m)),
        ((-1, 2 * m), (n, 4, m), (2 * n, 2 * m)),
        ((0, 0, 8, -1), (n, m, 64), (n, m, 8, 8)),
        ((2, -1), (6,), (2, 3)),
        ((), (1, 1), ()),
        ((0, -1), (0, 4), (0, 4)),
        ((-1, n + m), (n * n + n * m,), (n, n + m)),
    ],
)
def test_reshape(target, source, want) -> None:
    facts = Facts((n, m), (Relation("<=", 1, n), Relation("<=", 1, m)))
    got = reshape_target(target, source, facts=facts)
    if target == (0, -1) and source == (0, 4):
        assert got[0] == 0
        return
    assert all(facts.prove_equal(a, b).value == "proved" for a, b in zip(got, want, strict=True)), got


def test_reshape_at_run_time() -> None:
    """Entries that come from data mean the same as constants: NumPy's -1 and ONNX's 0."""
    source = (n, 6)
    got = reshape_target((s, e), source)
    for size, target in itertools.product((1, 4), ((-1, 3), (3, -1), (0, -1), (0, 6), (-1, 2), (2, -1), (0, 0))):
        env = {"n": size, "s": target[0], "e": target[1]}
        full = [(size, 6)[a] if d == 0 else d for a, d in enumerate(target)]
        if size * 6 % abs(np.prod(full)):
            continue
        want = np.empty((size, 6)).reshape(full).shape
        assert tuple(evaluate(d, env) for d in got) == want


def test_reshape_zero() -> None:
    assert reshape_target((0, 4), (n, 4), allow_zero=True) == (0, 4)
    with pytest.raises(InferError, match="lacks"):
        reshape_target((4, 0), (4,))
    with pytest.raises(InferError, match="only one"):
        reshape_target((-1, -1), (4,))
    with pytest.raises(InferError, match="is -2"):
        reshape_target((-2,), (4,))


def test_quotients() -> None:
    assert exact_quotient(12 * n, 4) == 3 * n
    assert exact_quotient(mul(n, m), m, Facts((n, m))) == n
    open_ = exact_quotient(n, m)
    assert evaluate(open_, {"n": 7, "m": 2}) == 3
    assert evaluate(open_, {"n": 7, "m": 0}) == 7
    assert exact_quotient(n, 0) == 0


def test_expand() -> None:
    assert expand_target((n, 1), (3, 1, 4)) == (3, n, 4)
    assert expand_target((3,), (1,)) == (3,)
    with pytest.raises(InferError, match="does not broadcast"):
        expand_target((3,), (2,))


def test_pads_and_axes() -> None:
    assert pad_pairs((1, 2, 3, n), 2) == ((1, 3), (2, n))
    assert pad_pairs((1, 3), 3, (-1,)) == ((0, 0), (0, 0), (1, 3))
    assert unit_axes((1, n, 1)) == (0, 2)
    assert normalize_axes((-1, 0), 3, InferCtx("op", Facts())) == (2, 0)
    with pytest.raises(InferError, match="pads expected"):
        pad_pairs((1,), 2)
    with pytest.raises(InferError, match="twice"):
        normalize_axes((-1, 2), 3, InferCtx("op", Facts()))


@pytest.mark.parametrize("step", [1, 2, -1, -3])
def test_ranges(step: int) -> None:
    size = range_size(s, e, t)
    for start, stop in itertools.product(range(-4, 5), repeat=2):
        want = len(range(start, stop, step))
        assert range_size(start, stop, step) == want
        assert evaluate(size, {"s": start, "e": stop, "t": step}) == want
    assert range_size(0, n, 1) == n
    assert range_size(m, sub(n + m, 0), 1) == n
