"""Conversions between data types, and between the register and the memory form of a value."""

from __future__ import annotations

from relaxir.backends.llvm.emit_instr import choose, compare, convert, like, like_float, op
from relaxir.backends.llvm.emit_value import (
    MEMORY,
    REGISTER,
    Value,
    float_value,
    int_value,
    is_float,
    is_signed,
    mangled,
)
from relaxir.backends.llvm.emit_writer import Writer
from relaxir.backends.llvm.target import Target
from relaxir.support.dtypes import info


def cast(w: Writer, a: Value, source: str, target: str) -> Value:
    """Convert between data types (register forms)."""
    if source == target:
        return a
    kind, new = a.type, REGISTER[target]
    if target == "bool":
        if is_float(source):
            return compare(w, "fcmp une", a, like_float(w, a, 0.0))
        return compare(w, "icmp ne", a, like(w, a, 0))
    if is_float(target):
        if not is_float(source):
            a = convert(w, "sitofp" if is_signed(source) else "uitofp", a, new)
        elif kind != new:
            a = convert(w, "fpext" if new == "double" else "fptrunc", a, new)
        return from_memory(w, to_memory(w, a, target), target) if target in ("float16", "bfloat16") else a
    if is_float(source):
        if a.width > 1 and w.module.target.arch == "x86_64" and (info(target).bits < 32 or target == "int32"):
            return narrowed(w, to_int32(w, a), target)
        name = "fptosi" if is_signed(target) else "fptoui"
        types = f"{mangled(new, a.width)}.{mangled(kind, a.width)}"
        return w.call(f"llvm.{name}.sat.{types}", (a,), new, a.width)
    if a.number is not None and source != "bool":
        bits = info(target).bits
        value = a.number % (1 << bits)
        wrapped = value - (1 << bits) if is_signed(target) and value >> (bits - 1) else value
        return w.splat(int_value(wrapped, new), a.width)
    if info(source).bits == info(target).bits and source != "bool":
        return Value(a.text, new, a.width, a.level)
    if info(source).bits > info(target).bits:
        return convert(w, "trunc", a, new)
    return convert(w, "sext" if is_signed(source) else "zext", a, new)


def to_int32(w: Writer, a: Value) -> Value:
    """Convert a vector of floats to 32 bits, saturating, NaN to 0: x86 has no such instruction, LLVM goes by lanes."""
    low, high = like_float(w, a, -(2.0**31)), like_float(w, a, 2.0**31)
    large = compare(w, "fcmp oge", a, high)
    inside = choose(w, compare(w, "fcmp ogt", a, low), a, low)
    inside = convert(w, "fptosi", choose(w, large, like_float(w, a, 0.0), inside), "i32")
    result = choose(w, large, like(w, inside, 2**31 - 1), inside)
    return choose(w, compare(w, "fcmp ord", a, a), result, like(w, inside, 0))


def narrowed(w: Writer, a: Value, target: str) -> Value:
    """Saturate a vector of 32-bit integers to a narrower type."""
    bits = info(target).bits
    if bits == 32:
        return a
    low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if is_signed(target) else (0, (1 << bits) - 1)
    a = choose(w, compare(w, "icmp sgt", a, like(w, a, low)), a, like(w, a, low))
    a = choose(w, compare(w, "icmp slt", a, like(w, a, high)), a, like(w, a, high))
    return convert(w, "trunc", a, REGISTER[target])


def reinterpret(w: Writer, a: Value, source: str, target: str) -> Value:
    """Read the stored form of a value as that of another data type (register forms)."""
    stored = to_memory(w, a, source)
    if MEMORY[source] != MEMORY[target]:
        stored = convert(w, "bitcast", stored, MEMORY[target])
    return from_memory(w, stored, target)


