"""Sums of products over batch axes as matrix products, in float64 or wrapping integers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from relaxir.runtime.interp.lanes import varying
from relaxir.runtime.interp.numerics import wide_dtype

Array = NDArray[Any]

EXACT: Final = float(1 << 53)  # integers below this are exact in float64


def sum_of_products(
    a: Array, b: Array, mask: Array | None, over: Sequence[int], sizes: Sequence[int], name: str
) -> Array | None:
    """``sum of a * b`` over the axes ``over`` in the accumulating dtype of ``name``, those axes kept with extent 1.

    ``a`` and ``b`` broadcast against each other; lanes outside ``mask`` count as 0. None where no matrix product gives
    that sum: nothing is multiplied along the axes, or infinities stand outside the mask.
    """
    used = set(varying(a)) | set(varying(b))
    common = [axis for axis in over if axis in used]
    if not common or a.ndim == 0 or b.ndim == 0:
        return None
    if mask is not None:
        masked = _masked(a, b, mask)
        if masked is None:
            return None
        a, b = masked
    repeats = math.prod(sizes[axis] for axis in over if axis not in used)
    wide = wide_dtype(name)
    if a.dtype.kind == "f":
        scaled: Array = _matmul(a, b, common, sizes, wide) * wide.type(repeats)
        return scaled
    # float64 has a fast matrix product; where it is not exact, the slow one of integers wraps as it should
    exact = _magnitude(a) * _magnitude(b) * math.prod(sizes[axis] for axis in over) < EXACT
    total = _matmul(a, b, common, sizes, np.dtype(np.float64) if exact else wide)
    whole: Array = total.astype(np.int64) * np.int64(repeats)
    return whole.astype(wide)


def _masked(a: Array, b: Array, mask: Array) -> tuple[Array, Array] | None:
    """Zero one side outside the mask; the other must be finite there, since 0 times infinity is not 0."""
    axes = set(varying(mask))
    for side, other, swap in ((a, b, False), (b, a, True)):
        if axes <= set(varying(side)) and (other.dtype.kind != "f" or bool(np.isfinite(other).all())):
            zeroed = np.where(mask, side, np.zeros((), side.dtype))
            return (other, zeroed) if swap else (zeroed, other)
    return None


def _magnitude(x: Array) -> float:
    return float(np.abs(x.astype(np.float64)).max(initial=0.0))


def _matmul(a: Array, b: Array, common: Sequence[int], sizes: Sequence[int], dtype: np.dtype[Any]) -> Array:
    """Product over ``common``, computed in ``dtype``; the result has the rank of ``a``."""
    in_a, in_b = set(varying(a)), set(varying(b))
    kept = [axis for axis in range(a.ndim) if axis in in_a | in_b and axis not in common]
    batch = [axis for axis in kept if axis in in_a and axis in in_b]
    rows = [axis for axis in kept if axis not in in_b]
    columns = [axis for axis in kept if axis not in in_a]

    def extents(axes: Sequence[int]) -> list[int]:
        return [sizes[axis] for axis in axes]

    def matrix(x: Array, order: Sequence[int], groups: tuple[Sequence[int], Sequence[int]]) -> Array:
        full = list(x.shape)
        for axis in order:
            full[axis] = sizes[axis]
        moved = np.broadcast_to(x, full).transpose([*order, *(d for d in range(x.ndim) if d not in order)])
        shape = [*extents(batch), *(math.prod(extents(group)) for group in groups)]
        return np.ascontiguousarray(moved, dtype).reshape(shape)

    left = matrix(a, [*batch, *rows, *common], (rows, common))
    right = matrix(b, [*batch, *common, *columns], (common, columns))
    if not rows and not columns:
        product = np.einsum("...k,...k->...", left[..., 0, :], right[..., :, 0])
    else:
        product = left @ right
    order = [*batch, *rows, *columns]
    product = product.reshape(extents(order)).transpose(np.argsort(order))
    shape = [1] * a.ndim
    for axis in order:
        shape[axis] = sizes[axis]
    return np.asarray(product.reshape(shape))
