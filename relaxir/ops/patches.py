"""Windows laid out as columns, and columns added back into an image."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type, describe
from relaxir.ops.common import NUMERIC, check_dtype, compute_dtype, load_wide
from relaxir.ops.conv import guarded
from relaxir.ops.kernels import input_of, output_of, ravel, unravel, within
from relaxir.ops.windows import (
    AutoPad,
    Window,
    check_windows,
    known_counts,
    taps,
    window_counts,
    windows_of,
)
from relaxir.sym import DimLike, ceildiv, dim, floordiv, max_, mod, product, to_text
from relaxir.tir import Combine, Expr, PrimFunc, ProgramBuilder, as_expr, cast, const, eq


@dataclass(frozen=True, slots=True)
class PatchAttrs(Attrs):
    """Attributes of `Im2Col`; empty tuples are the defaults, one value serves every spatial axis."""

    kernel: tuple[int, ...]
    """Extent of a window, one per spatial axis."""
    strides: tuple[int, ...] = ()
    """Distance of neighbouring windows (1)."""
    padding: tuple[DimLike, ...] = ()
    """Zeros around the image: one for all sides, one per axis, or all begins and then all ends (0)."""
    dilations: tuple[int, ...] = ()
    """Distance of neighbouring taps (1)."""
    auto_pad: AutoPad = "NOTSET"
    """As for `conv`."""


@dataclass(frozen=True, slots=True)
class Col2ImAttrs(PatchAttrs):
    """Attributes of `Col2Im`."""

    kernel: tuple[DimLike, ...]
    """Extent of a window, one per spatial axis."""

    image_shape: tuple[DimLike, ...] = ()
    """Spatial extents of the image."""


class Im2Col(Op[PatchAttrs]):
    """Every window of an image as a column: (N, C, *spatial) to (N, C * taps, windows).

    Row ``c * taps + k`` holds tap ``k`` of channel ``c``, column ``w`` window ``w``, both counted row-major; zeros
    outside. Every number type. TVM: none (PyTorch unfold), ONNX: none.
    """

    name = "im2col"
    params = (Param("x", "(batch, channels, *spatial)", NUMERIC),)
    Attrs = PatchAttrs
    kind = OpKind.INJECTIVE
    examples = (
        Example(
            ("f32[n, 2, h, 4]",), "f32[n, 12, 3*h]", PatchAttrs((3, 2), padding=(1, 0)), min_size=1, sizes={"n": 1}
        ),
        Example(("i32[1, 3, w]",), "i32[1, 6, (w + 1) // 2]", PatchAttrs((2,), (2,), auto_pad="SAME_UPPER")),
    )
    bad_examples = (BadExample(("f32[1, 2, 3]",), "shape-mismatch", "kernel along spatial axis 0", PatchAttrs((4,))),)

    def infer(self, args: tuple[Type, ...], attrs: PatchAttrs, ctx: InferCtx) -> Type:
        """Batch, taps of all channels, windows."""
        x, counts = patch_geometry(ctx, args, attrs)
        columns = ctx.facts.simplify(product(counts))
        return TensorType((x.shape[0], product((x.shape[1], *attrs.kernel)), columns), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: PatchAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Guarded loads at indices split into their parts."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        windows = windows_of(attrs, x.shape[2:], attrs.kernel)
        counts = counts_of(attrs, windows)

        def value(n: Expr, row: Expr, column: Expr) -> Expr:
            c, *k = unravel(row, (x.shape[1], *attrs.kernel))
            at = tuple(w.place(o, t) for w, o, t in zip(windows, unravel(column, counts), k, strict=True))
            inside = [g for w, v in zip(windows, at, strict=True) for g in w.guard(v)]
            return guarded(inside, x.at((n, c, *at)), const(0, x.dtype))

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: PatchAttrs) -> Array:
        """Stack the taps."""
        x = args[0]
        rows = [part for _, part in taps(x, attrs, attrs.kernel, 0)]
        stacked = np.stack(rows, 2)
        columns = int(np.prod(stacked.shape[3:]))
        return stacked.reshape(x.shape[0], x.shape[1] * len(rows), columns)


def patch_geometry(ctx: InferCtx, args: tuple[Type, ...], attrs: PatchAttrs) -> tuple[TensorType, tuple[DimLike, ...]]:
    """The image and the number of windows along each of its axes."""
    x = ctx.tensor(args, 0, "x")
    check_dtype(ctx, x, "x", NUMERIC)
    check_windows(ctx, attrs, x.rank - 2)
    if len(attrs.kernel) != x.rank - 2:
        ctx.fail(f"kernel {attrs.kernel} does not have {x.rank - 2} axes", code="attribute")
    return x, window_counts(ctx, attrs, windows_of(attrs, x.shape[2:], attrs.kernel))


def counts_of(attrs: PatchAttrs, windows: tuple[Window, ...]) -> tuple[DimLike, ...]:
    """Windows along each axis, once inference has accepted them."""
    if attrs.auto_pad.startswith("SAME"):
        return tuple(ceildiv(w.extent, w.stride) for w in windows)
    return tuple(w.count for w in windows)


class WindowRows(Op[PatchAttrs]):
    """Every window of an image as a row, channels innermost: (N, C, *spatial) to (N, *windows, *kernel, C).

    Outside the image stands the scalar ``value`` (0 if absent). With the last axes joined it is the left operand of a
    matrix product that convolves. Every number type. TVM: none, ONNX: none (`im2col` is the transposed form).
    """

    name = "window_rows"
    params = (Param("x", "(batch, channels, *spatial)", NUMERIC), Param("value", "scalar of x's dtype", optional=True))
    Attrs = PatchAttrs
    kind = OpKind.INJECTIVE
    examples = (
        Example(("u8[n, 2, h, 4]", "u8[]"), "u8[n, h, 3, 3, 2, 2]", PatchAttrs((3, 2), padding=(1, 0)), min_size=1),
        Example(("f32[1, 3, w]",), "f32[1, ceildiv(w, 2), 2, 3]", PatchAttrs((2,), (2,), auto_pad="SAME_UPPER")),
        Example(("i8[2, c, 5]",), "i8[2, 2, 2, c]", PatchAttrs((2,), (2,), dilations=(2,))),
    )
    bad_examples = (
        BadExample(("f32[1, 2, 3]",), "shape-mismatch", "kernel along spatial axis 0", PatchAttrs((4,))),
        BadExample(("u8[1, 2, 3]", "i8[]"), "dtype-mismatch", "value", PatchAttrs((2,))),
        BadExample(("u8[1, 2, 3]",), "attribute", "kernel", PatchAttrs((2, 2))),
    )

    def infer(self, args: tuple[Type, ...], attrs: PatchAttrs, ctx: InferCtx) -> Type:
        """Batch, windows, taps, channels."""
        x, counts = patch_geometry(ctx, args, attrs)
        if len(args) > 1:
            value = ctx.tensor(args, 1, "value")
            if value.dtype != x.dtype or value.rank:
                ctx.fail(f"value must be a scalar of {x.dtype}, got {describe(value)}", code="dtype-mismatch")
        return TensorType((x.shape[0], *counts, *attrs.kernel, x.shape[1]), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: PatchAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Channels move inside first, so that windows are copied a run of channels at a time."""
        f = ProgramBuilder(self.name)
        x = input_of(f, "x", args[0])
        fill: Expr = input_of(f, "value", args[1])[()] if len(args) > 1 else const(0, x.dtype)
        y = output_of(f, "y", out[0])
        windows = windows_of(attrs, x.shape[2:], attrs.kernel)
        rank = len(windows)
        turned = f.temp("turned", (x.shape[0], *x.shape[2:], x.shape[1]), x.dtype)
        f.compute(turned, lambda *i: x.at((i[0], i[-1], *i[1:-1])))

        def value(*i: Expr) -> Expr:
            at = tuple(w.place(o, t) for w, o, t in zip(windows, i[1 : rank + 1], i[rank + 1 : -1], strict=True))
            inside = [g for w, v in zip(windows, at, strict=True) for g in w.guard(v)]
            return guarded(inside, turned.at((i[0], *at, i[-1])), fill)

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: PatchAttrs) -> Array:
        """Stack the taps."""
        x = args[0]
        fill = args[1] if len(args) > 1 else 0
        stacked = np.stack([part for _, part in taps(x, attrs, attrs.kernel, fill)], -1)
        split = stacked.reshape(*stacked.shape[:-1], *attrs.kernel)
        return np.moveaxis(split, 1, -1)


