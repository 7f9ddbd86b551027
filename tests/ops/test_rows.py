"""Searches, running sums, sorts, the largest few, gathers: compiled, at sizes around vectors and blocks, on odd data."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.ops.leading import FEW
from relaxir.ops.merge import sorted_positions
from relaxir.support.errors import RuntimeIndexError

Array = np.ndarray[Any, Any]
SIZES = ((1, 1), (5, 7), (3, 16), (16, 3), (2, 257), (130, 41), (1, 1000), (700, 2), (9, 2100))
EMPTY = ((0, 3), (3, 0), (0, 0))


def build(functions: Mapping[str, tuple[str, Callable[[rx.Var], Any]]], least: int = 0) -> rx.Executable:
    """Functions of one matrix of symbolic sizes, by name: its dtype, and the call."""
    bb = rx.BlockBuilder()
    for name, (dtype, call) in functions.items():
        x = rx.Var("x", rx.TensorType((rx.dim("n", min=least), rx.dim("m", min=least)), dtype))
        with bb.function(name, [x]):
            with bb.dataflow():
                out = bb.emit_output(call(x))
            bb.emit_func_output(out)
    return rx.compile(bb.get(), threads=2)


def matrices(dtype: str, shape: tuple[int, int]) -> list[Array]:
    """Random numbers, many equal ones, special ones, all equal, in order."""
    rng = np.random.default_rng(len(dtype) + 7 * shape[0] + shape[1])
    if not dtype.startswith("float"):
        few, many = (rng.integers(0, high, shape).astype(dtype) for high in (3, 100))
        return [many, few, np.full(shape, 5, dtype), np.sort(many, -1)]
    plain = rng.standard_normal(shape).astype(dtype)
    odd = np.where(rng.random(shape) < 0.1, np.nan, np.round(plain))
    odd = np.where(rng.random(shape) < 0.1, -0.0, np.where(rng.random(shape) < 0.05, -np.inf, odd))
    return [plain, np.round(plain), odd.astype(dtype), np.full(shape, -np.inf, dtype), np.sort(plain, 0)]


def test_searches() -> None:
    """The first or last extremum of rows, of columns, of all; NaN counts as extreme."""
    ops = {"argmax": np.argmax, "argmin": np.argmin}
    forms = [*itertools.product(("argmax",), ("float32", "int64"), (0, 1, None), (False, True)),
             ("argmin", "float32", 1, False), ("argmin", "float16", 1, True), ("argmin", "int8", 1, False)]  # fmt: skip
    calls = {
        f"f{i}": (
            dtype,
            lambda x, op=op, axis=axis, last=last: getattr(rx.op, op)(x, axis=axis, select_last_index=last),
        )
        for i, (op, dtype, axis, last) in enumerate(forms)
    }
    exe = build(calls, least=1)
    for i, (op, dtype, axis, last) in enumerate(forms):
        for shape in SIZES:
            for x in matrices(dtype, shape):
                if axis is None:
                    want = x.size - 1 - ops[op](x.reshape(-1)[::-1]) if last else ops[op](x)
                else:
                    want = shape[axis] - 1 - ops[op](np.flip(x, axis), axis) if last else ops[op](x, axis)
                np.testing.assert_array_equal(exe[f"f{i}"](x), want, f"{op} {dtype} {axis} {last} {shape}")


def test_a_scalar_is_its_own_extremum() -> None:
    """Nothing is searched along no axes."""
    bb = rx.BlockBuilder()
    x = rx.Var("x", rx.TensorType((), "float32"))
    with bb.function("main", [x]):
        with bb.dataflow():
            out = bb.emit_output(rx.op.argmax(x))
        bb.emit_func_output(out)
    assert rx.compile(bb.get(), threads=2)["main"](np.float32(3)) == 0


def test_running_sums_and_products() -> None:
    """Along rows and columns, forwards and backwards, with and without the element itself."""
    ops = {"cumsum": np.add, "cumprod": np.multiply}
    forms = [*itertools.product(("cumsum",), ("float32", "int64"), (0, 1), (False, True), (False, True)),
             *itertools.product(("cumprod",), ("float32", "float64", "float16", "int8"), (1,), (False,), (False,)),
             ("cumsum", "float16", 0, False, False)]  # fmt: skip
    calls = {
        f"f{i}": (
            dtype,
            lambda x, op=op, a=axis, e=exclusive, r=reverse: getattr(rx.op, op)(x, axis=a, exclusive=e, reverse=r),
        )
        for i, (op, dtype, axis, exclusive, reverse) in enumerate(forms)
    }
    exe = build(calls)
    near = {"float32": 2e-5, "float64": 1e-9, "float16": 2e-3}
    for i, (op, dtype, axis, exclusive, reverse) in enumerate(forms):
        for shape in (*SIZES, *EMPTY):
            x = matrices(dtype, shape)[0]
            x = (1 + x * 0.01).astype(dtype) if op == "cumprod" and dtype in near else x
            line = np.flip(x, axis) if reverse else x
            want = ops[op].accumulate(line, axis, dtype=np.float64 if dtype in near else dtype)
            if exclusive and shape[axis]:
                want = np.roll(want, 1, axis)
                np.moveaxis(want, axis, 0)[0] = int(op == "cumprod")
            want = np.flip(want, axis) if reverse else want
            tolerance = near.get(dtype, 0)
            got = exe[f"f{i}"](x)
            message = f"{op} {dtype} {axis} {exclusive} {reverse} {shape}"
            np.testing.assert_allclose(got, want.astype(dtype), tolerance, 4 * tolerance, err_msg=message)


def test_running_sums_of_nan() -> None:
    """NaN and infinities reach what comes after them, and nothing before."""
    exe = build({"main": ("float32", lambda x: rx.op.cumsum(x, axis=1))})
    for place in (0, 5, 15, 16, 40):
        x = np.ones((3, 50), np.float32)
        x[0, place], x[1, place], x[2, [place, 45]] = np.nan, np.inf, (np.inf, -np.inf)
        with np.errstate(invalid="ignore"):
            np.testing.assert_array_equal(exe["main"](x), np.cumsum(x, 1))


def test_sorts() -> None:
    """Stable in both directions, NaN last of the ascending, zeros of both signs equal."""
    kinds = ("float64", "float16", "int64", "uint8", "bool")
    forms = [*itertools.product(("float32",), (0, 1), (False, True)), *((k, 1, k == "float64") for k in kinds)]
    calls = {
        f"argsort{i}": (dtype, lambda x, axis=axis, down=down: rx.op.argsort(x, axis=axis, descending=down))
        for i, (dtype, axis, down) in enumerate(forms)
    }
    exe = build({"sort": ("float32", lambda x: rx.op.sort(x, axis=0)), **calls})
    for i, (dtype, axis, down) in enumerate(forms):
        for shape in (*SIZES, *EMPTY):
            for x in [a > 0 for a in matrices("int8", shape)] if dtype == "bool" else matrices(dtype, shape):
                order = sorted_positions(x, axis, down)
                message = f"{dtype} {axis} {down} {shape}"
                np.testing.assert_array_equal(exe[f"argsort{i}"](x), order, message)
                if i == 0:
                    np.testing.assert_array_equal(exe["sort"](x), np.take_along_axis(x, order, axis), message)


def test_integers_sort_at_the_ends_of_their_range() -> None:
    """Every digit of the keys counts, the sign included."""
    kinds = ("int8", "uint16", "int32", "uint64")
    exe = build({k: (k, rx.op.argsort) for k in kinds})
    rng = np.random.default_rng(0)
    for kind in kinds:
        low, high = np.iinfo(kind).min, np.iinfo(kind).max
        x = rng.integers(low, high, (2, 200), kind, endpoint=True)
        x[:, 7], x[:, 90] = low, high
        np.testing.assert_array_equal(exe[kind](x), np.argsort(x, -1, kind="stable"))


@pytest.mark.parametrize("count", [1, 5, FEW + 1, "k"])
def test_leading(count: int | str) -> None:
    """The first few are those of the stable order, by insertion, in batches, and of a number known when called."""
    k = rx.dim("k", min=0)
    forms = (("float32", 1, True), ("float32", 0, False), ("int64", 1, False), ("float16", 1, True))
    bb = rx.BlockBuilder()
    for i, (dtype, axis, largest) in enumerate(forms):
        x = rx.Var("x", rx.TensorType((rx.dim("n"), rx.dim("m")), dtype))
        room = rx.Var("room", rx.TensorType((k,), "bool"))
        with bb.function(f"f{i}", [x, room]):
            with bb.dataflow():
                found = bb.emit(rx.op.topk(x, k=k if count == "k" else count, axis=axis, largest=largest))
                out = bb.emit_output(found)
            bb.emit_func_output(out)
    exe = rx.compile(bb.get(), threads=2)
    for i, (dtype, axis, largest) in enumerate(forms):
        for shape in (*SIZES, (0, 300), (300, 0)):
            for x in matrices(dtype, shape):
                for wanted in (0, 3, FEW + 2, shape[axis]) if count == "k" else (int(count),):
                    if wanted > shape[axis]:
                        continue
                    order = np.take(sorted_positions(x, axis, largest), np.arange(wanted), axis)
                    values, positions = exe[f"f{i}"](x, np.zeros(wanted if count == "k" else 0, np.bool_))
                    message = f"{dtype} {axis} {largest} {shape} {wanted}"
                    np.testing.assert_array_equal(positions, order, message)
                    np.testing.assert_array_equal(values, np.take_along_axis(x, order, axis), message)


def gathers(kind: str) -> rx.Executable:
    """Gathers of all forms with indices of a dtype."""
    n, m, k = rx.dim("n"), rx.dim("m"), rx.dim("k")
    forms: dict[str, tuple[tuple[Any, ...], Callable[[rx.Var, rx.Var], Any]]] = {
        "rows": ((k,), lambda x, i: rx.op.take(x, i, axis=0)),
        "columns": ((k,), lambda x, i: rx.op.take(x, i, axis=1)),
        "along0": ((k, m), lambda x, i: rx.op.gather_elements(x, i, axis=0)),
        "along1": ((n, k), lambda x, i: rx.op.gather_elements(x, i, axis=1)),
        "points": ((k, 2), rx.op.gather_nd),
        "slices": ((k, 1), rx.op.gather_nd),
    }
    bb = rx.BlockBuilder()
    for name, (shape, call) in forms.items():
        x, i = rx.Var("x", rx.TensorType((n, m), "float32")), rx.Var("i", rx.TensorType(shape, kind))
        with bb.function(name, [x, i]):
            with bb.dataflow():
                out = bb.emit_output(call(x, i))
            bb.emit_func_output(out)
    return rx.compile(bb.get(), threads=2)


@pytest.mark.parametrize("kind", ["int32", "int64"])
def test_gathers(kind: str) -> None:
    """Negative indices count from the end; one that is out of range fails the call wherever it stands."""
    exe = gathers(kind)
    rng = np.random.default_rng(0)
    for n, m, k in ((1, 1, 1), (5, 3, 0), (7, 5, 9), (33, 64, 130), (300, 17, 5000)):
        x = rng.standard_normal((n, m), np.float32)
        rows, columns = rng.integers(-n, n, k), rng.integers(-m, m, k)
        along0, along1 = rng.integers(-n, n, (k, m)), rng.integers(-m, m, (n, k))
        cases = {
            "rows": (rows, x[rows]),
            "columns": (columns, x[:, columns]),
            "along0": (along0, np.take_along_axis(x, along0, 0)),
            "along1": (along1, np.take_along_axis(x, along1, 1)),
            "points": (np.stack([rows, columns], -1), x[rows, columns]),
            "slices": (rows[:, None], x[rows]),
        }
        for name, (index, want) in cases.items():
            np.testing.assert_array_equal(exe[name](x, index.astype(kind)), want, f"{name} {n} {m} {k}")
            axis = 1 if name in ("columns", "along1") else 0
            for place in {0, index.size // 2, index.size - 1} if index.size else ():
                for wrong in ((n, m)[axis], -(n, m)[axis] - 1):
                    bad = index.astype(kind)
                    bad.reshape(-1)[place - place % 2 if name == "points" else place] = wrong
                    with pytest.raises(RuntimeIndexError, match=rf"index {wrong} is out of range for axis {axis}"):
                        exe[name](x, bad)


def test_scatters_in_order() -> None:
    """Of equal places the last wins, or all combine; rows of any width."""
    n, m, k = rx.dim("n"), rx.dim("m"), rx.dim("k")
    bb = rx.BlockBuilder()
    for how in ("none", "add"):
        x, i, u = (
            rx.Var(name, rx.TensorType(shape, dtype))
            for name, shape, dtype in (("x", (n, m), "float32"), ("i", (k, 1), "int64"), ("u", (k, m), "float32"))
        )
        with bb.function(how, [x, i, u]):
            with bb.dataflow():
                out = bb.emit_output(rx.op.scatter_nd(x, i, u, reduction=how))
            bb.emit_func_output(out)
    exe = rx.compile(bb.get(), threads=2)
    rng = np.random.default_rng(0)
    for rows, width, count in ((1, 1, 3), (4, 0, 2), (5, 7, 0), (6, 33, 40), (50, 2100, 70)):
        x, u = rng.standard_normal((rows, width), np.float32), rng.standard_normal((count, width), np.float32)
        i = rng.integers(-rows, rows, (count, 1))
        wrote, added = x.copy(), x.copy()
        wrote[i[:, 0]] = u
        np.add.at(added, i[:, 0], u)
        np.testing.assert_array_equal(exe["none"](x, i, u), wrote)
        np.testing.assert_allclose(exe["add"](x, i, u), added, 1e-5, 1e-5)
        if count:
            i[-1] = rows
            with pytest.raises(RuntimeIndexError, match=f"index {rows} is out of range for axis 0"):
                exe["none"](x, i, u)


def test_flips() -> None:
    """Falling addresses are read as vectors, their ends singly."""
    exe = build({"main": ("int8", lambda x: rx.op.flip(x, axes=(1,)))})
    for shape in (*SIZES, *EMPTY):
        x = matrices("int8", shape)[0]
        np.testing.assert_array_equal(exe["main"](x), x[:, ::-1])
