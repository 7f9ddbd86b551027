"""Products of dequantised operands as products of their integers.

Before:
    lv0 = R.dequantize_linear(x, s, z)                  # x: (n, 64) u8
    lv1 = R.dequantize_linear(R.const("w"), sw)         # (64, 32) i8, a scale per column
    lv2 = R.matmul(lv0, lv1)
After:
    lv3 = R.matmul_integer(x, R.const("w"), z)          # int32
    lv4 = R.astype(lv3, dtype="f32")
    lv2 = R.multiply(lv4, R.multiply(s, sw))            # conv likewise, with its bias added

The sum of the integers is exact, so the result is nearer to the real product than the float sum is. It works where a
scale does not vary along the summed axis: one for all, or one per row of the left or column of the right operand.
It runs before constants are folded: a weight stays 8 bits wide in memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, fields, replace
from typing import Any, ClassVar, Final

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Bind, Binding, Check, Constant, Expr, Function, OpCall, Var
from relaxir.ir.module import IRModule
from relaxir.ir.op import Op
from relaxir.ir.pending import PendingCall
from relaxir.ir.rewrite import Rewriter, function_dims, map_functions
from relaxir.ir.types import TensorType
from relaxir.ops import TABLE
from relaxir.ops.conv import ConvAttrs
from relaxir.ops.dynamic import tensor_type
from relaxir.ops.namespace import make_call
from relaxir.ops.quantize import ScaleAttrs
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.canonicalize import axes_of
from relaxir.passes.decompose import names_of
from relaxir.sym import Facts

BYTES: Final = ("int8", "uint8")


@dataclass(frozen=True, slots=True)
class _Quantised:
    """Where a float tensor comes from: integers, scale, zero point (None: 0), and the axis of a scale of rank 1."""

    data: Expr
    scale: Expr
    zero: Expr | None
    axis: int | None
    """None: one scale for all."""


class _Folder(Rewriter):
    def __init__(self, func: Function) -> None:
        super().__init__()
        self.facts = Facts(function_dims(func), func.where)
        self.names = names_of(func)
        self.source: dict[Var, OpCall] = {}

    def binding(self, binding: Binding) -> Iterable[Binding]:
        (new,) = super().binding(binding)
        if isinstance(new, Check):
            return (new,)
        if new.defines:
            self.facts = self.facts.with_dims(*new.defines)
        if not isinstance(new, Bind) or not isinstance(new.value, OpCall):
            return (new,)
        self.source[new.var] = new.value
        if new.value.op.name not in ("matmul", "conv") or new.defines:
            return (new,)
        a, b = (self.quantised(x) for x in new.value.args[:2])
        if a is None or b is None or not isinstance(new.var.type, TensorType) or new.var.type.dtype != "float32":
            return (new,)
        bb = BlockBuilder()
        with bb.fragment(self.facts, self.names, new.value.span) as parts:
            result = product(bb, a, b) if new.value.op.name == "matmul" else convolution(bb, a, b, new.value)
            if result is None:
                return (new,)
        if result.type != new.var.type or any(not isinstance(p, Bind) for p in parts):
            return (new,)
        self.names |= {p.var.name for p in parts if not isinstance(p, Check)}
        self.env[new.var] = result
        return tuple(parts)

    def quantised(self, x: Expr) -> _Quantised | None:
        """Trace a tensor back to its integers, through transposes; None if it has none of 8 bits."""
        call = self.source.get(x) if isinstance(x, Var) else None
        if call is None:
            return None
        if call.op.name == "permute_dims":
            inner = self.quantised(call.args[0])
            return None if inner is None else self.transposed(inner, call)
        if not isinstance(call.attrs, ScaleAttrs) or call.op.name != "dequantize_linear" or call.attrs.block_size:
            return None
        data, scale = call.args[:2]
        zero = call.args[2] if len(call.args) > 2 else None
        types = tensor_type(data), tensor_type(scale)
        if types[0].dtype not in BYTES:
            return None
        single = types[1].rank == 0 or types[1].shape == (1,)
        axis = None if single else call.attrs.axis % types[0].rank
        if isinstance(zero, Constant) and not zero.data.any():
            zero = None
        return _Quantised(data, scale, zero, axis)

    def transposed(self, inner: _Quantised, call: OpCall) -> _Quantised | None:
        """The integers of a transposed tensor: a weight only, whose transpose is folded."""
        if not isinstance(inner.data, Constant):
            return None
        axes = axes_of(call)
        moved = transpose_constant(inner.data, axes)
        return replace(inner, data=moved, axis=None if inner.axis is None else axes.index(inner.axis))


def transpose_constant(value: Constant, axes: tuple[int, ...]) -> Constant:
    """A constant with its axes permuted."""
    data = value.data.transpose(axes).copy()
    data.setflags(write=False)
    return Constant(data, TensorType(data.shape, tensor_type(value).dtype))


def call_of(name: str, *args: Expr, **attrs: Any) -> PendingCall:
    """A call of an operator by name."""
    op: Op[Any] = TABLE[name]
    return make_call(op, args, attrs, None)


def product(bb: BlockBuilder, a: _Quantised, b: _Quantised) -> Var | None:
    """``a @ b`` by integers, or None where a scale varies along the summed axis."""
    ranks = [tensor_type(x.data).rank for x in (a, b)]
    if min(ranks) < 2 or a.axis not in (None, ranks[0] - 2) or b.axis not in (None, ranks[1] - 1):
        return None
    total = bb.emit(call_of("matmul_integer", *operands(bb, a, b)))
    left: Expr = a.scale
    if a.axis is not None:
        left = bb.emit(call_of("expand_dims", left, axes=(1,)))
    scale = bb.emit(call_of("multiply", left, b.scale))
    return bb.emit(call_of("multiply", bb.emit(call_of("astype", total, dtype="float32")), scale))


def convolution(bb: BlockBuilder, a: _Quantised, b: _Quantised, call: OpCall) -> Var | None:
    """``conv(a, b, bias)`` by integers, or None where a scale varies within a sum, or groups leave little to sum."""
    attrs = call.attrs
    if not isinstance(attrs, ConvAttrs) or attrs.groups != 1 or a.axis is not None or b.axis not in (None, 0):
        return None
    inner = {f.name: getattr(attrs, f.name) for f in fields(attrs)}
    total = bb.emit(call_of("conv_integer", *operands(bb, a, b), **inner))
    ones = (1,) * (tensor_type(a.data).rank - 2)
    scale: Expr = bb.emit(call_of("multiply", a.scale, b.scale))
    if tensor_type(scale).rank:
        scale = bb.emit(call_of("reshape", scale, shape=(*tensor_type(scale).shape, *ones)))
    real = bb.emit(call_of("multiply", bb.emit(call_of("astype", total, dtype="float32")), scale))
    if len(call.args) < 3:
        return real
    bias = call.args[2]
    return bb.emit(call_of("add", real, bb.emit(call_of("reshape", bias, shape=(*tensor_type(bias).shape, *ones)))))


def operands(bb: BlockBuilder, a: _Quantised, b: _Quantised) -> tuple[Expr, ...]:
    """Integers and zero points, as far as they are needed."""
    if a.zero is None and b.zero is None:
        return a.data, b.data
    zero = bb.normalize(zero_like(a.data)) if a.zero is None else a.zero
    return (a.data, b.data, zero) if b.zero is None else (a.data, b.data, zero, b.zero)


def zero_like(data: Expr) -> PendingCall:
    """A zero point of 0 of the operand's type."""
    return call_of("zeros", shape=(), dtype=tensor_type(data).dtype)


@dataclass(frozen=True)
class FoldQuantize(Pass):
    """Compute products of dequantised operands on their integers."""

    name: ClassVar[str] = "FoldQuantize"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Folder(f).function(f))
