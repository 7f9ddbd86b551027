"""Rows and indices: searches, running sums, the largest few, sorting, gathers and scatters, against three peers.

    python -m benchmarks.rows_index [--threads N] [--rounds N] [--json FILE] [NAME ...]

Each workload is one ONNX graph with dynamic sizes, compiled once; onnxruntime runs the same graph, NumPy and torch the
same function. All run in one process, in turn, round by round. A ratio is the median over the rounds of our time over
the peer's within a round; ``best`` is the largest of them, the one over the fastest peer. Below 1 relaxir is faster.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import partial
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
import torch
from onnx import helper
from threadpoolctl import threadpool_limits

import relaxir as rx
from benchmarks.graphs import Graph
from relaxir.measure.peers import OnnxRuntime
from relaxir.measure.rounds import Comparison, interleave

Array = np.ndarray[Any, Any]
Shape = tuple[int, ...]
Rng = np.random.Generator
Peer = Callable[[list[Any]], Any]
Make = Callable[[Rng, Shape], list[Array]]
Body = Callable[[Graph, list[str]], Sequence[str]]
WORDS: Final = 50257
"""Entries of a vocabulary: the longest rows."""


@dataclass(frozen=True)
class Work:
    """One operator in one form.

    Attributes:
        name: group, operator and form.
        make: makes the operands of a size; all their extents are dynamic.
        body: writes the graph; gets the names of the operands.
        kinds: dtypes of the results.
        points: sizes.
        numpy: the same in NumPy, or None where NumPy has no such function.
        torch: the same in torch, or None.
        fixed: operands whose last extent is a constant: the number of entries in a position.
    """

    name: str
    make: Make
    body: Body
    kinds: tuple[str, ...]
    points: tuple[Shape, ...]
    numpy: Peer | None = None
    torch: Peer | None = None
    fixed: tuple[int, ...] = ()

    def model(self) -> bytes:
        """The ONNX model."""
        g = Graph()
        operands = self.make(np.random.default_rng(0), self.points[0])
        names = [
            g.input(
                f"x{n}",
                [a.shape[axis] if n in self.fixed and axis == a.ndim - 1 else f"d{n}_{axis}" for axis in range(a.ndim)],
                kind_of(a.dtype),
            )
            for n, a in enumerate(operands)
        ]
        return g.model(self.body(g, names), kinds=[kind_of(np.dtype(k)) for k in self.kinds])

    def feeds(self, point: Shape) -> dict[str, Array]:
        """Operands of a size, by name."""
        return {f"x{n}": a for n, a in enumerate(self.make(np.random.default_rng(0), point))}


def kind_of(dtype: np.dtype[Any]) -> int:
    """ONNX's number of a dtype."""
    return helper.np_dtype_to_tensor_dtype(dtype)


def numbers(dtype: str, rng: Rng, shape: Shape) -> list[Array]:
    """One tensor of random numbers."""
    if dtype.startswith("int"):
        return [rng.integers(-(10**6), 10**6, shape, dtype)]
    return [rng.standard_normal(shape).astype(dtype)]


def looked_up(indices: Callable[[Shape], Shape], axis: int, size: Callable[[Shape], Shape] | None = None) -> Make:
    """Floats and int64 indices into their ``axis``; the shape of the indices is made from the point."""

    def make(rng: Rng, point: Shape) -> list[Array]:
        shape = point if size is None else size(point)
        return [rng.standard_normal(shape, np.float32), rng.integers(0, shape[axis], indices(point))]

    return make


LAST: Final = ((1, 10), (4096, 10), (1, 1000), (128, 1000), (4096, 1000), (1, WORDS), (64, WORDS))
FIRST: Final = ((10, 4096), (1000, 128), (1000, 1000), (WORDS, 10))
MIDDLE: Final = ((8, 64, 64), (128, 64, 64), (16, 1000, 10))


def search(op: str, dtype: str, axis: int, points: tuple[Shape, ...]) -> Work:
    """``argmax`` or ``argmin``."""
    where = {-1: "last", 0: "first", 1: "middle"}[axis]
    return Work(
        f"{op}_{where}_{dtype}",
        partial(numbers, dtype),
        lambda g, x: [g({"argmax": "ArgMax", "argmin": "ArgMin"}[op], x[0], axis=axis, keepdims=0)],
        ("int64",),
        points,
        lambda x: getattr(np, op)(x[0], axis),
        lambda x: getattr(torch, op)(x[0], axis),
    )


