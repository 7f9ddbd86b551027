"""Equality of programs: equal text up to local names, and equal bits of constants."""

from __future__ import annotations

from relaxir.ir.expr import Function
from relaxir.ir.module import IRModule
from relaxir.ir.printer import function_text, module_text
from relaxir.tir import PrimFunc
from relaxir.tir.printer import prim_func_text

Comparable = IRModule | Function | PrimFunc


def structural_equal(a: Comparable, b: Comparable) -> bool:
    """Whether two modules or functions are the same program.

    They are equal exactly when their canonical texts are. That text numbers local variables, so their names do not
    matter; names that a caller sees do: functions, parameters of graph and host functions, symbols. It holds small
    constants bit by bit and large ones by SHA-256, attributes, declared ranges and every type. Spans do not matter, and
    a Python callable counts by its name.
    """
    return type(a) is type(b) and (a is b or canonical_text(a) == canonical_text(b))


def canonical_text(value: Comparable) -> str:
    """The text that decides equality; also a key for finding equal programs."""
    if isinstance(value, IRModule):
        return module_text(value.functions, value.attrs, canonical=True)
    if isinstance(value, Function):
        return function_text("f", value, canonical=True)
    return prim_func_text("f", value, canonical=True)
