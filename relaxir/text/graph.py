"""Reading of graph functions: the inverse of `relaxir.ir.printer`."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import MappingProxyType

from relaxir.ir.expr import (
    Bind,
    Binding,
    BindingBlock,
    Body,
    Check,
    Expr,
    Function,
    If,
    Loop,
    MatchCast,
    TupleExpr,
    Var,
)
from relaxir.ir.loops import COUNTER, loop_problems, loop_type
from relaxir.ir.op import MAX_VALUES
from relaxir.ir.printer import FUNCTION_KEYWORDS
from relaxir.ir.relations import Subtype, cast_problem, join, subtype
from relaxir.ir.retype import TypeScope
from relaxir.ir.types import FuncType, TensorType, Type, describe, free_dims_of_type
from relaxir.sym import Dim, Proof, Relation, free_dims
from relaxir.text.graph_values import ModuleContext, ValueReader
from relaxir.text.scope import Scope
from relaxir.text.source import Source, member
from relaxir.text.types import FRESH, RANGES, read_dim, read_dim_declaration, read_relations, read_type
from relaxir.text.values import read_attributes


@dataclass(frozen=True)
class Header:
    """A function's signature, read before any body so that calls can be typed."""

    node: ast.FunctionDef
    params: tuple[Var, ...]
    ret: Type | None
    where: tuple[Relation, ...]
    attrs: dict[str, object]
    pure: bool

    @property
    def type(self) -> FuncType | None:
        """The signature, where the result type is written."""
        return None if self.ret is None else FuncType(tuple(p.type for p in self.params), self.ret, self.pure)


def read_header(node: ast.FunctionDef, source: Source) -> Header:
    """The signature of a function decorated with ``@R.function``."""
    decorator = node.decorator_list[0]
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    special, attrs = read_attributes(keywords, source, FUNCTION_KEYWORDS)
    declared = dict(_declarations(node.body, "dim", source))
    inside = declared | dict(_declarations(ast.walk(node), "fresh_dim", source))
    for arg in node.args.args:
        for name in _quoted_names(arg.annotation):  # a bare symbol of a parameter needs no line of its own
            if name not in inside:
                declared[name] = inside[name] = Dim(name)
    params = tuple(_param(a, declared, source) for a in node.args.args)
    where = read_relations(special["where"], declared, source) if "where" in special else ()
    pure = source.boolean(special["pure"]) if "pure" in special else True
    ret = read_type(node.returns, inside, source) if node.returns is not None else None
    return Header(node, params, ret, where, attrs, pure)


def _declarations(nodes: Iterable[ast.AST], what: str, source: Source) -> Iterator[tuple[str, Dim]]:
    for n in nodes:
        if not isinstance(n, ast.Assign) or not isinstance(n.value, ast.Call) or member(n.value, "R") != what:
            continue
        if isinstance(n.targets[0], ast.Name):
            yield n.targets[0].id, read_dim_declaration(n.value, source, FRESH if what == "fresh_dim" else RANGES)


def _quoted_names(annotation: ast.expr | None) -> Iterator[str]:
    if isinstance(annotation, ast.Call) and member(annotation, "R") == "Tuple":
        for a in annotation.args:
            yield from _quoted_names(a)
    elif isinstance(annotation, ast.Call) and member(annotation, "R") in ("Tensor", "Shape") and annotation.args:
        for part in ast.walk(annotation.args[0]):
            if isinstance(part, ast.Constant) and isinstance(part.value, str) and part.value.isidentifier():
                yield part.value


def _param(arg: ast.arg, dims: dict[str, Dim], source: Source) -> Var:
    note = arg.annotation
    if note is None:
        raise source.error(f"parameter `{arg.arg}` has no type", arg)
    name = arg.arg
    if isinstance(note, ast.Call):
        given = next((k.value for k in note.keywords if k.arg == "name"), None)
        name = source.string(given) if given is not None else name
        if isinstance(note.func, ast.Call | ast.Attribute) and member(note, "R") == "Any":
            note = note.func
    return Var(name, read_type(note, dims, source))


