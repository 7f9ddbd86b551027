"""Converters of shape operators and data movement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.onnx.axes import axis_flags, kept_extents, spread, widened_extents
from relaxir.frontends.onnx.node import MOST, Converter, Node, Result
from relaxir.frontends.onnx.tensors import element_type
from relaxir.frontends.onnx.values import Value
from relaxir.ops.indexing import pad_pairs, reshape_target, slice_range
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, ceildiv, is_const, max_, min_, mul, product, sub


def constant(n: Node) -> Result:
    """A value in an attribute."""
    found = n.tensor("value")
    if found is not None:
        return found
    if n.has("value_float"):
        return n.literal(np.array(n.attr("value_float", 0.0)), "float32")
    if n.has("value_floats"):
        return n.literal(np.array(n.floats("value_floats") or ()), "float32")
    if n.has("value_int"):
        return n.literal(np.array(n.attr("value_int", 0)), "int64")
    if n.has("value_ints"):
        return n.literal(np.array(n.ints("value_ints") or (), np.int64), "int64")
    return n.unsupported("a constant of strings or a sparse constant")


def shape(n: Node) -> Result:
    """The dimensions, or a part of them."""
    dims = n.type().shape
    rank = len(dims)
    start, end = n.attr("start", 0), n.attr("end", rank)
    low, high = (min(max(v + rank if v < 0 else v, 0), rank) for v in (start, end))
    return n.emit("dims_to_tensor", dims=dims[low : max(high, low)])


def size(n: Node) -> Result:
    """The number of elements."""
    count = n.emit("dims_to_tensor", dims=(product(n.type().shape),))
    return n.emit("reshape", count, shape=())


def reshape(n: Node) -> Result:
    """Target with -1 and 0."""
    x = n.input(0)
    if n.opset < 5:
        target: tuple[DimLike, ...] = n.ints("shape") or ()
    else:
        target = n.dims(1, low=-1, names="r", count=n.stated_count(1))
    dims = reshape_target(target, x.type.shape, bool(n.attr("allowzero", 0)), n.facts)
    return n.emit("reshape", x, shape=dims)


def flatten(n: Node) -> Result:
    """Two axes: before and from ``axis``."""
    dims = n.type().shape
    axis = n.attr("axis", 1)
    if not -len(dims) <= axis <= len(dims):
        n.fail(f"axis {axis} is out of range for rank {len(dims)}")
    axis = axis + len(dims) if axis < 0 else axis
    return n.emit("reshape", n.input(0), shape=(product(dims[:axis]), product(dims[axis:])))


def axes_of(n: Node, index: int, opset: int) -> tuple[int, ...] | None:
    """Axes from an attribute (old) or an input (new)."""
    if n.opset < opset:
        return n.ints("axes")
    if not n.given(index):
        return None
    return tuple(int(a) for a in n.constant(index, "axes").reshape(-1))


def unsqueeze(n: Node) -> Result:
    """New axes of extent 1."""
    x = n.input(0)
    if n.opset < 13 or n.number(1) is not None:
        return n.emit("expand_dims", x, axes=axes_of(n, 1, 13) or ())
    flags = axis_flags(n, 1, x.type.rank + count_of(n, 1, -x.type.rank))
    return n.emit("reshape", x, shape=widened_extents(n, x.type.shape, flags))


def squeeze(n: Node) -> Result:
    """Axes of extent 1 go: those named, or all of them."""
    x = n.input(0)
    if n.opset >= 13 and n.given(1) and n.number(1) is None:
        flags = axis_flags(n, 1, x.type.rank)
        left = x.type.rank - count_of(n, 1, x.type.rank)
        return n.emit("reshape", x, shape=kept_extents(n, x.type.shape, flags, left))
    axes = axes_of(n, 1, 13)
    if axes is None:
        return squeeze_ones(n, x)
    return n.emit("squeeze", x, axes=axes)


def squeeze_ones(n: Node, x: Value) -> Result:
    """All axes of extent 1 go. Of the symbolic ones all go or none, as the rank stated for the result says."""
    unknown = [d for d in x.type.shape if not is_const(d)]
    axes = tuple(i for i, d in enumerate(x.type.shape) if d == 1 or not is_const(d))
    if unknown and n.declared_rank() != x.type.rank - len(axes):
        n.unsupported(
            f"without axes, the rank depends on which of the run-time sizes {', '.join(map(str, unknown))} are 1",
            help="give sizes that are always the same: from_onnx(..., dims={'batch': 1}), or --dim batch=1..1",
        )
    return n.emit("squeeze", x, axes=axes)


def count_of(n: Node, index: int, rank: int) -> int:
    """Number of run-time axes: from the input's own shape, or from the stated rank of the result.

    ``rank`` is that of the data; negative for an operator that adds axes.
    """
    axes = n.type(index)
    extent = axes.shape[0] if axes.rank else 1
    stated = n.declared_rank()
    if isinstance(extent, int):
        return extent
    if stated is None:
        n.unsupported("the number of axes is known only at run time")
    return abs(abs(rank) - stated)


def transpose(n: Node) -> Result:
    """Axes permuted; default reversed."""
    perm = n.ints("perm")
    return n.emit("permute_dims", n.input(0), axes=tuple(reversed(range(n.rank()))) if perm is None else perm)


def expand(n: Node) -> Result:
    """Both sides broadcast."""
    x = n.input(0)
    target = n.dims(1, low=0, names="e", count=expanded_rank(n))
    ctx = n.ctx()
    shape = ctx.broadcast((x.type.shape, target))
    n.bb.require(ctx)
    return n.emit("broadcast_to", x, shape=shape)


def expanded_rank(n: Node) -> int | None:
    """Length of an Expand target, if the rank that the model states for the result tells it."""
    rank = n.stated_count(1)
    return rank if rank is not None and rank > n.rank() else None


def concat(n: Node) -> Result:
    """Along one axis."""
    return n.emit("concat", *(n.input(i) for i in range(len(n.inputs))), axis=n.attr("axis", 0 if n.opset >= 4 else 1))


def split(n: Node) -> Result:
    """Equal parts, or given sizes: an input in opsets 1 (or an attribute) and from 13 on."""
    x = n.input(0)
    axis = n.axis(n.attr("axis", 0), x.type.rank)
    sizes: tuple[DimLike, ...] | None = None
    if n.given(1):
        sizes = n.dims(1, low=0, names="s", count=len(n.proto.output))
    elif n.opset < 13:
        sizes = n.ints("split")
    if sizes is None:
        count = len(n.proto.output)
        if n.attr("num_outputs", count) != count:
            n.fail(f"attribute `num_outputs` is {n.attr('num_outputs', count)} for {count} outputs")
        part = ceildiv(x.type.shape[axis], count)
        sizes = tuple(min_(part, max_(0, sub(x.type.shape[axis], mul(part, i)))) if i else part for i in range(count))
    if len(sizes) == 1:
        return (x,)
    return n.emit_tuple("split", x, sizes=sizes, axis=axis)


def slice_(n: Node) -> Result:
    """Starts, ends, axes, steps: attributes until opset 9, inputs after."""
    x = n.input(0)
    rank = x.type.rank
    if n.opset < 10:
        starts: tuple[DimLike, ...] = n.ints("starts") or ()
        ends: tuple[DimLike, ...] = n.ints("ends") or ()
        return sliced(n, x, axes_or_all(n, n.ints("axes"), len(starts)), starts, ends, (1,) * len(starts))
    known = n.number(3)
    count = known.size if known is not None else slice_count(n)
    if count is None or (known is None and n.given(3)):
        return sliced(n, x, tuple(range(rank)), *(slice_operand(n, i) for i in (1, 2, 4)))
    starts, ends = n.places(1, "b", count), n.places(2, "e", count)
    steps = n.places(4, "t", count) if n.given(4) else (1,) * len(starts)
    axes = None if known is None else tuple(map(int, known.reshape(-1)))
    return sliced(n, x, axes_or_all(n, axes, len(starts)), starts, ends, steps)


def slice_operand(n: Node, index: int) -> tuple[DimLike, ...]:
    """Starts (1), ends (2) or steps (4) of every axis, where the axes, or how many, are known only at run time."""
    shape = n.type().shape
    if not n.given(index):
        return (1,) * len(shape)
    ends = n.emit("dims_to_tensor", dims=shape)
    defaults = ends if index == 2 else n.literal(np.full(len(shape), int(index == 4)), "int64")
    return n.read_places(spread(n, defaults, n.input(index), n.optional(3)), "b")


def slice_count(n: Node) -> int | None:
    """Number of sliced axes, from any of the operands that tells it."""
    for index in range(1, 5):
        extent = n.type(index).shape[0] if n.given(index) and n.rank(index) == 1 else None
        if isinstance(extent, int):
            return extent
    return None


def axes_or_all(n: Node, axes: tuple[int, ...] | None, count: int) -> tuple[int, ...]:
    """Axes from 0; the first ``count`` if none are given."""
    return tuple(n.axis(a, n.rank()) for a in (range(count) if axes is None else axes))


def sliced(
    n: Node,
    x: Value,
    axes: tuple[int, ...],
    starts: Sequence[DimLike],
    ends: Sequence[DimLike],
    steps: Sequence[DimLike],
) -> Value:
    """Slices along some axes, clamped as ONNX says."""
    if not len(axes) == len(starts) == len(ends) == len(steps):
        n.fail(f"{len(starts)} starts, {len(ends)} ends, {len(steps)} steps for {len(axes)} axes")
    extents = [x.type.shape[a] for a in axes]
    given = zip(starts, ends, steps, extents, strict=True)
    parts = [slice_range(*bounds, n.facts, onnx=True) for bounds in given]
    begin, size, step = (tuple(getattr(p, name) for p in parts) for name in ("begin", "size", "step"))
    return n.emit("strided_slice", x, axes=axes, begin=begin, size=size, step=step)


def pad(n: Node) -> Result:
    """Pads, value and axes: attributes until opset 10, inputs after."""
    x = n.input(0)
    mode = n.attr("mode", "constant")
    rank = x.type.rank
    if n.opset < 11:
        pairs = pad_pairs(n.ints("pads" if n.opset >= 2 else "paddings") or (), rank)
        value = n.scalar(n.attr("value", 0.0), x.type.dtype)
    else:
        pairs = input_pads(n, rank)
        value = n.scalar_input(2) if n.given(2) else n.scalar(0, x.type.dtype)
    fill = (value,) if mode == "constant" else ()
    return n.emit("pad", x, *fill, pads=pairs, mode=mode)


def input_pads(n: Node, rank: int) -> tuple[tuple[DimLike, DimLike], ...]:
    """Pads given by inputs, one pair per axis."""
    if not n.given(3):
        return pad_pairs(n.dims(1, -MOST, "p", 2 * rank), rank)
    known = n.number(3)
    if known is not None:
        axes = tuple(n.axis(int(a), rank) for a in known.reshape(-1))
        return pad_pairs(n.dims(1, -MOST, "p", 2 * len(axes)), rank, axes)
    count = n.type(3).shape[0]
    parts = (n.emit("strided_slice", n.input(1), axes=(0,), begin=(begin,), size=(count,)) for begin in (0, count))
    zeros = n.literal(np.zeros(rank), "int64")
    before, after = (n.read(spread(n, zeros, p, n.input(3)), -MOST, "p", MOST) for p in parts)
    return tuple(zip(before, after, strict=True))


def tile(n: Node) -> Result:
    """Repeats per axis; until opset 5 of one axis."""
    if n.opset < 6:
        known, rank = n.number(1), n.rank()
        if info(n.type(1).dtype).is_integer:
            (count,) = n.dims(1, low=0, names="t", count=1)
        elif known is not None:  # a number of x's own type
            count = int(known.reshape(-1)[0])
        else:
            (count,) = n.read(n.emit("astype", n.counted(1, 1), dtype="int64"), 0, "t", MOST)
        axis = n.axis(int(n.constant(2, "axis").reshape(-1)[0]), rank)
        return n.emit("tile", n.input(0), repeats=tuple(count if a == axis else 1 for a in range(rank)))
    return n.emit("tile", n.input(0), repeats=n.dims(1, low=0, names="t", count=n.rank()))


def range_(n: Node) -> Result:
    """Start, limit, step."""
    dtype = n.type(0).dtype
    if info(dtype).is_integer:
        start, stop, step = (
            n.dims(i, -MOST, name, count=1)[0] for i, name in ((0, "start"), (1, "limit"), (2, "delta"))
        )
        return n.emit("arange", start=start, stop=stop, step=step, dtype=dtype)
    numbers = [n.number(i) for i in range(3)]
    if all(v is not None for v in numbers):
        start, stop, step = (float(v.reshape(())) for v in numbers if v is not None)
        return n.emit("arange", start=start, stop=stop, step=step, dtype=dtype)
    return n.emit("range", *(n.scalar_input(i) for i in range(3)))


def constant_of_shape(n: Node) -> Result:
    """One value everywhere."""
    found = n.tensor("value")
    value = n.emit("reshape", found, shape=()) if found is not None else n.scalar(0.0, "float32")
    return n.emit("full", value, shape=n.dims(0, low=0, names="f", count=n.stated_count(0)))


def trilu(n: Node) -> Result:
    """A triangle of the last two axes."""
    k: DimLike = n.places(1, "k", count=1)[0] if n.given(1) else 0
    return n.emit("triu" if n.attr("upper", 1) else "tril", n.input(0), k=k)


def eye_like(n: Node) -> Result:
    """Ones on a diagonal."""
    x = n.input(0)
    dtype = element_type(n.attr("dtype", 0), "attribute `dtype`") if n.has("dtype") else x.type.dtype
    return n.emit("eye", n=x.type.shape[0], m=x.type.shape[1], k=n.attr("k", 0), dtype=dtype)


def center_crop_pad(n: Node) -> Result:
    """Cropped or padded around the centre."""
    x = n.input(0)
    axes = n.ints("axes") or tuple(range(x.type.rank))
    target = n.dims(1, low=0, names="c", count=len(axes))
    chosen = tuple(n.axis(a, x.type.rank) for a in axes)
    result = x
    for axis, want in zip(chosen, target, strict=True):
        have = result.type.shape[axis]
        crop, grow = max_(0, sub(have, want)), max_(0, sub(want, have))
        kept = sub(have, crop)
        result = n.emit("strided_slice", result, axes=(axis,), begin=(half(crop),), size=(kept,), step=(1,))
        pads = tuple((half(grow), sub(grow, half(grow))) if a == axis else (0, 0) for a in range(x.type.rank))
        result = n.emit("pad", result, n.scalar(0, x.type.dtype), pads=pads)
    return result


def half(d: DimLike) -> DimLike:
    """Half of a dimension, rounded down."""
    return d // 2


SHAPE: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "CenterCropPad": center_crop_pad,
        "Concat": concat,
        "Constant": constant,
        "ConstantOfShape": constant_of_shape,
        "Expand": expand,
        "EyeLike": eye_like,
        "Flatten": flatten,
        "Pad": pad,
        "Range": range_,
        "Reshape": reshape,
        "Shape": shape,
        "Size": size,
        "Slice": slice_,
        "Split": split,
        "Squeeze": squeeze,
        "Tile": tile,
        "Transpose": transpose,
        "Trilu": trilu,
        "Unsqueeze": unsqueeze,
    }
)
"""Shape operators and data movement by ONNX name."""
