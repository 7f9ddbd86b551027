"""Machine descriptions, configurations of schedules, and how one is chosen."""

from relaxir.cost.chooser import Chooser, ConfigSpace, CostModel, ModelChooser, RuleChooser, tile_rows
from relaxir.cost.config import Config
from relaxir.cost.target import TargetInfo
from relaxir.cost.work import bytes_moved, flops, operations, stmt_flops

__all__ = (
    "Chooser",
    "Config",
    "ConfigSpace",
    "CostModel",
    "ModelChooser",
    "RuleChooser",
    "TargetInfo",
    "bytes_moved",
    "flops",
    "operations",
    "stmt_flops",
    "tile_rows",
)
