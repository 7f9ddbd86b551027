"""Sizes that depend on data: decomposed operators, run kernel by kernel in the interpreter, equal their references."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from relaxir import ops
from relaxir.ir import Bind, Binding, BlockBuilder, CallTIR, InferCtx, IRModule, OpCall, TensorType, TupleType, Var
from relaxir.ir.rewrite import Rewriter, all_bindings
from relaxir.ops.indexing import slice_range
from relaxir.passes import Pipeline
from relaxir.pipelines import GRAPH, LOWER
from relaxir.runtime.interp import run_graph
from relaxir.support.errors import RuntimeFailure, RuntimeIndexError, RuntimeShapeError
from relaxir.sym import Facts, Relation, dim

n, m = dim("n", max=8), dim("m")
HOST = ("tensor_to_shape", "reshape")


class Expanding(BlockBuilder):
    """Decomposes every operator while it is emitted."""

    def emit(self, value: Any, *rest: Any) -> Any:
        args = tuple(self.normalize(a) for a in getattr(value, "args", ()))
        result = value.op.decompose(args, value.attrs, self) if hasattr(value, "op") else None
        return super().emit(value, *rest) if result is None else self.normalize(result)


class Lowering(Rewriter):
    """Replaces operators by their kernels."""

    def __init__(self) -> None:
        super().__init__()
        self.kernels: dict[str, Any] = {}

    def binding(self, binding: Binding) -> Iterable[Binding]:
        (new,) = super().binding(binding)
        if not isinstance(new, Bind) or not isinstance(new.value, OpCall) or new.value.op.name in HOST:
            return (new,)
        call = new.value
        outs = call.type.fields if isinstance(call.type, TupleType) else (call.type,)
        func = call.op.lower(tuple(a.type for a in call.args), call.attrs, outs)
        name = f"{call.op.name}_{len(self.kernels)}"
        self.kernels[name] = func
        return (replace(new, value=CallTIR(name, call.args, func.dims, call.type)),)


def program(name: str, types: tuple[TensorType, ...], **attrs: Any) -> IRModule:
    bb = Expanding()
    params = tuple(Var(f"p{i}", t) for i, t in enumerate(types))
    with bb.function("main", params):
        bb.emit_func_output(bb.emit(getattr(ops.op, name)(*params, **attrs)))
    module = bb.get()
    lowering = Lowering()
    main = lowering.function(module.graph_functions()["main"])
    return module.with_functions({"main": main, **lowering.kernels})


def run(name: str, *arrays: np.ndarray, types: tuple[TensorType, ...] | None = None, **attrs: Any) -> Any:
    found = types or tuple(TensorType(a.shape, a.dtype) for a in arrays)
    return run_graph(program(name, found, **attrs), "main", arrays)


def same(got: Any, want: Any) -> None:
    got, want = (v if isinstance(v, tuple) else (v,) for v in (got, want))
    for g, w in zip(got, want, strict=True):
        assert g.dtype == w.dtype
        np.testing.assert_array_equal(g, w)


def reference(name: str, *arrays: np.ndarray, **attrs: Any) -> Any:
    op = ops.TABLE[name]
    return op.reference(arrays, op.Attrs(**attrs))


rng = np.random.default_rng(7)


@pytest.mark.parametrize("shape", [(), (5,), (3, 4), (0, 2), (2, 1, 3)])
@pytest.mark.parametrize("dtype", ["float32", "bool", "int8"])
def test_nonzero(shape: tuple[int, ...], dtype: str) -> None:
    x = np.asarray(rng.integers(-1, 2, shape)).astype(dtype)
    same(run("nonzero", x), reference("nonzero", x))
    for fill in (0, 1):
        same(run("nonzero", np.full(shape, fill, dtype)), reference("nonzero", np.full(shape, fill, dtype)))


def test_nonzero_of_symbolic_shape() -> None:
    module = program("nonzero", (TensorType((n, m), "float32"),))
    for shape in ((0, 3), (1, 1), (4, 5)):
        x = rng.integers(0, 2, shape).astype(np.float32)
        same(run_graph(module, "main", (x,)), np.stack(np.nonzero(x)))


def test_bounds_are_known() -> None:
    """The count is a fresh dimension, bounded by a constant in its range or by the size in a checked relation."""
    module = program("nonzero", (TensorType((3, 4), "bool"),))
    found = [d for b in all_bindings(module.graph_functions()["main"].body) for d in getattr(b, "defines", ())]
    assert [(d.min, d.max) for d in found] == [(0, 12)]


@pytest.mark.parametrize(("most", "limits"), [(9, (2, 9)), (n, (2, 8)), (None, (2, None))])
def test_bounds_of_sizes_from_data(most: Any, limits: tuple[int, int | None]) -> None:
    """Constants enter the symbol's range; a dim becomes a relation to check, and bounds it by its own range."""
    ctx = InferCtx("tensor_to_shape", Facts((n,)), ("n",), strict=True)
    op = ops.TABLE["tensor_to_shape"]
    shape = op.infer((TensorType((), "int64"),), op.Attrs((2,), (most,), ("k",)), ctx)
    (k,) = shape.dims
    assert (k.min, k.max, ctx.defined) == (*limits, [k])
    assert [c.relation for c in ctx.checks] == ([Relation("<=", k, n)] if most == n else [])


