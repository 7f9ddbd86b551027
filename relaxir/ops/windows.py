"""Geometry of sliding windows: what convolutions and poolings share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, Protocol

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.op import InferCtx
from relaxir.sym import DimLike, Facts, add, ceildiv, floordiv, max_, min_, mul, sub
from relaxir.tir import Expr, as_expr

AutoPad = Literal["NOTSET", "SAME_UPPER", "SAME_LOWER", "VALID"]


class WindowAttrs(Protocol):
    """What every attribute record with windows has; empty tuples mean the defaults, one value serves all axes."""

    @property
    def strides(self) -> tuple[int, ...]:
        """Distance of neighbouring windows (default 1)."""

    @property
    def padding(self) -> tuple[DimLike, ...]:
        """Elements around the input: one for all sides, one per axis, or all begins and then all ends (default 0)."""

    @property
    def dilations(self) -> tuple[int, ...]:
        """Distance of neighbouring taps (default 1)."""

    @property
    def auto_pad(self) -> AutoPad:
        """NOTSET uses ``padding``; SAME_* pad so that the result has ``ceil(extent / stride)``; VALID pads nothing."""


@dataclass(frozen=True, slots=True)
class Window:
    """One spatial axis: tap ``k`` of window ``o`` reads element ``o * stride + k * dilation - before``."""

    extent: DimLike
    kernel: DimLike
    stride: int
    dilation: int
    before: DimLike
    after: DimLike
    beyond: bool = False
    """Whether windows may reach past the padded end (ceil mode)."""

    @property
    def span(self) -> DimLike:
        """Elements from the first to the last tap, both included."""
        return span_of(self.kernel, self.dilation)

    @property
    def padded(self) -> DimLike:
        """Extent with its padding."""
        return add(add(self.extent, self.before), self.after)

    @property
    def count(self) -> DimLike:
        """Number of windows, where at least one fits (ceil mode: only windows that start before the end padding)."""
        room = sub(self.padded, self.span)
        if not self.beyond:
            return add(floordiv(room, self.stride), 1)
        return min_(add(ceildiv(room, self.stride), 1), ceildiv(add(self.extent, self.before), self.stride))

    def place(self, window: Expr, tap: Expr) -> Expr:
        """Index read by a tap; negative or too large inside padding."""
        return window * self.stride + tap * self.dilation - as_expr(self.before)

    def guard(self, index: Expr) -> tuple[Expr, ...]:
        """Conditions for ``index`` to lie inside the input; none where no window can leave it."""
        low = () if self.before == 0 else (index >= 0,)
        high = () if self.after == 0 and not self.beyond else (index < self.extent,)
        return low + high


def span_of(kernel: DimLike, dilation: int) -> DimLike:
    """Elements from the first to the last tap of a dilated kernel, both included."""
    return add(mul(sub(kernel, 1), dilation), 1)


def per_axis(values: Sequence[int], rank: int) -> tuple[int, ...]:
    """One value per spatial axis, 1 by default."""
    return tuple(values) * rank if len(values) == 1 else tuple(values) or (1,) * rank


def pads_of(padding: Sequence[DimLike], rank: int) -> tuple[tuple[DimLike, DimLike], ...]:
    """Pairs (before, after) per spatial axis; one value serves every side, one per axis serves both of its sides."""
    full = tuple(padding) or (0,)
    full = full * rank if len(full) == 1 else full
    full = full * 2 if len(full) == rank else full
    return tuple(zip(full[:rank], full[rank:], strict=True))


def same_pads(total: DimLike, auto_pad: str) -> tuple[DimLike, DimLike]:
    """A total split in halves, the odd element after (SAME_UPPER) or before."""
    half = floordiv(total, 2)
    return (half, sub(total, half)) if auto_pad == "SAME_UPPER" else (sub(total, half), half)


def windows_of(
    attrs: WindowAttrs, extents: Sequence[DimLike], kernel: Sequence[DimLike], ceil_mode: bool = False
) -> tuple[Window, ...]:
    """One `Window` per spatial axis, with the pads that ``auto_pad`` means (symbolic where the extents are)."""
    rank = len(extents)
    strides, dilations = per_axis(attrs.strides, rank), per_axis(attrs.dilations, rank)
    pads = pads_of(attrs.padding if attrs.auto_pad == "NOTSET" else (), rank)
    known = Facts()
    found: tuple[Window, ...] = ()
    for extent, taps, stride, dilation, (before, after) in zip(extents, kernel, strides, dilations, pads, strict=True):
        if attrs.auto_pad.startswith("SAME"):
            reach = add(mul(sub(ceildiv(extent, stride), 1), stride), span_of(taps, dilation))
            before, after = same_pads(known.simplify(max_(0, sub(reach, extent))), attrs.auto_pad)
        beyond = ceil_mode and stride > 1 and not attrs.auto_pad.startswith("SAME")
        found += (Window(extent, taps, stride, dilation, before, after, beyond),)
    return found


def check_windows(ctx: InferCtx, attrs: WindowAttrs, rank: int) -> None:
    """Raise unless the attributes fit ``rank`` spatial axes."""
    if rank < 1:
        ctx.fail("x needs at least one spatial axis after (batch, channels)", code="rank-mismatch")
    check_steps(ctx, rank, strides=attrs.strides, dilations=attrs.dilations)
    check_padding(ctx, rank, attrs.padding)


def check_steps(ctx: InferCtx, rank: int, **given: tuple[int, ...]) -> None:
    """Raise unless each attribute has positive values for ``rank`` spatial axes: none, one for all, or one each."""
    for name, values in given.items():
        if len(values) not in (0, 1, rank):
            ctx.fail(f"{name} has {len(values)} values for {rank} spatial axes", code="attribute")
        if any(v < 1 for v in values):
            ctx.fail(f"{name} must be at least 1, got {values}", code="attribute")


def check_padding(ctx: InferCtx, rank: int, padding: tuple[DimLike, ...]) -> None:
    """Raise unless the pads are at least 0, and as many as `pads_of` takes."""
    if len(padding) not in (0, 1, rank, 2 * rank):
        ctx.fail(f"padding has {len(padding)} values for {rank} spatial axes", code="attribute")
    for pad in padding:
        if isinstance(pad, int) and pad < 0:
            ctx.fail(f"padding must be at least 0, got {pad}", code="attribute", help="crop with strided_slice")
        ctx.require_at_least(0, pad, "padding")


def window_counts(ctx: InferCtx, attrs: WindowAttrs, windows: Sequence[Window]) -> tuple[DimLike, ...]:
    """Result extents; requires that a window fits along every axis (but for SAME, where it always does)."""
    counts: tuple[DimLike, ...] = ()
    for axis, window in enumerate(windows):
        if attrs.auto_pad.startswith("SAME"):
            counts += (ceildiv(window.extent, window.stride),)
            continue
        ctx.require_le(window.span, window.padded, f"kernel along spatial axis {axis} and its padded input")
        counts += (ctx.facts.simplify(window.count),)
    return counts


def numbers(windows: Sequence[Window], counts: Sequence[int]) -> tuple[tuple[int, int, int, int, int], ...]:
    """(count, kernel, stride, dilation, before) of each axis as ints, for references."""
    return tuple(
        (int(n), int(w.kernel), w.stride, w.dilation, int(w.before)) for w, n in zip(windows, counts, strict=True)
    )


def known_counts(attrs: WindowAttrs, windows: Sequence[Window]) -> tuple[int, ...]:
    """Result extents for constant geometry."""
    if attrs.auto_pad.startswith("SAME"):
        return tuple(-(-int(w.extent) // w.stride) for w in windows)
    return tuple(int(w.count) for w in windows)


def taps(
    x: Array, attrs: WindowAttrs, kernel: Sequence[int], fill: Any, ceil_mode: bool = False
) -> Iterator[tuple[tuple[int, ...], Array]]:
    """For references: each position in the kernel with the elements it reads, shaped (batch, channels, *windows)."""
    windows = windows_of(attrs, x.shape[2:], kernel, ceil_mode)
    rows = numbers(windows, known_counts(attrs, windows))
    ends = [
        max(0, (n - 1) * s + (k - 1) * d + 1 - before - e)
        for (n, k, s, d, before), e in zip(rows, x.shape[2:], strict=True)
    ]
    pads = [(0, 0), (0, 0), *((row[4], end) for row, end in zip(rows, ends, strict=True))]
    padded = np.pad(x, pads, constant_values=fill)
    for tap in np.ndindex(*(row[1] for row in rows)):
        cut = tuple(slice(t * d, t * d + n * s, s) for t, (n, _, s, d, _) in zip(tap, rows, strict=True))
        yield tap, padded[(slice(None), slice(None), *cut)]
