"""Extrema are taken before monotone functions: the promise of each such function, and what the pass makes of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import relaxir as rx
from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import TupleGetItem
from relaxir.ir.op import Op
from relaxir.ir.types import TupleType
from relaxir.ops import OPS, op
from relaxir.ops.elementwise import Unary
from relaxir.ops.rectifier import AlphaAttrs, LeakyReluAttrs, SeluAttrs
from relaxir.ops.select import ClipAttrs
from relaxir.passes import Canonicalize, DeadCode, HoistMonotone, Pipeline
from tests.building import Emit, dataflow

N, M = rx.dim("n"), rx.dim("m")
HOIST = Pipeline((HoistMonotone(), Canonicalize(), DeadCode()))
EXTREMA = ("max", "min", "min_max")
COMPILED = ("clip", "negative", "relu", "tanh")
Case = tuple[Op[Any], Attrs, str]


def cases() -> list[Case]:
    """Every operator of one element that calls itself monotone, with the attributes of its examples."""
    found: dict[tuple[str, Attrs, str], Case] = {}
    for o in OPS:
        for e in o.examples if isinstance(o, Unary) or o.name == "clip" else ():
            for dtype in ("float32", "float16", "int8"):
                if len(e.args) == 1 and e.args[0].startswith(("f32", "i8")) and o.monotone(e.attrs, dtype):
                    if dtype == "int8" and not e.args[0].startswith("i8"):
                        continue
                    found.setdefault((o.name, e.attrs, dtype), (o, e.attrs, dtype))
    return list(found.values())


def name_of(case: Case) -> str:
    return f"{case[0].name}-{case[2]}"


def points(dtype: str) -> np.ndarray:
    """Values of a dtype in rising order, both ends among them."""
    if dtype == "int8":
        return np.arange(-128, 128).astype(np.int8)
    near = np.concatenate([np.linspace(-12, 12, 401), np.linspace(-1e-3, 1e-3, 21), [-3e4, -200.0, 200.0, 3e4]])
    return np.sort(np.concatenate([[-np.inf, np.inf], near])).astype(dtype)


def build(
    make: Callable[[Emit, rx.Var], object], dtype: str = "float32", shape: tuple[Any, ...] = (N, M)
) -> rx.IRModule:
    return dataflow(make, rx.Var("x", rx.TensorType(shape, dtype)))


def ends(emit: Emit, call: Any) -> object:
    """The result of a reduction, that of `min_max` as two."""
    value = emit(call)
    if isinstance(value.type, TupleType):
        return tuple(emit(TupleGetItem(value, k)) for k in range(2))
    return value


def order(module: rx.IRModule) -> list[str]:
    """Operators of the function, in order."""
    lines = [line.partition(" = R.")[2].partition("(")[0] for line in str(module).splitlines() if " = R." in line]
    return [line.rstrip("_") for line in lines if line not in ("dim", "dims_to_tensor", "reshape", "equal", "where")]


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_promise(case: Case) -> None:
    """Results rise or fall with the operand, up to the rounding of the reference; NaN comes of NaN only."""
    o, attrs, dtype = case
    x = points(dtype)
    t = rx.TensorType(x.shape, dtype)
    y = np.asarray(o.evaluate((x,), (t,), attrs, t))
    assert not np.isnan(y).any()
    steps = np.diff(y.astype(np.float64)) if y.dtype.kind == "i" else np.diff(np.clip(y, -6e4, 6e4).astype(np.float64))
    slack = 4 * np.finfo(dtype).eps * np.abs(np.clip(y[1:], -6e4, 6e4)) if y.dtype.kind == "f" else 0
    assert (steps * o.monotone(attrs, dtype) >= -slack).all()
    if y.dtype.kind == "f":
        nan = np.full(1, np.nan, dtype)
        assert np.isnan(o.evaluate((nan,), (rx.TensorType((1,), dtype),), attrs, rx.TensorType((1,), dtype))).all()


@pytest.mark.parametrize("case", cases(), ids=name_of)
def test_agrees(case: Case) -> None:
    """Before and after the pass, some compiled: NaN, infinities, empty rows, no rows, kept axes."""
    o, attrs, dtype = case
    keywords = {f: getattr(attrs, f) for f in getattr(attrs, "__dataclass_fields__", {})}

    def make(emit: Emit, x: rx.Var) -> object:
        y = emit(getattr(op, o.name)(x, **keywords))
        found: list[Any] = []
        for name, axes, keepdims in (("max", (1,), False), ("min", (0,), True), ("min_max", None, False)):
            made = ends(emit, getattr(op, name)(y, axes=axes, keepdims=keepdims))
            found.extend(made if isinstance(made, tuple) else (made,))
        return tuple(found)

    module = build(make, dtype)
    after = HOIST(module)
    assert order(after)[0] in EXTREMA
    ways = [lambda a: rx.evaluate(after, "main", a)]
    if o.name in COMPILED:
        ways.append(rx.compile(module)["main"])
    rng = np.random.default_rng(1)
    for shape in ((3, 5), (0, 4), (4, 0), (0, 0), (2, 40)):
        x = rng.choice(points(dtype), shape)
        for special in (False, True):
            if special and x.size and dtype != "int8":
                x[rng.integers(shape[0]), rng.integers(shape[1])] = np.nan
            want = rx.evaluate(module, "main", x)
            tolerance = 2e-3 if dtype == "float16" else 1e-6
            for way in ways:
                for a, b in zip(way(x), want, strict=True):
                    np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("name", EXTREMA)
def test_chain(name: str) -> None:
    """Several functions, two of which fall; the other reader computes them where it needs them."""

    def make(emit: Emit, x: rx.Var) -> object:
        y = emit(op.sigmoid(emit(op.negative(emit(op.tanh(emit(op.negative(x))))))))
        made = ends(emit, getattr(op, name)(y, axes=(-1,), keepdims=True))
        several = made if isinstance(made, tuple) else (made,)
        return (*several, emit(op.multiply(y, 2.0)))

    module = build(make)
    after = HOIST(module)
    assert order(after)[:5] == ["negative", "tanh", "negative", "sigmoid", name]
    x = np.random.default_rng(0).standard_normal((3, 7)).astype(np.float32)
    assert str(after).count(f"R.{name}") == 1
    for a, b in zip(rx.evaluate(after, "main", x), rx.evaluate(module, "main", x), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-6)


def test_falling_functions_exchange_maximum_and_minimum() -> None:
    assert "R.min_(" in str(HOIST(build(lambda e, x: e(op.max(e(op.negative(x)), axes=(0,))))))
    assert "R.max_(" in str(HOIST(build(lambda e, x: e(op.min(e(op.negative(x)), axes=(0,))))))


def test_no_choice_where_something_is_reduced() -> None:
    after = str(HOIST(build(lambda e, x: e(op.max(e(op.tanh(x)), axes=(1,))), shape=(N, 4))))
    assert "where" not in after
    assert "dims_to_tensor" not in after


def a_result(emit: Emit, x: rx.Var) -> object:
    y = emit(op.tanh(x))
    return emit(op.max(y)), y


def two_readers(emit: Emit, x: rx.Var) -> object:
    y = emit(op.tanh(x))
    return emit(op.max(y)), emit(op.add(y, 1.0)), emit(op.exp(y))


def a_product(emit: Emit, x: rx.Var) -> object:
    y = emit(op.tanh(x))
    return emit(op.max(y)), emit(op.matmul(y, np.ones((4, 2), np.float32)))


STAYS: dict[str, Callable[[Emit, rx.Var], object]] = {
    "nan of numbers": lambda e, x: e(op.max(e(op.sqrt(x)))),
    "nan of infinity": lambda e, x: e(op.max(e(op.softsign(x)))),
    "neither rises nor falls": lambda e, x: e(op.max(e(op.abs(x)))),
    "another reduction": lambda e, x: e(op.sum(e(op.tanh(x)))),
    "single elements": lambda e, x: e(op.max(e(op.tanh(x)), axes=())),
    "two operands": lambda e, x: e(op.max(e(op.add(x, 1.0)))),
    "a result": a_result,
    "two readers": two_readers,
    "a product": a_product,
    "another dtype": lambda e, x: e(op.max(e(op.astype(x, dtype="float64")))),
}


@pytest.mark.parametrize("why", STAYS)
def test_stays(why: str) -> None:
    module = build(STAYS[why], shape=(N, 4))
    assert HoistMonotone()(module) is module


@pytest.mark.parametrize(
    ("o", "attrs", "dtype"),
    [
        ("negative", Attrs(), "int32"),
        ("leaky_relu", LeakyReluAttrs(0.0), "float32"),
        ("leaky_relu", LeakyReluAttrs(-0.1), "float32"),
        ("elu", AlphaAttrs(-1.0), "float32"),
        ("celu", AlphaAttrs(-1.0), "float32"),
        ("selu", SeluAttrs(1.0, 0.0), "float32"),
        ("thresholded_relu", AlphaAttrs(0.0), "float32"),
    ],
)
def test_attributes_that_break_the_order(o: str, attrs: Attrs, dtype: str) -> None:
    found = next(each for each in OPS if each.name == o)
    assert found.monotone(attrs, dtype) == 0


def test_operands_of_bounds_stay() -> None:
    """A clip whose bounds are data is a function of three operands."""
    assert next(o for o in OPS if o.name == "clip").monotone(ClipAttrs(0.0, 1.0), "float32") == 1
    bound = np.float32(0.5)
    module = build(lambda e, x: e(op.max(e(op.clip(x, bound)))))
    assert HoistMonotone()(module) is module


def test_hard_sigmoid_may_fall() -> None:
    module = build(lambda e, x: e(op.max(e(op.hard_sigmoid(x, alpha=-0.3)))))
    assert "R.min_(" in str(HOIST(module))
    x = np.float32([[1, -2], [7, 0]])
    np.testing.assert_allclose(rx.evaluate(HOIST(module), "main", x), rx.evaluate(module, "main", x), rtol=1e-6)


SHAPES = {
    "pairs": (((N, 1), (1, M)), None),
    "shared axis": (((N, 1, 3), (1, M, 3)), None),
    "kept axis": (((N, 1, 3), (1, M, 3)), (0, 1)),
    "other ranks": (((M, 1), (N, 1, 4)), (0, 1, 2)),
    "known": (((4, 1), (1, 3)), (0, 1)),
}


def pairs(shapes: tuple[tuple[Any, ...], ...], axes: tuple[int, ...] | None, keepdims: bool, dtype: str) -> rx.IRModule:
    """All three extrema of the sums of two broadcast operands, the last of their hyperbolic tangents."""
    bb = rx.BlockBuilder()
    params = [rx.Var(f"x{k}", rx.TensorType(s, dtype)) for k, s in enumerate(shapes)]
    with bb.function("main", params):
        with bb.dataflow():
            y = bb.emit(op.add(*params))
            made = [bb.emit(getattr(op, name)(y, axes=axes, keepdims=keepdims)) for name in ("max", "min")]
            both = bb.emit(op.min_max(bb.emit(op.tanh(y)) if dtype != "int32" else y, axes=axes, keepdims=keepdims))
            results = tuple(bb.emit_output(v) for v in (*made, bb.item(both, 0), bb.item(both, 1)))
        bb.emit_func_output(results)
    return bb.get()


@pytest.mark.parametrize("dtype", ["float32", "float16"])
@pytest.mark.parametrize("name", SHAPES)
def test_sums_of_pairs(name: str, dtype: str) -> None:
    """No tensor of all sums is reduced; NaN of opposite infinities, of NaN, and nothing at all are as before."""
    shapes, axes = SHAPES[name]
    module = pairs(shapes, axes, name != "kept axis", dtype)
    after = HOIST(module)
    assert order(after).count("tanh") == 2
    assert order(after)[:2] == ["min_max", "min_max"]
    main = rx.compile(module)["main"] if dtype == "float32" else None
    rng = np.random.default_rng(3)
    pool = np.array([0.5, -1.25, 3.0, 1e4, -1e4, 0.0, np.inf, -np.inf, np.nan], dtype)
    for n, m in ((3, 4), (1, 1), (0, 3), (2, 0), (0, 0)):
        for kinds in (6, 7, 8, 9, 9):
            sizes = [[{N: n, M: m}.get(d, d) for d in s] for s in shapes]
            x = [rng.choice(pool[:kinds], s) for s in sizes]
            if kinds == 8:
                x[0][x[0] == np.inf] = -np.inf  # infinities of one sign in each operand
                x[1][x[1] == -np.inf] = np.inf
            want = rx.evaluate(module, "main", *x)
            for got in (rx.evaluate(after, "main", *x), *([] if main is None else [main(*x)])):
                for a, b in zip(got, want, strict=True):
                    np.testing.assert_allclose(a, b, rtol=2e-3 if dtype == "float16" else 1e-6)


@pytest.mark.parametrize(
    ("shapes", "axes", "dtype"),
    [
        (((N, 1), (1, M)), None, "int32"),  # sums of integers wrap
        (((N, 1), (1, M)), (0,), "float32"),  # one operand has one element along the axis, the other has all others
        (((N, M), (1, M)), None, "float32"),
        (((N, M), (N, M)), None, "float32"),
    ],
)
def test_other_sums_stay(shapes: tuple[tuple[Any, ...], ...], axes: tuple[int, ...] | None, dtype: str) -> None:
    assert order(HOIST(pairs(shapes, axes, False, dtype)))[0] == "add"
