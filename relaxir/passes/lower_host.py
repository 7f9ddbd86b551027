"""Turn graph functions into host programs.

Before:
    @R.function
    def main(x: R.Tensor(("n", 4), "f32")):
        lv0 = R.call_tir(Module.exp, (x,), out=R.Tensor((n, 4), "f32"), dims=(n,))
        return lv0
After:
    @T.prim_func(scope="host")
    def main(x: T.Buffer(("n", 4), "f32"), lv0: T.Buffer(("n", 4), "f32")):
        n = T.bind_dim("n", T.extent(x, 0))
        T.alloc_output(lv0, 0)
        T.call_kernel(Module.exp, (x, lv0), dims=(n,))
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from relaxir.ir.expr import (
    Bind,
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
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.numbering import ConstantNumbers
from relaxir.ir.relations import cast_values
from relaxir.ir.rewrite import function_dims
from relaxir.ir.types import ShapeType, TensorType, TupleType, Type, leaf_types, type_dims
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.passes.check_sizes import with_size_checks
from relaxir.passes.entry import EntryBinder, condition
from relaxir.passes.lower_loop import LoopLowering
from relaxir.passes.result_memory import Claim, claims_of
from relaxir.support.errors import UnsupportedError
from relaxir.support.names import UniqueNames
from relaxir.support.spans import Span
from relaxir.sym import Dim, DimLike, Facts, SymError, free_dims, fresh, substitute
from relaxir.tir import (
    Alias,
    AllocFrame,
    AllocOutput,
    Assert,
    BindDim,
    Buffer,
    CallHost,
    CallKernel,
    CallLibrary,
    ConstantData,
    Copy,
    PrimFunc,
    Scope,
    Seq,
    Stmt,
    Store,
    as_expr,
    cast,
    const,
)
from relaxir.tir import If as TIf
from relaxir.tir.func import AttrValue
from relaxir.tir.host import REUSE


def tensor_of(t: Type) -> TensorType:
    """How a value travels between host programs: shape values are int64 vectors."""
    if isinstance(t, TensorType):
        return t
    if isinstance(t, ShapeType):
        return TensorType((len(t.dims),), "int64")
    raise UnsupportedError(f"a value of type {t} cannot cross a function boundary", code="lower-unsupported")


class _Lowering:
    """Builds the host program of one function."""

    def __init__(self, name: str, func: Function, programs: Mapping[str, PrimFunc], constants: ConstantNumbers) -> None:
        self.name = name
        self.func = func
        self.programs = programs
        self.constants = constants
        self.buffers: dict[Expr, tuple[Buffer, ...]] = {}
        self.bound: set[Dim] = set()
        self.loaded: dict[int, Buffer] = {}
        self.preamble: list[Stmt] = []
        self.names = UniqueNames()
        self.entry: set[Dim] = set()  # symbols known before the first statement of the body
        self.depth = 0  # bodies around the statement being lowered
        self.symbols = {d.name for d in function_dims(func)}
        self.rooms = 0
        self.claims: dict[Var, tuple[Claim | None, ...]] = {}

    # ---- the whole function ----------------------------------------------------------------------------------------

    def lower(self) -> PrimFunc:
        """The host program."""
        params = [item for p in self.func.params for item in self.parameter(p)]
        tensors = [(b, tensor_of(t)) for b, t in params]
        self.enter(tensors, [(b, t) for b, t in params if isinstance(t, ShapeType)])
        self.claims = claims_of(self.func.body, self.bound)
        outputs: dict[int, Buffer] = {}
        stmts = list(self.body(self.func.body, outputs))
        results = leaf_types(self.func.ret)
        for index, (leaf, wanted) in enumerate(zip(self.flat(self.func.body.result, stmts), results, strict=True)):
            if index not in outputs:
                target = self.buffer(f"out{index}", TensorType(leaf.shape, tensor_of(wanted).dtype))
                stmts += [AllocOutput(target, index), Copy(target, leaf)]
                outputs[index] = target
        body = Seq((*self.preamble, *stmts))
        everything = (*(b for b, _ in tensors), *(outputs[i] for i in range(len(results))))
        reuse = self.func.attrs.get(REUSE)
        attrs: dict[str, AttrValue] = {"scope": "host"}
        if isinstance(reuse, tuple):
            attrs[REUSE] = tuple(map(str, reuse))
        program = PrimFunc(everything, body, (), len(results), 0, MappingProxyType(attrs), self.func.span)
        return with_size_checks(self.name, program, self.programs)

    def parameter(self, p: Var) -> Iterator[tuple[Buffer, Type]]:
        """The buffers of a parameter, tuples flattened, and what each holds."""
        leaves = leaf_types(p.type)
        names = [p.name] if len(leaves) == 1 else [f"{p.name}_{i}" for i in range(len(leaves))]
        self.buffers[p] = tuple(self.buffer(n, tensor_of(t)) for n, t in zip(names, leaves, strict=True))
        yield from zip(self.buffers[p], leaves, strict=True)

    def enter(self, params: list[tuple[Buffer, TensorType]], shapes: list[tuple[Buffer, ShapeType]]) -> None:
        """Bind the symbols of the parameters, those of shape values from their elements, and check what is declared."""
        binder = EntryBinder(self.name, self.func.span)
        for b, t in shapes:
            for i, d in enumerate(t.dims):
                if isinstance(d, Dim) and d not in binder.known:
                    binder.known[d] = f"argument `{b.name}`, element {i}"
                    self.preamble.append(BindDim(d, b[i]))
        self.preamble.extend(binder.bind(params, self.func.where))
        self.bound.update(binder.known)
        self.entry.update(binder.known)

    # ---- bindings --------------------------------------------------------------------------------------------------

    def body(self, body: Body, outputs: dict[int, Buffer] | None = None) -> Iterator[Stmt]:
        """Statements of a body's bindings."""
        for b in body.bindings:
            if isinstance(b, Check):
                args = tuple(as_expr(a) for a in b.args)[:4]
                yield Assert(condition(b.relation), b.code, b.message, args, b.span)
            elif isinstance(b, MatchCast):
                yield from self.match_cast(b)
            else:
                yield from self.bind(b, outputs if outputs is not None else {})

    def match_cast(self, b: MatchCast) -> Iterator[Stmt]:
        """Define symbols, then see the same memory at the new type."""
        for symbol, value in cast_values(b.value.type, b.var.type, b.defines, Facts()).items():
            if symbol not in self.bound:
                defined = self.define(symbol, value, b.span)
                if self.depth == 0 and self.entry.issuperset(free_dims(value)):
                    self.preamble.extend(defined)  # known at entry: one frame for everything sized by it
                    self.entry.add(symbol)
                else:
                    yield from defined
                self.bound.add(symbol)
        if isinstance(b.var.type, ShapeType):
            return  # its dims say it all
        stmts: list[Stmt] = []
        source = self.flat(b.value, stmts)
        yield from stmts
        yield from self.view(b.var, source)

    @staticmethod
    def define(symbol: Dim, value: DimLike, span: Span | None) -> tuple[Stmt, ...]:
        """A symbol from a dimension expression, checked against its range."""
        size = as_expr(symbol)
        text = f"{symbol.name} is {{}}, but must be at least {symbol.min}"
        return BindDim(symbol, as_expr(value), span), Assert(size >= symbol.min, "runtime-shape", text, (size,), span)

    def view(self, var: Var, source: tuple[Buffer, ...]) -> Iterator[Stmt]:
        """Name memory under a variable, as an alias where the shape is written differently."""
        made: list[Buffer] = []
        for i, (b, t) in enumerate(zip(source, map(tensor_of, leaf_types(var.type)), strict=True)):
            if b.shape == t.shape:
                made.append(b)
                continue
            alias = self.buffer(var.name if len(source) == 1 else f"{var.name}_{i}", t, Scope.FRAME)
            yield Alias(alias, b)
            made.append(alias)
        self.buffers[var] = tuple(made)

    def bind(self, b: Bind, outputs: dict[int, Buffer]) -> Iterator[Stmt]:
        """Statements of one binding."""
        value = b.value
        if isinstance(value, OpCall) and value.op.name == "tensor_to_shape":
            yield from self.read_shape(b, value)
        elif isinstance(value, OpCall) and value.op.name == "reshape":
            stmts: list[Stmt] = []
            source = self.flat(value.args[0], stmts)
            yield from stmts
            yield from self.view(b.var, source)
        elif isinstance(value, OpCall):
            raise UnsupportedError(
                f"{value.op.name} reached the host program", code="lower-unsupported", span=value.span
            )
        elif isinstance(value, CallTIR | CallDPS | FuncCall):
            yield from self.call(b, value, outputs)
        elif isinstance(value, If):
            yield from self.branch(b, value)
        elif isinstance(value, Loop):
            yield from LoopLowering(self, b, value).lower()
        elif isinstance(value, ShapeExpr):
            self.buffers[b.var] = ()
        else:
            found: list[Stmt] = []
            self.buffers[b.var] = self.flat(value, found)
            yield from found

    def read_shape(self, b: Bind, call: OpCall) -> Iterator[Stmt]:
        """Dimensions from the values of a tensor."""
        stmts: list[Stmt] = []
        (source,) = self.flat(call.args[0], stmts)
        yield from stmts
        binder = EntryBinder(call.op.name, call.span)
        for i, d in enumerate(type_dims(b.var.type)):
            if isinstance(d, Dim) and d in b.defines:
                yield BindDim(d, cast(source[i] if source.shape else source[()], "int64"), call.span)
                yield from binder.ranges(d, f"element {i} of `{source.name}`")
                self.bound.add(d)
        self.buffers[b.var] = ()

    def call(self, b: Bind, value: CallTIR | CallDPS | FuncCall, outputs: dict[int, Buffer]) -> Iterator[Stmt]:
        """Place the results, then call."""
        stmts: list[Stmt] = []
        tensors = (a for a in value.args if not (isinstance(value, CallTIR) and isinstance(a.type, ShapeType)))
        args = tuple(buf for a in tensors for buf in self.flat(a, stmts))
        yield from stmts
        types = tuple(map(tensor_of, leaf_types(b.var.type)))
        if b.defines:
            raise UnsupportedError(
                f"`{b.var.name}`: the size of a call's result is known only inside the call",
                code="lower-unsupported",
                span=value.span,
                help="compute the size first and read it with tensor_to_shape",
            )
        claims = self.claims.get(b.var, (None,) * len(types))
        outs: list[Buffer] = []
        for i, (t, claim) in enumerate(zip(types, claims, strict=True)):
            name = b.var.name if len(types) == 1 else f"{b.var.name}_{i}"
            if claim is None:
                out = self.buffer(name, t, Scope.FRAME)
                yield AllocFrame(out)
            else:
                out = outputs[claim.index] = self.buffer(name, claim.type)
                yield AllocOutput(out, claim.index)
                if claim.type != t:
                    out = self.buffer(name, t, Scope.FRAME)
                    yield Alias(out, outputs[claim.index])
            outs.append(out)
        self.buffers[b.var] = tuple(outs)
        if isinstance(value, CallTIR):
            yield from self.kernel(value, (*args, *outs))
        elif isinstance(value, CallDPS):
            yield CallLibrary(value.symbol, (*args, *outs), value.span)
        else:
            yield CallHost(value.callee, args, tuple(outs), value.span)

    def kernel(self, call: CallTIR, args: tuple[Buffer, ...]) -> Iterator[Stmt]:
        """A kernel call with its scratch memory."""
        program = self.programs[call.callee]
        values: dict[Dim, DimLike] = dict(zip(program.dims, call.dims, strict=True))
        scratch: list[Buffer] = []
        for w in program.scratch:
            try:
                kind = TensorType(tuple(substitute(d, values) for d in w.shape), w.dtype)
            except SymError as error:
                raise SymError(f"workspace of `{call.callee}`: {error.message}", span=call.span) from error
            scratch.append(self.buffer(w.name, kind, Scope.FRAME))
            yield AllocFrame(scratch[-1])
        yield CallKernel(call.callee, (*args, *scratch), call.dims, call.span)

    def branch(self, b: Bind, value: If) -> Iterator[Stmt]:
        """Both branches write, or name, the same result buffers."""
        stmts: list[Stmt] = []
        (cond,) = self.flat(value.cond, stmts)
        yield from stmts
        types = tuple(map(tensor_of, leaf_types(b.var.type)))
        known = tuple(all(s in self.bound for d in t.shape for s in free_dims(d)) for t in types)
        results = tuple(self.buffer(f"{b.var.name}_{i}", t, Scope.FRAME) for i, t in enumerate(types))
        for r, k in zip(results, known, strict=True):
            if k:
                yield AllocFrame(r)
        arms = tuple(Seq(tuple(self.arm(body, b, results, known))) for body in (value.then, value.other))
        self.bound.update(b.defines)
        self.buffers[b.var] = results
        yield TIf(cond[()], arms[0], arms[1])

    def arm(self, body: Body, b: Bind, results: tuple[Buffer, ...], known: tuple[bool, ...]) -> Iterator[Stmt]:
        """One branch: its bindings, the joined symbols, the results."""
        outer, bound = dict(self.buffers), set(self.bound)
        self.depth += 1
        yield from self.body(body)
        self.depth -= 1
        for actual, joined in zip(type_dims(body.type), type_dims(b.var.type), strict=True):
            if isinstance(joined, Dim) and joined in b.defines:
                yield BindDim(joined, as_expr(actual))
        stmts: list[Stmt] = []
        leaves = self.flat(body.result, stmts)
        yield from stmts
        for r, k, leaf in zip(results, known, leaves, strict=True):
            yield Copy(r, leaf) if k else Alias(r, leaf)
        self.buffers, self.bound = outer, bound

    # ---- values ----------------------------------------------------------------------------------------------------

    def flat(self, expr: Expr, stmts: list[Stmt]) -> tuple[Buffer, ...]:
        """Buffers of a value, tuples flattened; constants are named on first use."""
        if isinstance(expr, Var):
            if isinstance(expr.type, ShapeType):  # a variable of dimensions has no memory of its own
                return (self.shape_value(ShapeExpr(expr.type.dims), stmts),)
            return self.buffers[expr]
        if isinstance(expr, TupleExpr):
            return tuple(b for f in expr.fields for b in self.flat(f, stmts))
        if isinstance(expr, TupleGetItem):
            parts = self.flat(expr.value, stmts)
            assert isinstance(expr.value.type, TupleType)
            start = sum(len(leaf_types(f)) for f in expr.value.type.fields[: expr.index])
            return parts[start : start + len(leaf_types(expr.type))]
        if isinstance(expr, Constant):
            return (self.constant(expr),)
        if isinstance(expr, ShapeExpr):
            return (self.shape_value(expr, stmts),)
        raise UnsupportedError(f"{type(expr).__name__} is not a value of a host program", code="lower-unsupported")

    def constant(self, c: Constant) -> Buffer:
        """The buffer of a constant; all are named before the first statement."""
        number = self.constants(c)
        if number not in self.loaded:
            buffer = self.buffer(f"w{number}", c.type)
            self.loaded[number] = buffer
            self.preamble.append(ConstantData(buffer, number))
        return self.loaded[number]

    def shape_value(self, expr: ShapeExpr, stmts: list[Stmt]) -> Buffer:
        """A shape value in memory, as an int64 vector."""
        buffer = self.buffer("shape", tensor_of(expr.type), Scope.FRAME)
        stmts.append(AllocFrame(buffer))
        stmts.extend(_store(buffer, i, d) for i, d in enumerate(expr.dims))
        return buffer

    def new_room(self) -> int:
        """A room of a new number."""
        self.rooms += 1
        return self.rooms - 1

    def new_dim(self, name: str) -> Dim:
        """A symbol of a new name."""
        symbol = fresh(name, self.symbols)
        self.symbols.add(symbol.name)
        return symbol

    def buffer(self, name: str, t: TensorType, scope: Scope = Scope.GLOBAL) -> Buffer:
        """A buffer with a name unique in the program."""
        return Buffer(self.names.add(name), t.shape, t.dtype, scope)


def _store(buffer: Buffer, index: int, value: DimLike) -> Stmt:
    return Store(buffer, (const(index),), as_expr(value))


@dataclass(frozen=True)
class LowerHost(Pass):
    """Every graph function becomes a host program; constants move to the module's table."""

    name: ClassVar[str] = "LowerHost"
    requires: ClassVar[Level] = Level.SCHEDULED
    ensures: ClassVar[Level | None] = Level.HOST

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Lower each function; the table stands in the module's attribute ``constants``."""
        constants = ConstantNumbers()
        programs = module.prim_funcs()
        changed: dict[str, AnyFunc | None] = {
            name: _Lowering(name, func, programs, constants).lower() for name, func in module.graph_functions().items()
        }
        entries = tuple(module.graph_functions())
        attrs = {**module.attrs, "constants": tuple(constants.items), "entries": entries}
        return replace(module.with_functions(changed), attrs=MappingProxyType(attrs))
