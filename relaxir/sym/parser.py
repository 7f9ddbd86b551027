"""Read dimensions and relations from text; the text is parsed with ``ast`` and never executed.

::

    dim      = int | name | dim op dim | -dim | function "(" dim, ... ")"      op: + - * // % **
    function = min | max | ceildiv | broadcast | floordiv | mod
    relation = dim compare dim                                               compare: == <= < >= >
    where    = relation chain, separated by "," or "and" or "&"
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar

from relaxir.support.errors import SymError
from relaxir.sym.expr import (
    Dim,
    DimLike,
    add,
    broadcast,
    ceildiv,
    floordiv,
    max_,
    min_,
    mod,
    mul,
    product,
    sub,
)
from relaxir.sym.relation import Relation

_T = TypeVar("_T")
_LONGEST = 10_000
_DEEPEST = 100
_LARGEST_POWER = 32
_LARGEST_CONSTANT_POWER = 62
_LARGEST_BITS = 4096


def parse(text: str, scope: Mapping[str, Dim]) -> DimLike:
    """Return the dimension that ``text`` denotes; names are looked up in ``scope``.

    Raises ``SymError`` for bad syntax and names the unknown dimension or function.
    """
    return _guarded(text, lambda tree: _expr(tree, scope, text))


def parse_relation(text: str, scope: Mapping[str, Dim]) -> Relation:
    """Return the single relation that ``text`` denotes, such as ``2 * n <= m``."""
    relations = parse_where(text, scope)
    if len(relations) != 1:
        raise SymError(f"expected one relation, found {len(relations)}: {text.strip()}")
    return relations[0]


def parse_where(text: str, scope: Mapping[str, Dim]) -> tuple[Relation, ...]:
    """Return the relations of a where clause such as ``1 <= n <= 4096, n % 4 == 0``."""
    if not text.strip():
        return ()
    plain = text.replace("&", " and ")  # `&` would bind tighter than `<=`
    return _guarded(plain, lambda tree: tuple(_relations(tree, scope, text)))


def _guarded(text: str, read: Callable[[ast.expr], _T]) -> _T:
    if len(text) > _LONGEST:
        raise SymError(f"a dimension of {len(text)} characters is too long")
    try:
        tree = ast.parse(text.strip(), mode="eval").body
        _limit_depth(tree, text)
        return read(tree)
    except SymError:
        raise
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise SymError(f"cannot read a dimension from {text.strip()[:200]!r}") from None


def _limit_depth(tree: ast.expr, text: str) -> None:
    level: list[ast.AST] = [tree]
    for _ in range(_DEEPEST):
        level = [child for node in level for child in ast.iter_child_nodes(node)]
        if not level:
            return
    raise SymError(f"a dimension is nested more than {_DEEPEST} levels deep: {text.strip()[:80]!r}...")


def _power(base: DimLike, exponent: DimLike) -> DimLike:
    most = _LARGEST_CONSTANT_POWER if isinstance(base, int) else _LARGEST_POWER
    if not isinstance(exponent, int) or not 0 <= exponent <= most:
        raise SymError(f"an exponent must be a constant between 0 and {most}")
    return product([base] * exponent)


def _binary(op: ast.operator, text: str) -> Callable[[Any, Any], DimLike]:
    match op:
        case ast.Add():
            return add
        case ast.Sub():
            return sub
        case ast.Mult():
            return mul
        case ast.FloorDiv():
            return floordiv
        case ast.Mod():
            return mod
        case ast.Pow():
            return _power
        case ast.Div():
            raise SymError(f"use // instead of / in a dimension: {text.strip()}")
        case _:
            raise SymError(f"operator {type(op).__name__} is not allowed in a dimension: {text.strip()}")


def _expr(node: ast.expr, scope: Mapping[str, Dim], text: str) -> DimLike:
    match node:
        case ast.Constant(value=int() as value) if not isinstance(value, bool):
            result: DimLike = value
        case ast.Name(id=name):
            if name not in scope:
                raise SymError(f"unknown dimension {name} in {text.strip()!r}")
            result = scope[name]
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            result = mul(_expr(operand, scope, text), -1)
        case ast.UnaryOp(op=ast.UAdd(), operand=operand):
            result = _expr(operand, scope, text)
        case ast.BinOp(left=left, op=op, right=right):
            result = _binary(op, text)(_expr(left, scope, text), _expr(right, scope, text))
        case ast.Call(func=ast.Name(id=name), args=args, keywords=[]):
            result = _call(name, [_expr(arg, scope, text) for arg in args])
        case _:
            raise SymError(f"not a dimension: {text.strip()!r}")
    if isinstance(result, int) and result.bit_length() > _LARGEST_BITS:
        raise SymError("a constant is too large for a dimension")
    return result


def _call(name: str, args: list[DimLike]) -> DimLike:
    match name, args:
        case "min", [_, *_]:
            return min_(*args)
        case "max", [_, *_]:
            return max_(*args)
        case "ceildiv", [a, b]:
            return ceildiv(a, b)
        case "broadcast", [a, b]:
            return broadcast(a, b)
        case "floordiv", [a, b]:
            return floordiv(a, b)
        case "mod", [a, b]:
            return mod(a, b)
        case (("min" | "max" | "ceildiv" | "broadcast" | "floordiv" | "mod"), _):
            raise SymError(f"wrong number of arguments for {name}: {len(args)}")
        case _:
            raise SymError(f"unknown function {name} in a dimension")


def _relations(node: ast.expr, scope: Mapping[str, Dim], text: str) -> Iterator[Relation]:
    match node:
        case ast.Tuple(elts=parts) | ast.BoolOp(op=ast.And(), values=parts):
            for part in parts:
                yield from _relations(part, scope, text)
        case ast.Compare(left=first, ops=ops, comparators=rest):
            left = _expr(first, scope, text)
            for op, other in zip(ops, rest, strict=True):
                right = _expr(other, scope, text)
                relation = comparison(op, left, right)
                if relation is None:
                    raise SymError(f"a relation needs ==, <=, <, >= or >: {text.strip()!r}")
                yield relation
                left = right
        case _:
            raise SymError(f"expected a comparison such as n <= m, got {text.strip()!r}")


def comparison(op: ast.cmpop, left: DimLike, right: DimLike) -> Relation | None:
    """The relation that a Python comparison states; None for operators that are no relation of dimensions."""
    match op:
        case ast.Eq():
            return Relation("==", left, right)
        case ast.LtE():
            return Relation("<=", left, right)
        case ast.Lt():
            return Relation("<", left, right)
        case ast.GtE():
            return Relation("<=", right, left)
        case ast.Gt():
            return Relation("<", right, left)
    return None
