"""The operator table: one class per operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from relaxir.ir.op import Op
from relaxir.ops.activation import ACTIVATION
from relaxir.ops.arg_reduce import ARG_REDUCE
from relaxir.ops.attention import ATTENTION
from relaxir.ops.binary import BINARY
from relaxir.ops.channel_norm import CHANNEL_NORM
from relaxir.ops.comparison import COMPARISON
from relaxir.ops.conv import CONV
from relaxir.ops.conv_transpose import CONV_TRANSPOSE
from relaxir.ops.creation import CREATION
from relaxir.ops.detection import DETECTION
from relaxir.ops.division import DIVISION
from relaxir.ops.dynamic import DYNAMIC
from relaxir.ops.einsum import EINSUM
from relaxir.ops.fourier import FOURIER
from relaxir.ops.gathering import GATHERING
from relaxir.ops.global_pool import GLOBAL_POOL
from relaxir.ops.integer import INTEGER
from relaxir.ops.joining import JOINING
from relaxir.ops.linalg import LINALG
from relaxir.ops.matmul import MATMUL
from relaxir.ops.movement import MOVEMENT
from relaxir.ops.namespace import OpNamespace
from relaxir.ops.norm import NORM
from relaxir.ops.patches import PATCHES
from relaxir.ops.pooling import POOLING
from relaxir.ops.quantize import QUANTIZE
from relaxir.ops.rectifier import RECTIFIER
from relaxir.ops.recurrent import RECURRENT
from relaxir.ops.recurrent_quantized import QUANTIZED_LSTM
from relaxir.ops.reduce import REDUCE
from relaxir.ops.reduce_norm import REDUCE_NORM
from relaxir.ops.regions import REGIONS
from relaxir.ops.resize import RESIZE
from relaxir.ops.rounding import ROUNDING
from relaxir.ops.sampling import SAMPLING
from relaxir.ops.scan import SCAN
from relaxir.ops.scattering import SCATTERING
from relaxir.ops.select import SELECT
from relaxir.ops.shapes import SHAPES
from relaxir.ops.slicing import SLICING
from relaxir.ops.softmax import SOFTMAX
from relaxir.ops.sorting import SORTING
from relaxir.ops.trigonometric import TRIGONOMETRIC
from relaxir.ops.unary import UNARY

OPS: Final[tuple[Op[Any], ...]] = (
    *ACTIVATION,
    *ARG_REDUCE,
    *ATTENTION,
    *BINARY,
    *CHANNEL_NORM,
    *COMPARISON,
    *CONV,
    *CONV_TRANSPOSE,
    *CREATION,
    *DETECTION,
    *DIVISION,
    *DYNAMIC,
    *EINSUM,
    *FOURIER,
    *GATHERING,
    *GLOBAL_POOL,
    *INTEGER,
    *JOINING,
    *LINALG,
    *MATMUL,
    *MOVEMENT,
    *NORM,
    *PATCHES,
    *POOLING,
    *QUANTIZE,
    *QUANTIZED_LSTM,
    *RECTIFIER,
    *RECURRENT,
    *REDUCE,
    *REDUCE_NORM,
    *REGIONS,
    *RESIZE,
    *ROUNDING,
    *SAMPLING,
    *SCAN,
    *SCATTERING,
    *SELECT,
    *SHAPES,
    *SLICING,
    *SOFTMAX,
    *SORTING,
    *TRIGONOMETRIC,
    *UNARY,
)
TABLE: Final[Mapping[str, Op[Any]]] = MappingProxyType({o.name: o for o in OPS})
op: Final = OpNamespace(TABLE)
