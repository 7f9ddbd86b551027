"""BlockBuilder: builds functions, their calls and their control flow."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

from relaxir.ir.attrs import is_symbolic
from relaxir.ir.bindings import BindingBuilder, Emittable
from relaxir.ir.expr import (
    Binding,
    Body,
    CallDPS,
    CallTIR,
    Constant,
    Expr,
    FuncCall,
    Function,
    If,
    Loop,
    ShapeExpr,
    TupleExpr,
    Var,
)
from relaxir.ir.lifting import captured, inherited, passing_on
from relaxir.ir.loops import COUNTER, loop_problems, loop_type, widen
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.op import InferCtx
from relaxir.ir.relations import Subtype, apply_signature, join, subtype
from relaxir.ir.scope import Scope, check_name, check_params, check_reach, variable_names
from relaxir.ir.types import FuncType, TensorType, TupleType, Type, describe, free_dims_of_type
from relaxir.support.errors import InferError, VerifyError
from relaxir.support.spans import Span
from relaxir.sym import Dim, DimLike, Facts, Relation, free_dims, parse_where, unify
from relaxir.tir import PrimFunc

Iteration = Callable[[Var, tuple[Var, ...]], tuple[Emittable, Sequence[Emittable], Sequence[Emittable]]]
"""Emits an iteration, from its number and the carried values: whether to go on, what is carried on, scan elements."""


class BlockBuilder(BindingBuilder):
    """Builds an `IRModule`; used as shown in the README.

    ``strict`` turns unprovable equalities into errors instead of run-time checks.
    """

    def __init__(self, module: IRModule | None = None, strict: bool = False) -> None:
        super().__init__(strict)
        self._functions: dict[str, AnyFunc] = dict(module.functions) if module is not None else {}
        self._signatures: dict[str, FuncType] = {}
        self._captured: dict[str, tuple[Var, ...]] = {}
        self._homes: dict[str, Scope] = {}  # where closures that read values of it were built

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
        known = self._facts.relations if nested else ()
        relations = self._begin(params, where, known, span)
        if ret is not None:
            self._signatures[name] = FuncType(tuple(p.type for p in params), ret, pure)
        scope = Scope()
        self._scopes.append(scope)
        try:
            yield
        finally:
            self._scopes.pop()
            facts = self._facts
            if nested:
                self._names, self._dims, self._taken, self._facts = around
        body = _finished(name, scope, ret, facts)
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

    def _begin(
        self, params: Sequence[Var], where: str | Sequence[Relation], known: Sequence[Relation], span: Span | None
    ) -> tuple[Relation, ...]:
        """Begin a function: names, symbols and facts are those of its parameters and, in a closure, those around it.

        Returns the relations of ``where``.
        """
        nested = bool(self._scopes)
        self._names = variable_names((*(self._names.taken if nested else ()), *(p.name for p in params)))
        self._dims, self._taken = dict(self._dims) if nested else {}, set()
        for p in params:
            self._declare(free_dims_of_type(p.type), span)
        relations = parse_where(where, self._dims) if isinstance(where, str) else tuple(where)
        for r in relations:
            self._declare((*free_dims(r.left), *free_dims(r.right)), span)
        self._facts = Facts(self._dims.values(), (*known, *relations))
        return relations

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

    # ---- calls and control flow ------------------------------------------------------------------------------------

    def emit_func_output(self, value: Emittable) -> None:
        """State the result of the function, once."""
        scope = self._scope()
        if scope.result is not None:
            raise VerifyError("a function has one result", code="verify-redefined", help="give several as a tuple")
        scope.result = self.normalize(value)

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
        body: Iteration,
        init: Sequence[Emittable],
        trips: Emittable | DimLike | None = None,
        start: Emittable | None = None,
    ) -> Var:
        """Repeat a body: a tuple of the last carried values, then the scan outputs (a leading axis of iterations).

        `item` reads a field of it.

        Args:
            body: called as ``body(number, carried)`` with the number of the iteration and a tuple of carried values;
                emits its bindings and returns whether to go on, the next carried values, and one element of each scan
                output. It is called again when an iteration changes a dimension, with a symbol in its place.
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
            params, inner, widened = self._iteration(body, types, tuple(ctx.defined), ctx)
            if widened == types:
                break
            types, self._names, self._taken = widened, names, symbols
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
        body: Iteration,
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


def _finished(name: str, scope: Scope, ret: Type | None, facts: Facts) -> Body:
    """The body of a function that was built, whose result must have the type that is declared."""
    scope.close_block()
    if scope.result is None:
        raise VerifyError(f"function `{name}` has no result", help="call emit_func_output before the end")
    body = Body(tuple(scope.blocks), scope.result)
    if ret is not None and subtype(body.type, ret, facts) <= Subtype.STATIC_MISMATCH:
        raise InferError(f"function `{name}` is declared to give {describe(ret)}, but gives {describe(body.type)}")
    return body
