"""Relations between dimensions, and the three answers a proof can give."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Literal

from relaxir.support.errors import SymError
from relaxir.sym.expr import DimLike
from relaxir.sym.normalize import normalize
from relaxir.sym.printer import to_text


class Proof(Enum):
    """The answer to a question about all allowed values of the dimensions."""

    PROVED = "proved"
    """It holds for all values."""
    REFUTED = "refuted"
    """It fails for all values."""
    UNKNOWN = "unknown"
    """Neither could be shown; check at run time."""


@dataclass(frozen=True)
class Relation:
    """``left op right`` between two dimensions."""

    op: Literal["==", "<=", "<"]
    left: DimLike
    right: DimLike

    def __post_init__(self) -> None:
        if self.op not in ("==", "<=", "<"):
            raise SymError(f"unknown relation {self.op!r}; use ==, <= or <")
        object.__setattr__(self, "left", normalize(self.left))
        object.__setattr__(self, "right", normalize(self.right))

    def __str__(self) -> str:
        return f"{to_text(self.left)} {self.op} {to_text(self.right)}"
