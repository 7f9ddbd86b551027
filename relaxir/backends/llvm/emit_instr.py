"""Instructions of one or two lines on values: what arithmetic, conversions, addresses and masks are written with."""

from __future__ import annotations

from relaxir.backends.llvm.emit_value import Value, bool_value, float_value, int_value, vector_type
from relaxir.backends.llvm.emit_writer import Writer


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


def float_extremum(w: Writer, a: Value, b: Value, *, maximum: bool) -> Value:
    """Minimum or maximum where NaN of either side wins: one min/max instruction, and ``a`` back where it is NaN."""
    one = choose(w, compare(w, f"fcmp {'ogt' if maximum else 'olt'}", a, b), a, b)
    return choose(w, compare(w, "fcmp uno", a, a), a, one)


def number_extremum(w: Writer, a: Value, b: Value, *, maximum: bool) -> Value:
    """Minimum or maximum of ``a`` and ``b``, in one instruction; NaN of ``b`` loses, NaN of ``a`` stays."""
    return choose(w, compare(w, f"fcmp {'ogt' if maximum else 'olt'}", b, a), b, a)
