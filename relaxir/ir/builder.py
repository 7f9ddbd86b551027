"""BlockBuilder: builds functions binding by binding, inferring every type as it goes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

import numpy as np

from relaxir.ir.attrs import is_symbolic
from relaxir.ir.expr import (
    Bind,
    Binding,
    Body,
    CallDPS,
    CallTIR,
    Check,
    Constant,
    Expr,
    FuncCall,
    Function,
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
from relaxir.ir.lifting import captured, inherited, passing_on
from relaxir.ir.loops import COUNTER, loop_problems, loop_type, widen
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.op import InferCtx
from relaxir.ir.pending import PendingCall, settled
from relaxir.ir.relations import Subtype, apply_signature, join, learn_cast, subtype
from relaxir.ir.scope import Scope, attr_symbols, check_name, check_params, check_reach, outer, variable_names
from relaxir.ir.types import FuncType, ShapeType, TensorType, TupleType, Type, describe, free_dims_of_type, map_type
from relaxir.support.errors import InferError, VerifyError
from relaxir.support.spans import Span
from relaxir.sym import Dim, DimLike, Facts, Proof, Relation, free_dims, fresh, parse_where, unify
from relaxir.tir import PrimFunc

Emittable = Expr | PendingCall | int | float | bool | np.ndarray | Sequence["Emittable"]


CALLS = (TupleGetItem, OpCall, FuncCall, CallTIR, CallDPS, If, Loop)  # expressions that need a binding of their own


class BlockBuilder:
    """Builds an `IRModule`; used as shown in the README.

    ``strict`` turns unprovable equalities into errors instead of run-time checks.
    """

    def __init__(self, module: IRModule | None = None, strict: bool = False) -> None:
        self._functions: dict[str, AnyFunc] = dict(module.functions) if module is not None else {}
        self._signatures: dict[str, FuncType] = {}
        self._captured: dict[str, tuple[Var, ...]] = {}
        self._homes: dict[str, Scope] = {}  # where closures that read values of it were built
        self._scopes: list[Scope] = []
        self._place: Span | None = None
        self._names = variable_names(())
        self._dims: dict[str, Dim] = {}
        self._taken: set[str] = set()  # names of all symbols of the function, those of finished bodies too
        self._facts = Facts()
        self._strict = strict

    # ---- functions -------------------------------------------------------------------------------------------------

    @contextmanager
    def function(
        self,
        name: str,
        params: Sequence[Var],
        where: str | Sequence[Relation] = (),
        attrs: Mapping[str, object] | None = None,
        ret: Type | None = None,
        pure: bool = True,
    ) -> Iterator[None]:
        """Build one function inside the ``with``; ``ret`` declares the result type (needed for recursion).

        Inside another function it is a closure: the variables around it that it reads become its last parameters, and
        `call` passes them.

        Args:
            name: global name, unique in the module.
            params: its parameters.
            where: relations between the symbols, as text (``"n <= m, n % 4 == 0"``) or `Relation` values.
            attrs: notes kept with the function.
            ret: declared result type; checked against what the body gives.
            pure: whether calls have no effects.
        """
        check_name(name, "function")
        if name in self._functions:
            raise VerifyError(f"function `{name}` is defined twice", code="verify-name")
        check_params(name, params)
        span = Span.caller()
        around = (self._names, self._dims, self._taken, self._facts)
        nested = bool(self._scopes)
        names = variable_names((*(self._names.taken if nested else ()), *(p.name for p in params)))
        self._names, self._dims, self._taken = names, dict(self._dims) if nested else {}, set()
        for p in params:
            self._declare(free_dims_of_type(p.type), span)
        if ret is not None and not free_dims_of_type(ret):
            self._declare((), span)
        relations = parse_where(where, self._dims) if isinstance(where, str) else tuple(where)
        for r in relations:
            self._declare((*free_dims(r.left), *free_dims(r.right)), span)
        known = self._facts.relations if nested else ()
        self._facts = Facts(self._dims.values(), (*known, *relations))
        if ret is not None:
            self._signatures[name] = FuncType(tuple(p.type for p in params), ret, pure)
        scope = Scope()
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes.pop()
            facts = self._facts
            self._names, self._dims, self._taken, self._facts = around if nested else (names, self._dims, set(), facts)
        scope.close_block()
        if scope.result is None:
            raise VerifyError(f"function `{name}` has no result", help="call emit_func_output before the end")
        body = Body(tuple(scope.blocks), scope.result)
        if ret is not None and subtype(body.type, ret, facts) <= Subtype.STATIC_MISMATCH:
            raise InferError(f"function `{name}` is declared to give {describe(ret)}, but gives {describe(body.type)}")
        self._captured[name] = captured(body, params) if nested else ()
        if self._captured[name]:
            self._homes[name] = self._scope()
        params = (*params, *self._captured[name])
        check_params(name, params)
        body = passing_on(body, name, self._captured[name])
        relations = (*inherited(known, params), *relations)
        self._functions[name] = Function(
            params, body, ret or body.type, relations, MappingProxyType(dict(attrs or {})), pure, span
        )

    @contextmanager
    def dataflow(self) -> Iterator[None]:
        """A block without effects and control flow; only `emit_output` results are visible after it."""
        scope = self._scope()
        scope.close_block()
        scope.dataflow = True
        yield
        scope.close_block()
        scope.dataflow = False

    def add_func(self, name: str, func: AnyFunc) -> str:
        """Add a finished function or tensor program under a name like ``name``; returns the name used."""
        check_name(name, "function")
        unique = IRModule(self._functions).unique_name(name)
        self._functions[unique] = func
        return unique

    def get(self) -> IRModule:
        """The module built so far."""
        return IRModule(self._functions)

    @contextmanager
    def fragment(self, facts: Facts, names: Iterable[str], span: Span | None) -> Iterator[list[Binding]]:
        """Build loose bindings for a pass: symbols and relations come from ``facts``, ``names`` are taken.

        All calls stand at ``span``, the place of what they replace. The list is filled when the ``with`` ends.
        """
        self._names, self._dims = variable_names(names), {d.name: d for d in facts.dims}
        self._facts, self._place = facts, span
        scope = Scope()
        self._scopes.append(scope)
        collected: list[Binding] = []
        try:
            yield collected
        finally:
            self._scopes.pop()
        scope.close_block()
        collected.extend(b for block in scope.blocks for b in block.bindings)

    # ---- bindings --------------------------------------------------------------------------------------------------

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

    def emit_func_output(self, value: Emittable) -> None:
        """State the result of the function, once."""
        scope = self._scope()
        if scope.result is not None:
            raise VerifyError("a function has one result", code="verify-redefined", help="give several as a tuple")
        scope.result = self.normalize(value)

    def match_cast(self, value: Emittable, type: Type, name: str = "lv", span: Span | None = None) -> Var:  # IR's word
        """See a value at a type: new bare symbols are defined from it, the rest is checked at run time.

        Args:
            value: what is seen.
            type: at which type.
            name: hint for the variable.
            span: where it stands in the user's program; the caller's line when not given.

        Raises:
            InferError: when the value can never have that type.
        """
        expr = self.normalize(value)
        span = span or Span.caller()
        new = tuple(d for d in free_dims_of_type(type) if d.name not in self._dims)
        self._declare(free_dims_of_type(type), span)
        if subtype(expr.type, type, self._facts) is Subtype.REFUTED:
            raise InferError(f"match_cast: a value of type {describe(expr.type)} is never {describe(type)}", span=span)
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

    def call_tir(
        self,
        callee: str,
        args: Sequence[Emittable],
        out: Type | Sequence[TensorType],
        dims: Sequence[DimLike] | None = None,
    ) -> CallTIR:
        """A call of the module's tensor program ``callee``; ``dims`` are derived from the shapes when not given."""
        func = self._functions.get(callee)
        if not isinstance(func, PrimFunc):
            raise VerifyError(f"no tensor program `{callee}` in the module", code="verify-name")
        values = tuple(self.normalize(a) for a in args)
        out_type = out if isinstance(out, Type) else TupleType(tuple(out))
        outs = out_type.fields if isinstance(out_type, TupleType) else (out_type,)
        types = [*(v.type for v in values), *outs]
        if len(types) != len(func.params) - func.workspaces:
            expected = len(func.params) - func.workspaces
            raise InferError(f"call_tir `{callee}`: expected {expected} tensors, got {len(types)}", code="arity")
        pairs: list[tuple[DimLike, DimLike]] = []
        for p, t in zip(func.params, types, strict=False):
            if not isinstance(t, TensorType) or len(t.shape) != len(p.shape) or t.dtype != p.dtype:
                want = describe(TensorType(p.shape, p.dtype))
                raise InferError(f"call_tir `{callee}`: `{p.name}` must be {want}, got {describe(t)}", code="type-kind")
            pairs.extend(zip(p.shape, t.shape, strict=True))
        if dims is None:
            bound = unify(pairs, self._facts).bindings
            missing = [d.name for d in func.dims if d not in bound]
            if missing:
                raise InferError(f"call_tir `{callee}`: give dims= since the shapes do not fix {', '.join(missing)}")
            dims = tuple(bound[d] for d in func.dims)
        return CallTIR(callee, values, tuple(dims), out_type, Span.caller())

    def call_dps_packed(
        self, target: str | Callable[..., None], args: Sequence[Emittable], out: Type, pure: bool = True
    ) -> CallDPS:
        """A call of a library function (symbol name or Python callable) that fills tensors of type ``out``."""
        return CallDPS(target, tuple(self.normalize(a) for a in args), out, pure, Span.caller())

    def call(self, callee: str, *args: Emittable) -> Var:
        """Call a graph function of the module (recursion: the function being built, if its ``ret`` is declared)."""
        more = self._captured.get(callee, ())
        check_reach(callee, more, self._homes.get(callee), self._scopes)
        values = (*map(self.normalize, args), *more)
        func = self._functions.get(callee)
        signature = func.type if isinstance(func, Function) else self._signatures.get(callee)
        if signature is None:
            raise VerifyError(f"no function `{callee}` with a known signature", code="verify-name")
        ctx = self._ctx(callee, Span.caller())
        applied = apply_signature(signature, tuple(v.type for v in values), ctx)
        return self._bind(FuncCall(callee, values, applied.type, ctx.span), ctx, "lv")

    def if_then_else(self, cond: Emittable, then: Callable[[], Emittable], other: Callable[[], Emittable]) -> Var:
        """Run one of two branches by a bool scalar; each callable emits its bindings and returns its result."""
        test = self.normalize(cond)
        if test.type != TensorType((), "bool"):
            raise InferError(f"if: the condition must be bool[], got {describe(test.type)}", code="type-kind")
        bodies = tuple(self._branch(fn) for fn in (then, other))
        ctx = self._ctx("if", Span.caller())
        type_ = join(bodies[0].type, bodies[1].type, ctx)
        return self._bind(If(test, bodies[0], bodies[1], type_, ctx.span), ctx, "lv")

    def loop(
        self,
        body: Callable[[Var, tuple[Var, ...]], tuple[Emittable, Sequence[Emittable], Sequence[Emittable]]],
        init: Sequence[Emittable],
        trips: Emittable | DimLike | None = None,
        start: Emittable | None = None,
    ) -> Var:
        """Repeat a body: a tuple of the last carried values, then the scan outputs (a leading axis of iterations).

        Args:
            body: receives the number of the iteration and the carried values; emits its bindings and returns whether to
                go on, the next carried values, and one element of each scan output. It is called again when an
                iteration changes a dimension, with a symbol in its place.
            init: first carried values, tensors.
            trips: most iterations, a dimension or an ``i64[]`` tensor; None: no limit.
            start: whether there is a first iteration; None: yes.

        Raises:
            InferError: for a carried value that changes its rank or dtype, or a condition that is not ``bool[]``.
        """
        span = Span.caller()
        limit = self._trips(trips)
        begin = None if start is None else self.normalize(start)
        first = tuple(self.normalize(v) for v in init)
        ctx = self._ctx("loop", span)
        types = tuple(ctx.tensor([v.type], 0, f"carried value {n}") for n, v in enumerate(first))
        while True:
            names, symbols = self._names.copy(), set(self._taken)
            made = self._iteration(body, types, tuple(ctx.defined), ctx)
            if made[2] == types:
                break
            types, self._names, self._taken = made[2], names, symbols
        params, inner, _ = made
        node = Loop(limit, begin, first, params, tuple(ctx.defined), inner, inner.type, span)
        for problem in loop_problems(node, self._facts.with_dims(*node.dims)):
            ctx.fail(problem, code="type-kind")
        result = self._ctx("loop", span)
        return self._bind(replace(node, type=loop_type(node, result)), result, "lv")

    def _trips(self, trips: Emittable | DimLike | None) -> Expr | None:
        if trips is None or (isinstance(trips, Expr) and not isinstance(trips, Constant)):
            return trips
        if isinstance(trips, Constant | int):
            return ShapeExpr((max(int(trips.data if isinstance(trips, Constant) else trips), 0),))
        return ShapeExpr((trips,)) if is_symbolic(trips) else self.normalize(trips)

    def _iteration(
        self,
        body: Callable[[Var, tuple[Var, ...]], tuple[Emittable, Sequence[Emittable], Sequence[Emittable]]],
        types: tuple[TensorType, ...],
        dims: tuple[Dim, ...],
        ctx: InferCtx,
    ) -> tuple[tuple[Var, ...], Body, tuple[TensorType, ...]]:
        """One body for carried values of some types, and the types it would need to hold for every iteration."""
        params = (Var(self._names.add("i"), COUNTER), *(Var(self._names.add("carried"), t) for t in types))
        widened = types

        def run() -> Emittable:
            nonlocal widened
            self._declare(dims, ctx.span)
            self._facts = self._facts.with_dims(*dims)
            goes_on, carried, scans = body(params[0], params[1:])
            results = TupleExpr(tuple(self.normalize(v) for v in (goes_on, *carried, *scans)))
            if len(carried) != len(types):
                ctx.fail(f"{len(types)} values are carried, but an iteration gives {len(carried)}", code="arity")
            later = [f.type for f in results.fields[1 : 1 + len(types)]]
            widened = widen(types, later, self._facts, ctx)
            return results

        return params, self._branch(run), widened

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

    @property
    def facts(self) -> Facts:
        """What is known about the symbols at this point."""
        return self._facts

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
