"""What users of other compilers reported as broken: one row for each property, with the right answers beside the inputs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from onnx import ModelProto, TensorProto

from tests.frontends.models import f32, graph, i64, model, node

NAN, INF = np.nan, np.inf
LEAST, MOST = -(2**63), 2**63 - 1
Arrays = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Call:
    """Operands, and the results; or the words of the error."""

    feeds: Mapping[str, np.ndarray]
    want: Arrays = ()
    words: str = ""


@dataclass(frozen=True)
class Row:
    """A model, and calls of it: one build has to serve them all."""

    proto: ModelProto
    calls: tuple[Call, ...]


def call(*want: Any, **feeds: Any) -> Call:
    """A call that gives results."""
    return Call(feeds, tuple(np.asarray(w) for w in want))


def refused(words: str, **feeds: Any) -> Call:
    """A call that fails, in these words."""
    return Call(feeds, words=words)


def numbers(*shape: int) -> np.ndarray:
    """1, 2, 3 ... as floats."""
    return np.arange(1, 1 + np.prod(shape), dtype=np.float32).reshape(shape)


# ---- shapes ----------------------------------------------------------------------------------------------------------

BROADCASTING: Final[Mapping[str, Callable[..., Any]]] = MappingProxyType(
    {"Add": np.add, "Mul": np.multiply, "Sub": np.subtract, "Div": np.divide, "Max": np.maximum, "Less": np.less}
)


def broadcasting() -> Iterator[tuple[str, Row]]:
    """Two symbols, either of which may be 1."""
    for op, f in BROADCASTING.items():
        proto = model(
            [node(op, "a b", "c")], "a float32[n,4]; b float32[m,4]", f"c {'bool' if op == 'Less' else 'float32'}"
        )
        sizes = ((1, 2), (2, 2), (3, 1), (1, 0), (0, 1), (1, 1))
        calls = [call(f(numbers(n, 4), 9 * numbers(m, 4)), a=numbers(n, 4), b=9 * numbers(m, 4)) for n, m in sizes]
        yield f"H01 {op}", Row(proto, (*calls, refused(r"(?s)2.*3", a=numbers(2, 4), b=numbers(3, 4)), calls[0]))
    proto = model([node("Where", "c a b", "y")], "c bool[n,1]; a float32[n,m]; b float32[m]", "y float32")
    calls = [
        call(np.where(c, a, b), c=c, a=a, b=b)
        for n, m in ((1, 1), (3, 1), (1, 3), (0, 2), (2, 0))
        for c, a, b in [(np.arange(n).reshape(n, 1) % 2 == 0, numbers(n, m), -numbers(m))]
    ]
    yield "H01 Where", Row(proto, tuple(calls))


def any_size() -> Iterator[tuple[str, Row]]:
    """No size is special: 1, 0 and others with one build."""
    nodes = [node("ReduceSum", "x axis", "s", keepdims=1), node("Add", "x s", "y")]
    proto = model(nodes, "x float32[n,3]", "y float32", axis=i64([0]))
    calls = [call(np.full((n, 3), n + 1, np.float32), x=np.ones((n, 3), np.float32)) for n in (1, 2, 7, 0)]
    yield "H02 sum", Row(proto, tuple(calls))
    proto = model([node("Softmax", "x", "y", axis=0)], "x float32[n,k]", "y float32")
    ones = [np.ones((n, k), np.float32) for n, k in ((1, 1), (1, 3), (4, 1), (0, 2), (2, 0))]
    yield "H02 softmax", Row(proto, tuple(call(x / max(1, x.shape[0]), x=x) for x in ones))
    proto = model([node("MatMul", "a b", "y")], "a float32[n,k]; b float32[k,m]", "y float32")
    sizes = ((1, 1, 1), (1, 2, 3), (0, 2, 3), (2, 0, 3), (2, 3, 0), (17, 1, 5))
    pairs = [(numbers(n, k), numbers(k, m)) for n, k, m in sizes]
    yield "H02 product", Row(proto, tuple(call(a @ b, a=a, b=b) for a, b in pairs))


def reshapes() -> Iterator[tuple[str, Row]]:
    """0 copies by place, -1 is inferred, the target may be data."""
    x = numbers(2, 2, 3, 2)
    proto = model([node("Reshape", "x t", "y")], "x float32[a,b,c,d]", "y float32", t=i64([-1, 0, 0]))
    yield (
        "H03 copies",
        Row(
            proto,
            (
                call(x.reshape(4, 2, 3), x=x),
                call(np.zeros((0, 3, 4), np.float32), x=np.zeros((0, 3, 4, 5), np.float32)),
            ),
        ),
    )
    proto = model([node("Reshape", "x t", "y", allowzero=1)], "x float32[a,b]", "y float32", t=i64([3, 0]))
    yield "H03 real zero", Row(proto, (call(np.zeros((3, 0), np.float32), x=np.zeros((0, 2), np.float32)),))
    x = numbers(2, 3, 4)
    given = {3: [4, -1, 3], 1: [-1], 2: [0, -1]}
    for rank, target in given.items():
        proto = model([node("Reshape", "x t", "y")], f"x float32[a,b,c]; t int64[{rank}]", "y float32")
        shape = [x.shape[i] if t == 0 else t for i, t in enumerate(target)]
        wrong = [refused(r"reshape|Reshape", x=x, t=i64([5, -1, 3]))] if rank == 3 else []
        yield f"H03 target of {rank}", Row(proto, (call(x.reshape(shape), x=x, t=i64(target)), *wrong))


BOUNDS: Final = (
    (9, 0, -1), (-1, LEAST, -3), (0, 5, -1), (100, -100, -4), (2, 2, 1), (-3, MOST, 2), (-100, 100, 3), (9, LEAST, -1), (3, 8, MOST),
    (MOST, LEAST, LEAST), (-5, -1, 2), (20, 30, 1),
)  # fmt: skip


def slices() -> Iterator[tuple[str, Row]]:
    """Bounds beyond the ends, steps of either sign, constants or data."""
    inputs = "x float32[n]; s int64[1]; e int64[1]; p int64[1]"
    proto = model([node("Slice", "x s e axis p", "y")], inputs, "y float32", axis=i64([0]))
    calls = [
        call(x[s : None if s and e == LEAST else e : p], x=x, s=i64([s]), e=i64([e]), p=i64([p]))
        for x in (numbers(10), numbers(1), numbers(0))
        for s, e, p in BOUNDS
    ]
    yield "H04 one axis", Row(proto, tuple(calls))
    proto = model(
        [node("Slice", "x s e axes p", "y")],
        "x float32[n,m]",
        "y float32",
        s=i64([-1, 1]),
        e=i64([LEAST, MOST]),
        axes=i64([1, 0]),
        p=i64([-2, 1]),
    )
    yield (
        "H04 two axes",
        Row(proto, tuple(call(x[1:, ::-2], x=x) for x in (numbers(3, 4), numbers(1, 1), numbers(4, 0)))),
    )


def from_data() -> Iterator[tuple[str, Row]]:
    """Sizes that depend on data, 0 among them."""
    nodes = [
        node("NonZero", "x", "i"),
        node("Cast", "i", "f", to=TensorProto.FLOAT),
        node("ReduceSum", "f a", "s", keepdims=0),
    ]
    proto = model(nodes, "x int32[a,b]", "i int64; s float32", a=i64([-1]))
    arrays = [np.int32(x) for x in ([[1, 0, 2], [0, 0, 3]], [[0, 0, 0], [0, 0, 0]], [[5]], np.zeros((0, 2)))]
    places = [np.stack(np.nonzero(x)) for x in arrays]
    yield (
        "H05 places",
        Row(proto, tuple(call(p, p.sum(1).astype(np.float32), x=x) for x, p in zip(arrays, places, strict=True))),
    )
    proto = model(
        [node("Compress", "x c", "y", axis=0), node("Mul", "y y", "z")], "x float32[n,2]; c bool[n]", "z float32"
    )
    masks = [np.array(m, bool) for m in ([1, 0, 1], [0, 0, 0], [1, 1, 1])]
    yield "H05 rows", Row(proto, tuple(call(numbers(3, 2)[m] ** 2, x=numbers(3, 2), c=m) for m in masks))
    proto = model([node("Range", "a b s", "y")], "a int64[]; b int64[]; s int64[]", "y int64")
    ranges = ((0, 5, 1), (5, 0, -2), (0, 5, -1), (3, 3, 1))
    yield (
        "H05 ranges",
        Row(proto, tuple(call(np.arange(*r, dtype=np.int64), a=i64(r[0]), b=i64(r[1]), s=i64(r[2])) for r in ranges)),
    )


def loops() -> Iterator[tuple[str, Row]]:
    """Trips that are none, conditions that end early, results of each trip; branches of different sizes."""
    body = graph(
        [node("Add", "v v", "w"), node("Identity", "w", "row"), node("Gather", "w zero", "first"), node("Less", "first limit", "goes")],
        "i int64[]; c bool[]; v float32[n]", "goes bool[]; w float32[n]; row float32[n]", zero=i64(0),
    )  # fmt: skip
    proto = model([node("Loop", "trips start v0", "last rows", body=body)], "trips int64[]; start bool[]; v0 float32[n]; limit float32[]",
                  "last float32; rows float32")  # fmt: skip
    calls = []
    for trips, start, limit in ((3, True, 1e9), (0, True, 1e9), (5, False, 1e9), (10, True, 4), (-3, True, 1e9)):
        v, rows, goes = f32([1, 2]), [np.zeros((0, 2), np.float32)], start
        for _ in range(trips):
            if goes:
                v = v + v
                rows.append(v[None])
                goes = v[0] < limit
        calls.append(
            call(v, np.concatenate(rows), trips=i64(trips), start=np.array(start), v0=f32([1, 2]), limit=f32(limit))
        )
    yield "H06 loop", Row(proto, tuple(calls))
    then = graph([node("Concat", "x x", "t", axis=0)], "", "t float32")
    other = graph([node("Slice", "x zero one", "e")], "", "e float32", zero=i64([0]), one=i64([1]))
    proto = model([node("If", "c", "y", then_branch=then, else_branch=other)], "x float32[n]; c bool[]", "y float32")
    x = numbers(3)
    yield (
        "H06 branches",
        Row(proto, (call(np.concatenate([x, x]), x=x, c=np.array(True)), call(x[:1], x=x, c=np.array(False)))),
    )


def shape_arithmetic() -> Iterator[tuple[str, Row]]:
    """Sizes computed from shapes by operators, used as bounds."""
    nodes = [node("Shape", "x", "s"), node("Gather", "s zero", "n"), node("Div", "n seven", "end"), node("Unsqueeze", "end axis", "e"),
             node("Slice", "x axis e axis", "part"), node("ReduceSum", "part", "sum", keepdims=0)]  # fmt: skip
    proto = model(nodes, "x float32[n]", "end int64; sum float32", zero=i64(0), seven=i64(7), axis=i64([0]))
    rows = [np.arange(n, dtype=np.float32) for n in (100, 6, 0, 7)]
    yield "H14", Row(proto, tuple(call(i64(x.size // 7), x[: x.size // 7].sum(), x=x) for x in rows))


# ---- numbers ---------------------------------------------------------------------------------------------------------

NOTHING: Final[Mapping[str, float]] = MappingProxyType(
    {"Prod": 1, "Max": -INF, "Min": INF, "Mean": NAN, "LogSum": -INF, "LogSumExp": -INF}
)


def nothing() -> Iterator[tuple[str, Row]]:
    """Reductions of no elements, of one axis or all, of scalars."""
    for op in ("Sum", "Prod", "Max", "Min", "Mean", "L1", "L2", "SumSquare", "LogSum", "LogSumExp"):
        value = NOTHING.get(op, 0)
        proto = model(
            [node(f"Reduce{op}", "x a", "y", keepdims=0), node(f"Reduce{op}", "x", "z", keepdims=1)],
            "x float32[a,b,c]",
            "y float32; z float32",
            a=i64([1]),
        )
        want = np.full((3, 2), value, np.float32), np.full((1, 1, 1), value, np.float32)
        yield f"H07 {op}", Row(proto, (call(*want, x=np.zeros((3, 0, 2), np.float32)),))
    for op in ("Sum", "Max", "Mean", "L2"):
        proto = model([node(f"Reduce{op}", "x", "y", keepdims=1)], "x float32[]", "y float32")
        yield f"H07 scalar {op}", Row(proto, (call(f32(3), x=f32(3)),))


def signs() -> Iterator[tuple[str, Row]]:
    """Quotients and remainders of both signs, of all integer widths and floats."""
    for dtype in ("int64", "int32", "int8", "float32"):
        a, b = (v.reshape(-1).astype(dtype) for v in np.meshgrid([-7, -1, 0, 1, 7], [-3, -1, 1, 3]))
        nodes = [node("Mod", "a b", "q", fmod=1), node("Div", "a b", "r")]
        want: Arrays = np.fmod(a, b), (a / b if dtype == "float32" else np.trunc(a / b)).astype(dtype)
        outputs = f"q {dtype}; r {dtype}"
        if dtype != "float32":
            nodes, want, outputs = [*nodes, node("Mod", "a b", "p")], (*want, np.mod(a, b)), f"{outputs}; p {dtype}"
        yield f"H08 {dtype}", Row(model(nodes, f"a {dtype}[n]; b {dtype}[n]", outputs), (call(*want, a=a, b=b),))


def dtypes() -> Iterator[tuple[str, Row]]:
    """Casts do not merge, narrow integers wrap and stay narrow."""
    nodes = [node("Cast", "x", "b", to=TensorProto.BOOL), node("Cast", "b", "y", to=TensorProto.INT32)]
    proto = model(nodes, "x float32[n]", "y int32")
    yield (
        "H09 bool",
        Row(proto, (call(np.int32([1, 0, 1, 1]), x=f32([-1.5, 0, 0.25, NAN])), call(np.int32([0]), x=f32([-0.0])))),
    )
    for dtype, a, b in (
        ("uint8", [200, 255], [100, 1]),
        ("int8", [100, -128], [100, -1]),
        ("int32", [2**31 - 1], [1]),
        ("uint16", [65535], [2]),
    ):
        x, y = np.array(a, dtype), np.array(b, dtype)
        proto = model(
            [node("Add", "a b", "s"), node("Mul", "a b", "p")],
            f"a {dtype}[n]; b {dtype}[n]",
            f"s {dtype}; p {dtype}",
            14,
        )
        yield f"H09 {dtype}", Row(proto, (call(x + y, x * y, a=x, b=y),))
    nodes = [node("Cast", "x", "w", to=TensorProto.UINT8), node("Cast", "w", "y", to=TensorProto.INT64)]
    yield (
        "H09 narrow and back",
        Row(model(nodes, "x int64[n]", "y int64"), (call(i64([0, 255, 1, 44]), x=i64([256, -1, 1, 300])),)),
    )


def nan() -> Iterator[tuple[str, Row]]:
    """NaN from either side, at all lengths around a vector."""
    nodes = [node("Max", "a b", "x"), node("Min", "b a", "y"), node("Relu", "a", "r"), node("Clip", "a lo hi", "c"),
             node("ReduceMax", "a", "m", keepdims=0), node("ReduceMin", "b", "k", keepdims=0)]  # fmt: skip
    proto = model(
        nodes,
        "a float32[n]; b float32[n]",
        "x float32; y float32; r float32; c float32; m float32; k float32",
        lo=f32(-1),
        hi=f32(1),
    )
    calls = []
    for n in (1, 2, 3, 7, 8, 9, 16, 17, 33):
        for a, b in ((f32([NAN, 1, -5]), f32([1, NAN, 5])), (f32([3, NAN]), f32([NAN]))):
            for p, q in ((np.resize(a, n), np.resize(b, n)), (np.resize(b, n), np.resize(a, n))):
                want = np.maximum(p, q), np.minimum(q, p), np.maximum(p, 0), np.clip(p, -1, 1), np.max(p), np.min(q)
                calls.append(call(*want, a=p, b=q))
    yield "H10", Row(proto, tuple(calls))


def softmaxes() -> Iterator[tuple[str, Row]]:
    """Rows of large numbers, infinities and NaN."""
    rows = f32([[1000, 1000], [-INF, 0], [-INF, -INF], [0, NAN], [INF, 0]])
    want = f32([[0.5, 0.5], [0, 1], [NAN, NAN], [NAN, NAN], [NAN, NAN]])
    with np.errstate(divide="ignore"):
        logs = np.log(want)
    proto = model(
        [node("Softmax", "x", "y", axis=-1), node("LogSoftmax", "x", "z", axis=-1)],
        "x float32[n,k]",
        "y float32; z float32",
    )
    yield "H11 last axis", Row(proto, (call(want, logs, x=rows),))
    proto = model(
        [node("Softmax", "x", "y", axis=0), node("LogSoftmax", "x", "z", axis=0)],
        "x float32[k,n]",
        "y float32; z float32",
    )
    yield "H11 first axis", Row(proto, (call(want.T, logs.T, x=np.ascontiguousarray(rows.T)),))


def fusion() -> Iterator[tuple[str, Row]]:
    """Two results of one fused group; an operand that is a result."""
    nodes = [
        node("ReduceMean", "x a", "m", keepdims=1),
        node("Sub", "x m", "c"),
        node("Relu", "c", "r"),
        node("ReduceSum", "r a", "s", keepdims=0),
    ]
    proto = model(nodes, "x float32[n,k]", "c float32; s float32", a=i64([1]))
    x = f32([[1, 2, 6], [4, 4, 4]])
    yield "H12", Row(proto, (call(f32([[-2, -1, 3], [0, 0, 0]]), f32([3, 0]), x=x),))
    proto = model(
        [node("MatMul", "a b", "p"), node("Add", "acc p", "r"), node("Identity", "acc", "kept")],
        "acc float32[n,m]; a float32[n,k]; b float32[k,m]",
        "r float32; kept float32",
    )
    a, b = f32([[1, 2], [3, 4]]), np.eye(2, dtype=np.float32)
    calls = [
        call(acc + a, acc, acc=acc, a=a, b=b)
        for acc in (np.full((2, 2), 100, np.float32), np.zeros((2, 2), np.float32))
    ]
    yield "H13", Row(proto, tuple(calls))


def windows() -> Iterator[tuple[str, Row]]:
    """Padding chosen by name puts the odd row where the name says."""
    for pad, row in (("SAME_UPPER", [1, 1, 2, 1, 2, 1]), ("SAME_LOWER", [1, 2, 1, 2, 1, 1])):
        proto = model(
            [node("ConvTranspose", "x w", "y", strides=[2, 2], auto_pad=pad)],
            "x float32[b,1,h,v]",
            "y float32",
            w=np.ones((1, 1, 3, 3), np.float32),
        )
        x = np.ones((1, 1, 3, 3), np.float32)
        yield f"H15 {pad}", Row(proto, (call(np.outer(f32(row), f32(row))[None, None], x=x),))
        proto = model(
            [node("Conv", "x w", "y", strides=[2], auto_pad=pad)],
            "x float32[b,1,h]",
            "y float32",
            w=np.ones((1, 1, 3), np.float32),
        )
        edges = {4: [6, 7] if pad == "SAME_UPPER" else [3, 9], 5: [3, 9, 9], 1: [1]}
        yield f"H15 forward {pad}", Row(proto, tuple(call(f32([[w]]), x=numbers(1, 1, n)) for n, w in edges.items()))


def rounding() -> Iterator[tuple[str, Row]]:
    """Ties go to even numbers, what is too large to the end of the range."""
    x = f32([0.25, 0.75, 1.25, 1.75, -0.25, -0.75, 1000, -1000])
    for dtype, want in (("int8", [0, 2, 2, 4, 0, -2, 127, -128]), ("uint8", [0, 2, 2, 4, 0, 0, 255, 0])):
        zero = np.array(0, dtype)
        proto = model([node("QuantizeLinear", "x s z", "y")], "x float32[n]", f"y {dtype}", s=f32(0.5), z=zero)
        yield f"H16 {dtype}", Row(proto, (call(np.array(want, dtype), x=x),))
    proto = model([node("Round", "x", "y")], "x float32[n]", "y float32")
    yield "H16 round", Row(proto, (call(f32([0, 2, 2, -0.0, -2, 4]), x=f32([0.5, 1.5, 2.5, -0.5, -1.5, 3.5])),))


def resizing() -> Iterator[tuple[str, Row]]:
    """The nearest of two equally near elements."""
    answers = {"floor": [1, 1, 1, 2, 2, 3, 3, 4], "ceil": [1, 2, 2, 3, 3, 4, 4, 4]}
    both = [1, 1, 2, 2, 3, 3, 4, 4]
    for mode in ("floor", "ceil", "round_prefer_floor", "round_prefer_ceil"):
        resize = node(
            "Resize", "x _ s", "y", mode="nearest", nearest_mode=mode, coordinate_transformation_mode="half_pixel"
        )
        proto = model([resize], "x float32[b,c,n]", "y float32", s=f32([1, 1, 2]))
        yield f"H17 {mode}", Row(proto, (call(f32([[answers.get(mode, both)]]), x=numbers(1, 1, 4)),))


SOURCES: Final = (broadcasting, any_size, reshapes, slices, from_data, loops, nothing, signs, dtypes, nan, softmaxes, fusion,
                  shape_arithmetic, windows, rounding, resizing)  # fmt: skip
