"""Which integer values are positions, and the extents that they stay below: found from where they are used."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from relaxir.ir.expr import Bind, Expr, Function, If, Loop, MatchCast, OpCall, TupleExpr, TupleGetItem, Var
from relaxir.ir.rewrite import all_bindings, leaves
from relaxir.ir.types import TensorType, free_dims_of_type
from relaxir.sym import DimLike, free_dims, min_


def extents_of_positions(func: Function) -> Mapping[Var, DimLike]:
    """The parameters of a function that hold positions, with the least extent of what they index.

    From the uses backwards, through operators that only move or copy elements, branches and loops. An extent that is
    known only inside the function, and what arithmetic makes of a parameter, say nothing.
    """
    search = _Search()
    for binding in reversed(list(all_bindings(func.body))):  # what holds a body comes before its bindings
        if isinstance(binding, Bind | MatchCast):
            search.visit(binding.var, binding.value)
    known = {d for p in func.params for d in free_dims_of_type(p.type)}
    found = ((p, search.below.get(p)) for p in func.params)
    return {p: extent for p, extent in found if extent is not None and known.issuperset(free_dims(extent))}


class _Search:
    """``below`` has the extents found so far; ``source`` the first value of what a loop carries."""

    def __init__(self) -> None:
        self.below: dict[Var, DimLike] = {}
        self.source: dict[Var, Expr] = {}

    def visit(self, var: Var, value: Expr) -> None:
        """Pass on to the operands of a value what is known of its result."""
        if isinstance(value, Loop):
            self.source.update(zip(value.params[1:], value.init, strict=True))
        extent = self.below.get(var)
        if isinstance(value, OpCall):
            self.call(value, extent)
        elif extent is not None and isinstance(value, If):
            self.note((value.then.result, value.other.result), extent)
        elif extent is not None and isinstance(value, Var | TupleExpr | TupleGetItem):
            self.note((value,), extent)

    def call(self, call: OpCall, extent: DimLike | None) -> None:
        """Note positions among the operands, and where the result comes from if it holds some."""
        places = call.op.positions(call.args, call.attrs)
        for place, limit in places.items():
            self.note((call.args[place],), limit)
        if extent is not None and call.op.moves:
            self.note((a for n, a in enumerate(call.args) if n not in places), extent)

    def note(self, values: Iterable[Expr], extent: DimLike) -> None:
        """These values hold positions below ``extent``."""
        for leaf in (leaf for v in values for leaf in leaves(v)):
            if isinstance(leaf, Var) and not is_condition(leaf):
                self.below[leaf] = min_(self.below.get(leaf, extent), extent)
                if leaf in self.source:
                    self.note((self.source[leaf],), extent)


def is_condition(var: Var) -> bool:
    """Whether a value chooses between positions instead of holding some."""
    return isinstance(var.type, TensorType) and var.type.dtype == "bool"
