"""From an exported torch program to a module: inputs become parameters, weights constants, nodes operators."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import ConstantArgument, InputKind, OutputKind, SymIntArgument, TensorArgument
from torch.fx import GraphModule
from torch.fx import Node as FxNode

from relaxir.frontends.torch.branches import branches
from relaxir.frontends.torch.complexes import Complex, holds
from relaxir.frontends.torch.functional import prepared, writes, written
from relaxir.frontends.torch.node import FARTHEST, Arg, LoopBody, Node, describe, place_of, target_name
from relaxir.frontends.torch.report import report
from relaxir.frontends.torch.symbols import Symbols
from relaxir.frontends.torch.table import complex_converter_of, converter_of, deals_with_complex
from relaxir.frontends.torch.tensors import constant, dtype_name
from relaxir.frontends.values import Value
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Constant, Expr, TupleExpr, Var
from relaxir.ir.module import IRModule
from relaxir.ir.types import TensorType
from relaxir.support.errors import InferError, LoadError, RelaxirError, UnsupportedError, reason
from relaxir.sym import DimLike, SymError


class Importer:
    """Imports one program."""

    def __init__(self, program: ExportedProgram) -> None:
        self.branches = tuple(branches(program))
        self.program = prepared(program)
        self.bb = BlockBuilder()
        self.symbols = Symbols(self.program.range_constraints)
        self.problems: list[RelaxirError] = []
        self.constants: dict[tuple[Any, ...], Constant] = {}
        self.env: dict[FxNode, Arg] = {}

    def run(self) -> IRModule:
        """The module with the function ``main``.

        Raises:
            UnsupportedError: every node that cannot be imported.
            LoadError, InferError: a malformed program.
        """
        nodes = {n.name: n for n in self.program.graph.nodes if n.op == "placeholder"}
        relations = self.declare(nodes)
        params: list[Var] = []
        reads: list[tuple[FxNode, Var]] = []
        for spec in self.program.graph_signature.input_specs:
            node = nodes[spec.arg.name]
            if spec.kind is not InputKind.USER_INPUT:
                self.env[node] = self.stored(spec)
            elif isinstance(spec.arg, ConstantArgument):
                self.env[node] = spec.arg.value
            else:
                params.append(self.parameter(node, spec.arg))
                self.env[node] = Value.of(params[-1])
                if not isinstance(spec.arg, TensorArgument):
                    reads.append((node, params[-1]))
        attrs = {"output_names": self.output_names(), "mutations": self.mutations(), "source": "torch.export"}
        with self.bb.function("main", params, relations, attrs):
            for node, var in reads:
                self.env[node] = self.read(node, var)
            results = self.body(self.program.graph_module)
            if self.problems:
                raise report(self.problems)
            outputs = [self.output(r) for r, keep in zip(results, self.kept(), strict=True) if keep]
            self.bb.emit_func_output(outputs[0] if len(outputs) == 1 else TupleExpr(tuple(outputs)))
        return self.bb.get()

    # ---- inputs and outputs ----------------------------------------------------------------------------------------

    def declare(self, nodes: Mapping[str, FxNode]) -> tuple[Any, ...]:
        """Symbols of the input shapes, and the relations between them."""
        guards: Sequence[str] = getattr(self.program, "_guards_code", None) or ()
        inputs = [n for n in self.program.graph_signature.user_inputs if isinstance(n, str) and n in nodes]
        shaped = [(n, nodes[n].meta["val"].shape) for n in inputs if isinstance(nodes[n].meta.get("val"), torch.Tensor)]
        for _ in range(2):  # again with the lower bounds that turn out to follow from others relaxed
            for name, shape in shaped:
                self.symbols.place(name, shape)
            relations = self.symbols.relations(guards)
            if not self.symbols.relax(relations, guards):
                break
        return tuple(dict.fromkeys((*relations, *self.symbols.taken(self.branches))))

    def parameter(self, node: FxNode, arg: Any) -> Var:
        """A user input: a tensor, or a number as a scalar."""
        if isinstance(arg, TensorArgument):
            meta = node.meta["val"]
            if meta.is_complex():
                raise complex_at_the_border(f"input `{node.name}`", "view_as_real", "view_as_complex")
            shape = tuple(self.symbols.size(s) for s in meta.shape)
            return Var(node.name, TensorType(shape, dtype_name(meta.dtype)))
        if isinstance(arg, SymIntArgument):
            return Var(node.name, TensorType((), "int64"))
        raise UnsupportedError(f"input `{node.name}` is a {type(arg).__name__}", code="import-unsupported")

    def read(self, node: FxNode, var: Var) -> Arg:
        """An integer input as a size."""
        name = str(node.meta["val"].node.expr)
        low, high = self.symbols.bounds(name)
        reader = Node(node, {}, self)
        return reader.read(Value.of(var), FARTHEST if low is None else min(low, 0), name, high)[0]

    def stored(self, spec: Any) -> Arg:
        """A parameter, buffer or constant of the program; what is no tensor matters only to operators that take it."""
        program = self.program
        tensor = program.state_dict.get(spec.target)
        if tensor is None:
            tensor = program.constants.get(spec.target)
        return self.constant(tensor) if isinstance(tensor, torch.Tensor) else tensor

    def constant(self, tensor: torch.Tensor) -> Value | Complex:
        """A constant; tied weights become one."""
        if tensor.is_complex():
            parts = torch.view_as_real(tensor.detach().resolve_conj()).unbind(-1)
            return Complex(*(Value.of(constant(p)) for p in parts))
        key = (tensor.data_ptr(), tuple(tensor.shape), tensor.stride(), tensor.dtype)
        if key not in self.constants or not tensor.numel():
            self.constants[key] = constant(tensor)
        return Value.of(self.constants[key])

    def kept(self) -> list[bool]:
        """For each result of the graph whether it is an output of the function: None and numbers are not."""
        return [
            s.kind is not OutputKind.TOKEN and not isinstance(s.arg, ConstantArgument)
            for s in self.program.graph_signature.output_specs
        ]

    def output_names(self) -> tuple[str, ...]:
        """Names of the outputs in order; new values of buffers come first, as in the program."""
        specs = self.program.graph_signature.output_specs
        return tuple(s.arg.name for s, keep in zip(specs, self.kept(), strict=True) if keep)

    def mutations(self) -> tuple[str, ...]:
        """For each output the buffer or input whose new value it is, or nothing."""
        changing = (OutputKind.BUFFER_MUTATION, OutputKind.USER_INPUT_MUTATION, OutputKind.PARAMETER_MUTATION)
        specs = self.program.graph_signature.output_specs
        found = [
            s.target or "" if s.kind in changing else "" for s, keep in zip(specs, self.kept(), strict=True) if keep
        ]
        return tuple(found) if any(found) else ()

    def output(self, result: Arg) -> Expr:
        """A result as a tensor."""
        if isinstance(result, Value):
            return result.materialize(self.bb)
        if isinstance(result, Complex):
            raise complex_at_the_border("a result", "view_as_complex", "view_as_real")
        anchor = next(iter(reversed(self.program.graph.nodes)))
        return Node(anchor, {}, self).operand(result, "int64").materialize(self.bb)

    # ---- nodes -----------------------------------------------------------------------------------------------------

    def bounds(self, symbol: str) -> tuple[int | None, int | None]:
        """Range of a symbol of the program."""
        return self.symbols.bounds(symbol)

    def body(self, module: GraphModule) -> tuple[Arg, ...]:
        """Nodes of a graph; its results."""
        for fx in module.graph.nodes:
            if fx.op == "get_attr":
                found = attribute(module, str(fx.target))
                self.env[fx] = self.constant(found) if isinstance(found, torch.Tensor) else found
            elif fx.op == "call_function":
                self.node(fx)
            elif fx.op == "output":
                if self.problems:
                    return ()
                found = self.resolve(fx.args[0])
                return found if isinstance(found, tuple) else (found,)
        return ()

    def node(self, fx: FxNode) -> None:
        """Import a node; a problem is noted, and what depends on it is skipped."""
        converter = converter_of(fx.target)
        if converter is None:
            self.unsupported(fx, "is not supported")
            return
        try:
            args = self.arguments(fx)
        except KeyError:
            return  # an argument failed: one report is enough
        try:
            node = Node(fx, args, self)
            if deals_with_complex(fx) or any(map(holds, args.values())):
                converter = complex_converter_of(fx.target) or node.unsupported("not supported for complex numbers")
            result = converter(node)
            if not writes(fx.target):
                self.env[fx] = result
                return
            self.env.update(dict.fromkeys(written(fx), rewritten(node, args[next(iter(args))], result)))
        except SkippedError:
            return
        except (InferError, UnsupportedError, LoadError) as error:
            self.problems.append(named(error, fx))
        except (SymError, OverflowError) as error:
            self.problems.append(LoadError(f"{describe(fx)}: {reason(error)}", span=place_of(fx)))

    def unsupported(self, fx: FxNode, message: str) -> None:
        """Note an operator that cannot be imported."""
        text = f"{target_name(fx.target)} {message}"
        self.problems.append(UnsupportedError(text, code="import-unsupported", span=place_of(fx)))

    def arguments(self, fx: FxNode) -> dict[str, Arg]:
        """Arguments by name: those of the schema with their defaults, or ``0``, ``1``, ... where there is none."""
        if not isinstance(fx.target, torch._ops.OpOverload):
            found = {str(i): self.resolve(a) for i, a in enumerate(fx.args)}
            return found | {k: self.resolve(v) for k, v in fx.kwargs.items()}
        result: dict[str, Arg] = {}
        for index, formal in enumerate(fx.target._schema.arguments):
            if index < len(fx.args) and not formal.kwarg_only:
                given: Any = fx.args[index]
            else:
                given = fx.kwargs.get(formal.name, formal.default_value)
            result[formal.name] = self.resolve(given)
        return result

    def resolve(self, arg: Any) -> Arg:
        """An argument with nodes replaced by their values.

        Raises:
            KeyError: a node that could not be imported.
        """
        if isinstance(arg, FxNode):
            return self.env[arg]
        if isinstance(arg, list | tuple):
            return tuple(self.resolve(a) for a in arg)
        return arg

    # ---- subgraphs -------------------------------------------------------------------------------------------------

    def run_graph(self, graph: GraphModule, inputs: Sequence[Arg]) -> tuple[Arg, ...]:
        """Import a subgraph in place; its results."""
        formals = [n for n in graph.graph.nodes if n.op == "placeholder"]
        self.env.update(zip(formals, inputs, strict=True))
        results = self.body(graph)
        if self.problems:
            raise SkippedError
        return results

    def bound(self, values: Sequence[Arg]) -> None:
        """Bind values before a body that uses them: a binding made inside is unknown outside."""
        for value in values:
            if isinstance(value, Value):
                value.materialize(self.bb)

    def run_branches(
        self, test: Value, then: GraphModule, other: GraphModule, inputs: Sequence[Arg]
    ) -> tuple[Arg, ...]:
        """Import two subgraphs as branches of an If; their results."""
        self.bound(inputs)

        def branch(graph: GraphModule) -> Expr:
            results = self.run_graph(graph, separated(inputs))
            return TupleExpr(tuple(self.output(r) for r in results))

        var = self.bb.if_then_else(test.materialize(self.bb), lambda: branch(then), lambda: branch(other))
        return self.fields(var)

    def run_loop(
        self,
        body: LoopBody,
        init: Sequence[Value],
        trips: DimLike | None,
        start: Value | None,
        captured: Sequence[Arg],
    ) -> tuple[Value, ...]:
        """A loop: see `BlockBuilder.loop`; ``captured`` are values from outside that the body uses."""
        self.bound(captured)
        saved = [(v, v.known) for v in captured if isinstance(v, Value)]

        def iteration(i: Var, carried: tuple[Var, ...]) -> tuple[Expr, list[Expr], list[Expr]]:
            goes_on, later, rows = body(Value.of(i), tuple(map(Value.of, carried)))
            for value, known in saved:
                value.known = known  # sizes read inside are unknown outside
            tensors = [self.output(v) for v in (goes_on, *later, *rows)]
            return tensors[0], tensors[1 : 1 + len(later)], tensors[1 + len(later) :]

        first = [v.materialize(self.bb) for v in init]
        begin = None if start is None else start.materialize(self.bb)
        return self.fields(self.bb.loop(iteration, first, trips, begin))

    def fields(self, var: Var) -> tuple[Value, ...]:
        """Fields of a tuple."""
        found = Node(next(iter(self.program.graph.nodes)), {}, self).wrap(var)
        return found if isinstance(found, tuple) else (found,)


class SkippedError(Exception):
    """A subgraph has problems, which are noted; what holds it is skipped (never leaves this module)."""


def complex_at_the_border(what: str, outside: str, inside: str) -> UnsupportedError:
    """The error about a complex tensor that a caller would give or get."""
    advice = f"use torch.{inside} inside the program, and torch.{outside} outside of it"
    return UnsupportedError(f"{what} is complex: inputs and results are real", code="import-unsupported", help=advice)


def rewritten(n: Node, target: Arg, result: Arg) -> Arg:
    """What a tensor becomes when a result is written into it: its dtype and shape stay."""
    if isinstance(target, Complex):
        return Complex(rewritten(n, target.real, result.real), rewritten(n, target.imag, result.imag))
    if not isinstance(target, Value):
        n.unsupported("a write into what is no tensor")
    return n.broadcast(n.cast(result, target.type.dtype), target.type.shape)


def separated(values: Sequence[Arg]) -> tuple[Arg, ...]:
    """Copies of values: what one body learns of them (sizes it reads) does not hold elsewhere."""
    return tuple(replace(v) if isinstance(v, Value) else v for v in values)


def attribute(module: GraphModule, path: str) -> Any:
    """An attribute by dotted path."""
    found: Any = module
    for part in path.split("."):
        found = getattr(found, part)
    return found


def named(error: RelaxirError, fx: FxNode) -> RelaxirError:
    """The error with the node's name in its message, and its place."""
    if describe(fx) not in error.message:
        error.message = f"{describe(fx)}: {error.message}"
    error.span = error.span or place_of(fx)
    return error
