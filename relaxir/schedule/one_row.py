"""One row times packed panels: several panels side by side keep several memory streams busy."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from relaxir.schedule.loops import parallel
from relaxir.schedule.panel_job import PanelJob
from relaxir.schedule.prefetch import ahead
from relaxir.schedule.tile import panel_at, tiles
from relaxir.sym import DimLike, ceildiv, is_const
from relaxir.tir import Axis, Const, Expr, If, Let, Stmt, Var, as_expr, const, minimum


def one_row(job: PanelJob, panels_first: bool) -> Stmt:
    """One row times packed panels: several panels side by side keep several memory streams busy."""
    roles, count = job.roles, job.machine.config.panels
    total = ceildiv(roles.lane.extent, job.width)
    group, first = Axis(Var("group"), ceildiv(total, count)), Var("first")
    row = roles.row.var if roles.row is not None else None

    def at(expr: Expr, i: Expr, j: Expr) -> Expr:
        return panel_at(roles.lane.var, first + i, job.width, row, const(0))(expr, const(0), j)

    def inside(i: Expr, j: Expr) -> Expr:
        return (first + i) * job.width + j < job.columns

    spec = job.spec(at, shared=False)

    def make(number: Expr) -> Stmt:
        known = int(number.value) if isinstance(number, Const) else 0
        heights = (known, known) if known else (1, count)
        near = replace(spec, prefetch=ahead(job, at, heights[1]))
        return tiles(near, number, heights, job.vectors, None if job.exact else inside)

    body = _side_by_side(total, first, count, make)
    body = Let(first, group.var * count, body)
    return parallel((group, *roles.outer) if panels_first else (*roles.outer, group), body, job.machine)


def _side_by_side(total: DimLike, first: Var, count: int, make: Callable[[Expr], Stmt]) -> Stmt:
    """``count`` panels from ``first``, fewer in the last group."""
    if not is_const(total):
        return make(minimum(as_expr(total) - first, const(count)))
    rest = int(total) % count
    if int(total) < count or rest == 0:
        return make(const(min(int(total), count)))
    return If(first + count <= as_expr(total), make(const(count)), make(const(rest)))