@pytest.mark.parametrize("axis", [None, 0, 1, -1])
@pytest.mark.parametrize("length", [0, 1, 3])
def test_compress(axis: int | None, length: int) -> None:
    x = rng.normal(size=(3, 4)).astype(np.float32)
    condition = rng.integers(0, 2, length).astype(bool)
    same(run("compress", x, condition, axis=axis), reference("compress", x, condition, axis=axis))


def test_compress_beyond_the_axis() -> None:
    with pytest.raises(RuntimeIndexError, match="index 2 is out of range for axis 0 of extent 2"):
        run("compress", np.zeros(2, np.float32), np.array([False, False, True]), axis=0)


@pytest.mark.parametrize("in_order", [True, False])
@pytest.mark.parametrize(
    ("shape", "axis"), [((7,), None), ((7,), 0), ((4, 3), None), ((6, 2), 0), ((2, 6), 1), ((0,), 0)]
)
def test_unique(shape: tuple[int, ...], axis: int | None, in_order: bool) -> None:
    for dtype in ("int64", "float32"):
        x = rng.integers(0, 3, shape).astype(dtype)
        got = run("unique", x, axis=axis, sorted=in_order)
        same(got, reference("unique", x, axis=axis, sorted=in_order))
        if x.size:
            assert np.array_equal(np.take(got[0], got[2], axis or 0).reshape(shape), x)
            assert got[3].sum() == len(got[2])


def test_unique_puts_equal_nans_last() -> None:
    x = np.array([np.nan, 1, np.nan, -np.inf], np.float32)
    y, indices, inverse, counts = run("unique", x)
    np.testing.assert_array_equal(y, np.array([-np.inf, 1, np.nan], np.float32))
    assert (indices.tolist(), inverse.tolist(), counts.tolist()) == ([3, 1, 0], [2, 1, 2, 0], [1, 1, 2])


@pytest.mark.parametrize("args", [(0, 7, 2), (5, -4, -3), (3, 3, 1), (4, 0, 1), (0.0, 1.0, 0.3)])
def test_range(args: tuple[float, ...]) -> None:
    dtype = "float32" if isinstance(args[0], float) else "int64"
    got = run("range", *(np.array(a, dtype) for a in args))
    np.testing.assert_allclose(got, np.arange(*args, dtype=dtype), rtol=1e-6)


def test_range_of_step_zero() -> None:
    with pytest.raises(RuntimeShapeError, match="step must not be 0"):
        run("range", *(np.array(a) for a in (0, 7, 0)))


@pytest.mark.parametrize("center", [False, True])
@pytest.mark.parametrize(("most", "iou", "least"), [(3, 0.3, 0.2), (0, 0.5, 0.0), (9, 0.0, -1.0), (2, 1.0, 0.9)])
def test_suppression(center: bool, most: int, iou: float, least: float) -> None:
    boxes = rng.uniform(0, 1, (2, 7, 4)).astype(np.float32)
    scores = rng.integers(0, 9, (2, 3, 7)).astype(np.float32) / 8
    arrays = (boxes, scores, np.array(iou, np.float32), np.array(least, np.float32))
    same(
        run("non_max_suppression", *arrays, max_boxes=most, center=center),
        reference("non_max_suppression", *arrays, max_boxes=most, center=center),
    )


def test_sorting_of_special_values() -> None:
    """NaN is the largest, equal elements keep their order, in every direction."""
    x = np.array([1, np.nan, -0.0, 0.0, np.inf, np.nan, -np.inf, 1], np.float32)
    assert run("argsort", x).tolist() == [6, 2, 3, 0, 7, 4, 1, 5]
    assert run("argsort", x, descending=True).tolist() == [1, 5, 4, 0, 7, 2, 3, 6]
    values, positions = run("topk", x, k=3)
    assert positions.tolist() == [1, 5, 4]
    assert run("topk", x, k=2, largest=False)[1].tolist() == [6, 2]
    np.testing.assert_array_equal(values, x[positions])


