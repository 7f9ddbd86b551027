"""Merge the programs of a primitive function into one, inlining what is computed point by point.

Before:
    def fused_exp_add(a0, a1, sizes):          # primitive=True
        lv0 = R.call_tir(Module.exp, (a0,), ...)
        lv1 = R.call_tir(Module.add, (lv0, a1), ...)
        return lv1
After:
    @T.prim_func
    def fused_exp_add(a0, a1, lv1):
        with T.block("add", i0=n, i1=4):
            lv1[i0, i1] = T.exp(a0[i0, i1]) + a1[i0, i1]
"""

from __future__ import annotations

from collections.abc import Sequence, Set
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar, Final

from relaxir.cost import operations
from relaxir.ir.expr import Bind, CallTIR, Expr, FuncCall, Function, Var
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.rewrite import Rewriter, called_programs
from relaxir.ir.types import TensorType, TupleType
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.sym import substitute
from relaxir.tir import Alloc, AxisKind, Block, Buffer, Call, Const, Load, PrimFunc, Seq, Stmt, Store
from relaxir.tir import Expr as TExpr
from relaxir.tir.classify import match_contraction
from relaxir.tir.expr import CHEAP_INTRINSICS
from relaxir.tir.printer import prim_func_text
from relaxir.tir.visit import all_exprs, free_dims_of, map_stmt, stores_of, substitute_vars, walk, walk_expr


def merge(func: Function, programs: dict[str, PrimFunc]) -> PrimFunc:
    """One program for a primitive function."""
    buffers: dict[Expr, Buffer] = {p: _buffer(p) for p in func.params if isinstance(p.type, TensorType)}
    inputs = tuple(buffers.values())
    stmts: list[Stmt] = []
    temps: list[Buffer] = []
    outputs: tuple[Buffer, ...] = ()
    names: list[str] = []
    for binding in func.body.bindings:
        assert isinstance(binding, Bind) and isinstance(binding.value, CallTIR)
        program = programs[binding.value.callee]
        final = binding.var is func.body.result
        outs = _results(binding.var, "out" if final else f"t{len(temps)}")
        if final:
            outputs = outs
        else:
            temps.extend(outs)
            buffers[binding.var] = outs[0]
        args = tuple(buffers[a] for a in binding.value.args if isinstance(a.type, TensorType))
        body, own = _instantiate(program, binding.value, (*args, *outs))
        stmts.extend(body)
        temps.extend(own)
        names.append(str(program.attrs.get("op", binding.value.callee)))
    stmts, temps = inline(stmts, temps)
    body_stmt: Stmt = stmts[0] if len(stmts) == 1 else Seq(tuple(stmts))
    for t in reversed(temps):
        body_stmt = Alloc(t, body_stmt)
    params = inputs + outputs
    dims = free_dims_of(params, body_stmt)
    attrs = MappingProxyType({"op": "_".join(names)})
    return PrimFunc(params, body_stmt, dims, len(outputs), 0, attrs, func.span)


def _buffer(var: Var) -> Buffer:
    assert isinstance(var.type, TensorType)
    return Buffer(var.name, var.type.shape, var.type.dtype)


def _results(var: Var, stem: str) -> tuple[Buffer, ...]:
    """Buffers of a result; names do not depend on the caller, so that equal programs have equal texts."""
    if isinstance(var.type, TupleType):
        fields = tuple(Var(f"{stem}_{i}", f) for i, f in enumerate(var.type.fields))
        return tuple(_buffer(f) for f in fields)
    return (_buffer(Var(stem, var.type)),)


def _instantiate(program: PrimFunc, call: CallTIR, args: tuple[Buffer, ...]) -> tuple[list[Stmt], list[Buffer]]:
    """A program's statements over the caller's buffers and dims; its own temporaries apart."""
    values = dict(zip(program.dims, call.dims, strict=True))
    known: dict[Buffer, Buffer] = dict(zip(program.params, args, strict=True))

    def buffer(b: Buffer) -> Buffer:
        if b not in known:
            known[b] = replace(b, shape=tuple(substitute(d, values) for d in b.shape))
        return known[b]

    body = map_stmt(program.body, on_buffer=buffer, on_dim=lambda d: substitute(d, values))
    temps: list[Buffer] = []
    while isinstance(body, Alloc):
        temps.append(body.buffer)
        body = body.body
    return list(body.stmts) if isinstance(body, Seq) else [body], temps


LONG: Final = 12
"""Operations that are kept in memory rather than done again by another stage."""


def inline(stmts: list[Stmt], temps: list[Buffer]) -> tuple[list[Stmt], list[Buffer]]:
    """Replace loads of temporaries by the expression that computes the element, where that repeats no costly work."""
    position = 0
    finished = _summed(stmts)
    while position < len(stmts):
        producer, later = stmts[position], stmts[position + 1 :]
        target = definition(producer)
        if target is not None and _finishes(producer, target, finished) and _readers(target, later) > 1:
            finished.add(target.buffer)
        elif target is not None and target.buffer in temps and _pays(target, later) and _only_store(target, stmts):
            stmts = stmts[:position] + [_substitute(s, target) for s in later]
            temps = [t for t in temps if t is not target.buffer]
            continue
        position += 1
    return stmts, temps


