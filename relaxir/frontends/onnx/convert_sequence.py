"""Converters of sequences and optionals, which exist at import only (`relaxir.frontends.onnx.values`)."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.values import ABSENT, Item, Items, Pieces, Value
from relaxir.sym import DimLike, add, min_, mul, sub, to_text


def empty(n: Node) -> Result:
    """No tensors; the element type that the node states is that of what comes in later."""
    return Items(())


def construct(n: Node) -> Result:
    """The inputs, in order."""
    return Items(tuple(n.input(i) for i in range(len(n.inputs))))


def insert(n: Node) -> Result:
    """A tensor before a position, or at the end."""
    values = list(n.items(0).values)
    values.insert(position(n, 2, len(values) + 1) if n.given(2) else len(values), n.input(1))
    return Items(tuple(values))


def erase(n: Node) -> Result:
    """Without the tensor at a position, or without the last."""
    values = list(n.items(0).values)
    del values[position(n, 1, len(values)) if n.given(1) else -1]
    return Items(tuple(values))


def position(n: Node, index: int, count: int) -> int:
    """A position below ``count``, from the end where negative."""
    found = int(n.constant(index, "a position in a sequence").reshape(-1)[0])
    size = n.items(0).count
    assert isinstance(size, int)
    place = found + size if found < 0 else found
    if not 0 <= place < count:
        n.fail(f"position {found} is out of range for a sequence of {size}")
    return place


def at(n: Node) -> Result:
    """One tensor; a position known only at run time needs tensors of one type."""
    known, found = n.number(1), n.sequence(0)
    if isinstance(found, Pieces):
        if known is None:
            return single(n, found)
        number = int(known.reshape(-1)[0])
        return piece(n, found, number if number >= 0 else add(found.count, number))
    if known is not None:
        return found.values[position(n, 1, len(found.values))]
    if len({v.type for v in found.values}) != 1:
        n.unsupported("a run-time position in a sequence of tensors of several types, or of none")
    return n.emit("take", n.emit("stack", *found.values, axis=0), n.scalar_input(1), axis=0)


def single(n: Node, of: Pieces) -> Value:
    """The part of one element at a position known only at run time."""
    if of.size != 1:
        n.unsupported("a run-time position in a sequence of parts, the last of which may be shorter")
    y = n.emit("take", of.x, n.scalar_input(1), axis=of.axis)
    return n.emit("expand_dims", y, axes=(of.axis,)) if of.keepdims else y


def piece(n: Node, of: Pieces, number: DimLike) -> Value:
    """One part of a tensor; it must exist, which is checked at run time."""
    n.require_at_least(0, number, "position from the end")
    begin = mul(of.size, number)
    left = sub(of.x.type.shape[of.axis], begin)
    n.require_at_least(1, left, f"elements left for part {to_text(number)}")
    y = n.emit("strided_slice", of.x, axes=(of.axis,), begin=(begin,), size=(min_(of.size, left),))
    return y if of.keepdims else n.emit("squeeze", y, axes=(of.axis,))


def length(n: Node) -> Result:
    """Number of tensors."""
    return n.emit("reshape", n.emit("dims_to_tensor", dims=(n.sequence(0).count,)), shape=())


def concat(n: Node) -> Result:
    """All tensors joined along an axis, or stacked along a new one."""
    found, stacked = n.sequence(0), bool(n.attr("new_axis", 0))
    if isinstance(found, Pieces):
        return joined(n, found, n.attr("axis", 0), stacked)
    values = found.values
    if not values:
        n.unsupported("an empty sequence")
    return n.emit("stack" if stacked else "concat", *values, axis=n.attr("axis", 0))


def joined(n: Node, of: Pieces, axis: int, stacked: bool) -> Value:
    """Parts of a tensor joined again, along the same axis or another one."""
    x = of.x
    if of.keepdims:
        if stacked or n.axis(axis, x.type.rank) != of.axis:
            n.unsupported("parts of a run-time number joined along another axis")
        return x
    rest = [a for a in range(x.type.rank) if a != of.axis]
    place = n.axis(axis, len(rest) + stacked)
    order = (*rest[:place], of.axis, *rest[place:])
    moved = n.emit("permute_dims", x, axes=order) if order != tuple(range(x.type.rank)) else x
    if stacked:
        return moved
    shape = moved.type.shape
    return n.emit("reshape", moved, shape=(*shape[:place], mul(shape[place], shape[place + 1]), *shape[place + 2 :]))


def split(n: Node) -> Result:
    """Parts of given sizes; or of one size, the last shorter; or of one element, with or without their axis."""
    x = n.input(0)
    axis = n.axis(n.attr("axis", 0), x.type.rank)
    extent = x.type.shape[axis]
    if n.given(1) and n.rank(1) == 1:
        sizes = n.dims(1, low=0, names="s")
        return Items(n.emit_tuple("split", x, sizes=sizes, axis=axis) if len(sizes) > 1 else (x,))
    size = n.dims(1, low=1, names="s", count=1)[0] if n.given(1) else 1
    parts = Pieces(x, axis, size, n.given(1) or bool(n.attr("keepdims", 1)))
    if not isinstance(extent, int) or not isinstance(size, int):
        return parts
    return Items(tuple(piece(n, parts, i) for i in range(-(-extent // size))))


def mapped(n: Node) -> Result:
    """A body run for the tensors at each position of one or more sequences; other inputs are the same for all."""
    body = n.graph("body")
    inputs = [n.item(i) for i in range(len(n.inputs))]
    counts = {len(i.values) for i in (n.items(k) for k, v in enumerate(inputs) if not isinstance(v, Value))}
    if len(counts) != 1:
        n.fail(f"the sequences have {sorted(counts)} tensors")
    (count,) = counts
    rows = [
        n.tensors(n.host.run_graph(body, [v.values[k] if isinstance(v, Items) else v for v in inputs]))
        for k in range(count)
    ]
    return tuple(Items(tuple(row[k] for row in rows)) for k in range(len(body.output)))


def optional(n: Node) -> Result:
    """The input, or nothing."""
    return n.item(0) if n.inputs else ABSENT


def has_element(n: Node) -> Result:
    """Whether an optional holds something: a model's inputs always do."""
    return n.scalar(n.given(0), "bool")


def content(n: Node) -> Result:
    """What an optional holds, be it a tensor or a sequence."""
    found: Item = n.item(0)
    return found


SEQUENCE: Final[Mapping[str, Converter]] = MappingProxyType(
    {
        "ConcatFromSequence": concat,
        "Identity": content,
        "Optional": optional,
        "OptionalGetElement": content,
        "OptionalHasElement": has_element,
        "SequenceAt": at,
        "SequenceConstruct": construct,
        "SequenceEmpty": empty,
        "SequenceErase": erase,
        "SequenceInsert": insert,
        "SequenceLength": length,
        "SequenceMap": mapped,
        "SplitToSequence": split,
    }
)
"""Sequences and optionals by ONNX name, and the identity, which takes them too."""
