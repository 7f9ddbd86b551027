"""Non-maximum suppression of boxes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, TupleGetItem
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.creation import read_size
from relaxir.ops.dynamic import first_of, fresh_size, tensor_type
from relaxir.ops.kernels import assign, cell, emit_op, input_of, loop, nest, output_of, scoped, seq, when
from relaxir.ops.merge import sorted_positions
from relaxir.ops.radix import sort_rows
from relaxir.sym import DimLike, min_, product
from relaxir.tir import Buffer, Expr, PrimFunc, ProgramBuilder, Stmt, Store, as_expr, const, maximum, minimum


@dataclass(frozen=True, slots=True)
class NmsAttrs(BaseAttrs):
    """Boxes kept per class at most (any dim), and the form of boxes: centre and size, or two opposite corners."""

    max_boxes: DimLike
    center: bool = False


NMS_PARAMS: Final = (
    Param("boxes", "(batch, boxes, 4)", ("float32", "float64")),
    Param("scores", "(batch, classes, boxes)", ("float32", "float64")),
    Param("iou_threshold", "scalar"),
    Param("score_threshold", "scalar"),
)
BAD: Final = (
    BadExample(("f32[1, n, 4]", "f32[1, 2, n]", "f32[1]", "f32[]"), "rank-mismatch", "iou_threshold", NmsAttrs(3)),
    BadExample(("f32[1, n, 5]", "f32[1, 2, n]", "f32[]", "f32[]"), "shape-mismatch", "coordinates", NmsAttrs(3)),
    BadExample(("f32[1, n, 4]", "f64[1, 2, n]", "f32[]", "f32[]"), "dtype-mismatch", "scores", NmsAttrs(3)),
)


def nms_capacity(args: tuple[Type, ...], attrs: NmsAttrs, ctx: InferCtx) -> DimLike:
    """Check the operands; the most boxes that can be selected."""
    boxes, scores = ctx.tensor(args, 0, "boxes"), ctx.tensor(args, 1, "scores")
    for name, t, rank in (("boxes", boxes, 3), ("scores", scores, 3)):
        if t.rank != rank:
            ctx.fail(f"{name} must have rank {rank}, got {t.rank}", code="rank-mismatch")
    if boxes.dtype not in ("float32", "float64"):
        ctx.fail(f"boxes must be float32 or float64, got {boxes.dtype}", code="dtype-mismatch")
    for n, name in enumerate(("scores", "iou_threshold", "score_threshold"), 1):
        t = ctx.tensor(args, n, name)
        if n > 1 and t.rank:
            ctx.fail(f"{name} must be a scalar, got rank {t.rank}", code="rank-mismatch")
        if t.dtype != boxes.dtype:
            ctx.fail(f"{name} must be {boxes.dtype} as boxes, got {t.dtype}", code="dtype-mismatch")
    ctx.require_equal(boxes.shape[2], 4, "number of coordinates of a box")
    ctx.require_equal(boxes.shape[0], scores.shape[0], "batch of boxes and of scores")
    ctx.require_equal(boxes.shape[1], scores.shape[2], "number of boxes and of scores")
    ctx.require_at_least(0, attrs.max_boxes, "max_boxes")
    return product((*scores.shape[:2], min_(scores.shape[2], attrs.max_boxes)))


class NmsSelect(Op[NmsAttrs]):
    """The kernel of `NonMaxSuppression`: ``(selected, count)``, of which the first ``count`` rows are meant.

    ``selected`` has room for the most that can be; the rest is 0. TVM: none, ONNX: part of NonMaxSuppression.
    """

    name = "nms_select"
    Attrs = NmsAttrs
    params = NMS_PARAMS
    examples = (
        Example(
            ("f32[2, 4, 4]", "f32[2, 3, 4]", "f32[]", "f32[]"),
            ("i64[12, 3]", "i64[]"),
            NmsAttrs(2),
            values=(None, None, 0.3, 0.1),
            low=0.0,
            high=1.0,
        ),
        Example(
            ("f32[1, 6, 4]", "f32[1, n, 6]", "f32[]", "f32[]"),
            ("i64[4 * n, 3]", "i64[]"),
            NmsAttrs(4, True),
            values=(None, None, 0.1, 0.0),
            low=0.5,
            high=1.5,
        ),
    )
    bad_examples = BAD

    def infer(self, args: tuple[Type, ...], attrs: NmsAttrs, ctx: InferCtx) -> Type:
        """Room for all that may be selected, and a count."""
        return TupleType((TensorType((nms_capacity(args, attrs, ctx), 3), "int64"), TensorType((), "int64")))

    def lower(self, args: tuple[TensorType, ...], attrs: NmsAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Sort by score per class, then one serial pass that keeps what overlaps no better box too much."""
        f = ProgramBuilder(self.name)
        boxes, scores, iou, least = (input_of(f, p.name, t) for p, t in zip(self.params, args, strict=True))
        selected, count = output_of(f, "selected", out[0]), output_of(f, "count", out[1])
        order, each = f.temp("order", scores.shape, "int64"), scores.shape[2]
        sort_rows(f, scores, 2, True, each, lambda row, rank, place: Store(order, (*row, rank), place))
        f.compute(selected, lambda *i: const(0), "clear")
        total, start, keep = cell("total"), cell("start"), cell("keep", "bool")
        most = as_expr(attrs.max_boxes)

        def candidate(b: Expr, c: Expr, rank: Expr) -> Stmt:
            box = order[b, c, rank]

            def rival(k: Expr) -> Stmt:
                overlap = iou_exceeds(boxes, b, box, selected[start[()] + k, 2], iou[()], attrs.center)
                return when(keep[()] & overlap, assign(keep, False))

            row = (Store(selected, (total[()], const(n)), v) for n, v in enumerate((b, c, box)))
            return seq(
                assign(keep, (scores[b, c, box] > least[()]) & (total[()] - start[()] < most)),
                loop("k", total[()] - start[()], rival),
                when(keep[()], *row, assign(total, total[()] + 1)),
            )

        def one_class(b: Expr, c: Expr) -> Stmt:
            return seq(assign(start, total[()]), loop("rank", scores.shape[2], lambda r: candidate(b, c, r)))

        def suppress() -> Stmt:
            classes = nest("c", scores.shape[:2], one_class)
            return scoped((total, start, keep), assign(total, 0), classes, Store(count, (), total[()]))

        f.block("suppress", (), suppress)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: NmsAttrs) -> tuple[Array, ...]:
        """By its definition."""
        found = select_boxes(args, attrs)
        b, c, s = args[1].shape
        padded = np.zeros((b * c * min(s, int(attrs.max_boxes)), 3), np.int64)
        padded[: len(found)] = found
        return padded, np.array(len(found), np.int64)


