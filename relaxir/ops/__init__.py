"""The operator table: one class per operator."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from relaxir.ir.op import Op
from relaxir.ops.activation import ACTIVATION
from relaxir.ops.binary import BINARY
from relaxir.ops.comparison import COMPARISON
from relaxir.ops.creation import CREATION
from relaxir.ops.division import DIVISION
from relaxir.ops.dynamic import DYNAMIC
from relaxir.ops.gathering import GATHERING
from relaxir.ops.joining import JOINING
from relaxir.ops.movement import MOVEMENT
from relaxir.ops.namespace import OpNamespace
from relaxir.ops.reduce import REDUCE
from relaxir.ops.rounding import ROUNDING
from relaxir.ops.scattering import SCATTERING
from relaxir.ops.select import SELECT
from relaxir.ops.shapes import SHAPES
from relaxir.ops.slicing import SLICING
from relaxir.ops.sorting import SORTING
from relaxir.ops.trigonometric import TRIGONOMETRIC
from relaxir.ops.unary import UNARY

OPS: Final[tuple[Op[Any], ...]] = (
    *ACTIVATION,
    *BINARY,
    *COMPARISON,
    *CREATION,
    *DIVISION,
    *DYNAMIC,
    *GATHERING,
    *JOINING,
    *MOVEMENT,
    *REDUCE,
    *ROUNDING,
    *SCATTERING,
    *SELECT,
    *SHAPES,
    *SLICING,
    *SORTING,
    *TRIGONOMETRIC,
    *UNARY,
)
TABLE: Final[Mapping[str, Op[Any]]] = MappingProxyType({o.name: o for o in OPS})
op: Final = OpNamespace(TABLE)
