"""Scaled dot-product attention."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import sqrt
from typing import Any, Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import (
    BOOL,
    FLOATS,
    broadcast_read,
    check_dtype,
    check_same_dtype,
    compute_dtype,
    load_wide,
    tensors_of,
    widen,
)
from relaxir.ops.kernels import input_of, output_of
from relaxir.sym import DimLike, floordiv, mod
from relaxir.tir import (
    Buffer,
    Combine,
    Expr,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    Store,
    as_expr,
    call,
    cast,
    const,
    eq,
    select,
)


@dataclass(frozen=True, slots=True)
class AttentionAttrs(Attrs):
    """Attributes of `Attention`."""

    scale: float = 0.0
    """Factor of the scores; 0 means ``1 / sqrt(d)``."""
    causal: bool = False
    """Query ``i`` sees keys ``j <= i + causal_offset`` only."""
    causal_offset: DimLike = 0
    """Keys that precede the first query (the length of a cache)."""
    softcap: float = 0.0
    """Above 0: scores become ``softcap * tanh(score / softcap)``, before the mask."""
    empty_rows: Literal["nan", "zero", "guard"] = "nan"
    """What a query gives whose keys are all masked: NaN, as softmax does, or 0, as ONNX's Attention wants. ``guard``:
    as zero, and 0 also where the softmax is NaN for another reason: ``where(isnan(p), 0, p)`` around it means that.
    Where there are no keys at all, every query gives 0: a sum over nothing."""
    fill: float = 0.0
    """Score of a key that a bool mask hides; 0 means -inf. A finite one gives hidden keys equal weights where a query
    has no other."""
    rows_first: str = ""
    """Which of ``q``, ``k``, ``v`` and the result ``o`` have the length before the heads: (b, s, h, d)."""


@dataclass(frozen=True, slots=True)
class Heads:
    """Axes of the scores: (batch, heads, queries, keys), with heads split as (groups, share) when groups share keys."""

    batch: DimLike
    groups: DimLike
    share: DimLike | None
    queries: DimLike
    keys: DimLike

    @property
    def rows(self) -> tuple[DimLike, ...]:
        """Shape of one value per query."""
        return (self.batch, self.groups, *(() if self.share is None else (self.share,)), self.queries)

    def head(self, i: Sequence[Expr]) -> Expr:
        """Query head of a point of the scores."""
        return i[1] if self.share is None else i[1] * as_expr(self.share) + i[2]


OPERANDS: Final = "qkvo"


def swap_heads(items: Sequence[Any], swapped: bool) -> tuple[Any, ...]:
    """Four items in the other order of heads and length, if ``swapped``."""
    a, b, c, d = items
    return (a, c, b, d) if swapped else (a, b, c, d)


class Attention(Op[AttentionAttrs]):
    """Scaled dot-product attention: ``softmax(q @ transpose(k) * scale + mask) @ v``.

    Shapes: q (b, h, s, d), k (b, g, t, d), v (b, g, t, e), result (b, h, s, e); those named in ``rows_first`` have the
    length before the heads. With fewer key heads than query heads, g divides h and each serves ``h / g`` neighbouring
    query heads. The mask broadcasts to (b, h, s, t): bool
    keeps where true, floats are added. A row whose keys are all masked gives NaN or 0 by ``empty_rows``, one
    without keys (t is 0) gives 0. Scores of 16-bit floats are float32. TVM:
    relax.nn.attention (which has queries before heads), ONNX: Attention.
    """

    name = "attention"
    params = (
        Param("q", "(b, h, s, d)", FLOATS),
        Param("k", "(b, g, t, d)", FLOATS),
        Param("v", "(b, g, t, e)", FLOATS),
        Param("mask", "broadcasts to (b, h, s, t); bool or q's dtype", (*BOOL, *FLOATS), optional=True),
    )
    Attrs = AttentionAttrs
    kind = OpKind.OPAQUE
    examples = (
        Example(("f32[b, 2, s, 4]", "f32[b, 2, t, 4]", "f32[b, 2, t, 3]"), "f32[b, 2, s, 3]", sizes={"b": 1, "t": 5}),
        Example(
            ("f32[1, 4, s, 2]", "f32[1, 2, t, 2]", "f32[1, 2, t, 2]", "f32[s, t]"),
            "f32[1, 4, s, 2]",
            AttentionAttrs(0.3, softcap=2.0),
            sizes={"t": 3},
        ),
        Example(
            ("f32[b, 1, 3, 2]", "f32[b, 1, t, 2]", "f32[b, 1, t, 2]", "bool[b, 1, 1, t]"),
            "f32[b, 1, 3, 2]",
            AttentionAttrs(empty_rows="zero", fill=-1e9),
            sizes={"b": 2},
        ),
        Example(
            ("f64[1, h, s, 2]", "f64[1, h, s, 2]", "f64[1, h, s, 2]"),
            "f64[1, h, s, 2]",
            AttentionAttrs(causal=True),
            sizes={"h": 2},
        ),
        Example(
            ("f32[1, 1, s, 2]", "f32[1, 1, 7, 2]", "f32[1, 1, 7, 2]"),
            "f32[1, 1, s, 2]",
            AttentionAttrs(causal=True, causal_offset=3),
        ),
        Example(("f16[1, 2, 3, 4]", "f16[1, 1, t, 4]", "f16[1, 1, t, 4]"), "f16[1, 2, 3, 4]", min_size=1),
        Example(
            ("f32[b, s, 4, 2]", "f32[b, t, 2, 2]", "f32[b, 2, t, 3]", "f32[b, 1, 1, t]"),
            "f32[b, s, 4, 3]",
            AttentionAttrs(0.5, empty_rows="guard", rows_first="qko"),
            sizes={"t": 3},
        ),
        Example(
            ("f32[1, 1, 2, 2]", "f32[1, 1, 2, 2]", "f32[1, 1, 2, 2]", "bool[2, 2]"),
            "f32[1, 1, 2, 2]",
            values=(None, None, None, [[False, False], [True, False]]),
        ),
    )
    bad_examples = (
        BadExample(("f32[1, 2, 3, 4]", "f32[1, 2, 3, 5]", "f32[1, 2, 3, 4]"), "shape-mismatch", "axis 3 of q and of k"),
        BadExample(
            ("f32[1, 3, 3, 4]", "f32[1, 2, 3, 4]", "f32[1, 2, 3, 4]"), "shape-mismatch", "heads of q modulo heads of k"
        ),
        BadExample(
            ("f32[1, 1, 2, 2]", "f32[1, 1, 2, 2]", "f32[1, 1, 2, 2]"),
            "attribute",
            "rows_first must be",
            AttentionAttrs(rows_first="x"),
        ),
        BadExample(("f32[2, 3, 4]", "f32[2, 3, 4]", "f32[2, 3, 4]"), "rank-mismatch", "q has rank 3"),
        BadExample(("f32[1, 2, 3, 4]", "f32[1, 2, 3, 4]", "f32[1, 2, 3, 4]", "f32[2, 3]"), "shape-mismatch", "axis 2"),
        BadExample(
            ("f32[1, 2, 3, 4]", "f32[1, 2, 3, 4]", "f32[1, 2, 3, 4]", "i64[3, 3]"), "dtype-mismatch", "mask must be"
        ),
    )

    def infer(self, args: tuple[Type, ...], attrs: AttentionAttrs, ctx: InferCtx) -> Type:
        """Shape of q with the last extent of v."""
        q, k, v = tensors_of(ctx, args[:3], ("q", "k", "v"))
        check_dtype(ctx, q, "q", FLOATS)
        check_same_dtype(ctx, (q, k, v), ("q", "k", "v"))
        for t, name in ((q, "q"), (k, "k"), (v, "v")):
            if t.rank != 4:
                ctx.fail(f"{name} has rank {t.rank}, expected (batch, heads, length, size)", code="rank-mismatch")
        if not set(attrs.rows_first) <= set(OPERANDS):
            ctx.fail(f"rows_first must be letters of {OPERANDS}, got {attrs.rows_first}", code="attribute")
        qs, ks, vs = (swap_heads(t.shape, n in attrs.rows_first) for t, n in ((q, "q"), (k, "k"), (v, "v")))
        ctx.require_equal(qs[0], ks[0], "axis 0 of q and of k")
        ctx.require_equal(qs[3], ks[3], "axis 3 of q and of k")
        for axis, what in ((0, "batch"), (1, "heads"), (2, "length")):
            ctx.require_equal(ks[axis], vs[axis], f"{what} of k and of v")
        if qs[1] != ks[1]:
            ctx.require_at_least(1, ks[1], "heads of k")
            ctx.require_equal(mod(qs[1], ks[1]), 0, "heads of q modulo heads of k")
        if len(args) > 3:
            mask = ctx.tensor(args, 3, "mask")
            check_dtype(ctx, mask, "mask", (q.dtype, *BOOL))
            want = (*qs[:3], ks[2])
            if mask.rank > 4:
                ctx.fail(f"mask has rank {mask.rank}, expected at most 4", code="rank-mismatch")
            merged = ctx.broadcast((want, mask.shape))
            for axis, (a, b) in enumerate(zip(merged, want, strict=True)):
                ctx.require_equal(a, b, f"axis {axis} of the broadcast mask and of the scores")
        return TensorType(swap_heads((*qs[:3], vs[3]), "o" in attrs.rows_first), q.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: AttentionAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Scores, their row maximum, exponentials, row sums, weighted sums, quotient."""
        f = ProgramBuilder(self.name)
        q, k, v = (input_of(f, n, t) for n, t in zip(("q", "k", "v"), args, strict=False))
        mask = input_of(f, "mask", args[3]) if len(args) > 3 else None
        y = output_of(f, "y", out[0])
        swapped = {n: n in attrs.rows_first for n in OPERANDS}
        qs, ks, vs = (swap_heads(t.shape, swapped[n]) for t, n in ((q, "q"), (k, "k"), (v, "v")))
        share = None if qs[1] == ks[1] else floordiv(qs[1], ks[1])
        heads = Heads(qs[0], ks[1], share, qs[2], ks[2])
        wide = compute_dtype(y.dtype)
        full = (*heads.rows, heads.keys)
        raw, scores, weights = (f.temp(n, full, wide) for n in ("raw", "scores", "weights"))
        top, total = (f.temp(n, heads.rows, wide) for n in ("top", "total"))
        mixed = f.temp("mixed", (*heads.rows, vs[3]), wide)

        def dot(*i: Expr) -> Expr:
            *_, s, t, d = i
            left = load_wide(q, swap_heads((i[0], heads.head(i), s, d), swapped["q"]))
            return left * load_wide(k, swap_heads((i[0], i[1], t, d), swapped["k"]))

        f.reduce(raw, (qs[3],), Combine.SUM, dot)
        factor, limits = scale_expr(attrs, qs[3], wide), (*qs[:3], ks[2])
        f.compute(scores, lambda *i: masked(raw[i] * factor, (i[0], heads.head(i), *i[-2:]), mask, limits, attrs))
        f.reduce(top, (heads.keys,), Combine.MAX, lambda *i: scores[i])

        def shift(i: tuple[Expr, ...]) -> Expr:
            peak = top[i]
            return peak if attrs.empty_rows == "nan" else select(eq(peak, -np.inf), const(0, wide), peak)

        f.compute(weights, lambda *i: call(Intrinsic.EXP_NONPOSITIVE, scores[i] - shift(i[:-1])))
        f.reduce(total, (heads.keys,), Combine.SUM, lambda *i: weights[i])

        def term(*i: Expr) -> Expr:
            return weights[(*i[:-2], i[-1])] * load_wide(v, swap_heads((i[0], i[1], i[-1], i[-2]), swapped["v"]))

        f.reduce(mixed, (heads.keys,), Combine.SUM, term)

        def result(*i: Expr) -> Store:
            value, row = mixed[i] / total[i[:-1]], i[:-1]
            if attrs.empty_rows == "zero":
                value = select(eq(total[row], 0.0), const(0, wide), value)
            elif attrs.empty_rows == "guard":
                value = select(total[row] > 0.0, value, const(0, wide))  # false for NaN too
            elif not isinstance(heads.keys, int) or not heads.keys:
                value = select(eq(as_expr(heads.keys), 0), const(0, wide), value)  # a sum over nothing, not 0 / 0
            place = swap_heads((i[0], heads.head(i), i[-2], i[-1]), swapped["o"])
            return Store(y, place, cast(value, y.dtype))

        f.block("y", mixed.shape, result)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: AttentionAttrs) -> Array:
        """By its definition, in double."""
        wide = (widen(a).astype(np.float64) for a in args[:3])
        q, k, v = (np.swapaxes(a, 1, 2) if n in attrs.rows_first else a for a, n in zip(wide, "qkv", strict=True))
        share = q.shape[1] // max(k.shape[1], 1)
        k, v = np.repeat(k, share, 1), np.repeat(v, share, 1)
        scores: Any = np.matmul(q, np.swapaxes(k, 2, 3)) * (attrs.scale or 1 / sqrt(max(q.shape[3], 1)))
        if attrs.softcap > 0:
            scores = attrs.softcap * np.tanh(scores / attrs.softcap)
        if len(args) > 3:
            mask = args[3]
            scores = (
                np.where(mask, scores, attrs.fill or -np.inf)
                if mask.dtype == bool
                else scores + mask.astype(np.float64)
            )
        if attrs.causal:
            places = np.arange(scores.shape[3]) - np.arange(scores.shape[2])[:, None]
            scores = np.where(places <= int(attrs.causal_offset), scores, -np.inf)
        top = np.max(scores, -1, keepdims=True, initial=-np.inf)
        if attrs.empty_rows != "nan":
            top = np.where(top == -np.inf, 0, top)
        weights = np.exp(scores - top)
        total = weights.sum(-1, keepdims=True)
        y = np.matmul(weights, v) / (total if scores.shape[-1] else 1.0)
        if attrs.empty_rows != "nan":
            y = np.where(total == 0, 0, y) if attrs.empty_rows == "zero" else np.where(total > 0, y, 0)
        y = np.swapaxes(y, 1, 2) if "o" in attrs.rows_first else y
        return np.ascontiguousarray(y).astype(args[0].dtype)


