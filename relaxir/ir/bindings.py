"""Emitting bindings: each gets a variable of its inferred type, and facts that later inference relies on."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace

import numpy as np

from relaxir.ir.expr import (
    Bind,
    Body,
    CallDPS,
    CallTIR,
    Check,
    Constant,
    Expr,
    FuncCall,
    If,
    Loop,
    MatchCast,
    OpCall,
    ShapeExpr,
    TupleExpr,
    TupleGetItem,
    Var,
    const,
)
from relaxir.ir.op import InferCtx
from relaxir.ir.pending import PendingCall, settled
from relaxir.ir.relations import cast_problem, learn_cast
from relaxir.ir.scope import Scope, attr_symbols, outer, variable_names
from relaxir.ir.types import ShapeType, TensorType, Type, free_dims_of_type, map_type
from relaxir.support.errors import InferError, VerifyError
from relaxir.support.spans import Span
from relaxir.sym import Dim, DimLike, Facts, Proof, Relation, fresh

Emittable = Expr | PendingCall | int | float | bool | np.ndarray | Sequence["Emittable"]

CALLS = (TupleGetItem, OpCall, FuncCall, CallTIR, CallDPS, If, Loop)  # expressions that need a binding of their own


class BindingBuilder:
    """Emits the bindings of a body; `BlockBuilder` adds functions, calls and control flow.

    ``strict`` turns unprovable equalities into errors instead of run-time checks.
    """

    def __init__(self, strict: bool = False) -> None:
        self._scopes: list[Scope] = []
        self._place: Span | None = None
        self._names = variable_names(())
        self._dims: dict[str, Dim] = {}
        self._taken: set[str] = set()  # names of all symbols of the function, those of finished bodies too
        self._facts = Facts()
        self._strict = strict

    @property
    def facts(self) -> Facts:
        """What is known about the symbols at this point."""
        return self._facts

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """A block without effects and control flow; only `emit_output` results are visible after it."""
        scope = self._scope()
        scope.close_block()
        scope.dataflow = True
        yield
        scope.close_block()
        scope.dataflow = False

    def emit(self, value: Emittable, name: str = "lv", rename: Callable[[DimLike], DimLike] | None = None) -> Var:
        """Bind a value to a new variable of its inferred type.

        ``rename`` may replace dimensions of that type by symbols that `define_dim` made equal to them.
        """
        scope = self._scope()
        ctx_defined: tuple[Dim, ...] = ()
        expr: Expr
        if isinstance(value, PendingCall):
            expr, ctx_defined = self._infer(settled(value, self.emit))
            if rename is not None:
                expr = replace(expr, type=map_type(expr.type, outer(rename, ctx_defined)))
        else:
            expr = value if isinstance(value, CALLS) else self.normalize(value)
        var = Var(self._names.add(name), expr.type)
        scope.bindings.append(Bind(var, expr, ctx_defined))
        return var

    def emit_output(self, value: Emittable, name: str = "gv") -> Var:
        """Like `emit`; the variable stays visible after the dataflow block."""
        var = self.emit(value, name)
        self._scope().outputs.append(var)
        return var

    def match_cast(self, value: Emittable, type: Type, name: str = "lv", span: Span | None = None) -> Var:  # IR's word
        """See a value at a type: new symbols are solved for, the rest is checked at run time.

        Args:
            value: what is seen.
            type: at which type.
            name: hint for the variable.
            span: where it stands in the user's program; the caller's line when not given.

        Raises:
            InferError: when the value can never have that type, or does not determine a new symbol.
        """
        expr = self.normalize(value)
        span = span or Span.caller()
        new = tuple(d for d in free_dims_of_type(type) if d.name not in self._dims)
        self._declare(free_dims_of_type(type), span)
        if problem := cast_problem(expr.type, type, new, self._facts):
            raise InferError(f"match_cast: {problem}", span=span)
        var = Var(self._names.add(name), type)
        self._scope().bindings.append(MatchCast(var, expr, new, span))
        self._facts = learn_cast(self._facts, expr.type, type, new)
        return var

    def define_dim(self, stem: str, value: DimLike, span: Span | None = None) -> Dim:
        """A new symbol for a dimension expression, so that types and formulas built on it stay short.

        The equality is stated in the program (a match_cast of a shape value); see `Facts` about definitions.
        """
        low, high = self._facts.bounds(value)
        symbol = fresh(stem, {*self._dims, *self._taken}, min=max(low or 0, 0), max=high)
        self._declare((symbol,), None)
        self._facts = self._facts.with_definition(symbol, value)
        var = Var(self._names.add("lv"), ShapeType((symbol,)))
        self._scope().bindings.append(MatchCast(var, ShapeExpr((value,)), (symbol,), span or Span.caller()))
        return symbol

    def require(self, ctx: InferCtx) -> None:
        """Emit the run-time checks that an inference outside any operator left open, and rely on them from here on."""
        self._scope().bindings.extend(ctx.checks)
        self._adopt(ctx)

    def check(self, relation: Relation, message: str, args: Sequence[DimLike] = (), span: Span | None = None) -> None:
        """Require a relation between symbols: nothing where it is proved, else a check at run time that is relied on.

        Args:
            relation: what must hold.
            message: what the error says; one ``{}`` for the value of each of ``args``.
            args: dimensions whose values the message shows.
            span: place in the user's program.

        Raises:
            InferError: when the relation can never hold.
        """
        verdict = self._facts.prove(relation)
        if verdict is Proof.REFUTED:
            raise InferError(f"check: `{relation}` never holds", span=span)
        if verdict is Proof.UNKNOWN:
            self._scope().bindings.append(Check(relation, "runtime-shape", message, tuple(args), span))
            self._facts = self._facts.with_(relation)

    def normalize(self, value: Emittable) -> Expr:
        """Turn anything emittable into a leaf expression, emitting what is nested."""
        if isinstance(value, PendingCall):
            return self.emit(value)
        if isinstance(value, Var | Constant | ShapeExpr):
            return value
        if isinstance(value, TupleExpr | list | tuple):
            items = value.fields if isinstance(value, TupleExpr) else value
            return TupleExpr(tuple(self.normalize(i) for i in items))
        if isinstance(value, CALLS):
            return value if not self._scopes else self._leaf(value)
        return const(value)

    def item(self, value: Expr, index: int) -> Var:
        """Bind one field of a tuple value."""
        return self.emit(TupleGetItem(value, index))

    # ---- inside ----------------------------------------------------------------------------------------------------

    def _leaf(self, value: Expr) -> Expr:
        var = Var(self._names.add("lv"), value.type)
        self._scope().bindings.append(Bind(var, value))
        return var

    def _bind(self, expr: Expr, ctx: InferCtx, name: str) -> Var:
        self._adopt(ctx)
        var = Var(self._names.add(name), expr.type)
        self._scope().bindings.append(Bind(var, expr, tuple(ctx.defined)))
        return var

    def _branch(self, fn: Callable[[], Emittable]) -> Body:
        scope = Scope()
        self._scopes.append(scope)
        facts, dims = self._facts, dict(self._dims)
        try:
            result = self.normalize(fn())
        finally:
            self._scopes.pop()
            self._facts, self._dims = facts, dims
        scope.close_block()
        return Body(tuple(scope.blocks), result)

    def _infer(self, call: PendingCall) -> tuple[OpCall, tuple[Dim, ...]]:
        args = tuple(self._operand(a, call) for a in call.args)
        span = self._place or call.span
        ctx = self._ctx(call.op.name, span)
        attrs_new = tuple(d for d in attr_symbols(call.attrs) if d.name not in self._dims)
        if attrs_new:
            names = ", ".join(f"`{d.name}`" for d in attrs_new)
            ctx.fail(f"symbol {names} is not defined in this function", help="declare it by a parameter or match_cast")
        type_ = call.op.type_of(tuple(a.type for a in args), call.attrs, ctx)
        self._adopt(ctx)
        return OpCall(call.op, args, call.attrs, type_, span), tuple(ctx.defined)

    def _operand(self, value: object, call: PendingCall) -> Expr:
        """Numbers take the dtype of the first tensor operand; of the first that is no mask where they are no bools."""
        if isinstance(value, bool | int | float):
            types = [a.type for a in call.args if isinstance(a, Expr)]
            for t in types:
                if isinstance(t, TensorType) and (isinstance(value, bool) or t.dtype != "bool"):
                    return const(value, t.dtype)
        return self.normalize(value)  # type: ignore[arg-type]  # anything else is turned into a constant or refused

    def _ctx(self, op: str, span: Span | None) -> InferCtx:
        return InferCtx(op, self._facts, (*self._dims, *self._taken), span, self._strict)

    def _adopt(self, ctx: InferCtx) -> None:
        for d in ctx.defined:
            self._dims[d.name] = d
            self._taken.add(d.name)
        if ctx.defined:
            self._facts = self._facts.with_dims(*ctx.defined)
        if ctx.checks:  # what is checked at run time may be relied on afterwards
            self._facts = self._facts.with_(*(c.relation for c in ctx.checks))

    def _declare(self, dims: Sequence[Dim], span: Span | None) -> None:
        for d in dims:
            self._taken.add(d.name)
            known = self._dims.setdefault(d.name, d)
            if known != d:
                raise InferError(f"two different symbols named `{d.name}` in one function", span=span)

    def _scope(self) -> Scope:
        if not self._scopes:
            raise VerifyError("nothing can be emitted outside a function", code="verify-scope")
        return self._scopes[-1]
