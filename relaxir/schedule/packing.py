"""Packed weights: which operand of a contraction may change its layout once, ahead of all calls, and how.

The packed layout of a factor with lane axis ``n`` and reduced axes ``k`` is ``[batch..., n / NR, k..., NR]``,
zero-padded in the last panel, so that a register tile reads its vectors one after the other.

    >>> # before: c[i, j] = sum_k a[i, k] * w[k, j]
    >>> # after:  c[i, j] = sum_k a[i, k] * packed[j // 16, k, j % 16]
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relaxir.cost import Config
from relaxir.schedule.quads import BYTES, match_quads
from relaxir.schedule.tile import masked
from relaxir.schedule.windows import match_windows, positions_pay
from relaxir.support.errors import ScheduleError
from relaxir.sym import DimLike, ceildiv, is_const
from relaxir.tir import (
    Axis,
    Binary,
    Block,
    Buffer,
    Cast,
    Const,
    Expr,
    Load,
    PrimFunc,
    ProgramBuilder,
    Var,
    as_expr,
    const,
)
from relaxir.tir.access import loads_of, stride, variables_of
from relaxir.tir.classify import Contraction, match_contraction, stages
from relaxir.tir.expr import BinOp
from relaxir.tir.visit import map_stmt, reads_of, substitute_vars


@dataclass(frozen=True, slots=True)
class ContractionPlan:
    """One operand that can be packed.

    Attributes:
        operand: position in ``func.params``.
        buffer: the parameter.
        load: its only load.
        lane: the axis that becomes the lanes.
        batch: other spatial axes of the load, outermost first.
        reduce: reduce axes of the load, outermost first.
        quads: whether four steps of the reduced axis lie together (`relaxir.schedule.quads`).

    """

    operand: int
    buffer: Buffer
    load: Load
    lane: Axis
    batch: tuple[Axis, ...]
    reduce: tuple[Axis, ...]
    quads: bool = False

    def width(self, config: Config) -> int:
        """Lanes of a panel: what the configuration says, less for a narrower axis."""
        extent = self.lane.extent
        if not is_const(extent) or int(extent) >= config.nr:
            return config.nr
        narrow = 1
        while narrow < int(extent):
            narrow *= 2
        return min(config.nr, max(narrow, config.nr // 2))

    def packed_type(self, config: Config) -> tuple[tuple[DimLike, ...], str]:
        """Shape and dtype of the packed operand."""
        width = self.width(config)
        batch, panels = tuple(a.extent for a in self.batch), ceildiv(self.lane.extent, width)
        if self.quads:
            return (*batch, panels, ceildiv(self.reduce[0].extent, BYTES), width, BYTES), self.buffer.dtype
        return (*batch, panels, *(a.extent for a in self.reduce), width), self.buffer.dtype


def contraction_plans(func: PrimFunc, config: Config) -> tuple[ContractionPlan, ...]:
    """Every operand of a program in block form that is worth packing when it is constant."""
    plans = []
    for stage in stages(func.body):
        found = match_contraction(stage) if isinstance(stage, Block) else None
        if found is None:
            continue
        for factor, lanes in ((found.right, found.columns), (found.left, found.rows)):
            plan = _plan(func, found, factor, lanes, config)
            if plan is not None:
                plans.append(plan)
    return tuple(plans)


def _plan(
    func: PrimFunc, found: Contraction, factor: Expr, lanes: tuple[Var, ...], config: Config
) -> ContractionPlan | None:
    load = factor.value if isinstance(factor, Cast) else factor
    if not isinstance(load, Load) or load.buffer not in func.inputs:
        return None
    if not all(isinstance(i, Var | Const) for i in load.indices):
        return None
    if sum(e.buffer is load.buffer for e in reads_of(func.body)) != 1:
        return None
    usable = [v for v in lanes if stride(found.store, v) == 1] or _channels(found, load, config)
    used = variables_of(load)
    if len(usable) != 1 or usable[0] not in used:
        return None
    axes = {a.var: a for a in found.block.axes}
    batch = tuple(a for a in found.block.axes if a.var in used and a.var not in (*found.reduce, usable[0]))
    reduce = tuple(axes[v] for v in found.reduce if v in used)
    if axes[usable[0]].extent == 1 or all(a.extent == 1 for a in reduce):
        return None  # the axis disappears: nothing is gained
    if len(reduce) != len(found.reduce) or not all(is_const(a.extent) for a in (*batch, *reduce)):
        return None
    quads = match_quads(found)
    by_words = quads is not None and quads.signed is load
    return ContractionPlan(func.params.index(load.buffer), load.buffer, load, axes[usable[0]], batch, reduce, by_words)


def _channels(found: Contraction, load: Load, config: Config) -> list[Var]:
    """The channel axis of a convolution that may have few positions: its lanes lie apart in the result."""
    windows = match_windows(found)
    if windows is None or windows.channel is None or load not in (windows.weights, *loads_of(windows.weights)):
        return []
    axes = {a.var: a for a in found.block.axes}
    if not all(is_const(e) for e in (windows.channel.extent, *(axes[v].extent for v in found.reduce))):
        return []
    return [] if positions_pay(found, windows, config) is True else [windows.channel.var]


def plan_of(func: PrimFunc, operand: int, config: Config) -> ContractionPlan:
    """Return the plan for one operand, or raise ScheduleError if it cannot be packed."""
    for plan in contraction_plans(func, config):
        if plan.operand == operand:
            return plan
    raise ScheduleError(
        f"parameter {operand} of the program cannot be packed",
        help="only a factor of a contraction that is read once, with constant reduced axes, has a packed layout",
    )


def pack_func(func: PrimFunc, operand: int, config: Config) -> PrimFunc:
    """Make the program that packs an operand: one input of the operand's type, one output of `packed_type`."""
    plan = plan_of(func, operand, config)
    width = plan.width(config)
    f = ProgramBuilder("pack")
    source = f.input(plan.buffer.name, plan.buffer.shape, plan.buffer.dtype)
    shape, dtype = plan.packed_type(config)
    out = f.output("packed", shape, dtype)

    def element(*at: Expr) -> Expr:
        split = len(plan.batch)
        lane = at[split] * width + at[-1]
        mapping = {a.var: v for a, v in zip(plan.batch, at[:split], strict=True)}
        inside: list[Expr] = []
        if plan.quads:
            (k,) = plan.reduce
            lane = at[split] * width + at[-2]
            step = at[split + 1] * BYTES + at[-1]
            mapping[k.var] = step
            if not (is_const(k.extent) and int(k.extent) % BYTES == 0):
                inside.append(step < as_expr(k.extent))
        else:
            mapping |= {a.var: v for a, v in zip(plan.reduce, at[split + 1 : -1], strict=True)}
        indices = tuple(substitute_vars(i, {**mapping, plan.lane.var: lane}) for i in plan.load.indices)
        value: Expr = Load(source, indices)
        for cond in inside:
            value = masked(value, cond)
        exact = is_const(plan.lane.extent) and int(plan.lane.extent) % width == 0
        return value if exact else masked(value, lane < as_expr(plan.lane.extent))

    f.compute(out, element)
    return f.build()


def rewrite_to_packed(func: PrimFunc, operand: int, config: Config) -> PrimFunc:
    """Return the same program reading its operand in packed layout; still in block form."""
    plan = plan_of(func, operand, config)
    width = plan.width(config)
    shape, dtype = plan.packed_type(config)
    packed = Buffer(plan.buffer.name, shape, dtype)
    lane = plan.lane.var
    panel, column = Binary(BinOp.FLOORDIV, lane, const(width)), Binary(BinOp.MOD, lane, const(width))
    steps: tuple[Expr, ...] = (*(a.var for a in plan.reduce), column)
    if plan.quads:
        k = plan.reduce[0].var
        steps = (Binary(BinOp.FLOORDIV, k, const(BYTES)), column, Binary(BinOp.MOD, k, const(BYTES)))
    load = Load(packed, (*(a.var for a in plan.batch), panel, *steps))
    body = map_stmt(func.body, on_expr=lambda e: load if isinstance(e, Load) and e.buffer is plan.buffer else e)
    return replace(func, params=tuple(packed if b is plan.buffer else b for b in func.params), body=body)
