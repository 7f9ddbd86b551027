"""Running sums (integers: products too) along neighbours: prefixes of vectors in logarithmic steps, the total carried.

The form is ``for k: acc = acc + v[k]; y[k] = acc`` or, with the element left out, ``for k: y[k] = acc; acc = acc + v``,
both also with ``let e = v[k]`` around them. The steps are those of J. Sklansky, "Conditional-sum addition logic"
(1960): the second half of each 2, 4, 8 ... lanes adds the total of the first half, which is in that one's last lane.
"""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm import emit_ops as ops
from relaxir.backends.llvm.emit_value import Value
from relaxir.backends.llvm.emit_writer import Writer
from relaxir.support.dtypes import info
from relaxir.tir.access import loads_of, stride
from relaxir.tir.buffer import Scope
from relaxir.tir.expr import Binary, BinOp, Expr, Load
from relaxir.tir.stmt import Combine, For, ForKind, Let, Seq, Stmt, Store
from relaxir.tir.visit import substitute_vars, walk_expr

STEPS: Final = MappingProxyType({BinOp.ADD: Combine.SUM, BinOp.MUL: Combine.PROD})
"""Operators that run along, and the reduction whose neutral element they share."""
LEAST: Final = 4
"""Lanes from which steps take less time than one element after the other."""


@dataclass(frozen=True, slots=True)
class Running:
    """What a loop runs along: ``total`` combines with ``value``, ``write`` stores it, before or after."""

    loop: For
    total: Store
    op: BinOp
    value: Expr
    write: Store
    exclusive: bool
    rising: bool
    """Whether all memory is met in rising order or not moved along."""


def running(loop: For) -> Running | None:
    """What a loop computes if it has the form, else None."""
    body: Stmt = loop.body
    if loop.kind is ForKind.SERIAL and isinstance(body, Let):
        # the element is read first: what is stored in its place does not matter
        body = substitute_vars(body.body, {body.var: body.value})
    elif not _reads_elsewhere(loop.body):
        return None
    if loop.kind is not ForKind.SERIAL or not isinstance(body, Seq) or len(body.stmts) != 2:
        return None
    first, second = body.stmts
    if not isinstance(first, Store) or not isinstance(second, Store):
        return None
    exclusive = first.buffer.scope is not Scope.STACK or bool(first.buffer.shape)
    write, total = (first, second) if exclusive else (second, first)
    if total.buffer.shape or total.buffer.scope is not Scope.STACK or total.combine or write.combine:
        return None
    step = total.value
    if not isinstance(step, Binary) or step.op not in STEPS or not _is(step.a, total) or _uses(step.b, total):
        return None
    if step.op is BinOp.MUL and info(step.dtype).is_float:
        return None  # a product of some elements may overflow where that of all before them does not
    sum_only = all(e == Load(total.buffer, ()) for e in walk_expr(write.value) if isinstance(e, Load))
    even = stride(write, loop.var) in (1, -1) and not any(_uses(i, total) for i in write.indices)
    if not (even and sum_only and _uses(write.value, total)):
        return None
    steps = [stride(write, loop.var), *(stride(e, loop.var) for e in loads_of(step.b))]
    rising = all(s in (0, 1) for s in steps)
    return Running(loop, total, step.op, step.b, write, exclusive, rising)


def _reads_elsewhere(body: Stmt) -> bool:
    """Whether no store of a pair goes to memory that the other one reads, the total apart."""
    if not isinstance(body, Seq):
        return False
    stores = [s for s in body.stmts if isinstance(s, Store)]
    written = {s.buffer for s in stores if s.buffer.shape}
    return not any(isinstance(e, Load) and e.buffer in written for s in stores for e in walk_expr(s.value))


def _is(expr: Expr, total: Store) -> bool:
    return isinstance(expr, Load) and expr.buffer is total.buffer


def _uses(expr: Expr, total: Store) -> bool:
    return any(_is(e, total) for e in walk_expr(expr))


def prefixes(w: Writer, scan: Running, value: Value, carry: Value) -> tuple[Value, Value]:
    """Return the vector of running totals that are stored, and the carry in all lanes, for the next vector."""
    width, dtype = value.width, scan.total.buffer.dtype
    done, by = value, 1
    while by < width:
        last = w.shuffle(done, done, [i - i % (2 * by) + by - 1 for i in range(width)])
        later = ", ".join(f"i1 {'true' if i % (2 * by) >= by else 'false'}" for i in range(width))
        both = ops.binary(w, scan.op, dtype, last, done)
        done = instr.choose(w, Value(f"<{later}>", "i1", width), both, done)
        by *= 2
    after = ops.binary(w, scan.op, dtype, carry, done)
    stored = w.shuffle(carry, after, range(width - 1, 2 * width - 1)) if scan.exclusive else after
    return stored, w.shuffle(after, after, [width - 1] * width)
