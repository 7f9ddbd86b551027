"""Instructions of AVX-512 for 16 floats that elementary functions use: on vectors of any width, 16 lanes at a time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from relaxir.backends.llvm.emit_value import Value, float_value
from relaxir.backends.llvm.emit_writer import Writer
from relaxir.backends.llvm.vmath_values import Maths

LANES: Final = 16
"""Floats of a register."""


def has_lanes(m: Maths) -> bool:
    """Whether the target has these instructions for the type of the values."""
    target = m.w.module.target
    return m.type == "float" and target.vector_bytes == 64 and target.arch == "x86_64"


def scaled_by_power(m: Maths, p: Value, n: Value) -> Value:
    """``p * 2 ** floor(n)``, exactly rounded also where the result is denormal or infinite."""
    name, kind = "llvm.x86.avx512.mask.scalef.ps.512", ("i16 -1", "i32 4")
    return _by_parts(m, (p, n), lambda a, b: m.w.call(name, (a, b, a), "float", LANES, extra=kind))


def looked_up(m: Maths, table: Sequence[float], bits: Value) -> Value:
    """The number of a table of 16 that the low four bits tell: a shuffle of a register, no memory."""
    row = Value(f"<{', '.join(f'float {float_value(x).text}' for x in table)}>", "float", LANES)
    name = "llvm.x86.avx512.permvar.sf.512"
    return _by_parts(m, (bits,), lambda a: m.w.call(name, (row, a), "float", LANES))


def lengthened(w: Writer, x: Value) -> Value:
    """A scalar or a short vector in whole registers: the first lanes are its own."""
    return w.splat(x, LANES) if x.width == 1 else _stretched(w, x, -(-x.width // LANES) * LANES)


def shortened(w: Writer, x: Value, width: int) -> Value:
    """The first lanes of a vector."""
    return w.lane(x, 0) if width == 1 else w.pick(x, range(width))


def _by_parts(m: Maths, values: Sequence[Value], make: Callable[..., Value]) -> Value:
    """``make`` of every 16 lanes."""
    parts = [make(*(_part(m.w, v, start) for v in values)) for start in range(0, m.width, LANES)]
    while len(parts) > 1:
        parts = [_joined(m.w, *parts[i : i + 2]) if i + 1 < len(parts) else parts[i] for i in range(0, len(parts), 2)]
    return parts[0]


def _part(w: Writer, value: Value, start: int) -> Value:
    return value if value.width == LANES else w.shuffle(value, value, range(start, start + LANES))


def _joined(w: Writer, a: Value, b: Value) -> Value:
    """The lanes of ``a``, then those of ``b``, which has no more."""
    width = a.width + b.width
    return w.shuffle(a, b if b.width == a.width else _stretched(w, b, a.width), range(width))


def _stretched(w: Writer, x: Value, width: int) -> Value:
    """A vector with more lanes: the first are its own."""
    return w.pick(x, [min(i, x.width - 1) for i in range(width)])
