"""Arithmetic as elementary functions are written with it: on values of one type and width, constants as numbers."""

from __future__ import annotations

from collections.abc import Sequence

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm.emit_value import Value, float_value
from relaxir.backends.llvm.emit_writer import Writer


class Maths:
    """Arithmetic on values of one type and width; Python numbers stand for constants in all lanes."""

    def __init__(self, w: Writer, type_: str, width: int) -> None:
        self.w, self.type, self.width = w, type_, width
        self.int_type = "i32" if type_ == "float" else "i64"

    def constant(self, x: Value | float) -> Value:
        """Return a constant in all lanes."""
        return x if isinstance(x, Value) else self.w.splat(float_value(x, self.type), self.width)

    def _op(self, name: str, a: Value | float, b: Value | float) -> Value:
        x, y = self.constant(a), self.constant(b)
        return instr.op(self.w, name, x, y)

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
        return instr.fma(self.w, self.constant(a), self.constant(b), self.constant(c))

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
        return instr.compare(self.w, f"fcmp {predicate}", x, y)

    def choose(self, mask: Value, a: Value | float, b: Value | float) -> Value:
        """``a if mask else b``."""
        return instr.choose(self.w, mask, self.constant(a), self.constant(b))

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
        bits = self.bits(a)
        return instr.compare(self.w, "icmp slt", bits, instr.like(self.w, bits, 0))

    def bits(self, a: Value) -> Value:
        """The bits as an integer."""
        return self.convert("bitcast", a, self.int_type)

    def real(self, a: Value) -> Value:
        """The number with these bits."""
        return self.convert("bitcast", a, self.type)

    def convert(self, how: str, a: Value, type_: str) -> Value:
        """Write a conversion instruction."""
        return instr.convert(self.w, how, a, type_)

    def int_op(self, name: str, a: Value, b: Value | int) -> Value:
        """Integer arithmetic, on bits or masks."""
        return instr.op(self.w, name, a, b if isinstance(b, Value) else instr.like(self.w, a, b))


def maths_of(w: Writer, a: Value) -> Maths:
    """Arithmetic on values like ``a``."""
    return Maths(w, a.type, a.width)
