"""Reading of tensor programs: the inverse of `relaxir.tir.printer`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from relaxir.sym import Dim
from relaxir.text.scope import Scope
from relaxir.text.source import Source, member
from relaxir.text.tensor_expr import ExprReader
from relaxir.text.tensor_host import DEFINITIONS, EFFECTS, HostReader
from relaxir.text.types import RANGES, make_dim, read_dim_declaration, read_dtype
from relaxir.text.values import read_attributes
from relaxir.tir import (
    Alloc,
    Assert,
    Axis,
    AxisKind,
    Block,
    Buffer,
    CallKernel,
    Combine,
    For,
    ForKind,
    If,
    Let,
    Prefetch,
    PrimFunc,
    Seq,
    Stmt,
    Store,
    Switch,
    Together,
    Var,
    While,
)
from relaxir.tir import (
    Scope as BufferScope,
)
from relaxir.tir.printer import AUGMENTED, PRIM_FUNC_KEYWORDS

AUGMENTED_READ: Final[Mapping[type[ast.operator], Combine]] = MappingProxyType(
    {ast.Add: Combine.SUM, ast.Mult: Combine.PROD, ast.BitAnd: Combine.AND, ast.BitOr: Combine.OR}
)
LOOPS: Final[Mapping[str, ForKind]] = MappingProxyType({k.value: k for k in ForKind})
assert len(AUGMENTED_READ) == len(AUGMENTED)

Wrap = Callable[[Stmt], Stmt]
"""A statement that scopes over the rest of its suite."""


def read_prim_func(node: ast.FunctionDef, source: Source, functions: Sequence[str]) -> PrimFunc:
    """A function decorated with ``@T.prim_func``; ``functions`` are the names of the module's functions."""
    decorator = node.decorator_list[0]
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    special, attrs = read_attributes(keywords, source, PRIM_FUNC_KEYWORDS)
    scope = Scope(source)
    reader = TensorReader(source, scope, functions)
    body = [s for s in node.body if not _declares(s, "dim")]
    dims = tuple(_declare(s, scope, source) for s in node.body if _declares(s, "dim"))
    for inner in ast.walk(node):
        if _declares(inner, "bind_dim"):
            reader.bind_dim(inner)
    params = tuple(_param(a, reader) for a in node.args.args)
    outputs = source.integer(special["outputs"]) if "outputs" in special else 1
    workspaces = source.integer(special["workspaces"]) if "workspaces" in special else 0
    if outputs < 0 or workspaces < 0 or outputs + workspaces > len(params):
        raise source.error(f"{outputs} outputs and {workspaces} workspaces of {len(params)} parameters", node)
    return PrimFunc(
        params,
        reader.suite(body),
        dims,
        outputs,
        workspaces,
        MappingProxyType(attrs),  # type: ignore[arg-type]  # the verifier checks the types of attributes
        source.span(node),
    )


def _declares(node: ast.AST, what: str) -> bool:
    return isinstance(node, ast.Assign) and isinstance(node.value, ast.Call) and member(node.value, "T") == what


def _declare(node: ast.stmt, scope: Scope, source: Source) -> Dim:
    assert isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
    target = node.targets[0]
    if not isinstance(target, ast.Name):
        raise source.error("expected a name", target)
    dim = read_dim_declaration(node.value, source)
    scope.define(target.id, dim, target)
    return dim


def _param(arg: ast.arg, reader: TensorReader) -> Buffer:
    source = reader.source
    call = arg.annotation
    if not isinstance(call, ast.Call) or member(call, "T") != "Buffer":
        raise source.error(f"parameter `{arg.arg}` needs a type: T.Buffer(shape, dtype)", arg)
    args = source.arguments(call, ("shape", "dtype"), ("scope", "name"))
    name = source.string(args["name"]) if "name" in args else arg.arg
    buffer = reader.make_buffer(name, args)
    reader.scope.define(arg.arg, buffer, arg)
    return buffer


