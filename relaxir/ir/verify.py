"""The verifier of modules: collects every violation of these invariants, and of those in `relaxir.tir.verify`.

 1. A call names a function of the module, of the right kind: `FuncCall` a graph function, `CallTIR` a kernel,
    a host program's calls kernels and host programs.
 2. A variable is a parameter or bound before its use, in the same body or one around it; after a dataflow block only
    its outputs are visible, after an If or a Loop nothing of its bodies.
 3. A variable is bound once; a symbol is defined once, by the parameters or by one binding; no two symbols of a
    function share a name.
 4. Symbols are used where they are defined: in types, attributes, shapes, ``dims``, checks and ``where``.
 5. Recorded types agree with inferred ones, up to the names of fresh symbols: of operator calls, calls by signature,
    branches joined by an If, and variables against their values.
 6. A dataflow block has no impure call, no If and no Loop; its outputs are bound in it.
 7. Operands are leaves: variables, constants, shapes, and tuples and fields of these.
 8. A `CallTIR` passes as many tensors as the program has inputs, takes as many as it has outputs, of equal dtype, no
    extent is refuted (where the ranks differ, the numbers of elements are proved equal), and gives one value for each
    of its dims. So do calls in host programs.
 9. A constant's data is C-contiguous and of the dtype and shape that its type says.
10. A match_cast is not refuted; an If's condition is ``bool[]``; a Loop's operands, parameters and results fit.
11. A function's result may have the declared type; a function declared pure makes no impure call.
12. A check has one ``{}`` in its message for each value, and the code of an error; ``where`` is not contradictory.
13. The forms fit the level that is asked for: see `LEVELS`.
14. Of calls that a host program runs together none writes what another one reads or writes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from relaxir.ir.attrs import attr_dims
from relaxir.ir.expr import (
    Bind,
    BindingBlock,
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
)
from relaxir.ir.loops import loop_problems, loop_type
from relaxir.ir.module import IRModule
from relaxir.ir.parts import bodies_of, operands
from relaxir.ir.relations import Subtype, apply_signature, cast_problem, join, subtype
from relaxir.ir.retype import TypeScope, disagreement, rename_fresh
from relaxir.ir.rewrite import all_bindings
from relaxir.ir.types import TensorType, Type, describe, free_dims_of_type
from relaxir.ir.verify_calls import program_call_errors, verify_host_calls
from relaxir.support.dtypes import info
from relaxir.support.errors import InferError, RelaxirError, VerifyError, codes
from relaxir.support.spans import Span
from relaxir.sym import ConflictError, Dim, DimLike, free_dims
from relaxir.tir import Alloc, Block, PrimFunc
from relaxir.tir import Scope as BufferScope
from relaxir.tir.host import AllocFrame
from relaxir.tir.verify import verify_prim_func, violation
from relaxir.tir.visit import walk

PAGE: Final = "relaxir/ir/verify.py"
HOST_OPS: Final = frozenset({"reshape", "tensor_to_shape"})
"""Operators that stay operators until the host program is made: views, and sizes read from data."""


def verify_module(module: IRModule, level: int | None = None) -> tuple[VerifyError, ...]:
    """Every violation in a module.

    ``level`` (0 graph, 1 legal, 2 scheduled, 3 host, 4 planned) adds what that stage forbids.
    """
    errors: list[VerifyError] = []
    for name, func in module.functions.items():
        if isinstance(func, PrimFunc):
            errors.extend(verify_prim_func(name, func))
            errors.extend(verify_host_calls(module, name, func, PAGE))
        else:
            checker = _Checker(module, name, func)
            checker.run()
            errors.extend(checker.errors)
    if level is not None:
        errors.extend(_level_errors(module, level))
    return tuple(errors)


def check_module(module: IRModule, level: int | None = None) -> None:
    """Raise the first violation, with all others in its notes.

    Args:
        module: what to verify.
        level: the level it should be at, see `LEVELS`.

    Raises:
        VerifyError: when the module breaks an invariant.
    """
    errors = verify_module(module, level)
    if errors:
        first = errors[0]
        others = tuple(f"also: {e.message}" for e in errors[1:10])
        more = (f"and {len(errors) - 10} more",) if len(errors) > 10 else ()
        raise VerifyError(first.message, code=first.code, span=first.span, notes=(*first.notes, *others, *more))


# ---- levels ----------------------------------------------------------------------------------------------------------


def _operators(module: IRModule) -> Iterator[str]:
    """Operators that should be tensor programs by now."""
    for name, func in module.graph_functions().items():
        for b in all_bindings(func.body):
            if isinstance(b, Bind) and isinstance(b.value, OpCall) and b.value.op.name not in HOST_OPS:
                yield f"{name}: operator {b.value.op.name}"


def _blocks(module: IRModule) -> Iterator[str]:
    """Blocks, and temporaries of kernels that should be workspace parameters."""
    for name, func in module.prim_funcs().items():
        for s in walk(func.body):
            if isinstance(s, Block):
                yield f"{name}: block `{s.name}`"
            elif isinstance(s, Alloc) and s.buffer.scope is BufferScope.GLOBAL:
                yield f"{name}: temporary `{s.buffer.name}` inside a kernel"


def _host_programs(module: IRModule) -> Iterator[str]:
    """Host programs, which exist only late."""
    yield from (f"{name}: a host program" for name, f in module.prim_funcs().items() if f.is_host)


def _graph_functions(module: IRModule) -> Iterator[str]:
    """Graph functions, which exist only early."""
    yield from (f"{name}: a graph function" for name in module.graph_functions())


def _unplaced(module: IRModule) -> Iterator[str]:
    """Temporaries without a place in a frame."""
    for name, func in module.prim_funcs().items():
        for s in walk(func.body):
            if isinstance(s, AllocFrame) and s.offset is None:
                yield f"{name}: temporary `{s.buffer.name}` without a place"


LEVELS: Final[tuple[tuple[str, tuple[Callable[[IRModule], Iterator[str]], ...]], ...]] = (
    ("graph", (_host_programs,)),
    ("legal", (_host_programs, _operators)),
    ("scheduled", (_host_programs, _operators, _blocks)),
    ("host", (_graph_functions, _blocks)),
    ("planned", (_graph_functions, _blocks, _unplaced)),
)
"""For each level its name and what it forbids."""


def _level_errors(module: IRModule, level: int) -> Iterator[VerifyError]:
    name, predicates = LEVELS[level]
    for find in predicates:
        for what in find(module):
            yield violation(PAGE, 13, f"{what} at level {name}", "verify-level")


# ---- functions -------------------------------------------------------------------------------------------------------


class _Checker:
    def __init__(self, module: IRModule, name: str, func: Function) -> None:
        self.module = module
        self.name = name
        self.func = func
        self.errors: list[VerifyError] = []
        self.visible: dict[Var, None] = {}
        self.bound: set[Var] = set()
        self.types = TypeScope()
        self.span: Span | None = func.span

    def fail(self, invariant: int, message: str, code: str, span: Span | None = None, note: str = "") -> None:
        error = violation(PAGE, invariant, f"{self.name}: {message}", code, span=span or self.span)
        if note:
            error.notes = (*error.notes, note)
        self.errors.append(error)

    def run(self) -> None:
        func = self.func
        dims = dict.fromkeys(d for p in func.params for d in free_dims_of_type(p.type))
        dims.update(dict.fromkeys(d for r in func.where for side in (r.left, r.right) for d in free_dims(side)))
        self._one_name(dims)
        try:
            self.types = TypeScope(dims, func.where)
        except ConflictError as error:
            self.fail(12, f"where is contradictory: {error.message}", "verify")
            self.types = TypeScope(dims)
        for p in func.params:
            self._bind(p)
        self.body(func.body)
        self._result()

    def _result(self) -> None:
        given, declared = self.func.body.type, self.func.ret
        if subtype(given, declared, self.types.facts) <= Subtype.STATIC_MISMATCH:
            self.fail(11, f"the result is {describe(given)}, declared is {describe(declared)}", "verify-type")

    def _one_name(self, dims: dict[Dim, None]) -> None:
        by_name: dict[str, Dim] = {}
        for d in dims:
            if by_name.setdefault(d.name, d) != d:
                self.fail(3, f"two different symbols are named `{d.name}`", "verify-redefined")

    def _bind(self, var: Var) -> None:
        if var in self.bound:
            self.fail(3, f"`{var.name}` is bound twice", "verify-redefined")
        self.bound.add(var)
        self.visible[var] = None

    def _define(self, dims: tuple[Dim, ...]) -> None:
        for d in dims:
            if any(k.name == d.name for k in self.types.dims):
                self.fail(3, f"symbol `{d.name}` is defined twice", "verify-redefined")
        self.types.define(dims)

    def dims_of(self, expr: DimLike, where: str) -> None:
        for d in free_dims(expr):
            if d not in self.types.dims:
                self.fail(4, f"symbol `{d.name}` of {where} is not defined here", "verify-scope")

    # ---- bindings --------------------------------------------------------------------------------------------------

    def body(self, body: Body) -> None:
        for block in body.blocks:
            self._block(block)
        self.leaf(body.result, "the result")

    def _block(self, block: BindingBlock) -> None:
        before = dict(self.visible)
        for b in block.bindings:
            if isinstance(b, Check):
                self._check(b)
                continue
            self.span = getattr(b.value, "span", None) or self.func.span
            if isinstance(b, MatchCast):
                self._match_cast(b)
            else:
                self._value(b, block.dataflow)
            for d in free_dims_of_type(b.var.type):
                self.dims_of(d, f"the type of `{b.var.name}`")
            self._bind(b.var)
        if block.dataflow:
            for v in block.outputs:
                if v not in self.visible or v in before:
                    self.fail(6, f"output `{v.name}` is not bound in its dataflow block", "verify-scope")
            self.visible = {**before, **{v: None for v in block.outputs if v in self.visible}}

    def _check(self, b: Check) -> None:
        for d in (b.relation.left, b.relation.right, *b.args):
            self.dims_of(d, "a check")
        if b.message.count("{}") != len(b.args) or b.code not in codes():
            self.fail(12, f"the check of {b.relation} has a message or code that does not fit", "verify", b.span)
        self.types.learn((b.relation,))

    def _match_cast(self, b: MatchCast) -> None:
        self.leaf(b.value, f"`{b.var.name}`")
        self._define(b.defines)
        if problem := cast_problem(b.value.type, b.var.type, b.defines, self.types.facts):
            self.fail(10, f"`{b.var.name}`: {problem}", "verify-type", b.span)
        self.types.cast(b.value.type, b.var.type, b.defines)

    def _value(self, b: Bind, dataflow: bool) -> None:
        value, name = b.value, b.var.name
        impure = self._is_impure(value)
        if impure and dataflow:
            self.fail(6, f"`{name}` is an impure call inside a dataflow block", "verify-impure-in-dataflow")
        if impure and self.func.pure:
            self.fail(11, f"`{name}` is an impure call in a function declared pure", "verify")
        if dataflow and bodies_of(value):
            kind = type(value).__name__
            self.fail(6, f"`{name}` is an {kind} inside a dataflow block", "verify-impure-in-dataflow")
        calls = isinstance(value, OpCall | FuncCall | CallTIR | CallDPS)
        for operand in operands(value) if calls or bodies_of(value) else ():
            self.leaf(operand, f"`{name}`")
        if isinstance(value, If):
            self._branches(value)
        elif isinstance(value, Loop):
            self._loop(value)
        elif isinstance(value, OpCall):
            for d in attr_dims(value.attrs):
                self.dims_of(d, f"an attribute of `{name}`")
        elif isinstance(value, CallTIR):
            for message, code in program_call_errors(self.module, value, self.types.facts):
                self.fail(1 if code == "verify-name" else 8, f"`{name}`: {message}", code)
            for d in value.dims:
                self.dims_of(d, f"the call of `{value.callee}`")
        elif not isinstance(value, FuncCall | CallDPS):
            self.leaf(value, f"`{name}`")
        self._types(b)

    def _is_impure(self, value: Expr) -> bool:
        if isinstance(value, OpCall):
            return not value.op.pure
        if isinstance(value, CallDPS):
            return not value.pure
        callee = self.module.functions.get(value.callee) if isinstance(value, FuncCall) else None
        return isinstance(callee, Function) and not callee.pure

    def _branches(self, value: If) -> None:
        if value.cond.type != TensorType((), "bool"):
            self.fail(10, f"the condition of an If is {describe(value.cond.type)}, not bool[]", "verify-type")
        for branch in (value.then, value.other):
            with self._inside():
                self.body(branch)

    def _loop(self, value: Loop) -> None:
        with self._inside():
            self._define(value.dims)
            for p in value.params:
                for d in free_dims_of_type(p.type):
                    self.dims_of(d, f"the type of `{p.name}`")
                self._bind(p)
            self.body(value.body)
            for problem in loop_problems(value, self.types.facts):
                self.fail(10, problem, "verify-type")

    @contextmanager
    def _inside(self) -> Iterator[None]:
        """A body: what it binds and learns is not known after it."""
        visible, types, span = dict(self.visible), self.types, self.span
        self.types = types.branch()
        yield
        self.visible, self.types, self.span = visible, types, span

    # ---- types -----------------------------------------------------------------------------------------------------

    def _types(self, b: Bind) -> None:
        """The variable's type against the value's recorded one, and that against inference."""
        value = b.value
        ctx = self.types.ctx(value.op.name if isinstance(value, OpCall) else "value", self.span)
        inferred: Type | None = None
        try:
            if isinstance(value, OpCall):
                inferred = value.op.type_of(tuple(a.type for a in value.args), value.attrs, ctx)
            elif isinstance(value, FuncCall):
                callee = self.module.functions.get(value.callee)
                if not isinstance(callee, Function):
                    self.fail(1, f"no graph function `{value.callee}`", "verify-name")
                else:
                    inferred = apply_signature(callee.type, tuple(a.type for a in value.args), ctx).type
            elif isinstance(value, If):
                inferred = join(value.then.type, value.other.type, ctx)
            elif isinstance(value, Loop):
                inferred = loop_type(value, ctx, b.defines)
        except RelaxirError as error:
            kind = "cannot be typed" if isinstance(error, InferError) else "fails"
            self.fail(5, f"`{b.var.name}` {kind}: {error.message}", "verify-type")
        self._define(b.defines)
        if inferred is not None:
            self._agree(b.var, inferred, value.type, ctx.defined, b.defines)
            self.types.adopt(ctx, rename_fresh(inferred, value.type, ctx.defined, b.defines))
        self._agree(b.var, value.type, b.var.type)

    def _agree(
        self, var: Var, inferred: Type, written: Type, fresh: Sequence[Dim] = (), owned: Sequence[Dim] = ()
    ) -> None:
        """A written type agrees with an inferred one."""
        problem = disagreement(inferred, written, self.types.facts, fresh, owned)
        if problem is not None:
            self.fail(5, f"`{var.name}`: {problem}", "verify-type")

    def leaf(self, e: Expr, where: str) -> None:
        """An operand: its variables are visible, its constants well formed."""
        if isinstance(e, Var):
            if e not in self.visible:
                known = e in self.bound
                code = "verify-scope" if known else "verify-use-before-def"
                what = "is not visible" if known else "is used before it is bound"
                self.fail(2, f"`{e.name}` {what} in {where}", code)
                self.visible[e] = None  # one report is enough
        elif isinstance(e, TupleExpr):
            for f in e.fields:
                self.leaf(f, where)
        elif isinstance(e, TupleGetItem):
            self.leaf(e.value, where)
        elif isinstance(e, ShapeExpr):
            for d in e.dims:
                self.dims_of(d, where)
        elif isinstance(e, Constant):
            stored = info(e.type.dtype).numpy
            if e.data.shape != e.type.shape or e.data.dtype != stored or not e.data.flags.c_contiguous:
                got = f"{e.data.dtype}{list(e.data.shape)}"
                self.fail(9, f"a constant of type {describe(e.type)} in {where} holds {got}", "verify-type")
        else:
            self.fail(7, f"{type(e).__name__} stands inside {where}", "verify", note="bind it to a variable")