class Col2Im(Op[Col2ImAttrs]):
    """Add columns back into an image, the adjoint of `im2col`: (N, C * taps, windows) to (N, C, *image_shape).

    Overlapping taps add up; those in the padding are dropped. The number of columns must be that of the windows.
    16-bit floats are summed in float32; integers wrap. TVM: none (PyTorch fold), ONNX: Col2Im.
    """

    name = "col2im"
    params = (Param("x", "(batch, channels * taps, windows)", NUMERIC),)
    Attrs = Col2ImAttrs
    kind = OpKind.REDUCE
    examples = (
        Example(("f32[n, 4, 9]",), "f32[n, 1, 4, 4]", Col2ImAttrs((2, 2), image_shape=(4, 4))),
        Example(("f16[1, 12, 6]",), "f16[1, 2, 4, 5]", Col2ImAttrs((3, 2), (2,), (1, 1, 0, 0), image_shape=(4, 5))),
        Example(("i32[1, 6, 3]",), "i32[1, 3, 5]", Col2ImAttrs((2,), dilations=(2,), image_shape=(5,))),
        Example(
            ("f32[1, 3*k, 4]",),
            "f32[1, k * 3 // max(k, 1), k + 3]",
            Col2ImAttrs((dim("k"),), image_shape=(dim("k") + 3,)),
            min_size=1,
        ),
    )
    bad_examples = (
        BadExample(("f32[1, 4, 8]",), "shape-mismatch", "columns", Col2ImAttrs((2, 2), image_shape=(4, 4))),
        BadExample(("f32[1, 5, 9]",), "shape-mismatch", "axis 1 of x modulo", Col2ImAttrs((2, 2), image_shape=(4, 4))),
    )

    def infer(self, args: tuple[Type, ...], attrs: Col2ImAttrs, ctx: InferCtx) -> Type:
        """Batch, channels, image."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", NUMERIC)
        if x.rank != 3:
            ctx.fail(f"x has rank {x.rank}, expected (batch, channels * taps, windows)", code="rank-mismatch")
        check_windows(ctx, attrs, len(attrs.image_shape))
        if len(attrs.kernel) != len(attrs.image_shape):
            ctx.fail(f"kernel {attrs.kernel} and image_shape differ in length", code="attribute")
        size = product(attrs.kernel)
        for k in attrs.kernel:
            ctx.require_at_least(1, k, "kernel")
        ctx.require_equal(mod(x.shape[1], max_(size, 1)), 0, f"axis 1 of x modulo {to_text(size)} taps")
        counts = window_counts(ctx, attrs, windows_of(attrs, attrs.image_shape, attrs.kernel))
        ctx.require_equal(x.shape[2], product(counts), "columns of x and windows of the image")
        return TensorType(
            (x.shape[0], ctx.facts.simplify(floordiv(x.shape[1], max_(size, 1))), *attrs.image_shape), x.dtype
        )

    def lower(self, args: tuple[TensorType, ...], attrs: Col2ImAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Each element gathers the taps that reach it."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        windows = windows_of(attrs, attrs.image_shape, attrs.kernel)
        counts, rank = counts_of(attrs, windows), len(windows)
        wide = compute_dtype(y.dtype)
        total = y if wide == y.dtype else f.temp("total", y.shape, wide)

        def value(*i: Expr) -> Expr:
            n, c, point, k = i[0], i[1], i[2 : 2 + rank], i[2 + rank :]
            inside: list[Expr] = []
            columns: list[Expr] = []
            for w, count, p, t in zip(windows, counts, point, k, strict=True):
                reach = p + as_expr(w.before) - t * w.dilation
                columns.append(reach // w.stride)
                if w.stride > 1:
                    inside.append(eq(reach % w.stride, 0))
                inside.append(within(columns[-1], count))
            row = ravel((c, *k), (y.shape[1], *attrs.kernel))
            return guarded(inside, load_wide(x, (n, row, ravel(columns, counts))), const(0, wide))

        f.reduce(total, attrs.kernel, Combine.SUM, value)
        if total is not y:
            f.compute(y, lambda *i: cast(total[i], y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Col2ImAttrs) -> Array:
        """Scatter column by column; floats in double."""
        x = args[0].astype(np.float64) if args[0].dtype.kind == "f" else args[0]
        image, kernel = (tuple(int(d) for d in dims) for dims in (attrs.image_shape, attrs.kernel))
        windows = windows_of(attrs, image, kernel)
        counts = known_counts(attrs, windows)
        data = x.reshape(x.shape[0], x.shape[1] // int(np.prod(kernel)), *kernel, *counts)
        y = np.zeros((*data.shape[:2], *image), x.dtype)
        for tap in np.ndindex(*kernel):
            for column in np.ndindex(*counts):
                at: Any = tuple(
                    o * w.stride + t * w.dilation - int(w.before) for w, o, t in zip(windows, column, tap, strict=True)
                )
                if all(0 <= v < d for v, d in zip(at, image, strict=True)):
                    y[(slice(None), slice(None), *at)] += data[(slice(None), slice(None), *tap, *column)]
        return y.astype(args[0].dtype)


PATCHES: Final[tuple[Op[Any], ...]] = (Im2Col(), WindowRows(), Col2Im())