def running(dtype: str, axis: int, points: tuple[Shape, ...], **attributes: int) -> Work:
    """``cumsum``; the peers in NumPy and torch have neither ``exclusive`` nor ``reverse``."""
    form = "_".join(attributes) or "plain"
    plain = not attributes
    return Work(
        f"cumsum_{'last' if axis < 0 else 'first'}_{dtype}_{form}",
        partial(numbers, dtype),
        lambda g, x: [g("CumSum", x[0], g.const(axis, np.int64), **attributes)],
        (dtype,),
        points,
        (lambda x: np.cumsum(x[0], axis, x[0].dtype)) if plain else None,
        (lambda x: torch.cumsum(x[0], axis)) if plain else None,
    )


def largest(k: int, points: tuple[Shape, ...]) -> Work:
    """The ``k`` largest of each row, or all of them in order for 0."""

    def body(g: Graph, x: list[str]) -> Sequence[str]:
        count = g.ints(k) if k else g("Shape", x[0], start=-1)
        return g.several("TopK", 2, x[0], count, axis=-1)

    def sort(x: list[Any]) -> tuple[Array, Array]:
        order = np.argsort(-x[0], -1, kind="stable")
        return np.take_along_axis(x[0], order, -1), order

    return Work(
        f"topk_{k or 'all'}",
        partial(numbers, "float32"),
        body,
        ("float32", "int64"),
        points,
        None if k else sort,
        lambda x: torch.topk(x[0], k or x[0].shape[-1]),
    )


