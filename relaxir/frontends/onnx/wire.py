"""The wire format of model files, as far as it takes to leave the data of large initializers where they are.

A parser of protocol buffers copies all data twice: into its message, and out of it. Here the file is cut: what the
parser gets lacks the data of large initializers, which are views of the file's bytes.

Source: https://protobuf.dev/programming-guides/encoding/ and the field numbers of onnx.proto.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

LARGE: Final = 1 << 12
"""Bytes of data from which an initializer is cut."""
GRAPH: Final = 7
"""Field of ModelProto: the graph."""
INITIALIZER: Final = 5
"""Field of GraphProto: a constant."""
RAW_DATA: Final = 9
"""Field of TensorProto: its elements as bytes."""
VARINT, FIXED64, LENGTH, FIXED32 = 0, 1, 2, 5
"""Wire types."""
FIXED: Final = {FIXED64: 8, FIXED32: 4}.get
"""Bytes of a value of fixed size."""


class MalformedError(Exception):
    """The bytes are no message (never leaves this module)."""


@dataclass(frozen=True, slots=True)
class Field:
    """A field of a message, by its places in the file."""

    number: int
    wire: int
    start: int
    """Where its tag begins."""
    value: int
    """Where its value begins, behind the length of one that has a length."""
    end: int


def without_weights(data: bytes) -> tuple[bytes, Mapping[int, memoryview]]:
    """A model without the data of its graph's large initializers, and that data by the number of the initializer.

    What is no valid message is returned as it is, for the parser to complain.
    """
    view = memoryview(data)
    try:
        graphs = [f for f in fields(view, 0, len(view)) if f.number == GRAPH and f.wire == LENGTH]
        if len(graphs) != 1:
            return data, {}
        graph = graphs[0]
        parts, found = cut_graph(view, graph)
    except MalformedError:
        return data, {}
    if not found:
        return data, {}
    size = sum(map(len, parts))
    head, tail = view[: graph.start], view[graph.end :]
    return b"".join((head, tag(GRAPH), varint(size), *parts, tail)), found


def cut_graph(view: memoryview, graph: Field) -> tuple[list[bytes | memoryview], dict[int, memoryview]]:
    """The bytes of a graph in parts, without the data of large initializers, and that data."""
    parts: list[bytes | memoryview] = []
    found: dict[int, memoryview] = {}
    kept, index = graph.value, 0  # where the bytes begin that are not yet among the parts
    for f in fields(view, graph.value, graph.end):
        if f.number != INITIALIZER or f.wire != LENGTH:
            continue
        if f.end - f.value >= LARGE:
            raw = [r for r in fields(view, f.value, f.end) if r.number == RAW_DATA and r.wire == LENGTH]
            if len(raw) == 1 and raw[0].end - raw[0].value >= LARGE:
                r = raw[0]
                found[index] = view[r.value : r.end]
                rest = (view[f.value : r.start], view[r.end : f.end])
                parts += [view[kept : f.start], tag(INITIALIZER), varint(sum(map(len, rest))), *rest]
                kept = f.end
        index += 1
    return [*parts, view[kept : graph.end]], found


def fields(view: memoryview, start: int, end: int) -> Iterator[Field]:
    """Fields of the message between two places.

    Raises:
        MalformedError: they are not whole.
    """
    at = start
    while at < end:
        key, value = read_varint(view, at, end)
        number, wire = key >> 3, key & 7
        if wire == LENGTH:
            size, value = read_varint(view, value, end)
            stop = value + size
        elif wire == VARINT:
            _, stop = read_varint(view, value, end)
        else:
            stop = value + (FIXED(wire) or end)
        if stop > end:
            raise MalformedError
        yield Field(number, wire, at, value, stop)
        at = stop


def read_varint(view: memoryview, at: int, end: int) -> tuple[int, int]:
    """A number of variable length, and the place behind it.

    Raises:
        MalformedError: it does not end.
    """
    number = shift = 0
    while at < end and shift < 64:
        byte = view[at]
        at += 1
        number |= (byte & 0x7F) << shift
        if byte < 0x80:
            return number, at
        shift += 7
    raise MalformedError


def varint(number: int) -> bytes:
    """A number in variable length."""
    found = bytearray()
    while number >= 0x80:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    return bytes((*found, number))


def tag(number: int) -> bytes:
    """The tag of a field that has a length."""
    return varint(number << 3 | LENGTH)
