"""One contraction cut into panels, each as many lanes as a register tile has: what its loops are made from."""

from __future__ import annotations

from dataclasses import dataclass

from relaxir.schedule.loops import Machine
from relaxir.schedule.roles import Roles
from relaxir.schedule.tile import At, Epilogue, TileSpec
from relaxir.sym import DimLike, is_const
from relaxir.tir import Expr, as_expr


def panel_width(dtype: str, extent: DimLike, machine: Machine) -> int:
    """Lanes of a tile along an axis."""
    lanes = machine.target.lanes(dtype)
    width = -(-machine.config.nr // lanes) * lanes
    return max(lanes, min(width, -(-int(extent) // lanes) * lanes)) if is_const(extent) else width


def width_of(roles: Roles, machine: Machine) -> int:
    """Lanes of the tiles of a contraction."""
    return roles.packed or panel_width(roles.vector.dtype, roles.lane.extent, machine)


@dataclass(frozen=True, slots=True)
class PanelJob:
    """One contraction being scheduled: roles, what follows each sum, the machine, and the lanes of a tile."""

    roles: Roles
    epilogue: Epilogue
    machine: Machine
    width: int

    @property
    def vectors(self) -> int:
        """Vector registers of one row of a tile."""
        return max(1, self.width // self.machine.target.lanes(self.roles.vector.dtype))

    @property
    def exact(self) -> bool:
        """Whether every panel is full."""
        return is_const(self.roles.lane.extent) and int(self.roles.lane.extent) % self.width == 0

    @property
    def columns(self) -> Expr:
        """Extent of the lane axis."""
        return as_expr(self.roles.lane.extent)

    def spec(self, at: At, *, shared: bool) -> TileSpec:
        """The contraction ready for tiling; ``shared``: all rows of a tile use the same vectors."""
        roles, tail = self.roles, self.roles.tail
        return TileSpec(
            roles.scalar,
            roles.vector,
            at,
            roles.reduce,
            self.width,
            self.epilogue,
            shared,
            self.machine.config.unroll,
            product=roles.product,
            tail=None if tail is None else (tail.axis, tail.scalar, tail.vector),
        )
