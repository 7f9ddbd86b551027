"""Buffers: named, compact, row-major regions of memory with a symbolic shape."""

from __future__ import annotations

import enum
from dataclasses import dataclass

from relaxir.support.dtypes import dtype as canonical_dtype
from relaxir.sym import DimLike, normalize
from relaxir.tir.expr import Expr, ExprLike, Load, as_expr


class Scope(enum.Enum):
    """Where a buffer lives."""

    GLOBAL = "global"  # a parameter, or a temporary that becomes a workspace parameter of the kernel
    FRAME = "frame"  # host programs: in the function's frame, at a planned offset
    STACK = "stack"  # constant size, private to one iteration (alloca)
    REGISTER = "register"  # constant size, constant indices after unrolling: promoted to registers


@dataclass(frozen=True, slots=True, eq=False)
class Buffer:
    """A compact row-major array; identity is the object.

    Attributes:
        name: hint for printing.
        shape: extents, each an int or a symbolic expression; () is a scalar cell.
        dtype: canonical element type.
        scope: where it lives.
    """

    name: str
    shape: tuple[DimLike, ...]
    dtype: str
    scope: Scope = Scope.GLOBAL

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", tuple(normalize(d) for d in self.shape))
        object.__setattr__(self, "dtype", canonical_dtype(self.dtype))

    def __getitem__(self, indices: ExprLike | tuple[ExprLike, ...]) -> Load:
        """``buffer[i, j]`` as an expression; ``buffer[()]`` reads a scalar cell."""
        items = indices if isinstance(indices, tuple) else (indices,)
        return Load(self, tuple(as_expr(i) for i in items))

    def at(self, indices: tuple[Expr, ...]) -> Load:
        """Element at a tuple of index expressions."""
        return Load(self, indices)
