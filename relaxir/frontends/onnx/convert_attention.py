"""Converters of com.microsoft's attention operators, all by `attention` of (batch, heads, length, size)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from types import MappingProxyType
from typing import Final

import numpy as np

from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.values import Value
from relaxir.sym import DimLike, floordiv, max_, sub


def heads_of(n: Node, x: Value, heads: int) -> Value:
    """(batch, length, heads * size) as (batch, heads, length, size)."""
    batch, length, width = x.type.shape
    split = n.emit("reshape", x, shape=(batch, length, heads, floordiv(width, heads)))
    return n.emit("permute_dims", split, axes=(0, 2, 1, 3))


def joined(n: Node, x: Value) -> Value:
    """The inverse of `heads_of`."""
    batch, heads, length, size = x.type.shape
    return n.emit("reshape", n.emit("permute_dims", x, axes=(0, 2, 1, 3)), shape=(batch, length, heads * size))


def added(n: Node, *masks: Value | None) -> Value | None:
    """Sum of additive masks; None where there is none."""
    given = [m for m in masks if m is not None]
    return reduce(lambda a, b: n.emit("add", a, b), given) if given else None


def causal_bias(n: Node, queries: DimLike, keys: DimLike, dtype: str, fill: float) -> Value:
    """Zero where query i of the last ``queries`` positions may see key j, ``fill`` elsewhere: (queries, keys)."""
    i = n.emit("arange", start=sub(keys, queries), stop=keys, dtype="int64")
    j = n.emit("arange", start=0, stop=keys, dtype="int64")
    return filled(n, n.emit("less_equal", j, n.emit("expand_dims", i, axes=(1,))), dtype, fill)


def filled(n: Node, keep: Value, dtype: str, fill: float) -> Value:
    """Zero where a mask holds, ``fill`` elsewhere."""
    return n.emit("where", keep, n.scalar(0.0, dtype), n.scalar(fill, dtype))


def key_mask(n: Node, mask: Value, queries: DimLike, keys: DimLike, dtype: str, fill: float) -> Value:
    """A mask of any of the operators' forms as an additive one: lengths (b), (b, t), (b, s, t) or (b, 1, m, m)."""
    if mask.type.rank == 1:
        j = n.emit("arange", start=0, stop=keys, dtype="int64")
        length = n.emit("expand_dims", n.emit("astype", mask, dtype="int64"), axes=(1, 2, 3))
        return filled(n, n.emit("less", j, length), dtype, fill)
    keep = n.emit("not_equal", mask, 0)
    if mask.type.rank == 2:
        keep = n.emit("expand_dims", keep, axes=(1, 2))
    elif mask.type.rank == 3:
        keep = n.emit("expand_dims", keep, axes=(1,))
    else:
        begin = sub(keys, queries)
        keep = n.emit("strided_slice", keep, axes=(2, 3), begin=(begin, 0), size=(queries, keys))
    return filled(n, keep, dtype, fill)


def attended(n: Node, q: Value, k: Value, v: Value, mask: Value | None, scale: float, **attrs: object) -> Value:
    """The attention, (batch, heads, length, size) throughout."""
    return n.emit("attention", q, k, v, mask, scale=scale, **attrs)


def merged(n: Node, q: Value, k: Value, v: Value, keys: Value | None, bias: Value | None) -> Value:
    """Attention and MultiHeadAttention once the heads are apart: masks added, heads joined."""
    queries, total, dtype = q.type.shape[2], k.type.shape[2], q.type.dtype
    fill = n.attr("mask_filter_value", -10000.0)
    padding = None if keys is None else key_mask(n, keys, queries, total, dtype, fill)
    causal = None
    if n.attr("unidirectional", 0):
        causal = causal_bias(n, queries, total, dtype, float(np.finfo(np.float32).min) if keys is None else fill)
    return joined(n, attended(n, q, k, v, added(n, padding, causal, bias), n.attr("scale", 0.0)))


def after(n: Node, past: Value | None, new: Value) -> Value:
    """Keys or values with those of a cache before them."""
    return new if past is None else n.emit("concat", past, new, axis=2)


def attention(n: Node) -> Result:
    """Attention: projections by one weight, a cache of keys and values, masks of several forms."""
    x, weight, bias = n.input(0), n.input(1), n.optional(2)
    packed = n.emit("matmul", x, weight)
    return self_attention(n, packed if bias is None else n.emit("add", packed, bias), mask=3, past=4, bias=5)


