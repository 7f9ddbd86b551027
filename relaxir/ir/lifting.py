"""Lambda lifting: what a function built inside another reads becomes parameters, and arguments of its calls."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from relaxir.ir.expr import Bind, BindingBlock, Body, Check, Expr, FuncCall, If, Loop, Var
from relaxir.ir.parts import bodies_of, operands
from relaxir.ir.types import free_dims_of_type
from relaxir.sym import Relation, free_dims


def captured(body: Body, own: Sequence[Var]) -> tuple[Var, ...]:
    """Variables that a body reads but does not bind, in the order of their first use; ``own`` are parameters."""
    return tuple(dict.fromkeys(_free(body, {*own})))


def inherited(relations: Sequence[Relation], params: Sequence[Var]) -> tuple[Relation, ...]:
    """Relations known around a function that are about the symbols of its parameters alone."""
    own = {d for p in params for d in free_dims_of_type(p.type)}
    return tuple(r for r in relations if own.issuperset((*free_dims(r.left), *free_dims(r.right))))


def _free(body: Body, bound: set[Var]) -> Iterator[Var]:
    for block in body.blocks:
        for binding in block.bindings:
            if not isinstance(binding, Check):
                yield from _read(binding.value, bound)
                bound = {*bound, binding.var}
    yield from _read(body.result, bound)


def _read(expr: Expr, bound: set[Var]) -> Iterator[Var]:
    if isinstance(expr, Var):
        if expr not in bound:
            yield expr
        return
    for operand in operands(expr):
        yield from _read(operand, bound)
    inner = {*bound, *expr.params} if isinstance(expr, Loop) else bound
    for body in bodies_of(expr):
        yield from _free(body, inner)


def passing_on(body: Body, callee: str, more: tuple[Var, ...]) -> Body:
    """The body with further arguments in each of its calls of ``callee``."""
    blocks = []
    for block in body.blocks:
        bindings = []
        for binding in block.bindings:
            value = None if isinstance(binding, Check) else _with_more(binding.value, callee, more)
            bindings.append(replace(binding, value=value) if isinstance(binding, Bind) and value else binding)
        blocks.append(BindingBlock(tuple(bindings), block.dataflow, block.outputs))
    return Body(tuple(blocks), body.result)


def _with_more(expr: Expr, callee: str, more: tuple[Var, ...]) -> Expr:
    if isinstance(expr, FuncCall) and expr.callee == callee:
        return replace(expr, args=(*expr.args, *more))
    if isinstance(expr, If):
        return replace(expr, then=passing_on(expr.then, callee, more), other=passing_on(expr.other, callee, more))
    return replace(expr, body=passing_on(expr.body, callee, more)) if isinstance(expr, Loop) else expr
