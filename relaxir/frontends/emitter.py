"""Emitting operators on import values: what all importers share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from relaxir.frontends.values import Value
from relaxir.ir.attrs import is_symbolic
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Array, Constant, Expr
from relaxir.ir.op import InferCtx
from relaxir.ir.types import ShapeType, TensorType, TupleType
from relaxir.ops import TABLE
from relaxir.ops.namespace import make_call
from relaxir.ops.symbolic import evaluate_symbolic
from relaxir.support.dtypes import Kind, info
from relaxir.support.spans import Span
from relaxir.sym import Dim, DimLike, Facts, free_dims

Operand = Value | int | float | bool
MOST_SIZES: Final = 4096
"""Sizes of one operator that may be known only at run time: each is a symbol."""


class Emitter:
    """Emits operators of one node of a model; integer shape arithmetic is evaluated instead.

    Attributes:
        bb: where bindings go.
        span: the node's place in the model.
    """

    bb: BlockBuilder
    span: Span | None

    def unsupported(self, message: str) -> NoReturn:
        """Raise an error about something that is not implemented."""
        raise NotImplementedError

    def short_dim(self, d: DimLike) -> DimLike:
        """What stands for a dimension in the types of results: importers give long formulas a symbol."""
        return d

    @property
    def facts(self) -> Facts:
        """What is known about the symbols so far."""
        return self.bb.facts

    def read(self, value: Value, low: int, names: str, high: int | None = None) -> tuple[DimLike, ...]:
        """Elements of an int64 tensor of known extent as fresh symbols in ``low..high``.

        Raises:
            UnsupportedError: more elements than sizes that an operator needs.
        """
        shape = value.type.shape
        count = int(shape[0]) if shape else 1
        if count > MOST_SIZES:
            self.unsupported(f"{count} sizes that are known only at run time, more than {MOST_SIZES}")
        bounds = {"min": (low,) * count, "max": (high,) * count if high is not None else (), "names": (names,) * count}
        call = make_call(TABLE["tensor_to_shape"], (value.materialize(self.bb),), bounds, self.span)
        result = self.bb.emit(call)
        assert isinstance(result.type, ShapeType)
        value.known = np.array([*result.type.dims, 0], object)[:-1].reshape(() if value.type.rank == 0 else (count,))
        return result.type.dims

    def emit(self, name: str, *operands: Operand | None, **attrs: object) -> Value:
        """One operator with one result; integer shape arithmetic is evaluated instead of emitted."""
        result = self.emit_any(name, operands, attrs)
        assert isinstance(result, Value)
        return result

    def emit_tuple(self, name: str, *operands: Operand | None, **attrs: object) -> tuple[Value, ...]:
        """One operator with several results."""
        result = self.emit_any(name, operands, attrs)
        assert isinstance(result, tuple)
        return result

    def emit_any(
        self, name: str, operands: Sequence[Operand | None], attrs: Mapping[str, object]
    ) -> Value | tuple[Value, ...]:
        """One operator, results as they come."""
        op = TABLE.get(name)
        if op is None:
            self.unsupported(f"operator `{name}` does not exist yet")
        values = self.convert(operands)
        if any(v is None for v in values[: len(values)]):
            while values and values[-1] is None:
                values = values[:-1]
        if any(v is None for v in values):
            self.unsupported("an omitted input before a given one")
        items = tuple(v for v in values if v is not None)
        attrs = {k: self.named_sizes(v) if k in SIZE_ATTRIBUTES else v for k, v in attrs.items()}
        call = make_call(op, items, attrs, self.span)
        folded = self.evaluate(call.op, items, call.attrs)
        if folded is not None:
            return folded
        tensors = tuple(v.materialize(self.bb) for v in items)
        var = self.bb.emit(make_call(op, tensors, attrs, self.span), rename=self.short_dim)
        return self.wrap(var)

    def named_sizes(self, sizes: object) -> object:
        """Sizes computed from data get symbols of their own, so that types and messages stay short."""
        if not isinstance(sizes, tuple) or not any(_from_data(d) for d in sizes):
            return sizes
        return tuple(self.bb.define_dim("size", d, self.span) if _from_data(d) else d for d in sizes)

    def wrap(self, expr: Expr) -> Value | tuple[Value, ...]:
        """Values of an expression."""
        if isinstance(expr.type, TupleType):
            return tuple(Value.of(self.bb.item(expr, i)) for i in range(len(expr.type.fields)))
        return Value.of(expr)

    def convert(self, operands: Sequence[Operand | None]) -> tuple[Value | None, ...]:
        """Python numbers take the dtype of the first tensor among the operands."""
        dtype = next((o.type.dtype for o in operands if isinstance(o, Value)), "float32")
        return tuple(o if isinstance(o, Value) or o is None else self.scalar(o, dtype) for o in operands)

    def scalar(self, value: int | float | bool, dtype: str) -> Value:
        """A rank-0 constant."""
        return self.literal(np.array(value), dtype)

    def literal(self, array: Array, dtype: str) -> Value:
        """A constant."""
        if dtype == "bfloat16":
            wide = np.ascontiguousarray(array, np.float32).reshape(np.shape(array)).view(np.uint32)
            data = ((wide + 0x7FFF + ((wide >> 16) & 1)) >> 16).astype(np.uint16)
        else:
            data = np.array(array).astype(info(dtype).numpy, order="C")
        data.setflags(write=False)
        return Value.of(Constant(data, TensorType(data.shape, dtype)))

    def evaluate(self, op: Any, items: Sequence[Value], attrs: Any) -> Value | tuple[Value, ...] | None:
        """The result as dims, if the operator does shape arithmetic on known values."""
        reads_shape = op.name in ("shape_of", "size")
        if not reads_shape and (any(v.known is None for v in items) or (not items and op.name != "dims_to_tensor")):
            return None
        types = tuple(v.type for v in items)
        found = evaluate_symbolic(op, [v.known for v in items], attrs, self.facts, types)
        if found is None:
            return None
        if types:  # what is evaluated now must be as well-formed as what is emitted
            op.type_of(types, attrs, InferCtx(op.name, self.facts, (), self.span))
        if isinstance(found, tuple):
            return tuple(Value(TensorType(f.shape, types[0].dtype), None, f) for f in found)
        dtype = "int64" if reads_shape or not types else result_dtype(op.name, types, attrs)
        if not fits(found, dtype):
            return None  # numbers wrap, which the operator itself does
        return Value(TensorType(found.shape, dtype), None, found)


def fits(array: Array, dtype: str) -> bool:
    """Whether a dtype can hold all the numbers among some dims."""
    if dtype == "bool":
        return True
    kind = info(dtype)
    low, high = (0, 1 << kind.bits) if kind.kind is Kind.UINT else (-(1 << kind.bits - 1), 1 << kind.bits - 1)
    return all(low <= d < high for d in array.flat if isinstance(d, int))


SIZE_ATTRIBUTES = frozenset({"shape", "size", "sizes", "repeats"})


def _from_data(d: Any) -> bool:
    """Whether a size is a formula of run-time data (of symbols that may be negative)."""
    return is_symbolic(d) and not isinstance(d, Dim) and any(s.min < 0 for s in free_dims(d))


COMPARING = frozenset(
    "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor logical_not".split()
)


def result_dtype(name: str, types: Sequence[TensorType], attrs: Any) -> str:
    """Dtype of a symbolically evaluated result."""
    if name in COMPARING:
        return "bool"
    if name == "astype":
        return str(attrs.dtype)
    return types[1].dtype if name == "where" else types[0].dtype
