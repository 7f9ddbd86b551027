"""Converters of shape operators, data movement, gathers and data-dependent sizes."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.onnx.convert_math import Converter
from relaxir.frontends.onnx.node import Node, Result
from relaxir.frontends.onnx.tensors import element_type
from relaxir.frontends.onnx.values import Value
from relaxir.ops.indexing import expand_target, pad_pairs, reshape_target, slice_range
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, ceildiv, is_const, max_, min_, mul, product, sub

FARTHEST: Final = -(2**63)
"""Least value of an index given at run time."""


def constant(n: Node) -> Result:
    """A value in an attribute."""
    found = n.tensor("value")
    if found is not None:
        return n.literal(*found)
    if n.has("value_float"):
        return n.literal(np.array(n.attr("value_float", 0.0)), "float32")
    if n.has("value_floats"):
        return n.literal(np.array(n.attr("value_floats", ())), "float32")
    if n.has("value_int"):
        return n.literal(np.array(n.attr("value_int", 0)), "int64")
    if n.has("value_ints"):
        return n.literal(np.array(n.attr("value_ints", ()), np.int64), "int64")
    n.unsupported("a constant of strings or a sparse constant")


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
        target: tuple[DimLike, ...] = n.attr("shape", ())
    else:
        target = n.dims(1, low=-1, names="r")
    dims = reshape_target(target, x.type.shape, bool(n.attr("allowzero", 0)), n.facts)
    return n.emit("reshape", x, shape=dims)


def flatten(n: Node) -> Result:
    """Two axes: before and from ``axis``."""
    dims = n.type().shape
    axis = n.attr("axis", 1)
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
    return n.emit("expand_dims", n.input(0), axes=axes_of(n, 1, 13) or ())


def squeeze(n: Node) -> Result:
    """Axes of extent 1 go; without axes, those known to be 1."""
    axes = axes_of(n, 1, 13)
    x = n.input(0)
    if axes is None:
        if not all(is_const(d) for d in x.type.shape):
            n.unsupported("without axes, the rank of the result depends on run-time sizes")
        axes = tuple(i for i, d in enumerate(x.type.shape) if d == 1)
    return n.emit("squeeze", x, axes=axes)


def transpose(n: Node) -> Result:
    """Axes permuted; default reversed."""
    perm = n.ints("perm")
    return n.emit("permute_dims", n.input(0), axes=tuple(reversed(range(n.rank()))) if perm is None else perm)


def expand(n: Node) -> Result:
    """Both sides broadcast."""
    x = n.input(0)
    target = expand_target(x.type.shape, n.dims(1, low=0, names="e"), n.facts)
    return n.emit("broadcast_to", x, shape=target)


def concat(n: Node) -> Result:
    """Along one axis."""
    return n.emit("concat", *(n.input(i) for i in range(len(n.inputs))), axis=n.attr("axis", 0))


def split(n: Node) -> Result:
    """Equal parts, or given sizes."""
    x = n.input(0)
    axis = n.axis(n.attr("axis", 0), x.type.rank)
    sizes: tuple[DimLike, ...] | None = None
    if n.opset < 13:
        sizes = n.ints("split")
    elif n.given(1):
        sizes = n.dims(1, low=0, names="s")
    if sizes is None:
        count = n.attr("num_outputs", len(n.proto.output))
        part = ceildiv(x.type.shape[axis], count)
        sizes = tuple(
            min_(part, max_(0, sub(x.type.shape[axis], mul(part, i)))) if i else part for i in range(count)
        )
    if len(sizes) == 1:
        return (x,)
    return n.emit_tuple("split", x, sizes=sizes, axis=axis)


def slice_(n: Node) -> Result:
    """Starts, ends, axes, steps: attributes until opset 9, inputs after."""
    x = n.input(0)
    rank = x.type.rank
    if n.opset < 10:
        starts: tuple[DimLike, ...] = n.attr("starts", ())
        ends: tuple[DimLike, ...] = n.attr("ends", ())
        axes = n.ints("axes")
        steps: tuple[DimLike, ...] | None = None
    else:
        starts, ends = n.dims(1, FARTHEST, "b"), n.dims(2, FARTHEST, "e")
        axes = tuple(int(a) for a in n.constant(3, "axes").reshape(-1)) if n.given(3) else None
        steps = n.dims(4, FARTHEST, "t") if n.given(4) else None
    chosen = tuple(n.axis(a, rank) for a in (axes if axes is not None else range(len(starts))))
    parts = [
        slice_range(starts[i], ends[i], None if steps is None else steps[i], x.type.shape[a], n.facts)
        for i, a in enumerate(chosen)
    ]
    return n.emit(
        "strided_slice",
        x,
        axes=chosen,
        begin=tuple(p.begin for p in parts),
        size=tuple(p.size for p in parts),
        step=tuple(p.step for p in parts),
    )


def gather(n: Node) -> Result:
    """Elements along one axis."""
    return n.emit("take", n.input(0), n.input(1), axis=n.attr("axis", 0))


def gather_elements(n: Node) -> Result:
    """One element per index."""
    return n.emit("gather_elements", n.input(0), n.input(1), axis=n.attr("axis", 0))


def gather_nd(n: Node) -> Result:
    """Slices at positions."""
    return n.emit("gather_nd", n.input(0), n.input(1), batch_dims=n.attr("batch_dims", 0))


def scatter_elements(n: Node) -> Result:
    """Elements written, or combined, at indices."""
    attrs = {"axis": n.attr("axis", 0), "reduction": n.attr("reduction", "none")}
    return n.emit("scatter_elements", n.input(0), n.input(1), n.input(2), **attrs)


def scatter_nd(n: Node) -> Result:
    """Slices written, or combined, at positions."""
    return n.emit("scatter_nd", n.input(0), n.input(1), n.input(2), reduction=n.attr("reduction", "none"))


def pad(n: Node) -> Result:
    """Pads, value and axes: attributes until opset 10, inputs after."""
    x = n.input(0)
    mode = n.attr("mode", "constant")
    axes: tuple[int, ...] | None = None
    value: Value | None = None
    if n.opset < 11:
        pads: tuple[DimLike, ...] = n.attr("pads", ())
        value = n.scalar(n.attr("value", 0.0), x.type.dtype)
    else:
        pads = n.dims(1, FARTHEST, "p")
        value = n.optional(2)
        if n.given(3):
            axes = tuple(n.axis(int(a), x.type.rank) for a in n.constant(3, "axes").reshape(-1))
    pairs = pad_pairs(pads, x.type.rank, axes)
    if value is not None and value.type.rank:
        value = n.emit("reshape", value, shape=())
    if mode != "constant":
        return n.emit("pad", x, pads=pairs, mode=mode)
    return n.emit("pad", x, value if value is not None else n.scalar(0, x.type.dtype), pads=pairs, mode=mode)


def tile(n: Node) -> Result:
    """Repeats per axis."""
    return n.emit("tile", n.input(0), repeats=n.dims(1, low=0, names="t"))


def range_(n: Node) -> Result:
    """Start, limit, step."""
    dtype = n.type(0).dtype
    if info(dtype).is_integer:
        start, stop, step = (n.dims(i, FARTHEST, name)[0] for i, name in ((0, "start"), (1, "limit"), (2, "delta")))
        return n.emit("arange", start=start, stop=stop, step=step, dtype=dtype)
    numbers = [n.number(i) for i in range(3)]
    if all(v is not None for v in numbers):
        start, stop, step = (float(v.reshape(())) for v in numbers if v is not None)
        return n.emit("arange", start=start, stop=stop, step=step, dtype=dtype)
    return n.emit("arange_of", n.input(0), n.input(1), n.input(2))


def constant_of_shape(n: Node) -> Result:
    """One value everywhere."""
    found = n.tensor("value")
    value = n.literal(found[0].reshape(()), found[1]) if found is not None else n.scalar(0.0, "float32")
    return n.emit("full", value, shape=n.dims(0, low=0, names="f"))


def one_hot(n: Node) -> Result:
    """Off and on values at indices."""
    indices = n.input(0)
    if not info(indices.type.dtype).is_integer:
        indices = n.emit("astype", indices, dtype="int64")
    depth = n.input(1)
    if not info(depth.type.dtype).is_integer:
        number = n.constant(1, "depth")
        size: DimLike = int(number.reshape(-1)[0])
    else:
        size = n.dims(1, low=0, names="depth")[0]
    return n.emit("one_hot", indices, n.input(2), depth=size, axis=n.attr("axis", -1))


def trilu(n: Node) -> Result:
    """A triangle of the last two axes."""
    k: DimLike = n.dims(1, FARTHEST, "k")[0] if n.given(1) else 0
    return n.emit("triu" if n.attr("upper", 1) else "tril", n.input(0), k=k)


def eye_like(n: Node) -> Result:
    """Ones on a diagonal."""
    x = n.input(0)
    dtype = element_type(n.attr("dtype", 0), "attribute `dtype`") if n.has("dtype") else x.type.dtype
    return n.emit("eye", rows=x.type.shape[0], columns=x.type.shape[1], k=n.attr("k", 0), dtype=dtype)


def nonzero(n: Node) -> Result:
    """Positions of the elements that are not 0."""
    return n.emit("nonzero", n.input(0))


def topk(n: Node) -> Result:
    """The k largest or smallest, with positions."""
    k: DimLike = n.attr("k", 0) if n.opset < 10 else n.dims(1, low=0, names="k")[0]
    attrs = {"axis": n.attr("axis", -1), "largest": bool(n.attr("largest", 1)), "sorted": bool(n.attr("sorted", 1))}
    return n.emit_tuple("topk", n.input(0), k=k, **attrs)


def unique(n: Node) -> Result:
    """Distinct elements, first positions, inverse, counts."""
    axis = n.attr("axis", 0) if n.has("axis") else None
    return n.emit_tuple("unique", n.input(0), axis=axis, sorted=bool(n.attr("sorted", 1)))


def compress(n: Node) -> Result:
    """Slices whose condition holds."""
    axis = n.attr("axis", 0) if n.has("axis") else None
    return n.emit("compress", n.input(0), n.input(1), axis=axis)


def reverse_sequence(n: Node) -> Result:
    """The first elements of each sequence reversed."""
    axes = {"batch_axis": n.attr("batch_axis", 1), "time_axis": n.attr("time_axis", 0)}
    return n.emit("reverse_sequence", n.input(0), n.input(1), **axes)


def depth_to_space(n: Node) -> Result:
    """Blocks of channels to blocks of space."""
    return n.emit("depth_to_space", n.input(0), block_size=n.attr("blocksize", 1), mode=n.attr("mode", "DCR"))


def space_to_depth(n: Node) -> Result:
    """Blocks of space to blocks of channels."""
    return n.emit("space_to_depth", n.input(0), block_size=n.attr("blocksize", 1))


def center_crop_pad(n: Node) -> Result:
    """Cropped or padded around the centre."""
    x = n.input(0)
    target = n.dims(1, low=0, names="c")
    axes = n.ints("axes") or tuple(range(x.type.rank))
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
        "CenterCropPad": center_crop_pad, "Compress": compress, "Concat": concat, "Constant": constant,
        "ConstantOfShape": constant_of_shape, "DepthToSpace": depth_to_space, "Expand": expand, "EyeLike": eye_like,
        "Flatten": flatten, "Gather": gather, "GatherElements": gather_elements, "GatherND": gather_nd, "NonZero": nonzero,
        "OneHot": one_hot, "Pad": pad, "Range": range_, "Reshape": reshape, "ReverseSequence": reverse_sequence,
        "Scatter": scatter_elements, "ScatterElements": scatter_elements, "ScatterND": scatter_nd, "Shape": shape,
        "Size": size, "Slice": slice_, "SpaceToDepth": space_to_depth, "Split": split, "Squeeze": squeeze, "Tile": tile,
        "TopK": topk, "Transpose": transpose, "Trilu": trilu, "Unique": unique, "Unsqueeze": unsqueeze,
    }
)  # fmt: skip
"""Shape operators and data movement by ONNX name."""
