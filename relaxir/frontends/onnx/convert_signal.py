"""Converters of spectra, window functions, and features of signals and token sequences."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import reduce
from itertools import pairwise
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.onnx.axes import around
from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.tensors import element_type
from relaxir.frontends.onnx.values import Value
from relaxir.ir.expr import Array
from relaxir.ops.indexing import choose, is_zero, normalize_index
from relaxir.sym import DimLike, add, floordiv, max_, min_, sub


def signal(n: Node) -> Value:
    """The first input, complex where its last extent (1: real, 2: complex) is known only at run time."""
    x = n.input(0)
    if not x.type.rank:
        n.fail("a signal has at least one axis")
    *shape, parts = x.type.shape
    if isinstance(parts, int):
        return x
    n.require_at_least(1, parts, "parts of the signal")
    n.require_at_least(0, sub(2, parts), "2 less the parts of the signal")
    pads = (*((0, 0) for _ in shape), (0, sub(2, parts)))
    return n.cast_shape(n.emit("pad", x, n.scalar(0.0, x.type.dtype), pads=pads), (*shape, 2))


def dft(n: Node) -> Result:
    """Fourier transform along one axis: an attribute until opset 19, an input after."""
    x = signal(n)
    length: DimLike = n.dims(1, low=0, names="length", count=1)[0] if n.given(1) else 0
    flags = {k: bool(n.attr(k, 0)) for k in ("inverse", "onesided")}
    if n.opset < 20 or not n.given(2):
        return n.emit("dft", x, axis=n.attr("axis", 1) if n.opset < 20 else -2, length=length, **flags)
    known = n.number(2)
    if known is not None:
        return n.emit("dft", x, axis=int(known.reshape(-1)[0]), length=length, **flags)
    *shape, parts = x.type.shape
    (given,) = n.dims(2, -x.type.rank, "axis", 1)
    axis = normalize_index(given, x.type.rank, n.facts)
    lines = n.emit("reshape", x, shape=(*around(axis, shape), parts))
    y = n.emit("dft", lines, axis=1, length=length, **flags)
    _, frequencies, _, parts = y.type.shape
    places = (choose(is_zero(sub(axis, a)), frequencies, d) for a, d in enumerate(shape))
    return n.emit("reshape", y, shape=(*places, parts))


def stft(n: Node) -> Result:
    """Fourier transforms of the frames of a signal; one of (batch, length) is real: PyTorch's exporter writes it."""
    if n.rank() == 2:
        n.inputs[0] = n.emit("expand_dims", n.input(0), axes=(2,))
    x = signal(n)
    (step,) = n.dims(1, low=1, names="step", count=1)
    length: DimLike = n.dims(3, low=1, names="frame", count=1)[0] if n.given(3) else 0
    attrs = {"frame_step": step, "frame_length": length, "onesided": bool(n.attr("onesided", 1))}
    return n.emit("stft", x, n.optional(2), **attrs)


def window_function(function: str) -> Converter:
    """A window of a size given as an input."""

    def convert(n: Node) -> Result:
        (size,) = n.dims(0, low=0, names="size", count=1)
        dtype = element_type(n.attr("output_datatype", 1), "attribute `output_datatype`")
        periodic = bool(n.attr("periodic", 1))
        return n.emit("window_function", function=function, size=size, periodic=periodic, dtype=dtype)

    return convert


def mel_weights(n: Node) -> Result:
    """Triangular filters of weight 1 at their peak, evenly spaced in mel, over the bins of a spectrum: (bins, filters).

    ``mel(f) = 2595 * log10(1 + f / 700)``; edges are rounded down to bins. Computed in float64.
    """
    dtype = element_type(n.attr("output_datatype", 1), "attribute `output_datatype`")
    filters, length = (n.dims(i, low=1, names=name, count=1)[0] for i, name in ((0, "filters"), (1, "length")))
    rate, *ends = (n.emit("astype", n.scalar_input(i), dtype="float64") for i in (2, 3, 4))
    unit = 2595 / math.log(10)
    low, high = (n.emit("multiply", n.emit("log1p", n.emit("divide", f, 700.0)), unit) for f in ends)
    parts, size = (wide_dim(n, add(d, 1)) for d in (add(filters, 1), length))
    step = n.emit("divide", n.emit("subtract", high, low), parts)
    points = n.emit("arange", start=0, stop=add(filters, 2), dtype="float64")
    mel = n.emit("add", n.emit("multiply", points, step), low)
    hertz = n.emit("multiply", n.emit("expm1", n.emit("divide", mel, unit)), 700.0)
    edges = n.emit("floor", n.emit("divide", n.emit("multiply", hertz, size), rate))
    left, peak, right = (n.emit("strided_slice", edges, axes=(0,), begin=(b,), size=(filters,)) for b in range(3))
    bins = n.emit("arange", start=0, stop=add(floordiv(length, 2), 1), dtype="float64")
    bins = n.emit("expand_dims", bins, axes=(1,))
    rising, falling = (
        n.emit("divide", n.emit("subtract", b, a), n.emit("maximum", n.emit("subtract", d, c), 1.0))
        for a, b, c, d in ((left, bins, left, peak), (bins, right, peak, right))
    )
    sides = n.emit("maximum", n.emit("minimum", rising, falling), 0.0)
    weights = n.emit("where", n.emit("equal", bins, peak), n.scalar(1.0, "float64"), sides)
    return n.emit("astype", weights, dtype=dtype)


