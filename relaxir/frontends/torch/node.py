"""What a converter sees of a node of a torch program: arguments by their schema names, and ways to emit operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NoReturn, Protocol, TypeAlias

import numpy as np
import torch
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from relaxir.frontends.emitter import Emitter
from relaxir.frontends.torch.ratio import Ratio
from relaxir.frontends.torch.tensors import dtype_name, promoted
from relaxir.frontends.values import Value
from relaxir.ir.attrs import is_symbolic
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.op import InferCtx
from relaxir.ir.types import TensorType
from relaxir.support.dtypes import info
from relaxir.support.errors import LoadError, UnsupportedError
from relaxir.support.spans import Span
from relaxir.sym import DimLike, Relation, product

Arg: TypeAlias = Any
"""A resolved argument: `Value`, `Complex`, number, size (`DimLike`), `Ratio`, `Relation`, graph, or a tuple of them."""
Converter: TypeAlias = Callable[["Node"], Arg]
LoopBody: TypeAlias = Callable[[Value, tuple[Value, ...]], tuple[Value, Sequence[Value], Sequence[Value]]]
"""An iteration: its number and the carried values give whether to go on, the next values, and rows of results."""
FARTHEST: Final = -(2**63)
"""Least value of an integer read at run time."""


class Host(Protocol):
    """The importer, as far as converters need it."""

    bb: BlockBuilder

    def bounds(self, symbol: str) -> tuple[int | None, int | None]:
        """Range of a symbol of the program."""

    def run_graph(self, graph: GraphModule, inputs: Sequence[Arg]) -> tuple[Arg, ...]:
        """Import a subgraph in place; its results."""

    def run_branches(
        self, test: Value, then: GraphModule, other: GraphModule, inputs: Sequence[Arg]
    ) -> tuple[Arg, ...]:
        """Import two subgraphs as branches of an If."""

    def run_loop(
        self,
        body: LoopBody,
        init: Sequence[Value],
        trips: DimLike | None,
        start: Value | None,
        captured: Sequence[Arg],
    ) -> tuple[Value, ...]:
        """Emit a loop; ``captured`` are values from outside that the body uses."""


class Node(Emitter):
    """One node with its arguments resolved."""

    def __init__(self, fx: FxNode, args: Mapping[str, Arg], host: Host) -> None:
        self.fx = fx
        self.args = args
        self.host = host
        self.bb = host.bb
        self.span = place_of(fx)

    # ---- arguments -------------------------------------------------------------------------------------------------

    def get(self, name: str, default: Arg = None) -> Arg:
        """An argument as it is; ``default`` where the overload has none of that name, or None is given."""
        value = self.args.get(name)
        return default if value is None else value

    def has(self, name: str) -> bool:
        """Whether an argument is given and not None."""
        return self.args.get(name) is not None

    def value(self, name: str = "self") -> Value:
        """A tensor argument."""
        found = self.args.get(name)
        if not isinstance(found, Value):
            raise LoadError(f"{describe(self.fx)}: argument `{name}` is no tensor", span=self.span)
        return found

    def optional(self, name: str) -> Value | None:
        """A tensor argument, or None."""
        return self.value(name) if self.has(name) else None

    def number(self, name: str, default: float = 0.0) -> float:
        """A number that must be known."""
        found = self.get(name, default)
        if not isinstance(found, bool | int | float):
            self.unsupported(f"argument `{name}` is known only at run time")
        return found

    def flag(self, name: str, default: bool = False) -> bool:
        """A bool argument."""
        return bool(self.get(name, default))

    def integer(self, name: str, default: int = 0) -> int:
        """An integer that must be known, such as an axis."""
        found = self.get(name, default)
        if not isinstance(found, int):
            self.unsupported(f"argument `{name}` is known only at run time")
        return found

    def dims(self, name: str = "size") -> tuple[DimLike, ...]:
        """A list of sizes; one size counts as a list."""
        found = self.get(name, ())
        return tuple(found) if isinstance(found, tuple) else (found,)

    def ints(self, name: str, count: int = 0) -> tuple[int, ...]:
        """A list of known integers; a single one is repeated up to ``count``, an empty list stays empty."""
        found = self.dims(name)
        if not all(isinstance(i, int) for i in found):
            self.unsupported(f"argument `{name}` is known only at run time")
        return tuple(int(i) for i in found) * (count if len(found) == 1 and count else 1)

    def axis(self, name: str = "dim", rank: int | None = None, default: int = 0) -> int:
        """An axis, counted from 0."""
        rank = self.value().type.rank if rank is None else rank
        return self.integer(name, default) % max(rank, 1)

    def axes(self, name: str = "dim") -> tuple[int, ...] | None:
        """Reduced axes from 0; None for all."""
        if not self.has(name) or self.get(name) == ():
            return None
        rank = max(self.value().type.rank, 1)
        axes = tuple(a % rank for a in self.ints(name))
        return axes if self.value().type.rank else None

    @property
    def shape(self) -> tuple[DimLike, ...]:
        """Shape of ``self``."""
        return self.value().type.shape

    # ---- results ---------------------------------------------------------------------------------------------------

    def meta(self, output: int | None = None) -> Any:
        """What torch says of the result (of one result of several)."""
        found = self.fx.meta.get("val")
        if output is None:
            return found[0] if isinstance(found, tuple | list) and found else found
        return found[output] if isinstance(found, tuple | list) else found

    @property
    def out_dtype(self) -> str:
        """Dtype of the (first) result; of each part, if it is complex."""
        meta = self.meta()
        if not isinstance(meta, torch.Tensor):
            return "float32"
        return dtype_name(meta.dtype.to_real() if meta.dtype.is_complex else meta.dtype)

    def used(self, output: int) -> bool:
        """Whether one result of several is used."""
        return any(user.op == "output" or (user.args[1:2] == (output,) and user.users) for user in self.fx.users)

    # ---- operands --------------------------------------------------------------------------------------------------

    def cast(self, value: Value, dtype: str) -> Value:
        """The value in another dtype."""
        return value if value.type.dtype == dtype else self.emit("astype", value, dtype=dtype)

    def operand(self, arg: Arg, dtype: str) -> Value:
        """A tensor, number or size as a tensor of a dtype."""
        if isinstance(arg, Value):
            return self.cast(arg, dtype)
        if isinstance(arg, bool | int | float):
            return self.scalar(arg, dtype)
        if isinstance(arg, Ratio):
            parts = (self.operand(d, "float64") for d in (arg.numerator, arg.denominator))
            return self.cast(self.emit("divide", *parts), dtype)
        if is_symbolic(arg):
            known = np.empty((), object)
            known[()] = arg
            return self.cast(Value(TensorType((), "int64"), None, known), dtype)
        return self.unsupported(f"an argument of kind {type(arg).__name__}")

    def pair(self, dtype: str | None = None) -> tuple[Value, Value]:
        """``self`` and ``other`` in torch's common dtype, or in a given one."""
        a, b = self.args["self"], self.args["other"]
        common = promoted(a, b) if dtype is None else dtype
        return self.operand(a, common), self.operand(b, common)

    def floating(self, value: Value) -> Value:
        """The value, integers as the result's float."""
        return value if info(value.type.dtype).is_float else self.cast(value, self.out_dtype)

    def truth(self, value: Value) -> Value:
        """Whether elements are not 0."""
        return self.cast(value, "bool")

    def indices(self, value: Value) -> Value:
        """Indices in a dtype that gathers take."""
        return value if value.type.dtype in ("int32", "int64") else self.cast(value, "int64")

    def full(self, shape: Sequence[DimLike], number: float | bool | Value, dtype: str) -> Value:
        """One value everywhere."""
        return self.emit("full", self.operand(number, dtype), shape=tuple(shape))

    def reshape(self, value: Value, shape: Sequence[DimLike]) -> Value:
        """The value at another shape."""
        return value if tuple(shape) == value.type.shape else self.emit("reshape", value, shape=tuple(shape))

    def permute(self, value: Value, axes: Sequence[int]) -> Value:
        """Axes reordered."""
        same = tuple(axes) == tuple(range(value.type.rank))
        return value if same else self.emit("permute_dims", value, axes=tuple(axes))

    def broadcast(self, value: Value, shape: Sequence[DimLike]) -> Value:
        """The value repeated up to a shape."""
        return value if tuple(shape) == value.type.shape else self.emit("broadcast_to", value, shape=tuple(shape))

    def count(self, shape: Sequence[DimLike]) -> DimLike:
        """Number of elements."""
        return product(shape)

    # ---- context ---------------------------------------------------------------------------------------------------

    def ctx(self) -> InferCtx:
        """A context for routines that raise errors about this node."""
        return InferCtx(describe(self.fx), self.facts, (), self.span)

    def check(self, relation: Relation, message: str) -> None:
        """Require a relation; nothing where it is proved."""
        self.bb.check(relation, message.replace("{", "{{").replace("}", "}}"), (), self.span)

    def fail(self, message: str) -> NoReturn:
        """Raise an error about a malformed node."""
        raise LoadError(f"{describe(self.fx)}: {message}", span=self.span)

    def unsupported(self, message: str) -> NoReturn:
        """Raise an error about something that is not implemented."""
        raise UnsupportedError(f"{describe(self.fx)}: {message}", code="import-unsupported", span=self.span)


