"""Calls of the C mathematics library, lane by lane: double precision and the functions without a vector form."""

from __future__ import annotations

from relaxir.backends.llvm.emit_value import Value
from relaxir.backends.llvm.emit_writer import Writer


def libm(w: Writer, name: str, a: Value) -> Value:
    """Call ``name`` (C's name of the double version) on every lane."""
    return _each(w, name, (a,))


def libm2(w: Writer, name: str, a: Value, b: Value) -> Value:
    """Call a function of two operands on every lane."""
    return _each(w, name, (a, b))


def _each(w: Writer, name: str, operands: tuple[Value, ...]) -> Value:
    first = operands[0]
    function = f"{name}f" if first.type == "float" else name
    if first.width == 1:
        return w.call(function, operands, first.type, 1, speculate=False)
    parts = [
        w.call(function, [w.lane(o, i) for o in operands], first.type, 1, speculate=False) for i in range(first.width)
    ]
    return w.lanes(parts)
