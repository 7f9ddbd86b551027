"""Discrete Fourier transforms and window functions; complex numbers are a last axis of (real, imaginary)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import pi
from types import MappingProxyType
from typing import Any, Final, Literal

import numpy as np

from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.attrs import DTypeName
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import FLOATS, check_dtype, check_same_dtype, compute_dtype, load_wide
from relaxir.ops.kernels import input_of, output_of
from relaxir.ops.slicing import replace_at
from relaxir.sym import DimLike, add, dim, floordiv, max_, min_, mul, sub
from relaxir.tir import Combine, Expr, Intrinsic, PrimFunc, ProgramBuilder, as_expr, call, cast, const, eq, select


def turn(j: Expr, k: Expr, length: DimLike) -> Expr:
    """Angle ``2 * pi * j * k / length`` in float64, reduced as an integer first: exact for long signals."""
    return cast((j * k) % max_(length, 1), "float64") * (2 * pi) / as_expr(max_(length, 1), "float64")


def rotation(j: Expr, k: Expr, part: Expr, out: Expr, length: DimLike, inverse: bool) -> Expr:
    """Factor of part ``part`` of element ``k`` in part ``out`` of frequency ``j``, in float64."""
    angle = turn(j, k, length)
    sine = call(Intrinsic.SIN, angle)
    sign = select(eq(part, 0), const(-1, "float64"), const(1, "float64"))
    sine = sine * (call(Intrinsic.NEG, sign) if inverse else sign)
    return select(eq(part, out), call(Intrinsic.COS, angle), sine)


def check_parts(ctx: InferCtx, t: TensorType, name: str) -> None:
    """Raise unless the last axis is 1 or 2."""
    if not t.rank or t.shape[-1] not in (1, 2):
        ctx.fail(f"{name}: the last axis must be 1 (real) or 2 (real, imaginary)", code="shape-mismatch")


class Dft(Op["Dft.Attrs"]):
    """Discrete Fourier transform along one axis: ``y[j] = sum over k of x[k] * e ** (-2 * pi * i * j * k / n)``.

    x is (..., 1) for real or (..., 2) for complex signals, cut or padded with zeros to ``length`` n; the result is
    (..., 2). ``onesided`` keeps the first ``n // 2 + 1`` frequencies. ``inverse`` has the conjugate sign and
    divides by n; together with ``onesided`` it takes such a half spectrum to a real signal (..., 1) of n elements.
    Computed as a matrix product in float32 or wider. TVM: none, ONNX: DFT.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Transform, axis and length (0: the axis' extent, or for a half spectrum of h elements ``2 * (h - 1)``)."""

        axis: int = -2
        inverse: bool = False
        onesided: bool = False
        length: DimLike = 0

        def points(self, shape: tuple[DimLike, ...]) -> DimLike:
            """Length of the transform."""
            extent = shape[self.axis]
            if self.length != 0:
                return self.length
            return mul(2, sub(extent, 1)) if self.inverse and self.onesided else extent

    name = "dft"
    params = (Param("x", "(..., 1 or 2)", FLOATS),)
    kind = OpKind.OUT_FUSABLE
    examples = (
        Example(("f32[2, n, 2]",), "f32[2, n, 2]", Attrs(), atol=1e-4),
        Example(("f64[n, 3, 1]",), "f64[n, 3, 2]", Attrs(0)),
        Example(("f64[n, 1]",), "f64[n // 2 + 1, 2]", Attrs(onesided=True), min_size=1),
        Example(("f64[n, 2]",), "f64[n, 2]", Attrs(inverse=True)),
        Example(("f64[2, 5, 2]",), "f64[2, 8, 1]", Attrs(inverse=True, onesided=True)),
        Example(("f64[2, 4, 2]",), "f64[2, 7, 1]", Attrs(inverse=True, onesided=True, length=7)),
        Example(("f32[n, 1]",), "f32[6, 2]", Attrs(length=6), atol=1e-4),
    )
    bad_examples = (
        BadExample(("f32[4, 3]",), "shape-mismatch", "last axis", Attrs()),
        BadExample(("f32[4, 2]",), "axis-range", "axis 3", Attrs(3)),
        BadExample(("f32[4, 2]",), "attribute", "the last axis holds", Attrs(-1)),
    )

    def infer(self, args: tuple[Type, ...], attrs: Dft.Attrs, ctx: InferCtx) -> Type:
        """Frequencies along the axis, parts along the last."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", FLOATS)
        axis = ctx.axis(attrs.axis, x.rank)
        check_parts(ctx, x, "x")
        if axis == x.rank - 1:
            ctx.fail("the last axis holds the parts of complex numbers", code="attribute")
        points = ctx.facts.simplify(attrs.points(x.shape))
        ctx.require_at_least(0, points, "length of the transform")
        half = attrs.onesided and not attrs.inverse
        count = ctx.facts.simplify(add(floordiv(points, 2), 1)) if half else points
        parts = 1 if attrs.inverse and attrs.onesided else 2
        return TensorType((*replace_dim(x.shape, axis, count)[:-1], parts), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Dft.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """A table of rotations, then one contraction."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        wide, axis = compute_dtype(y.dtype), attrs.axis % args[0].rank
        points = attrs.points(x.shape)
        real = attrs.inverse and attrs.onesided
        reach = min_(x.shape[axis], add(floordiv(points, 2), 1) if real else points)
        table = f.temp("table", (y.shape[axis], reach, x.shape[-1], y.shape[-1]), wide)

        def entry(j: Expr, k: Expr, part: Expr, to: Expr) -> Expr:
            value = rotation(j, k, part, to, points, attrs.inverse)
            if real:  # the other half is the conjugate
                once = eq(k, 0) | eq(k * 2, as_expr(points))
                value = select(once, value, value * 2.0)
            return cast(value / as_expr(max_(points, 1), "float64") if attrs.inverse else value, wide)

        f.compute(table, entry)
        total = y if wide == y.dtype else f.temp("total", y.shape, wide)

        def product(*i: Expr) -> Expr:
            *point, k, part = i
            at = (*replace_at(point, axis, k)[:-1], part)
            return load_wide(x, at) * table[point[axis], k, part, point[-1]]

        f.reduce(total, (reach, x.shape[-1]), Combine.SUM, product)
        if total is not y:
            f.compute(y, lambda *i: cast(total[i], y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Dft.Attrs) -> Array:
        """np.fft."""
        x = args[0].astype(np.float64)
        axis = attrs.axis % x.ndim
        points = int(attrs.points(x.shape))
        signal = x[..., 0] + 1j * x[..., 1] if x.shape[-1] == 2 else x[..., 0] + 0j
        if not points or not signal.size:
            half = attrs.onesided and not attrs.inverse
            count = points // 2 + 1 if half else points
            shape = (*x.shape[:axis], count, *x.shape[axis + 1 : -1], 1 if attrs.inverse and attrs.onesided else 2)
            return np.zeros(shape, args[0].dtype)
        if attrs.inverse and attrs.onesided:
            return np.asarray(np.fft.irfft(signal, points, axis)[..., None]).astype(args[0].dtype)
        y = (np.fft.ifft if attrs.inverse else np.fft.fft)(signal, points, axis)
        if attrs.onesided:
            y = np.take(y, range(points // 2 + 1), axis)
        return np.stack([y.real, y.imag], -1).astype(args[0].dtype)


def replace_dim(shape: tuple[DimLike, ...], axis: int, d: DimLike) -> tuple[DimLike, ...]:
    """Shape with one extent exchanged."""
    return (*shape[:axis], d, *shape[axis + 1 :])


class Stft(Op["Stft.Attrs"]):
    """Short-time Fourier transform: the transform of every frame of a signal, weighted by a window.

    x is (batch, length, 1 or 2), the window (frame_length,) of x's dtype (all ones if absent); the result is
    (batch, frames, frequencies, 2) with ``(length - frame_length) // frame_step + 1`` frames, and ``frame_length //
    2 + 1`` frequencies if ``onesided``, else all. A frame must fit. TVM: none, ONNX: STFT.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Distance and length of frames; length 0 means the window's."""

        frame_step: DimLike
        frame_length: DimLike = 0
        onesided: bool = True

    name = "stft"
    params = (Param("x", "(batch, length, 1 or 2)", FLOATS), Param("window", "(frame_length,)", FLOATS, optional=True))
    kind = OpKind.OUT_FUSABLE
    examples = (
        Example(("f32[2, n, 1]", "f32[5]"), "f32[2, (n + 1) // 3 - 1, 3, 2]", Attrs(3), min_size=5, atol=1e-4),
        Example(("f64[n, 8, 2]",), "f64[n, 3, 4, 2]", Attrs(2, 4, onesided=False)),
    )
    bad_examples = (
        BadExample(("f32[1, 4, 1]", "f32[5]"), "shape-mismatch", "frame", Attrs(1)),
        BadExample(("f32[1, 4, 1]",), "attribute", "frame_length", Attrs(1)),
        BadExample(("f32[4, 1]",), "rank-mismatch", "x has rank 2", Attrs(1, 2)),
    )

    def infer(self, args: tuple[Type, ...], attrs: Stft.Attrs, ctx: InferCtx) -> Type:
        """Batch, frames, frequencies, parts."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", FLOATS)
        if x.rank != 3:
            ctx.fail(f"x has rank {x.rank}, expected (batch, length, parts)", code="rank-mismatch")
        check_parts(ctx, x, "x")
        length = attrs.frame_length
        if len(args) > 1:
            window = ctx.tensor(args, 1, "window")
            check_same_dtype(ctx, (x, window), ("x", "window"))
            if window.rank != 1:
                ctx.fail(f"window has rank {window.rank}, expected 1", code="rank-mismatch")
            length = window.shape[0] if length == 0 else length
            ctx.require_equal(window.shape[0], length, "window and frame_length")
        elif length == 0:
            ctx.fail("frame_length is needed without a window", code="attribute")
        ctx.require_at_least(1, attrs.frame_step, "frame_step")
        ctx.require_le(length, x.shape[1], "frame and axis 1 of x")
        frames = ctx.facts.simplify(add(floordiv(sub(x.shape[1], length), attrs.frame_step), 1))
        count = ctx.facts.simplify(add(floordiv(length, 2), 1)) if attrs.onesided else length
        return TensorType((x.shape[0], frames, count, 2), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Stft.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """A table of weighted rotations, then one contraction."""
        f = ProgramBuilder(self.name)
        x = input_of(f, "x", args[0])
        window = input_of(f, "window", args[1]) if len(args) > 1 else None
        y = output_of(f, "y", out[0])
        wide = compute_dtype(y.dtype)
        length = attrs.frame_length if window is None or attrs.frame_length != 0 else window.shape[0]
        table = f.temp("table", (y.shape[2], length, x.shape[2], 2), wide)

        def entry(j: Expr, k: Expr, part: Expr, to: Expr) -> Expr:
            value = cast(rotation(j, k, part, to, length, inverse=False), wide)
            return value if window is None else value * load_wide(window, (k,))

        f.compute(table, entry)
        total = y if wide == y.dtype else f.temp("total", y.shape, wide)
        f.reduce(
            total,
            (length, x.shape[2]),
            Combine.SUM,
            lambda b, w, j, to, k, part: (
                load_wide(x, (b, w * as_expr(attrs.frame_step) + k, part)) * table[j, k, part, to]
            ),
        )
        if total is not y:
            f.compute(y, lambda *i: cast(total[i], y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Stft.Attrs) -> Array:
        """np.fft of every frame."""
        x = args[0].astype(np.float64)
        signal = x[..., 0] + 1j * x[..., 1] if x.shape[2] == 2 else x[..., 0]
        window = args[1].astype(np.float64) if len(args) > 1 else np.ones(int(attrs.frame_length))
        length, step = len(window), int(attrs.frame_step)
        count = (x.shape[1] - length) // step + 1
        frames = np.stack([signal[:, n * step : n * step + length] * window for n in range(count)], 1)
        y = np.fft.fft(frames, axis=-1)
        y = y[..., : length // 2 + 1] if attrs.onesided else y
        return np.stack([y.real, y.imag], -1).astype(args[0].dtype)


COSINES: Final[Mapping[str, tuple[float, float, float]]] = MappingProxyType(
    {"hann": (0.5, -0.5, 0.0), "hamming": (25 / 46, -21 / 46, 0.0), "blackman": (0.42, -0.5, 0.08)}
)
"""Weights of 1, cos(t) and cos(2t) in each window, t running over one turn."""


class WindowFunction(Op["WindowFunction.Attrs"]):
    """A window for spectra: ``a + b * cos(t) + c * cos(2 * t)`` with ``t = 2 * pi * i / n``.

    n is ``size`` for periodic windows, ``size - 1`` for symmetric ones (at least 1). Takes no operand; computed in
    float64. TVM: none, ONNX: HannWindow, HammingWindow, BlackmanWindow.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Kind, number of elements, dtype."""

        function: Literal["hann", "hamming", "blackman"]
        size: DimLike
        periodic: bool = True
        dtype: DTypeName = "float32"

    name = "window_function"
    params = ()
    kind = OpKind.INJECTIVE
    examples = (
        Example((), "f32[7]", Attrs("hann", 7)),
        Example((), "f64[n]", Attrs("hamming", dim("n"), periodic=False, dtype="float64")),
        Example((), "f16[n]", Attrs("blackman", dim("n"), dtype="float16")),
    )
    bad_examples = (BadExample((), "attribute", "must be one of", Attrs("hann", 3, dtype="int32")),)

    def infer(self, args: tuple[Type, ...], attrs: WindowFunction.Attrs, ctx: InferCtx) -> Type:
        """A vector."""
        if attrs.dtype not in FLOATS:
            ctx.fail(f"dtype must be one of {', '.join(FLOATS)}, got {attrs.dtype}", code="attribute")
        ctx.require_at_least(0, attrs.size, "size")
        return TensorType((attrs.size,), attrs.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: WindowFunction.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One expression."""
        f = ProgramBuilder(self.name)
        y = output_of(f, "y", out[0])
        a, b, c = COSINES[attrs.function]
        period = as_expr(max_(attrs.size if attrs.periodic else sub(attrs.size, 1), 1), "float64")

        def value(i: Expr) -> Expr:
            t = cast(i, "float64") * (2 * pi) / period
            total = call(Intrinsic.COS, t) * b + a
            return cast(total + call(Intrinsic.COS, t * 2.0) * c if c else total, y.dtype)

        f.compute(y, value)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: WindowFunction.Attrs) -> Array:
        """By its definition."""
        size = int(attrs.size)
        a, b, c = COSINES[attrs.function]
        t = 2 * np.pi * np.arange(size) / max(size if attrs.periodic else size - 1, 1)
        y = a + b * np.cos(t) + c * np.cos(2 * t)
        return y if attrs.dtype == "bfloat16" else y.astype(attrs.dtype)


FOURIER: Final[tuple[Op[Any], ...]] = (Dft(), Stft(), WindowFunction())
