"""Schedules: from tensor programs in block form to loops for a machine."""

from relaxir.schedule.apply import choose, schedule
from relaxir.schedule.packing import ContractionPlan, contraction_plans, pack_func, plan_of, rewrite_to_packed
from relaxir.schedule.program import lift_allocs
from relaxir.schedule.rows_after import block_rows

__all__ = (
    "ContractionPlan",
    "block_rows",
    "choose",
    "contraction_plans",
    "lift_allocs",
    "pack_func",
    "plan_of",
    "rewrite_to_packed",
    "schedule",
)
