"""Which contractions are convolutions, and whether the lanes of their tiles should be positions or channels."""

from __future__ import annotations

from dataclasses import dataclass

from relaxir.cost import Config
from relaxir.sym import ceildiv, is_const, mul, product
from relaxir.tir import Axis, Expr, Load, Select, as_expr
from relaxir.tir.access import affine, stride
from relaxir.tir.classify import Contraction

STRIDED = 24
"""Steps of a reduced axis that take as long as one vector whose lanes lie apart in memory."""


@dataclass(frozen=True, slots=True)
class Windows:
    """The parts of a convolution.

    Attributes:
        factor: the input, read through windows, perhaps with a guard.
        weights: the other factor.
        position: the spatial axis along which the result is contiguous.
        channel: the innermost axis of the result that only the weights use; None if there is none.
        plain: whether the input is read without guard and contiguously along positions.

    """

    factor: Expr
    weights: Expr
    position: Axis
    channel: Axis | None
    plain: bool


def match_windows(found: Contraction) -> Windows | None:
    """Read a contraction as a convolution; None where no factor slides along the result's innermost axis."""
    axes = {a.var: a for a in found.block.axes}
    walked = tuple(v for v, a in axes.items() if a.extent != 1)
    for var in (*found.rows, *found.columns):
        in_left = var in found.rows
        factor, weights = (found.left, found.right) if in_left else (found.right, found.left)
        load = factor.then if isinstance(factor, Select) else factor
        if not isinstance(load, Load) or var not in walked or stride(found.store, var) != 1:
            continue
        slid = [i for i, d in zip(load.indices, load.buffer.shape, strict=True) if d != 1]
        last = affine(slid[-1], walked) if slid else None
        if last is None or var not in last[0]:
            continue
        plain = not isinstance(factor, Select) and stride(load, var) == 1
        if plain and len(last[0]) == 1:
            continue
        others = found.columns if in_left else found.rows
        return Windows(factor, weights, axes[var], axes[others[-1]] if others else None, plain)
    return None


def positions_pay(found: Contraction, windows: Windows, config: Config) -> Expr | bool:
    """Whether lanes along positions do less than lanes along channels; an expression where that is known at run time.

    Args:
        found: the contraction, whose reduced axes and channels are constant.
        windows: its parts, with a channel axis.
        config: its ``nr`` is two vectors.

    """
    position, channel = windows.position.extent, windows.channel
    assert channel is not None
    axes = {a.var: a for a in found.block.axes}
    steps, channels = int(product(axes[v].extent for v in found.reduce)), int(channel.extent)
    vector = max(1, config.nr // 2)
    whole = vector if is_const(position) else config.nr
    along = mul(ceildiv(position, whole), whole * steps * channels)
    across = mul(position, -(-channels // vector) * vector * (steps + STRIDED))
    if is_const(along) and is_const(across):
        return int(along) <= int(across)
    return as_expr(along) <= as_expr(across)
