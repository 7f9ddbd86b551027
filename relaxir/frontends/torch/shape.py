"""Converters of views and data movement."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final

from torch.fx import Node as FxNode

from relaxir.frontends.torch.node import Arg, Converter, Node
from relaxir.frontends.values import Value
from relaxir.ops.indexing import reshape_target, slice_range
from relaxir.support.dtypes import info
from relaxir.sym import DimLike, Relation, add, ceildiv, floordiv, max_, min_, mod, mul, product, sub


def view(n: Node) -> Value:
    """Another shape; -1 stands for what is left."""
    if "dtype" in n.args:
        x = n.value()
        if info(x.type.dtype).bits != info(n.out_dtype).bits or "bool" in (x.type.dtype, n.out_dtype):
            n.unsupported("a view of the bits as a dtype of another width")
        return n.emit("bitcast", x, dtype=n.out_dtype)
    target = n.dims("size" if "size" in n.args else "shape")
    return n.reshape(n.value(), reshape_target(target, n.shape, True, n.facts))


def view_as(n: Node) -> Value:
    """The shape of another tensor."""
    return n.reshape(n.value(), n.value("other").type.shape)


def flatten(n: Node) -> Value:
    """Axes from ``start_dim`` to ``end_dim`` as one."""
    shape = n.shape
    if not shape:
        return n.reshape(n.value(), (1,))
    start, end = n.axis("start_dim"), n.axis("end_dim", default=-1)
    return n.reshape(n.value(), (*shape[:start], product(shape[start : end + 1]), *shape[end + 1 :]))


def unflatten(n: Node) -> Value:
    """One axis as several."""
    shape, axis = n.shape, n.axis()
    parts = reshape_target(n.dims("sizes"), (shape[axis],), True, n.facts)
    return n.reshape(n.value(), (*shape[:axis], *parts, *shape[axis + 1 :]))


def squeeze(n: Node) -> Value:
    """Axes that torch knows to be 1 go; axes of other sizes stay."""
    shape = n.shape
    wanted = range(len(shape)) if not n.has("dim") else {a % max(len(shape), 1) for a in n.ints("dim")}
    source = n.fx.args[0]
    known = source.meta["val"].shape if isinstance(source, FxNode) and "val" in source.meta else shape
    axes = tuple(
        a for a in wanted if a < len(shape) and (shape[a] == 1 or (isinstance(known[a], int) and known[a] == 1))
    )
    return n.emit("squeeze", n.value(), axes=axes) if axes else n.value()


def unsqueeze(n: Node) -> Value:
    """A new axis of extent 1."""
    rank = len(n.shape) + 1
    return n.emit("expand_dims", n.value(), axes=(n.integer("dim") % rank,))


def permute(n: Node) -> Value:
    """Axes reordered."""
    rank = len(n.shape)
    return n.permute(n.value(), [a % rank for a in n.ints("dims")])


def transpose(n: Node) -> Value:
    """Two axes exchanged."""
    rank = len(n.shape)
    axes = list(range(rank))
    if rank:
        a, b = (n.axis(name if name in n.args else name.replace("dim", "axis")) for name in ("dim0", "dim1"))
        axes[a], axes[b] = axes[b], axes[a]
    return n.permute(n.value(), axes)


def turned(n: Node) -> Value:
    """The last two axes exchanged, or all axes reversed."""
    rank = len(n.shape)
    return n.permute(n.value(), (*range(rank - 2), *reversed(range(max(rank - 2, 0), rank))))


def movedim(n: Node) -> Value:
    """Axes moved to other places."""
    rank = len(n.shape)
    source, target = ([a % rank for a in n.ints(k)] for k in ("source", "destination"))
    order: list[int] = [a for a in range(rank) if a not in source]
    for place, axis in sorted(zip(target, source, strict=True)):
        order.insert(place, axis)
    return n.permute(n.value(), order)


def expand(n: Node) -> Value:
    """Axes of extent 1 repeated; -1 keeps an axis."""
    size, shape = n.dims("size"), n.shape
    first = len(size) - len(shape)
    target = tuple(shape[i - first] if d == -1 and i >= first else d for i, d in enumerate(size))
    return n.broadcast(n.value(), target)


def expand_as(n: Node) -> Value:
    """Repeated up to the shape of another tensor."""
    return n.broadcast(n.value(), n.value("other").type.shape)


def repeat(n: Node) -> Value:
    """The whole tensor repeated along each axis."""
    repeats = n.dims("repeats" if "repeats" in n.args else "dims")
    x = n.value()
    rank = max(len(repeats), x.type.rank)
    x = n.reshape(x, (*(1,) * (rank - x.type.rank), *x.type.shape))
    return n.emit("tile", x, repeats=(*(1,) * (rank - len(repeats)), *repeats))


def repeat_interleave(n: Node) -> Value:
    """Each element repeated."""
    times = n.args.get("repeats")
    x = n.value() if "self" in n.args else None
    if isinstance(times, Value):
        return repeated(n, x, times)
    assert x is not None
    if not n.has("dim"):
        return n.emit("repeat", n.reshape(x, (product(x.type.shape),)), repeats=times, axis=0)
    return n.emit("repeat", x, repeats=times, axis=n.axis())


def repeated(n: Node, x: Value | None, times: Value) -> Value:
    """Elements or slices repeated as often as a tensor says; without any the positions themselves."""
    times = n.cast(times, "int64")
    if x is not None:  # one number serves all
        extent = x.type.shape[n.axis()] if n.has("dim") else product(x.type.shape)
        times = n.broadcast(times, (extent,))
    ends = n.emit("cumsum", times, axis=0)
    total = n.get("output_size")
    if total is None:
        (total,) = n.read(n.emit("sum", times, axes=None), 0, "repeated")
    places = n.emit("arange", start=0, stop=total, step=1, dtype="int64")
    found = n.emit("searchsorted", ends, places, right=True)
    if x is None:
        return found
    line = x if n.has("dim") else n.reshape(x, (product(x.type.shape),))
    return n.emit("take", line, found, axis=n.axis() if n.has("dim") else 0)


def cat(n: Node) -> Value:
    """Tensors one after the other; empty vectors are left out, as in old torch."""
    tensors = n.get("tensors")
    rank = max(t.type.rank for t in tensors)
    parts = [n.cast(t, n.out_dtype) for t in tensors if not (t.type.shape == (0,) and rank > 1)]
    axis = n.axis(rank=rank)
    return parts[0] if len(parts) == 1 else n.emit("concat", *parts, axis=axis)


def stack(n: Node) -> Value:
    """Tensors joined along a new axis."""
    tensors = [n.cast(t, n.out_dtype) for t in n.get("tensors")]
    return n.emit("stack", *tensors, axis=n.axis(rank=tensors[0].type.rank + 1))


# ---- parts ---------------------------------------------------------------------------------------------------------


def cut(n: Node, sizes: Sequence[DimLike], axis: int) -> tuple[Value, ...]:
    """Parts of given sizes."""
    return (n.value(),) if len(sizes) == 1 else n.emit_tuple("split", n.value(), sizes=tuple(sizes), axis=axis)


def parts_of(n: Node, size: DimLike, count: int, axis: int) -> tuple[Value, ...]:
    """``count`` parts of a size, the last ones shorter or empty."""
    extent = n.shape[axis]
    sizes = tuple(n.facts.simplify(max_(0, min_(size, sub(extent, mul(size, i))))) for i in range(count))
    return cut(n, sizes, axis)


def number_of_results(n: Node) -> int:
    """How many parts torch found when it traced."""
    found = n.fx.meta.get("val")
    if not isinstance(found, tuple | list):
        n.unsupported("an unknown number of parts")
    return len(found)


def split(n: Node) -> tuple[Value, ...]:
    """Parts of one size, or of given sizes."""
    axis = n.axis()
    size = n.get("split_size")
    if isinstance(size, tuple):
        return cut(n, size, axis)
    count = number_of_results(n)
    result = parts_of(n, size, count, axis)
    n.check(Relation("<=", n.shape[axis], mul(size, count)), f"split: the axis is longer than {count} parts")
    return result


def split_with_sizes(n: Node) -> tuple[Value, ...]:
    """Parts of given sizes."""
    return cut(n, n.dims("split_sizes"), n.axis())


def chunk(n: Node) -> tuple[Value, ...]:
    """As many parts as torch found when it traced, of one size but for the last."""
    axis = n.axis()
    return parts_of(n, ceildiv(n.shape[axis], n.get("chunks")), number_of_results(n), axis)


def tensor_split(n: Node) -> tuple[Value, ...]:
    """Parts between given places, or a number of them of which the first ones are longer by one."""
    x, axis = n.value(), n.axis()
    places, extent = n.get("indices", n.get("sections")), x.type.shape[axis]
    if not isinstance(places, tuple):
        count = n.integer("sections")
        longer = mod(extent, count)
        places = tuple(add(mul(floordiv(extent, count), i), min_(longer, i)) for i in range(1, count))
    return tuple(sliced(n, x, axis, (*ends, 1)) for ends in zip((0, *places), (*places, extent), strict=True))


def unbind(n: Node) -> tuple[Value, ...]:
    """Slices along an axis of known extent."""
    axis = n.axis()
    extent = n.shape[axis]
    if not isinstance(extent, int):
        extent = number_of_results(n)
    return tuple(pick(n, n.value(), axis, i) for i in range(extent))


def pick(n: Node, x: Value, axis: int, index: DimLike) -> Value:
    """One slice without its axis; negative constants count from the end."""
    begin = add(x.type.shape[axis], index) if isinstance(index, int) and index < 0 else index
    return n.emit("squeeze", n.emit("strided_slice", x, axes=(axis,), begin=(begin,), size=(1,)), axes=(axis,))


def select(n: Node) -> Value:
    """One slice."""
    return pick(n, n.value(), n.axis(), n.get("index"))


def sliced(n: Node, x: Value, axis: int, bounds: Sequence[DimLike | None]) -> Value:
    """A slice with Python's clamping."""
    start, stop, step = bounds
    part = slice_range(start, stop, step, x.type.shape[axis], n.facts)
    if part.begin == 0 and part.step == 1 and part.size == x.type.shape[axis]:
        return x
    return n.emit("strided_slice", x, axes=(axis,), begin=(part.begin,), size=(part.size,), step=(part.step,))


