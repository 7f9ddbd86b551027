"""Elementary functions in single precision as straight-line code, the same for scalars and vectors.

Largest errors in units of the last place, against double precision (tests/backends/test_vmath.py), on targets with
fused multiply-add: exp 1, expm1 2, log 1, log2 2, log1p 2, tanh 2, erf 2, sigmoid 3, sin and cos 2, pow 1, rsqrt 2;
the normal distribution function 3 above 0, below it relatively 2e-6 to -2, 2e-5 to -4 and 2e-3 to -7.
Signed zeros, infinities, NaN and denormals come out as in the C library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm import vmath_tables as t
from relaxir.backends.llvm.emit_writer import Value, Writer, float_value, int_value
from relaxir.backends.llvm.vmath_libm import libm, libm2
from relaxir.tir.expr import Intrinsic

INF: Final = float("inf")


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
        return self._convert("bitcast", a, self.int_type)

    def real(self, a: Value) -> Value:
        """The number with these bits."""
        return self._convert("bitcast", a, self.type)

    def _convert(self, how: str, a: Value, type_: str) -> Value:
        full = type_ if self.width == 1 else f"<{self.width} x {type_}>"
        return self.w.pure(f"{how} {a.typed} to {full}", type_, self.width, (a,))

    def convert(self, how: str, a: Value, type_: str) -> Value:
        """Write a conversion instruction."""
        return self._convert(how, a, type_)

    def int_op(self, name: str, a: Value, b: Value | int) -> Value:
        """Integer arithmetic on bits."""
        y = b if isinstance(b, Value) else self.w.splat(int_value(b, a.type), self.width)
        return self.w.pure(f"{name} {a.typed}, {y.text}", a.type, self.width, (a, y))

    def mask_op(self, name: str, a: Value, b: Value) -> Value:
        """Combine two masks."""
        return self.w.pure(f"{name} {a.typed}, {b.text}", "i1", self.width, (a, b))


def _maths(w: Writer, a: Value) -> Maths:
    return Maths(w, a.type, a.width)


_MAGIC: Final = 12582912.0
"""1.5 * 2^23: adding it rounds to an integer, found in the low bits."""
_MAGIC_BITS: Final = 0x4B400000


def _exp_parts(m: Maths, x: Value) -> tuple[Value, Value]:
    """Return r and n (an i32) with x = n ln 2 + r."""
    shifted = m.fma(x, t.LOG2E, _MAGIC)
    r = _exp_rest(m, x, m.sub(shifted, _MAGIC))
    return r, m.int_op("sub", m.bits(shifted), _MAGIC_BITS)


def _exp_rest(m: Maths, x: Value, n: Value) -> Value:
    """``x - n ln 2``."""
    return m.fma(n, -t.EXP_LN2_LOW, m.fma(n, -t.EXP_LN2_HIGH, x))


_SCALED: Final = 16
"""Lanes of the AVX-512 instruction that multiplies by a power of two, rounding once."""


def _has_scaling(m: Maths) -> bool:
    target = m.w.module.target
    return m.type == "float" and target.vector_bytes == 64 and target.arch == "x86_64"


def _scaled_by_power(m: Maths, p: Value, n: Value) -> Value:
    """``p * 2 ** floor(n)``, exactly rounded also where the result is denormal or infinite."""
    name, kind = "llvm.x86.avx512.mask.scalef.ps.512", ("i16 -1", "i32 4")
    return _by_parts(m, (p, n), lambda a, b: m.w.call(name, (a, b, a), "float", _SCALED, extra=kind))


def _looked_up(m: Maths, table: Sequence[float], bits: Value) -> Value:
    """The number of a table of 16 that the low four bits tell: a shuffle of a register, no memory."""
    row = Value(f"<{', '.join(f'float {float_value(x).text}' for x in table)}>", "float", _SCALED)
    name = "llvm.x86.avx512.permvar.sf.512"
    return _by_parts(m, (bits,), lambda a: m.w.call(name, (row, a), "float", _SCALED))


def _by_parts(m: Maths, values: Sequence[Value], make: Callable[..., Value]) -> Value:
    """``make`` of every 16 lanes."""
    parts = [make(*(_lanes_from(m, v, start) for v in values)) for start in range(0, m.width, _SCALED)]
    while len(parts) > 1:
        parts = [_joined(m, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def _lanes_from(m: Maths, value: Value, start: int) -> Value:
    if value.width == _SCALED:
        return value
    picks = ", ".join(f"i32 {start + i}" for i in range(_SCALED))
    text = f"shufflevector {value.typed}, {value.typed}, <{_SCALED} x i32> <{picks}>"
    return m.w.pure(text, value.type, _SCALED, (value,))


def _joined(m: Maths, a: Value, b: Value) -> Value:
    """The lanes of ``a``, then those of ``b``, which has no more."""
    width = a.width + b.width
    if b.width < a.width:
        b = _stretched(m.w, b, a.width)
    picks = ", ".join(f"i32 {i}" for i in range(width))
    text = f"shufflevector {a.typed}, {b.typed}, <{width} x i32> <{picks}>"
    return m.w.pure(text, "float", width, (a, b))


def _stretched(w: Writer, x: Value, width: int) -> Value:
    """A vector with more lanes: the first are its own."""
    picks = ", ".join(f"i32 {min(i, x.width - 1)}" for i in range(width))
    return w.pure(f"shufflevector {x.typed}, {x.full_type} poison, <{width} x i32> <{picks}>", x.type, width, (x,))


def _lengthened(w: Writer, x: Value) -> Value:
    """A scalar or a short vector in whole registers: the first lanes are its own."""
    if x.width == 1:
        return w.splat(x, _SCALED)
    return _stretched(w, x, -(-x.width // _SCALED) * _SCALED)


def _shortened(w: Writer, x: Value, width: int) -> Value:
    """The first lanes of a vector."""
    if width == 1:
        return w.lane(x, 0)
    picks = ", ".join(f"i32 {i}" for i in range(width))
    return w.pure(f"shufflevector {x.typed}, {x.full_type} poison, <{width} x i32> <{picks}>", x.type, width, (x,))


def exp(w: Writer, x: Value) -> Value:
    """e^x: degree 6 polynomial, scaled by two powers of two so that denormal results are rounded once.

    With AVX-512: x = (n + k/16) ln 2 + r, where a polynomial of degree 3 is enough; the sixteen powers 2^(k/16) are in
    a register, and what their rounding lost in another.
    """
    m = _maths(w, x)
    if _has_scaling(m):
        return _exp_by_sixteenths(m, x, 89.0)
    limited = m.clamp(x, -104.0, 89.0)
    # n and n/2 land in the low bits of two numbers with the exponents' bias already added, so that shifts alone give
    # 2^(n/2) and, of their difference, 2^(n - n/2); products keep NaN
    shifted, half = m.fma(limited, t.LOG2E, _MAGIC + 254.0), m.fma(limited, t.LOG2E / 2, _MAGIC + 127.0)
    p = m.poly(_exp_rest(m, limited, m.sub(shifted, _MAGIC + 254.0)), t.EXP)
    rest = m.int_op("sub", m.bits(shifted), m.bits(half))
    return m.mul(m.mul(p, m.real(m.int_op("shl", m.bits(half), 23))), m.real(m.int_op("shl", rest, 23)))


def _exp_by_sixteenths(m: Maths, x: Value, high: float | None) -> Value:
    """e^x with AVX-512 for x up to ``high``, where the result is infinite (None: x does not come near it)."""
    if x.width % _SCALED:
        longer = _lengthened(m.w, x)
        return _shortened(m.w, _exp_by_sixteenths(_maths(m.w, longer), longer, high), x.width)
    limited = m.clamp(x, -104.0, high)
    shifted = m.fma(limited, t.LOG2E, _MAGIC / 16)
    n, k = m.sub(shifted, _MAGIC / 16), m.bits(shifted)
    r = _exp_rest(m, limited, n)
    more = m.fma(m.poly(r, t.EXP_SHORT), r, _looked_up(m, t.SIXTEENTHS_LOST, k))
    root = _looked_up(m, t.SIXTEENTHS, k)
    return _scaled_by_power(m, m.fma(root, more, root), n)


def exp_nonpositive(w: Writer, x: Value) -> Value:
    """e^x for x up to 40: no limit above, and one constant power of two that makes denormal results."""
    m = _maths(w, x)
    if x.type == "double":
        return libm(w, "exp", x)
    if _has_scaling(m):
        return _exp_by_sixteenths(m, x, None)
    limited = m.clamp(x, -104.0, None)
    bias = _MAGIC + 127.0 + 64.0
    shifted = m.fma(limited, t.LOG2E, bias)
    p = m.poly(_exp_rest(m, limited, m.sub(shifted, bias)), t.EXP)
    return m.mul(m.mul(p, m.real(m.int_op("shl", m.bits(shifted), 23))), 2.0**-64)


def _power_of_two(m: Maths, n: Value) -> Value:
    return m.real(m.int_op("shl", m.int_op("add", n, 127), 23))


def exp_clamped(w: Writer, x: Value) -> Value:
    """e^x for results that are normal numbers; beyond that the nearest such."""
    m = _maths(w, x)
    r, n = _exp_parts(m, m.clamp(x, -87.33654, 88.37626))
    return m.real(m.int_op("add", m.bits(m.poly(r, t.EXP)), m.int_op("shl", n, 23)))


def expm1(w: Writer, x: Value) -> Value:
    """e^x - 1 = 2 (s (e^r - 1) + s - 1/2) with s = 2^(n-1), which stays finite up to the largest result."""
    m = _maths(w, x)
    r, n = _exp_parts(m, m.clamp(x, -20.0, 89.0))
    less_1 = m.fma(m.mul(r, r), m.poly(r, t.EXP[2:]), r)
    s = _power_of_two(m, m.int_op("sub", n, 1))
    result = m.mul(m.fma(s, less_1, m.sub(s, 0.5)), 2.0)
    result = m.choose(m.test("ogt", x, 88.8), INF, result)
    return m.choose(m.test("olt", m.fabs(x), 2.0**-25), x, result)


def _log_parts(m: Maths, x: Value) -> tuple[Value, Value, Value]:
    """Return f, e (a float) and log(1 + f) - f with x = (1 + f) 2^e, for x positive and finite."""
    small = m.test("olt", x, 2.0**-126)
    scaled = m.choose(small, m.mul(x, 2.0**23), x)
    bits = m.bits(scaled)
    e = m.int_op("ashr", m.int_op("sub", bits, 0x3F3504F3), 23)
    f = m.sub(m.real(m.int_op("sub", bits, m.int_op("shl", e, 23))), 1.0)
    exponent = m.convert("sitofp", e, "float")
    exponent = m.choose(small, m.sub(exponent, 23.0), exponent)
    z = m.mul(f, f)
    return f, exponent, m.mul(m.mul(m.poly(f, t.LOG), f), z)


def _log_edges(m: Maths, x: Value, result: Value) -> Value:
    result = m.choose(m.test("olt", x, INF), result, x)
    result = m.choose(m.test("oeq", x, 0.0), -INF, result)
    return m.choose(m.test("olt", x, 0.0), float("nan"), result)


def log(w: Writer, x: Value) -> Value:
    """Natural logarithm."""
    m = _maths(w, x)
    f, e, y = _log_parts(m, x)
    y = m.fma(e, t.LOG_LN2_LOW, y)
    y = m.fma(m.mul(f, f), -0.5, y)
    return _log_edges(m, x, m.fma(e, t.LOG_LN2_HIGH, m.add(f, y)))


def log2(w: Writer, x: Value) -> Value:
    """Logarithm to base 2; the product with the constant is summed from its small parts on."""
    m = _maths(w, x)
    f, e, y = _log_parts(m, x)
    y = m.fma(m.mul(f, f), -0.5, y)
    low = m.fma(f, t.LOG2E_LESS_1, m.mul(y, t.LOG2E_LESS_1))
    return _log_edges(m, x, m.add(e, m.add(f, m.add(low, y))))


def log1p(w: Writer, x: Value) -> Value:
    """log(1 + x): the logarithm of the rounded sum, and what the rounding lost, divided by it."""
    m = _maths(w, x)
    u = m.add(x, 1.0)
    lost = m.sub(x, m.sub(u, 1.0))
    result = m.add(log(w, u), m.div(lost, u))
    result = m.choose(m.test("oeq", u, 0.0), -INF, result)
    result = m.choose(m.test("oeq", u, 1.0), x, result)
    return m.choose(m.test("oeq", x, INF), x, result)


def tanh(w: Writer, x: Value) -> Value:
    """A polynomial below 0.625, and for NaN, from there on 1 - 2/(e^2x + 1)."""
    m = _maths(w, x)
    a = m.fabs(x)
    e = exp_clamped(w, m.mul(m.clamp(a, None, 10.0), 2.0))
    large = m.sub(1.0, m.div(2.0, m.add(e, 1.0)))
    s = m.mul(x, x)
    small = m.fma(m.mul(m.poly(s, t.TANH), s), a, a)
    return m.copysign(m.choose(m.test("ult", a, 0.625), small, large), x)


def erf(w: Writer, x: Value) -> Value:
    """A polynomial below 0.92, from there on 1 - e^p(x)."""
    m = _maths(w, x)
    a = m.fabs(x)
    s = m.mul(x, x)
    r = m.fma(m.poly(a, t.ERF_LARGE_ODD), s, m.poly(a, t.ERF_LARGE_EVEN))
    for c in reversed(t.ERF_LARGE):
        r = m.fma(r, a, c)
    large = m.sub(1.0, exp_clamped(w, m.fma(r, a, m.neg(a))))
    small = m.fma(m.poly(s, t.ERF_SMALL), a, a)
    return m.copysign(m.choose(m.test("ogt", a, 0.921875), large, small), x)


def normal_cdf(w: Writer, x: Value) -> Value:
    """The normal distribution function: the tail of |x| is 2^q(|x|), and 0 from 7 on; the other side is 1 less it."""
    m = _maths(w, x)
    if x.type == "double":
        return m.mul(libm(w, "erfc", m.mul(x, -(0.5**0.5))), 0.5)
    a = m.fabs(x)
    q = m.poly_halves(a, t.NORMAL_TAIL)
    bias = _MAGIC + 127.0
    shifted = m.add(q, bias)
    tail = m.mul(m.poly(m.sub(q, m.sub(shifted, bias)), t.EXP2), m.real(m.int_op("shl", m.bits(shifted), 23)))
    tail = m.choose(m.test("ogt", a, 7.0), 0.0, tail)
    return m.choose(m.negative(x), tail, m.sub(1.0, tail))


def sigmoid(w: Writer, x: Value) -> Value:
    """1/(1 + e^-x), from e^-|x| so that nothing overflows and small results keep their digits."""
    m = _maths(w, x)
    e = exp_nonpositive(w, m.neg(m.fabs(x)))
    return m.div(m.choose(m.test("olt", x, 0.0), e, 1.0), m.add(e, 1.0))


def rsqrt(w: Writer, x: Value) -> Value:
    """1/sqrt(x)."""
    return _maths(w, x).div(1.0, w.intrinsic("sqrt", x))


def _trig(w: Writer, x: Value, quarter: int, name: str) -> Value:
    """Sine shifted by quarter turns: reduced in double precision; large arguments go to the C library."""
    m, d = _maths(w, x), Maths(w, "double", x.width)
    wide = m.convert("fpext", x, "double")
    magic = 6755399441055744.0  # 1.5 * 2^52
    shifted = d.fma(wide, t.TWO_OVER_PI, magic)
    n = d.sub(shifted, magic)
    r = m.convert("fptrunc", d.fma(n, -t.HALF_PI_LOW, d.fma(n, -t.HALF_PI_HIGH, wide)), "float")
    q = m.int_op("add", m.convert("trunc", d.bits(shifted), "i32"), quarter)
    z = m.mul(r, r)
    sine = m.fma(m.mul(m.poly(z, t.SIN), z), r, r)
    cosine = m.add(m.fma(z, -0.5, m.mul(m.mul(m.poly(z, t.COS), z), z)), 1.0)
    zero = w.splat(int_value(0, "i32"), x.width)
    odd = m.int_op("and", q, 1)
    swap = w.pure(f"icmp ne {odd.typed}, {zero.text}", "i1", x.width, (odd,))
    sign = m.int_op("shl", m.int_op("and", q, 2), 30)
    result = m.real(m.int_op("xor", m.bits(m.choose(swap, cosine, sine)), sign))
    if quarter == 0:
        result = m.choose(m.test("oeq", x, 0.0), x, result)
    far = m.test("oge", m.fabs(x), t.TRIG_LIMIT if w.module.target.has_fma else t.TRIG_LIMIT_UNFUSED)
    return w.rarely(far, result, lambda: libm(w, name, x))


def sin(w: Writer, x: Value) -> Value:
    """Sine."""
    return _trig(w, x, 0, "sin")


def cos(w: Writer, x: Value) -> Value:
    """Cosine."""
    return _trig(w, x, 1, "cos")


_SIMPLE_POWERS: Final[Mapping[float, Callable[[Maths, Value], Value]]] = MappingProxyType(
    {
        1.0: lambda m, x: x,
        2.0: lambda m, x: m.mul(x, x),
        3.0: lambda m, x: m.mul(m.mul(x, x), x),
        -1.0: lambda m, x: m.div(1.0, x),
    }
)


def power(w: Writer, x: Value, y: Value) -> Value:
    """x^y; single precision computes 2^(y log2 x) in double precision."""
    m = _maths(w, x)
    for number, simple in _SIMPLE_POWERS.items():
        if y.text in (float_value(number, y.type).text, m.constant(number).text):
            return simple(m, x)
    if x.type == "double":
        return libm2(w, "pow", x, y)
    d = Maths(w, "double", x.width)
    a = m.fabs(x)
    exponent = d.mul(_log2_double(d, m.convert("fpext", a, "double")), m.convert("fpext", y, "double"))
    result = m.convert("fptrunc", _exp2_double(d, exponent), "float")
    whole = m.test("oeq", w.intrinsic("floor", y), y)
    half = m.mul(y, 0.5)
    uneven = m.mask_op("and", whole, m.test("une", w.intrinsic("floor", half), half))
    result = m.choose(uneven, m.copysign(result, x), result)
    finite_negative = m.mask_op("and", m.test("olt", x, 0.0), m.test("olt", a, INF))
    fraction = m.test("une", w.intrinsic("floor", y), y)
    result = m.choose(m.mask_op("and", finite_negative, fraction), float("nan"), result)
    unit = m.mask_op("and", m.test("oeq", a, 1.0), m.test("oeq", m.fabs(y), INF))
    one = m.mask_op("or", m.mask_op("or", m.test("oeq", x, 1.0), m.test("oeq", y, 0.0)), unit)
    return m.choose(one, 1.0, result)


def _log2_double(d: Maths, x: Value) -> Value:
    """log2 of a double that was a float (never denormal), to about 2^-40; 0, infinity and NaN as usual."""
    bits = d.bits(x)
    e = d.int_op("ashr", d.int_op("sub", bits, 0x3FE6A09E667F3BCD), 52)
    mantissa = d.real(d.int_op("sub", bits, d.int_op("shl", e, 52)))
    f = d.div(d.sub(mantissa, 1.0), d.add(mantissa, 1.0))
    narrow = d.convert("trunc", e, "i32")
    result = d.fma(f, d.poly(d.mul(f, f), t.LOG2_SERIES), d.convert("sitofp", narrow, "double"))
    result = d.choose(d.test("olt", x, INF), result, x)
    return d.choose(d.test("oeq", x, 0.0), -INF, result)


def _exp2_double(d: Maths, x: Value) -> Value:
    """2^x to about 2^-37, limited to what overflows or vanishes in single precision."""
    x = d.clamp(x, -200.0, 200.0)
    magic = 6755399441055744.0
    shifted = d.add(x, magic)
    p = d.poly(d.sub(x, d.sub(shifted, magic)), t.EXP2_SERIES)
    return d.real(d.int_op("add", d.bits(p), d.int_op("shl", d.bits(shifted), 52)))


FUNCTIONS: Final[Mapping[Intrinsic, Callable[[Writer, Value], Value]]] = MappingProxyType(
    {
        Intrinsic.EXP: exp, Intrinsic.EXPM1: expm1, Intrinsic.LOG: log, Intrinsic.LOG1P: log1p, Intrinsic.LOG2: log2,
        Intrinsic.SIN: sin, Intrinsic.COS: cos, Intrinsic.TANH: tanh, Intrinsic.ERF: erf,
    }
)  # fmt: skip
"""Single precision."""
GENERIC: Final[Mapping[Intrinsic, Callable[[Writer, Value], Value]]] = MappingProxyType(
    {
        Intrinsic.SIGMOID: sigmoid, Intrinsic.RSQRT: rsqrt, Intrinsic.EXP_NONPOSITIVE: exp_nonpositive,
        Intrinsic.NORMAL_CDF: normal_cdf,
    }
)  # fmt: skip
"""Both precisions."""
