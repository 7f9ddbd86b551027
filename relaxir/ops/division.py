"""Quotients and remainders of two tensors: by rounding to minus infinity, or to zero.

Dividing an integer by zero fails the call with `runtime-division-by-zero`; floats follow IEEE 754.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array
from relaxir.ir.op import Example
from relaxir.ops.binary import BAD_BOOLS, BAD_PAIRS
from relaxir.ops.common import FLOATS, NUMERIC
from relaxir.ops.elementwise import Binary
from relaxir.support.errors import RuntimeFailure
from relaxir.tir import (
    Assert,
    BinOp,
    Buffer,
    Expr,
    Intrinsic,
    ProgramBuilder,
    Seq,
    Stmt,
    Store,
    binary,
    call,
    cast,
    eq,
    ne,
    select,
)

THIRDS: Final = (7, -7, 7, -7, 6, -6, 0)
SIGNS: Final = (3, 3, -3, -3, 3, -3, 5)


def _examples() -> tuple[Example, ...]:
    floats = tuple(Example((f"{d}[n, m]", f"{d}[m]"), f"{d}[n, m]", low=0.5, high=9.0) for d in ("f32", "f64", "f16"))
    whole = tuple(Example((f"{d}[n, 1]", f"{d}[m]"), f"{d}[n, m]", low=1, high=99) for d in ("i32", "u8", "i64"))
    signs = tuple(
        Example((f"{d}[7]", f"{d}[7]"), f"{d}[7]", values=(THIRDS, SIGNS)) for d in ("i8", "i64", "f32", "f64")
    )
    return (*floats, *whole, *signs)


class Division(Binary[Attrs]):
    """Base of quotients and remainders: integers are guarded against zero divisors."""

    dtypes = NUMERIC
    examples = _examples()
    bad_examples = (*BAD_PAIRS, *BAD_BOOLS)

    def integers(self, a: Expr, b: Expr) -> Expr:
        """Compute the function of integers, with ``b != 0``."""
        raise NotImplementedError

    def floats(self, a: Expr, b: Expr) -> Expr:
        """Compute the function of floats."""
        raise NotImplementedError

    def scalar(self, a: Expr, b: Expr, attrs: Attrs) -> Expr:
        """By type."""
        return self.floats(a, b) if a.dtype in FLOATS else self.integers(a, b)

    def stage(self, f: ProgramBuilder, a: Buffer, b: Buffer, y: Buffer, attrs: Attrs) -> None:
        """Integers: each point first checks its divisor."""
        if a.dtype in FLOATS:
            super().stage(f, a, b, y, attrs)
            return

        def point(*i: Expr) -> Stmt:
            left, right = self.operands(a, b, y, i)
            message = f"{self.name}: {{}} divided by zero"
            guard = Assert(ne(right, 0), "runtime-division-by-zero", message, (cast(left, "int64"),))
            return Seq((guard, Store(y, i, self.integers(left, right))))

        f.block("y", y.shape, point)

    def reference(self, args: tuple[Array, ...], attrs: Attrs) -> Array:
        """`numpy` of the widened operands, after the check that the loops make."""
        a, b = args
        failing = np.broadcast_arrays(a, b)[0][np.broadcast_to(b == 0, np.broadcast_shapes(a.shape, b.shape))]
        if b.dtype.kind != "f" and failing.size:
            raise RuntimeFailure(f"{self.name}: {failing[0]} divided by zero", code="runtime-division-by-zero")
        return super().reference(args, attrs)


def truncated(a: Array, b: Array) -> Array:
    """Quotient of integers rounded to zero, wrapping."""
    quotient, rest = np.floor_divide(a, b), np.mod(a, b)
    return np.asarray(quotient + ((rest != 0) & ((a < 0) != (b < 0))).astype(a.dtype))


class TruncDivide(Division):
    """``a / b`` rounded to zero, on integers and floats.

    Integers: the most negative value by -1 wraps to itself; by zero fails the call. Floats: trunc of the IEEE quotient.
    TVM: relax.divide on integers, ONNX: Div on integers.
    """

    name = "trunc_divide"

    def integers(self, a: Expr, b: Expr) -> Expr:
        """Rounding to zero."""
        return binary(BinOp.TRUNCDIV, a, b)

    def floats(self, a: Expr, b: Expr) -> Expr:
        """Whole part of the quotient."""
        return call(Intrinsic.TRUNC, a / b)

    def numpy(self, a: Array, b: Array, attrs: Attrs) -> Array:
        """By its definition."""
        return np.asarray(np.trunc(a / b)) if a.dtype.kind == "f" else truncated(a, b)


class Divide(TruncDivide):
    """``a / b``: the IEEE quotient of floats, the quotient rounded to zero of integers.

    Floats: 1 / 0 is inf, 0 / 0 is NaN. Integers: the most negative value by -1 wraps to itself; by zero fails the call.
    TVM: relax.divide, ONNX: Div.
    """

    name = "divide"

    def floats(self, a: Expr, b: Expr) -> Expr:
        """Division."""
        return a / b

    def numpy(self, a: Array, b: Array, attrs: Attrs) -> Array:
        """By its definition."""
        return np.asarray(a / b) if a.dtype.kind == "f" else truncated(a, b)


def _differ(r: Expr, b: Expr) -> Expr:
    """Whether a remainder is not zero and its sign is not the divisor's."""
    return binary(BinOp.AND, ne(r, 0), binary(BinOp.NE, r < 0, b < 0))


