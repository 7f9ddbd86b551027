"""What a converter sees of a node: typed attributes, inputs, and ways to emit operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final, NoReturn, Protocol, TypeVar

from onnx import AttributeProto, GraphProto, NodeProto

from relaxir.frontends.emitter import Emitter
from relaxir.frontends.onnx.graphs import describe
from relaxir.frontends.onnx.tensors import TensorReader
from relaxir.frontends.onnx.values import Absent, Item, Items, Pieces, Value
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array
from relaxir.ir.op import InferCtx
from relaxir.ir.types import TensorType
from relaxir.ops.symbolic import dims_of
from relaxir.support.dtypes import info
from relaxir.support.errors import LoadError, UnsupportedError
from relaxir.support.spans import Span
from relaxir.sym import DimLike

T = TypeVar("T", int, float, str)
E = TypeVar("E", int, float, str)
Result = Item | tuple[Item | None, ...]
FARTHEST: Final = -(2**63)
"""Least value of an index given at run time that is clamped."""
MOST: Final = 2**47
"""Greatest size or distance given at run time: no memory has more elements, and sums of several fit 64 bits."""
REACH: Final = 2**48
"""Bound of places on axes that are given at run time: no axis is longer."""


class Host(Protocol):
    """The importer, as far as converters need it."""

    bb: BlockBuilder
    reader: TensorReader
    ranks: Mapping[str, int]

    def short_dim(self, d: DimLike) -> DimLike:
        """A symbol for a long dimension formula, the dimension itself if it is short."""

    def run_graph(self, graph: GraphProto, inputs: Sequence[Item]) -> list[Item]:
        """Import a subgraph in place."""

    def run_branches(self, cond: Value, then: GraphProto, other: GraphProto, node: Node) -> tuple[Item, ...]:
        """Import an If whose condition is known only at run time."""

    def run_loop(
        self,
        body: Callable[[Value, tuple[Value, ...]], tuple[Value, Sequence[Value], Sequence[Value]]],
        init: Sequence[Value],
        trips: Value | DimLike | None,
        start: Value | None,
        node: Node,
    ) -> tuple[Value, ...]:
        """A loop: see `BlockBuilder.loop`."""


class Node(Emitter):
    """One node with its inputs resolved."""

    def __init__(self, proto: NodeProto, inputs: Sequence[Item | None], host: Host, opset: int, file: str) -> None:
        self.proto = proto
        self.inputs = list(inputs)
        self.host = host
        self.bb = host.bb
        self.opset = opset
        self.span = Span(file, 0, note=describe(proto))
        self._attrs: Mapping[str, AttributeProto] = {a.name: a for a in proto.attribute}

    # ---- attributes ------------------------------------------------------------------------------------------------

    def has(self, name: str) -> bool:
        """Whether an attribute is given."""
        return name in self._attrs

    def attr(self, name: str, default: T) -> T:
        """An attribute of the type of ``default``; an integer counts as a float.

        Raises:
            LoadError: an attribute of another type.
        """
        value = self.value(name)
        if value is None:
            return default
        kind = type(default)
        if kind is float and isinstance(value, int):
            value = float(value)
        if not isinstance(value, kind):
            raise LoadError(f"attribute `{name}` must be {kind.__name__}, got {value!r}", span=self.span)
        return value

    def value(self, name: str) -> int | float | str | tuple[object, ...] | None:
        """An attribute that is a number or a text, or a list of them; None when it is not given.

        Raises:
            LoadError: an attribute of another type.
        """
        a = self._attrs.get(name)
        if a is None:
            return None
        value: int | float | str | tuple[object, ...]
        if a.type == AttributeProto.INT:
            value = int(a.i)
        elif a.type == AttributeProto.FLOAT:
            value = float(a.f)
        elif a.type == AttributeProto.STRING:
            value = a.s.decode(errors="replace")
        elif a.type == AttributeProto.INTS:
            value = tuple(map(int, a.ints))
        elif a.type == AttributeProto.FLOATS:
            value = tuple(map(float, a.floats))
        elif a.type == AttributeProto.STRINGS:
            value = tuple(s.decode(errors="replace") for s in a.strings)
        else:
            raise LoadError(f"attribute `{name}` has an unexpected type", span=self.span)
        return value

    def ints(self, name: str, count: int | None = None) -> tuple[int, ...] | None:
        """A list of integers, of ``count`` where that is stated; None when it is not given.

        Raises:
            LoadError: an attribute of another type, a list of something else, or of another length.
        """
        return self.listed(name, int, count)

    def floats(self, name: str, count: int | None = None) -> tuple[float, ...] | None:
        """A list of floats, see `ints`; integers count as floats."""
        return self.listed(name, float, count)

    def texts(self, name: str) -> tuple[str, ...] | None:
        """A list of texts, see `ints`."""
        return self.listed(name, str, None)

    def listed(self, name: str, kind: type[E], count: int | None) -> tuple[E, ...] | None:
        """A list of elements of one kind, see `ints`."""
        found = self.value(name)
        if found is None:
            return None
        allowed = (int, float) if kind is float else kind
        if not isinstance(found, tuple) or not all(isinstance(v, allowed) for v in found):
            raise LoadError(f"attribute `{name}` must be a list of {kind.__name__}, got {found!r}", span=self.span)
        if count is not None and len(found) != count:
            self.fail(f"attribute `{name}` must have {count} elements, got {len(found)}")
        return tuple(map(kind, found))

    def tensor(self, name: str) -> Value | None:
        """A tensor attribute."""
        a = self._attrs.get(name)
        return None if a is None or not a.HasField("t") else self.host.reader.value(a.t)

    def graph(self, name: str) -> GraphProto:
        """A graph attribute."""
        a = self._attrs.get(name)
        if a is None or not a.HasField("g"):
            raise LoadError(f"{describe(self.proto)}: attribute `{name}` with a graph is missing", span=self.span)
        return a.g

    # ---- inputs ----------------------------------------------------------------------------------------------------

    def given(self, index: int) -> bool:
        """Whether an optional input is there."""
        return index < len(self.inputs) and not isinstance(self.inputs[index], Absent | None)

    def item(self, index: int) -> Item:
        """An input that must be there, be it a tensor or a sequence."""
        item = self.inputs[index] if index < len(self.inputs) else None
        if item is None or isinstance(item, Absent):
            raise LoadError(f"{describe(self.proto)}: input {index} is missing", span=self.span)
        return item

    def input(self, index: int) -> Value:
        """A tensor that must be there."""
        (value,) = self.tensors((self.item(index),))
        return value

    def optional(self, index: int) -> Value | None:
        """A tensor, or None."""
        return self.input(index) if self.given(index) else None

    def sequence(self, index: int) -> Items | Pieces:
        """A sequence that must be there."""
        item = self.item(index)
        if not isinstance(item, Items | Pieces):
            self.fail(f"input {index} is not a sequence")
        return item

    def items(self, index: int) -> Items:
        """A sequence of known length."""
        found = self.sequence(index)
        if isinstance(found, Pieces):
            self.unsupported(f"input {index} is a sequence whose length is known only at run time")
        return found

    def tensors(self, items: Sequence[Item]) -> tuple[Value, ...]:
        """Items that must be tensors."""
        found = tuple(i for i in items if isinstance(i, Value))
        if len(found) != len(items):
            self.unsupported("a sequence where a tensor is needed")
        return found

    def type(self, index: int = 0) -> TensorType:
        """Type of an input."""
        return self.input(index).type

    def rank(self, index: int = 0) -> int:
        """Rank of an input."""
        return self.type(index).rank

    def axis(self, axis: int, rank: int) -> int:
        """A possibly negative axis, normalised."""
        if not -rank <= axis < max(rank, 1):
            self.fail(f"axis {axis} is out of range for rank {rank}")
        return axis % rank if rank else 0

    def scalar_input(self, index: int) -> Value:
        """An input of one element without its axes."""
        value = self.input(index)
        return self.emit("reshape", value, shape=()) if value.type.rank else value

    def number(self, index: int) -> Array | None:
        """An input's elements, when they are constant."""
        value = self.optional(index)
        return None if value is None else value.constant

    def constant(self, index: int, what: str) -> Array:
        """An input that must be constant.

        Raises:
            UnsupportedError: it is computed at run time.
        """
        found = self.number(index)
        if found is None:
            self.unsupported(f"{what} (input {index}) is known only at run time")
        return found

    def dims(
        self, index: int, low: int = -(2**31), names: str = "d", count: int | None = None, high: int | None = MOST
    ) -> tuple[DimLike, ...]:
        """A vector (or scalar) input as dimensions: shape arithmetic as it is, run-time data as fresh symbols.

        Args:
            index: which input.
            low: least value an element may have; smaller ones are an error at run time.
            names: hint for the names of fresh symbols.
            count: number of elements it must have, where the operator fixes it; None: as many as its type says.
            high: greatest value an element may have; None: any, for what is clamped.
        """
        value = self.input(index)
        if value.known is not None:
            found = dims_of(value.known)
            if count is not None and len(found) != count:
                self.fail(f"input {index} must have {count} elements, got {len(found)}")
            return found
        return self.read(self.wide(index, count), low, names, high)

    def places(self, index: int, names: str, count: int | None) -> tuple[DimLike, ...]:
        """Like `dims` for places on an axis: what is beyond every axis (as 2**63 - 1, for all of it) is `REACH`."""
        if self.input(index).known is not None:
            return self.dims(index, FARTHEST, names, count)
        return self.read_places(self.wide(index, count), names)

    def read_places(self, value: Value, names: str) -> tuple[DimLike, ...]:
        """Elements of an int64 tensor as places, see `places`; sums and products of them stay in 64 bits."""
        near = self.emit("minimum", self.emit("maximum", value, -REACH), REACH)
        return self.read(near, -REACH, names, REACH)

    def wide(self, index: int, count: int | None) -> Value:
        """An input of sizes as int64, see `counted`."""
        value = self.counted(index, count)
        if not info(value.type.dtype).is_integer:
            self.unsupported(f"input {index} holds sizes computed in {value.type.dtype}")
        return value if value.type.dtype == "int64" else self.emit("astype", value, dtype="int64")

    def counted(self, index: int, count: int | None) -> Value:
        """An input of at most one axis whose extent is known, or is made ``count`` by a check at run time."""
        value = self.input(index)
        if value.type.rank > 1:
            self.fail(f"input {index} must be a vector, got rank {value.type.rank}")
        if value.type.rank == 0:
            return value
        extent = value.type.shape[0]
        if count is None and not isinstance(extent, int):
            self.unsupported(f"input {index} holds sizes, but its own length is known only at run time")
        if count is None or extent == count:
            return value
        if isinstance(extent, int):
            self.fail(f"input {index} must have {count} elements, got {extent}")
        self.inputs[index] = self.cast_shape(value, (count,))
        return self.input(index)

    def cast_shape(self, value: Value, shape: Sequence[DimLike]) -> Value:
        """The value at another shape of its rank; what is not known is checked at run time."""
        kind = TensorType(tuple(shape), value.type.dtype)
        return Value.of(self.bb.match_cast(value.materialize(self.bb), kind, span=self.span))

    def require_at_least(self, low: int, d: DimLike, what: str) -> None:
        """``low <= d`` must hold; what is not known is checked at run time."""
        ctx = self.ctx()
        ctx.require_at_least(low, d, what)
        self.bb.require(ctx)

    def declared_rank(self, output: int = 0) -> int | None:
        """Rank that the model states for an output, if it does."""
        names = self.proto.output
        return self.host.ranks.get(names[output]) if output < len(names) else None

    def stated_count(self, index: int) -> int | None:
        """Number of sizes in an input, from the rank the model states for the result; None where it is known anyway.

        What the input itself says goes first: stated ranks are often stale.
        """
        value = self.input(index)
        open_ended = value.known is None and value.type.rank == 1 and not isinstance(value.type.shape[0], int)
        return self.declared_rank() if open_ended else None

    def ctx(self) -> InferCtx:
        """A context for the indexing routines that raise errors about this node."""
        return InferCtx(self.proto.op_type, self.facts, (), self.span)

    def short_dim(self, d: DimLike) -> DimLike:
        """The importer's symbol for a long formula."""
        return self.host.short_dim(d)

    # ---- errors ----------------------------------------------------------------------------------------------------

    def fail(self, message: str) -> NoReturn:
        """Raise an error about a malformed node."""
        raise LoadError(f"{describe(self.proto)}: {message}", span=self.span)

    def unsupported(self, message: str, help: str = "") -> NoReturn:
        """Raise an error about something that is not implemented; ``help`` names a way out."""
        message = f"{describe(self.proto)}: {message}"
        raise UnsupportedError(message, code="import-unsupported", span=self.span, help=help)


Converter = Callable[[Node], Result]
"""Emits the operators that a node stands for, and gives its outputs."""
