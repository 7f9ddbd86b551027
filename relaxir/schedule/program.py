"""Opening a block-form program for scheduling and closing it again.

Opening lists the stages and temporaries, drops axes and buffer dimensions of extent 1, and merges neighbouring axes
that every access walks as one. Closing turns temporaries that still need memory into workspace parameters. Parameters
may leave with another shape than they came with: same bytes, same order, so the calling convention is unaffected.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace

from relaxir.sym import mul
from relaxir.tir import (
    Alloc,
    Axis,
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
    Var,
    const,
)
from relaxir.tir.classify import stages
from relaxir.tir.visit import all_exprs, buffers_of, free_dims_of, map_stmt, substitute_vars, walk

Reindex = Callable[[tuple[Expr, ...]], tuple[Expr, ...]]


@dataclass(frozen=True, slots=True)
class Program:
    """A program under scheduling: ``params`` and ``temps`` are its memory, ``stages`` run in order."""

    func: PrimFunc
    params: tuple[Buffer, ...]
    temps: tuple[Buffer, ...]
    stages: tuple[Stmt, ...]


def open_program(func: PrimFunc) -> Program:
    """List stages and temporaries, without unit axes and with contiguous axes merged."""
    temps = tuple(dict.fromkeys(_temps(func.body)))
    program = Program(func, func.params, temps, tuple(_without_unit_axes(s) for s in stages(func.body)))
    return merge_axes(_without_unit_dims(program))


def _temps(stmt: Stmt) -> tuple[Buffer, ...]:
    if isinstance(stmt, Alloc):
        return (stmt.buffer, *_temps(stmt.body))
    if isinstance(stmt, Seq):
        return tuple(b for s in stmt.stmts for b in _temps(s))
    return ()


def close_program(program: Program, body: Stmt) -> PrimFunc:
    """The scheduled program; temporaries still used become trailing workspace parameters, those kept inside stay.

    A temporary whose size is constant and whose scope a rule already made private has no entry in ``program.temps``.
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
    inner = substitute_vars(replace(stmt, axes=()), unit)
    return replace(inner, axes=tuple(a for a in stmt.axes if a.var not in unit))


def reindex(stmt: Stmt, buffers: Mapping[Buffer, Buffer], indices: Mapping[Buffer, Reindex]) -> Stmt:
    """Replace buffers and rewrite the indices of every access to them."""

    def expr(e: Expr) -> Expr:
        if isinstance(e, Load) and e.buffer in buffers:
            return Load(buffers[e.buffer], indices[e.buffer](e.indices))
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
            indices[b] = lambda old, kept=kept: tuple(old[i] for i in kept)  # type: ignore[misc]  # bound per buffer
    return reshape_program(program, buffers, indices) if buffers else program


Pair = tuple[object, int]  # a block or a buffer, and the position of the first of two neighbours


class _Groups:
    """Neighbour pairs that can only be merged together, and whether a group may be."""

    def __init__(self) -> None:
        self._parent: dict[Pair, Pair] = {}
        self._bad: set[Pair] = set()

    def find(self, x: Pair) -> Pair:
        """Representative of the group of ``x``."""
        while self._parent.get(x, x) != x:
            x = self._parent[x]
        return x

    def join(self, x: Pair, y: Pair) -> None:
        """Merge ``x`` only if ``y`` is merged, and the other way round."""
        a, b = self.find(x), self.find(y)
        self._parent.setdefault(x, x)
        self._parent.setdefault(y, y)
        if a != b:
            self._parent[a] = b
            if a in self._bad:
                self._bad.add(b)

    def forbid(self, x: Pair) -> None:
        """Never merge ``x``."""
        self._parent.setdefault(x, x)
        self._bad.add(self.find(x))

    def merged(self, x: Pair) -> bool:
        """Whether ``x`` is to be merged."""
        return x in self._parent and self.find(x) not in self._bad


