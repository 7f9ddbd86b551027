"""Remove what computes nothing: aliases, identity views and casts, views of views; parts of known extents are slices.

Before:
    lv0 = R.reshape(x, shape=(n, 4))        # x is already (n, 4)
    lv1 = R.permute_dims(lv0, axes=(1, 0))
    lv2 = R.permute_dims(lv1, axes=(1, 0))
    lv3 = R.add(lv2, lv0)
After:
    lv3 = R.add(x, x)
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import ClassVar

from relaxir.ir.expr import Bind, Binding, Constant, Expr, OpCall, ShapeExpr, TupleExpr, TupleGetItem, Var
from relaxir.ir.module import IRModule
from relaxir.ir.rewrite import Rewriter, map_functions
from relaxir.ir.types import TensorType
from relaxir.ops import TABLE
from relaxir.ops.slicing import StridedSlice
from relaxir.passes.base import Pass, PassContext
from relaxir.sym import is_const

IDENTITY_IF_SAME_TYPE: frozenset[str] = frozenset(
    {"reshape", "astype", "broadcast_to", "expand_dims", "squeeze", "concat"}
)


class _Canonical(Rewriter):
    def __init__(self) -> None:
        super().__init__()
        self.source: dict[Var, OpCall] = {}

    def binding(self, binding: Binding) -> Iterable[Binding]:
        (new,) = super().binding(binding)
        if not isinstance(new, Bind) or new.defines:
            return (new,)
        value = self.simplify(new.value)
        if isinstance(value, Var | Constant | ShapeExpr | TupleExpr):
            self.env[new.var] = value
            return ()
        if isinstance(value, OpCall):
            self.source[new.var] = value
        return (new,) if value is new.value else (replace(new, value=value),)

    def simplify(self, expr: Expr) -> Expr:
        """One of this pass's equations, or the expression itself."""
        if isinstance(expr, TupleGetItem):
            return self._part(expr)
        if not isinstance(expr, OpCall) or not expr.args:
            return expr
        name, first = expr.op.name, expr.args[0]
        same_type = len(expr.args) == 1 and first.type == expr.type
        if name in IDENTITY_IF_SAME_TYPE and same_type:
            return first
        if name == "strided_slice" and same_type and is_whole(expr):
            return first
        if name == "permute_dims":
            return self._permute(expr)
        inner = self.source.get(first) if isinstance(first, Var) else None
        if name == "reshape" and inner is not None and inner.op.name == "reshape":
            return self.simplify(replace(expr, args=inner.args))  # only the last shape counts
        return expr

    def _part(self, expr: TupleGetItem) -> Expr:
        """A part of a split of known extents as a slice, which is fused with what reads it."""
        split = self.source.get(expr.value) if isinstance(expr.value, Var) else None
        if split is None or split.op.name != "split":
            return expr
        whole, fields = split.args[0].type, getattr(split.type, "fields", ())
        assert isinstance(whole, TensorType)
        axis = getattr(split.attrs, "axis", 0) % whole.rank
        sizes = [f.shape[axis] for f in fields]
        if not all(is_const(d) for d in (*sizes, whole.shape[axis])) or sum(map(int, sizes)) != whole.shape[axis]:
            return expr
        attrs = StridedSlice.Attrs((axis,), (sum(map(int, sizes[: expr.index])),), (int(sizes[expr.index]),))
        return OpCall(TABLE["strided_slice"], split.args, attrs, expr.type, split.span)

    def _permute(self, expr: OpCall) -> Expr:
        axes = axes_of(expr)
        first = expr.args[0]
        if axes == tuple(range(len(axes))):
            return first
        inner = self.source.get(first) if isinstance(first, Var) else None
        if inner is None or inner.op.name != "permute_dims":
            return expr
        before = axes_of(inner)
        merged = tuple(before[a] for a in axes)
        if merged == tuple(range(len(merged))):
            return inner.args[0]
        return replace(expr, args=inner.args, attrs=replace(expr.attrs, axes=merged))  # type: ignore[call-arg]  # attrs of permute_dims


def is_whole(expr: OpCall) -> bool:
    """Whether a ``strided_slice`` call of its operand's own type takes everything in order."""
    begin, step = getattr(expr.attrs, "begin", ()), getattr(expr.attrs, "step", ())
    return all(b == 0 for b in begin) and all(s == 1 for s in step)


def axes_of(expr: OpCall) -> tuple[int, ...]:
    """Permutation of a ``permute_dims`` call (default: reversed), normalised."""
    assert isinstance(expr.type, TensorType)
    rank = expr.type.rank
    axes = getattr(expr.attrs, "axes", None)
    return tuple(a % rank for a in axes) if axes else tuple(reversed(range(rank)))


@dataclass(frozen=True)
class Canonicalize(Pass):
    """Forward aliases and drop operations that change nothing."""

    name: ClassVar[str] = "Canonicalize"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One forward walk per function."""
        return map_functions(module, lambda f: _Canonical().function(f))
