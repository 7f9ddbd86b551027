"""``rx.op``: one function per operator, derived from the table, giving untyped calls for `BlockBuilder.emit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

from relaxir.ir.attrs import Attrs, make_attrs
from relaxir.ir.op import Op
from relaxir.ir.pending import PendingCall
from relaxir.support.errors import InferError
from relaxir.support.spans import Span


class OpNamespace:
    """``namespace.add(x, y)``; attributes are keywords, or positional after the operands.

    Raises:
        InferError: for a wrong number of operands, an unknown attribute, or a value that an attribute cannot have.
    """

    def __init__(self, table: Mapping[str, Op[Any]]) -> None:
        self._table = table

    def __getattr__(self, name: str) -> Callable[..., PendingCall]:
        op = self._table.get(name)
        if op is None:
            raise AttributeError(f"no operator `{name}`")

        def build(*args: object, **attrs: object) -> PendingCall:
            return make_call(op, args, attrs, Span.caller())

        build.__name__ = name
        build.__doc__ = op.__doc__
        return build

    def __dir__(self) -> list[str]:
        return sorted(self._table)

    def __iter__(self) -> Iterator[str]:
        return iter(sorted(self._table))


def make_call(op: Op[Any], args: tuple[object, ...], attrs: Mapping[str, object], span: Span | None) -> PendingCall:
    """Sort positional values into operands and attributes, and build the attribute record."""
    operands, rest = _operands(op, args)
    names = [f.name for f in fields(op.Attrs)]
    if len(rest) > len(names):
        raise InferError(f"{op.name}: too many operands", code="arity", span=span)
    required = sum(not (p.variadic or p.optional) for p in op.params)
    if len(operands) < required:
        raise InferError(f"{op.name}: expected {required} operands, got {len(operands)}", code="arity", span=span)
    values: Attrs = make_attrs(op.name, op.Attrs, dict(zip(names, rest, strict=False)) | dict(attrs), span)
    return PendingCall(op, operands, values, span)


def _operands(op: Op[Any], args: tuple[object, ...]) -> tuple[tuple[object, ...], tuple[object, ...]]:
    if op.params and op.params[-1].variadic:
        fixed = len(op.params) - 1
        last = args[fixed] if len(args) > fixed else None
        if isinstance(last, list | tuple):
            return args[:fixed] + tuple(last), args[fixed + 1 :]
        return args, ()
    count = len(op.params)
    operands = args[:count]
    while operands and operands[-1] is None and op.params[len(operands) - 1].optional:
        operands = operands[:-1]
    return operands, args[count:]
