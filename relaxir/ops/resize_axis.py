"""Resizing along one axis: where elements of the result lie in the source, and the weights of their neighbours."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import reduce
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from relaxir.ir.expr import Array
from relaxir.sym import DimLike
from relaxir.tir import Expr, Intrinsic, as_expr, call, cast, const, eq, maximum, minimum, select

if TYPE_CHECKING:
    from relaxir.ops.resize import ResizeAttrs

FILTER_RADIUS: Final[Mapping[str, int]] = MappingProxyType({"linear": 1, "cubic": 2})


@dataclass(frozen=True, slots=True)
class AxisMap:
    """How one axis is resized."""

    axis: int
    extent: DimLike
    out: DimLike
    scale: Fraction | None
    """The factor, where it was given as a constant."""
    ratios: tuple[tuple[DimLike, DimLike], ...]
    """Otherwise the factor is the (smallest or largest, by policy) quotient of these sizes and extents."""
    policy: str
    roi: tuple[float | Expr, float | Expr]
    """Begin and end of the region."""
    given: float | Expr | None = None
    """The factor, where an operand holds it."""

    def with_out(self, out: DimLike) -> AxisMap:
        """The same with the result's extent as inference wrote it."""
        return replace(self, out=out)

    def with_operands(self, given: Any, roi: Any) -> AxisMap:
        """The same with a factor and a region (begin, end) from operands; None where there is none."""
        return replace(self, given=given, roi=self.roi if roi is None else roi)

    @property
    def identity(self) -> bool:
        """Whether nothing changes along the axis."""
        return self.given is None and (
            self.out == self.extent and self.roi == (0.0, 1.0) and (self.scale or 1) == 1 and self.policy == "stretch"
        )

    @property
    def factor(self) -> int:
        """The factor of `repeats`."""
        return int(self.scale or 1)

    def repeats(self, coordinates: str, rounding: str) -> bool:
        """Whether nearest resampling repeats each element a whole number of times: its index is ``i // factor``."""
        whole = self.scale is not None and self.scale.denominator == 1
        corner = (coordinates, rounding) == ("asymmetric", "floor")
        middle = coordinates.endswith("half_pixel") and rounding.startswith("round")
        # pytorch_half_pixel treats a result of one element apart, which is index 0 as well
        return whole and (corner or middle)

    def factor_expr(self) -> Expr:
        """The factor as float64."""
        if self.given is not None:
            return as_expr(self.given, "float64")
        if self.scale is not None:
            return const(float(self.scale), "float64")
        parts = tuple(_number(s) / _number(e) for s, e in self.ratios)
        return reduce(minimum if self.policy == "not_larger" else maximum, parts)

    @property
    def stretches(self) -> bool:
        """Whether the factor is exactly the quotient of the two extents."""
        return self.scale is None and self.given is None and self.policy == "stretch"

    def outside(self, place: Expr) -> Expr:
        """Whether a place lies outside the source."""
        return (place < 0.0) | (place > _number(self.extent) - 1.0)


def _number(d: DimLike) -> Expr:
    return as_expr(d, "float64")


def coordinate(m: AxisMap, mode: str, index: Expr) -> Expr:
    """Place in the source, as float64, of one element of the result."""
    i, extent, factor = cast(index, "float64"), _number(m.extent), m.factor_expr()
    # with given scales the width may be fractional, and ONNX's expected results use it so
    width = _number(m.out) if m.stretches else factor * extent
    alone = eq(width, 1.0)
    if mode == "align_corners":
        return select(alone, const(0.0, "float64"), i * (extent - 1.0) / (width - 1.0))
    if mode == "asymmetric":
        return i / factor
    if mode == "tf_crop_and_resize":
        low, high = (as_expr(v, "float64") for v in m.roi)
        size, width = high - low, _number(m.out)
        inner = select(eq(width, 1.0), size * (extent - 1.0) / 2.0, i * size * (extent - 1.0) / (width - 1.0))
        return inner + low * (extent - 1.0)
    middle = (i + 0.5) / factor - 0.5
    if mode == "pytorch_half_pixel":
        return select(alone, const(0.0, "float64"), middle)
    if mode == "half_pixel_symmetric":
        return extent / 2.0 * (as_expr(1.0, "float64") - _number(m.out) / width) + middle
    return middle


def clamped(index: Expr, extent: DimLike) -> Expr:
    """The nearest index inside the axis."""
    return minimum(maximum(index, 0), as_expr(extent) - 1)


