"""Asking for packed weights before they are used: the processor's own guesses end with a panel, or lag."""

from __future__ import annotations

from collections.abc import Callable

from relaxir.schedule.loops import seq
from relaxir.schedule.panel_job import PanelJob
from relaxir.schedule.row_blocks import Rows
from relaxir.schedule.tile import At, packed_lanes
from relaxir.support.dtypes import info
from relaxir.sym import floordiv
from relaxir.tir import Expr, If, Load, Prefetch, Stmt, Var, as_expr, binary, const
from relaxir.tir.access import loads_of
from relaxir.tir.expr import BinOp
from relaxir.tir.visit import substitute_vars

LINE_BYTES = 64  # of a cache line


def next_panel(job: PanelJob, at: At, panel: Var, tile: Var, rows: Rows) -> Callable[[Expr], Stmt]:
    """Each tile brings its share of the next panel near.

    Low tiles wait for memory anyway, and asking for much beyond what the processor asks for itself delays them: they
    ask for one line per iteration only (2 to 5 rows of a decoder, measured: 10 to 30 % slower otherwise).
    """
    roles, unroll, mr = job.roles, job.machine.config.unroll, job.machine.config.mr
    load = next(e for e in loads_of(roles.vector) if packed_lanes(e, roles.lane))
    k, following = roles.reduce[-1], panel + 1

    def near(step: Expr, lane: int) -> Stmt:
        moved = (substitute_vars(at(x, const(0), const(lane)), {panel: following, k.var: step}) for x in load.indices)
        return Prefetch(load.buffer, tuple(moved), 2)

    def share(step: Expr, tiles: int) -> Stmt:
        """For one iteration of one of ``tiles`` tiles: ``unroll // tiles`` steps of the next panel, at least one."""
        steps, part = max(1, unroll // tiles), as_expr(floordiv(k.extent, tiles))
        first = binary(BinOp.MOD, tile, const(tiles)) * part + step * steps
        return seq(*(near(first + n, lane) for n in range(steps) for lane in _lines(job, load)))

    def hint(step: Expr) -> Stmt:
        one = If(rows.count <= const(mr * 2 // 3), near(step, 0), share(step, 1))
        few = If(rows.count <= const(mr), one, share(step, 2))
        return If(rows.count <= const(2 * mr), few, share(step, unroll))

    return hint


def ahead(job: PanelJob, at: At, count: int) -> Callable[[Expr], Stmt] | None:
    """Each iteration asks for what the same panels hold a few iterations later: the processor's own guesses lag."""
    roles, unroll = job.roles, job.machine.config.unroll
    load = next((e for e in loads_of(roles.vector) if packed_lanes(e, roles.lane)), None)
    if load is None or len(roles.reduce) > 1 or not job.machine.config.ahead:
        return None
    k = roles.reduce[0].var
    distance = max(1, job.machine.config.ahead // (count * job.width * info(load.dtype).bytes))
    places = [(i, u, v) for i in range(count) for u in range(unroll) for v in _lines(job, load)]

    def hint(step: Expr) -> Stmt:
        def place(x: Expr, i: int, u: int, v: int) -> Expr:
            return substitute_vars(at(x, const(i), const(v)), {k: step * unroll + (u + distance)})

        return seq(*(Prefetch(load.buffer, tuple(place(x, *p) for x in load.indices), 2) for p in places))

    return hint


def _lines(job: PanelJob, load: Load) -> range:
    """First lanes of the cache lines of one step of a panel."""
    return range(0, job.width, max(1, LINE_BYTES // info(load.dtype).bytes))
