"""Transposed convolution over any number of spatial axes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import NUMERIC, compute_dtype, load_wide, widen
from relaxir.ops.conv import ConvAttrs, check_bias, check_groups, conv_operands, guarded
from relaxir.ops.kernels import input_of, output_of, within
from relaxir.ops.windows import check_windows, pads_of, per_axis, same_pads, span_of
from relaxir.sym import DimLike, Facts, add, ceildiv, floordiv, max_, mod, mul, sub
from relaxir.tir import Buffer, Combine, Expr, PrimFunc, ProgramBuilder, as_expr, cast, const, eq


@dataclass(frozen=True, slots=True)
class ConvTransposeAttrs(ConvAttrs):
    """Attributes of `ConvTranspose`; those of a convolution, with pads cropping the result."""

    output_padding: tuple[int, ...] = ()
    """Zero columns added at the ends of the result, one per spatial axis (0)."""
    output_shape: tuple[DimLike, ...] = ()
    """Spatial extents of the result; replaces ``padding``. Empty: they follow from the other attributes."""


@dataclass(frozen=True, slots=True)
class Spread:
    """One spatial axis: element ``i`` and tap ``k`` add to element ``i * stride + k * dilation - before`` of y."""

    extent: DimLike
    kernel: DimLike
    stride: int
    dilation: int
    before: DimLike
    out: DimLike

    @property
    def dense(self) -> DimLike:
        """Taps of the kernel, with the gaps of its dilation where the stride splits it in phases."""
        return self.kernel if self.stride == 1 else span_of(self.kernel, self.dilation)

    @property
    def taps(self) -> DimLike:
        """Taps of one phase: those that reach outputs of one remainder modulo the stride."""
        return ceildiv(self.dense, self.stride)

    @property
    def first(self) -> DimLike:
        """Quotient by the stride of the first output's place in the uncropped result."""
        return floordiv(self.before, self.stride)

    @property
    def steps(self) -> DimLike:
        """Quotients that the outputs have."""
        if self.stride == 1:
            return self.out
        return sub(ceildiv(add(self.before, self.out), self.stride), self.first)

    @property
    def sparse(self) -> bool:
        """Whether some tap of some phase is none of the kernel's."""
        return self.stride > 1 and (self.dilation > 1 or mod(self.kernel, self.stride) != 0)

    def source(self, step: Expr, tap: Expr) -> Expr:
        """Element of x that tap ``taps - 1 - tap`` of every phase reads; walked backwards, to grow with ``tap``."""
        pace = self.dilation if self.stride == 1 else 1
        return step + tap * pace + as_expr(sub(self.first, mul(sub(self.taps, 1), pace)))

    def tap(self, phase: Expr, tap: Expr) -> Expr:
        """Tap of the dense kernel, by phase and `source`'s ``tap``."""
        return phase + (as_expr(sub(self.taps, 1)) - tap) * self.stride


def spreads_of(attrs: ConvTransposeAttrs, extents: Sequence[DimLike], kernel: Sequence[DimLike]) -> tuple[Spread, ...]:
    """Geometry of each spatial axis."""
    rank = len(extents)
    known = Facts()
    found: tuple[Spread, ...] = ()
    pads = pads_of(attrs.padding if attrs.auto_pad == "NOTSET" else (), rank)
    extra = per_axis(attrs.output_padding, rank) if attrs.output_padding else (0,) * rank
    for axis, (extent, taps) in enumerate(zip(extents, kernel, strict=True)):
        stride, dilation = per_axis(attrs.strides, rank)[axis], per_axis(attrs.dilations, rank)[axis]
        full = add(add(mul(sub(extent, 1), stride), span_of(taps, dilation)), extra[axis])
        before, after = pads[axis]
        out = sub(full, add(before, after))
        if attrs.output_shape or attrs.auto_pad.startswith("SAME"):
            out = attrs.output_shape[axis] if attrs.output_shape else mul(extent, stride)
            before, _ = same_pads(known.simplify(max_(0, sub(full, out))), attrs.auto_pad)
        found += (Spread(extent, taps, stride, dilation, before, out),)
    return found


