"""Pooling over sliding windows: largest element, mean, norm."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, TupleType, Type
from relaxir.ops.common import FLOATS, NUMERIC, check_dtype, compute_dtype, load_wide
from relaxir.ops.conv import conjunction, guarded
from relaxir.ops.kernels import assign, cell, input_of, nest, output_of, ravel, scoped, seq, when
from relaxir.ops.reduce import lowest
from relaxir.ops.windows import (
    AutoPad,
    Window,
    check_windows,
    known_counts,
    taps,
    window_counts,
    windows_of,
)
from relaxir.sym import DimLike
from relaxir.tir import (
    Binary,
    BinOp,
    Buffer,
    Combine,
    Expr,
    Intrinsic,
    PrimFunc,
    ProgramBuilder,
    Stmt,
    Store,
    as_expr,
    binary,
    call,
    cast,
    const,
    identity,
    maximum,
    minimum,
)


@dataclass(frozen=True, slots=True)
class PoolAttrs(Attrs):
    """Attributes of poolings; empty tuples are the defaults, one value serves every spatial axis."""

    kernel: tuple[int, ...]
    """Extent of the window."""
    strides: tuple[int, ...] = ()
    """Distance of neighbouring windows (1)."""
    padding: tuple[DimLike, ...] = ()
    """Padding around x: one for all sides, one per axis, or all begins and then all ends (0)."""
    dilations: tuple[int, ...] = ()
    """Distance of neighbouring taps of the window (1)."""
    ceil_mode: bool = False
    """Also give windows that reach beyond the padded end, if they start inside x or the begin padding."""
    auto_pad: AutoPad = "NOTSET"
    """NOTSET uses ``padding``; SAME_* give ``ceil(extent / stride)`` windows; VALID pads nothing."""

    def taps_of(self, rank: int) -> tuple[int, ...]:
        """Extent of the window along each spatial axis."""
        return self.kernel * rank if len(self.kernel) == 1 else self.kernel

    def windows(self, shape: Sequence[DimLike]) -> tuple[Window, ...]:
        """Geometry for an operand of this shape."""
        return windows_of(self, shape[2:], self.taps_of(len(shape) - 2), self.ceil_mode)


@dataclass(frozen=True, slots=True)
class MaxPoolAttrs(PoolAttrs):
    """Attributes of `MaxPool`."""

    return_indices: bool = False
    """Also give the place of each largest element, in x flattened."""
    storage_order: int = 0
    """How places count the spatial axes: 0 row-major, 1 column-major."""


@dataclass(frozen=True, slots=True)
class AveragePoolAttrs(PoolAttrs):
    """Attributes of `AveragePool`."""

    count_include_pad: bool = False
    """Whether padding counts as elements of value 0."""


@dataclass(frozen=True, slots=True)
class LpPoolAttrs(PoolAttrs):
    """Attributes of `LpPool`."""

    p: float = 2
    """Exponent of the norm, above 0."""


class Pool(Op[Any]):
    """Base of poolings of (batch, channels, *spatial): ``finish(combine over the window of start(x))``."""

    params = (Param("x", "(batch, channels, *spatial)"),)
    Attrs = PoolAttrs
    kind = OpKind.REDUCE
    dtypes: ClassVar[tuple[str, ...]] = FLOATS

    def infer(self, args: tuple[Type, ...], attrs: PoolAttrs, ctx: InferCtx) -> Type:
        """Batch, channels, windows."""
        return self.pooled(args, attrs, ctx)

    def pooled(self, args: tuple[Type, ...], attrs: PoolAttrs, ctx: InferCtx) -> TensorType:
        """Type of the pooled values; checks the attributes."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", self.dtypes)
        check_windows(ctx, attrs, x.rank - 2)
        if len(attrs.kernel) not in (1, x.rank - 2) or min(attrs.kernel) < 1:
            ctx.fail(f"kernel {attrs.kernel} must be at least 1 along {x.rank - 2} spatial axes", code="attribute")
        return TensorType((*x.shape[:2], *window_counts(ctx, attrs, attrs.windows(x.shape))), x.dtype)

    def stages(self, f: ProgramBuilder, x: Buffer, y: Buffer, windows: tuple[Window, ...], attrs: Any) -> None:
        """Emit the loops."""
        raise NotImplementedError

    def lower(self, args: tuple[TensorType, ...], attrs: PoolAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Guarded loads, combined over the taps."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        self.stages(f, x, y, attrs.windows(x.shape), attrs)
        return f.build()


def tap_at(
    windows: Sequence[Window], point: Sequence[Expr], tap: Sequence[Expr]
) -> tuple[tuple[Expr, ...], list[Expr]]:
    """Index of x that a tap of a window reads, and the conditions for it to lie inside."""
    at = tuple(w.place(p, t) for w, p, t in zip(windows, point[2:], tap, strict=True))
    return (*point[:2], *at), [g for w, v in zip(windows, at, strict=True) for g in w.guard(v)]


def pool_examples(attrs: type[Any], *dtypes: str, **more: Any) -> tuple[Example, ...]:
    """Examples: every option on f32, then one use of each further dtype."""
    odd = {"w": 7}
    return (
        Example(
            ("f32[n, 2, h, w]",), "f32[n, 2, h - 1, w - 1]", attrs((2,), **more), min_size=2, sizes={"n": 1, "w": 4}
        ),
        Example(
            ("f32[1, c, h, w]",),
            "f32[1, c, (h + 1) // 2, (w + 1) // 2]",
            attrs((3, 3), (2, 2), (1, 1), **more),
            min_size=1,
            sizes=odd | {"c": 2},
        ),
        Example(("f32[1, 1, 4, 6]",), "f32[1, 1, 2, 3]", attrs((3,), (2,), ceil_mode=True, **more)),
        Example(("f32[1, 2, 7]",), "f32[1, 2, 3]", attrs((3,), (3,), (1, 2), ceil_mode=True, **more)),
        Example(("f32[2, 1, h]",), "f32[2, 1, h - 2]", attrs((3,), dilations=(2,), padding=(1,), **more), min_size=3),
        Example(
            ("f32[1, 2, h, w]",),
            "f32[1, 2, ceildiv(h, 2), ceildiv(w, 3)]",
            attrs((3, 2), (2, 3), auto_pad="SAME_UPPER", **more),
            sizes=odd,
        ),
        Example(("f64[1, 2, h]",), "f64[1, 2, ceildiv(h, 2)]", attrs((4,), (2,), auto_pad="SAME_LOWER", **more)),
        Example(("f32[1, 1, 3, d, 4]",), "f32[1, 1, 2, d, 3]", attrs((2, 1, 2), **more), min_size=1),
        *(Example((f"{d}[1, 2, 5]",), f"{d}[1, 2, 3]", attrs((3,), (2,), (1,), **more)) for d in dtypes),
    )


BAD_POOLS: Final = (
    BadExample(("f32[n, 3, 2, 8]",), "shape-mismatch", "kernel along spatial axis 0", PoolAttrs((3, 3))),
    BadExample(("f32[n, 3]",), "rank-mismatch", "spatial axis", PoolAttrs((3,))),
    BadExample(("f32[n, 3, 8, 8]",), "attribute", "kernel (1, 2, 3)", PoolAttrs((1, 2, 3))),
    BadExample(("f32[n, 3, 8]",), "attribute", "strides", PoolAttrs((2,), (0,))),
    BadExample(("bool[n, 3, 8]",), "dtype-mismatch", "x must be one of", PoolAttrs((2,))),
    BadExample(("f32[]",), "rank-mismatch", "at least one spatial axis", PoolAttrs((2,))),
)


def bad_pools(attrs: type[Any]) -> tuple[BadExample, ...]:
    """`BAD_POOLS` with another record of attributes."""
    return tuple(
        BadExample(b.args, b.code, b.phrase, attrs(b.attrs.kernel, b.attrs.strides))
        for b in BAD_POOLS
        if isinstance(b.attrs, PoolAttrs)
    )


class MaxPool(Pool):
    """Largest element of each window; with ``return_indices`` also its place.

    Padding never wins: it counts as -inf (the smallest integer). A NaN in the window wins. Places (int64) count in x
    flattened, batch and channels included; equal elements: the first; a window of padding alone: -1. Extents as in
    `conv`, with ceil mode. TVM: relax.nn.max_pool1d, relax.nn.max_pool2d, relax.nn.max_pool3d, ONNX: MaxPool.
    """

    name = "max_pool"
    Attrs = MaxPoolAttrs
    dtypes = NUMERIC
    examples = (
        *pool_examples(MaxPoolAttrs, "f16", "bf16", "i8", "u8"),
        Example(
            ("f32[2, 2, h, 4]",),
            ("f32[2, 2, h, 3]", "i64[2, 2, h, 3]"),
            MaxPoolAttrs((3, 2), padding=(1, 0), return_indices=True),
            min_size=1,
        ),
        Example(
            ("i32[2, 2, 5, 4]",),
            ("i32[2, 2, 3, 2]", "i64[2, 2, 3, 2]"),
            MaxPoolAttrs((2,), (2,), ceil_mode=True, return_indices=True, storage_order=1),
        ),
        Example(
            ("f32[1, 1, 5]",),
            ("f32[1, 1, 4]", "i64[1, 1, 4]"),
            MaxPoolAttrs((2,), return_indices=True),
            values=([[[1, np.nan, 1, -np.inf, -np.inf]]],),
        ),
    )
    bad_examples = bad_pools(MaxPoolAttrs)

    def infer(self, args: tuple[Type, ...], attrs: Any, ctx: InferCtx) -> Type:
        """The pooled values, and places of the same shape."""
        if attrs.storage_order not in (0, 1):
            ctx.fail(f"storage_order must be 0 or 1, got {attrs.storage_order}", code="attribute")
        y = self.pooled(args, attrs, ctx)
        return TupleType((y, TensorType(y.shape, "int64"))) if attrs.return_indices else y

    def lower(self, args: tuple[TensorType, ...], attrs: Any, out: tuple[TensorType, ...]) -> PrimFunc:
        """Run a reduction; with places, a search per window."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        windows = attrs.windows(x.shape)
        if attrs.return_indices:
            places = output_of(f, "places", out[1])
            f.block("search", y.shape, lambda *i: search(x, y, places, windows, attrs.storage_order, i))
            return f.build()

        def value(*i: Expr) -> Expr:
            at, inside = tap_at(windows, i[: len(y.shape)], i[len(y.shape) :])
            return guarded(inside, x.at(at), identity(Combine.MAX, x.dtype))

        f.reduce(y, tuple(w.kernel for w in windows), Combine.MAX, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Any) -> Array | tuple[Array, ...]:
        """Compare tap by tap."""
        x = args[0]
        kernel = attrs.taps_of(x.ndim - 2)
        inner = x.shape[2:]
        flat = np.arange(int(np.prod(inner))).reshape(inner[::-1] if attrs.storage_order else inner)
        flat = flat.T if attrs.storage_order else flat
        heads = np.arange(x.shape[0] * x.shape[1]).reshape(*x.shape[:2], *(1,) * (x.ndim - 2)) * flat.size
        values = taps(x, attrs, kernel, lowest(x.dtype, False), attrs.ceil_mode)
        where = taps(heads + flat, attrs, kernel, -1, attrs.ceil_mode)
        best: Any = None
        place: Any = None
        for (_, v), (_, p) in zip(values, where, strict=True):
            if best is None:
                best, place = v.copy(), p.copy()
                continue
            # only NaN differs from itself; integers have none
            news = np.logical_not(np.equal(v, v)) & np.equal(best, best)
            take = (p >= 0) & ((place < 0) | (v > best) | news)
            best, place = np.where(take, v, best), np.where(take, p, place)
        return (best, place) if attrs.return_indices else np.asarray(best)


def search(
    x: Buffer, y: Buffer, places: Buffer, windows: tuple[Window, ...], order: int, point: tuple[Expr, ...]
) -> Stmt:
    """Find the first largest element of one window and its place."""
    wide = compute_dtype(x.dtype)
    best, place = cell("best", wide), cell("place")

    def step(*tap: Expr) -> Stmt:
        at, inside = tap_at(windows, point, tap)
        value = load_wide(x, at)
        better = (place[()] < 0) | (value > best[()])
        if x.dtype in FLOATS:
            better = better | (call(Intrinsic.ISNAN, value) & call(Intrinsic.NOT, call(Intrinsic.ISNAN, best[()])))
        flat = ravel(at, x.shape)
        if order:
            flat = ravel((*at[:2], *reversed(at[2:])), (*x.shape[:2], *reversed(x.shape[2:])))
        take = when(better, assign(best, value), assign(place, flat))
        cond = conjunction(inside)
        return take if cond is None else when(cond, take)

    return scoped(
        (best, place),
        assign(best, identity(Combine.MAX, wide)),
        assign(place, -1),
        nest("k", tuple(w.kernel for w in windows), step),
        seq(Store(y, point, cast(best[()], y.dtype)), Store(places, point, place[()])),
    )


class SumPool(Pool):
    """Base of poolings by a sum: ``finish(sum over the window of start(x))``, in float32 for 16-bit floats."""

    def start(self, x: Expr, attrs: Any) -> Expr:
        """Map one element to what is summed."""
        return x

    def finish(self, acc: Expr, point: tuple[Expr, ...], windows: tuple[Window, ...], attrs: Any) -> Expr:
        """Map the sum of one window to the result."""
        return acc

    def stages(self, f: ProgramBuilder, x: Buffer, y: Buffer, windows: tuple[Window, ...], attrs: Any) -> None:
        """Sum, then `finish`."""
        total = f.temp("total", y.shape, compute_dtype(y.dtype))

        def value(*i: Expr) -> Expr:
            at, inside = tap_at(windows, i[: len(y.shape)], i[len(y.shape) :])
            return guarded(inside, self.start(load_wide(x, at), attrs), const(0, total.dtype))

        f.reduce(total, tuple(w.kernel for w in windows), Combine.SUM, value)
        f.compute(y, lambda *i: cast(self.finish(total[i], i, windows, attrs), y.dtype))


def counted_taps(window: Window, point: Expr, include_pad: bool) -> Expr:
    """Number of taps of one window that count: those inside x, or inside x and its padding."""
    start, taps_ = point * window.stride - as_expr(window.before), as_expr(window.kernel)

    def until(end: Expr) -> Expr:
        return (end - start + (window.dilation - 1)) // window.dilation

    first = const(0) if include_pad or window.before == 0 else maximum(until(const(0)), 0)
    if not window.beyond and (include_pad or window.after == 0):
        return taps_ - first
    end = as_expr(window.extent) + as_expr(window.after) if include_pad else as_expr(window.extent)
    return minimum(until(end), taps_) - first


class AveragePool(SumPool):
    """Mean of each window.

    The divisor is the number of elements inside x, or with ``count_include_pad`` inside x and its padding (never what
    ceil mode reaches beyond that). A window of padding alone gives 0.
    TVM: relax.nn.avg_pool1d, relax.nn.avg_pool2d, relax.nn.avg_pool3d, ONNX: AveragePool.
    """

    name = "average_pool"
    Attrs = AveragePoolAttrs
    examples = (
        *pool_examples(AveragePoolAttrs, "f16", "bf16"),
        *pool_examples(AveragePoolAttrs, count_include_pad=True),
        Example(("f32[1, 1, 3]",), "f32[1, 1, 5]", AveragePoolAttrs((2,), padding=(2, 1))),
    )
    bad_examples = bad_pools(AveragePoolAttrs)

    def finish(self, acc: Expr, point: tuple[Expr, ...], windows: tuple[Window, ...], attrs: Any) -> Expr:
        """Quotient by the count."""
        count: Expr = const(1)
        for window, p in zip(windows, point[2:], strict=True):
            count = count * counted_taps(window, p, attrs.count_include_pad)
        return acc / cast(count if not isinstance(count, Binary) else maximum(count, 1), acc.dtype)

    def reference(self, args: tuple[Array, ...], attrs: Any) -> Array:
        """Sum over counted taps, by definition."""
        x = args[0]
        wide = x.astype(np.float64)
        total: Any = 0
        for _, part in taps(wide, attrs, attrs.taps_of(x.ndim - 2), 0, attrs.ceil_mode):
            total = total + part
        windows = attrs.windows(x.shape)
        for axis, (w, n) in enumerate(zip(windows, known_counts(attrs, windows), strict=True)):
            low, high = (-w.before, w.extent + w.after) if attrs.count_include_pad else (0, w.extent)
            places = [[o * w.stride + k * w.dilation - w.before for k in range(w.kernel)] for o in range(n)]
            counts = np.array([max(1, sum(low <= p < high for p in row)) for row in places])
            total = total / counts.reshape(-1, *(1,) * (len(windows) - 1 - axis))
        return np.asarray(total).astype(x.dtype)


def powered(x: Expr, p: float) -> Expr:
    """``|x| ** p``."""
    size = call(Intrinsic.ABS, x)
    return x * x if p == 2 else size if p == 1 else binary(BinOp.POW, size, const(float(p), x.dtype))


def rooted(x: Expr, p: float) -> Expr:
    """``x ** (1 / p)``."""
    if p == 2:
        return call(Intrinsic.SQRT, x)
    return x if p == 1 else binary(BinOp.POW, x, const(1 / p, x.dtype))


class LpPool(SumPool):
    """Norm of each window: ``(sum of |x| ** p) ** (1 / p)``.

    Padding counts as 0. TVM: none, ONNX: LpPool.
    """

    name = "lp_pool"
    Attrs = LpPoolAttrs
    examples = (
        *pool_examples(LpPoolAttrs, "f16", "bf16"),
        Example(("f32[1, 2, n]",), "f32[1, 2, n - 1]", LpPoolAttrs((2,), p=3), min_size=2),
        Example(("f32[1, 2, n]",), "f32[1, 2, n - 1]", LpPoolAttrs((2,), p=1), min_size=2),
    )
    bad_examples = (
        *bad_pools(LpPoolAttrs),
        BadExample(("f32[1, 1, 4]",), "attribute", "p must be above 0", LpPoolAttrs((2,), p=0)),
    )

    def infer(self, args: tuple[Type, ...], attrs: Any, ctx: InferCtx) -> Type:
        """Batch, channels, windows."""
        if attrs.p <= 0:
            ctx.fail(f"p must be above 0, got {attrs.p}", code="attribute")
        return super().infer(args, attrs, ctx)

    def start(self, x: Expr, attrs: Any) -> Expr:
        """Power."""
        return powered(x, attrs.p)

    def finish(self, acc: Expr, point: tuple[Expr, ...], windows: tuple[Window, ...], attrs: Any) -> Expr:
        """Root."""
        return rooted(acc, attrs.p)

    def reference(self, args: tuple[Array, ...], attrs: Any) -> Array:
        """By its definition, in double."""
        x = args[0]
        total: Any = 0
        for _, part in taps(
            np.abs(x.astype(np.float64)) ** attrs.p, attrs, attrs.taps_of(x.ndim - 2), 0, attrs.ceil_mode
        ):
            total = total + part
        return np.asarray(total ** (1 / attrs.p)).astype(x.dtype)


POOLING: Final = (MaxPool(), AveragePool(), LpPool())
