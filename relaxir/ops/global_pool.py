"""Pooling over all spatial axes at once, and the inverse of max pooling."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import FLOATS, NUMERIC, check_dtype, compute_dtype, load_wide, widen
from relaxir.ops.kernels import emit_op, input_of, let, nest, output_of, seq, unravel, when, within
from relaxir.ops.pooling import powered, rooted
from relaxir.ops.reduce import Max, Mean, ReduceAttrs, Rows
from relaxir.ops.windows import check_padding, check_steps, pads_of, per_axis
from relaxir.sym import DimLike, add, mul, product, sub
from relaxir.tir import Assert, Combine, Expr, PrimFunc, ProgramBuilder, Stmt, Store, Var, cast, const


class GlobalPool(Op[Any]):
    """Base of global poolings: a reduction over all axes but the first two, which stay with extent 1."""

    params = (Param("x", "(batch, channels, *spatial)", FLOATS),)
    kind = OpKind.REDUCE
    inner: ClassVar[Op[Any]]
    examples: ClassVar[tuple[Example, ...]] = (
        Example(("f32[n, c, h, w]",), "f32[n, c, 1, 1]", min_size=1, sizes={"c": 2, "w": 3}),
        Example(("f64[n, 2, h]",), "f64[n, 2, 1]"),
        Example(("f16[1, 2, 3, 1, h]",), "f16[1, 2, 1, 1, 1]", min_size=1),
        Example(("bf16[n, 3, 2, 2]",), "bf16[n, 3, 1, 1]"),
    )
    bad_examples: ClassVar[tuple[BadExample, ...]] = (
        BadExample(("f32[n]",), "rank-mismatch", "x has rank 1"),
        BadExample(("i32[n, 2, 3]",), "dtype-mismatch", "x must be one of"),
    )

    def infer(self, args: tuple[Type, ...], attrs: Any, ctx: InferCtx) -> Type:
        """Extents of 1 after batch and channels."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", FLOATS)
        if x.rank < 2:
            ctx.fail(f"x has rank {x.rank}, expected (batch, channels, *spatial)", code="rank-mismatch")
        return TensorType((*x.shape[:2], *(1,) * (x.rank - 2)), x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: Any, out: tuple[TensorType, ...]) -> PrimFunc:
        """Take the loops of the reduction."""
        return self.inner.lower(args, spatial(args[0].rank), out)

    def reference(self, args: tuple[Array, ...], attrs: Any) -> Array | tuple[Array, ...]:
        """Take the reduction's reference."""
        return self.inner.reference(args, spatial(args[0].ndim))

    def decompose(self, args: tuple[GraphExpr, ...], attrs: Any, bb: BlockBuilder) -> GraphExpr | None:
        """Emit the reduction."""
        x = args[0].type
        return emit_op(bb, self.inner, args[0], attrs=spatial(x.rank)) if isinstance(x, TensorType) else None


def spatial(rank: int) -> ReduceAttrs:
    """Reduction of all axes but the first two."""
    return ReduceAttrs(tuple(range(2, rank)), keepdims=True)


class GlobalAveragePool(GlobalPool):
    """Mean over the spatial axes.

    NaN of nothing. TVM: relax.nn.adaptive_avg_pool2d with output size 1, ONNX: GlobalAveragePool.
    """

    name = "global_average_pool"
    inner = Mean()


class GlobalMaxPool(GlobalPool):
    """Largest element over the spatial axes.

    NaN wins; -inf of nothing. TVM: none, ONNX: GlobalMaxPool.
    """

    name = "global_max_pool"
    inner = Max()


@dataclass(frozen=True, slots=True)
class NormOrder(Attrs):
    """Attributes of `GlobalLpPool`."""

    p: float = 2
    """Exponent of the norm, above 0."""


