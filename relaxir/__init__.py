"""relaxir: a compiler for machine-learning programs with dynamic shapes."""

from relaxir import passes
from relaxir.api import compile, cost, evaluate, from_onnx, from_torch, load, memory, parse  # the public names
from relaxir.ir import (
    AnyType,
    BlockBuilder,
    FuncType,
    IRModule,
    PrimType,
    ShapeType,
    TensorType,
    TupleType,
    Var,
    const,
)
from relaxir.measure import profile
from relaxir.ops import op
from relaxir.passes import Pipeline
from relaxir.support.errors import RelaxirError
from relaxir.support.version import __version__
from relaxir.sym import broadcast, ceildiv, dim
from relaxir.sym import max_ as max  # rx.max of dimensions
from relaxir.sym import min_ as min  # rx.min of dimensions
from relaxir.tir import PrimFunc

__all__ = (
    "AnyType",
    "BlockBuilder",
    "FuncType",
    "IRModule",
    "Pipeline",
    "PrimFunc",
    "PrimType",
    "RelaxirError",
    "ShapeType",
    "TensorType",
    "TupleType",
    "Var",
    "__version__",
    "broadcast",
    "ceildiv",
    "compile",
    "const",
    "cost",
    "dim",
    "evaluate",
    "from_onnx",
    "from_torch",
    "load",
    "max",
    "memory",
    "min",
    "op",
    "parse",
    "passes",
    "profile",
)