def nearest_index(place: Expr, mode: str) -> Expr:
    """Index of the element that stands for a place."""
    if mode == "floor":
        found = call(Intrinsic.FLOOR, place)
    elif mode == "ceil":
        found = call(Intrinsic.CEIL, place)
    elif mode == "round_prefer_floor":
        found = call(Intrinsic.CEIL, place - 0.5)
    else:
        found = call(Intrinsic.FLOOR, place + 0.5)
    return cast(found, "int64")


def tap_weight(m: AxisMap, attrs: ResizeAttrs, distance: Expr) -> Expr:
    """Weight of an element by its signed distance from the place, before normalisation."""
    if attrs.antialias:
        distance = distance * minimum(m.factor_expr(), 1.0)
    d, zero = call(Intrinsic.ABS, distance), const(0.0, "float64")
    if attrs.mode == "linear":
        return maximum(as_expr(1.0, "float64") - d, 0.0)
    a = const(attrs.cubic_coeff_a, "float64")
    near = ((a + 2.0) * d - (a + 3.0)) * d * d + 1.0
    far = ((a * d - a * 5.0) * d + a * 8.0) * d - a * 4.0
    return select(d <= 1.0, near, select(d < 2.0, far, zero))


# ---- the reference, in NumPy ---------------------------------------------------------------------------------------


def resize_matrix(m: AxisMap, attrs: ResizeAttrs) -> tuple[Array, Array]:
    """Weights of every source element (columns) for every element of the result, and which of those lie outside."""
    extent, out = int(m.extent), int(m.out)
    factor = _known_factor(m)
    places = np.array([_place(m, attrs.coordinate_transformation_mode, i, factor) for i in range(out)], np.float64)
    matrix = np.zeros((out, extent))
    for i, place in enumerate(places):
        for k, weight in _neighbours(place, factor, attrs):
            if 0 <= k < extent or not attrs.exclude_outside or attrs.mode == "nearest":
                matrix[i, min(max(k, 0), extent - 1)] += weight
        if attrs.mode != "nearest" and (attrs.exclude_outside or attrs.antialias):
            matrix[i] /= matrix[i].sum() or 1.0
    outside = (places < 0) | (places > extent - 1)
    return matrix, outside & (attrs.coordinate_transformation_mode == "tf_crop_and_resize")


def _known_factor(m: AxisMap) -> float:
    if isinstance(m.given, float):
        return m.given
    if m.scale is not None:
        return float(m.scale)
    parts = [int(s) / int(e) if e else 1.0 for s, e in m.ratios]
    return min(parts) if m.policy == "not_larger" else max(parts)


def _place(m: AxisMap, mode: str, i: int, factor: float) -> float:
    extent, out = int(m.extent), int(m.out)
    width = float(out) if m.stretches else factor * extent
    if mode == "align_corners":
        return 0.0 if width == 1 else i * (extent - 1) / (width - 1)
    if mode == "asymmetric":
        return i / factor
    if mode == "tf_crop_and_resize":
        low, high = (float(v) for v in m.roi)  # type: ignore[arg-type]  # numbers, in a reference
        inner = (high - low) * (extent - 1) / (2 if out == 1 else out - 1) * (1 if out == 1 else i)
        return inner + low * (extent - 1)
    middle = (i + 0.5) / factor - 0.5
    if mode == "pytorch_half_pixel" and width == 1:
        return 0.0
    return extent / 2 * (1 - out / width) + middle if mode == "half_pixel_symmetric" else middle


def _neighbours(place: float, factor: float, attrs: Any) -> list[tuple[int, float]]:
    if attrs.mode == "nearest":
        low, ratio = int(np.floor(place)), place - np.floor(place)
        up = {
            "floor": False,
            "ceil": ratio > 0,
            "round_prefer_floor": ratio > 0.5,
            "round_prefer_ceil": ratio >= 0.5,
        }[attrs.nearest_mode]
        return [(low + up, 1.0)]
    shrink = min(factor, 1.0) if attrs.antialias else 1.0
    reach = int(np.ceil(FILTER_RADIUS[attrs.mode] / shrink))
    base = int(np.ceil(place)) - 1
    return [(k, _kernel((k - place) * shrink, attrs)) for k in range(base + 1 - reach, base + 1 + reach)]


def _kernel(distance: float, attrs: Any) -> float:
    d, a = abs(distance), attrs.cubic_coeff_a
    if attrs.mode == "linear":
        return max(1 - d, 0.0)
    if d <= 1:
        return float((a + 2) * d**3 - (a + 3) * d**2 + 1)
    return float(a * d**3 - 5 * a * d**2 + 8 * a * d - 4 * a) if d < 2 else 0.0
