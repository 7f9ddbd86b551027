"""Join products of one left operand whose results are narrow into one product, of which the results are slices.

Before:
    lv0 = R.add(R.matmul(x, R.const("w0", (256, 1), "f32")), R.const("b0", (1,), "f32"))       # x: (n, 256)
    lv1 = R.add(R.matmul(x, R.const("w1", (256, 4), "f32")), R.const("b1", (4,), "f32"))
    lv2 = R.tanh(lv1)
After:
    lv3 = R.add(R.matmul(x, R.const("w0 and w1", (256, 5), "f32")), R.const("b0 and b1", (5,), "f32"))
    lv0 = R.strided_slice(lv3, axes=(1,), begin=(0,), size=(1,))
    lv1 = R.strided_slice(lv3, axes=(1,), begin=(1,), size=(4,))
    lv2 = R.tanh(lv1)                                                  # FuseOps lets it read the slice in place

Columns go by whole vectors: a result of two columns costs as much as one of sixteen. Joined products fill the vectors,
and read the left operand once. What has to be gained pays for writing a slice that nothing reads in place. Products
with wide results, such as queries, keys and values, leave few lanes empty and stay apart: each keeps its own epilogue
and its result compact, and `RunTogether` hands them to the threads at once.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import ClassVar, Final

import numpy as np

from relaxir.cost import TargetInfo, tile_columns
from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Bind, Binding, BindingBlock, Check, Constant, Expr, Function, OpCall, Var
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.numbering import ConstantNumbers
from relaxir.ir.parts import bodies_of
from relaxir.ir.rewrite import Rewriter, all_bindings, function_dims, leaves, used_in_body
from relaxir.ops import op
from relaxir.ops.kernels import emit_op
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.decompose import names_of
from relaxir.passes.fold_constant import constant
from relaxir.passes.patterns import dtype_of, rank_of, shape_of
from relaxir.sym import Facts

SLICE: Final = 8
"""Vector operations, in multiply-adds, that a vector of a slice may cost: it is loaded and stored once more."""
COLUMNS: Final = MappingProxyType({"matmul": 1, "linear": 0})
"""For each product the axis of its constant that becomes the last one of the result."""


@dataclass(frozen=True, slots=True)
class _Product:
    """A product of a constant.

    Attributes:
        call: of ``matmul`` or ``linear``.
        weight: the constant.
        bias: what is added to each column, None: nothing.
        result: the variable that stands for the product with its bias.
    """

    call: OpCall
    weight: Constant
    bias: Constant | None
    result: Var

    @property
    def columns(self) -> int:
        """Extent of the last axis of the result."""
        return int(self.weight.data.shape[COLUMNS[self.call.op.name]])


@dataclass(frozen=True, slots=True, eq=False)
class _Join:
    """Products that become one, in program order."""

    members: tuple[_Product, ...]

    def gain(self, target: TargetInfo) -> tuple[int, int]:
        """Multiply-adds of vectors that one row of the joined product saves, and those that all take apart."""
        dtype = dtype_of(self.members[0].weight)
        lanes = target.lanes(dtype)
        depth = self.members[0].weight.data.size // self.members[0].columns
        apart = sum(row_cost(m.columns, depth, dtype, target) for m in self.members)
        joined = row_cost(sum(m.columns for m in self.members), depth, dtype, target)
        slices = SLICE * sum(-(-m.columns // lanes) for m in self.members)
        return apart - joined - slices, apart

    def emit(self, left: Expr, bb: BlockBuilder) -> Var:
        """The joined product, with its bias."""
        first = self.members[0]
        axis = COLUMNS[first.call.op.name]
        arrays = [m.weight.data for m in self.members]
        weight = constant(np.concatenate(arrays, axis), dtype_of(first.weight))
        biases = [m.bias.data.reshape(-1) for m in self.members if m.bias is not None]
        bias = constant(np.concatenate(biases), dtype_of(first.weight)) if biases else None
        if bias is None:
            return emit_op(bb, first.call.op, left, weight, attrs=first.call.attrs)
        if len(first.call.args) > 2:
            return emit_op(bb, first.call.op, left, weight, bias, attrs=first.call.attrs)
        return bb.emit(op.add(emit_op(bb, first.call.op, left, weight, attrs=first.call.attrs), bias))


def row_cost(columns: int, depth: int, dtype: str, target: TargetInfo) -> int:
    """Vector operations of one row of a product: whole panels of columns, or one dot product along the depth."""
    lanes = target.lanes(dtype)
    if columns == 1:
        return 2 * -(-depth // lanes)
    width = min(tile_columns(target, dtype), -(-columns // lanes) * lanes)
    return -(-columns // width) * width // lanes * depth


class _Finder:
    """Finds what may be joined in one function."""

    def __init__(self, func: Function) -> None:
        self.func = func
        self.uses = Counter(used_in_body(func.body))
        self.adders = {
            a: b
            for b in all_bindings(func.body)
            if isinstance(b, Bind) and isinstance(b.value, OpCall) and b.value.op.name == "add"
            for a in b.value.args
            if isinstance(a, Var)
        }

    def joins(self) -> Iterator[_Join]:
        """Products of one left operand, of one kind, in one block."""
        inner = (b.value for b in all_bindings(self.func.body) if isinstance(b, Bind))
        for body in (self.func.body, *(body for value in inner for body in bodies_of(value))):
            for block in body.blocks:
                yield from self.in_block(block)

    def in_block(self, block: BindingBlock) -> Iterator[_Join]:
        """Products that one block binds."""
        found: dict[object, list[_Product]] = {}
        mine = {b.var for b in block.bindings if not isinstance(b, Check)}
        for b in block.bindings:
            product = self.product(b, mine) if isinstance(b, Bind) and not b.defines else None
            if product is not None:
                call = product.call
                found.setdefault((call.op.name, call.args[0], call.attrs, product.bias is None), []).append(product)
        yield from (_Join(tuple(p)) for p in found.values() if len(p) > 1)

    def product(self, b: Bind, mine: set[Var]) -> _Product | None:
        """Read a binding as a product of a variable and a constant matrix."""
        call = b.value
        if not isinstance(call, OpCall) or call.op.name not in COLUMNS or not isinstance(call.args[0], Var):
            return None
        weight, *rest = call.args[1:]
        if not isinstance(weight, Constant) or weight.data.ndim != 2 or not weight.data.size:
            return None
        if rest:
            return _Product(call, weight, rest[0], b.var) if isinstance(rest[0], Constant) else None
        bias = self.bias(b, mine) if call.op.name == "matmul" else None
        return _Product(call, weight, None, b.var) if bias is None else _Product(call, weight, *bias)

    def bias(self, b: Bind, mine: set[Var]) -> tuple[Constant, Var] | None:
        """The constant of one row that is all that is done with a product, and the sum."""
        adder = self.adders.get(b.var)
        if adder is None or self.uses[b.var] != 1 or adder.var not in mine or adder.var.type != b.var.type:
            return None
        assert isinstance(adder.value, OpCall)
        (other,) = (a for a in adder.value.args if a is not b.var)
        columns = shape_of(b.var)[-1]
        row = isinstance(other, Constant) and other.data.ndim > 0 and other.data.size == columns == shape_of(other)[-1]
        return (other, adder.var) if row and isinstance(other, Constant) else None


class _Combiner(Rewriter):
    def __init__(self, func: Function, joins: Sequence[_Join]) -> None:
        super().__init__()
        self.facts = Facts(function_dims(func), func.where)
        self.names = names_of(func)
        self.place = {m.result: (j, n) for j in joins for n, m in enumerate(j.members)}
        self.wide: dict[_Join, Var] = {}

    def binding(self, binding: Binding) -> Iterable[Binding]:
        (new,) = super().binding(binding)
        if isinstance(new, Check) or new.var not in self.place:
            return (new,)
        join, number = self.place[new.var]
        bb = BlockBuilder()
        with bb.fragment(self.facts, self.names, join.members[number].call.span) as parts:
            if join not in self.wide:
                self.wide[join] = join.emit(self.expr(join.members[0].call.args[0]), bb)
            begin = sum(m.columns for m in join.members[:number])
            size = join.members[number].columns
            axis = rank_of(new.var) - 1
            cut = op.strided_slice(self.wide[join], axes=(axis,), begin=(begin,), size=(size,))
            self.env[new.var] = bb.emit(cut)
        self.names |= {p.var.name for p in parts if not isinstance(p, Check)}
        return tuple(parts)


@dataclass(frozen=True)
class CombineMatmuls(Pass):
    """Join ``matmul`` and ``linear`` calls of one left operand and constant right ones, biases included.

    Attributes:
        share: part of the multiply-adds, lanes that nothing needs included, that joining must save at least: ``share``
            of 0 joins whatever pays for its slices, a negative one everything.
    """

    name: ClassVar[str] = "CombineMatmuls"
    share: float = 0.125

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Join products function by function; a weight that is used elsewhere too is left alone."""
        found = {
            n: [j for j in _Finder(f).joins() if self.pays(j, ctx.target)] for n, f in module.graph_functions().items()
        }
        if not any(found.values()):
            return module
        numbers = ConstantNumbers()
        times = Counter(
            numbers(leaf)
            for f in module.graph_functions().values()
            for b in all_bindings(f.body)
            if not isinstance(b, Check)
            for leaf in leaves(b.value)
            if isinstance(leaf, Constant)
        )

        changed: dict[str, AnyFunc | None] = {}
        for name, func in module.graph_functions().items():
            joins = [j for j in found[name] if all(times[numbers(m.weight)] == 1 for m in j.members)]
            if joins:
                changed[name] = _Combiner(func, joins).function(func)
        return module.with_functions(changed) if changed else module

    def pays(self, join: _Join, target: TargetInfo) -> bool:
        """Whether joining saves enough."""
        saved, all_ = join.gain(target)
        return self.share < 0 or saved >= max(1, self.share * all_)
