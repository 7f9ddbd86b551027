"""Arithmetic on values: one function per kind of node, the same for scalars and vectors.

Meaning follows `relaxir.tir.expr`: minimum and maximum propagate NaN; `relaxir.backends.llvm.emit_integer` says what
integers do. `relaxir.backends.llvm.emit_value` says what data types are in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm import vmath
from relaxir.backends.llvm.emit_instr import both, choose, compare, convert, float_extremum, like, like_float, op
from relaxir.backends.llvm.emit_integer import int_binary
from relaxir.backends.llvm.emit_value import Value, bool_value, int_value, is_float, is_signed
from relaxir.backends.llvm.emit_writer import Writer
from relaxir.backends.llvm.vmath_libm import libm, libm2
from relaxir.tir.expr import COMPARISONS, BinOp, Intrinsic

_FLOAT_COMPARE: Final = MappingProxyType({
    BinOp.EQ: "oeq", BinOp.NE: "une", BinOp.LT: "olt", BinOp.LE: "ole", BinOp.GT: "ogt", BinOp.GE: "oge",
})  # fmt: skip
_INT_COMPARE: Final = MappingProxyType(
    {BinOp.EQ: "eq", BinOp.NE: "ne", BinOp.LT: "lt", BinOp.LE: "le", BinOp.GT: "gt", BinOp.GE: "ge"}
)
_FLOAT_OPS: Final = MappingProxyType(
    {
        BinOp.ADD: "fadd contract",
        BinOp.SUB: "fsub contract",
        BinOp.MUL: "fmul contract",
        BinOp.DIV: "fdiv",
    }
)
# ---- binary operators


def binary(w: Writer, what: BinOp, dtype: str, a: Value, b: Value) -> Value:
    """Write ``a what b`` of operands of ``dtype`` and equal width."""
    if a.number is not None and b.number is not None and dtype == "int64":
        folded = _fold(what, a.number, b.number)
        if folded is not None:
            return w.splat(folded, a.width)
    if what in COMPARISONS:
        return _comparison(w, what, dtype, a, b)
    if is_float(dtype):
        return _float_binary(w, what, a, b)
    if dtype == "bool":
        return _bool_binary(w, what, a, b)
    return int_binary(w, what, dtype, a, b)


def _fold(what: BinOp, x: int, y: int) -> Value | None:
    if what in _FOLDS:
        value = _FOLDS[what](x, y)
        value = (value + 2**63) % 2**64 - 2**63
        return int_value(value)
    if what in COMPARISONS:
        return bool_value(_COMPARES[what](x, y))
    if y != 0 and what in (BinOp.FLOORDIV, BinOp.MOD):
        return int_value(x // y if what is BinOp.FLOORDIV else x % y)
    return None


_FOLDS: Final[Mapping[BinOp, Callable[[int, int], int]]] = MappingProxyType({
    BinOp.ADD: int.__add__, BinOp.SUB: int.__sub__, BinOp.MUL: int.__mul__, BinOp.AND: int.__and__,
    BinOp.OR: int.__or__, BinOp.XOR: int.__xor__, BinOp.MIN: min, BinOp.MAX: max,
})  # fmt: skip
_COMPARES: Final[Mapping[BinOp, Callable[[int, int], bool]]] = MappingProxyType({
    BinOp.EQ: int.__eq__, BinOp.NE: int.__ne__, BinOp.LT: int.__lt__, BinOp.LE: int.__le__, BinOp.GT: int.__gt__,
    BinOp.GE: int.__ge__,
})  # fmt: skip


def _comparison(w: Writer, what: BinOp, dtype: str, a: Value, b: Value) -> Value:
    if is_float(dtype):
        return compare(w, f"fcmp {_FLOAT_COMPARE[what]}", a, b)
    sign = "" if what in (BinOp.EQ, BinOp.NE) else "s" if is_signed(dtype) else "u"
    return compare(w, f"icmp {sign}{_INT_COMPARE[what]}", a, b)


def _bool_binary(w: Writer, what: BinOp, a: Value, b: Value) -> Value:
    names = {
        BinOp.AND: "and", BinOp.OR: "or", BinOp.XOR: "xor", BinOp.MUL: "and", BinOp.ADD: "or",
        BinOp.MIN: "and", BinOp.MAX: "or",
    }  # fmt: skip
    if what not in names:
        raise ValueError(f"`{what.value}` of bool")
    return op(w, names[what], a, b)


def _float_binary(w: Writer, what: BinOp, a: Value, b: Value) -> Value:
    if what in _FLOAT_OPS:
        return op(w, _FLOAT_OPS[what], a, b, speculate=what is not BinOp.DIV)
    if what in (BinOp.MIN, BinOp.MAX):
        return float_extremum(w, a, b, maximum=what is BinOp.MAX)
    if what is BinOp.POW:
        return vmath.power(w, a, b)
    if what is BinOp.ATAN2:
        return libm2(w, "atan2", a, b)
    if what is BinOp.TRUNCMOD:
        return libm2(w, "fmod", a, b)
    if what is BinOp.TRUNCDIV:
        return w.intrinsic("trunc", op(w, "fdiv", a, b))
    if what in (BinOp.FLOORDIV, BinOp.MOD):
        return _float_floor(w, what, a, b)
    raise ValueError(f"`{what.value}` of a float")


def _float_floor(w: Writer, what: BinOp, a: Value, b: Value) -> Value:
    """Floor division and modulus as NumPy does them: from the exact remainder, adjusted to the divisor's sign."""
    zero = like_float(w, a, 0.0)
    rest = libm2(w, "fmod", a, b)
    inexact = compare(w, "fcmp une", rest, zero)
    opposite = op(w, "xor", compare(w, "fcmp olt", rest, zero), compare(w, "fcmp olt", b, zero))
    adjust = both(w, inexact, opposite)
    if what is BinOp.MOD:
        signed = choose(w, inexact, rest, w.intrinsic("copysign", zero, b))
        result = choose(w, adjust, op(w, "fadd", rest, b), signed)
        return choose(w, compare(w, "fcmp oeq", b, zero), rest, result)
    quotient = op(w, "fdiv", op(w, "fsub", a, rest), b)
    quotient = choose(w, adjust, op(w, "fsub", quotient, like_float(w, a, 1.0)), quotient)
    whole = w.intrinsic("floor", quotient)
    short = compare(w, "fcmp ogt", op(w, "fsub", quotient, whole), like_float(w, a, 0.5))
    whole = choose(w, short, op(w, "fadd", whole, like_float(w, a, 1.0)), whole)
    plain = op(w, "fdiv", a, b)
    whole = choose(w, compare(w, "fcmp une", quotient, zero), whole, w.intrinsic("copysign", zero, plain))
    return choose(w, compare(w, "fcmp oeq", b, zero), plain, whole)


