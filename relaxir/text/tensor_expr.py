"""Reading of the scalar expressions of tensor programs: the inverse of `relaxir.tir.expr_printer`."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Final

from relaxir.support.dtypes import info
from relaxir.support.errors import reason
from relaxir.sym import Dim, DimLike
from relaxir.text.scope import Scope
from relaxir.text.source import Source, member, number
from relaxir.text.types import DIM_FUNCTIONS, read_dim, read_dtype
from relaxir.tir import (
    Bcast,
    Binary,
    BinOp,
    Bits,
    Buffer,
    Call,
    Cast,
    Const,
    Expr,
    Extent,
    Intrinsic,
    Load,
    Select,
    Size,
    Var,
    Word,
)
from relaxir.tir.expr import COMPARISONS, const
from relaxir.tir.expr_printer import PRECEDENCE

OPERATORS: Final[Mapping[type[ast.AST], BinOp]] = MappingProxyType(
    {
        ast.Add: BinOp.ADD,
        ast.Sub: BinOp.SUB,
        ast.Mult: BinOp.MUL,
        ast.Div: BinOp.DIV,
        ast.FloorDiv: BinOp.FLOORDIV,
        ast.Mod: BinOp.MOD,
        ast.BitAnd: BinOp.AND,
        ast.BitOr: BinOp.OR,
        ast.BitXor: BinOp.XOR,
        ast.LShift: BinOp.SHL,
        ast.RShift: BinOp.SHR,
        ast.Eq: BinOp.EQ,
        ast.NotEq: BinOp.NE,
        ast.Lt: BinOp.LT,
        ast.LtE: BinOp.LE,
        ast.Gt: BinOp.GT,
        ast.GtE: BinOp.GE,
    }
)
FUNCTIONS: Final[Mapping[str, BinOp]] = MappingProxyType({op.value: op for op in BinOp if op not in PRECEDENCE})
INTRINSICS: Final[Mapping[str, Intrinsic]] = MappingProxyType({fn.value: fn for fn in Intrinsic})
SIZE_OPERATORS: Final = (ast.Add, ast.Sub, ast.Mult, ast.FloorDiv, ast.Mod, ast.Pow)


class ExprReader:
    """Reads expressions in the scope of one function."""

    def __init__(self, source: Source, scope: Scope) -> None:
        self.source = source
        self.scope = scope

    def dim(self, node: ast.expr) -> DimLike:
        """A dimension expression."""
        return read_dim(node, self.scope.dims, self.source)

    def shape(self, node: ast.expr) -> tuple[DimLike, ...]:
        """A tuple of dimensions."""
        return tuple(self.dim(d) for d in self.source.items(node))

    def buffer(self, node: ast.expr) -> Buffer:
        """A buffer by name."""
        if isinstance(node, ast.Name):
            return self.scope.find(node.id, Buffer, "buffer", node)
        raise self.source.error("expected the name of a buffer", node)

    def buffers(self, node: ast.expr) -> tuple[Buffer, ...]:
        """A tuple of buffers."""
        return tuple(self.buffer(b) for b in self.source.items(node))

    def element(self, node: ast.expr) -> tuple[Buffer, tuple[Expr, ...]]:
        """``x[i, j]``: the buffer and its indices."""
        if not isinstance(node, ast.Subscript):
            raise self.source.error("expected an element such as x[i, j]", node)
        buffer = self.buffer(node.value)
        items = node.slice.elts if isinstance(node.slice, ast.Tuple) else [node.slice]
        if len(items) != len(buffer.shape):
            raise self.source.error(
                f"buffer `{buffer.name}` has rank {len(buffer.shape)}, got {len(items)} indices", node
            )
        return buffer, tuple(self.expr(i, "int64") for i in items)

    def expr(self, node: ast.expr, expected: str | None = None) -> Expr:
        """An expression; ``expected`` is the dtype that its place fixes, None where it fixes none.

        Raises:
            ParseError: for what is no expression, or gives another dtype than its place needs.
        """
        result = self._read(node, expected)
        if expected is not None and result.dtype != expected:
            help_text = f'write T.cast(..., "{info(expected).short}")'
            raise self.source.error(
                f"expected {expected}, got {result.dtype}", node, "parse-annotation", help=help_text
            )
        return result

    def _read(self, node: ast.expr, expected: str | None) -> Expr:
        value = number(node)
        if value is not None or (isinstance(node, ast.Constant) and isinstance(node.value, bool)):
            return self._literal(node, value, expected)
        if self._is_size(node):
            size = self.dim(node)
            return const(size) if isinstance(size, int) else Size(size)
        if isinstance(node, ast.Name):
            if self.scope.get(node.id) is None:
                raise self.source.unknown("variable", node.id, self._names(), node)
            return self.scope.find(node.id, Var, "variable", node)
        if isinstance(node, ast.Subscript):
            buffer, indices = self.element(node)
            return Load(buffer, indices)
        if isinstance(node, ast.BinOp | ast.Compare):
            return self._binary(node, expected)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.Invert):
            fn = Intrinsic.NEG if isinstance(node.op, ast.USub) else Intrinsic.NOT
            return Call(fn, self._read(node.operand, expected))
        if isinstance(node, ast.Call):
            return self._call(node, expected)
        if isinstance(node, ast.BoolOp) or (isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not)):
            raise self.source.error("`and`, `or` and `not` are not allowed", node, help="use &, | and ~ on bool values")
        raise self.source.error("not an expression of a tensor program", node)

    def _names(self) -> list[str]:
        return [*self.scope.names(Var), *self.scope.names(Dim)]

    def _literal(self, node: ast.expr, value: int | float | None, expected: str | None) -> Const:
        if value is None:
            assert isinstance(node, ast.Constant)
            return const(bool(node.value), "bool")
        if isinstance(value, float):
            dtype = expected or "float32"
            if not info(dtype).is_float:
                raise self.source.error(f"expected {dtype}, got a float", node, "parse-annotation")
            return const(value, dtype)
        dtype = expected or "int64"
        if info(dtype).is_float:
            return const(float(value), dtype)
        literal = const(value, dtype)
        if dtype == "bool" or literal.value != value:
            raise self.source.error(f"{value} is not a value of {dtype}", node, "parse-annotation")
        return literal

    def _is_size(self, node: ast.expr) -> bool:
        """Whether an expression is one dimension expression that holds a symbol."""
        return self._size_kind(node) == "size"

    def _size_kind(self, node: ast.expr) -> str | None:
        """``size``, ``number``, or None for what is no dimension expression."""
        if isinstance(node, ast.Name):
            return "size" if isinstance(self.scope.get(node.id), Dim) else None
        if type(number(node)) is int:
            return "number"
        if isinstance(node, ast.BinOp) and isinstance(node.op, SIZE_OPERATORS):
            left = self._size_kind(node.left)
            right = None if left is None else self._size_kind(node.right)
            return None if right is None else ("size" if "size" in (left, right) else "number")
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
            return self._size_kind(node.operand)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in DIM_FUNCTIONS:
            return "size" if all(self._size_kind(a) is not None for a in node.args) else None
        return None

    def _pair(self, a: ast.expr, b: ast.expr, expected: str | None) -> tuple[Expr, Expr]:
        """Two operands of one dtype: a literal is typed by the place, else by the other operand."""
        if expected is not None:
            return self._read(a, expected), self._read(b, expected)
        if _is_literal(a) and not _is_literal(b):
            right = self._read(b, None)
            return self._read(a, right.dtype), right
        left = self._read(a, None)
        return left, self._read(b, left.dtype)

    def _binary(self, node: ast.BinOp | ast.Compare, expected: str | None) -> Expr:
        if isinstance(node, ast.Compare):
            if len(node.ops) != 1:
                raise self.source.error("comparisons do not chain", node, help="join them with &: (a < b) & (b < c)")
            kind: type[ast.AST] = type(node.ops[0])
            left, right = node.left, node.comparators[0]
        else:
            kind, left, right = type(node.op), node.left, node.right
        op = OPERATORS.get(kind)
        if op is None:
            raise self.source.error(f"operator {kind.__name__} is not allowed", node)
        return self._make(op, left, right, node, expected)

    def _make(self, op: BinOp, left: ast.expr, right: ast.expr, node: ast.AST, expected: str | None) -> Expr:
        a, b = self._pair(left, right, None if op in COMPARISONS else expected)
        return self.build(Binary, node, op, a, b)

    def build(self, make: Callable[..., Expr], node: ast.AST, *parts: object) -> Expr:
        """Make a node; what its constructor refuses becomes an error at the text's place."""
        try:
            return make(*parts)
        except ValueError as error:
            raise self.source.error(reason(error), node, "parse-annotation") from None

    def _call(self, node: ast.Call, expected: str | None) -> Expr:
        name = member(node, "T")
        if name is None:
            raise self.source.error("only functions of T are called in a tensor program", node)
        reader = _CALLS.get(name)
        if reader is not None:
            return reader(self, node, expected)
        if name in FUNCTIONS:
            args = self.source.arguments(node, ("a", "b"))
            return self._make(FUNCTIONS[name], args["a"], args["b"], node, expected)
        if name in INTRINSICS:
            arg = self.source.arguments(node, ("x",))["x"]
            keeps = name not in ("isnan", "isinf")
            return Call(INTRINSICS[name], self._read(arg, expected if keeps else None))
        raise self.source.unknown(
            "function", f"T.{name}", (f"T.{n}" for n in (*_CALLS, *FUNCTIONS, *INTRINSICS)), node.func
        )

    def _select(self, node: ast.Call, expected: str | None) -> Expr:
        args = self.source.arguments(node, ("cond", "then", "other"))
        then, other = self._pair(args["then"], args["other"], expected)
        return self.build(Select, node, self.expr(args["cond"], "bool"), then, other)

    def _cast(self, node: ast.Call, expected: str | None) -> Expr:
        args = self.source.arguments(node, ("value", "dtype"))
        return Cast(self._read(args["value"], None), read_dtype(args["dtype"], self.source))

    def _bits(self, node: ast.Call, expected: str | None) -> Expr:
        args = self.source.arguments(node, ("value", "dtype"))
        return Bits(self._read(args["value"], None), read_dtype(args["dtype"], self.source))

    def _bcast(self, node: ast.Call, expected: str | None) -> Expr:
        args = self.source.arguments(node, ("index", "extent"))
        return Bcast(self.expr(args["index"], "int64"), self.dim(args["extent"]))

    def _word(self, node: ast.Call, expected: str | None) -> Expr:
        buffer, indices = self.element(self.source.arguments(node, ("x",))["x"])
        return self.build(Word, node, buffer, indices)

    def _extent(self, node: ast.Call, expected: str | None) -> Expr:
        args = self.source.arguments(node, ("buffer", "axis"))
        return Extent(self.buffer(args["buffer"]), self.source.integer(args["axis"]))

    def _const(self, node: ast.Call, expected: str | None) -> Expr:
        args = self.source.arguments(node, ("value", "dtype"))
        dtype = read_dtype(args["dtype"], self.source)
        text = args["value"]
        if isinstance(text, ast.Constant) and isinstance(text.value, str):  # exact: not rounded to the dtype
            return Const(self.source.real(text.value, text), dtype)
        if not _is_literal(text):
            raise self.source.error("expected a literal", text)
        return self._literal(text, number(text), dtype)

    def _operator(self, node: ast.Call, expected: str | None) -> Expr:
        args = self.source.arguments(node, ("op", "a", "b"))
        sign = self.source.string(args["op"])
        op = next((o for o in BinOp if o.value == sign), None)
        if op is None:
            raise self.source.unknown("operator", sign, (o.value for o in BinOp), args["op"])
        return self._make(op, args["a"], args["b"], node, expected)


def _is_literal(node: ast.expr) -> bool:
    return number(node) is not None or (isinstance(node, ast.Constant) and isinstance(node.value, bool))


_CALLS: Final[Mapping[str, Callable[[ExprReader, ast.Call, str | None], Expr]]] = MappingProxyType(
    {
        "select": ExprReader._select,
        "bits": ExprReader._bits,
        "cast": ExprReader._cast,
        "bcast": ExprReader._bcast,
        "extent": ExprReader._extent,
        "word": ExprReader._word,
        "const": ExprReader._const,
        "binary": ExprReader._operator,
    }
)
