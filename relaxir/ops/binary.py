"""Arithmetic of two tensors, broadcasting like NumPy; divisions are in `relaxir.ops.division`."""

from __future__ import annotations

from typing import Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import BadExample, InferCtx
from relaxir.ir.types import TensorType, Type
from relaxir.ops.common import FLOATS, INTEGERS, NUMERIC, check_dtype, tensors_of
from relaxir.ops.elementwise import Binary, binary_examples
from relaxir.support.dtypes import info
from relaxir.tir import (
    Alloc,
    BinOp,
    Buffer,
    Expr,
    For,
    If,
    ProgramBuilder,
    Scope,
    Seq,
    Stmt,
    Store,
    Var,
    binary,
    cast,
    const,
    ne,
    select,
)

BAD_PAIRS: Final = (
    BadExample(("f32[n]", "f64[n]"), "dtype-mismatch", "a is float32 but b is float64"),
    BadExample(
        ("f32[n + 2]", "f32[n + 3]"), "shape-mismatch", "axis 0 is `n + 2` on the left and `n + 3` on the right"
    ),
    BadExample(("f32[3]", "f32[4]"), "shape-mismatch", "axis 0 is `3` on the left and `4` on the right"),
)
BAD_BOOLS: Final = (BadExample(("bool[n]", "bool[n]"), "dtype-mismatch", "a must be one of"),)
ARITHMETIC: Final = binary_examples("f32", "f64", "f16", "bf16", "i32", "u8")


class Arithmetic(Binary[Attrs]):
    """Base of arithmetic on numbers: the result has the operands' dtype; integers wrap."""

    dtypes = NUMERIC
    examples = ARITHMETIC
    bad_examples = (*BAD_PAIRS, *BAD_BOOLS)


class Add(Arithmetic):
    """``a + b``.

    Integers wrap. TVM: relax.add, ONNX: Add.
    """

    name = "add"
    op = BinOp.ADD
    ufunc = np.add


class Subtract(Arithmetic):
    """``a - b``.

    Integers wrap. TVM: relax.subtract, ONNX: Sub.
    """

    name = "subtract"
    op = BinOp.SUB
    ufunc = np.subtract


class Multiply(Arithmetic):
    """``a * b``.

    Integers wrap. TVM: relax.multiply, ONNX: Mul.
    """

    name = "multiply"
    op = BinOp.MUL
    ufunc = np.multiply


class Minimum(Arithmetic):
    """The smaller of ``a`` and ``b``.

    NaN on either side gives NaN. TVM: relax.minimum, ONNX: Min (of two).
    """

    name = "minimum"
    op = BinOp.MIN
    ufunc = np.minimum


class Maximum(Arithmetic):
    """The larger of ``a`` and ``b``.

    NaN on either side gives NaN. TVM: relax.maximum, ONNX: Max (of two).
    """

    name = "maximum"
    op = BinOp.MAX
    ufunc = np.maximum


class Atan2(Binary[Attrs]):
    """Angle of the point (b, a) in -pi..pi: the arc tangent of ``a / b`` in the right quadrant.

    Signed zeros choose the quadrant: atan2(0, -0.0) is pi. TVM: none, ONNX: none.
    """

    name = "atan2"
    dtypes = FLOATS
    op = BinOp.ATAN2
    ufunc = np.arctan2
    examples = binary_examples("f32", "f64", "f16")
    bad_examples = (*BAD_PAIRS, BadExample(("i32[n]", "i32[n]"), "dtype-mismatch", "a must be one of"))


