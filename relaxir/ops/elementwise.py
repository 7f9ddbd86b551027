"""Bases of elementwise operators: functions of one element, and of two that broadcast."""

from __future__ import annotations

from typing import ClassVar, TypeVar

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import (
    FLOAT_EXAMPLES,
    FLOATS,
    NOT_FLOAT,
    broadcast_read,
    check_dtype,
    check_same_dtype,
    load_wide,
    tensors_of,
    widen,
)
from relaxir.tir import BinOp, Buffer, Expr, Intrinsic, PrimFunc, ProgramBuilder, binary, call, cast

A = TypeVar("A", bound=Attrs)


class Unary(Op[A]):
    """Base of functions of one element: same shape out; subclasses give `scalar` and `numpy`.

    16-bit floats are computed in float32 and rounded once.
    """

    params = (Param("x", "any shape"),)
    kind = OpKind.ELEMENTWISE
    dtypes: ClassVar[tuple[str, ...]] = ()  # accepted dtypes; empty: all
    result: ClassVar[str] = ""  # dtype of the result; empty: the operand's
    rising: ClassVar[bool] = False  # monotone, whatever the attributes and the dtype

    def monotone(self, attrs: A, dtype: str) -> int:
        """As `rising` says."""
        return int(self.rising)

    def infer(self, args: tuple[Type, ...], attrs: A, ctx: InferCtx) -> Type:
        """Shape of the operand."""
        x = ctx.tensor(args, 0, "x")
        check_dtype(ctx, x, "x", self.dtypes)
        return TensorType(x.shape, self.result) if self.result else x

    def scalar(self, x: Expr, attrs: A) -> Expr:
        """Compute one element, in the compute type."""
        raise NotImplementedError

    def numpy(self, x: Array, attrs: A) -> Array:
        """Compute an array, in the compute type."""
        raise NotImplementedError

    def lower(self, args: tuple[TensorType, ...], attrs: A, out: tuple[TensorType, ...]) -> PrimFunc:
        """One elementwise stage."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        y = f.output("y", out[0].shape, out[0].dtype)
        f.compute(y, lambda *i: cast(self.scalar(load_wide(x, i), attrs), y.dtype))
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: A) -> Array:
        """`numpy` of the widened operand."""
        return np.asarray(self.numpy(widen(args[0]), attrs), self.result or args[0].dtype)


class FloatUnary(Unary[Attrs]):
    """Base of functions of floats that are one intrinsic and one NumPy function."""

    dtypes = FLOATS
    examples = FLOAT_EXAMPLES
    bad_examples = NOT_FLOAT
    intrinsic: ClassVar[Intrinsic]
    ufunc: ClassVar[np.ufunc]

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Apply the intrinsic."""
        return call(self.intrinsic, x)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """Call the NumPy function."""
        return np.asarray(self.ufunc(x))


class Binary(Op[A]):
    """Base of functions of two elements, broadcasting like NumPy; both operands have the same dtype.

    Extents that may be 1 at run time are read through `relaxir.tir.bcast`; extents that may differ without one being 1
    are checked at run time.
    """

    params = (Param("a", "any shape"), Param("b", "broadcasts with a"))
    kind = OpKind.BROADCAST
    dtypes: ClassVar[tuple[str, ...]] = ()
    result: ClassVar[str] = ""
    op: ClassVar[BinOp]
    ufunc: ClassVar[np.ufunc]

    def infer(self, args: tuple[Type, ...], attrs: A, ctx: InferCtx) -> Type:
        """Broadcast shape; the operands' dtype, or the fixed one of comparisons."""
        names = tuple(p.name for p in self.params)
        a, b = tensors_of(ctx, args, names)
        check_dtype(ctx, a, names[0], self.dtypes)
        check_same_dtype(ctx, (a, b), names)
        return TensorType(ctx.broadcast((a.shape, b.shape)), self.result or a.dtype)

    def scalar(self, a: Expr, b: Expr, attrs: A) -> Expr:
        """Compute one pair, in the compute type; default: `op`."""
        return binary(self.op, a, b)

    def numpy(self, a: Array, b: Array, attrs: A) -> Array:
        """Compute two arrays, in the compute type; default: `ufunc`."""
        return np.asarray(self.ufunc(a, b))

    def stage(self, f: ProgramBuilder, a: Buffer, b: Buffer, y: Buffer, attrs: A) -> None:
        """Emit the loops; overridden where a point can fail."""
        f.compute(y, lambda *i: cast(self.scalar(*self.operands(a, b, y, i), attrs), y.dtype))

    @staticmethod
    def operands(a: Buffer, b: Buffer, y: Buffer, index: tuple[Expr, ...]) -> tuple[Expr, Expr]:
        """Both elements for one point of the result."""
        return tuple(load_wide(x, broadcast_read(x, index, y.shape)) for x in (a, b))  # type: ignore[return-value]  # as many as there are operands

    def lower(self, args: tuple[TensorType, ...], attrs: A, out: tuple[TensorType, ...]) -> PrimFunc:
        """One stage over the result."""
        f = ProgramBuilder(self.name)
        a, b = (f.input(p.name, t.shape, t.dtype) for p, t in zip(self.params, args, strict=True))
        self.stage(f, a, b, f.output("y", out[0].shape, out[0].dtype), attrs)
        return f.build()

    def reference(self, args: tuple[Array, ...], attrs: A) -> Array:
        """`numpy` of the widened operands."""
        a, b = args
        return np.asarray(self.numpy(widen(a), widen(b), attrs)).astype(self.result or a.dtype)


def binary_examples(*dtypes: str, result: str = "", **kw: float) -> tuple[Example, ...]:
    """Examples of broadcasting: equal shapes, a scalar, run-time ones, differing ranks."""
    first, *_ = dtypes
    r = result or first
    return (
        Example((f"{first}[n, m]", f"{first}[n, m]"), f"{r}[n, m]", **kw),  # type: ignore[arg-type]  # these are low and high
        Example((f"{first}[n, 1, 4]", f"{first}[m, 1]"), f"{r}[n, m, 4]", **kw),  # type: ignore[arg-type]  # these are low and high
        Example((f"{first}[n]", f"{first}[m]"), f"{r}[broadcast(n, m)]", **kw),  # type: ignore[arg-type]  # these are low and high
        *(Example((f"{d}[n, 3]", f"{d}[]"), f"{result or d}[n, 3]", **kw) for d in dtypes),  # type: ignore[arg-type]  # these are low and high
    )