class ConvTranspose(Op[ConvTransposeAttrs]):
    """Transposed convolution, the gradient of `conv` for its input.

    ``y[n, o, i * stride + k * dilation - pad] += x[n, c, i] * weight[c, o, k]`` over all ``c``, ``i``, ``k``, plus
    the bias. Extents: ``(extent - 1) * stride + (kernel - 1) * dilation + 1 + output_padding - pads``. SAME_* crops
    to ``extent * stride`` and ``output_shape`` to what it says (or adds zeros at the end): half of the surplus at
    each side, the odd one at the end for SAME_UPPER, else at the begin. Pads beyond the extent fail. With groups,
    group ``g`` maps its share of the channels to outputs ``g * o ..``. 16-bit floats accumulate in float32;
    integers wrap. TVM: relax.nn.conv1d_transpose, relax.nn.conv2d_transpose, relax.nn.conv3d_transpose, ONNX:
    ConvTranspose.
    """

    name = "conv_transpose"
    params = (
        Param("x", "(batch, channels, *spatial)", NUMERIC),
        Param("weight", "(channels, out channels / groups, *kernel)", NUMERIC),
        Param("bias", "(out channels,)", NUMERIC, optional=True),
    )
    Attrs = ConvTransposeAttrs
    kind = OpKind.OUT_FUSABLE
    examples = (
        Example(("f32[n, 2, h, 3]", "f32[2, 3, 3, 2]"), "f32[n, 3, h + 2, 4]", min_size=1, sizes={"n": 1}),
        Example(
            ("f32[1, 2, h, 3]", "f32[2, 2, 3, 3]", "f32[2]"),
            "f32[1, 2, 2*h, 5]",
            ConvTransposeAttrs((2, 2), (1, 1), output_padding=(1, 0)),
            min_size=1,
        ),
        Example(
            ("f32[1, 1, 3, w]", "f32[1, 2, 3, 3]"),
            "f32[1, 2, 6, 2*w]",
            ConvTransposeAttrs((2,), auto_pad="SAME_UPPER"),
        ),
        Example(
            ("f32[1, 1, 3, w]", "f32[1, 2, 3, 3]"),
            "f32[1, 2, 6, 2*w]",
            ConvTransposeAttrs((2,), auto_pad="SAME_LOWER"),
        ),
        Example(
            ("f64[1, 4, h]", "f64[4, 3, 3]", "f64[6]"),
            "f64[1, 6, 3*h + 2]",
            ConvTransposeAttrs((3,), dilations=(2,), groups=2),
            min_size=1,
        ),
        Example(("f32[1, 3, h]", "f32[3, 1, 2]"), "f32[1, 3, 2*h]", ConvTransposeAttrs((2,), groups=3), min_size=1),
        Example(
            ("f32[1, 1, 3, 3]", "f32[1, 2, 3, 3]"),
            "f32[1, 2, 10, 8]",
            ConvTransposeAttrs((3, 2), output_shape=(10, 8)),
        ),
        Example(
            ("f32[1, 2, h, 2]", "f32[2, 1, 2, 4]"),
            "f32[1, 1, 3*h - 1, 3]",
            ConvTransposeAttrs((3, 2), (0, 1, 0, 2)),
            min_size=1,
        ),
        Example(("f16[n, 2, 4]", "f16[2, 3, 2]", "f16[3]"), "f16[n, 3, 8]", ConvTransposeAttrs((2,))),
        Example(("i32[1, 2, 1, 2, h]", "i32[2, 1, 2, 1, 2]"), "i32[1, 1, 2, 2, h + 1]", min_size=1),
    )
    bad_examples = (
        BadExample(("f32[1, 2, 4]", "f32[3, 2, 3]"), "shape-mismatch", "channels of x", ConvTransposeAttrs()),
        BadExample(("f32[1, 2, 1]", "f32[2, 2, 1]"), "shape-mismatch", "result", ConvTransposeAttrs(padding=(1,))),
        BadExample(("f32[1, 2, 4]", "f32[2, 2, 3, 3]"), "rank-mismatch", "x has rank 3", ConvTransposeAttrs()),
        BadExample(
            ("f32[1, 2, 4, 4]", "f32[2, 2, 3, 3]"),
            "attribute",
            "output_padding",
            ConvTransposeAttrs(output_padding=(1, 1, 1)),
        ),
        BadExample(
            ("f32[1, 2, 4]", "f32[2, 2, 3]", "f32[3]"), "shape-mismatch", "axis 0 of bias", ConvTransposeAttrs()
        ),
    )

    def infer(self, args: tuple[Type, ...], attrs: ConvTransposeAttrs, ctx: InferCtx) -> Type:
        """Batch, output channels, spread extents."""
        x, w = conv_operands(ctx, args)
        rank = x.rank - 2
        check_windows(ctx, attrs, rank)
        for name, values in (("output_padding", attrs.output_padding), ("output_shape", attrs.output_shape)):
            if len(values) not in (0, rank):
                ctx.fail(f"{name} has {len(values)} values for {rank} spatial axes", code="attribute")
        check_groups(ctx, attrs.groups, x.shape[1], "channels of x")
        ctx.require_equal(w.shape[0], x.shape[1], "axis 0 of weight and channels of x")
        channels = mul(w.shape[1], attrs.groups)
        check_bias(ctx, args, x, channels)
        shape: tuple[DimLike, ...] = ()
        for axis, s in enumerate(spreads_of(attrs, x.shape[2:], w.shape[2:])):
            out = ctx.facts.simplify(s.out)
            ctx.require_at_least(0, out, f"extent of spatial axis {axis} of the result")
            shape += (out,)
        return TensorType((x.shape[0], channels, *shape), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: ConvTransposeAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One plain convolution per phase, as one contraction; then phases and groups are interleaved, bias added.

        Outputs at one remainder modulo the stride are reached by every stride-th tap only, so that nothing is
        multiplied in vain, and all indices are affine.
        """
        f = ProgramBuilder(self.name)
        x, w = input_of(f, "x", args[0]), input_of(f, "weight", args[1])
        bias = input_of(f, "bias", args[2]) if len(args) > 2 else None
        y = output_of(f, "y", out[0])
        spreads = tuple(
            replace(s, out=d) for s, d in zip(spreads_of(attrs, x.shape[2:], w.shape[2:]), y.shape[2:], strict=True)
        )
        wide, rank = compute_dtype(y.dtype), len(spreads)
        inner = floordiv(w.shape[0], attrs.groups)
        heads = (w.shape[1],) if attrs.groups == 1 else (attrs.groups, w.shape[1])
        split = tuple(a for a, s in enumerate(spreads) if s.stride > 1)
        strides = tuple(spreads[a].stride for a in split)
        weight = _phases(f, w, spreads, split) if any(s.sparse for s in spreads) else None
        shape = (y.shape[0], *heads, *strides, *(s.steps for s in spreads))
        total = y if shape == y.shape and wide == y.dtype and bias is None else f.temp("total", shape, wide)

        def product(*i: Expr) -> Expr:
            n, head, rest = i[0], i[1 : 1 + len(heads)], i[1 + len(heads) :]
            phase, step, c, tap = (
                rest[: len(split)],
                rest[len(split) : len(split) + rank],
                rest[-rank - 1],
                rest[-rank:],
            )
            channel = c if len(heads) == 1 else head[0] * inner + c
            at = tuple(s.source(q, t) for s, q, t in zip(spreads, step, tap, strict=True))
            inside = [within(v, s.extent) for s, v in zip(spreads, at, strict=True)]
            value = guarded(inside, load_wide(x, (n, channel, *at)), const(0, wide))
            if weight is not None:
                return value * load_wide(weight, (channel, head[-1], *phase, *tap))
            remainder = dict(zip(split, phase, strict=True))
            dense = tuple(
                s.tap(remainder.get(a, const(0)), t) for a, (s, t) in enumerate(zip(spreads, tap, strict=True))
            )
            return value * load_wide(w, (channel, head[-1], *dense))

        f.reduce(total, (inner, *(s.taps for s in spreads)), Combine.SUM, product)
        if total is y:
            return f.build()

        def joined(n: Expr, o: Expr, *point: Expr) -> Expr:
            head = (o,) if len(heads) == 1 else (o // w.shape[1], o % w.shape[1])
            places = [p + as_expr(s.before) for s, p in zip(spreads, point, strict=True)]
            phase = tuple(places[a] % spreads[a].stride for a in split)
            step = tuple(
                p if s.stride == 1 else place // s.stride - as_expr(s.first)
                for s, p, place in zip(spreads, point, places, strict=True)
            )
            value = total[(n, *head, *phase, *step)]
            return cast(value if bias is None else value + load_wide(bias, (o,)), y.dtype)

        f.compute(y, joined)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: ConvTransposeAttrs) -> Array:
        """Scatter tap by tap into the uncropped result; floats accumulate in double."""
        x, w = (a.astype(np.float64) if a.dtype.kind == "f" else a for a in args[:2])
        g, batch = attrs.groups, x.shape[0]
        spreads = spreads_of(attrs, x.shape[2:], w.shape[2:])
        data = x.reshape(batch, g, x.shape[1] // g, *x.shape[2:])
        weight = np.moveaxis(w.reshape(g, w.shape[0] // g, *w.shape[1:]), (0, 1, 2), (-3, -2, -1))
        ends = [
            max(int(s.before) + int(s.out), int(s.extent) * s.stride + int(span_of(s.kernel, s.dilation)))
            for s in spreads
        ]
        full = np.zeros((batch, g, w.shape[1], *ends), x.dtype)
        for tap in np.ndindex(*w.shape[2:]):
            cut = tuple(
                slice(t * s.dilation, t * s.dilation + int(s.extent) * s.stride, s.stride)
                for t, s in zip(tap, spreads, strict=True)
            )
            full[(slice(None), slice(None), slice(None), *cut)] += np.einsum("ngc...,gco->ngo...", data, weight[tap])
        crop = tuple(slice(int(s.before), int(s.before) + int(s.out)) for s in spreads)
        total = full.reshape(batch, g * w.shape[1], *ends)[(slice(None), slice(None), *crop)]
        if len(args) > 2:
            total = total + widen(args[2]).reshape(-1, *(1,) * len(spreads))
        return np.asarray(total).astype(args[0].dtype)


def _phases(f: ProgramBuilder, w: Buffer, spreads: Sequence[Spread], split: Sequence[int]) -> Buffer:
    """Emit the kernel taken apart as (channels, outputs, phases, taps), with zeros for the taps that it lacks."""
    shape = (*w.shape[:2], *(spreads[a].stride for a in split), *(s.taps for s in spreads))
    weight = f.temp("phases", shape, w.dtype)

    def value(c: Expr, o: Expr, *rest: Expr) -> Expr:
        remainder = dict(zip(split, rest, strict=False))
        at: tuple[Expr, ...] = ()
        inside: list[Expr] = []
        for a, (s, t) in enumerate(zip(spreads, rest[len(split) :], strict=True)):
            dense = s.tap(remainder.get(a, const(0)), t)
            gaps = s.dilation if s.stride > 1 else 1
            inside += [eq(dense % gaps, 0)] if gaps > 1 else []
            inside += [dense < s.dense] if s.sparse else []
            at += (dense // gaps,)
        return guarded(inside, w.at((c, o, *at)), const(0, w.dtype))

    f.compute(weight, value)
    return weight


CONV_TRANSPOSE: Final = (ConvTranspose(),)