SEARCHES: Final = (
    search("argmax", "float32", -1, LAST),
    search("argmin", "float32", -1, ((128, 1000),)),
    search("argmax", "int64", -1, LAST[2:6]),
    search("argmax", "float32", 0, FIRST),
    search("argmax", "int64", 0, FIRST[1:3]),
    search("argmax", "float32", 1, MIDDLE),
)
RUNNING: Final = (
    running("float32", -1, LAST),
    running("float64", -1, LAST[3:6]),
    running("int64", -1, LAST[3:6]),
    running("float32", -1, LAST[3:5], exclusive=1),
    running("float32", -1, LAST[3:5], reverse=1),
    running("float32", 0, FIRST),
    running("float64", 0, FIRST[2:3]),
    running("int64", 0, FIRST[2:3]),
)
LARGEST: Final = tuple(largest(k, ((1, 1000), (128, 1000), (8, WORDS))) for k in (1, 5, 50, 0))
GATHERS: Final = (
    *(
        Work(
            f"gather_rows_{width}",
            looked_up(lambda p: p[1:], 0, lambda p, width=width: (p[0], width)),  # type: ignore[misc]  # bound per width
            lambda g, x: [g("Gather", x[0], x[1])],
            ("float32",),
            points,
            lambda x: np.take(x[0], x[1], 0),
            lambda x: x[0][x[1]],
        )
        for width, points in (
            (384, ((30522, 1, 32), (30522, 8, 128))),
            (1, ((30522, 1, 1024), (30522, 1, 100000))),
            (3, ((30522, 1, 1024), (30522, 1, 100000))),
        )
    ),
    Work(
        "gather_scalars", looked_up(lambda p: p[1:], 0, lambda p: p[:1]), lambda g, x: [g("Gather", x[0], x[1])],
        ("float32",), ((1000, 1000), (WORDS, 100000), (4000000, 1000000)), lambda x: np.take(x[0], x[1]),
        lambda x: torch.take(x[0], x[1]),
    ),
    Work(
        "gather_middle", looked_up(lambda p: (p[1] // 2,), 1), lambda g, x: [g("Gather", x[0], x[1], axis=1)],
        ("float32",), ((16, 64, 64), (64, 512, 128), (64, 512, 3)), lambda x: np.take(x[0], x[1], 1),
        lambda x: torch.index_select(x[0], 1, x[1]),
    ),
    Work(
        "gather_columns", looked_up(lambda p: (p[1] // 2,), 1), lambda g, x: [g("Gather", x[0], x[1], axis=1)],
        ("float32",), ((128, 1000), (4096, 1000)), lambda x: np.take(x[0], x[1], 1),
        lambda x: torch.index_select(x[0], 1, x[1]),
    ),
    *(
        Work(
            f"elements_{name}", looked_up(lambda p: p, axis),
            lambda g, x, axis=axis: [g("GatherElements", x[0], x[1], axis=axis)],  # type: ignore[misc]  # bound per axis
            ("float32",), ((128, 1000), (1000, 1000)),
            lambda x, axis=axis: np.take_along_axis(x[0], x[1], axis),  # type: ignore[misc]  # bound per axis
            lambda x, axis=axis: torch.gather(x[0], axis, x[1]),  # type: ignore[misc]  # bound per axis
        )
        for name, axis in (("last", -1), ("first", 0))
    ),
    Work(
        "gather_nd_rows", looked_up(lambda p: (p[0], 1), 0), lambda g, x: [g("GatherND", *x)],
        ("float32",), ((1000, 64),), lambda x: x[0][x[1][:, 0]], lambda x: x[0][x[1][:, 0]], (1,),
    ),
    Work(
        "gather_nd_points",
        lambda rng, p: [rng.standard_normal(p, np.float32), rng.integers(0, min(p), (p[0], 2))],
        lambda g, x: [g("GatherND", *x)],
        ("float32",), ((1000, 1000),), lambda x: x[0][x[1][:, 0], x[1][:, 1]], lambda x: x[0][x[1][:, 0], x[1][:, 1]],
        (1,),
    ),
)  # fmt: skip


def scattered(rng: Rng, point: Shape) -> list[Array]:
    """Rows, places in the first axis, and rows to write there."""
    rows, width, count = point
    made = rng.standard_normal((rows, width), np.float32), rng.standard_normal((count, width), np.float32)
    return [
        made[0],
        rng.permutation(rows)[:count, None] if count <= rows else rng.integers(0, rows, (count, 1)),
        made[1],
    ]


def added(x: list[Any]) -> Any:
    """Rows added at places, in NumPy."""
    y = x[0].copy()
    np.add.at(y, x[1][:, 0], x[2])
    return y


def written(x: list[Any]) -> Any:
    """Rows written at places, in NumPy."""
    y = x[0].copy()
    y[x[1][:, 0]] = x[2]
    return y


SCATTERS: Final = (
    Work(
        "scatter_rows", scattered, lambda g, x: [g("ScatterND", *x)], ("float32",),
        ((1000, 384, 100), (4096, 64, 4096)), written, lambda x: x[0].index_copy(0, x[1][:, 0], x[2]), (1,),
    ),
    Work(
        "scatter_add_rows", scattered, lambda g, x: [g("ScatterND", *x, reduction="add")], ("float32",),
        ((1000, 384, 100), (1000, 64, 10000)), added, lambda x: x[0].index_add(0, x[1][:, 0], x[2]), (1,),
    ),
    Work(
        "scatter_elements_last",
        lambda rng, p: [
            rng.standard_normal(p, np.float32), rng.integers(0, p[1], p), rng.standard_normal(p, np.float32),
        ],
        lambda g, x: [g("ScatterElements", *x, axis=-1)], ("float32",), ((128, 1000), (1000, 1000)),
        None, lambda x: x[0].scatter(-1, x[1], x[2]),
    ),
)  # fmt: skip
CHOICES: Final = (
    Work(
        "one_hot", lambda rng, p: [rng.integers(0, 1000, p)],
        lambda g, x: [g("OneHot", x[0], g.const(1000, np.int64), g.const([0.0, 1.0]))],
        ("float32",), ((128,), (4096,)), lambda x: (x[0][:, None] == np.arange(1000)).astype(np.float32),
        lambda x: torch.nn.functional.one_hot(x[0], 1000).float(),
    ),
    Work(
        "where", lambda rng, p: [rng.random(p) < 0.5, *numbers("float32", rng, p), *numbers("float32", rng, p)],
        lambda g, x: [g("Where", *x)], ("float32",), ((128, 1000), (4096, 1000)),
        lambda x: np.where(*x), lambda x: torch.where(*x),
    ),
    Work(
        "nonzero", lambda rng, p: [rng.random(p) < 0.3], lambda g, x: [g("NonZero", x[0])], ("int64",),
        ((1000,), (100000,), (1000000,)), lambda x: np.stack(np.nonzero(x[0])),
        lambda x: torch.nonzero(x[0]).t().contiguous(),
    ),
    Work(
        "compress", lambda rng, p: [*numbers("float32", rng, p), rng.random(p[0]) < 0.3],
        lambda g, x: [g("Compress", *x, axis=0)], ("float32",), ((100000, 1), (4096, 384)),
        lambda x: np.compress(x[1], x[0], 0), lambda x: x[0][x[1]],
    ),
)  # fmt: skip
WORKS: Final = (*SEARCHES, *RUNNING, *LARGEST, *GATHERS, *SCATTERS, *CHOICES)
"""All of them, in the order of the table."""


@dataclass(frozen=True)
class Row:
    """Figures of one workload at one size: microseconds of ours, and our time over each peer's."""

    name: str
    point: Shape
    micros: float
    ratios: MappingProxyType[str, Comparison]

    @property
    def best(self) -> Comparison:
        """Over the fastest peer."""
        return max(self.ratios.values(), key=lambda c: c.ratio)

    def __str__(self) -> str:
        peers = "  ".join(f"{name} {c.ratio:.2f}" for name, c in self.ratios.items())
        return f"{self.name:28}{'x'.join(map(str, self.point)):>14}{self.micros:11.1f}  {self.best!s:22}{peers}"


def agree(got: Any, want: Any) -> bool:
    """Whether results agree, up to the rounding of running sums."""
    a = [np.asarray(v) for v in (got if isinstance(got, list | tuple) else [got])]
    b = [np.asarray(v) for v in (want if isinstance(want, list | tuple) else [want])]
    return all(np.allclose(x, y, 1e-4, 1e-2) for x, y in zip(a, b, strict=True))


def measure(work: Work, threads: int, rounds: int) -> Iterator[Row]:
    """The rows of one workload.

    Raises:
        ValueError: our result differs from onnxruntime's.
    """
    model = work.model()
    call, ort = rx.compile(rx.from_onnx(model), threads=threads)["main"], OnnxRuntime(model, threads)
    for point in work.points:
        feeds = work.feeds(point)
        calls: dict[str, Callable[[], object]] = {"ours": partial(call, **feeds), "ort": ort.caller(feeds)}
        if work.numpy is not None:
            calls["numpy"] = partial(work.numpy, list(feeds.values()))
        if work.torch is not None:
            calls["torch"] = partial(work.torch, [torch.from_numpy(a) for a in feeds.values()])
        if not agree(calls["ours"](), calls["ort"]()):
            raise ValueError(f"{work.name} at {point}: results differ from onnxruntime's")
        times = interleave(calls, rounds, 0.02, 200)
        ours = times.pop("ours")
        ratios = MappingProxyType({name: Comparison.of(ours, t) for name, t in times.items()})
        yield Row(work.name, point, ours.median * 1e6, ratios)


def main(arguments: list[str] | None = None) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.rows_index", description=__doc__)
    parser.add_argument("only", nargs="*", default=["*"], help="names of workloads; * and ? stand for others")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--json", type=Path, help="write all figures to this file")
    options = parser.parse_args(arguments)
    torch.set_num_threads(options.threads)
    torch.set_grad_enabled(False)
    print(f"{'workload':28}{'size':>14}{'us':>11}  {'over the best peer':22}over each")
    found: list[Row] = []
    with threadpool_limits(options.threads):
        for work in WORKS:
            if any(fnmatch(work.name, only) for only in options.only):
                for row in measure(work, options.threads, options.rounds):
                    print(row, flush=True)
                    found.append(row)
    if options.json is not None:
        figures = [
            {"name": r.name, "size": r.point, "us": r.micros, **{n: c.ratio for n, c in r.ratios.items()}}
            for r in found
        ]
        options.json.write_text(json.dumps(figures, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
