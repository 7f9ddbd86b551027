"""The compiler on one screen: named tuples of passes, in the order in which they run."""

from __future__ import annotations

from typing import Final

from relaxir.passes import (
    Canonicalize,
    ChooseConfig,
    ClassifyPatterns,
    CombineMatmuls,
    CommonSubexpressions,
    DeadCode,
    Decompose,
    DispatchLibrary,
    FoldConstant,
    FoldLookup,
    FoldQuantize,
    FuseOps,
    FuseTIR,
    HoistMonotone,
    HoistReshape,
    InsertChecks,
    LegalizeOps,
    LiftTransformParams,
    LowerHost,
    MatchAttention,
    MatchLookup,
    MatchPatterns,
    Pipeline,
    PlanMemory,
    ReuseInputs,
    RunTogether,
    Schedule,
    SettleBroadcasts,
    SimplifyDims,
    SinkViews,
    SplitProducts,
)

GRAPH: Final = (
    Canonicalize(),  # aliases and identities go
    FoldQuantize(),  # products of dequantised operands become products of integers
    FoldConstant(),  # what is known at compile time is computed now, shapes become dimensions
    Decompose(),  # composite operators become simpler ones
    FoldConstant(),
    Canonicalize(),
    CommonSubexpressions(),
    InsertChecks(),  # what inference left open becomes a run-time check
    SettleBroadcasts(),  # sizes of broadcasts that all checks together decide
    SimplifyDims(),  # what is declared and checked shortens the shapes
    DeadCode(),  # what was replaced reads nothing any more
    SplitProducts(),  # products that are only read in parts become products of the parts
    HoistReshape(),  # views meet views, transpositions meet transpositions
    SinkViews(),  # unit axes of convolutions are dropped after what is fused with them
    Canonicalize(),
    MatchAttention(),  # products around a softmax become one operator
    MatchLookup(),  # products with one-hot rows become lookups
    MatchPatterns(),  # activations and normalisations written in parts too
    CombineMatmuls(),  # narrow products of one operand fill vectors together
    FoldLookup(),  # elementwise operators over lookups move into the table
    HoistMonotone(),  # extrema are taken before monotone functions, not of all their results
    Canonicalize(),
    DeadCode(),
)
"""Operators to fewer operators."""

LOWER: Final = (
    DispatchLibrary(),  # nothing, unless the context names a library
    LegalizeOps(),  # operators become tensor programs in block form
    ClassifyPatterns(),  # what each program is, from what it accesses
    FuseOps(),  # which programs become one kernel
    FuseTIR(),  # one program each
    ClassifyPatterns(),
)
"""Operators to tensor programs."""

KERNELS: Final = (
    ChooseConfig(),  # tiles and packed panels
    LiftTransformParams(),  # weights are packed once, now
    ReuseInputs(),  # which outputs may lie in a donated input
    Schedule(),  # blocks become loops
)
"""Tensor programs to loops."""

HOST: Final = (
    LowerHost(),  # graph functions become host programs
    RunTogether(),  # independent neighbours become one parallel region
    PlanMemory(),  # every temporary gets its place
)
"""Graph functions to host programs."""

DEFAULT: Final = Pipeline((*GRAPH, *LOWER, *KERNELS, *HOST))
"""All of it."""

REFERENCE: Final = Pipeline((FoldConstant(), Decompose(), InsertChecks(), LegalizeOps(), LowerHost(), PlanMemory()))
"""The least that gives a library: no fusion, no schedule, plain loops; slow, and hard to get wrong."""
