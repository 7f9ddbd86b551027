"""How statements touch memory: affine indices, strides per axis, what a load or store looks like in a block's axes.

Everything here is a question about given indices; nothing depends on how the program was made, so hand-written
programs are understood as well as generated ones.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from types import MappingProxyType

from relaxir.sym import DimLike, add, mul, product
from relaxir.tir.buffer import Buffer
from relaxir.tir.expr import Binary, BinOp, Call, Const, Expr, Intrinsic, Load, Size, Var, as_expr, const
from relaxir.tir.stmt import Stmt, Store
from relaxir.tir.visit import all_exprs, walk_expr

Coefficients = Mapping[Var, DimLike]
Affine = tuple[Coefficients, Expr]

_NOTHING: Coefficients = MappingProxyType({})


def as_dim(expr: Expr) -> DimLike | None:
    """Return the dimension an int64 expression stands for, or None if it depends on more than sizes."""
    if isinstance(expr, Const) and expr.dtype == "int64":
        return int(expr.value)
    if isinstance(expr, Size):
        return expr.expr
    return None


def variables_of(node: Expr | Stmt) -> frozenset[Var]:
    """Every variable that an expression or statement reads."""
    exprs = walk_expr(node) if isinstance(node, Expr) else all_exprs(node)
    return frozenset(e for e in exprs if isinstance(e, Var))


def affine(expr: Expr, variables: Collection[Var]) -> Affine | None:
    """Write an index as ``sum(coefficient * variable) + rest``; None where it is not linear in the variables.

    Args:
        expr: an int64 expression.
        variables: what counts as a variable; every other `Var` belongs to ``rest``.

    Returns:
        Coefficients (dimensions, no zeros) by variable, and the rest, which has none of the variables.

    """
    if isinstance(expr, Var) and expr in variables:
        return MappingProxyType({expr: 1}), const(0)
    if not any(isinstance(e, Var) and e in variables for e in walk_expr(expr)):
        return _NOTHING, expr
    if isinstance(expr, Call) and expr.fn is Intrinsic.NEG:
        return _scaled(affine(expr.arg, variables), -1)
    if not isinstance(expr, Binary):
        return None
    left, right = affine(expr.a, variables), affine(expr.b, variables)
    if left is None or right is None:
        return None
    if expr.op is BinOp.ADD:
        return _sum(left, right)
    if expr.op is BinOp.SUB:
        negated = _scaled(right, -1)
        return None if negated is None else _sum(left, negated)
    if expr.op is BinOp.MUL:
        for value, factor in ((left, right), (right, left)):
            dim = as_dim(factor[1])
            if not factor[0] and dim is not None:
                return _scaled(value, dim)
    return None


def _sum(a: Affine, b: Affine) -> Affine:
    merged = dict(a[0])
    for var, coefficient in b[0].items():
        merged[var] = add(merged.get(var, 0), coefficient)
    return MappingProxyType({v: c for v, c in merged.items() if c != 0}), _plus(a[1], b[1])


def _plus(a: Expr, b: Expr) -> Expr:
    x, y = as_dim(a), as_dim(b)
    return as_expr(add(x, y)) if x is not None and y is not None else a + b


def _scaled(a: Affine | None, factor: DimLike) -> Affine | None:
    if a is None:
        return None
    rest = as_dim(a[1])
    scaled = as_expr(mul(rest, factor)) if rest is not None else a[1] * as_expr(factor)
    return MappingProxyType({v: mul(c, factor) for v, c in a[0].items()}), scaled


def strides_of(buffer: Buffer) -> tuple[DimLike, ...]:
    """Elements between neighbours along each axis of a compact row-major buffer."""
    return tuple(product(buffer.shape[axis + 1 :]) for axis in range(len(buffer.shape)))


def stride(access: Load | Store, var: Var) -> DimLike | None:
    """Elements the address moves when ``var`` grows by one; None when it does not move evenly."""
    total: DimLike = 0
    for index, step in zip(access.indices, strides_of(access.buffer), strict=True):
        form = affine(index, (var,))
        if form is None:
            return None
        total = add(total, mul(form[0].get(var, 0), step))
    return total


def loads_of(expr: Expr) -> tuple[Load, ...]:
    """List the loads in an expression, outermost first, including those inside indices."""
    return tuple(e for e in walk_expr(expr) if isinstance(e, Load))


def is_identity(indices: tuple[Expr, ...], variables: tuple[Var, ...]) -> bool:
    """Whether indices are exactly the variables, in order."""
    return len(indices) == len(variables) and all(i is v for i, v in zip(indices, variables, strict=True))
