"""Reductions: the step of one, and the lanes of a vector made one value."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm.emit_instr import float_extremum, number_extremum, op
from relaxir.backends.llvm.emit_ops import binary
from relaxir.backends.llvm.emit_value import Value, float_value, is_float, is_signed, mangled
from relaxir.backends.llvm.emit_writer import Writer
from relaxir.tir.expr import BinOp
from relaxir.tir.stmt import Combine

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
    return w.call(f"llvm.vector.reduce.{stem}.{mangled(a.type, a.width)}", (*start, a), a.type, 1, flags=flags)


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
        sides = [w.lane(a, start) if half == 1 else w.pick(a, range(start, start + half)) for start in (0, half)]
        a = extremum(w, *sides, maximum=maximum)
    return a