def target_name(target: Any) -> str:
    """Name of a node's target: ``aten.add.Tensor``, ``operator.add``, ``higher_order.cond``."""
    if isinstance(target, torch._ops.OpOverload):
        return str(target)
    if isinstance(target, torch._ops.HigherOrderOperator):
        return f"higher_order.{target}"
    module = str(getattr(target, "__module__", "")).removeprefix("_")
    return f"{module}.{getattr(target, '__name__', target)}"


def describe(fx: FxNode) -> str:
    """A node in messages."""
    return f"{target_name(fx.target)} `{fx.name}`"


def place_of(fx: FxNode) -> Span | None:
    """The innermost line of the user's program that a node comes from."""
    trace = fx.meta.get("stack_trace")
    if not isinstance(trace, str):
        return None
    places: list[Span] = []
    lines = trace.splitlines()
    for index, line in enumerate(lines):
        head, _, rest = line.strip().partition('", line ')
        number = rest.partition(",")[0]
        if head.startswith('File "') and number.isdigit():
            source = lines[index + 1].strip() if index + 1 < len(lines) else ""
            source = "" if source.startswith('File "') else source
            places.append(Span(head.removeprefix('File "'), int(number), source=source, note=fx.name))
    own = [p for p in places if "/torch/" not in p.file and not p.file.startswith("torch/")]
    found = own or places
    return found[-1] if found else None