def corners(boxes: Buffer, b: Expr, s: Expr, center: bool) -> Iterator[tuple[Expr, Expr]]:
    """Lower and upper end of a box along each of its two directions."""
    for n in range(2):
        if center:
            middle, half = boxes[b, s, n], boxes[b, s, n + 2] * const(0.5, boxes.dtype)
            yield middle - half, middle + half
        else:
            one, other = boxes[b, s, n], boxes[b, s, n + 2]
            yield minimum(one, other), maximum(one, other)


def iou_exceeds(boxes: Buffer, b: Expr, one: Expr, other: Expr, threshold: Expr, center: bool) -> Expr:
    """Whether intersection over union of two boxes is above the threshold (never, for an empty intersection)."""
    (y0, y1), (x0, x1) = corners(boxes, b, one, center)
    (v0, v1), (u0, u1) = corners(boxes, b, other, center)
    zero = const(0, boxes.dtype)
    height = maximum(minimum(y1, v1) - maximum(y0, v0), zero)
    width = maximum(minimum(x1, u1) - maximum(x0, u0), zero)
    shared = height * width
    union = (y1 - y0) * (x1 - x0) + (v1 - v0) * (u1 - u0) - shared
    return (shared > zero) & (union > zero) & (shared / union > threshold)


def select_boxes(args: tuple[Array, ...], attrs: NmsAttrs) -> Array:
    """Selected (batch, class, box) rows in NumPy."""
    boxes, scores, threshold, least = args
    first, second = boxes[..., :2], boxes[..., 2:]
    half = second * boxes.dtype.type(0.5)
    low = first - half if attrs.center else np.minimum(first, second)
    high = first + half if attrs.center else np.maximum(first, second)
    area = np.prod(high - low, -1)
    found: list[tuple[int, int, int]] = []
    for b, c in np.ndindex(scores.shape[:2]):
        kept: list[int] = []
        for s in sorted_positions(scores[b, c], 0, True):
            side = np.maximum(np.minimum(high[b, s], high[b, kept]) - np.maximum(low[b, s], low[b, kept]), 0)
            shared = np.prod(side, -1)
            union = area[b, s] + area[b, kept] - shared
            overlaps = (shared > 0) & (union > 0) & (shared / np.where(union > 0, union, 1) > threshold)
            if scores[b, c, s] > least and len(kept) < int(attrs.max_boxes) and not overlaps.any():
                kept.append(int(s))
        found += [(b, c, s) for s in kept]
    return np.array(found, np.int64).reshape(-1, 3)


class NonMaxSuppression(Op[NmsAttrs]):
    """Boxes that overlap no better box of their class too much: rows ``(batch, class, box)`` as ``i64[m, 3]``.

    Per class, boxes are visited by descending score (the earlier of equal ones first); one is selected if its score is
    above ``score_threshold``, its intersection over union with every selected box is at most ``iou_threshold``, and
    fewer than ``max_boxes`` are selected. TVM: relax.vision.all_class_non_max_suppression, ONNX: NonMaxSuppression.
    """

    name = "non_max_suppression"
    Attrs = NmsAttrs
    params = NMS_PARAMS
    examples = (
        Example(
            ("f32[1, n, 4]", "f32[1, 2, n]", "f32[]", "f32[]"), "i64[m, 3]", NmsAttrs(3), values=(None, None, 0.5, 0.0)
        ),
    )
    bad_examples = BAD

    def infer(self, args: tuple[Type, ...], attrs: NmsAttrs, ctx: InferCtx) -> Type:
        """A fresh number of rows."""
        return TensorType((fresh_size(ctx, "m", nms_capacity(args, attrs, ctx)), 3), "int64")

    def reference(self, args: tuple[Array, ...], attrs: NmsAttrs) -> Array:
        """By its definition."""
        return select_boxes(args, attrs)

    def decompose(self, args: tuple[GraphExpr, ...], attrs: NmsAttrs, bb: BlockBuilder) -> GraphExpr | None:
        """Select into the room for all, read the count, cut."""
        pair = emit_op(bb, NmsSelect(), *args, attrs=attrs)
        selected, count = (bb.normalize(TupleGetItem(pair, n)) for n in range(2))
        return first_of(bb, selected, read_size(bb, count, "m", tensor_type(selected).shape[0]))


DETECTION: Final[tuple[Op[Any], ...]] = (NmsSelect(), NonMaxSuppression())
