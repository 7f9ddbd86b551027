"""Arithmetic on integers: it wraps, never traps, and has an answer for every divisor and count."""

from __future__ import annotations

from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm.emit_dot import dot4
from relaxir.backends.llvm.emit_instr import both, choose, compare, like, op
from relaxir.backends.llvm.emit_value import Value, is_signed
from relaxir.backends.llvm.emit_writer import Writer
from relaxir.support.dtypes import info
from relaxir.tir.expr import BinOp

_INT_OPS: Final = MappingProxyType({
    BinOp.ADD: "add", BinOp.SUB: "sub", BinOp.MUL: "mul", BinOp.AND: "and", BinOp.OR: "or", BinOp.XOR: "xor",
})  # fmt: skip


def int_binary(w: Writer, what: BinOp, dtype: str, a: Value, b: Value) -> Value:
    """Write ``a what b`` of integers of ``dtype`` and equal width."""
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
