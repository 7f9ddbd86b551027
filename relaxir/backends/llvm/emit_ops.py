"""Arithmetic on values: one function per kind of node, the same for scalars and vectors.

Register types: ``bool`` is ``i1``, the 16-bit floats are ``float`` (they are rounded when stored or cast to),
everything else is itself. Meaning follows `relaxir.tir.expr`: integers wrap, minimum and maximum propagate NaN,
division of integers never traps.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm import vmath
from relaxir.backends.llvm.emit_dot import dot4
from relaxir.backends.llvm.emit_writer import Value, Writer, bool_value, float_value, int_value, vector_type
from relaxir.backends.llvm.vmath_libm import libm, libm2
from relaxir.support.dtypes import info
from relaxir.tir.expr import COMPARISONS, BinOp, Const, Intrinsic
from relaxir.tir.stmt import Combine

REGISTER: Final = MappingProxyType({
    "float16": "float", "bfloat16": "float", "float32": "float", "float64": "double", "bool": "i1",
    "int8": "i8", "int16": "i16", "int32": "i32", "int64": "i64",
    "uint8": "i8", "uint16": "i16", "uint32": "i32", "uint64": "i64",
})  # fmt: skip
MEMORY: Final = MappingProxyType({**REGISTER, "float16": "half", "bfloat16": "i16", "bool": "i8"})

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
_INT_OPS: Final = MappingProxyType({
    BinOp.ADD: "add", BinOp.SUB: "sub", BinOp.MUL: "mul", BinOp.AND: "and", BinOp.OR: "or", BinOp.XOR: "xor",
})  # fmt: skip


def is_signed(dtype: str) -> bool:
    """Whether integers of this type have a sign."""
    return dtype.startswith("int")


def is_float(dtype: str) -> bool:
    """Whether this is a floating-point type."""
    return info(dtype).is_float


def constant(node: Const) -> Value:
    """Return a literal."""
    kind = REGISTER[node.dtype]
    if kind == "i1":
        return bool_value(bool(node.value))
    if kind in ("float", "double"):
        return float_value(float(node.value), kind)
    return int_value(int(node.value), kind)


# ---- small helpers, also used for addresses and masks


def op(w: Writer, name: str, a: Value, b: Value, *, nonneg: bool = False, speculate: bool = True) -> Value:
    """Write a two-operand instruction."""
    return w.pure(f"{name} {a.typed}, {b.text}", a.type, a.width, (a, b), nonneg=nonneg, speculate=speculate)


def like(w: Writer, value: Value, number: int) -> Value:
    """Return an integer constant in the type and width of ``value``."""
    return w.splat(int_value(number, value.type), value.width)


def like_float(w: Writer, value: Value, number: float) -> Value:
    """Return a floating-point constant in the type and width of ``value``."""
    return w.splat(float_value(number, value.type), value.width)


def compare(w: Writer, predicate: str, a: Value, b: Value) -> Value:
    """Compare; ``predicate`` starts with ``icmp`` or ``fcmp``."""
    return w.pure(f"{predicate} {a.typed}, {b.text}", "i1", a.width, (a, b))


def choose(w: Writer, mask: Value, a: Value, b: Value) -> Value:
    """``a if mask else b``, lane by lane."""
    if mask.number is not None:
        return a if mask.number else b
    if a.text == b.text:
        return a
    return w.pure(
        f"select {mask.typed}, {a.typed}, {b.typed}", a.type, a.width, (mask, a, b), nonneg=a.nonneg and b.nonneg
    )


def convert(w: Writer, how: str, a: Value, type_: str) -> Value:
    """Write a conversion instruction."""
    return w.pure(f"{how} {a.typed} to {vector_type(type_, a.width)}", type_, a.width, (a,))


def both(w: Writer, a: Value, b: Value) -> Value:
    """``a & b`` of two masks of equal width."""
    return op(w, "and", a, b)


def invert(w: Writer, mask: Value) -> Value:
    """``~mask``."""
    return op(w, "xor", mask, w.splat(bool_value(True), mask.width))


def fma(w: Writer, a: Value, b: Value, c: Value) -> Value:
    """``a * b + c``: one rounding where the target has the instruction, two otherwise."""
    return w.intrinsic("fma" if w.module.target.has_fma else "fmuladd", a, b, c)


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
    return _int_binary(w, what, dtype, a, b)


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


def float_extremum(w: Writer, a: Value, b: Value, *, maximum: bool) -> Value:
    """Minimum or maximum where NaN of either side wins: one min/max instruction, and ``a`` back where it is NaN."""
    one = choose(w, compare(w, f"fcmp {'ogt' if maximum else 'olt'}", a, b), a, b)
    return choose(w, compare(w, "fcmp uno", a, a), a, one)


def number_extremum(w: Writer, a: Value, b: Value, *, maximum: bool) -> Value:
    """Minimum or maximum of ``a`` and ``b``, in one instruction; NaN of ``b`` loses, NaN of ``a`` stays."""
    return choose(w, compare(w, f"fcmp {'ogt' if maximum else 'olt'}", b, a), b, a)


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


def _int_binary(w: Writer, what: BinOp, dtype: str, a: Value, b: Value) -> Value:
    if what is BinOp.DOT4:
        return dot4(w, None, a, b)
    if what in _INT_OPS:
        keeps = a.nonneg and b.nonneg and what in (BinOp.ADD, BinOp.MUL, BinOp.AND)
        return op(w, _INT_OPS[what], a, b, nonneg=keeps)
    sign = "s" if is_signed(dtype) else "u"
    if what in (BinOp.MIN, BinOp.MAX):
        return w.intrinsic(f"{sign}{what.value}", a, b)
    if what in (BinOp.SHL, BinOp.SHR):
        return _shift(w, what, dtype, a, b)
    if what is BinOp.POW:
        return _int_power(w, dtype, a, b)
    return divide(w, what, dtype, a, b)


def _shift(w: Writer, what: BinOp, dtype: str, a: Value, b: Value) -> Value:
    """Counts of the width and more give what shifting one by one would."""
    bits = info(dtype).bits
    inside = compare(w, "icmp ult", b, like(w, b, bits))
    if what is BinOp.SHR and is_signed(dtype):
        return op(w, "ashr", a, choose(w, inside, b, like(w, b, bits - 1)))
    count = choose(w, inside, b, like(w, b, 0))
    return choose(w, inside, op(w, "shl" if what is BinOp.SHL else "lshr", a, count), like(w, a, 0))


def divide(w: Writer, what: BinOp, dtype: str, a: Value, b: Value) -> Value:
    """Integer quotient or remainder; a zero divisor counts as one, and the most negative number over -1 wraps."""
    remainder = what in (BinOp.MOD, BinOp.TRUNCMOD)
    if not is_signed(dtype) or (a.nonneg and b.nonneg):
        if _is_power_of_two(b):
            return _by_bits(w, a, b, remainder=remainder, nonneg=True)
        name = "urem" if remainder else "udiv"
        return op(w, name, a, _nonzero(w, b), nonneg=is_signed(dtype), speculate=b.number is not None)
    zero = like(w, a, 0)
    if b.number is not None and b.number not in (0, -1):
        if _is_power_of_two(b) and what in (BinOp.FLOORDIV, BinOp.MOD):
            return _by_bits(w, a, b, remainder=remainder, nonneg=False)
        quotient, rest = op(w, "sdiv", a, b), op(w, "srem", a, b)
    else:
        minus = compare(w, "icmp eq", b, like(w, b, -1))
        safe = choose(w, minus, like(w, b, 1), _nonzero(w, b))
        quotient = op(w, "sdiv", a, safe, speculate=False)
        quotient = choose(w, minus, op(w, "sub", zero, a), quotient)
        rest = op(w, "srem", a, safe, speculate=False)
    if what in (BinOp.TRUNCDIV, BinOp.TRUNCMOD):
        return rest if remainder else quotient
    opposite = compare(w, "icmp slt", op(w, "xor", rest, b), zero)
    adjust = both(w, compare(w, "icmp ne", rest, zero), opposite)
    if remainder:
        return choose(w, adjust, op(w, "add", rest, b), rest)
    return choose(w, adjust, op(w, "sub", quotient, like(w, a, 1)), quotient)


def _is_power_of_two(b: Value) -> bool:
    return b.number is not None and b.number > 0 and b.number & (b.number - 1) == 0


def _by_bits(w: Writer, a: Value, b: Value, *, remainder: bool, nonneg: bool) -> Value:
    """Floor quotient or remainder by a power of two; ``nonneg``: both are known not to be negative, or unsigned."""
    number = b.number or 1
    if remainder:
        return op(w, "and", a, like(w, a, number - 1), nonneg=True)
    shift = number.bit_length() - 1
    return op(w, "lshr" if nonneg else "ashr", a, like(w, a, shift), nonneg=nonneg) if shift else a


def _nonzero(w: Writer, b: Value) -> Value:
    if b.number is not None and b.number != 0:
        return b
    return choose(w, compare(w, "icmp eq", b, like(w, b, 0)), like(w, b, 1), b)


def _int_power(w: Writer, dtype: str, a: Value, b: Value) -> Value:
    """Wrapping power by squaring, in a helper function; a negative exponent gives the truncated reciprocal power."""
    kind = a.type
    name = f"rx.ipow.{'s' if is_signed(dtype) else 'u'}{kind}"
    if name not in w.module.helpers:
        w.module.helpers[name] = _POWER.format(name=name, t=kind, slt="slt" if is_signed(dtype) else "ult")
    if a.width == 1:
        return w.call(name, (a, b), kind, 1, speculate=False)
    parts = [w.call(name, (w.lane(a, i), w.lane(b, i)), kind, 1, speculate=False) for i in range(a.width)]
    return w.lanes(parts)


_POWER: Final = """\
define internal {t} @{name}({t} %a, {t} %b) nounwind {{
entry:
  %negative = icmp {slt} {t} %b, 0
  br i1 %negative, label %reciprocal, label %loop
reciprocal:
  %one = icmp eq {t} %a, 1
  %minus = icmp eq {t} %a, -1
  %odd1 = and {t} %b, 1
  %odd0 = icmp eq {t} %odd1, 1
  %sign = select i1 %odd0, {t} -1, {t} 1
  %unit = select i1 %minus, {t} %sign, {t} 0
  %result = select i1 %one, {t} 1, {t} %unit
  ret {t} %result
loop:
  %base = phi {t} [ %a, %entry ], [ %square, %loop ]
  %left = phi {t} [ %b, %entry ], [ %half, %loop ]
  %acc = phi {t} [ 1, %entry ], [ %next, %loop ]
  %bit = and {t} %left, 1
  %odd = icmp ne {t} %bit, 0
  %product = mul {t} %acc, %base
  %next = select i1 %odd, {t} %product, {t} %acc
  %square = mul {t} %base, %base
  %half = lshr {t} %left, 1
  %more = icmp ne {t} %half, 0
  br i1 %more, label %loop, label %done
done:
  ret {t} %next
}}
"""

# ---- reductions

COMBINE_OPS: Final = MappingProxyType({
    Combine.SUM: BinOp.ADD, Combine.PROD: BinOp.MUL, Combine.MAX: BinOp.MAX, Combine.MIN: BinOp.MIN,
    Combine.AND: BinOp.AND, Combine.OR: BinOp.OR,
})  # fmt: skip


def combine(w: Writer, how: Combine, dtype: str, a: Value, b: Value) -> Value:
    """Combine a reduction's present value ``a`` with ``b``."""
    return binary(w, COMBINE_OPS[how], dtype, a, b)