def wide_dim(n: Node, d: DimLike) -> Value:
    """A dimension as a float64 scalar."""
    return n.emit("reshape", n.emit("astype", n.emit("dims_to_tensor", dims=(d,)), dtype="float64"), shape=())


def tf_idf(n: Node) -> Result:
    """How often each n-gram of a pool occurs in each row, also with items skipped; 1-grams are never skipped over."""
    x, pool, starts = n.input(0), n.ints("pool_int64s"), n.ints("ngram_counts") or ()
    if pool is None:
        n.unsupported("a pool of strings")
    if x.type.rank not in (1, 2):
        n.unsupported(f"tokens of rank {x.type.rank}")
    places, skipped = ngram_places(n, pool, starts), n.attr("max_skip_count", 0)
    if not 0 <= skipped <= MOST_SKIPPED:
        n.unsupported(f"max_skip_count {skipped}, which is not in 0..{MOST_SKIPPED}")
    counts: list[Value] = []
    targets: list[int] = []
    first = 0
    for size, (start, end) in enumerate(pairwise((*starts, len(pool))), 1):
        grams = np.array(pool[start:end]).reshape(-1, size)
        if len(grams) and n.attr("min_gram_length", 1) <= size <= n.attr("max_gram_length", 1):
            distances = range(1, skipped + 2 if size > 1 else 2)
            found = [occurrences(n, x, grams, d) for d in distances]
            counts.append(reduce(lambda a, b: n.emit("add", a, b), found))
            targets += places[first : first + len(grams)]
        first += len(grams)
    if not counts:
        n.fail("the pool has no n-gram of the lengths asked for")
    matrix = np.zeros((len(targets), max(places) + 1), np.float32)
    matrix[np.arange(len(targets)), targets] = 1
    total = n.emit("concat", *counts, axis=-1) if len(counts) > 1 else counts[0]
    y = n.emit("matmul", total, n.literal(matrix, "float32"))
    mode = n.attr("mode", "TF")
    weights = n.literal(np.array(n.floats("weights", matrix.shape[1]) or (1.0,) * matrix.shape[1]), "float32")
    if mode == "IDF":
        return n.emit("where", n.emit("greater", y, 0.0), weights, n.scalar(0.0, "float32"))
    return n.emit("multiply", y, weights) if mode == "TFIDF" else y


def ngram_places(n: Node, pool: tuple[int, ...], starts: tuple[int, ...]) -> tuple[int, ...]:
    """The column of each n-gram of the pool, whose 1-grams begin at the first start, 2-grams at the next, and so on.

    Raises:
        LoadError: starts that do not divide the pool into n-grams, or columns that are not theirs.
    """
    places, ends = n.ints("ngram_indexes") or (), (*starts, len(pool))
    sizes = [end - start for start, end in pairwise(ends)]
    if not starts or starts[0] or any(s < 0 or s % k for k, s in enumerate(sizes, 1)):
        n.fail(f"`ngram_counts` {list(starts)} does not divide a pool of {len(pool)} items into n-grams")
    grams = sum(s // k for k, s in enumerate(sizes, 1))
    if len(places) != grams or min(places, default=0) < 0:
        n.fail(f"`ngram_indexes` must be {grams} columns, one for each n-gram, and none below 0")
    if grams * (max(places, default=0) + 1) > MOST_WEIGHTS:
        n.unsupported(f"{grams} n-grams in {max(places) + 1} columns")
    return places


MOST_WEIGHTS: Final = 1 << 24
"""Elements of the matrix that sorts the counts of n-grams into columns."""
MOST_SKIPPED: Final = 1024
"""Items that an n-gram may skip at each step."""


def occurrences(n: Node, x: Value, grams: Array, distance: int) -> Value:
    """Number of places in each row where items ``distance`` apart are those of each n-gram."""
    along, reach = x.type.rank - 1, (grams.shape[1] - 1) * distance
    room = max_(0, sub(x.type.shape[along], reach))
    hits = []
    for k in range(grams.shape[1]):
        begin = min_(x.type.shape[along], k * distance)
        items = n.emit("strided_slice", x, axes=(along,), begin=(begin,), size=(room,))
        hits.append(n.emit("equal", n.emit("expand_dims", items, axes=(-1,)), n.literal(grams[:, k], x.type.dtype)))
    hit = reduce(lambda a, b: n.emit("logical_and", a, b), hits)
    return n.emit("sum", n.emit("astype", hit, dtype="float32"), axes=(along,))


SIGNAL: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "BlackmanWindow": window_function("blackman"),
        "DFT": dft,
        "HammingWindow": window_function("hamming"),
        "HannWindow": window_function("hann"),
        "STFT": stft,
        "MelWeightMatrix": mel_weights,
        "TfIdfVectorizer": tf_idf,
    }
)
"""Spectra, windows and token features by ONNX name."""