def read_function(header: Header, source: Source, module: ModuleContext) -> Function:
    """The whole function; its signature was read before."""
    node = header.node
    declared = [d for _, d in _declarations(node.body, "dim", source)]
    implied = [d for p in header.params for d in free_dims_of_type(p.type)]
    types = TypeScope((*declared, *implied), header.where)
    scope = Scope(source)
    for arg, var in zip(node.args.args, header.params, strict=True):
        scope.define(arg.arg, var, arg)
    reader = _BodyReader(source, scope, types, module)
    if not node.body or not isinstance(node.body[-1], ast.Return):
        raise source.error(f"function `{node.name}` does not end with return", node)
    blocks = reader.blocks(node.body[:-1])
    last = node.body[-1]
    assert isinstance(last, ast.Return)
    if last.value is None:
        raise source.error("return needs a value", last)
    result = reader.values.operand(last.value)
    ret = header.ret or result.type
    if subtype(result.type, ret, types.facts) <= Subtype.STATIC_MISMATCH:
        problem = f"`{node.name}` is declared to give {describe(ret)}, but gives {describe(result.type)}"
        raise source.error(problem, last, "parse-annotation")
    attrs = MappingProxyType(header.attrs)
    return Function(header.params, Body(blocks, result), ret, header.where, attrs, header.pure, source.span(node))


@dataclass
class _Collected:
    """Blocks of a body as they are read."""

    blocks: list[BindingBlock] = field(default_factory=list)
    open: list[Binding] = field(default_factory=list)
    pending: list[Dim] = field(default_factory=list)
    changing: list[Dim] = field(default_factory=list)
    stated: list[tuple[Relation, ast.AST]] = field(default_factory=list)
    """Relations that stand with the pending symbols."""

    def close(self) -> None:
        """End the current block outside dataflow."""
        if self.open:
            self.blocks.append(BindingBlock(tuple(self.open)))
            self.open = []


