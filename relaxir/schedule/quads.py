"""Products of unsigned and signed bytes, four steps of the reduced axis at a time.

before: ``c[i, j] += int32(a[i, k]) * int32(w[k, j])``, a uint8, w int8;
after: ``c[i, j] += dot4(word(a[i, 4 * q]), word(packed[j // 16, q, j % 16, 0]))``.

The packed layout of a constant ``w`` is ``[batch..., n / NR, k / 4, NR, 4]``: the four bytes that one lane multiplies
lie together, lanes side by side. A ``w`` that is not constant is read a word per lane from four rows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from relaxir.schedule.roles import Roles, Tail
from relaxir.sym import floordiv, is_const, mod
from relaxir.tir import Axis, Binary, BinOp, Cast, Const, Expr, Load, Var, Word, as_expr, binary, cast, const
from relaxir.tir.access import stride, variables_of
from relaxir.tir.classify import Contraction
from relaxir.tir.visit import substitute_vars

BYTES: Final = 4
"""Bytes of a word."""
SHALLOW: Final = 16
"""A reduced axis this short is not worth it."""


@dataclass(frozen=True, slots=True)
class Quads:
    """A contraction of bytes.

    Attributes:
        unsigned: load of the uint8 factor; neighbours along the reduced axis are neighbours in memory.
        signed: load of the int8 factor.
        reduce: the reduced axis.
        rows: spatial axes of the unsigned factor alone.
        columns: spatial axes of the signed factor alone.

    """

    unsigned: Load
    signed: Load
    reduce: Axis
    rows: tuple[Var, ...]
    columns: tuple[Var, ...]


def match_quads(found: Contraction) -> Quads | None:
    """Read a contraction as one of bytes, or None."""
    if len(found.reduce) != 1 or found.store.buffer.dtype != "int32":
        return None
    sides = [(found.left, found.rows, found.right, found.columns), (found.right, found.columns, found.left, found.rows)]
    axes = {a.var: a for a in found.block.axes}
    k = axes[found.reduce[0]]
    if is_const(k.extent) and int(k.extent) < SHALLOW:
        return None
    for first, rows, second, columns in sides:
        unsigned, signed = _byte(first, "uint8"), _byte(second, "int8")
        if unsigned is None or signed is None or not unsigned.indices:
            continue
        inner = any(k.var in variables_of(i) for i in unsigned.indices[:-1])
        if unsigned.indices[-1] is k.var and not inner and k.var in variables_of(signed):
            return Quads(unsigned, signed, k, rows, columns)
    return None


def _byte(factor: Expr, dtype: str) -> Load | None:
    if not isinstance(factor, Cast) or factor.dtype != "int32" or not isinstance(factor.value, Load):
        return None
    load = factor.value
    return load if load.buffer.dtype == dtype and not isinstance(load, Word) else None


def quad_roles(found: Contraction) -> Roles | None:
    """Axes and factors of a contraction of bytes over words, or None where it is none or has no usable lanes."""
    quads = match_quads(found)
    if quads is None:
        return None
    axes = {a.var: a for a in found.block.axes}
    k = quads.reduce
    lane = next((axes[v] for v in reversed(quads.columns) if stride(found.store, v) == 1), None)
    if lane is None:
        return None
    row = axes[quads.rows[-1]] if quads.rows else None
    outer = tuple(a for a in found.block.axes if a is not k and a is not lane and a is not row)
    q = Axis(Var("q"), floordiv(k.extent, BYTES))
    first = q.var * BYTES
    scalar = Word(quads.unsigned.buffer, (*quads.unsigned.indices[:-1], first))
    packed = packed_width(quads.signed, k.var, lane)
    if packed:
        vector: Expr = _packed_word(quads.signed, k.var, q.var)
    elif stride(quads.signed, k.var) == 1 and quads.signed.indices[-1] is k.var:
        vector = Word(quads.signed.buffer, (*quads.signed.indices[:-1], first))
    elif stride(quads.signed, lane.var) == 1:
        vector = _gathered_word(quads.signed, k.var, first)
    else:
        return None
    deep = is_const(k.extent)
    return Roles(
        scalar, vector, lane, row, outer, (q,), packed, not packed and deep, product=_dot4, tail=_tail(quads, packed)
    )


def _dot4(scalar: Expr, vector: Expr) -> Expr:
    return binary(BinOp.DOT4, scalar, vector)


def packed_width(load: Load, k: Var, lane: Axis) -> int:
    """Lanes of a panel packed by words, or 0 if the load is of another form."""
    if len(load.indices) < 2:
        return 0
    byte, column = load.indices[-1], load.indices[-2]
    if not _is(byte, BinOp.MOD, k, BYTES) or not isinstance(column, Binary) or not isinstance(column.b, Const):
        return 0
    width = int(column.b.value)
    fits = load.buffer.shape[-2:] == (width, BYTES)
    return width if fits and _is(column, BinOp.MOD, lane.var, width) else 0


def _is(e: Expr, op: BinOp, var: Var, by: int) -> bool:
    return isinstance(e, Binary) and e.op is op and e.a is var and isinstance(e.b, Const) and e.b.value == by


def _packed_word(load: Load, k: Var, at: Expr) -> Word:
    def index(e: Expr) -> Expr:
        if _is(e, BinOp.FLOORDIV, k, BYTES):
            return at
        return const(0) if _is(e, BinOp.MOD, k, BYTES) else e

    return Word(load.buffer, tuple(map(index, load.indices)))


def _gathered_word(load: Load, k: Var, first: Expr) -> Expr:
    """A word put together from four rows."""
    word: Expr | None = None
    for n in range(BYTES):
        byte = cast(substitute_vars(load, {k: first + n}), "int32")
        if n < BYTES - 1:
            byte = byte & const(255, "int32")
        part = byte if n == 0 else binary(BinOp.SHL, byte, const(8 * n, "int32"))
        word = part if word is None else word | part
    assert word is not None
    return word


def _tail(quads: Quads, packed: int) -> Tail | None:
    """What is left of the reduced axis, a byte at a time: the lowest of a word whose others are 0."""
    extent = quads.reduce.extent
    rest = mod(extent, BYTES)
    if rest == 0:
        return None
    k, t = quads.reduce.var, Axis(Var("t"), rest)
    whole = as_expr(floordiv(extent, BYTES))
    at = whole * BYTES + t.var
    scalar = cast(substitute_vars(quads.unsigned, {k: at}), "int32")
    if not packed:
        return Tail(t, scalar, cast(substitute_vars(quads.signed, {k: at}), "int32"))
    shifted = binary(BinOp.SHR, _packed_word(quads.signed, k, whole), cast(t.var * 8, "int32"))
    return Tail(t, scalar, shifted)
