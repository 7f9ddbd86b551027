"""Machine descriptions, configurations of schedules, and how one is chosen."""

from relaxir.cost.chooser import Chooser, ConfigSpace, CostModel, ModelChooser, RuleChooser, tile_columns, tile_rows
from relaxir.cost.config import Config
from relaxir.cost.target import TargetInfo
from relaxir.cost.work import CALL_COST, Work, bytes_moved, flops, operations, work_attrs, work_of

__all__ = (
    "CALL_COST",
    "Chooser",
    "Config",
    "ConfigSpace",
    "CostModel",
    "ModelChooser",
    "RuleChooser",
    "TargetInfo",
    "Work",
    "bytes_moved",
    "flops",
    "operations",
    "tile_columns",
    "tile_rows",
    "work_attrs",
    "work_of",
)
