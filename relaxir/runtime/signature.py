"""What a compiled function takes and gives: names, types, and the same as JSON for exported libraries."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any

from relaxir.ir.expr import Function
from relaxir.ir.positions import extents_of_positions
from relaxir.ir.types import FuncType, ShapeType, TensorType, TupleType, Type, describe, free_dims_of_type, parse_type
from relaxir.sym import Dim, DimLike, dim, parse, to_text


@dataclass(frozen=True, slots=True)
class TensorSpec:
    """One tensor of a signature.

    ``element`` names the format of its elements where ml_dtypes has a type for it. Where they are positions (token ids,
    indices), ``below`` is the least extent of what they index; None: they are not, or it is not known.
    """

    name: str
    type: TensorType
    element: str = ""
    below: DimLike | None = None


@dataclass(frozen=True, slots=True)
class Signature:
    """A compiled function's interface, tuples flattened.

    ``single`` says that the function gives one tensor, not a tuple of them; ``reuse`` lists the inputs whose memory may
    hold an output if the caller donates it, as pairs of places.
    """

    name: str
    inputs: tuple[TensorSpec, ...]
    outputs: tuple[TensorSpec, ...]
    single: bool
    where: tuple[str, ...] = ()
    reuse: tuple[tuple[int, int], ...] = ()

    @property
    def type(self) -> FuncType:
        """As a graph-level type."""
        fields = tuple(o.type for o in self.outputs)
        return FuncType(tuple(i.type for i in self.inputs), fields[0] if self.single else TupleType(fields))

    @property
    def symbols(self) -> Mapping[str, Dim]:
        """The symbols of all types, by name, in order of the names."""
        found = {d.name: d for t in (*self.inputs, *self.outputs) for d in free_dims_of_type(t.type)}
        return MappingProxyType(dict(sorted(found.items())))

    @property
    def conditions(self) -> tuple[str, ...]:
        """What holds of the symbols, in words of the text form: their ranges, then the relations between them."""
        return (*(c for d in self.symbols.values() for c in ranges(d)), *self.where)

    def __str__(self) -> str:
        ins = ", ".join(f"{i.name}: {describe(i.type)}" for i in self.inputs)
        outs = ", ".join(f"{o.name}: {describe(o.type)}" for o in self.outputs)
        return f"{self.name}({ins}) -> ({outs})"


def ranges(d: Dim) -> Iterator[str]:
    """The range of a symbol as conditions: ``1 <= n <= 64``, ``n % 8 == 0``."""
    yield f"{d.name} >= {d.min}" if d.max is None else f"{d.min} <= {d.name} <= {d.max}"
    if d.multiple_of != 1:
        yield f"{d.name} % {d.multiple_of} == 0"


def flatten(name: str, t: Type) -> tuple[TensorSpec, ...]:
    """Tensors of a value: tuple fields are named ``name_0``, ``name_1``, ...; shape values are int64 vectors.

    Elements of bfloat16, which NumPy has no type for, have that format.
    """
    if isinstance(t, TupleType):
        return tuple(s for i, f in enumerate(t.fields) for s in flatten(f"{name}_{i}", f))
    if isinstance(t, ShapeType):
        return (TensorSpec(name, TensorType((len(t.dims),), "int64")),)
    assert isinstance(t, TensorType)
    return (TensorSpec(name, t, t.dtype if t.dtype == "bfloat16" else ""),)


def signature_of(name: str, func: Function) -> Signature:
    """Signature of a graph function; output names come from its attribute ``output_names`` or are ``out0``, ...

    Its attribute ``elements`` has the element format of each input, then of each output, where that is no dtype.
    """
    below = extents_of_positions(func)
    inputs = tuple(replace(s, below=below.get(p)) for p in func.params for s in flatten(p.name, p.type))
    single = not isinstance(func.ret, TupleType)
    outputs = flatten("out", func.ret) if not single else flatten("out0", func.ret)
    names = func.attrs.get("output_names")
    if isinstance(names, tuple) and len(names) == len(outputs):
        outputs = tuple(replace(o, name=str(n)) for n, o in zip(names, outputs, strict=True))
    else:
        outputs = tuple(replace(o, name=f"out{i}") for i, o in enumerate(outputs))
    elements = func.attrs.get("elements")
    if isinstance(elements, tuple) and len(elements) == len(inputs) + len(outputs):
        formats = iter(str(e) for e in elements)
        inputs, outputs = (
            tuple(replace(s, element=next(formats) or s.element) for s in specs) for specs in (inputs, outputs)
        )
    return Signature(name, inputs, outputs, single, tuple(str(r) for r in func.where))


def to_json(signatures: Sequence[Signature], extra: Mapping[str, Any]) -> str:
    """Metadata of a library: signatures with their symbols' ranges, and ``extra`` beside."""
    functions = []
    for s in signatures:
        functions.append(
            {
                "name": s.name,
                "single": s.single,
                "symbols": {n: [d.min, d.max, d.multiple_of] for n, d in s.symbols.items()},
                "inputs": [[i.name, describe(i.type), i.element] for i in s.inputs],
                "outputs": [[o.name, describe(o.type), o.element] for o in s.outputs],
                "positions": {str(n): to_text(i.below) for n, i in enumerate(s.inputs) if i.below is not None},
                "where": list(s.where),
                "reuse": [list(pair) for pair in s.reuse],
            }
        )
    return json.dumps({"functions": functions, **extra}, sort_keys=True)


def from_json(text: str) -> tuple[tuple[Signature, ...], Mapping[str, Any]]:
    """Inverse of `to_json`.

    Raises:
        ValueError: when the text is not such metadata.
    """
    data = json.loads(text)
    signatures = []
    for f in data["functions"]:
        scope: dict[str, Dim] = {n: dim(n, min=r[0], max=r[1], multiple_of=r[2]) for n, r in f["symbols"].items()}
        inputs, outputs = (
            tuple(TensorSpec(n, parse_type(t, scope), e) for n, t, e in f[k]) for k in ("inputs", "outputs")
        )
        below = {int(n): parse(text, scope) for n, text in f.get("positions", {}).items()}
        inputs = tuple(replace(s, below=below.get(n)) for n, s in enumerate(inputs))
        reuse = tuple((int(i), int(j)) for i, j in f.get("reuse", ()))
        signatures.append(Signature(f["name"], inputs, outputs, f["single"], tuple(f["where"]), reuse))
    return tuple(signatures), data
