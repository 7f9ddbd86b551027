"""Printing of scalar expressions: infix with minimal parentheses, literals typed only where the context does not.

A literal stands bare where the other operand, the stored buffer or an index position fixes its dtype, or where its
form does (ints are int64, floats float32); elsewhere it is ``T.const(1.0, "f16")``. Sizes print as dimension
expressions, and int64 arithmetic over nothing but sizes and literals prints as the one dimension expression it equals.
"""

from __future__ import annotations

import ast
from collections.abc import Mapping
from functools import lru_cache
from types import MappingProxyType
from typing import Final

from relaxir.support.dtypes import short
from relaxir.sym import DimLike, SymError, add, floordiv, mod, mul, sub
from relaxir.tir.buffer import Buffer
from relaxir.tir.expr import (
    COMPARISONS,
    Bcast,
    Binary,
    BinOp,
    Bits,
    Call,
    Cast,
    Const,
    Expr,
    Intrinsic,
    Load,
    Select,
    Size,
    Var,
    Word,
)
from relaxir.tir.host import Extent
from relaxir.tir.literals import float_text
from relaxir.tir.names import DimNames, Names

COMPARE, OR, XOR, AND, SHIFT, SUM, PRODUCT, UNARY, ATOM = range(9)

PRECEDENCE: Final[Mapping[BinOp, int]] = MappingProxyType(
    {
        **dict.fromkeys(COMPARISONS, COMPARE),
        BinOp.OR: OR,
        BinOp.XOR: XOR,
        BinOp.AND: AND,
        BinOp.SHL: SHIFT,
        BinOp.SHR: SHIFT,
        BinOp.ADD: SUM,
        BinOp.SUB: SUM,
        **dict.fromkeys((BinOp.MUL, BinOp.DIV, BinOp.FLOORDIV, BinOp.MOD), PRODUCT),
    }
)
"""Operators with an infix form; the others print as ``T.<value>(a, b)``."""

SIZE_ARITHMETIC: Final = MappingProxyType(
    {BinOp.ADD: add, BinOp.SUB: sub, BinOp.MUL: mul, BinOp.FLOORDIV: floordiv, BinOp.MOD: mod}
)
"""Operators that merge into one dimension expression over sizes."""

BARE_DTYPES: Final = ("int64", "float32", "bool")
_NODE_STRENGTH: Final[Mapping[type[ast.AST], int]] = MappingProxyType(
    {ast.Add: SUM, ast.Sub: SUM, ast.Mult: PRODUCT, ast.FloorDiv: PRODUCT, ast.Mod: PRODUCT}
)


@lru_cache(maxsize=4096)
def dim_strength(text: str) -> int:
    """How strongly the outermost operator of a dimension's text binds."""
    node = ast.parse(text, mode="eval").body
    if isinstance(node, ast.BinOp):
        return _NODE_STRENGTH.get(type(node.op), UNARY)
    return UNARY if isinstance(node, ast.UnaryOp) else ATOM


def as_size(e: Expr) -> tuple[DimLike, bool] | None:
    """The dimension an int64 expression over sizes and literals equals, and whether it holds a size; else None."""
    if isinstance(e, Size):
        return e.expr, True
    if isinstance(e, Const) and e.dtype == "int64":
        return int(e.value), False
    if isinstance(e, Call) and e.fn is Intrinsic.NEG:
        inner = as_size(e.arg)
        return None if inner is None or not inner[1] else (mul(inner[0], -1), True)
    if isinstance(e, Binary) and e.op in SIZE_ARITHMETIC:
        a = as_size(e.a)
        b = None if a is None else as_size(e.b)
        if a is None or b is None:
            return None
        try:
            return SIZE_ARITHMETIC[e.op](a[0], b[0]), a[1] or b[1]
        except SymError:  # a constant divisor 0
            return None
    return None


def const_text(e: Const, expected: str | None) -> tuple[str, int]:
    """A literal and its strength."""
    if e.dtype == "bool":
        text: str | None = str(bool(e.value))
    elif isinstance(e.value, float):
        text = float_text(e.value, e.dtype)
    else:
        text = str(int(e.value))
    if text is None:  # inf, NaN, or a value its dtype does not hold
        plain = e.bits if e.bits in ("inf", "-inf", "nan") else float(e.value).hex()
        return f'T.const("{plain}", "{short(e.dtype)}")', ATOM
    fits = isinstance(e.value, float) == (e.dtype in ("float16", "bfloat16", "float32", "float64"))
    implied = e.dtype == expected or (expected is None and e.dtype in BARE_DTYPES)
    if not (fits and implied):
        return f'T.const({text}, "{short(e.dtype)}")', ATOM
    return text, UNARY if text.startswith("-") else ATOM