def horizontal(w: Writer, how: Combine, dtype: str, a: Value, *, numbers: bool = False) -> Value:
    """Reduce the lanes of a vector to a scalar; ``numbers``: none of them is NaN."""
    if a.width == 1:
        return a
    if is_float(dtype) and how in (Combine.MAX, Combine.MIN) and a.width & (a.width - 1) == 0:
        return _halved(w, a, number_extremum if numbers else float_extremum, maximum=how is Combine.MAX)
    if is_float(dtype):
        stem = {Combine.SUM: "fadd", Combine.PROD: "fmul", Combine.MAX: "fmaximum", Combine.MIN: "fminimum"}[how]
        start = {Combine.SUM: (float_value(-0.0, a.type),), Combine.PROD: (float_value(1.0, a.type),)}.get(how, ())
        flags = "reassoc " if start else ""
    else:
        sign = "s" if is_signed(dtype) else "u"
        stem = {
            Combine.SUM: "add", Combine.PROD: "mul", Combine.MAX: f"{sign}max", Combine.MIN: f"{sign}min",
            Combine.AND: "and", Combine.OR: "or",
        }[how]  # fmt: skip
        if dtype == "bool":
            stem = {"add": "or", "mul": "and", "umax": "or", "umin": "and"}.get(stem, stem)
        start, flags = (), ""
    kind = {"float": "f32", "double": "f64"}.get(a.type, a.type)
    return w.call(f"llvm.vector.reduce.{stem}.v{a.width}{kind}", (*start, a), a.type, 1, flags=flags)


