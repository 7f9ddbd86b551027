"""Arithmetic as elementary functions are written with it: on values of one type and width, constants as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from relaxir.backends.llvm.emit_writer import Value, Writer, float_value, int_value, vector_type


class Maths:
    """Arithmetic on values of one type and width; Python numbers stand for constants in all lanes."""

    def __init__(self, w: Writer, type_: str, width: int) -> None:
        self.w, self.type, self.width = w, type_, width
        self.int_type = "i32" if type_ == "float" else "i64"
        self.fma_name = "fma" if w.module.target.has_fma else "fmuladd"

    def constant(self, x: Value | float) -> Value:
        """Return a constant in all lanes."""
        return x if isinstance(x, Value) else self.w.splat(float_value(x, self.type), self.width)

    def _op(self, name: str, a: Value | float, b: Value | float) -> Value:
        x, y = self.constant(a), self.constant(b)
        return self.w.pure(f"{name} {x.typed}, {y.text}", self.type, self.width, (x, y))

    def add(self, a: Value | float, b: Value | float) -> Value:
        """``a + b``."""
        return self._op("fadd", a, b)

    def sub(self, a: Value | float, b: Value | float) -> Value:
        """``a - b``."""
        return self._op("fsub", a, b)

    def mul(self, a: Value | float, b: Value | float) -> Value:
        """``a * b``."""
        return self._op("fmul", a, b)

    def div(self, a: Value | float, b: Value | float) -> Value:
        """``a / b``."""
        return self._op("fdiv", a, b)

    def fma(self, a: Value | float, b: Value | float, c: Value | float) -> Value:
        """``a * b + c``."""
        return self.w.intrinsic(self.fma_name, self.constant(a), self.constant(b), self.constant(c))

    def neg(self, a: Value) -> Value:
        """``-a``."""
        return self.w.pure(f"fneg {a.typed}", self.type, self.width, (a,))

    def fabs(self, a: Value) -> Value:
        """``|a|``."""
        return self.w.intrinsic("fabs", a)

    def copysign(self, a: Value, b: Value) -> Value:
        """``|a|`` with the sign of ``b``."""
        return self.w.intrinsic("copysign", a, b)

    def test(self, predicate: str, a: Value | float, b: Value | float) -> Value:
        """Compare (``olt``, ``uno`` ...)."""
        x, y = self.constant(a), self.constant(b)
        return self.w.pure(f"fcmp {predicate} {x.typed}, {y.text}", "i1", self.width, (x, y))

    def choose(self, mask: Value, a: Value | float, b: Value | float) -> Value:
        """``a if mask else b``."""
        x, y = self.constant(a), self.constant(b)
        return self.w.pure(f"select {mask.typed}, {x.typed}, {y.typed}", self.type, self.width, (mask, x, y))

    def clamp(self, x: Value, low: float | None, high: float | None) -> Value:
        """Limit ``x``; NaN stays."""
        if low is not None:
            x = self.choose(self.test("olt", x, low), low, x)
        return x if high is None else self.choose(self.test("ogt", x, high), high, x)

    def poly(self, x: Value, coefficients: Sequence[float]) -> Value:
        """Evaluate a polynomial, coefficients from the lowest power."""
        result = self.constant(coefficients[-1])
        for c in reversed(coefficients[:-1]):
            result = self.fma(result, x, c)
        return result

    def poly_halves(self, x: Value, coefficients: Sequence[float]) -> Value:
        """The same by its even and odd powers: two chains of half the length, for one more operation."""
        square = self.mul(x, x)
        return self.fma(self.poly(square, coefficients[1::2]), x, self.poly(square, coefficients[::2]))

    def negative(self, a: Value) -> Value:
        """Whether the sign bit is set."""
        bits, zero = self.bits(a), self.w.splat(int_value(0, self.int_type), self.width)
        return self.w.pure(f"icmp slt {bits.typed}, {zero.text}", "i1", self.width, (bits,))

    def bits(self, a: Value) -> Value:
        """The bits as an integer."""
        return self.convert("bitcast", a, self.int_type)

    def real(self, a: Value) -> Value:
        """The number with these bits."""
        return self.convert("bitcast", a, self.type)

    def convert(self, how: str, a: Value, type_: str) -> Value:
        """Write a conversion instruction."""
        return self.w.pure(f"{how} {a.typed} to {vector_type(type_, self.width)}", type_, self.width, (a,))

    def int_op(self, name: str, a: Value, b: Value | int) -> Value:
        """Integer arithmetic on bits."""
        y = b if isinstance(b, Value) else self.w.splat(int_value(b, a.type), self.width)
        return self.w.pure(f"{name} {a.typed}, {y.text}", a.type, self.width, (a, y))

    def mask_op(self, name: str, a: Value, b: Value) -> Value:
        """Combine two masks."""
        return self.w.pure(f"{name} {a.typed}, {b.text}", "i1", self.width, (a, b))


def maths_of(w: Writer, a: Value) -> Maths:
    """Arithmetic on values like ``a``."""
    return Maths(w, a.type, a.width)