class ExprPrinter:
    """Prints expressions in the names of one function."""

    def __init__(self, names: Names, dims: DimNames) -> None:
        self.names = names
        self.dims = dims

    def buffer(self, b: Buffer) -> str:
        """Name of a buffer."""
        return self.names.get(b, b.name)

    def element(self, b: Buffer, indices: tuple[Expr, ...]) -> str:
        """``x[i, j]``; ``x[()]`` for a scalar cell."""
        inside = ", ".join(self.text(i, "int64") for i in indices) if indices else "()"
        return f"{self.buffer(b)}[{inside}]"

    def text(self, e: Expr, expected: str | None = None) -> str:
        """An expression; ``expected`` is the dtype that its place fixes, None where it fixes none."""
        return self._render(e, expected)[0]

    def _render(self, e: Expr, expected: str | None) -> tuple[str, int]:
        if isinstance(e, Const):
            return const_text(e, expected)
        if isinstance(e, Var):
            return self.names.get(e, e.name), ATOM
        if isinstance(e, Word):
            return f"T.word({self.element(e.buffer, e.indices)})", ATOM
        if isinstance(e, Load):
            return self.element(e.buffer, e.indices), ATOM
        size = as_size(e) if isinstance(e, Size | Binary | Call) and e.dtype == "int64" else None
        if size is not None and size[1]:
            text = self.dims.text(size[0])
            return text, dim_strength(text)
        if isinstance(e, Binary):
            return self._binary(e, expected)
        if isinstance(e, Call):
            return self._call(e, expected)
        if isinstance(e, Bits):
            return f'T.bits({self.text(e.value)}, "{short(e.dtype)}")', ATOM
        if isinstance(e, Cast):
            return f'T.cast({self.text(e.value)}, "{short(e.dtype)}")', ATOM
        if isinstance(e, Select):
            then, other = self._pair(e.then, e.other, expected)
            return f"T.select({self.text(e.cond, 'bool')}, {then[0]}, {other[0]})", ATOM
        if isinstance(e, Bcast):
            return f"T.bcast({self.text(e.index, 'int64')}, {self.dims.text(e.extent)})", ATOM
        if isinstance(e, Extent):
            return f"T.extent({self.buffer(e.buffer)}, {e.axis})", ATOM
        raise TypeError(f"no text form for expression {type(e).__name__}")

    def _pair(self, a: Expr, b: Expr, expected: str | None) -> tuple[tuple[str, int], tuple[str, int]]:
        """Two operands of one dtype: a literal is typed by the place, else by the other operand."""
        if expected is not None:
            return self._render(a, expected), self._render(b, expected)
        if isinstance(a, Const) and not isinstance(b, Const):
            return self._render(a, b.dtype), self._render(b, None)
        return self._render(a, None), self._render(b, a.dtype)

    def _binary(self, e: Binary, expected: str | None) -> tuple[str, int]:
        a, b = self._pair(e.a, e.b, None if e.op in COMPARISONS else expected)
        strength = PRECEDENCE.get(e.op)
        if strength is None:
            return f"T.{e.op.value}({a[0]}, {b[0]})", ATOM
        if e.dtype == "int64" and e.op in SIZE_ARITHMETIC and as_size(e) is None and as_size(e.a) and as_size(e.b):
            return f'T.binary("{e.op.value}", {a[0]}, {b[0]})', ATOM  # sizes that do not merge: a division by 0
        # comparisons do not chain: both sides must bind tighter
        least = strength + 1 if strength == COMPARE else strength
        left = a[0] if a[1] >= least else f"({a[0]})"
        right = b[0] if b[1] > strength else f"({b[0]})"
        return f"{left} {e.op.value} {right}", strength

    def _call(self, e: Call, expected: str | None) -> tuple[str, int]:
        sign = {Intrinsic.NEG: "-", Intrinsic.NOT: "~"}.get(e.fn)
        inner = None if e.dtype != e.arg.dtype else expected
        text, strength = self._render(e.arg, inner)
        # the minus of a literal is part of the literal
        if sign == "-" and isinstance(e.arg, Const):
            return f"T.neg({text})", ATOM
        if sign is None:
            return f"T.{e.fn.value}({text})", ATOM
        return f"{sign}{text if strength >= UNARY else f'({text})'}", UNARY
