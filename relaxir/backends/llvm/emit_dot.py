"""Dot products of four bytes: the instruction for them where the target has one, exact arithmetic elsewhere.

``vpdpbusd`` multiplies unsigned by signed bytes and adds four products to an int32, as wide as the registers. Without
it x86 has ``pmaddubsw``, which saturates sums of two products at 16 bits and is useless for exact results; ``pmaddwd``
on the even and the odd bytes, widened to 16 bits, is exact.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm.emit_instr import like, op
from relaxir.backends.llvm.emit_value import Value, int_value
from relaxir.backends.llvm.emit_writer import Writer

_MADD: Final[Mapping[int, str]] = MappingProxyType(
    {4: "llvm.x86.sse2.pmadd.wd", 8: "llvm.x86.avx2.pmadd.wd", 16: "llvm.x86.avx512.pmaddw.d.512"}
)
"""Multiply-add of pairs of int16 by the number of int32 results."""


def dot4(w: Writer, present: Value | None, a: Value, b: Value) -> Value:
    """``present + sum of unsigned bytes of a times signed bytes of b``, lane by lane; None: no ``present``."""
    target, width = w.module.target, a.width
    x86 = target.arch == "x86_64"
    native = target.vector_bytes // 4
    if x86 and width > native and width % native == 0:
        return _in_parts(w, present, a, b, native)
    if x86 and width in _MADD and _has_dot(w, width):
        start = w.splat(int_value(0, "i32"), width) if present is None else present
        name = f"llvm.x86.avx512.vpdpbusd.{32 * width}"
        return w.call(name, (start, a, b), "i32", width)
    total = _pairs(w, a, b) if x86 and width in _MADD else _one_by_one(w, a, b)
    return total if present is None else op(w, "add", present, total)


def _has_dot(w: Writer, width: int) -> bool:
    features = w.module.target.required
    return "avx512vnni" in features or ("avxvnni" in features and width < 16)


def _shift(w: Writer, name: str, a: Value, by: int) -> Value:
    return a if by == 0 else op(w, name, a, like(w, a, by))


def _in_parts(w: Writer, present: Value | None, a: Value, b: Value, width: int) -> Value:
    """Write a wide vector register by register."""

    def part(value: Value, first: int) -> Value:
        return w.pick(value, range(first, first + width))

    results = [
        dot4(w, None if present is None else part(present, first), part(a, first), part(b, first))
        for first in range(0, a.width, width)
    ]
    whole = results[0]
    for n, more in enumerate(results[1:], 1):
        whole = _joined(w, whole, more, n * width)
    return whole


def _joined(w: Writer, front: Value, back: Value, count: int) -> Value:
    """``front`` and ``back`` one after the other; ``back`` is widened to the front's length first."""
    fill = ", ".join(f"i32 {n}" if n < back.width else "i32 poison" for n in range(count))
    text = f"shufflevector {back.typed}, {back.full_type} poison, <{count} x i32> <{fill}>"
    wide = w.pure(text, back.type, count, (back,)) if back.width != count else back
    return w.shuffle(front, wide, range(count + back.width))


def _pairs(w: Writer, a: Value, b: Value) -> Value:
    """Even and odd bytes as int16, each multiplied and added in pairs."""
    width = a.width
    halves = [w.pure(f"bitcast {v.typed} to <{2 * width} x i16>", "i16", 2 * width, (v,)) for v in (a, b)]
    low, high = op(w, "and", halves[0], like(w, halves[0], 255)), _shift(w, "lshr", halves[0], 8)
    even = _shift(w, "ashr", _shift(w, "shl", halves[1], 8), 8)
    odd = _shift(w, "ashr", halves[1], 8)
    return op(w, "add", *(w.call(_MADD[width], pair, "i32", width) for pair in ((low, even), (high, odd))))


def _one_by_one(w: Writer, a: Value, b: Value) -> Value:
    """Four multiplications of int32."""
    total: Value | None = None
    for n in range(4):
        unsigned = op(w, "and", _shift(w, "lshr", a, 8 * n), like(w, a, 255))
        product = op(w, "mul", unsigned, _shift(w, "ashr", _shift(w, "shl", b, 24 - 8 * n), 24))
        total = product if total is None else op(w, "add", total, product)
    assert total is not None
    return total