def scale_expr(attrs: AttentionAttrs, size: DimLike, dtype: str) -> Expr:
    """Factor of the scores; ``1 / sqrt(d)`` of a constant d is a constant."""
    if attrs.scale:
        return const(attrs.scale, dtype)
    if isinstance(size, int):
        return const(1 / sqrt(max(size, 1)), dtype)
    return call(Intrinsic.RSQRT, as_expr(size, dtype))


def masked(
    score: Expr, at: tuple[Expr, ...], mask: Buffer | None, limits: tuple[DimLike, ...], attrs: AttentionAttrs
) -> Expr:
    """One score with cap, mask and causal limit; ``at`` is its (batch, head, query, key), ``limits`` their extents."""
    low = const(-np.inf, score.dtype)
    if attrs.softcap > 0:
        cap = const(attrs.softcap, score.dtype)
        score = cap * call(Intrinsic.TANH, score / cap)
    if mask is not None:
        entry = mask.at(broadcast_read(mask, at, limits))
        hidden = const(attrs.fill, score.dtype) if attrs.fill else low
        score = select(entry, score, hidden) if mask.dtype == "bool" else score + cast(entry, score.dtype)
    if attrs.causal:
        score = select(at[3] <= at[2] + as_expr(attrs.causal_offset), score, low)
    return score


ATTENTION: Final = (Attention(),)