def self_attention(n: Node, packed: Value, mask: int, past: int, bias: int) -> Result:
    """Attention from queries, keys and values side by side in the last axis; the arguments are places of inputs."""
    if n.given(6) and bias == 5:
        n.unsupported("a shared buffer of past and present")
    if n.attr("do_rotary", 0):
        n.unsupported("do_rotary")
    heads = n.attr("num_heads", 1)
    third = floordiv(packed.type.shape[-1], 3)
    widths = n.ints("qkv_hidden_sizes") or (third, third, third)
    q, k, v = (heads_of(n, p, heads) for p in n.emit_tuple("split", packed, sizes=tuple(widths), axis=-1))
    cache = n.optional(past)
    if cache is not None:
        olds = (n.emit("take", cache, n.literal(np.array(i), "int64"), axis=0) for i in range(2))
        k, v = (after(n, old, new) for old, new in zip(olds, (k, v), strict=True))
    y = merged(n, q, k, v, n.optional(mask), n.optional(bias) if bias else None)
    wanted = len(n.proto.output) > 1 and n.proto.output[1]
    return y, n.emit("stack", k, v, axis=0) if wanted else None


def multi_head_attention(n: Node) -> Result:
    """MultiHeadAttention: separate or packed projections, a bias for them, a cache, masks."""
    if n.given(8) or n.given(9):
        n.unsupported("past_sequence_length and cache_indirection")
    heads = n.attr("num_heads", 1)
    query, key, value = n.input(0), n.optional(1), n.optional(2)
    if query.type.rank == 5:  # (batch, length, heads, 3, size)
        q, k, v = (n.emit("permute_dims", p, axes=(0, 2, 1, 3)) for p in parts(n, query, 3))
    elif key is not None and key.type.rank == 5:  # (batch, length, heads, 2, size)
        q = heads_of(n, query, heads)
        k, v = (n.emit("permute_dims", p, axes=(0, 2, 1, 3)) for p in parts(n, key, 2))
    else:
        given = [query, key or query, value or key or query]
        bias = n.optional(3)
        if bias is not None:
            widths = tuple(x.type.shape[-1] if x.type.rank == 3 else product_of_heads(x) for x in given)
            biases = n.emit_tuple("split", bias, sizes=widths, axis=0)
            given = [n.emit("add", x, b) if x.type.rank == 3 else x for x, b in zip(given, biases, strict=True)]
        q, k, v = (heads_of(n, x, heads) if x.type.rank == 3 else x for x in given)
    k, v = after(n, n.optional(6), k), after(n, n.optional(7), v)
    return merged(n, q, k, v, n.optional(4), n.optional(5)), k, v


def product_of_heads(x: Value) -> DimLike:
    """Width of a value that has its heads apart already."""
    return x.type.shape[1] * x.type.shape[3]


def parts(n: Node, x: Value, count: int) -> list[Value]:
    """The values along axis 3."""
    return [n.emit("take", x, n.literal(np.array(i), "int64"), axis=3) for i in range(count)]


def rotated(n: Node, x: Value, places: Value, cos: Value, sin: Value, interleaved: bool) -> Value:
    """Rotary embedding of (batch, heads, length, size) by tables at positions (batch or 1, length)."""
    half = cos.type.shape[1]
    size = x.type.shape[3]
    angles = [n.emit("expand_dims", n.emit("take", t, places, axis=0), axes=(1,)) for t in (cos, sin)]
    turned, rest = x, None
    if size != 2 * half:
        turned, rest = n.emit_tuple("split", x, sizes=(2 * half, size - 2 * half), axis=3)
    shape = turned.type.shape
    if interleaved:
        pairs = n.emit("reshape", turned, shape=(*shape[:3], half, 2))
        a, b = (n.emit("take", pairs, n.literal(np.array(i), "int64"), axis=4) for i in range(2))
    else:
        a, b = n.emit_tuple("split", turned, sizes=(half, half), axis=3)
    c, s = angles
    first = n.emit("subtract", n.emit("multiply", a, c), n.emit("multiply", b, s))
    second = n.emit("add", n.emit("multiply", a, s), n.emit("multiply", b, c))
    if interleaved:
        y = n.emit("reshape", n.emit("stack", first, second, axis=-1), shape=shape)
    else:
        y = n.emit("concat", first, second, axis=3)
    return y if rest is None else n.emit("concat", y, rest, axis=3)


