"""Damaged ONNX files, the same in each run: every kind of damage that a disk, an editor or an enemy does to a model."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from random import Random
from types import MappingProxyType
from typing import Any, Final

from onnx import AttributeProto, GraphProto, ModelProto, NodeProto, TensorProto

from tests.frontends.bases import BASES, externalized

NUMBERS: Final = (0, 1, 2, 3, 4, 5, 7, 8, 64, 255, 1000, 2**31 - 1, 2**31, 2**40, 2**62, 2**63 - 1,
                  -1, -2, -3, -5, -(2**31), -(2**63))  # fmt: skip
"""What damaged integers become: around the usual sizes, and the ends of the ranges."""
FLOATS: Final = (0.0, -1.0, 1e-30, 1e30, float("inf"), float("nan"))
TEXTS: Final = ("", " ", "a" * 3000, "?", "../x", "x\0y", "名", "%s", "linear", "VALID", "edge")
FILE: Final = "weights.bin"


@dataclass(frozen=True)
class Mutant:
    """A damaged file.

    Attributes:
        label: base and number.
        data: the model's bytes.
        weights: content of the file beside it; None: there is none.
    """

    label: str
    data: bytes
    weights: bytes | None = None

    def save(self, folder: Path) -> Path:
        """Write it to a new folder; the path of the model."""
        folder.mkdir()
        path = folder / "model.onnx"
        path.write_bytes(self.data)
        if self.weights is not None:
            (folder / FILE).write_bytes(self.weights)
        return path


def graphs(graph: GraphProto) -> Iterator[GraphProto]:
    """A graph and those in its nodes."""
    yield graph
    for n in graph.node:
        for a in n.attribute:
            if a.HasField("g"):
                yield from graphs(a.g)


def pick(r: Random, items: Any) -> Any:
    """One of some messages, or None."""
    return r.choice(list(items)) if len(items) else None


def some_graph(r: Random, m: ModelProto) -> GraphProto:
    """The main graph, often; else one inside."""
    return m.graph if r.random() < 0.7 else r.choice(list(graphs(m.graph)))


def some_node(r: Random, m: ModelProto) -> NodeProto:
    """A node of any graph."""
    return pick(r, some_graph(r, m).node) or m.graph.node[0]


# ---- kinds of damage -------------------------------------------------------------------------------------------------


def bits(r: Random, data: bytes) -> bytes:
    """Flipped bits, bytes of another value, a piece missing or there twice."""
    copy = bytearray(data)
    for _ in range(r.choice((1, 1, 1, 2, 5))):
        at = r.randrange(len(copy))
        what = r.random()
        if what < 0.6:
            copy[at] ^= 1 << r.randrange(8)
        elif what < 0.8:
            copy[at] = r.randrange(256)
        elif what < 0.9:
            del copy[at : at + r.choice((1, 4, 64))]
        else:
            copy[at:at] = copy[at : at + r.choice((1, 8, 64))]
    return bytes(copy) if r.random() < 0.9 else bytes(copy[: r.randrange(len(copy))])


def dims(r: Random, m: ModelProto) -> None:
    """Extents of stored tensors, of inputs, of outputs and of values between them."""
    g = some_graph(r, m)
    infos = [v for v in (*g.input, *g.input, *g.output, *g.value_info) if v.type.tensor_type.shape.dim]
    stored = [t for t in g.initializer if t.dims]
    if stored and (not infos or r.random() < 0.3):
        t = r.choice(stored)
        k = r.randrange(len(t.dims))
        changes: tuple[Callable[[], object], ...] = (
            lambda: t.dims.__setitem__(k, r.choice(NUMBERS)),
            lambda: t.dims.append(1),
            t.dims.pop,
            t.dims.reverse,
            lambda: t.dims.__setitem__(k, t.dims[k] + r.choice((-1, 1))),
        )
        r.choice(changes)()
        return
    if not infos:
        return
    shape = r.choice(infos).type.tensor_type.shape
    d = r.choice(list(shape.dim))
    what = r.randrange(6)
    if what < 2:
        d.dim_value = r.choice(NUMBERS)
    elif what == 2:
        d.dim_param = r.choice(("n", "batch", "h", *TEXTS))
    elif what == 3:
        d.Clear()
    elif what == 4:
        shape.dim.add(dim_value=1)
    else:
        shape.dim.pop()


def external(r: Random, m: ModelProto, weights: bytes) -> bytes:
    """Places, lengths and files of stored data; returns what the file beside the model holds."""
    t = r.choice(list(m.graph.initializer))
    entries = {e.key: e for e in t.external_data}
    what = r.randrange(8)
    if what < 2:
        shift = r.choice((-64, -4, -1, 1, 4, 64))
        entries["offset"].value = str(int(entries["offset"].value) + shift)
    elif what == 2:
        entries["length"].value = str(r.choice(NUMBERS))
    elif what == 3:
        entries[r.choice(("offset", "length"))].value = r.choice((*TEXTS, "0x10", "1e3", "-0", str(2**70)))
    elif what == 4:
        entries["location"].value = r.choice((*TEXTS, "/etc/passwd", "./" + FILE, "sub/../" + FILE, ".", "model.onnx"))
    elif what == 5:
        return weights[: r.randrange(len(weights))]
    elif what == 6:
        t.external_data.pop(r.randrange(len(t.external_data)))
    else:
        damaged = bytearray(weights)
        for _ in range(8):
            damaged[r.randrange(len(damaged))] = r.randrange(256)
        return bytes(damaged)
    return weights


def types(r: Random, m: ModelProto) -> None:
    """Element types of inputs, outputs and stored tensors, and of casts."""
    g = some_graph(r, m)
    codes = (*range(1, 14), 16, 17, 22, 0, 99)
    what = r.randrange(4)
    casts = [a for n in g.node for a in n.attribute if a.name == "to"]
    if what == 0 and g.initializer:
        r.choice(list(g.initializer)).data_type = r.choice(codes)
    elif what == 1 and casts:
        r.choice(casts).i = r.choice(codes)
    elif what == 2 and g.output:
        r.choice(list(g.output)).type.tensor_type.elem_type = r.choice(codes)
    elif g.input and r.random() < 0.9:
        r.choice(list(g.input)).type.tensor_type.elem_type = r.choice(codes)
    elif g.input:
        r.choice(list(g.input)).type.sequence_type.elem_type.tensor_type.elem_type = 1


def names(r: Random, m: ModelProto) -> None:
    """Names of values and nodes: lost, given twice, odd; operators and domains too."""
    g = some_graph(r, m)
    n = pick(r, g.node) or m.graph.node[0]
    other = pick(r, g.node) or n
    name = r.choice((*TEXTS, *(o for o in other.output), *(v.name for v in g.input)))
    what = r.randrange(9)
    if what == 0 and n.input:
        n.input[r.randrange(len(n.input))] = name
    elif what == 1 and n.output:
        n.output[r.randrange(len(n.output))] = name
    elif what == 2:
        n.name = name
    elif what == 3:
        n.op_type = r.choice((*TEXTS[:3], other.op_type, "Relu", "Identity", "Add", "Reshape", "Loop"))
    elif what == 4:
        n.domain = r.choice(("ai.onnx", "com.microsoft", "custom", ""))
    elif what == 5 and g.initializer:
        r.choice(list(g.initializer)).name = name
    elif what == 6 and g.input:
        r.choice(list(g.input)).name = name
    elif what == 7 and g.output:
        r.choice(list(g.output)).name = name
    else:  # the same name everywhere: nothing changes but the text
        old = r.choice([o for o in n.output if o] or ["?"])
        rename(g, old, r.choice(("名", "a b", "def", "x.1", "0")))


def rename(g: GraphProto, old: str, new: str) -> None:
    """A value's name in a graph and those inside it."""
    for inner in graphs(g):
        for n in inner.node:
            n.input[:] = [new if i == old else i for i in n.input]
            n.output[:] = [new if o == old else o for o in n.output]
        for v in (*inner.input, *inner.output):
            v.name = new if v.name == old else v.name


