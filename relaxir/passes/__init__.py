"""Passes: module to module, in the order of `relaxir.pipelines`."""

from __future__ import annotations

from typing import Final

from relaxir.passes.base import Instrument, Level, Pass, PassContext, Pipeline, run_instrumented
from relaxir.passes.canonicalize import Canonicalize
from relaxir.passes.choose_config import ChooseConfig
from relaxir.passes.classify_patterns import ClassifyPatterns
from relaxir.passes.combine_matmuls import CombineMatmuls
from relaxir.passes.cse import CommonSubexpressions
from relaxir.passes.dead_code import DeadCode
from relaxir.passes.decompose import Decompose
from relaxir.passes.dispatch_library import DispatchLibrary
from relaxir.passes.fold_constant import FoldConstant
from relaxir.passes.fold_lookup import FoldLookup
from relaxir.passes.fold_quantize import FoldQuantize
from relaxir.passes.fuse_ops import FuseOps
from relaxir.passes.fuse_tir import FuseTIR
from relaxir.passes.hoist_monotone import HoistMonotone
from relaxir.passes.hoist_reshape import HoistReshape
from relaxir.passes.insert_checks import InsertChecks
from relaxir.passes.legalize_ops import LegalizeOps
from relaxir.passes.lift_transform_params import LiftTransformParams
from relaxir.passes.lower_host import LowerHost
from relaxir.passes.match_attention import MatchAttention
from relaxir.passes.match_lookup import MatchLookup
from relaxir.passes.match_patterns import MatchPatterns
from relaxir.passes.plan_memory import PlanMemory
from relaxir.passes.reuse_inputs import ReuseInputs
from relaxir.passes.run_together import RunTogether
from relaxir.passes.schedule import Schedule
from relaxir.passes.settle_broadcasts import SettleBroadcasts
from relaxir.passes.simplify_dims import SimplifyDims
from relaxir.passes.sink_views import SinkViews
from relaxir.passes.split_products import SplitProducts

PASSES: Final[tuple[type[Pass], ...]] = (
    Canonicalize,
    FoldConstant,
    FoldLookup,
    FoldQuantize,
    Decompose,
    CommonSubexpressions,
    DeadCode,
    InsertChecks,
    SettleBroadcasts,
    SimplifyDims,
    SplitProducts,
    HoistReshape,
    SinkViews,
    MatchAttention,
    MatchLookup,
    MatchPatterns,
    HoistMonotone,
    CombineMatmuls,
    DispatchLibrary,
    LegalizeOps,
    ClassifyPatterns,
    FuseOps,
    FuseTIR,
    ChooseConfig,
    LiftTransformParams,
    ReuseInputs,
    Schedule,
    LowerHost,
    RunTogether,
    PlanMemory,
)

__all__ = (
    "PASSES",
    "Canonicalize",
    "ChooseConfig",
    "ClassifyPatterns",
    "CombineMatmuls",
    "CommonSubexpressions",
    "DeadCode",
    "Decompose",
    "DispatchLibrary",
    "FoldConstant",
    "FoldLookup",
    "FoldQuantize",
    "FuseOps",
    "FuseTIR",
    "HoistMonotone",
    "HoistReshape",
    "InsertChecks",
    "Instrument",
    "LegalizeOps",
    "Level",
    "LiftTransformParams",
    "LowerHost",
    "MatchAttention",
    "MatchLookup",
    "MatchPatterns",
    "Pass",
    "PassContext",
    "Pipeline",
    "PlanMemory",
    "ReuseInputs",
    "RunTogether",
    "Schedule",
    "SettleBroadcasts",
    "SimplifyDims",
    "SinkViews",
    "SplitProducts",
    "run_instrumented",
)
