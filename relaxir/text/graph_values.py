"""Reading of graph-level values: operands, operator calls, calls of functions, programs and libraries."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from relaxir.ir.attrs import Attrs, make_attrs
from relaxir.ir.expr import (
    Array,
    CallDPS,
    CallTIR,
    Expr,
    FuncCall,
    OpCall,
    ShapeExpr,
    TupleExpr,
    TupleGetItem,
    Var,
    const,
)
from relaxir.ir.op import InferCtx, Op
from relaxir.ir.relations import apply_signature
from relaxir.ir.retype import TypeScope, disagreement, rename_fresh
from relaxir.ir.types import FuncType, TensorType, TupleType, Type
from relaxir.sym import Dim
from relaxir.text.constants import read_constant
from relaxir.text.scope import Scope
from relaxir.text.source import Source, member, number
from relaxir.text.tensor_host import is_module, read_global
from relaxir.text.types import read_shape, read_type
from relaxir.text.values import read_value


@dataclass(frozen=True)
class ModuleContext:
    """What a function may refer to: operators, data of constants, names and signatures of the module's functions."""

    ops: Mapping[str, Op[Attrs]]
    arrays: Mapping[str, Array]
    functions: tuple[str, ...]
    signatures: Mapping[str, FuncType]
    untyped: frozenset[str] = frozenset()  # graph functions without a written result type


@dataclass(frozen=True)
class Value:
    """A value that was read, its type, and the symbols that the binding defines."""

    expr: Expr
    type: Type
    defines: tuple[Dim, ...] = ()


