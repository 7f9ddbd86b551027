"""Convolutions: contractions one factor of which is read through windows.

The input is staged where it is padded or strided. The lanes of a register tile are positions (neighbours along the last
axis of the result) where there are enough of them to fill vectors. With few positions, and weights that are packed,
they are channels, and the rows are positions::

    for each panel of channels, image and row of the result:     (the panel stays in the second-level cache)
      for a few positions:
        sums[position, channel] += x[c, y + ky, position + kx] * w[panel, c, ky, kx, channel]
        y[channel, position] = sums                              (a strided store)

The choice falls at run time where the number of positions is not known.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relaxir.schedule.epilogue import collect_epilogue
from relaxir.schedule.loops import Machine, seq
from relaxir.schedule.padding import Staged, stage_factor
from relaxir.schedule.panel_job import panel_width
from relaxir.schedule.panels import schedule_contraction
from relaxir.schedule.program import Program
from relaxir.schedule.roles import Roles
from relaxir.schedule.stage_nest import parallel_nest
from relaxir.schedule.tile import Epilogue, packed_lanes
from relaxir.schedule.windows import Windows, match_windows, positions_pay
from relaxir.sym import add, ceildiv, mul
from relaxir.tir import Alloc, Axis, AxisKind, Binary, Block, Const, Expr, If, Stmt, Var, const
from relaxir.tir.access import loads_of
from relaxir.tir.classify import Contraction, match_contraction
from relaxir.tir.expr import BinOp
from relaxir.tir.visit import map_expr


@dataclass(frozen=True, slots=True)
class WindowsRule:
    """A convolution and the elementwise stages that follow it."""

    name: str = "windows"

    def take(self, program: Program, stages: Sequence[Stmt], machine: Machine) -> tuple[Stmt, int] | None:
        """Schedule the first stage and its epilogue; None where nothing is padded, strided or packed."""
        block = stages[0]
        found = match_contraction(block) if isinstance(block, Block) else None
        windows = None if found is None else match_windows(found)
        if found is None or windows is None:
            return None
        epilogue, taken = collect_epilogue(program, found, stages[1:])
        width = panel_width(windows.factor.dtype, windows.position.extent, machine)
        staged = None if windows.plain else stage_factor(windows.factor, found.block.axes, windows.position, width)
        job = Convolution(found, windows, epilogue, machine, width, staged)
        if (staged is None and not windows.plain) or (windows.plain and not job.packed):
            return None
        body = job.loops()
        return (body if staged is None else Alloc(staged.buffer, body)), 1 + taken


@dataclass(frozen=True, slots=True)
class Convolution:
    """A convolution being scheduled: what it is, what follows, for which machine, lanes of positions, staged input."""

    found: Contraction
    windows: Windows
    epilogue: Epilogue
    machine: Machine
    width: int
    staged: Staged | None

    @property
    def packed(self) -> int:
        """Channels of a panel of packed weights; 0 where they are not packed."""
        channel = self.windows.channel
        if channel is None:
            return 0
        return next((n for n in (packed_lanes(e, channel) for e in loads_of(self.windows.weights)) if n), 0)

    @property
    def input(self) -> Expr:
        """The input as tiles read it."""
        return self.windows.factor if self.staged is None else self.staged.load

    def loops(self) -> Stmt:
        """Both versions, or the better one where it is known."""
        if not self.packed:
            return self.by_positions()
        pays = positions_pay(self.found, self.windows, self.machine.config)
        if isinstance(pays, bool):
            return self.by_positions() if pays else self.by_channels()
        return If(pays, self.by_positions(), self.by_channels())

    def outer(self, *but: Axis | None) -> tuple[Axis, ...]:
        """Spatial axes without some."""
        return tuple(a for a in self.found.block.axes if a.kind is AxisKind.SPATIAL and a not in but)

    @property
    def reduce(self) -> tuple[Axis, ...]:
        """Reduced axes."""
        axes = {a.var: a for a in self.found.block.axes}
        return tuple(axes[v] for v in self.found.reduce)

    def by_positions(self) -> Stmt:
        """Lanes along positions; rows are channels, those of one panel if weights are packed."""
        windows, channel = self.windows, self.windows.channel
        roles = Roles(
            windows.weights,
            self.input,
            windows.position,
            channel,
            self.outer(windows.position, channel),
            self.reduce,
            0,
            False,
            padded=self.staged is not None,
        )
        fill = None if self.staged is None else parallel_nest(self.staged.fill, self.machine)
        if not self.packed or channel is None:
            return seq(fill, schedule_contraction(roles, self.epilogue, self.machine))
        whole, rest = divmod(int(channel.extent), self.packed)
        parts = []
        if whole:
            panel = Axis(Var("group"), whole)
            parts.append(self.panels(roles, channel, panel.var, self.packed, (panel,)))
        if rest:
            parts.append(self.panels(roles, channel, const(whole), rest, ()))
        return seq(fill, *parts)

    def panels(self, roles: Roles, channel: Axis, panel: Expr, count: int, around: tuple[Axis, ...]) -> Stmt:
        """Channels ``panel * width ...`` as rows, ``count`` of them."""
        width, inner = self.packed, Axis(Var(channel.var.name), count)

        def split(e: Expr) -> Expr:
            if isinstance(e, Binary) and e.a == place and isinstance(e.b, Const) and e.b.value == width:
                return {BinOp.FLOORDIV: panel, BinOp.MOD: inner.var}.get(e.op, e)
            return place if e is channel.var else e

        place = panel * width + inner.var

        def over(e: Expr) -> Expr:
            return map_expr(e, split)

        own = replace(roles, scalar=over(roles.scalar), row=inner, outer=(*around, *roles.outer))
        values = tuple((name, over(value)) for name, value in self.epilogue.values)
        stores = tuple(
            replace(s, indices=tuple(map(over, s.indices)), value=over(s.value)) for s in self.epilogue.stores
        )
        return schedule_contraction(own, Epilogue(values, stores), self.machine)

    def by_channels(self) -> Stmt:
        """Lanes along channels, panel by panel; rows are positions."""
        windows, channel = self.windows, self.windows.channel
        assert channel is not None  # only such weights are packed
        roles = Roles(
            self.input,
            windows.weights,
            channel,
            windows.position,
            self.outer(windows.position, channel),
            self.reduce,
            self.packed,
            False,
        )
        body = schedule_contraction(roles, self.epilogue, self.machine, panels_first=True)
        return seq(None if self.staged is None else parallel_nest(self.narrow(self.staged), self.machine), body)

    def narrow(self, staged: Staged) -> Block:
        """Fill only what rows of positions read: whole panels of lanes would read more."""
        *axes, last = staged.fill.axes
        extent = self.windows.position.extent
        beyond = add(mul(ceildiv(extent, self.width), self.width), mul(extent, -1))
        return replace(staged.fill, axes=(*axes, replace(last, extent=add(last.extent, mul(beyond, -1)))))
