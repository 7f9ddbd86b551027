"""Turned factors: operands of a product that a tile would read across their rows, copied once into the tile's order.

before::

    c[i, j] = sum over k of a[i, k] * b[j, k]

after::

    turned_a[k, i] = a[i, k]
    turned_b[k, j] = b[j, k]
    c[i, j] = sum over k of turned_a[k, i] * turned_b[k, j]

A tile reads one element of ``a`` for each of its rows at every step. When the distance between rows is known, these are
offsets in the instructions; when it is not, each row needs an address of its own, more than there are registers. Lanes
of ``b`` that are not neighbours would have to be gathered. The copies take time in proportion to ``a`` and ``b``, the
product in proportion to their size times the other's extent, so many rows and lanes pay for them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from relaxir.schedule.padding import Staged
from relaxir.schedule.roles import Roles
from relaxir.schedule.variants import Range
from relaxir.sym import add, is_const
from relaxir.tir import Axis, Block, Buffer, Cast, Expr, Load, Store, Var
from relaxir.tir.access import stride, variables_of
from relaxir.tir.visit import substitute_vars

MANY_ROWS = 16
MANY_LANES = 192
LINE = 16  # elements between the rows of a copy: rows a power of two apart would share few places in the caches


@dataclass(frozen=True, slots=True)
class Turned:
    """A contraction over turned factors.

    Attributes:
        roles: the contraction, reading the copies.
        copies: the factors' copies, to be filled first.
        pays: what must hold of its extents for the copies to pay.

    """

    roles: Roles
    copies: tuple[Staged, ...]
    pays: tuple[Range, ...]


def turn_factors(roles: Roles) -> Turned | None:
    """Turn the factors that tiles read badly; None where there are none, or where it is known not to pay."""
    row, lane = roles.row, roles.lane
    if row is None or roles.packed or roles.padded or roles.tail is not None:
        return None
    pays = Range(row.extent, MANY_ROWS), Range(lane.extent, MANY_LANES)
    if any(r.known is False for r in pays):
        return None
    copies, result = [], replace(roles, on_the_fly=False)
    if roles.on_the_fly:
        copy = _copy(roles.vector, roles, lane, "turned_columns")
        if copy is None:
            return None
        copies.append(copy)
        result = replace(result, vector=copy.load)
    if _far_apart(roles.scalar, row, roles.reduce):
        copy = _copy(roles.scalar, roles, row, "turned_rows")
        if copy is not None:
            copies.append(copy)
            result = replace(result, scalar=copy.load)
    return Turned(result, tuple(copies), pays) if copies else None


def _load_of(factor: Expr) -> Load | None:
    value = factor.value if isinstance(factor, Cast) else factor
    return value if isinstance(value, Load) else None


def _far_apart(factor: Expr, row: Axis, reduce: Sequence[Axis]) -> bool:
    """Whether the rows of a factor are a distance apart that is not known before run time."""
    load = _load_of(factor)
    distance = None if load is None else stride(load, row.var)
    return distance is not None and not is_const(distance) and load is not None and stride(load, reduce[-1].var) == 1


def _copy(factor: Expr, roles: Roles, last: Axis, name: str) -> Staged | None:
    """Copy a factor with ``last`` as its contiguous axis; None for one that is not a plain load."""
    used = variables_of(factor)
    axes = (*(a for a in (*roles.outer, *roles.reduce) if a.var in used), last)
    if _load_of(factor) is None or last.var not in used:
        return None
    shape = (*(a.extent for a in axes[:-1]), add(last.extent, LINE))
    buffer = Buffer(name, shape, factor.dtype)
    own = tuple(replace(a, var=Var(a.var.name), kind=last.kind) for a in axes)
    value = substitute_vars(factor, {a.var: b.var for a, b in zip(axes, own, strict=True)})
    fill = Block("turn", own, Store(buffer, tuple(a.var for a in own), value))
    return Staged(buffer, fill, Load(buffer, tuple(a.var for a in axes)))
