"""What names of an ONNX graph stand for during import: tensors, sequences of them, and optionals without content.

Sequences and optionals exist at import only. A sequence is a Python tuple of values, or the equal parts of one tensor
where their number depends on a size; what is taken out of either is a tensor again.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from relaxir.frontends.values import SIZES, SMALL, Value
from relaxir.sym import DimLike, ceildiv

__all__ = ("ABSENT", "SIZES", "SMALL", "Absent", "Item", "Items", "Pieces", "Value", "copied")


@dataclass(frozen=True, eq=False)
class Items:
    """A sequence whose tensors are known one by one."""

    values: tuple[Value, ...]

    @property
    def count(self) -> DimLike:
        """Number of tensors."""
        return len(self.values)


@dataclass(frozen=True, eq=False)
class Pieces:
    """A sequence made of a tensor's parts along an axis, as many as its extent needs.

    Attributes:
        x: the tensor.
        axis: along which it is cut.
        size: extent of every part but the last, which may be shorter.
        keepdims: whether parts keep the axis; if not, ``size`` is 1.
    """

    x: Value
    axis: int
    size: DimLike
    keepdims: bool

    @property
    def count(self) -> DimLike:
        """Number of tensors."""
        return ceildiv(self.x.type.shape[self.axis], self.size)


@dataclass(frozen=True)
class Absent:
    """An optional without content."""


ABSENT = Absent()
Item = Value | Items | Pieces | Absent


def copied(item: Item) -> Item:
    """The same item; what is learnt of the copy's tensors is not known of the original's."""
    if isinstance(item, Value):
        return replace(item)
    if isinstance(item, Items):
        return Items(tuple(replace(v) for v in item.values))
    return replace(item, x=replace(item.x)) if isinstance(item, Pieces) else item