class GlobalLpPool(GlobalPool):
    """Norm over the spatial axes: ``(sum of |x| ** p) ** (1 / p)``.

    0 of nothing. TVM: none, ONNX: GlobalLpPool.
    """

    name = "global_lp_pool"
    Attrs = NormOrder
    examples = (
        *GlobalPool.examples,
        Example(("f32[n, 2, h]",), "f32[n, 2, 1]", NormOrder(3)),
        Example(("f32[n, 2, h]",), "f32[n, 2, 1]", NormOrder(1)),
    )
    bad_examples = (
        *GlobalPool.bad_examples,
        BadExample(("f32[1, 1, 2]",), "attribute", "p must be above 0", NormOrder(0)),
    )

    def infer(self, args: tuple[Type, ...], attrs: Any, ctx: InferCtx) -> Type:
        """Extents of 1 after batch and channels."""
        if attrs.p <= 0:
            ctx.fail(f"p must be above 0, got {attrs.p}", code="attribute")
        return super().infer(args, attrs, ctx)

    def lower(self, args: tuple[TensorType, ...], attrs: Any, out: tuple[TensorType, ...]) -> PrimFunc:
        """Sum of powers, then the root."""
        f = ProgramBuilder(self.name)
        x, y = input_of(f, "x", args[0]), output_of(f, "y", out[0])
        rows = Rows(x.shape, tuple(range(2, args[0].rank)))
        total = f.temp("total", rows.outer, compute_dtype(y.dtype))
        f.reduce(total, rows.inner, Combine.SUM, lambda *i: powered(load_wide(x, rows.full(i)), attrs.p))
        f.compute(y, lambda *i: cast(rooted(total[i[:2]], attrs.p), y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: Any) -> Array:
        """By its definition."""
        x = widen(args[0])
        total = np.sum(np.abs(x) ** attrs.p, tuple(range(2, x.ndim)), keepdims=True)
        return np.asarray(total ** (1 / attrs.p)).astype(args[0].dtype)

    def decompose(self, args: tuple[GraphExpr, ...], attrs: Any, bb: BlockBuilder) -> GraphExpr | None:
        """Keep it: its loops are its own."""
        return None


@dataclass(frozen=True, slots=True)
class UnpoolAttrs(Attrs):
    """Attributes of `MaxUnpool`: those of the pooling that it undoes."""

    kernel: tuple[int, ...]
    """Extent of the window, one per spatial axis."""
    strides: tuple[int, ...] = ()
    """Distance of neighbouring windows (1)."""
    padding: tuple[DimLike, ...] = ()
    """Padding, as for `max_pool`."""
    output_shape: tuple[DimLike, ...] = ()
    """Shape of the result, of x's rank; empty: ``(extent - 1) * stride + kernel - pads`` along each spatial axis."""

    def natural(self, shape: tuple[DimLike, ...]) -> tuple[DimLike, ...]:
        """Shape of the pooled tensor, as far as the results tell: what the places count in."""
        rank = len(shape) - 2
        kernel, strides = per_axis(self.kernel, rank), per_axis(self.strides, rank)
        return (
            *shape[:2],
            *(
                sub(add(mul(sub(d, 1), s), k), add(*pads))
                for d, k, s, pads in zip(shape[2:], kernel, strides, pads_of(self.padding, rank), strict=True)
            ),
        )


class MaxUnpool(Op[UnpoolAttrs]):
    """Inverse of max pooling: zeros, with each element of x at the place that ``indices`` gives.

    Places count in the flattened shape that the pooling's attributes imply (batch and channels included); one out
    of range fails the call. A larger ``output_shape`` adds zeros at the ends, a smaller one drops what lies
    outside. Of elements with one place the last stays. TVM: none, ONNX: MaxUnpool.
    """

    name = "max_unpool"
    params = (
        Param("x", "(batch, channels, *spatial)", NUMERIC),
        Param("indices", "places, like x", ("int64", "int32")),
    )
    Attrs = UnpoolAttrs
    examples = (
        Example(
            ("f32[1, 1, 2, 2]", "i64[1, 1, 2, 2]"),
            "f32[1, 1, 4, 4]",
            UnpoolAttrs((2, 2), (2, 2)),
            values=(None, [[[[5, 7], [13, 15]]]]),
        ),
        Example(
            ("f32[1, 1, 2, 2]", "i64[1, 1, 2, 2]"),
            "f32[1, 1, 5, 3]",
            UnpoolAttrs((2, 2), (2, 2), output_shape=(1, 1, 5, 3)),
            values=(None, [[[[5, 7], [13, 5]]]]),
        ),
        Example(("f32[n, 2, m]", "i64[n, 2, m]"), "f32[n, 2, 2*m]", UnpoolAttrs((2,), (2,)), low=0, high=3, min_size=1),
    )
    bad_examples = (
        BadExample(("f32[1, 1, 2]", "i64[1, 1, 3]"), "shape-mismatch", "axis 2 of indices", UnpoolAttrs((2,))),
        BadExample(("f32[1, 1, 2]", "i64[1, 1, 2]"), "attribute", "output_shape", UnpoolAttrs((2,), (), (), (3,))),
        BadExample(("f32[1, 1, 2]", "i64[1, 1, 2]"), "attribute", "strides has 2 values", UnpoolAttrs((2,), (1, 1))),
        BadExample(("f32[1, 1, 2]", "i64[1, 1, 2]"), "attribute", "padding has 3", UnpoolAttrs((2,), (), (0, 0, 0))),
    )

    def infer(self, args: tuple[Type, ...], attrs: UnpoolAttrs, ctx: InferCtx) -> Type:
        """The given or the implied shape."""
        x, places = ctx.tensor(args, 0, "x"), ctx.tensor(args, 1, "indices")
        check_dtype(ctx, x, "x", NUMERIC)
        if x.rank < 3 or places.rank != x.rank:
            ctx.fail(f"x has rank {x.rank}, indices {places.rank}, expected one of at least 3", code="rank-mismatch")
        for axis, (a, b) in enumerate(zip(places.shape, x.shape, strict=True)):
            ctx.require_equal(a, b, f"axis {axis} of indices and of x")
        if len(attrs.kernel) not in (1, x.rank - 2) or len(attrs.output_shape) not in (0, x.rank):
            ctx.fail("kernel and output_shape do not fit the rank of x", code="attribute")
        check_steps(ctx, x.rank - 2, kernel=attrs.kernel, strides=attrs.strides)
        check_padding(ctx, x.rank - 2, attrs.padding)
        shape = tuple(map(ctx.facts.simplify, attrs.output_shape or attrs.natural(x.shape)))
        for axis, d in enumerate(shape):
            ctx.require_at_least(0, d, f"extent of axis {axis} of the result")
        return TensorType(shape, x.dtype)

    def lower(self, args: tuple[TensorType, ...], attrs: UnpoolAttrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """Zeros, then a serial scatter."""
        f = ProgramBuilder(self.name)
        x, places, y = input_of(f, "x", args[0]), input_of(f, "indices", args[1]), output_of(f, "y", out[0])
        natural = attrs.natural(x.shape)
        f.compute(y, lambda *i: const(0, y.dtype))

        def put(*i: Expr) -> Stmt:
            def store(place: Var) -> Stmt:
                size = product(natural)
                message = f"{self.name}: place {{}} is out of range for {{}} elements"
                check = Assert(within(place, size), "runtime-index", message, (place, const(0) + size))
                at = unravel(place, natural)
                inside: Expr = const(True, "bool")
                for v, d in zip(at, y.shape, strict=True):
                    inside = inside & within(v, d)
                return seq(check, when(within(place, size) & inside, Store(y, at, x.at(i))))

            return let("place", cast(places.at(i), "int64"), store)

        f.block("scatter", (), lambda: nest("p", x.shape, put))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: UnpoolAttrs) -> Array:
        """Scatter into the implied shape, then pad or crop."""
        x, places = args
        natural = tuple(int(d) for d in attrs.natural(x.shape))
        flat = np.zeros(int(np.prod(natural)), x.dtype)
        for value, place in zip(x.ravel(), places.ravel(), strict=True):
            flat[place] = value
        whole = flat.reshape(natural)
        result = np.zeros(tuple(int(d) for d in attrs.output_shape) or natural, x.dtype)
        common = tuple(slice(min(a, b)) for a, b in zip(natural, result.shape, strict=True))
        result[common] = whole[common]
        return result


GLOBAL_POOL: Final = (GlobalAveragePool(), GlobalMaxPool(), GlobalLpPool(), MaxUnpool())