class FloorDivide(Division):
    """``floor(a / b)`` of the exact quotient, as Python's ``//``.

    Floats are computed from the remainder, so that 1.0 // 0.1 is 9 (0.1 is a little more than a tenth); division by 0
    gives the infinities or NaN. Integers: the most negative value by -1 wraps to itself; by zero fails the call.
    TVM: relax.floor_divide, ONNX: none.
    """

    name = "floor_divide"
    ufunc = np.floor_divide

    def integers(self, a: Expr, b: Expr) -> Expr:
        """Rounding down."""
        return binary(BinOp.FLOORDIV, a, b)

    def floats(self, a: Expr, b: Expr) -> Expr:
        """NumPy's algorithm: the exact quotient from the remainder, snapped to the nearest whole number."""
        r = binary(BinOp.TRUNCMOD, a, b)
        q = (a - r) / b
        q = select(_differ(r, b), q - 1.0, q)
        whole = call(Intrinsic.FLOOR, q)
        snapped = select(q - whole > 0.5, whole + 1.0, whole)
        return select(eq(b, 0.0), a / b, snapped)


class FloorMod(Division):
    """Remainder with the sign of the divisor, as Python's ``%``: ``a - b * floor(a / b)``.

    Floats: exact (by fmod); NaN for divisor 0 and for infinite ``a``; a finite ``a`` by inf of the other sign gives
    that inf. Integers by zero fail the call. TVM: relax.floor_mod, ONNX: Mod (fmod=0).
    """

    name = "floor_mod"
    ufunc = np.mod

    def integers(self, a: Expr, b: Expr) -> Expr:
        """Sign of the divisor."""
        return binary(BinOp.MOD, a, b)

    def floats(self, a: Expr, b: Expr) -> Expr:
        """Remainder of C, shifted where the signs differ."""
        r = binary(BinOp.TRUNCMOD, a, b)
        return select(_differ(r, b), r + b, r)


class TruncMod(Division):
    """Remainder with the sign of the dividend, as C's ``%`` and fmod: ``a - b * trunc(a / b)``.

    Floats: exact; NaN for divisor 0 and for infinite ``a``; ``a`` itself by an infinity. Integers by zero fail the
    call. TVM: relax.mod, ONNX: Mod (fmod=1).
    """

    name = "trunc_mod"
    ufunc = np.fmod

    def integers(self, a: Expr, b: Expr) -> Expr:
        """Sign of the dividend."""
        return binary(BinOp.TRUNCMOD, a, b)

    def floats(self, a: Expr, b: Expr) -> Expr:
        """Sign of the dividend."""
        return binary(BinOp.TRUNCMOD, a, b)


DIVISION: Final = (
    Divide(),
    TruncDivide(),
    FloorDivide(),
    FloorMod(),
    TruncMod(),
)
