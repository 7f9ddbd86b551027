"""Comparisons, logic, bit arithmetic and shifts, broadcasting like NumPy."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import numpy as np

from relaxir.ir.attrs import Attrs
from relaxir.ir.expr import Array, Constant
from relaxir.ir.expr import Expr as GraphExpr
from relaxir.ir.op import BadExample, Example
from relaxir.ops.binary import BAD_PAIRS
from relaxir.ops.common import ALL, BOOL, INTEGERS, NUMERIC
from relaxir.ops.elementwise import Binary, Unary, binary_examples
from relaxir.support.dtypes import info
from relaxir.sym import DimLike
from relaxir.tir import BinOp, Expr, Intrinsic, binary, call, const, select

BAD_BOOL: Final = (BadExample(("bool[n]", "bool[n]"), "dtype-mismatch", "a must be one of"),)
BAD_FLOAT: Final = (BadExample(("f32[n]", "f32[n]"), "dtype-mismatch", "a must be one of"),)


class Comparison(Binary[Attrs]):
    """Base of order comparisons: the result is bool; every comparison with NaN is false."""

    dtypes: ClassVar[tuple[str, ...]] = NUMERIC
    result = "bool"
    examples = binary_examples("f32", "f64", "f16", "bf16", "i32", "u8", result="bool", low=-2.0, high=2.0)
    bad_examples: ClassVar[tuple[BadExample, ...]] = (*BAD_PAIRS, *BAD_BOOL)


class Equality(Comparison):
    """Base of equal and not_equal, which take bools too."""

    dtypes = ALL
    examples = (*Comparison.examples, Example(("bool[n]", "bool[n]"), "bool[n]"))
    bad_examples = BAD_PAIRS


class Equal(Equality):
    """``a == b``.

    NaN equals nothing, the zeros are equal. TVM: relax.equal, ONNX: Equal.
    """

    name = "equal"
    op = BinOp.EQ
    ufunc = np.equal

    def positions(self, args: tuple[GraphExpr, ...], attrs: Attrs) -> Mapping[int, DimLike]:
        """What is compared with several integers is one of them: ``equal(x, arange(n))`` makes x one-hot."""
        choices = {1 - n: a.data for n, a in enumerate(args) if isinstance(a, Constant) and a.data.size > 1}
        largest = {n: int(c.max()) for n, c in choices.items() if c.dtype.kind in "iu"}
        return {n: c + 1 for n, c in largest.items() if c > 0}


class NotEqual(Equality):
    """``a != b``.

    True where a side is NaN. TVM: relax.not_equal, ONNX: none (Equal and Not).
    """

    name = "not_equal"
    op = BinOp.NE
    ufunc = np.not_equal


class Less(Comparison):
    """``a < b``.

    False where a side is NaN. TVM: relax.less, ONNX: Less.
    """

    name = "less"
    op = BinOp.LT
    ufunc = np.less


class LessEqual(Comparison):
    """``a <= b``.

    False where a side is NaN. TVM: relax.less_equal, ONNX: LessOrEqual.
    """

    name = "less_equal"
    op = BinOp.LE
    ufunc = np.less_equal


class Greater(Comparison):
    """``a > b``.

    False where a side is NaN. TVM: relax.greater, ONNX: Greater.
    """

    name = "greater"
    op = BinOp.GT
    ufunc = np.greater


class GreaterEqual(Comparison):
    """``a >= b``.

    False where a side is NaN. TVM: relax.greater_equal, ONNX: GreaterOrEqual.
    """

    name = "greater_equal"
    op = BinOp.GE
    ufunc = np.greater_equal


class Logical(Binary[Attrs]):
    """Base of logic on bools."""

    dtypes = BOOL
    examples = binary_examples("bool")
    bad_examples = (*BAD_FLOAT, BadExample(("bool[3]", "bool[4]"), "shape-mismatch", "axis 0 is `3` on the left"))


class LogicalAnd(Logical):
    """Whether both are true.

    TVM: relax.logical_and, ONNX: And.
    """

    name = "logical_and"
    op = BinOp.AND
    ufunc = np.logical_and


class LogicalOr(Logical):
    """Whether one is true.

    TVM: relax.logical_or, ONNX: Or.
    """

    name = "logical_or"
    op = BinOp.OR
    ufunc = np.logical_or


class LogicalXor(Logical):
    """Whether exactly one is true.

    TVM: relax.logical_xor, ONNX: Xor.
    """

    name = "logical_xor"
    op = BinOp.XOR
    ufunc = np.logical_xor


class Not(Unary[Attrs]):
    """Base of negations."""

    ufunc: ClassVar[np.ufunc]

    def scalar(self, x: Expr, attrs: Attrs) -> Expr:
        """Intrinsic not."""
        return call(Intrinsic.NOT, x)

    def numpy(self, x: Array, attrs: Attrs) -> Array:
        """Call the NumPy function."""
        return np.asarray(self.ufunc(x))


class LogicalNot(Not):
    """Whether ``x`` is false.

    TVM: relax.logical_not, ONNX: Not.
    """

    name = "logical_not"
    ufunc = np.logical_not
    dtypes = BOOL
    examples = (Example(("bool[n, 4]",), "bool[n, 4]"), Example(("bool[]",), "bool[]"))
    bad_examples = (BadExample(("f32[n]",), "dtype-mismatch", "x must be one of bool"),)


class BitwiseNot(Not):
    """All bits inverted: ``-1 - x`` on signed integers; on bools the logical not.

    TVM: relax.bitwise_not, ONNX: BitwiseNot.
    """

    name = "bitwise_not"
    ufunc = np.invert
    dtypes = (*INTEGERS, *BOOL)
    examples = (Example(("i32[n, 4]",), "i32[n, 4]"), Example(("u8[]",), "u8[]"), Example(("bool[n]",), "bool[n]"))
    bad_examples = (BadExample(("f32[n]",), "dtype-mismatch", "x must be one of"),)


class Bitwise(Binary[Attrs]):
    """Base of bit arithmetic on integers; on bools it is logic."""

    dtypes = (*INTEGERS, *BOOL)
    examples = (*binary_examples("i32", "u8", "i64", low=-99.0, high=99.0), Example(("bool[n]", "bool[n]"), "bool[n]"))
    bad_examples = BAD_FLOAT


class BitwiseAnd(Bitwise):
    """Bits set in both.

    TVM: relax.bitwise_and, ONNX: BitwiseAnd.
    """

    name = "bitwise_and"
    op = BinOp.AND
    ufunc = np.bitwise_and


class BitwiseOr(Bitwise):
    """Bits set in one or both.

    TVM: relax.bitwise_or, ONNX: BitwiseOr.
    """

    name = "bitwise_or"
    op = BinOp.OR
    ufunc = np.bitwise_or


class BitwiseXor(Bitwise):
    """Bits set in exactly one.

    TVM: relax.bitwise_xor, ONNX: BitwiseXor.
    """

    name = "bitwise_xor"
    op = BinOp.XOR
    ufunc = np.bitwise_xor


def _shift(op: BinOp, a: Expr, b: Expr, beyond: Expr) -> Expr:
    """Shift where the distance lies within the width, else ``beyond`` (machines differ there)."""
    width = const(info(a.dtype).bits, a.dtype)
    within = b < width
    if a.dtype.startswith("i"):
        within = binary(BinOp.AND, b >= 0, within)
    return select(within, binary(op, a, b), beyond)


class Shift(Binary[Attrs]):
    """Base of shifts of integers; a distance that is negative or not below the width shifts everything out."""

    dtypes = INTEGERS
    examples = binary_examples("i32", "u8", "u64", "i8", low=-9.0, high=70.0)
    bad_examples = BAD_FLOAT


class LeftShift(Shift):
    """``a << b``: ``a * 2 ** b``, wrapped.

    0 for a distance that is negative or not below the width. TVM: relax.left_shift, ONNX: BitShift (LEFT).
    """

    name = "left_shift"
    ufunc = np.left_shift

    def scalar(self, a: Expr, b: Expr, attrs: Attrs) -> Expr:
        """Guarded shift."""
        return _shift(BinOp.SHL, a, b, const(0, a.dtype))


class RightShift(Shift):
    """``a >> b``: ``floor(a / 2 ** b)``; arithmetic on signed integers, logical on unsigned ones.

    0, or -1 for negative ``a``, for a distance that is negative or not below the width.
    TVM: relax.right_shift, ONNX: BitShift (RIGHT).
    """

    name = "right_shift"
    ufunc = np.right_shift

    def scalar(self, a: Expr, b: Expr, attrs: Attrs) -> Expr:
        """Guarded shift."""
        beyond: Expr = const(0, a.dtype)
        if a.dtype.startswith("i"):
            beyond = select(a < 0, const(-1, a.dtype), const(0, a.dtype))
        return _shift(BinOp.SHR, a, b, beyond)


COMPARISON: Final = (
    Equal(),
    NotEqual(),
    Less(),
    LessEqual(),
    Greater(),
    GreaterEqual(),
    LogicalAnd(),
    LogicalOr(),
    LogicalXor(),
    LogicalNot(),
    BitwiseNot(),
    BitwiseAnd(),
    BitwiseOr(),
    BitwiseXor(),
    LeftShift(),
    RightShift(),
)
