"""Drop the unit axes of a convolution after the elementwise operators that follow it, which then fuse with it.

Before:
    lv0: R.Tensor((n, 8, w, 1), "f32") = R.conv(x, weights)
    lv1: R.Tensor((n, 8, w), "f32") = R.squeeze(lv0, axes=(3,))
    lv2: R.Tensor((n, 8, w), "f32") = R.relu(R.add(lv1, R.const("bias", (1, 8, 1))))
After:
    lv1: R.Tensor((n, 8, w, 1), "f32") = R.relu(R.add(lv0, R.const("bias", (1, 8, 1, 1))))
    lv2: R.Tensor((n, 8, w), "f32") = R.reshape(lv1, shape=(n, 8, w))
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from relaxir.ir.builder import BlockBuilder
from relaxir.ir.expr import Constant, Expr, Function, OpCall, Var
from relaxir.ir.module import IRModule
from relaxir.ir.op import OpKind
from relaxir.ir.rewrite import map_functions
from relaxir.ops import op
from relaxir.ops.kernels import emit_op
from relaxir.passes.base import Pass, PassContext
from relaxir.passes.fold_constant import constant
from relaxir.passes.hoist_reshape import VIEWS
from relaxir.passes.patterns import PatternRewriter, dtype_of, rank_of, shape_of

POINTWISE = (OpKind.ELEMENTWISE, OpKind.BROADCAST)


class _Sinker(PatternRewriter):
    def __init__(self, func: Function) -> None:
        super().__init__(func)
        self.sunk: set[Var] = set()

    def replacement(self, call: OpCall, bb: BlockBuilder) -> Expr | None:
        if call.op.kind not in POINTWISE:
            return None
        views = [self.view(a) for a in call.args]
        axes = next((v[1] for v in views if v is not None), ())
        args: list[Expr] = []
        for a, v in zip(call.args, views, strict=True):
            if v is not None and v[1] == axes and shape_of(a) == shape_of(call):
                args.append(v[0])
            elif axes and isinstance(a, Constant):
                args.append(widened(a, axes, rank_of(call)))
            else:
                return None
        inner = emit_op(bb, call.op, *args, attrs=call.attrs)
        assert isinstance(inner, Var)  # the builder names what it emits
        self.sunk.add(inner)
        return bb.emit(op.reshape(inner, shape=shape_of(call)))

    def view(self, expr: Expr) -> tuple[Var, tuple[int, ...]] | None:
        """The result of a convolution (and of what was computed from it alone) and the axes that a view of it drops."""
        made = self.made(expr, *VIEWS)
        source = made.args[0] if made is not None else None
        if not isinstance(source, Var) or (source not in self.sunk and self.made(source, "conv") is None):
            return None
        kept, dropped = list(shape_of(expr)), []
        for axis, extent in enumerate(shape_of(source)):
            if kept and kept[0] == extent:
                kept.pop(0)
            elif extent == 1:
                dropped.append(axis)
            else:
                return None
        return None if kept or not dropped else (source, tuple(dropped))


def widened(value: Constant, axes: tuple[int, ...], rank: int) -> Constant:
    """A constant that broadcasts to ``rank`` axes, with axes of extent 1 where a view dropped some."""
    if not value.data.ndim:
        return value
    have = [1] * (rank - value.data.ndim) + list(value.data.shape)
    shape = [1 if axis in axes else have.pop(0) for axis in range(rank + len(axes))]
    return constant(value.data.reshape(shape), dtype_of(value))


@dataclass(frozen=True)
class SinkViews(Pass):
    """Move views that drop unit axes of convolutions behind elementwise operators."""

    name: ClassVar[str] = "SinkViews"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Sinker(f).function(f))