# ---- functions of one scalar


def unary(w: Writer, what: Intrinsic, dtype: str, a: Value) -> Value:
    """Write an intrinsic of an operand of ``dtype``."""
    if is_float(dtype):
        return _float_unary(w, what, a)
    zero = like(w, a, 0)
    if what is Intrinsic.NEG:
        return op(w, "sub", zero, a)
    if what is Intrinsic.NOT:
        return op(w, "xor", a, w.splat(bool_value(True), a.width) if a.type == "i1" else like(w, a, -1))
    if what is Intrinsic.ABS:
        return w.intrinsic("abs", a, extra=("i1 false",)) if is_signed(dtype) else a
    if what is Intrinsic.SIGN:
        positive = convert(w, "zext", compare(w, f"icmp {'s' if is_signed(dtype) else 'u'}gt", a, zero), a.type)
        if not is_signed(dtype):
            return positive
        return op(w, "sub", positive, convert(w, "zext", compare(w, "icmp slt", a, zero), a.type))
    if what in (Intrinsic.FLOOR, Intrinsic.CEIL, Intrinsic.ROUND, Intrinsic.TRUNC):
        return a
    if what in (Intrinsic.ISNAN, Intrinsic.ISINF):
        return w.splat(bool_value(False), a.width)
    raise ValueError(f"`{what.value}` of {dtype}: cast the operand to a float")


_LLVM_UNARY: Final = MappingProxyType({
    Intrinsic.ABS: "fabs", Intrinsic.SQRT: "sqrt", Intrinsic.FLOOR: "floor", Intrinsic.CEIL: "ceil",
    Intrinsic.ROUND: "roundeven", Intrinsic.TRUNC: "trunc",
})  # fmt: skip


def _float_unary(w: Writer, what: Intrinsic, a: Value) -> Value:
    if what in _LLVM_UNARY:
        return w.intrinsic(_LLVM_UNARY[what], a)
    if what is Intrinsic.NEG:
        return w.pure(f"fneg {a.typed}", a.type, a.width, (a,))
    if what is Intrinsic.ISNAN:
        return compare(w, "fcmp uno", a, a)
    if what is Intrinsic.ISINF:
        return compare(w, "fcmp oeq", w.intrinsic("fabs", a), like_float(w, a, float("inf")))
    if what is Intrinsic.SIGN:
        ordered = compare(w, "fcmp one", a, like_float(w, a, 0.0))
        return choose(w, ordered, w.intrinsic("copysign", like_float(w, a, 1.0), a), a)
    if a.type == "float" and what in vmath.FUNCTIONS:
        return vmath.FUNCTIONS[what](w, a)
    if what in vmath.GENERIC:
        return vmath.GENERIC[what](w, a)
    return libm(w, what.value, a)
