"""Elementwise operators of one tensor."""

from __future__ import annotations

from typing import ClassVar

import numpy as np

from relaxir.ir.expr import Array
from relaxir.ir.op import Attrs, BadExample, Example, InferCtx, Op, OpKind, Param
from relaxir.ir.types import TensorType, Type
from relaxir.support.dtypes import info
from relaxir.tir import Expr, Intrinsic, PrimFunc, ProgramBuilder, call

FLOATS: tuple[str, ...] = ("float32", "float64", "float16", "bfloat16")


class Unary(Op[Attrs]):
    """Base of elementwise operators: same shape and dtype out; subclasses give `scalar` and `reference`."""

    params = (Param("x", "any shape"),)
    kind = OpKind.ELEMENTWISE
    dtypes: ClassVar[tuple[str, ...]] = ()  # accepted dtypes; empty: all

    def infer(self, args: tuple[Type, ...], attrs: Attrs, ctx: InferCtx) -> Type:
        """Type of the operand."""
        x = ctx.tensor(args, 0, "x")
        if self.dtypes and x.dtype not in self.dtypes:
            ctx.fail(f"x must be one of {', '.join(self.dtypes)}, got {x.dtype}", code="dtype-mismatch")
        return x

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """The function of one element."""
        raise NotImplementedError

    def lower(self, args: tuple[TensorType, ...], attrs: Attrs, out: tuple[TensorType, ...]) -> PrimFunc:
        """One elementwise stage."""
        f = ProgramBuilder(self.name)
        x = f.input("x", args[0].shape, args[0].dtype)
        y = f.output("y", out[0].shape, out[0].dtype)
        f.compute(y, lambda *i: self.scalar(x[i], attrs))
        return f.build()


class Exp(Unary):
    """``e ** x``, elementwise on floats.

    inf for x above the dtype's log-range, 0 for -inf, NaN for NaN. TVM: relax.exp, ONNX: Exp.
    """

    name = "exp"
    dtypes = FLOATS
    examples = (Example(("f32[n, 4]",), "f32[n, 4]"), Example(("f64[]",), "f64[]"))
    bad_examples = (BadExample(("i32[n]",), "dtype-mismatch", "x must be one of"),)

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """exp intrinsic."""
        return call(Intrinsic.EXP, x)

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """np.exp."""
        return np.exp(args[0], dtype=info(args[0].dtype).numpy)
