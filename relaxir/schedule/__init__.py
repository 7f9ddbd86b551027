"""Schedules: from tensor programs in block form to loops for a machine."""

from relaxir.schedule.apply import schedule
from relaxir.schedule.program import lift_allocs

__all__ = ["lift_allocs", "schedule"]