def four_sums(w: Writer, values: Sequence[Value]) -> list[Value]:
    """Sums over the lanes of four vectors: two rounds of interleaving within 16 bytes, then the 16-byte blocks."""
    width = values[0].width

    def paired(a: Value, b: Value) -> Value:
        sides = [[source + base + n for base in range(0, width, 4) for source in (0, width) for n in (m, m + 2)]
                 for m in (0, 1)]  # fmt: skip
        return op(w, "fadd", w.shuffle(a, b, sides[0]), w.shuffle(a, b, sides[1]))

    total = paired(paired(values[0], values[1]), paired(values[2], values[3]))
    while total.width > 4:
        half = total.width // 2
        low, high = (w.shuffle(total, total, range(start, start + half)) for start in (0, half))
        total = op(w, "fadd", low, high)
    return [w.lane(total, n) for n in range(4)]


def _halved(w: Writer, a: Value, extremum: Callable[..., Value], *, maximum: bool) -> Value:
    """Extremum of a vector by halves: LLVM's own reduction orders signed zeros, which costs three times as much."""
    while a.width > 1:
        half = a.width // 2
        sides = []
        for start in (0, half):
            picks = ", ".join(f"i32 {start + i}" for i in range(half))
            text = f"shufflevector {a.typed}, {a.full_type} poison, <{half} x i32> <{picks}>"
            sides.append(w.lane(a, start) if half == 1 else w.pure(text, a.type, half, (a,)))
        a = extremum(w, *sides, maximum=maximum)
    return a


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
