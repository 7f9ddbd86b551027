"""Operators between tensors and shapes: the only way from dimensions to data and back."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.attrs import Attrs as BaseAttrs
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, Check, Expr, ShapeExpr
from relaxir.ir.op import BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import ShapeType, TensorType, Type
from relaxir.ops.kernels import emit_op, output_of
from relaxir.ops.movement import Reshape
from relaxir.sym import DimLike, Proof, Relation, product, to_text
from relaxir.tir import PrimFunc, ProgramBuilder, Store, as_expr, const


class ShapeOf(Op[Attrs]):
    """The shape of a tensor as a shape value; it reads no data and folds to the dimensions themselves.

    TVM: relax.shape_of, ONNX: Shape (followed by `ShapeToTensor`).
    """

    name = "shape_of"
    examples = (Example(("f32[n, 4]",), "shape(n, 4)"), Example(("i64[]",), "shape()"))

    def infer(self, args: tuple[Type, ...], attrs: Attrs, ctx: InferCtx) -> Type:
        """The dimensions."""
        return ShapeType(ctx.tensor(args, 0, "x").shape)

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """The shape as int64."""
        return np.array(args[0].shape, np.int64)

    def decompose(self, args: tuple[Expr, ...], attrs: Attrs, bb: BlockBuilder) -> Expr | None:
        """A shape expression."""
        x = args[0].type
        return ShapeExpr(x.shape) if isinstance(x, TensorType) else None


class DimsToTensor(Op["DimsToTensor.Attrs"]):
    """Dimensions as data: ``i64[k]`` with the value of each of ``dims``.

    Takes no operand; the dimensions are arguments of the kernel. TVM: none, ONNX: Shape, Size.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """The dimensions to write."""

        dims: tuple[DimLike, ...]

    name = "dims_to_tensor"
    params = ()
    kind = OpKind.INJECTIVE
    examples = (
        Example((), "i64[2]", Attrs((3, 5))),
        Example((), "i64[0]", Attrs(())),
    )

    def infer(self, args: tuple[Type, ...], attrs: DimsToTensor.Attrs, ctx: InferCtx) -> Type:
        """One int64 per dimension."""
        return TensorType((len(attrs.dims),), "int64")

    def lower(self, args: tuple[TensorType, ...], attrs: DimsToTensor.Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One store per dimension."""
        f = ProgramBuilder(self.name)
        y = output_of(f, "y", out[0])
        for n, d in enumerate(attrs.dims):
            f.block(f"d{n}", (), lambda n=n, d=d: Store(y, (const(n),), as_expr(d)))
        if not attrs.dims:
            f.compute(y, lambda i: i)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: DimsToTensor.Attrs) -> Array:
        """np.array."""
        return np.array([int(d) for d in attrs.dims], np.int64)


class ShapeToTensor(Op[Attrs]):
    """A shape value as data: ``i64[k]`` with one element per dimension; becomes `DimsToTensor`.

    TVM: relax.shape_to_tensor, ONNX: Shape.
    """

    name = "shape_to_tensor"
    params = (Param("shape", "a shape value"),)
    examples = (Example(("shape(n, 4)",), "i64[2]"),)
    bad_examples = (BadExample(("f32[n]",), "type-kind", "shape value"),)

    def infer(self, args: tuple[Type, ...], attrs: Attrs, ctx: InferCtx) -> Type:
        """One int64 per dimension."""
        if len(args) != 1 or not isinstance(args[0], ShapeType):
            ctx.fail("operand shape must be a shape value", code="type-kind", help="use shape_of")
        return TensorType((len(args[0].dims),), "int64")

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """The shape as int64."""
        return np.array(args[0], np.int64)

    def decompose(self, args: tuple[Expr, ...], attrs: Attrs, bb: BlockBuilder) -> Expr | None:
        """The dimensions as attributes."""
        shape = args[0].type
        if not isinstance(shape, ShapeType):
            return None
        return emit_op(bb, DimsToTensor(), attrs=DimsToTensor.Attrs(shape.dims))


class Size(Op[Attrs]):
    """Number of elements as ``i64[]``. TVM: relax.size, ONNX: Size."""

    name = "size"
    examples = (Example(("f32[n, 4]",), "i64[]"), Example(("bool[]",), "i64[]"))

    def infer(self, args: tuple[Type, ...], attrs: Attrs, ctx: InferCtx) -> Type:
        """An int64 scalar."""
        ctx.tensor(args, 0, "x")
        return TensorType((), "int64")

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """np.size."""
        return np.array(args[0].size, np.int64)

    def decompose(self, args: tuple[Expr, ...], attrs: Attrs, bb: BlockBuilder) -> Expr | None:
        """The product of the dimensions, as data."""
        x = args[0].type
        if not isinstance(x, TensorType):
            return None
        count = emit_op(bb, DimsToTensor(), attrs=DimsToTensor.Attrs((product(x.shape),)))
        return emit_op(bb, Reshape(), count, attrs=Reshape.Attrs(()))


class TensorToShape(Op["TensorToShape.Attrs"]):
    """The values of an integer tensor as fresh dimensions: the only way data becomes a size.

    Takes ``i64[k]`` of constant k, or ``i64[]`` (one dimension). ``min`` and ``max`` bound each value: constants
    enter the new symbols' ranges, dims become relations; both are checked when the values are read. ``names`` are
    hints. The default range is ``0 ..``. A host operation: it has no kernel. TVM: relax.tensor_to_shape, ONNX: none.
    """

    @dataclass(frozen=True, slots=True)
    class Attrs(BaseAttrs):
        """Bounds (empty: 0 and none) and names (empty: ``d``) per element."""

        min: tuple[int, ...] = ()
        max: tuple[DimLike | None, ...] = ()
        names: tuple[str, ...] = ()

    name = "tensor_to_shape"
    params = (Param("t", "sizes", ("int64",)),)
    examples = (
        Example(("i64[2]",), "shape(a, b)", Attrs(names=("a", "b")), low=0),
        Example(("i64[]",), "shape(d)", Attrs(min=(1,), max=(8,)), low=1),
    )
    bad_examples = (
        BadExample(("f32[2]",), "dtype-mismatch", "int64"),
        BadExample(("i64[n]",), "type-kind", "constant"),
        BadExample(("i64[2]",), "attribute", "bounds", Attrs(min=(0,))),
    )

    def infer(self, args: tuple[Type, ...], attrs: TensorToShape.Attrs, ctx: InferCtx) -> Type:
        """Fresh symbols, defined by the binding."""
        t = ctx.tensor(args, 0, "t")
        if t.dtype != "int64":
            ctx.fail(f"t must be int64, got {t.dtype}", code="dtype-mismatch")
        count = 1 if t.rank == 0 else t.shape[0]
        if t.rank > 1 or not isinstance(count, int):
            ctx.fail("t must be a scalar or a vector of constant length", code="type-kind")
        for values in (attrs.min, attrs.max, attrs.names):
            if values and len(values) != count:
                ctx.fail(f"{count} bounds and names expected, got {len(values)}", code="attribute")
        dims: tuple[DimLike, ...] = ()
        for n in range(count):
            high = attrs.max[n] if attrs.max else None
            fixed = high if isinstance(high, int) or high is None else ctx.facts.bounds(high)[1]
            low = attrs.min[n] if attrs.min else 0
            symbol = ctx.fresh(attrs.names[n] if attrs.names else "d", min=low, max=fixed)
            if high is not None and not isinstance(high, int):
                self._bound(symbol, high, ctx)
            dims += (symbol,)
        return ShapeType(dims)

    def _bound(self, symbol: DimLike, high: DimLike, ctx: InferCtx) -> None:
        """Record ``symbol <= high`` for everybody after; a check even if strict, since data cannot be proved."""
        if ctx.facts.prove_le(symbol, high) is not Proof.PROVED:
            text = f"{self.name}: {to_text(symbol)} must be at most {to_text(high)}, got {{}} and {{}}"
            ctx.checks.append(Check(Relation("<=", symbol, high), "runtime-shape", text, (symbol, high), ctx.span))

    def reference(self, args: tuple[Array, ...], attrs: TensorToShape.Attrs) -> Array:
        """The values."""
        return np.atleast_1d(args[0])


SHAPES: Final[tuple[Op[Any], ...]] = (ShapeOf(), DimsToTensor(), ShapeToTensor(), Size(), TensorToShape())