def accesses_of(stmt: Stmt) -> tuple[Load | Store | Prefetch, ...]:
    """Every access below a statement."""
    stores = tuple(s for s in walk(stmt) if isinstance(s, Store | Prefetch))
    return stores + tuple(e for e in all_exprs(stmt) if isinstance(e, Load))


def _constrain(groups: _Groups, block: Block, private: frozenset[Buffer]) -> None:
    accesses = accesses_of(block)
    position = {a.var: n for n, a in enumerate(block.axes)}
    direct: dict[Var, int] = {}
    for access in accesses:
        for index in access.indices:
            if isinstance(index, Var):
                direct[index] = direct.get(index, 0) + 1
    total: dict[Var, int] = {}
    for e in all_exprs(block):
        if isinstance(e, Var):
            total[e] = total.get(e, 0) + 1
    for n, (a, b) in enumerate(zip(block.axes, block.axes[1:], strict=False)):
        clean = all(total.get(x.var, 0) == direct.get(x.var, 0) for x in (a, b))
        if a.kind is not b.kind or not clean:
            groups.forbid((block, n))
        for access in accesses:
            at = (
                {i for i, x in enumerate(access.indices) if x is a.var},
                {i for i, x in enumerate(access.indices) if x is b.var},
            )
            together = {i + 1 for i in at[0]} == at[1]
            if not together or (at[0] and access.buffer in private):
                groups.forbid((block, n))
    for access in accesses:
        for d in range(len(access.indices) - 1):
            x, y = access.indices[d], access.indices[d + 1]
            tied = isinstance(x, Var) and isinstance(y, Var) and x in position and position.get(y) == position[x] + 1
            if tied and access.buffer.shape[d + 1] == block.axes[position[x] + 1].extent:  # type: ignore[index]  # tied: a Var
                groups.join((access.buffer, d), (block, position[x]))  # type: ignore[index]
            else:
                groups.forbid((access.buffer, d))
                if tied:
                    groups.forbid((block, position[x]))  # type: ignore[index]


def _runs(owner: object, count: int, groups: _Groups) -> tuple[tuple[int, ...], ...]:
    runs: list[tuple[int, ...]] = []
    for n in range(count):
        if n and groups.merged((owner, n - 1)):
            runs[-1] = (*runs[-1], n)
        else:
            runs.append((n,))
    return tuple(runs)


def merge_axes(program: Program) -> Program:
    """Merge neighbouring axes that every access of the program walks as one contiguous run.

    before: ``block (i < n, j < 4): y[i, j] = x[i, j] + 1``; after: ``block (i < n * 4): y[i] = x[i] + 1``
    """
    groups = _Groups()
    memory = (*program.params, *program.temps)
    for s in program.stages:
        if isinstance(s, Block):
            _constrain(groups, s, frozenset(b for b in buffers_of(s) if b not in memory))
        else:
            for b in buffers_of(s):
                for d in range(len(b.shape) - 1):
                    groups.forbid((b, d))
    buffers: dict[Buffer, Buffer] = {}
    indices: dict[Buffer, Reindex] = {}
    for b in memory:
        runs = _runs(b, len(b.shape), groups)
        if len(runs) != len(b.shape):
            shape = []
            for run in runs:
                extent = b.shape[run[0]]
                for d in run[1:]:
                    extent = mul(extent, b.shape[d])
                shape.append(extent)
            buffers[b] = replace(b, shape=tuple(shape))
            indices[b] = lambda old, runs=runs: tuple(old[r[0]] for r in runs)  # type: ignore[misc]  # bound per buffer
    if not buffers:
        return program
    changed = tuple(_merge_block(s, groups) if isinstance(s, Block) else s for s in program.stages)
    return reshape_program(replace(program, stages=changed), buffers, indices)


def _merge_block(block: Block, groups: _Groups) -> Block:
    axes: list[Axis] = []
    for run in _runs(block, len(block.axes), groups):
        extent = block.axes[run[0]].extent
        for n in run[1:]:
            extent = mul(extent, block.axes[n].extent)
        axes.append(replace(block.axes[run[0]], extent=extent))
    return replace(block, axes=tuple(axes))