def slice_(n: Node) -> Value:
    """``start:end:step`` along an axis."""
    return sliced(n, n.value(), n.axis(), (n.get("start"), n.get("end"), n.get("step", 1)))


def narrow(n: Node) -> Value:
    """``length`` elements from ``start``."""
    start = n.get("start")
    if isinstance(start, Value):
        n.unsupported("a start in a tensor")
    axis = n.axis()
    begin = add(n.shape[axis], start) if isinstance(start, int) and start < 0 else start
    return n.emit("strided_slice", n.value(), axes=(axis,), begin=(begin,), size=(n.get("length"),))


def unfold(n: Node) -> Value:
    """Windows along an axis, their elements in a new last axis."""
    x, axis = n.value(), n.axis("dimension")
    size, step = n.get("size"), n.get("step")
    count = add((sub(x.type.shape[axis], size)) // step, 1)
    starts = n.emit("arange", start=0, stop=mul(count, step), step=step, dtype="int64")
    offsets = n.emit("arange", start=0, stop=size, step=1, dtype="int64")
    places = n.emit("add", n.reshape(starts, (count, 1)), n.reshape(offsets, (1, size)))
    windows = n.emit("take", x, places, axis=axis)
    rank = x.type.rank
    return n.permute(windows, (*range(axis + 1), *range(axis + 2, rank + 1), axis + 1))


def diagonal_places(n: Node) -> tuple[tuple[int, ...], Value]:
    """An order of the axes that puts those of the diagonal first, and the pairs of places on it."""
    rank = n.value().type.rank
    first, second = n.axis("dim1"), n.axis("dim2", default=1)
    order = (first, second, *(a for a in range(rank) if a not in (first, second)))
    offset = n.integer("offset")
    rows, columns = n.shape[first], n.shape[second]
    count = max_(0, min_(rows, sub(columns, offset)) if offset >= 0 else min_(add(rows, offset), columns))
    place = n.emit("arange", start=0, stop=n.facts.simplify(count), step=1, dtype="int64")
    down, right = max(-offset, 0), max(offset, 0)
    return order, n.emit("stack", n.emit("add", place, down), n.emit("add", place, right), axis=1)


def diagonal(n: Node) -> Value:
    """Elements of a diagonal in a new last axis."""
    order, places = diagonal_places(n)
    found = n.emit("gather_nd", n.permute(n.value(), order), places)
    return n.permute(found, (*range(1, found.type.rank), 0))


def diagonal_scatter(n: Node) -> Value:
    """The tensor with the elements of a diagonal replaced."""
    x = n.value()
    order, places = diagonal_places(n)
    src = n.cast(n.value("src"), x.type.dtype)
    updates = n.permute(src, (src.type.rank - 1, *range(src.type.rank - 1)))
    y = n.emit("scatter_nd", n.permute(x, order), places, updates, reduction="none")
    return n.permute(y, tuple(order.index(a) for a in range(len(order))))


# ---- order and borders ---------------------------------------------------------------------------------------------


def flip(n: Node) -> Value:
    """Axes reversed."""
    axes = tuple(a % max(len(n.shape), 1) for a in n.ints("dims"))
    return n.emit("flip", n.value(), axes=axes) if axes and n.shape else n.value()


def roll(n: Node) -> Value:
    """Elements moved around along axes, or as one line."""
    x, shifts, axes = n.value(), n.dims("shifts"), n.ints("dims")
    if not axes:
        line = n.reshape(x, (product(x.type.shape),))
        return n.reshape(n.emit("roll", line, shifts=shifts, axes=(0,)), x.type.shape)
    return n.emit("roll", x, shifts=shifts, axes=tuple(a % x.type.rank for a in axes))


def triangle(name: str) -> Converter:
    """A triangle of the last two axes."""
    return lambda n: n.emit(name, n.value(), k=n.get("diagonal", 0))


def pad_with(n: Node, mode: str, fill: Arg) -> Value:
    """Pads from the last axis backwards, in pairs."""
    x, flat = n.value(), n.dims("pad" if "pad" in n.args else "padding")
    pairs = list(zip(flat[::2], flat[1::2], strict=True))[::-1]
    pads = (*((0, 0),) * (x.type.rank - len(pairs)), *pairs)
    value = () if mode != "constant" else (n.operand(fill, x.type.dtype),)
    return n.emit("pad", x, *value, pads=pads, mode=mode)


PAD_MODES: Final = MappingProxyType(
    {"constant": "constant", "reflect": "reflect", "replicate": "edge", "circular": "wrap"}
)


def pad(n: Node) -> Value:
    """Borders of a mode."""
    return pad_with(n, PAD_MODES[n.get("mode", "constant")], n.get("value", 0))


def border(mode: str) -> Converter:
    """Borders of a fixed mode."""
    return lambda n: pad_with(n, mode, n.get("value", 0))


def rearranged(name: str, factor: str) -> Converter:
    """Channels to blocks of pixels or back, channels outermost; any number of axes before them."""

    def convert(n: Node) -> Value:
        x, lead = n.value(), n.shape[:-3]
        y = n.emit(name, n.reshape(x, (product(lead), *n.shape[-3:])), size=n.integer(factor), mode="CRD")
        return n.reshape(y, (*lead, *y.type.shape[1:]))

    return convert


def slice_scatter(n: Node) -> Value:
    """``self`` with a slice replaced."""
    x, axis = n.value(), n.axis()
    extent = x.type.shape[axis]
    part = slice_range(n.get("start"), n.get("end"), n.get("step", 1), extent, n.facts)
    src = n.cast(n.value("src"), x.type.dtype)
    shape = (*x.type.shape[:axis], part.size, *x.type.shape[axis + 1 :])
    src = n.broadcast(src, shape)
    if part.begin == 0 and part.size == extent and part.step == 1:
        return src
    if part.step == 1:
        end = add(part.begin, part.size)
        before, after = sliced(n, x, axis, (0, part.begin, 1)), sliced(n, x, axis, (end, extent, 1))
        pieces = [p for p in (before, src, after) if p.type.shape[axis] != 0]
        return n.emit("concat", *pieces, axis=axis) if len(pieces) > 1 else pieces[0]
    stop = add(part.begin, mul(part.size, part.step))
    places = n.emit("arange", start=part.begin, stop=stop, step=part.step, dtype="int64")
    return replaced(n, x, axis, places, src)


def scattered(n: Node, op: str, x: Value, places: Value, src: Value, reduction: str, **attrs: object) -> Value:
    """Elements written at places, or combined with what is there; the sum of bools is whether any holds."""
    dtype, wide = x.type.dtype, x.type.dtype
    if reduction != "none" and dtype == "bool":
        wide, reduction = "uint8", {"add": "max", "mul": "min"}.get(reduction, reduction)
    return n.cast(n.emit(op, n.cast(x, wide), places, n.cast(src, wide), reduction=reduction, **attrs), dtype)


def replaced(n: Node, x: Value, axis: int, places: Value, src: Value, reduction: str = "none") -> Value:
    """``x`` with slices at places of an axis replaced by (or combined with) those of ``src``."""
    order = (axis, *(a for a in range(x.type.rank) if a != axis))
    back = tuple(order.index(a) for a in range(x.type.rank))
    column = n.reshape(places, (places.type.shape[0], 1))
    moved = scattered(n, "scatter_nd", n.permute(x, order), column, n.permute(src, order), reduction)
    return n.permute(moved, back)


def select_scatter(n: Node) -> Value:
    """``self`` with one slice replaced."""
    x, axis = n.value(), n.axis()
    index = n.get("index")
    src = n.emit("expand_dims", n.cast(n.value("src"), x.type.dtype), axes=(axis,))
    if isinstance(index, int) and index < 0:
        index = add(x.type.shape[axis], index)
    return replaced(
        n,
        x,
        axis,
        n.emit("dims_to_tensor", dims=(index,)),
        n.broadcast(src, (*x.type.shape[:axis], 1, *x.type.shape[axis + 1 :])),
    )


SHAPE: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        **dict.fromkeys(("view", "reshape", "_unsafe_view", "_reshape_alias"), view),
        **dict.fromkeys(("view_as", "reshape_as"), view_as),
        **{k: border("reflect") for k in ("reflection_pad1d", "reflection_pad2d", "reflection_pad3d")},
        **{k: border("edge") for k in ("replication_pad1d", "replication_pad2d", "replication_pad3d")},
        "broadcast_to": expand,
        "cat": cat,
        "chunk": chunk,
        "concat": cat,
        "constant_pad_nd": border("constant"),
        "diagonal": diagonal,
        "diagonal_scatter": diagonal_scatter,
        "expand": expand,
        "expand_as": expand_as,
        "flatten": flatten,
        "flip": flip,
        "mT": turned,
        "movedim": movedim,
        "narrow": narrow,
        "numpy_T": lambda n: n.permute(n.value(), tuple(reversed(range(len(n.shape))))),
        "pad": pad,
        "permute": permute,
        "pixel_shuffle": rearranged("depth_to_space", "upscale_factor"),
        "pixel_unshuffle": rearranged("space_to_depth", "downscale_factor"),
        "repeat": repeat,
        "repeat_interleave": repeat_interleave,
        "roll": roll,
        "select": select,
        "select_scatter": select_scatter,
        "slice": slice_,
        "slice_scatter": slice_scatter,
        "split": split,
        "split_with_sizes": split_with_sizes,
        "squeeze": squeeze,
        "stack": stack,
        "swapaxes": transpose,
        "t": turned,
        "tensor_split": tensor_split,
        "tile": repeat,
        "transpose": transpose,
        "tril": triangle("tril"),
        "triu": triangle("triu"),
        "unbind": unbind,
        "unflatten": unflatten,
        "unfold": unfold,
        "unsafe_split": split,
        "unsqueeze": unsqueeze,
    }
)
"""Views and data movement by the name of the ATen packet."""
