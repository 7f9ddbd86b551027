"""Elementary functions in single precision as straight-line code, the same for scalars and vectors.

Largest errors in units of the last place, against double precision (tests/backends/test_vmath.py), on targets with
fused multiply-add: exp 1, expm1 2, log 1, log2 2, log1p 2, tanh 2, erf 2, sigmoid 3, sin and cos 2, pow 1, rsqrt 2;
the normal distribution function 3 above 0, below it relatively 2e-6 to -2, 2e-5 to -4 and 2e-3 to -7.
Signed zeros, infinities, NaN and denormals come out as in the C library.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm import vmath_tables as t
from relaxir.backends.llvm.emit_value import Value, float_value, int_value
from relaxir.backends.llvm.emit_writer import Writer
from relaxir.backends.llvm.vmath_lanes import LANES, has_lanes, lengthened, looked_up, scaled_by_power, shortened
from relaxir.backends.llvm.vmath_libm import libm, libm2
from relaxir.backends.llvm.vmath_values import Maths, maths_of
from relaxir.tir.expr import Intrinsic

INF: Final = float("inf")


_MAGIC: Final = 12582912.0
"""1.5 * 2^23: adding it rounds to an integer, found in the low bits."""
_MAGIC_BITS: Final = 0x4B400000
_MAGIC_DOUBLE: Final = 6755399441055744.0
"""1.5 * 2^52: the same in double precision."""


def _exp_parts(m: Maths, x: Value) -> tuple[Value, Value]:
    """Return r and n (an i32) with x = n ln 2 + r."""
    shifted = m.fma(x, t.LOG2E, _MAGIC)
    r = _exp_rest(m, x, m.sub(shifted, _MAGIC))
    return r, m.int_op("sub", m.bits(shifted), _MAGIC_BITS)


def _exp_rest(m: Maths, x: Value, n: Value) -> Value:
    """``x - n ln 2``."""
    return m.fma(n, -t.EXP_LN2_LOW, m.fma(n, -t.EXP_LN2_HIGH, x))


def exp(w: Writer, x: Value) -> Value:
    """e^x: degree 6 polynomial, scaled by two powers of two so that denormal results are rounded once.

    With AVX-512: x = (n + k/16) ln 2 + r, where a polynomial of degree 3 is enough; the sixteen powers 2^(k/16) are in
    a register, and what their rounding lost in another.
    """
    m = maths_of(w, x)
    if has_lanes(m):
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
    if x.width % LANES:
        longer = lengthened(m.w, x)
        return shortened(m.w, _exp_by_sixteenths(maths_of(m.w, longer), longer, high), x.width)
    limited = m.clamp(x, -104.0, high)
    shifted = m.fma(limited, t.LOG2E, _MAGIC / 16)
    n, k = m.sub(shifted, _MAGIC / 16), m.bits(shifted)
    r = _exp_rest(m, limited, n)
    more = m.fma(m.poly(r, t.EXP_SHORT), r, looked_up(m, t.SIXTEENTHS_LOST, k))
    root = looked_up(m, t.SIXTEENTHS, k)
    return scaled_by_power(m, m.fma(root, more, root), n)


def exp_nonpositive(w: Writer, x: Value) -> Value:
    """e^x for x up to 40: no limit above, and one constant power of two that makes denormal results."""
    m = maths_of(w, x)
    if x.type == "double":
        return libm(w, "exp", x)
    if has_lanes(m):
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
    m = maths_of(w, x)
    r, n = _exp_parts(m, m.clamp(x, -87.33654, 88.37626))
    return m.real(m.int_op("add", m.bits(m.poly(r, t.EXP)), m.int_op("shl", n, 23)))


def expm1(w: Writer, x: Value) -> Value:
    """e^x - 1 = 2 (s (e^r - 1) + s - 1/2) with s = 2^(n-1), which stays finite up to the largest result."""
    m = maths_of(w, x)
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
    m = maths_of(w, x)
    f, e, y = _log_parts(m, x)
    y = m.fma(e, t.LOG_LN2_LOW, y)
    y = m.fma(m.mul(f, f), -0.5, y)
    return _log_edges(m, x, m.fma(e, t.LOG_LN2_HIGH, m.add(f, y)))


def log2(w: Writer, x: Value) -> Value:
    """Logarithm to base 2; the product with the constant is summed from its small parts on."""
    m = maths_of(w, x)
    f, e, y = _log_parts(m, x)
    y = m.fma(m.mul(f, f), -0.5, y)
    low = m.fma(f, t.LOG2E_LESS_1, m.mul(y, t.LOG2E_LESS_1))
    return _log_edges(m, x, m.add(e, m.add(f, m.add(low, y))))


def log1p(w: Writer, x: Value) -> Value:
    """log(1 + x): the logarithm of the rounded sum, and what the rounding lost, divided by it."""
    m = maths_of(w, x)
    u = m.add(x, 1.0)
    lost = m.sub(x, m.sub(u, 1.0))
    result = m.add(log(w, u), m.div(lost, u))
    result = m.choose(m.test("oeq", u, 0.0), -INF, result)
    result = m.choose(m.test("oeq", u, 1.0), x, result)
    return m.choose(m.test("oeq", x, INF), x, result)


def tanh(w: Writer, x: Value) -> Value:
    """A polynomial below 0.625, and for NaN, from there on 1 - 2/(e^2x + 1)."""
    m = maths_of(w, x)
    a = m.fabs(x)
    e = exp_clamped(w, m.mul(m.clamp(a, None, 10.0), 2.0))
    large = m.sub(1.0, m.div(2.0, m.add(e, 1.0)))
    s = m.mul(x, x)
    small = m.fma(m.mul(m.poly(s, t.TANH), s), a, a)
    return m.copysign(m.choose(m.test("ult", a, 0.625), small, large), x)


def erf(w: Writer, x: Value) -> Value:
    """A polynomial below 0.92, from there on 1 - e^p(x)."""
    m = maths_of(w, x)
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
    m = maths_of(w, x)
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
    m = maths_of(w, x)
    e = exp_nonpositive(w, m.neg(m.fabs(x)))
    return m.div(m.choose(m.test("olt", x, 0.0), e, 1.0), m.add(e, 1.0))


def rsqrt(w: Writer, x: Value) -> Value:
    """1/sqrt(x)."""
    return maths_of(w, x).div(1.0, w.intrinsic("sqrt", x))


def _trig(w: Writer, x: Value, quarter: int, name: str) -> Value:
    """Sine shifted by quarter turns: reduced in double precision; large arguments go to the C library."""
    m, d = maths_of(w, x), Maths(w, "double", x.width)
    wide = m.convert("fpext", x, "double")
    shifted = d.fma(wide, t.TWO_OVER_PI, _MAGIC_DOUBLE)
    n = d.sub(shifted, _MAGIC_DOUBLE)
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
    m = maths_of(w, x)
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
    uneven = m.int_op("and", whole, m.test("une", w.intrinsic("floor", half), half))
    result = m.choose(uneven, m.copysign(result, x), result)
    finite_negative = m.int_op("and", m.test("olt", x, 0.0), m.test("olt", a, INF))
    fraction = m.test("une", w.intrinsic("floor", y), y)
    result = m.choose(m.int_op("and", finite_negative, fraction), float("nan"), result)
    unit = m.int_op("and", m.test("oeq", a, 1.0), m.test("oeq", m.fabs(y), INF))
    one = m.int_op("or", m.int_op("or", m.test("oeq", x, 1.0), m.test("oeq", y, 0.0)), unit)
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
    shifted = d.add(x, _MAGIC_DOUBLE)
    p = d.poly(d.sub(x, d.sub(shifted, _MAGIC_DOUBLE)), t.EXP2_SERIES)
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