class TensorReader(ExprReader):
    """Reads statements in the scope of one function."""

    def __init__(self, source: Source, scope: Scope, functions: Sequence[str]) -> None:
        super().__init__(source, scope)
        self._host = HostReader(self, functions)

    def make_buffer(self, name: str, args: Mapping[str, ast.expr], default: BufferScope = BufferScope.GLOBAL) -> Buffer:
        """A buffer from the arguments ``shape``, ``dtype`` and ``scope``."""
        where = default
        if "scope" in args:
            text = self.source.string(args["scope"])
            found = next((s for s in BufferScope if s.value == text), None)
            if found is None:
                raise self.source.unknown("scope", text, (s.value for s in BufferScope), args["scope"])
            where = found
        return Buffer(name, self.shape(args["shape"]), read_dtype(args["dtype"], self.source), where)

    def bind_dim(self, node: ast.AST) -> None:
        """Make the symbol of ``n = T.bind_dim("n", ...)`` visible in the whole function."""
        assert isinstance(node, ast.Assign) and isinstance(node.value, ast.Call)
        target = node.targets[0]
        args = self.source.arguments(node.value, ("name", "value"), RANGES)
        dim = make_dim(self.source.string(args["name"]), args, node.value, self.source)
        if isinstance(target, ast.Name) and self.scope.get(target.id) != dim:
            self.scope.define(target.id, dim, target)

    def suite(self, stmts: Sequence[ast.stmt]) -> Stmt:
        """Statements of a suite, with a scope of their own."""
        parts: list[Stmt | Wrap] = []
        with self.scope.nested():
            for s in stmts:
                if isinstance(s, ast.Pass):
                    continue
                parts.append(self._definition(s) or self._stmt(s))
        rest: list[Stmt] = []
        for part in reversed(parts):
            rest = [part, *rest] if isinstance(part, Stmt) else [part(_seq(rest))]
        return _seq(rest)

    def _definition(self, s: ast.stmt) -> Wrap | None:
        """``x = T.let(...)`` and ``b = T.alloc(...)``, which scope over what follows."""
        if not isinstance(s, ast.Assign) or not isinstance(s.targets[0], ast.Name) or not isinstance(s.value, ast.Call):
            return None
        target = s.targets[0]
        kind = member(s.value, "T")
        if kind == "let":
            value = self.expr(self.source.arguments(s.value, ("value",))["value"])
            var = Var(target.id, value.dtype)
            self.scope.define(target.id, var, target)
            return lambda rest: Let(var, value, rest)
        if kind == "alloc":
            buffer = self.make_buffer(target.id, self.source.arguments(s.value, ("shape", "dtype"), ("scope",)))
            self.scope.define(target.id, buffer, target)
            return lambda rest: Alloc(buffer, rest)
        return None

    def _stmt(self, s: ast.stmt) -> Stmt:
        reader = _STATEMENTS.get(type(s))
        if reader is None:
            raise self.source.error(f"{type(s).__name__} is not a statement of a tensor program", s)
        return reader(self, s)

    def _assign(self, s: ast.Assign) -> Stmt:
        target, value = s.targets[0], s.value
        if len(s.targets) != 1:
            raise self.source.error("one assignment has one target", s)
        if isinstance(target, ast.Name):
            kind = member(value, "T") if isinstance(value, ast.Call) else None
            if kind is not None and kind in DEFINITIONS and isinstance(value, ast.Call):
                return self._host.definition(kind, target, value)
            help_text = "name a scalar with T.let(...), a buffer with T.alloc(shape, dtype)"
            raise self.source.error(f"`{target.id}` is not assigned an element, T.let or T.alloc", s, help=help_text)
        if isinstance(value, ast.Call) and member(value, "T") == "combine":
            args = self.source.arguments(value, ("how", "target", "value"))
            how = self.source.string(args["how"])
            combine = next((c for c in Combine if c.value == how), None)
            if combine is None:
                raise self.source.unknown("combine", how, (c.value for c in Combine), args["how"])
            if ast.unparse(args["target"]) != ast.unparse(target):
                raise self.source.error("T.combine must name the element that is assigned", args["target"])
            return self._store(target, args["value"], combine)
        return self._store(target, value, None)

    def _augmented(self, s: ast.AugAssign) -> Stmt:
        combine = AUGMENTED_READ.get(type(s.op))
        if combine is None:
            raise self.source.error(
                "only +=, *=, &= and |= combine", s, help='write out[i] = T.combine("max", out[i], value)'
            )
        return self._store(s.target, s.value, combine)

    def _store(self, target: ast.expr, value: ast.expr, combine: Combine | None) -> Stmt:
        buffer, indices = self.element(target)
        return Store(buffer, indices, self.expr(value, buffer.dtype), combine)

    def _for(self, s: ast.For) -> Stmt:
        kind = LOOPS.get(member(s.iter, "T") or "")
        if kind is None or not isinstance(s.iter, ast.Call) or not isinstance(s.target, ast.Name) or s.orelse:
            raise self.source.error("expected a loop: for i in T.serial(n)", s.iter, help=f"kinds: {', '.join(LOOPS)}")
        args = self.source.arguments(s.iter, ("extent",), ("unroll",))
        extent = self.expr(args["extent"], "int64")
        unroll = self.source.integer(args["unroll"]) if "unroll" in args else 1
        var = Var(s.target.id)
        with self.scope.nested():
            self.scope.define(var.name, var, s.target)
            return For(var, extent, self.suite(s.body), kind, unroll)

    def _while(self, s: ast.While) -> Stmt:
        return While(self.expr(s.test, "bool"), self.suite(s.body))

    def _if(self, s: ast.If) -> Stmt:
        return If(self.expr(s.test, "bool"), self.suite(s.body), self.suite(s.orelse) if s.orelse else None)

    def _with(self, s: ast.With) -> Stmt:
        item = s.items[0]
        call = item.context_expr
        kind = member(call, "T")
        if len(s.items) == 1 and isinstance(call, ast.Call):
            if kind == "block":
                return self._block(call, s.body)
            if kind == "scope":
                return self.suite(s.body)
            if kind == "switch":
                return self._switch(call, item.optional_vars, s.body)
            if kind == "together":
                return self._together(call, s.body)
        raise self.source.error("expected with T.block(...), T.scope(), T.switch(...) or T.together()", s)

    def _together(self, call: ast.Call, stmts: list[ast.stmt]) -> Stmt:
        args = self.source.arguments(call, (), ("whole",))
        calls: list[CallKernel] = []
        for node in stmts:
            inner = self._stmt(node)
            if not isinstance(inner, CallKernel):
                raise self.source.error("only T.call_kernel(...) stands in T.together()", node)
            calls.append(inner)
        return Together(tuple(calls), "whole" in args and self.source.boolean(args["whole"]))

    def _block(self, call: ast.Call, stmts: list[ast.stmt]) -> Stmt:
        if len(call.args) != 1:
            raise self.source.error('expected T.block("name", axis=extent, ...)', call)
        with self.scope.nested():
            axes: list[Axis] = []
            for k in call.keywords:
                if k.arg is None:
                    raise self.source.error("`**` is not allowed in IR text", k.value)
                reduce = isinstance(k.value, ast.Call) and member(k.value, "T") == "reduce"
                extent = self.source.arguments(k.value, ("extent",))["extent"] if reduce else k.value  # type: ignore[arg-type]  # `reduce` says it is a call
                var = Var(k.arg)
                axes.append(Axis(var, self.dim(extent), AxisKind.REDUCE if reduce else AxisKind.SPATIAL))
                self.scope.define(k.arg, var, k)
            init = None
            first = stmts[0]
            if isinstance(first, ast.With) and member(first.items[0].context_expr, "T") == "init":
                init, stmts = self.suite(first.body), stmts[1:]
            return Block(self.source.string(call.args[0]), tuple(axes), self.suite(stmts), init)

    def _switch(self, call: ast.Call, target: ast.expr | None, stmts: list[ast.stmt]) -> Stmt:
        args = self.source.arguments(call, ("value", "cases"), ("name", *RANGES))
        cases = args["cases"]
        if not (isinstance(cases, ast.Call) and isinstance(cases.func, ast.Name) and cases.func.id == "range"):
            raise self.source.error("expected range(low, high)", cases)
        if not isinstance(target, ast.Name):
            raise self.source.error("T.switch needs `as name`", call)
        bounds = self.source.arguments(cases, ("low", "high"))
        low, high = self.source.integer(bounds["low"]), self.source.integer(bounds["high"])
        name = self.source.string(args["name"]) if "name" in args else target.id
        value = self.expr(args["value"], "int64")
        dim = make_dim(name, args, call, self.source, low, high - 1)
        with self.scope.nested():
            self.scope.define(target.id, dim, target)
            return Switch(value, dim, low, high, self.suite(stmts))

    def _effect(self, s: ast.Expr) -> Stmt:
        call = s.value
        kind = member(call, "T")
        if isinstance(call, ast.Call):
            if kind == "require":
                return self._require(call)
            if kind == "prefetch":
                args = self.source.arguments(call, ("element",), ("level", "write"))
                level = self.source.integer(args["level"]) if "level" in args else 1
                write = self.source.boolean(args["write"]) if "write" in args else False
                return Prefetch(*self.element(args["element"]), level, write)
            if kind is not None and kind in EFFECTS:
                return self._host.effect(kind, call)
        if kind is not None:
            raise self.source.unknown(
                "statement", f"T.{kind}", (f"T.{n}" for n in ("require", "prefetch", *EFFECTS)), call
            )
        raise self.source.error("a value on its own is not a statement", s)

    def _require(self, call: ast.Call) -> Stmt:
        args = self.source.arguments(call, ("cond", "code", "message"), rest=True)
        values = tuple(self.expr(a, "int64") for a in call.args[3:])
        code, message = self.source.string(args["code"]), self.source.string(args["message"])
        return Assert(self.expr(args["cond"], "bool"), code, message, values, self.source.span(call))


def _seq(stmts: list[Stmt]) -> Stmt:
    return stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))


_STATEMENTS: Final[Mapping[type[ast.stmt], Callable[..., Stmt]]] = MappingProxyType(
    {
        ast.Assign: TensorReader._assign,
        ast.AugAssign: TensorReader._augmented,
        ast.For: TensorReader._for,
        ast.While: TensorReader._while,
        ast.If: TensorReader._if,
        ast.With: TensorReader._with,
        ast.Expr: TensorReader._effect,
    }
)
