"""Fix the sizes of broadcasts that can only be one of their sides.

Before:
    lv0: R.Tensor((broadcast(n, m), 4), "f32") = R.add(x, y)      # x: (n, 4), y: (m, 4)
    R.check(broadcast(n, m) * 4 == n * 4, "runtime-shape", "reshape: ...", ...)
    lv1: R.Tensor((n * 4,), "f32") = R.reshape(lv0, shape=(n * 4,))
After:
    R.check(broadcast(n, m) == n, "runtime-shape", "m must be n, or 1: ...", n, m)
    lv0: R.Tensor((broadcast(n, m), 4), "f32") = R.add(x, y)
    R.check(broadcast(n, m) * 4 == n * 4, "runtime-shape", "reshape: ...", ...)
    lv1: R.Tensor((n * 4,), "f32") = R.reshape(lv0, shape=(n * 4,))

A function returns only where all of its checks hold. So what follows from all of them together may be asked at the
first place where it is of use: the same calls fail, some of them earlier. `SimplifyDims` then writes the shorter size.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import ClassVar

from relaxir.ir.expr import Binding, BindingBlock, Body, Check, Function, MatchCast, ShapeExpr
from relaxir.ir.module import IRModule
from relaxir.ir.op import brief
from relaxir.ir.rewrite import expr_dims, function_dims, leaves, map_functions
from relaxir.ir.types import type_dims
from relaxir.passes.base import Pass, PassContext
from relaxir.support.errors import ConflictError
from relaxir.sym import DimLike, Facts, Proof, Relation, broadcast, broadcasts


def definitions(binding: Binding) -> Iterator[tuple[DimLike, DimLike]]:
    """The symbols that a binding gives to dimensions, with their values."""
    if isinstance(binding, MatchCast) and isinstance(binding.value, ShapeExpr):
        yield from zip(type_dims(binding.var.type), binding.value.dims, strict=True)


def everything_checked(func: Function) -> Facts | None:
    """What holds where the function returns; None where it never does."""
    relations = list(func.where)
    for b in func.body.bindings:
        if isinstance(b, Check):
            relations.append(b.relation)
        relations.extend(Relation("==", symbol, value) for symbol, value in definitions(b) if symbol != value)
    try:
        return Facts(function_dims(func), relations)
    except ConflictError:
        return None


class _Settler:
    """Walks the bindings of a function in order; ``asked`` are the sizes that were looked at."""

    def __init__(self, facts: Facts) -> None:
        self.facts = facts
        self.asked: set[DimLike] = set()

    def checks(self, binding: Binding) -> Iterator[Check]:
        """Checks to make before a binding, for the sizes that appear in it for the first time."""
        if isinstance(binding, Check):
            return
        for d in (
            *(x for e in (binding.value, *leaves(binding.value)) for x in expr_dims(e)),
            *type_dims(binding.var.type),
        ):
            for a, b in broadcasts(d):
                yield from self.settle(a, b)

    def settle(self, a: DimLike, b: DimLike) -> Iterator[Check]:
        """The check that makes one side the size of both, if the function needs it to hold."""
        both = broadcast(a, b)
        if both in self.asked:
            return
        self.asked.add(both)
        for side, other in ((a, b), (b, a)):
            if self.facts.prove_equal(both, side) is Proof.PROVED:
                text = f"{brief(other)} must be {brief(side)}, or 1: operators that follow need the size {brief(side)}"
                message = f"{text}; {brief(other)} is {{}}, {brief(side)} is {{}}"
                yield Check(Relation("==", both, side), "runtime-shape", message, (other, side))
                return

    def block(self, block: BindingBlock) -> BindingBlock:
        """One block with the checks in their places; the same one where there are none."""
        out: list[Binding] = []
        for b in block.bindings:
            out.extend((*self.checks(b), b))
        return block if len(out) == len(block.bindings) else replace(block, bindings=tuple(out))


def _has_broadcasts(dims: Iterable[DimLike]) -> bool:
    return any(True for d in dims for _ in broadcasts(d))


def settle(func: Function) -> Function:
    """One function; effects may not be passed over by a check, so impure ones stay as they are."""
    types = (d for b in func.body.bindings if not isinstance(b, Check) for d in type_dims(b.var.type))
    if not func.pure or not _has_broadcasts(types) or (facts := everything_checked(func)) is None:
        return func
    settler = _Settler(facts)
    blocks = tuple(settler.block(b) for b in func.body.blocks)
    same = all(a is b for a, b in zip(blocks, func.body.blocks, strict=True))
    return func if same else replace(func, body=Body(blocks, func.body.result))


@dataclass(frozen=True)
class SettleBroadcasts(Pass):
    """Ask early for what the checks of a function imply about sizes that are broadcast."""

    name: ClassVar[str] = "SettleBroadcasts"

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """One proof for each size that is a broadcast."""
        return map_functions(module, settle)