def definition(stmt: Stmt) -> Store | None:
    """The store of a stage that defines each element of a buffer by one expression, else None."""
    if not isinstance(stmt, Block) or stmt.init is not None or not isinstance(stmt.body, Store):
        return None
    point = tuple(a.var for a in stmt.axes)
    plain = stmt.body.combine is None and stmt.body.indices == point
    whole = tuple(a.extent for a in stmt.axes) == stmt.body.buffer.shape
    return stmt.body if plain and whole and all(a.kind is AxisKind.SPATIAL for a in stmt.axes) else None


def _summed(stmts: Sequence[Stmt]) -> set[Buffer]:
    """What the only contraction stores; nothing where there are several, which are scheduled by the form they have."""
    found = [c.store.buffer for s in stmts if isinstance(s, Block) and (c := match_contraction(s)) is not None]
    return set(found) if len(found) == 1 else set()


def _finishes(producer: Stmt, target: Store, finished: Set[Buffer]) -> bool:
    """Whether a stage continues the elements of a contraction: it is computed as they are finished, in registers."""
    own = [e for e in walk_expr(target.value) if isinstance(e, Load) and e.buffer in finished]
    return bool(own) and all(_own_point(producer, e) for e in own)


def _readers(target: Store, later: Sequence[Stmt]) -> int:
    return sum(any(isinstance(e, Load) and e.buffer is target.buffer for e in all_exprs(s)) for s in later)


def _only_store(target: Store, stmts: Sequence[Stmt]) -> bool:
    """Whether nothing else stores into the buffer."""
    return sum(store.buffer is target.buffer for s in stmts for store in stores_of(s)) == 1


def _pays(target: Store, later: Sequence[Stmt]) -> bool:
    """Whether computing an element where it is read costs less than keeping it in memory."""
    loads = [(s, e) for s in later for e in all_exprs(s) if isinstance(e, Load) and e.buffer is target.buffer]
    costly = any(isinstance(e, Call) and e.fn not in CHEAP_INTRINSICS for e in walk_expr(target.value))
    several = len({id(s) for s, _ in loads}) > 1
    if several:
        return not costly and operations(target.value) <= LONG
    return not costly or all(_own_point(s, e) for s, e in loads)


def _own_point(stmt: Stmt, load: Load) -> bool:
    """Whether a stage evaluates a load once per element of the loaded buffer."""
    blocks = [s for s in walk(stmt) if isinstance(s, Block)]
    at = [i for i in load.indices if not isinstance(i, Const)]
    return len(blocks) == 1 and [a.var for a in blocks[0].axes if a.extent != 1] == at


def _substitute(stmt: Stmt, target: Store) -> Stmt:
    axes = target.indices

    def swap(e: TExpr) -> TExpr:
        if isinstance(e, Load) and e.buffer is target.buffer:
            return substitute_vars(target.value, dict(zip(axes, e.indices, strict=True)))  # type: ignore[arg-type]  # axes are variables
        return e

    return map_stmt(stmt, on_expr=swap)


class _Replacer(Rewriter):
    """Turns calls of primitive functions into call_tir."""

    def __init__(self, made: dict[str, tuple[str, PrimFunc]]) -> None:
        super().__init__()
        self.made = made

    def expr(self, expr: Expr) -> Expr:
        out = super().expr(expr)
        if isinstance(out, FuncCall) and out.callee in self.made:
            name, program = self.made[out.callee]
            args = tuple(a for a in out.args if isinstance(a.type, TensorType))
            return CallTIR(name, args, program.dims, out.type, out.span)
        return out


@dataclass(frozen=True)
class FuseTIR(Pass):
    """Make each primitive function one tensor program; equal programs are kept once, unused ones dropped."""

    name: ClassVar[str] = "FuseTIR"
    requires: ClassVar[Level] = Level.LEGAL

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Merge, share, replace calls, drop what is no longer called."""
        programs = module.prim_funcs()
        made: dict[str, tuple[str, PrimFunc]] = {}
        by_text: dict[str, tuple[str, PrimFunc]] = {}
        for name, func in module.graph_functions().items():
            if func.attrs.get("primitive"):
                program = merge(func, programs)
                made[name] = by_text.setdefault(prim_func_text("_", program), (name, program))
        rewriter = _Replacer(made)
        graph = {n: rewriter.function(f) for n, f in module.graph_functions().items() if n not in made}
        changes: dict[str, AnyFunc | None] = dict.fromkeys(made)
        changes.update(dict(made.values()))
        out = module.with_functions({**graph, **changes})
        return drop_unused(out)


def drop_unused(module: IRModule) -> IRModule:
    """Remove tensor programs that no function calls (those written by hand and never called included)."""
    called = {e.callee for f in module.graph_functions().values() for e in called_programs(f)}
    unused: dict[str, AnyFunc | None] = {
        n: None for n, f in module.prim_funcs().items() if n not in called and not f.is_host and "public" not in f.attrs
    }
    return module.with_functions(unused) if unused and called else module
