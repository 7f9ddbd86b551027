"""Group calls of tensor programs that will become one kernel.

Before:
    lv0 = R.call_tir(Module.matmul, (x, w), ...)
    lv1 = R.call_tir(Module.add, (lv0, b), ...)
    gv = R.call_tir(Module.gelu, (lv1,), ...)
After:
    gv = Module.fused_matmul_add_gelu(x, w, b, R.shape((n,)))     # a function with primitive=True

A producer joins the group of its consumers when all of them are in that one group: then nothing outside waits for it,
so moving it there can make no cycle. A cheap one whose result is larger than all that it reads (sums of all pairs of
rows), or a part of it in order, joins every group that reads it: computing it again costs less than storing it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import ClassVar

from relaxir.ir.expr import Bind, Binding, BindingBlock, Body, Check, Expr, FuncCall, Function, ShapeExpr, Var
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.parts import bodies_of, with_bodies
from relaxir.ir.rewrite import expr_dims, leaves, used_vars
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.passes.fusion_calls import BlockCalls, FusableCall
from relaxir.passes.fusion_groups import Group, Grouping
from relaxir.passes.fusion_rows import join_rows
from relaxir.support.spans import Span
from relaxir.sym import Dim, DimLike, free_dims
from relaxir.tir.visit import asserts_of


class _Fuser:
    """Rebuilds the bodies of a function with groups as calls of primitive functions."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.programs = module.prim_funcs()
        self.made: dict[str, AnyFunc | None] = {}

    def body(self, body: Body, outside: set[Var]) -> Body:
        """Fuse in every block; ``outside`` is what is read around the body."""
        needed = outside.union(used_vars(body.result))
        read = [_read_in(block) for block in body.blocks]
        blocks = (self.block(block, needed.union(*read[:n], *read[n + 1 :])) for n, block in enumerate(body.blocks))
        return Body(tuple(blocks), body.result)

    def block(self, block: BindingBlock, outside: set[Var]) -> BindingBlock:
        """Put the call of a group where its root stood, leave out its other members, and fuse inside of bodies."""
        grouping = Grouping(BlockCalls(block, outside, self.programs))
        join_rows(grouping)
        groups = [g for g in grouping.all() if len(g.members) > 1]
        at = {g.root.position: g for g in groups}
        inside = {m.position for g in groups for m in g.members}
        bindings = tuple(
            self.call(at[n]) if n in at else self.inner(b, outside)
            for n, b in enumerate(block.bindings)
            if n in at or n not in inside
        )
        return BindingBlock(bindings, block.dataflow, block.outputs)

    def inner(self, b: Binding, outside: set[Var]) -> Binding:
        """Fuse in the bodies of a binding's value."""
        if not isinstance(b, Bind) or not bodies_of(b.value):
            return b
        bodies = tuple(self.body(body, outside) for body in bodies_of(b.value))
        return replace(b, value=with_bodies(b.value, bodies))

    def call(self, group: Group) -> Bind:
        """A call of a new primitive function with the members of a group."""
        members = group.in_order
        args = _operands(members)
        sizes = ShapeExpr(tuple(sorted(_symbols(members), key=str)))
        result = group.root.var
        body = tuple(
            replace(m.binding, value=replace(m.value, args=tuple(args.get(a, a) for a in m.value.args)))
            for m in members
        )
        func = Function(
            (*args.values(), Var("sizes", sizes.type)),
            Body((BindingBlock(body, True, (result,)),), result),
            result.type,
            (),
            MappingProxyType({"primitive": True}),
        )
        stem = "fused_" + "_".join(str(m.program.attrs.get("op", m.value.callee)) for m in members)[:80]
        name = self.module.with_functions(self.made).unique_name(stem)
        self.made[name] = func
        return Bind(result, FuncCall(name, (*args, sizes), result.type, _place(members)))


def _read_in(block: BindingBlock) -> set[Var]:
    return {v for b in block.bindings if not isinstance(b, Check) for v in used_vars(b.value)}


def _operands(members: Sequence[FusableCall]) -> dict[Expr, Var]:
    """What the members read that none of them makes, and the parameter for each."""
    made = {m.var for m in members}
    read = dict.fromkeys(leaf for m in members for leaf in leaves(m.value) if leaf not in made)
    return {leaf: Var(f"a{n}", leaf.type) for n, leaf in enumerate(read)}


def _symbols(members: Sequence[FusableCall]) -> Iterable[Dim]:
    """Every symbol in the sizes and the operands of the members."""
    dims: list[DimLike] = []
    for m in members:
        dims += expr_dims(m.value)
        dims += (d for leaf in leaves(m.value) for d in expr_dims(leaf))
    return dict.fromkeys(s for d in dims for s in free_dims(d))


def _place(members: Sequence[FusableCall]) -> Span | None:
    """Where the call stands: an error names the first member that can fail, else it is the last one's place."""
    failing = (m for m in members if asserts_of(m.program.body))
    return next(failing, members[-1]).value.span


@dataclass(frozen=True)
class FuseOps(Pass):
    """Group producers with their consumers: elementwise chains, epilogues of contractions and reductions."""

    name: ClassVar[str] = "FuseOps"
    requires: ClassVar[Level] = Level.LEGAL

    def run(self, module: IRModule, ctx: PassContext) -> IRModule:
        """Group every block of every function."""
        fuser = _Fuser(module)
        changed: dict[str, AnyFunc | None] = {}
        for name, func in module.graph_functions().items():
            changed[name] = replace(func, body=fuser.body(func.body, set()))
        return module.with_functions({**changed, **fuser.made})