class _BodyReader:
    def __init__(self, source: Source, scope: Scope, types: TypeScope, module: ModuleContext) -> None:
        self.source = source
        self.scope = scope
        self.module = module
        self.values = ValueReader(source, scope, types, module)

    def blocks(self, stmts: Sequence[ast.stmt]) -> tuple[BindingBlock, ...]:
        """Statements of a function or branch, but for its result."""
        found = _Collected()
        for s in stmts:
            if isinstance(s, ast.With) and member(s.items[0].context_expr, "R") == "loop":
                self._loop(s, found)
            elif isinstance(s, ast.With):
                found.close()
                found.blocks.append(self._dataflow(s, found.pending))
            else:
                self._stmt(s, found)
        found.close()
        self._no_pending(found.pending, stmts)
        return tuple(found.blocks)

    def _no_pending(self, pending: list[Dim], stmts: Sequence[ast.stmt]) -> None:
        if pending:
            raise self.source.error(f"no binding follows that defines `{pending[0].name}`", stmts[-1])

    def _dataflow(self, s: ast.With, pending: list[Dim]) -> BindingBlock:
        if len(s.items) != 1 or member(s.items[0].context_expr, "R") != "dataflow" or s.items[0].optional_vars:
            raise self.source.error("expected with R.dataflow():", s)
        self._no_pending(pending, [s])
        inner = _Collected()
        last = s.body[-1]
        ends = isinstance(last, ast.Expr) and member(last.value, "R") == "output"
        for stmt in s.body[:-1] if ends else s.body:
            self._stmt(stmt, inner)
        self._no_pending(inner.pending, s.body)
        outputs: tuple[Var, ...] = ()
        if ends and isinstance(last, ast.Expr) and isinstance(last.value, ast.Call):
            names = [a for a in last.value.args if isinstance(a, ast.Name)]
            if len(names) != len(last.value.args) or last.value.keywords:
                raise self.source.error("R.output takes variables", last)
            outputs = tuple(self.scope.find(a.id, Var, "variable", a) for a in names)
        return BindingBlock(tuple(inner.open), True, outputs)

    def _stmt(self, s: ast.stmt, found: _Collected) -> None:
        if isinstance(s, ast.Assign | ast.AnnAssign):
            self._assign(s, found)
        elif isinstance(s, ast.If):
            self._if(s, found)
        elif isinstance(s, ast.Expr) and isinstance(s.value, ast.Call) and member(s.value, "R") == "check":
            found.open.append(self._check(s.value))
        elif isinstance(s, ast.Expr) and member(s.value, "R") == "output":
            raise self.source.error("R.output ends a dataflow block", s)
        elif isinstance(s, ast.Return):
            raise self.source.error("return ends a function", s)
        elif isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant) and isinstance(s.value.value, str):
            return  # a docstring
        elif not isinstance(s, ast.Pass):
            help_text = "bind the value to a variable" if isinstance(s, ast.Expr) else ""
            raise self.source.error(f"{type(s).__name__} is not a statement of a graph function", s, help=help_text)

    def _assign(self, s: ast.Assign | ast.AnnAssign, found: _Collected) -> None:
        target = s.targets[0] if isinstance(s, ast.Assign) else s.target
        if not isinstance(target, ast.Name) or (isinstance(s, ast.Assign) and len(s.targets) != 1) or s.value is None:
            raise self.source.error("a binding has one name and one value", s)
        call = s.value if isinstance(s.value, ast.Call) else None
        kind = member(call, "R") if call is not None else None
        if call is not None and kind in ("dim", "fresh_dim", "loop_dim"):
            dim = read_dim_declaration(call, self.source, FRESH if kind == "fresh_dim" else RANGES)
            self.scope.define(target.id, dim, target)
            for k in call.keywords:
                if k.arg == "where":
                    found.stated.extend((r, k.value) for r in read_relations(k.value, self.scope.dims, self.source))
            if kind != "dim":
                (found.pending if kind == "fresh_dim" else found.changing).append(dim)
            return
        defines = tuple(found.pending)
        found.pending.clear()
        written = read_type(s.annotation, self.scope.dims, self.source) if isinstance(s, ast.AnnAssign) else None
        if call is not None and kind == "match_cast":
            binding: Binding = self._match_cast(call, target, written, defines)
        else:
            value = self.values.value(s.value, written, defines)
            binding = Bind(Var(target.id, value.type), value.expr, value.defines)
        assert not isinstance(binding, Check)
        self.scope.define(target.id, binding.var, target)
        found.open.append(binding)
        self._hold(found)

    def _match_cast(
        self, call: ast.Call, target: ast.Name, written: Type | None, defines: tuple[Dim, ...]
    ) -> MatchCast:
        args = self.source.arguments(call, ("value",), ("type",))
        value = self.values.operand(args["value"])
        types = self.values.types
        stated = read_type(args["type"], self.scope.dims, self.source) if "type" in args else written
        if stated is None:
            raise self.source.error("match_cast needs a type", call)
        if written is not None and stated != written:
            raise self.source.error(
                f"the type is written as {describe(written)} and as {describe(stated)}", call, "parse-annotation"
            )
        if problem := cast_problem(value.type, stated, defines, types.facts):
            raise self.source.error(problem, call, "parse-annotation")
        types.cast(value.type, stated, defines)
        return MatchCast(Var(target.id, stated), value, defines, self.source.span(call))

    def _hold(self, found: _Collected) -> None:
        """What ``where`` says of symbols that are defined now: nothing where it is proved, else a run-time check."""
        for relation, node in found.stated:
            verdict = self.values.types.facts.prove(relation)
            if verdict is Proof.REFUTED:
                raise self.source.error(f"`{relation}` never holds", node, "parse-annotation")
            if verdict is Proof.UNKNOWN:
                args = tuple(dict.fromkeys((*free_dims(relation.left), *free_dims(relation.right))))[:MAX_VALUES]
                shown = ", ".join(f"{d.name} is {{}}" for d in args)
                text = f"`{relation}` does not hold; {shown}"
                found.open.append(Check(relation, "runtime-shape", text, args, self.source.span(node)))
                self.values.types.learn((relation,))
        found.stated.clear()

    def _check(self, call: ast.Call) -> Check:
        args = self.source.arguments(call, ("relation", "code", "message"), rest=True)
        dims = self.scope.dims
        relations = read_relations(args["relation"], dims, self.source)
        if len(relations) != 1:
            raise self.source.error("R.check takes one relation", args["relation"])
        self.values.types.learn(relations)
        values = tuple(read_dim(a, dims, self.source) for a in call.args[3:])
        code, message = self.source.string(args["code"]), self.source.string(args["message"])
        return Check(relations[0], code, message, values, self.source.span(call))

    def _if(self, s: ast.If, found: _Collected) -> None:
        defines = tuple(found.pending)
        found.pending.clear()
        cond = self.values.operand(s.test)
        if cond.type != TensorType((), "bool"):
            raise self.source.error(
                f"the condition must be bool[], got {describe(cond.type)}", s.test, "parse-annotation"
            )
        self.values.types.define(defines)
        then, name, written = self._branch(s.body, s)
        other, other_name, _ = self._branch(s.orelse, s)
        if name.id != other_name.id:
            raise self.source.error(
                f"the branches end with `{name.id}` and `{other_name.id}`", s, help="give both the same name"
            )
        ctx = self.values.types.ctx("if", self.source.span(s.test))
        type_, owned = self.values.settle(join(then.type, other.type, ctx), written, defines, ctx, name)
        var = Var(name.id, type_)
        self.scope.define(name.id, var, name)
        found.open.append(Bind(var, If(cond, then, other, type_, self.source.span(s.test)), owned))
        self._hold(found)

    @contextmanager
    def _part(self, changing: Iterable[Dim] = ()) -> Iterator[TypeScope]:
        """Read a body whose names, symbols (``changing`` among them) and facts stay inside."""
        outer = self.values.types
        self.values.types = inner = outer.branch()
        inner.define(changing)
        try:
            with self.scope.nested():
                yield inner
        finally:
            self.values.types = outer

    def _loop(self, s: ast.With, found: _Collected) -> None:
        source, head, last = self.source, s.items[0], s.body[-1]
        defines, changing = tuple(found.pending), tuple(found.changing)
        found.pending.clear()
        found.changing.clear()
        assert isinstance(head.context_expr, ast.Call)
        given = source.arguments(head.context_expr, ("init", "types"), ("trips", "start"))
        init = tuple(self.values.operand(e) for e in source.items(given["init"]))
        trips, start = (self.values.operand(given[k]) if k in given else None for k in ("trips", "start"))
        span = source.span(head.context_expr)
        names = [e for e in source.items(head.optional_vars or head.context_expr) if isinstance(e, ast.Name)]
        target = last.target if isinstance(last, ast.AnnAssign) else None
        if not isinstance(last, ast.AnnAssign) or not isinstance(target, ast.Name) or last.value is None:
            raise source.error("a loop ends with name: R.Tuple(...) = R.next(...)", last)
        if len(names) != 1 + len(init) or not isinstance(last.value, ast.Call) or member(last.value, "R") != "next":
            raise source.error("a loop names the iteration and its carried values, and ends with R.next(...)", s)
        written = read_type(last.annotation, self.scope.dims, source)
        types = [read_type(t, self.scope.dims, source) for t in source.items(given["types"])]
        params = tuple(Var(n.id, t) for n, t in zip(names, (COUNTER, *types), strict=True))
        with self._part(changing) as inner:
            for n, p in zip(names, params, strict=True):
                self.scope.define(n.id, p, n)
            blocks = self.blocks(s.body[:-1])
            result = TupleExpr(tuple(self.values.operand(e) for e in last.value.args))
        loop = Loop(trips, start, init, params, changing, Body(blocks, result), written, span)
        for problem in loop_problems(loop, inner.facts):
            raise source.error(problem, s, "parse-annotation")
        ctx = self.values.types.ctx("loop", span)
        type_, owned = self.values.settle(loop_type(loop, ctx, defines), written, defines, ctx, last)
        var = Var(target.id, type_)
        self.scope.define(target.id, var, target)
        found.open.append(Bind(var, loop, owned))
        self._hold(found)

    def _branch(self, stmts: Sequence[ast.stmt], s: ast.If) -> tuple[Body, ast.Name, Type | None]:
        last = stmts[-1] if stmts else s
        if not isinstance(last, ast.Assign | ast.AnnAssign) or last.value is None:
            raise self.source.error("both branches must end by assigning the result", last)
        target = last.targets[0] if isinstance(last, ast.Assign) else last.target
        if not isinstance(target, ast.Name):
            raise self.source.error("expected a name", target)
        written = read_type(last.annotation, self.scope.dims, self.source) if isinstance(last, ast.AnnAssign) else None
        with self._part():
            blocks = self.blocks(stmts[:-1])
            result: Expr = self.values.operand(last.value)
        return Body(blocks, result), target, written