def edges(r: Random, m: ModelProto) -> None:
    """Who reads what: operands swapped, lost, taken from elsewhere; nodes and outputs missing, twice, in another order."""
    g = some_graph(r, m)
    n = pick(r, g.node) or m.graph.node[0]
    known = [o for k in g.node for o in k.output] + [v.name for v in g.input] + [t.name for t in g.initializer]
    what = r.randrange(9)
    if what < 3 and n.input:
        n.input[r.randrange(len(n.input))] = r.choice(known)
    elif what == 3 and len(n.input) > 1:
        n.input.reverse()
    elif what == 4 and n.input:
        n.input.pop(r.randrange(len(n.input)))
    elif what == 5:
        n.input.append(r.choice(known))
    elif what == 6 and len(g.node) > 1:
        i = r.randrange(len(g.node))
        g.node.append(g.node[i]) if r.random() < 0.3 else g.node.pop(i)
    elif what == 7 and len(g.node) > 1:
        order = list(g.node)
        r.shuffle(order)
        del g.node[:]
        g.node.extend(order)
    elif r.random() < 0.5 and g.output:
        g.output[r.randrange(len(g.output))].name = r.choice(known)
    else:
        inputs = list(g.input)
        r.shuffle(inputs)
        del g.input[:]
        g.input.extend(inputs[: r.choice((len(inputs), len(inputs), 1, 0))])


