"""From an ONNX graph to a module: inputs become parameters, nodes operators; all problems are reported at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType
from typing import Final

from onnx import GraphProto, NodeProto, ValueInfoProto

from relaxir.frontends.elements import with_elements
from relaxir.frontends.onnx.expand import check_counts, expand
from relaxir.frontends.onnx.graphs import describe, stated_ranks
from relaxir.frontends.onnx.input_types import InputTypes
from relaxir.frontends.onnx.load import Source
from relaxir.frontends.onnx.narrow import BY_NAME, NARROW
from relaxir.frontends.onnx.node import Converter, Node, Result
from relaxir.frontends.onnx.problems import ReportedError, named, report, unknown, unknown_nodes
from relaxir.frontends.onnx.table import CONVERTERS
from relaxir.frontends.onnx.tensors import ELEMENT_TYPES, TensorReader
from relaxir.frontends.onnx.values import Item, Items, Value, copied
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Expr, TupleExpr, Var
from relaxir.ir.module import IRModule
from relaxir.support.errors import InferError, LoadError, RelaxirError, UnsupportedError, reason
from relaxir.sym import Dim, DimLike, SymError, to_text

SUPPORTED_OPSETS = range(1, 30)

NOTHING: Final[Mapping[int, memoryview]] = MappingProxyType({})
LONG = 24
"""Characters beyond which a formula of a dimension gets a symbol."""


class Importer:
    """Imports one model."""

    def __init__(self, source: Source, dims: Mapping[str, DimLike]) -> None:
        self.source = source
        self.input_types = InputTypes(dims)
        self.bb = BlockBuilder()
        self.reader = TensorReader(source.folder)
        self.opset = source.opsets.get("", 1)
        self.scopes: list[dict[str, Item | None]] = [{}]
        self.problems: list[RelaxirError] = []
        self.unknown: set[str] = set()
        self.not_computed: dict[str, str] = {}
        self.sizes: dict[DimLike, Dim] = {}
        self.ranks: Mapping[str, int] = stated_ranks(source.model.graph)

    # ---- the model -------------------------------------------------------------------------------------------------

    def run(self) -> IRModule:
        """The module with the function ``main``.

        Raises:
            LoadError, InferError: a malformed model.
            UnsupportedError: every node that cannot be imported.
        """
        graph = self.source.model.graph
        if self.opset not in SUPPORTED_OPSETS:
            raise UnsupportedError(f"opset {self.opset} of `{self.source.name}`", code="import-unsupported")
        self.problems.extend(unknown_nodes(graph, self.source.opsets))
        self.unknown.update(p.message for p in self.problems)
        stored = {t.name: t for t in graph.initializer}
        given = [i for i in graph.input if i.name not in stored]
        inputs = [self.input_types.of(i) for i in given]
        params = [Var(i.name, t) for i, t in zip(given, inputs, strict=True)]
        self.input_types.check_overrides(graph)
        names = tuple(o.name for o in graph.output)
        with self.bb.function("main", params, attrs={"output_names": names, "source": self.source.name}):
            held = [element_of(i) for i in given]
            self.scopes[0].update({p.name: replace(Value.of(p), element=e) for p, e in zip(params, held, strict=True)})
            try:
                results = self.body(graph, self.source.data)
            except ReportedError:
                results = []
            if self.problems:
                raise report(self.problems, self.source.name)
            values = [self.tensor(i.name, r) for i, r in zip(graph.output, results, strict=True)]
            for info, result in zip(graph.output, values, strict=True):
                check_output(info, result)
            outputs = [r.materialize(self.bb) for r in values]
            self.bb.emit_func_output(outputs[0] if len(outputs) == 1 else TupleExpr(tuple(outputs)))
        module = self.bb.get()
        return with_elements(module, (*held, *(v.element for v in values)))

    @staticmethod
    def tensor(name: str, item: Item) -> Value:
        """A graph's result that must be a tensor."""
        if isinstance(item, Value):
            return item
        raise UnsupportedError(f"output `{name}` is a sequence or an optional", code="import-unsupported")

    def body(self, graph: GraphProto, data: Mapping[int, memoryview] = NOTHING) -> list[Item]:
        """Nodes of a graph in the present scope; its results. ``data`` has elements of its initializers, by number.

        Raises:
            ReportedError: a result depends on a node whose problem is noted.
        """
        scope = self.scopes[-1]
        for number, tensor in enumerate(graph.initializer):
            scope[tensor.name] = self.reader.value(tensor, data.get(number))
        for proto in graph.node:
            self.node(proto)
        try:
            return [self.result(o.name) for o in graph.output]
        except KeyError as error:
            if self.problems:
                raise ReportedError from error
            raise LoadError(f"graph output {error} is defined by nothing") from error

    def result(self, name: str) -> Item:
        """A graph's result.

        Raises:
            LoadError: it was never computed.
        """
        value = self.lookup(name)
        if value is None:
            raise LoadError(f"graph output `{name}` is defined by nothing")
        return value

    def node(self, proto: NodeProto) -> None:
        """Import a node; a problem is noted, and what depends on it is skipped."""
        try:
            inputs = [self.lookup(n) if n else None for n in proto.input]
        except KeyError:
            return  # an input failed: one report is enough
        domain = "" if proto.domain == "ai.onnx" else proto.domain
        opset = self.source.opsets.get(domain, self.opset) if domain else self.opset
        converter = CONVERTERS.get((domain, proto.op_type))
        noted = len(self.problems)
        try:
            if converter is None:
                self.expanded(proto, inputs, opset)
                return
            check_counts(proto, opset)
            node = Node(proto, inputs, self, opset, self.source.name)
            result = narrow_aware(node, converter)
        except ReportedError:
            return
        except (InferError, UnsupportedError, LoadError) as error:
            self.problems.append(named(error, proto, inputs))
            return
        except (SymError, OverflowError) as error:
            self.problems.append(named(LoadError(reason(error)), proto, inputs))
            return
        values = result if isinstance(result, tuple) else (result,)
        for index, name in enumerate(proto.output):
            value = values[index] if index < len(values) else None
            if value is not None:
                self.scopes[-1][name] = value
            elif name and len(self.problems) == noted:
                self.not_computed[name] = f"{describe(proto)}: output {index} `{name}` is not supported"

    def expanded(self, proto: NodeProto, inputs: Sequence[Item | None], opset: int) -> None:
        """Import a node through its definition by simpler operators, if the standard has one."""
        found = expand(proto, [v.type if isinstance(v, Value) else None for v in inputs], opset, self.opset)
        if found is None:
            self.report_unknown(proto)
            return
        given = dict(zip(found.inputs, inputs, strict=False))
        self.scopes.append({name: given.get(name) for name in found.inputs})
        saved = self.ranks, self.opset
        self.ranks, self.opset = MappingProxyType({}), found.opset  # its inner names are not the model's
        for inner in found.nodes:
            self.node(inner)
        self.ranks, self.opset = saved
        made = self.scopes.pop()
        for name, inner_name in zip(proto.output, found.outputs, strict=False):
            if name and made.get(inner_name) is not None:
                self.scopes[-1][name] = made[inner_name]
            elif name and not self.problems:
                self.report_unknown(proto)

    def report_unknown(self, proto: NodeProto) -> None:
        """Note a node without a converter, unless `unknown_nodes` listed it."""
        problem = unknown(proto)
        if problem.message not in self.unknown:
            self.unknown.add(problem.message)
            self.problems.append(problem)

    def lookup(self, name: str) -> Item | None:
        """A value by name, inner scopes first; None for an input that the call of a function leaves out.

        Raises:
            KeyError: its node could not be imported.
        """
        for scope in reversed(self.scopes):
            if name in scope:
                return scope[name]
        if name in self.not_computed:
            self.problems.append(UnsupportedError(self.not_computed.pop(name), code="import-unsupported"))
        raise KeyError(name)

    def short_dim(self, d: DimLike) -> DimLike:
        """A symbol for a long formula (convolutions stack them up), one per formula; short ones stay."""
        if isinstance(d, int | Dim) or len(to_text(d)) <= LONG:
            return d
        if d not in self.sizes:
            self.sizes[d] = self.bb.define_dim("size", d)
        return self.sizes[d]

    # ---- subgraphs -------------------------------------------------------------------------------------------------

    def run_graph(self, graph: GraphProto, inputs: Sequence[Item]) -> list[Item]:
        """Import a subgraph in place, with its own names."""
        self.scopes.append(dict(zip((i.name for i in graph.input), inputs, strict=False)))
        try:
            return self.body(graph)
        finally:
            self.scopes.pop()

    def run_branches(self, cond: Value, then: GraphProto, other: GraphProto, node: Node) -> tuple[Item, ...]:
        """An If on a run-time condition; both branches must give as many tensors, of the same ranks and types."""
        counts: list[tuple[int, ...]] = []
        kinds: list[list[tuple[str, int]]] = []

        def branch(graph: GraphProto) -> Expr:
            with self.inside():
                results = self.run_graph(graph, ())
                parts = [r.values if isinstance(r, Items) else node.tensors((r,)) for r in results]
                counts.append(
                    tuple(len(p) if isinstance(r, Items) else -1 for p, r in zip(parts, results, strict=True))
                )
                if counts[0] != counts[-1]:
                    node.unsupported("branches that give sequences of different lengths")
                kinds.append([(v.type.dtype, v.type.rank) for p in parts for v in p])
                if kinds[0] != kinds[-1]:
                    node.unsupported("branches that give tensors of different ranks or types")
                return TupleExpr(tuple(v.materialize(self.bb) for p in parts for v in p))

        test = cond if cond.type.rank == 0 else node.emit("reshape", cond, shape=())
        var = self.bb.if_then_else(test.materialize(self.bb), lambda: branch(then), lambda: branch(other))
        wrapped = node.wrap(var)
        flat = iter(wrapped if isinstance(wrapped, tuple) else (wrapped,))
        return tuple(next(flat) if c < 0 else Items(tuple(next(flat) for _ in range(c))) for c in counts[0])

    def run_loop(
        self,
        body: Callable[[Value, tuple[Value, ...]], tuple[Value, Sequence[Value], Sequence[Value]]],
        init: Sequence[Value],
        trips: Value | DimLike | None,
        start: Value | None,
        node: Node,
    ) -> tuple[Value, ...]:
        """A loop: see `BlockBuilder.loop`."""

        def iteration(i: Var, carried: tuple[Var, ...]) -> tuple[Expr, list[Expr], list[Expr]]:
            with self.inside():
                goes_on, later, scans = body(Value.of(i), tuple(map(Value.of, carried)))
                tensors = [v.materialize(self.bb) for v in (goes_on, *later, *scans)]
                return tensors[0], tensors[1 : 1 + len(later)], tensors[1 + len(later) :]

        first = [v.materialize(self.bb) for v in init]
        limit = trips.materialize(self.bb) if isinstance(trips, Value) else trips
        var = self.bb.loop(iteration, first, limit, None if start is None else start.materialize(self.bb))
        wrapped = node.wrap(var)
        return wrapped if isinstance(wrapped, tuple) else (wrapped,)

    @contextmanager
    def inside(self) -> Iterator[None]:
        """A body: what it learns of values around it (an expression, sizes read) is not known after it."""
        scopes, sizes = self.scopes, dict(self.sizes)
        copies: dict[int, Item] = {}

        def copy(v: Item | None) -> Item | None:
            return None if v is None else copies.setdefault(id(v), copied(v))

        self.scopes = [{name: copy(v) for name, v in scope.items()} for scope in scopes]
        try:
            yield
        finally:
            self.scopes, self.sizes = scopes, sizes