def to_memory(w: Writer, a: Value, dtype: str) -> Value:
    """Return the form that is stored."""
    if dtype == "bool":
        return convert(w, "zext", a, "i8")
    if dtype == "float16":
        return half_bits(w, a)
    if dtype == "bfloat16":
        bits = convert(w, "bitcast", a, "i32")
        odd = op(w, "and", op(w, "lshr", bits, like(w, bits, 16)), like(w, bits, 1))
        rounded = op(w, "add", bits, op(w, "add", odd, like(w, bits, 0x7FFF)))
        quiet = op(w, "or", bits, like(w, bits, 0x400000))
        chosen = choose(w, compare(w, "fcmp uno", a, a), quiet, rounded)
        return convert(w, "trunc", op(w, "lshr", chosen, like(w, bits, 16)), "i16")
    return a


def from_memory(w: Writer, a: Value, dtype: str) -> Value:
    """Return the register form of what was loaded."""
    if dtype == "bool":
        return compare(w, "icmp ne", a, like(w, a, 0))
    if dtype == "float16":
        return half_value(w, a)
    if dtype == "bfloat16":
        wide = convert(w, "zext", a, "i32")
        return convert(w, "bitcast", op(w, "shl", wide, like(w, wide, 16)), "float")
    return a


def has_half(target: Target) -> bool:
    """Whether the target converts half precision itself; otherwise LLVM would call a library that need not be there."""
    return target.arch == "aarch64" or "f16c" in target.required or "+f16c" in target.features


def half_value(w: Writer, a: Value) -> Value:
    """Return a stored half-precision number (``half``) in single precision."""
    if has_half(w.module.target):
        return convert(w, "fpext", a, "float")
    bits = convert(w, "zext", convert(w, "bitcast", a, "i16"), "i32")
    sign = op(w, "shl", op(w, "and", bits, like(w, bits, 0x8000)), like(w, bits, 16))
    rest = op(w, "and", bits, like(w, bits, 0x7FFF))
    shifted = op(w, "shl", rest, like(w, bits, 13))
    # the exponent's bias differs by 112; the product is exact for denormals too
    scaled = op(w, "fmul", convert(w, "bitcast", shifted, "float"), w.splat(float_value(2.0**112), a.width))
    special = compare(w, "icmp uge", rest, like(w, bits, 0x7C00))
    infinite = op(w, "or", shifted, like(w, bits, 0x7F800000))
    magnitude = choose(w, special, infinite, convert(w, "bitcast", scaled, "i32"))
    return convert(w, "bitcast", op(w, "or", magnitude, sign), "float")


def half_bits(w: Writer, a: Value) -> Value:
    """Round single precision to half precision (``half``), ties to even."""
    if has_half(w.module.target):
        return convert(w, "fptrunc", a, "half")
    bits = convert(w, "bitcast", a, "i32")
    sign = op(w, "and", op(w, "lshr", bits, like(w, bits, 16)), like(w, bits, 0x8000))
    magnitude = op(w, "and", bits, like(w, bits, 0x7FFFFFFF))
    odd = op(w, "and", op(w, "lshr", magnitude, like(w, bits, 13)), like(w, bits, 1))
    usual = op(w, "add", op(w, "add", magnitude, odd), like(w, bits, 0xFFF - (112 << 23)))
    usual = op(w, "lshr", usual, like(w, bits, 13))
    # adding one half moves a denormal result's bits to the low end, rounded by the addition
    half = w.splat(float_value(0.5), a.width)
    low = convert(w, "bitcast", op(w, "fadd", convert(w, "bitcast", magnitude, "float"), half), "i32")
    small = op(w, "sub", low, like(w, bits, 0x3F000000))
    nan = compare(w, "icmp ugt", magnitude, like(w, bits, 0x7F800000))
    large = choose(w, nan, like(w, bits, 0x7E00), like(w, bits, 0x7C00))
    result = choose(w, compare(w, "icmp ult", magnitude, like(w, bits, 113 << 23)), small, usual)
    result = choose(w, compare(w, "icmp uge", magnitude, like(w, bits, 143 << 23)), large, result)
    return convert(w, "bitcast", convert(w, "trunc", op(w, "or", result, sign), "i16"), "half")