def attributes(r: Random, m: ModelProto) -> None:
    """Values, lengths and types of attributes; constants that operators read as sizes."""
    having = [n for g in graphs(m.graph) for n in g.node if n.attribute]
    sizes = [t for g in graphs(m.graph) for t in g.initializer if t.data_type == TensorProto.INT64 and t.raw_data]
    if sizes and r.random() < 0.3:
        t = r.choice(sizes)
        at = 8 * r.randrange(len(t.raw_data) // 8)
        t.raw_data = t.raw_data[:at] + r.choice(NUMBERS).to_bytes(8, "little", signed=True) + t.raw_data[at + 8 :]
        return
    n = r.choice(having)
    a = r.choice(list(n.attribute))
    what = r.randrange(8)
    if what == 0:
        n.attribute.remove(a)
    elif what == 1:
        n.attribute.add(name=a.name, type=AttributeProto.INT, i=r.choice(NUMBERS))
    elif what == 2:
        a.type = r.randrange(15)
    elif what == 3:
        a.name = r.choice(("axis", "perm", "to", "pads", "strides", "group", "mode", ""))
    elif a.type == AttributeProto.INT:
        a.i = r.choice(NUMBERS)
    elif a.type == AttributeProto.INTS:
        damage_list(r, a.ints)
    elif a.type == AttributeProto.FLOAT:
        a.f = r.choice(FLOATS)
    elif a.type == AttributeProto.STRING:
        a.s = r.choice((*TEXTS, "\udcff")).encode(errors="surrogateescape")
    else:
        n.attribute.remove(a)


def damage_list(r: Random, values: Any) -> None:
    """One of the integers is another, one is missing, one is too many."""
    what = r.randrange(4)
    if what == 0 and values:
        values.pop()
    elif what == 1:
        values.append(r.choice(NUMBERS))
    elif values:
        values[r.randrange(len(values))] = r.choice(NUMBERS)


def versions(r: Random, m: ModelProto) -> None:
    """Versions of the format and of the operator sets."""
    what = r.randrange(5)
    if what < 3:
        m.opset_import[0].version = r.choice((*range(7, 27), *NUMBERS))
    elif what == 3:
        m.ir_version = r.choice(NUMBERS)
    else:
        m.opset_import.add(domain=r.choice(("", "ai.onnx", "custom", "ai.onnx.ml")), version=r.choice(NUMBERS))


MESSAGES: Final = (dims, types, names, edges, attributes, versions)
KINDS: Final = ("bits", "external", *(f.__name__ for f in MESSAGES))


@cache
def whole(base: str) -> bytes:
    """The undamaged file of a base."""
    return BASES[base]().SerializeToString()


def mutants(kind: str, count: int) -> Iterator[Mutant]:
    """The first files of a kind, over all bases in turn."""
    change: Mapping[str, Callable[[Random, ModelProto], None]] = MappingProxyType({f.__name__: f for f in MESSAGES})
    for i in range(count):
        base = tuple(BASES)[i % len(BASES)]
        r = Random(f"{kind} {base} {i}")
        label = f"{kind} {base} {i}"
        if kind == "bits":
            yield Mutant(label, bits(r, whole(base)))
            continue
        proto: ModelProto = ModelProto.FromString(whole(base))
        if kind == "external":
            bare, stored = externalized(proto, FILE)
            stored = external(r, bare, stored)
            yield Mutant(label, bare.SerializeToString(), stored)
            continue
        change[kind](r, proto)
        yield Mutant(label, proto.SerializeToString())