def narrow_aware(n: Node, converter: Converter) -> Result:
    """A node's results; only conversions and movements may see values in narrow formats.

    Raises:
        UnsupportedError: another operator on such a value.
    """
    formats = sorted({v.element for v in n.inputs if isinstance(v, Value) and v.element})
    if not formats or n.proto.op_type in CONVERTS:
        return converter(n)
    if n.proto.op_type not in MOVES or len(formats) > 1:
        n.unsupported(f"operands of {', '.join(formats)}")
    stored = BY_NAME[formats[0]].stored

    def moved(item: Item | None) -> Item | None:
        return replace(item, element=formats[0]) if isinstance(item, Value) and item.type.dtype == stored else item

    result = converter(n)
    return tuple(map(moved, result if isinstance(result, tuple) else (result,)))


CONVERTS = frozenset({"Cast", "CastLike", "DequantizeLinear", "QuantizeLinear"})
"""Operators that read values in narrow formats."""
MOVES = frozenset(
    "Concat Expand Flatten Gather GatherElements GatherND Identity Reshape Shape Size Slice Split Squeeze Tile"
    " Transpose Unsqueeze".split()
)
"""Operators that move elements without looking at them."""


def element_of(info: ValueInfoProto) -> str:
    """The narrow format of a model's input or output, if it has one."""
    narrow = NARROW.get(info.type.tensor_type.elem_type)
    return narrow.name if narrow else ""


def check_output(info: ValueInfoProto, value: Value) -> None:
    """The element type that the model states of a graph output must hold; stated shapes are not trusted.

    They are often stale, so another extent is no matter, and another rank a warning.

    Raises:
        LoadError: another element type.
    """
    tensor, found = info.type.tensor_type, value.type
    name = value.element or found.dtype
    stated = element_of(info) or ELEMENT_TYPES.get(tensor.elem_type, f"element type {tensor.elem_type}")
    if tensor.elem_type and stated != name:
        raise LoadError(f"graph output `{info.name}` is declared as {stated}, but computed as {name}")
    if tensor.HasField("shape") and len(tensor.shape.dim) != found.rank:
        stated_rank = len(tensor.shape.dim)
        warnings.warn(
            f"graph output `{info.name}` is declared with rank {stated_rank}, but computed with {found.rank}: the"
            " declaration is ignored",
            stacklevel=2,
        )