class ValueReader:
    """Reads values in the scope of one function, inferring their types."""

    def __init__(self, source: Source, scope: Scope, types: TypeScope, module: ModuleContext) -> None:
        self.source = source
        self.scope = scope
        self.types = types
        self.module = module

    # ---- operands --------------------------------------------------------------------------------------------------

    def operand(self, node: ast.expr, dtype: str | None = None) -> Expr:
        """A value that needs no binding of its own; numbers become constants of ``dtype``."""
        if isinstance(node, ast.Name):
            return self.scope.find(node.id, Var, "variable", node)
        if isinstance(node, ast.Tuple):
            return TupleExpr(tuple(self.operand(e) for e in node.elts))
        if isinstance(node, ast.Subscript):
            return self._get_item(node)
        value = number(node)
        if value is not None or (isinstance(node, ast.Constant) and isinstance(node.value, bool)):
            return const(bool(node.value) if isinstance(node, ast.Constant) and value is None else value, dtype)
        name = member(node, "R")
        if isinstance(node, ast.Call) and name == "const":
            return read_constant(node, self.module.arrays, self.source)
        if isinstance(node, ast.Call) and name == "shape":
            return ShapeExpr(read_shape(self.source.arguments(node, ("dims",))["dims"], self.scope.dims, self.source))
        if isinstance(node, ast.Call):
            raise self.source.error("a call inside a call", node, help="bind it to a variable first")
        raise self.source.error("expected a variable, a constant, a shape or a tuple", node)

    def operands(self, nodes: Sequence[ast.expr]) -> tuple[Expr, ...]:
        """Several operands; a bare number takes the dtype of the first tensor among them."""
        first = next((n for n in nodes if number(n) is None and not isinstance(n, ast.Constant)), None)
        type_ = self.operand(first).type if first is not None else None
        dtype = type_.dtype if isinstance(type_, TensorType) else None
        return tuple(self.operand(n, dtype) for n in nodes)

    # ---- values ----------------------------------------------------------------------------------------------------

    def value(self, node: ast.expr, written: Type | None, defines: tuple[Dim, ...]) -> Value:
        """The right side of a binding; its type must agree with the ``written`` one.

        Raises:
            ParseError: with code ``parse-annotation`` where it does not.
            InferError: where the value has no type.
        """
        if isinstance(node, ast.Call):
            name = member(node, "R")
            if isinstance(node.func, ast.Attribute | ast.Subscript) and is_module(node.func.value):
                return self._func_call(node, written, defines)
            if name == "call_tir":
                return self._call_tir(node, written, defines)
            if name == "call_dps_packed":
                return self._call_dps(node, written, defines)
            if name not in ("const", "shape"):
                return self._op_call(node, name, written, defines)
        expr = self.operand(node)
        return Value(expr, *self.settle(expr.type, written, defines, self.types.ctx("value"), node))

    def settle(
        self, inferred: Type, written: Type | None, defines: tuple[Dim, ...], ctx: InferCtx, node: ast.AST
    ) -> tuple[Type, tuple[Dim, ...]]:
        """Hold the written type against the inferred one; without one the inferred type and its symbols stand.

        Returns the type and the symbols that the binding defines.
        """
        if written is None:
            owned = (*defines, *ctx.defined)
            self.types.define(owned)
            self.types.adopt(ctx, {})
            return inferred, owned
        self.types.define(defines)
        problem = disagreement(inferred, written, self.types.facts, ctx.defined, defines)
        if problem is not None:
            raise self.source.error(problem, node, "parse-annotation")
        self.types.adopt(ctx, rename_fresh(inferred, written, ctx.defined, defines))
        return written, defines

    def _op_call(self, node: ast.Call, name: str | None, written: Type | None, defines: tuple[Dim, ...]) -> Value:
        if name is None:
            raise self.source.error("expected a call of an operator R.f(...) or of a function Module.f(...)", node.func)
        op = self.module.ops.get(name) or self.module.ops.get(name.removesuffix("_"))
        if op is None:
            known = (f"R.{n}" for n in self.module.ops)
            raise self.source.unknown("operator", f"R.{name}", known, node.func, "parse-unknown-op")
        for a in node.args:
            if isinstance(a, ast.Starred):
                raise self.source.error("`*` is not allowed in IR text", a)
        attrs = self._attrs(op, node)
        ctx = self.types.ctx(op.name, self.source.span(node))
        variadic = bool(op.params) and op.params[-1].variadic
        least = sum(not (p.optional or p.variadic) for p in op.params)
        if len(node.args) < least or (len(node.args) > len(op.params) and not variadic):
            wanted = f"{least}" if least == len(op.params) else f"at least {least}"
            ctx.fail(f"expected {wanted} operands, got {len(node.args)}", code="arity")
        args = self.operands(node.args)
        inferred = op.type_of(tuple(a.type for a in args), attrs, ctx)
        type_, owned = self.settle(inferred, written, defines, ctx, node)
        return Value(OpCall(op, args, attrs, type_, ctx.span), type_, owned)

    def _attrs(self, op: Op[Attrs], node: ast.Call) -> Attrs:
        given: dict[str, object] = {}
        for k in node.keywords:
            if k.arg is None:
                raise self.source.error("`**` is not allowed in IR text", k.value)
            given[k.arg] = read_value(k.value, self.source, self.scope.dims)
        places = {k.arg: self.source.span(k) for k in node.keywords if k.arg is not None}
        return make_attrs(op.name, op.Attrs, given, self.source.span(node), places)

    def _func_call(self, node: ast.Call, written: Type | None, defines: tuple[Dim, ...]) -> Value:
        callee = read_global(node.func, self.module.functions, self.source)
        signature = self.module.signatures.get(callee)
        if signature is None and callee in self.module.untyped:
            raise self.source.error(
                f"the result type of `{callee}` is not written", node.func, help="write -> R.Tensor(...)"
            )
        if signature is None:
            help_text = f"write R.call_tir(Module.{callee}, (...), out=...)"
            raise self.source.error(f"`{callee}` is a tensor program", node.func, help=help_text)
        self.source.arguments(node, (), (), rest=True)
        args = self.operands(node.args)
        ctx = self.types.ctx(callee, self.source.span(node))
        inferred = apply_signature(signature, tuple(a.type for a in args), ctx).type
        type_, owned = self.settle(inferred, written, defines, ctx, node)
        return Value(FuncCall(callee, args, type_, ctx.span), type_, owned)

    def _call_tir(self, node: ast.Call, written: Type | None, defines: tuple[Dim, ...]) -> Value:
        given = self.source.arguments(node, ("callee", "args"), ("out", "dims"))
        callee = read_global(given["callee"], self.module.functions, self.source)
        if callee in self.module.signatures or callee in self.module.untyped:
            raise self.source.error(
                f"`{callee}` is not a tensor program", given["callee"], help=f"write Module.{callee}(...)"
            )
        args = tuple(self.operand(a) for a in self.source.items(given["args"]))
        dims = read_shape(given["dims"], self.scope.dims, self.source) if "dims" in given else ()
        out = self._out(given, written, node)
        return self._stated(CallTIR(callee, args, dims, out, self.source.span(node)), out, written, defines, node)

    def _call_dps(self, node: ast.Call, written: Type | None, defines: tuple[Dim, ...]) -> Value:
        given = self.source.arguments(node, ("symbol", "args"), ("out", "pure"))
        args = tuple(self.operand(a) for a in self.source.items(given["args"]))
        pure = self.source.boolean(given["pure"]) if "pure" in given else True
        out = self._out(given, written, node)
        call = CallDPS(self.source.string(given["symbol"]), args, out, pure, self.source.span(node))
        return self._stated(call, out, written, defines, node)

    def _out(self, given: Mapping[str, ast.expr], written: Type | None, node: ast.AST) -> Type:
        if "out" not in given:
            if written is None:
                raise self.source.error("out= says what the call gives", node)
            return written
        shown = given["out"]
        if isinstance(shown, ast.Tuple | ast.List):
            return TupleType(tuple(read_type(t, self.scope.dims, self.source) for t in shown.elts))
        return read_type(shown, self.scope.dims, self.source)

    def _stated(self, call: Expr, out: Type, written: Type | None, defines: tuple[Dim, ...], node: ast.AST) -> Value:
        """A call that states its own type: fresh symbols stand in it as they are."""
        return Value(call, *self.settle(out, written, defines, self.types.ctx("call"), node))

    def _get_item(self, node: ast.Subscript) -> Expr:
        value, index = self.operand(node.value), self.source.integer(node.slice)
        if not isinstance(value.type, TupleType) or not 0 <= index < len(value.type.fields):
            raise self.source.error(f"no field {index} in a value of type {value.type}", node, "parse-annotation")
        return TupleGetItem(value, index)
