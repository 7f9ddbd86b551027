"""``rx.op``: one function per operator, derived from the table, giving untyped calls for `BlockBuilder.emit`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields
from typing import Any

import numpy as np

from relaxir.ir.op import Attrs, Op, is_symbolic
from relaxir.ir.pending import PendingCall
from relaxir.support.errors import InferError
from relaxir.support.spans import Span
from relaxir.sym import normalize


class OpNamespace:
    """``namespace.add(x, y)``; attributes are keywords, or positional after the operands.

    Raises:
        InferError: for a wrong number of operands or an unknown attribute.
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
    record = fields(op.Attrs)
    if len(rest) > len(record):
        raise InferError(f"{op.name}: too many operands", code="arity", span=span)
    given = dict(zip((f.name for f in record), rest, strict=False)) | dict(attrs)
    unknown = set(given) - {f.name for f in record}
    if unknown:
        raise InferError(f"{op.name}: no attribute `{min(unknown)}`", code="attribute", span=span)
    required = sum(not (p.variadic or p.optional) for p in op.params)
    if len(operands) < required:
        raise InferError(f"{op.name}: expected {required} operands, got {len(operands)}", code="arity", span=span)
    try:
        values: Attrs = op.Attrs(**{k: plain(v) for k, v in given.items()})
    except TypeError as error:
        raise InferError(f"{op.name}: {error}", code="attribute", span=span) from error
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


def plain(value: Any) -> Any:
    """Lists become tuples, NumPy scalars Python ones, sympy expressions normalised dims."""
    if isinstance(value, list | tuple):
        return tuple(plain(v) for v in value)
    if isinstance(value, np.generic):
        return value.item()
    return normalize(value) if is_symbolic(value) else value