@pytest.mark.parametrize("size", [0, 1, 2, 3, 5, 8, 17, 33])
def test_sort_sizes(size: int) -> None:
    x = rng.integers(0, 5, (2, size)).astype(np.int32)
    same(run("argsort", x), np.argsort(x, kind="stable"))
    same(run("sort", x, axis=0), np.sort(x, axis=0))


@pytest.mark.parametrize("index", [4, -5])
@pytest.mark.parametrize(
    ("name", "attrs"),
    [("take", {}), ("gather_elements", {}), ("gather_nd", {}), ("scatter_elements", {}), ("scatter_nd", {})],
)
def test_indices_out_of_range(name: str, attrs: dict[str, Any], index: int) -> None:
    """The error names the index, the axis and its extent; nothing outside is touched."""
    x, indices = np.zeros(4, np.float32), np.array([0, index])
    if name.endswith("nd"):
        indices = indices[:, None]
    updates = (np.ones(2, np.float32),) if name.startswith("scatter") else ()
    message = f"{name}: index {index} is out of range for axis 0 of extent 4"
    with pytest.raises(RuntimeIndexError, match=message):
        run(name, x, indices, *updates, **attrs)


def test_equal_places_of_a_scatter() -> None:
    """The last update wins; reductions see all of them."""
    x, places, updates = np.zeros(2, np.int64), np.array([1, 1, -1]), np.array([5, 6, 7])
    assert run("scatter_elements", x, places, updates).tolist() == [0, 7]
    assert run("scatter_elements", x, places, updates, reduction="add").tolist() == [0, 18]
    assert run("scatter_nd", x, places[:, None], updates).tolist() == [0, 7]
    assert run("scatter_nd", x, places[:, None], updates, reduction="max").tolist() == [0, 7]


def test_shape_values() -> None:
    x = np.zeros((2, 5), np.float32)
    types = (TensorType((n, m), "float32"),)
    assert run("size", x, types=types).tolist() == 10
    bb = Expanding()
    (p,) = (Var("x", types[0]),)
    with bb.function("main", (p,)):
        shape = ops.TABLE["shape_of"].decompose((p,), ops.TABLE["shape_of"].Attrs(), bb)
        bb.emit_func_output(bb.emit(ops.op.shape_to_tensor(shape)))
    assert run_graph(bb.get(), "main", (x,)).tolist() == [2, 5]


def sliced_at_run_time() -> IRModule:
    """``x[s:e:k]`` with all three read from a tensor."""
    bb = BlockBuilder()
    x, t = Var("x", TensorType((m,), "int64")), Var("t", TensorType((3,), "int64"))
    with bb.function("main", (x, t)):
        read = bb.emit(ops.op.tensor_to_shape(t, min=(-(2**63),) * 3, names=("s", "e", "k")))
        found = slice_range(*read.type.dims, m, Facts((m, *read.type.dims)))
        attrs = {"axes": (0,), "begin": (found.begin,), "size": (found.size,), "step": (found.step,)}
        bb.emit_func_output(bb.emit(ops.op.strided_slice(x, **attrs)))
    return bb.get()


@pytest.mark.parametrize("stage", [(), GRAPH, (*GRAPH, *LOWER)], ids=["built", "graph", "lowered"])
def test_slices_from_data(stage: tuple[Any, ...]) -> None:
    """One program for every start, end and step; sentinels as importers pass them on, beyond every axis."""
    module = Pipeline(stage)(sliced_at_run_time())
    low, high = -(2**48), 2**48
    for s, e, k in ((0, high, 1), (-1, low, -1), (-3, -1, 1), (high, low, -2), (1, 4, 2), (low, high, 3), (3, 1, 1)):
        for size in (0, 5):
            x = np.arange(size)
            same(run_graph(module, "main", (x, np.array([s, e, k]))), x[s:e:k])
    with pytest.raises(RuntimeFailure, match="does not fit 64 bits"):
        run_graph(module, "main", (np.arange(3), np.array([0, 2**63 - 1, 1])))
    if stage:
        with pytest.raises(RuntimeShapeError, match="step"):
            run_graph(module, "main", (np.arange(3), np.array([0, 1, 0])))
