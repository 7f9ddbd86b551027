"""Opening a block-form program for scheduling and closing it again.

Opening lists the stages and temporaries and drops axes and buffer dimensions of extent 1. Closing turns temporaries
that still need memory into workspace parameters. Parameters may leave with another shape than they came with: same
bytes, same order, so the calling convention is unaffected.

"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from relaxir.tir import (
    Alloc,
    AxisKind,
    Block,
    Buffer,
    Expr,
    Load,
    Prefetch,
    PrimFunc,
    Scope,
    Seq,
    Stmt,
    Store,
    const,
)
from relaxir.tir.classify import stages
from relaxir.tir.visit import all_exprs, buffers_of, free_dims_of, map_stmt, substitute_vars, walk

Reindex = Callable[[tuple[Expr, ...]], tuple[Expr, ...]]
"""The indices of an access, from those it had."""


@dataclass(frozen=True, slots=True)
class Program:
    """A program under scheduling: ``params`` and ``temps`` are its memory, ``stages`` run in order."""

    func: PrimFunc
    params: tuple[Buffer, ...]
    temps: tuple[Buffer, ...]
    stages: tuple[Stmt, ...]


def open_program(func: PrimFunc) -> Program:
    """List stages and temporaries, without axes and dimensions of extent 1."""
    temps = tuple(dict.fromkeys(_temps(func.body)))
    program = Program(func, func.params, temps, tuple(_without_unit_axes(s) for s in stages(func.body)))
    return _without_unit_dims(program)


def _temps(stmt: Stmt) -> tuple[Buffer, ...]:
    if isinstance(stmt, Alloc):
        return (stmt.buffer, *_temps(stmt.body))
    if isinstance(stmt, Seq):
        return tuple(b for s in stmt.stmts for b in _temps(s))
    return ()


def close_program(program: Program, body: Stmt) -> PrimFunc:
    """Return the scheduled program; temporaries still used become trailing workspace parameters.

    A temporary that a rule replaced by a private buffer is no longer used and disappears.
    """
    used = set(buffers_of(body))
    scratch = tuple(b for b in program.temps if b in used)
    func = program.func
    params = (*program.params, *scratch)
    known = dict.fromkeys(func.dims)
    dims = (*func.dims, *(d for d in free_dims_of(params, body) if d not in known))
    return replace(func, params=params, body=body, dims=dims, workspaces=func.workspaces + len(scratch))


def lift_allocs(func: PrimFunc) -> PrimFunc:
    """Turn every remaining `Alloc` of scope GLOBAL into a trailing workspace parameter.

    before: ``alloc t: [n] {...}``; after: the body alone, with ``t`` as last parameter.
    """
    lifted: dict[Buffer, None] = {}

    def drop(s: Stmt) -> Stmt:
        if isinstance(s, Alloc) and s.buffer.scope is Scope.GLOBAL:
            lifted.setdefault(s.buffer)
            return s.body
        return s

    body = map_stmt(func.body, on_stmt=drop)
    return (
        replace(func, params=(*func.params, *lifted), body=body, workspaces=func.workspaces + len(lifted))
        if lifted
        else func
    )


def _without_unit_axes(stmt: Stmt) -> Stmt:
    if not isinstance(stmt, Block):
        return stmt
    unit = {a.var: const(0) for a in stmt.axes if a.extent == 1}
    if not unit:
        return stmt
    reduced = [a for a in stmt.axes if a.kind is AxisKind.REDUCE]
    if reduced and all(a.extent == 1 for a in reduced):
        unit.pop(reduced[-1].var)  # keep one reduce axis: init and combine stay meaningful
    axes = tuple(a for a in stmt.axes if a.var not in unit)
    init = None if stmt.init is None else substitute_vars(stmt.init, unit)
    return replace(stmt, axes=axes, body=substitute_vars(stmt.body, unit), init=init)


def picking(kept: Sequence[int]) -> Reindex:
    """The indices at some positions."""
    return lambda old: tuple(old[i] for i in kept)


def reindex(stmt: Stmt, buffers: Mapping[Buffer, Buffer], indices: Mapping[Buffer, Reindex]) -> Stmt:
    """Replace buffers and rewrite the indices of every access to them."""

    def expr(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer in buffers:
            return replace(e, buffer=buffers[e.buffer], indices=indices[e.buffer](e.indices))
        return e

    def access(s: Stmt) -> Stmt:
        if isinstance(s, Store | Prefetch) and s.buffer in buffers:
            return replace(s, buffer=buffers[s.buffer], indices=indices[s.buffer](s.indices))
        return s

    return map_stmt(stmt, on_expr=expr, on_stmt=access)


def reshape_program(program: Program, buffers: Mapping[Buffer, Buffer], indices: Mapping[Buffer, Reindex]) -> Program:
    """Give buffers another shape throughout a program."""
    return replace(
        program,
        params=tuple(buffers.get(b, b) for b in program.params),
        temps=tuple(buffers.get(b, b) for b in program.temps),
        stages=tuple(reindex(s, buffers, indices) for s in program.stages),
    )


def _without_unit_dims(program: Program) -> Program:
    buffers: dict[Buffer, Buffer] = {}
    indices: dict[Buffer, Reindex] = {}
    for b in (*program.params, *program.temps):
        kept = tuple(i for i, d in enumerate(b.shape) if d != 1)
        if len(kept) != len(b.shape):
            buffers[b] = replace(b, shape=tuple(b.shape[i] for i in kept))
            indices[b] = picking(kept)
    return reshape_program(program, buffers, indices) if buffers else program


def accesses_of(stmt: Stmt) -> tuple[Load | Store | Prefetch, ...]:
    """Every access below a statement."""
    stores = tuple(s for s in walk(stmt) if isinstance(s, Store | Prefetch))
    return stores + tuple(e for e in all_exprs(stmt) if isinstance(e, Load))