class Power(Binary[Attrs]):
    """``a ** b``; the result has the dtype of ``a``, the exponent may be of another number type.

    Floats: C's pow (``0 ** 0`` is 1, a negative base with a fractional exponent gives NaN). Integers with integer
    exponents wrap; a negative exponent gives the quotient rounded to zero: 1 for base 1, 1 or -1 for base -1, else 0
    (NumPy refuses it). An integer base with a float exponent is computed in float64 and truncated.
    TVM: relax.power, ONNX: Pow.
    """

    name = "power"
    dtypes = NUMERIC
    examples = (
        *binary_examples("f32", "f64", "f16", "bf16", low=0.1, high=2.0),
        *binary_examples("i32", "u8", "i8", low=-4, high=5),
    )
    bad_examples = (BAD_PAIRS[1], *BAD_BOOLS)

    def infer(self, args: tuple[Type, ...], attrs: Attrs, ctx: InferCtx) -> Type:
        """Broadcast shape, dtype of the base."""
        a, b = tensors_of(ctx, args, ("a", "b"))
        check_dtype(ctx, a, "a", NUMERIC)
        check_dtype(ctx, b, "b", NUMERIC)
        return TensorType(ctx.broadcast((a.shape, b.shape)), a.dtype)

    def scalar(self, a: Expr, b: Expr, attrs: Attrs) -> Expr:
        """Floats by pow."""
        wide = a.dtype if a.dtype in FLOATS else "float64"
        return binary(BinOp.POW, cast(a, wide), cast(b, wide))

    def stage(self, f: ProgramBuilder, a: Buffer, b: Buffer, y: Buffer, attrs: Attrs) -> None:
        """Floats by pow, integers by squaring."""
        if a.dtype in INTEGERS and b.dtype in INTEGERS:
            f.block("y", y.shape, lambda *i: _integer_power(*self.operands(a, b, y, i), y, i))
        else:
            super().stage(f, a, b, y, attrs)

    def numpy(self, a: Array, b: Array, attrs: Attrs) -> Array:
        """np.power, with negative integer exponents by their definition."""
        if not (np.issubdtype(a.dtype, np.integer) and np.issubdtype(b.dtype, np.integer)):
            wide = a.dtype if np.issubdtype(a.dtype, np.floating) else np.dtype(np.float64)
            return np.asarray(np.power(a.astype(wide), b.astype(wide)))
        a, b = np.broadcast_arrays(a, b)
        signed = b.astype(np.int64) if b.dtype.kind == "i" else np.zeros(b.shape, np.int64)
        small = np.where(a == 1, 1, np.where(a.astype(np.int64) == -1, 1 - 2 * (signed & 1), 0))
        positive = np.where(signed < 0, 0, b).astype(np.uint64)
        # powers wrap modulo 2 ** 64, so the low bits are right for every narrower type
        return np.where(signed < 0, small, np.power(a.astype(np.uint64), positive).astype(np.int64)).astype(a.dtype)


def _integer_power(a: Expr, b: Expr, y: Buffer, index: tuple[Expr, ...]) -> Stmt:
    """Exponentiation by squaring; all bits of the exponent in turn."""
    dtype, bits = a.dtype, info(b.dtype).bits
    acc, base = (Buffer(n, (), dtype, Scope.STACK) for n in ("acc", "base"))
    k = Var("k")
    one = const(1, b.dtype)
    bit = binary(BinOp.AND, binary(BinOp.SHR, b, cast(k, b.dtype)), one)
    step = Seq(
        (
            If(ne(bit, 0), Store(acc, (), acc[()] * base[()])),
            Store(base, (), base[()] * base[()]),
        )
    )
    loop = For(k, const(bits), step)
    value: Expr = acc[()]
    if b.dtype.startswith("i"):
        odd = ne(binary(BinOp.AND, b, one), 0)
        minus = select(odd, const(-1, dtype), const(1, dtype)) if dtype.startswith("i") else const(0, dtype)
        is_minus = binary(BinOp.EQ, a, const(-1, dtype)) if dtype.startswith("i") else const(False, "bool")
        small = select(binary(BinOp.EQ, a, 1), const(1, dtype), select(is_minus, minus, const(0, dtype)))
        value = select(b < 0, small, value)
    body = Seq((Store(acc, (), const(1, dtype)), Store(base, (), a), loop, Store(y, index, value)))
    return Alloc(acc, Alloc(base, body))


BINARY: Final = (Add(), Subtract(), Multiply(), Minimum(), Maximum(), Power(), Atan2())