def rotary_embedding(n: Node) -> Result:
    """RotaryEmbedding: pairs of elements turned by angles from tables."""
    x, places, cos, sin = (n.input(i) for i in range(4))
    if n.attr("is_packed_batching", 0):
        n.unsupported("packed batches")
    flat = x.type.rank == 3
    if flat:
        heads = n.attr("num_heads", 0)
        width, turned = x.type.shape[2], n.attr("rotary_embedding_dim", 0)
        if not heads and (turned or not isinstance(width, int)):
            n.unsupported("a number of heads that is not stated")
        half = cos.type.shape[1]
        if not heads and not isinstance(half, int):
            n.unsupported("a number of heads that is not stated")
        x = heads_of(n, x, heads or int(width) // (2 * int(half)))
    length = x.type.shape[2]
    if places.type.rank < 2:
        steps = n.emit("arange", start=0, stop=length, dtype="int64")
        places = n.emit("expand_dims", n.emit("add", n.scalar_input(1), steps), axes=(0,))
    y = rotated(n, x, places, cos, sin, bool(n.attr("interleaved", 0)))
    return joined(n, y) if flat else y


def group_query_attention(n: Node) -> Result:
    """GroupQueryAttention: causal, fewer heads of keys than of queries, a cache with a length per batch, rotary."""
    heads, groups = n.attr("num_heads", 1), n.attr("kv_num_heads", 1)
    for index, what in ((11, "head_sink"), (10, "attention_bias")):
        if n.given(index):
            n.unsupported(what)
    if n.attr("smooth_softmax", 0) > 0:
        n.unsupported("smooth_softmax")
    query, key, value = n.input(0), n.optional(1), n.optional(2)
    batch, queries, width = query.type.shape
    if key is None or value is None:
        size = floordiv(width, heads + 2 * groups)
        query, key, value = n.emit_tuple("split", query, sizes=(heads * size, groups * size, groups * size), axis=2)
    q, k, v = heads_of(n, query, heads), heads_of(n, key, groups), heads_of(n, value, groups)
    last = n.emit("astype", n.input(5), dtype="int64")  # of each batch: position of its newest key
    last = n.emit("reshape", last, shape=(batch, 1))
    steps = n.emit("arange", start=0, stop=queries, dtype="int64")
    begin = n.emit("maximum", n.emit("subtract", n.emit("add", last, 1), n.emit("dims_to_tensor", dims=(queries,))), 0)
    places = n.emit("add", begin, steps)
    if n.attr("do_rotary", 0):
        at = n.input(9) if n.given(9) else places
        turn = n.input(7), n.input(8), bool(n.attr("rotary_interleaved", 0))
        q, k = rotated(n, q, at, *turn), rotated(n, k, at, *turn)
    (total,) = n.dims(6, low=1, names="total", count=1)
    past = n.optional(3)
    room = total if past is None else max_(past.type.shape[2], total)
    caches = (n.optional(3), n.optional(4))
    k, v = (written(n, cache, x, begin, room) for cache, x in zip(caches, (k, v), strict=True))
    j = n.emit("arange", start=0, stop=room, dtype="int64")
    column = n.emit("expand_dims", places, axes=(2,))
    keep = n.emit("less_equal", j, column)
    window = n.attr("local_window_size", -1)
    if window > 0:
        keep = n.emit("logical_and", keep, n.emit("greater", j, n.emit("subtract", column, window)))
    mask = n.emit("expand_dims", keep, axes=(1,))
    y = attended(n, q, k, v, mask, n.attr("scale", 0.0), softcap=n.attr("softcap", 0.0))
    return joined(n, y), k, v


def written(n: Node, past: Value | None, new: Value, begin: Value, room: DimLike) -> Value:
    """A cache of ``room`` positions with new ones written behind those of each batch."""
    batch, groups, length, size = new.type.shape
    if past is None:
        cache = n.emit("full", n.scalar(0.0, new.type.dtype), shape=(batch, groups, room, size))
    else:
        pads = ((0, 0), (0, 0), (0, sub(room, past.type.shape[2])), (0, 0))
        cache = n.emit("pad", past, n.scalar(0.0, new.type.dtype), pads=pads)
    steps = n.emit("arange", start=0, stop=length, dtype="int64")
    places = n.emit("reshape", n.emit("add", begin, steps), shape=(batch, 1, length, 1))
    places = n.emit("broadcast_to", places, shape=(batch, groups, length, size))
    return n.emit("scatter_elements", cache, places, new, axis=2)


MICROSOFT_ATTENTION: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "Attention": attention,
        "GroupQueryAttention": group_query_attention,
        "MultiHeadAttention": multi_head_attention,
        "RotaryEmbedding": rotary_embedding,
    }
)
"""Attention operators of the domain com.microsoft."""
