"""Group calls of tensor programs that will become one kernel.

Before:
    lv0 = R.call_tir(Module.matmul, (x, w), ...)
    lv1 = R.call_tir(Module.add, (lv0, b), ...)
    gv = R.call_tir(Module.gelu, (lv1,), ...)
After:
    gv = Module.fused_matmul_add_gelu(x, w, b, R.shape((n,)))     # a function with primitive=True

A producer joins the group of its consumers when all of them are in that one group: then nothing outside waits for it,
so moving it there can make no cycle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import ClassVar, Final

from relaxir.ir.expr import (
    Bind,
    Binding,
    BindingBlock,
    Body,
    CallTIR,
    Check,
    Expr,
    FuncCall,
    Function,
    ShapeExpr,
    Var,
)
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.parts import bodies_of, with_bodies
from relaxir.ir.rewrite import expr_dims, leaves, used_vars
from relaxir.ir.types import TensorType
from relaxir.passes.base import Level, Pass, PassContext
from relaxir.sym import Dim, free_dims
from relaxir.tir import Assert, Block, Call, Load, PrimFunc
from relaxir.tir import Expr as TExpr
from relaxir.tir.classify import Pattern
from relaxir.tir.visit import all_exprs, stores_of, walk

INJECTIVE: Final = frozenset({Pattern.ELEMENTWISE, Pattern.BROADCAST, Pattern.INJECTIVE})
POINTWISE: Final = frozenset({Pattern.ELEMENTWISE, Pattern.BROADCAST})
MAX_MEMBERS: Final = 24  # larger kernels gain little and run out of registers


@dataclass(eq=False)
class _Group:
    """Members by position in the block, and the position of the consumer at which the kernel stands."""

    root: int
    members: list[int] = field(default_factory=list)
    heavy: bool = False  # holds a reduction or contraction


class _Grouping:
    """Decides the groups of one binding block."""

    def __init__(self, block: BindingBlock, outside: set[Var], programs: dict[str, PrimFunc]) -> None:
        self.bindings = block.bindings
        self.programs = programs
        self.group: dict[int, _Group] = {}
        self.users: dict[Var, list[int]] = {}
        for position, b in enumerate(block.bindings):
            if not isinstance(b, Check):
                for v in set(used_vars(b.value)):
                    self.users.setdefault(v, []).append(position)
        self.outside = outside | set(block.outputs)

    def decide(self) -> list[_Group]:
        """Groups of more than one member."""
        for position in reversed(range(len(self.bindings))):
            call = self.call_at(position)
            if call is None:
                continue
            group = self.home(position)
            if group is None:
                group = _Group(position, heavy=self.pattern(position) not in INJECTIVE)
            else:
                group.heavy = group.heavy or self.pattern(position) not in INJECTIVE
            group.members.append(position)
            self.group[position] = group
        unique = {id(g): g for g in self.group.values() if len(g.members) > 1}
        return list(unique.values())

    def call_at(self, position: int) -> CallTIR | None:
        b = self.bindings[position]
        if not isinstance(b, Bind) or not isinstance(b.value, CallTIR):
            return None
        pattern = self.pattern(position)
        single = isinstance(b.value.type, TensorType) or pattern not in INJECTIVE
        return b.value if pattern is not Pattern.OPAQUE and single and not b.defines else None

    def program(self, position: int) -> PrimFunc:
        b = self.bindings[position]
        assert isinstance(b, Bind) and isinstance(b.value, CallTIR)
        return self.programs[b.value.callee]

    def pattern(self, position: int) -> Pattern:
        return Pattern[str(self.program(position).attrs.get("pattern", "opaque")).upper()]

    def home(self, position: int) -> _Group | None:
        """The group a producer may join, or None."""
        b = self.bindings[position]
        assert isinstance(b, Bind) and isinstance(b.value, CallTIR)
        users = self.users.get(b.var, [])
        if b.var in self.outside or not users or not isinstance(b.var.type, TensorType):
            return None
        groups = {id(self.group[u]): self.group[u] for u in users if u in self.group}
        if len(groups) != 1 or any(u not in self.group for u in users):
            return None
        (group,) = groups.values()
        if len(group.members) >= MAX_MEMBERS:
            return None
        return group if self.fits(position, users, group) else None

    def fits(self, position: int, users: Sequence[int], group: _Group) -> bool:
        """Whether fusing pays and keeps the kernel in a form that `Schedule` knows."""
        pattern = self.pattern(position)
        b = self.bindings[position]
        assert isinstance(b, Bind)
        same_point = all(self.reads_at_own_point(u, b.var) for u in users)
        if pattern in INJECTIVE:
            if any(self.pattern(u) is Pattern.CONTRACTION for u in users):
                return False  # would be recomputed in the inner loop
            if any(self.pattern(u) is Pattern.REDUCTION for u in users):
                return cheap(self.program(position)) and pattern in POINTWISE
            return same_point or cheap(self.program(position))
        # a reduction or contraction keeps its own loops: what follows must be at the same point of the result
        return (
            not group.heavy
            and same_point
            and all(self.pattern(m) in POINTWISE for m in group.members)
            and all(same_shape(self.bindings[m], b) for m in group.members)
        )

    def reads_at_own_point(self, position: int, var: Var) -> bool:
        """Whether a consumer reads ``var`` only at the indices at which it stores its result."""
        func = self.program(position)
        call = self.call_at(position)
        assert call is not None
        tensors = [a for a in call.args if isinstance(a.type, TensorType)]
        params = {p for p, a in zip(func.inputs, tensors, strict=True) if a is var}
        stores = stores_of(func.body)
        if len(stores) != 1 or not isinstance(func.body, Block):
            return False
        point = stores[0].indices
        loads = [e for e in all_exprs(func.body) if isinstance(e, Load) and e.buffer in params]
        return all(e.indices == point for e in loads) and func.results[0].shape == next(iter(params)).shape


def same_shape(a: Binding, b: Binding) -> bool:
    """Whether two bindings give tensors of one shape."""
    assert not isinstance(a, Check) and not isinstance(b, Check)
    return (
        isinstance(a.var.type, TensorType)
        and isinstance(b.var.type, TensorType)
        and a.var.type.shape == b.var.type.shape
    )


def cheap(func: PrimFunc) -> bool:
    """Whether recomputing an element costs less than storing and loading it."""
    exprs: list[TExpr] = list(all_exprs(func.body))
    costly = sum(isinstance(e, Call) and e.fn.value not in CHEAP_INTRINSICS for e in exprs)
    return (
        costly == 0
        and sum(isinstance(e, Load) for e in exprs) <= 3
        and not any(isinstance(s, Block) and s.init is not None for s in walk(func.body))
    )


CHEAP_INTRINSICS: Final = frozenset(
    {"neg", "abs", "not", "sign", "floor", "ceil", "round", "trunc", "isnan", "isinf", "sqrt"}
)


class _Fuser:
    """Rebuilds the bodies of a function with groups as calls of primitive functions."""

    def __init__(self, module: IRModule) -> None:
        self.module = module
        self.programs = module.prim_funcs()
        self.made: dict[str, AnyFunc | None] = {}

    def body(self, body: Body, outside: set[Var]) -> Body:
        needed = outside | set(used_vars(body.result)) | {v for v in (body.result,) if isinstance(v, Var)}
        per_block = [
            {v for b in block.bindings if not isinstance(b, Check) for v in used_vars(b.value)} for block in body.blocks
        ]
        blocks = []
        for number, block in enumerate(body.blocks):
            elsewhere = (
                needed.union(*(s for n, s in enumerate(per_block) if n != number)) if len(per_block) > 1 else needed
            )
            blocks.append(self.block(block, elsewhere))
        return Body(tuple(blocks), body.result)

    def block(self, block: BindingBlock, outside: set[Var]) -> BindingBlock:
        captured = {v for b in block.bindings if isinstance(b, Bind) and bodies_of(b.value) for v in used_vars(b.value)}
        groups = _Grouping(block, outside | captured, self.programs).decide()
        at = {g.root: g for g in groups}
        inside = {m for g in groups for m in g.members}
        out: list[Binding] = []
        for position, b in enumerate(block.bindings):
            if position in at:
                out.append(self.emit(at[position], block.bindings))
            elif position not in inside:
                out.append(self.branches(b, outside | captured))
        return BindingBlock(tuple(out), block.dataflow, block.outputs)

    def branches(self, b: Binding, outside: set[Var]) -> Binding:
        if not isinstance(b, Bind) or not bodies_of(b.value):
            return b
        bodies = tuple(self.body(body, outside) for body in bodies_of(b.value))
        return replace(b, value=with_bodies(b.value, bodies))

    def emit(self, group: _Group, bindings: tuple[Binding, ...]) -> Bind:
        members = [bindings[m] for m in sorted(group.members)]
        root = bindings[group.root]
        assert isinstance(root, Bind)
        inner = {b.var for b in members if isinstance(b, Bind)}
        args: dict[Expr, Var] = {}
        body: list[Binding] = []
        dims: dict[Dim, None] = {}
        span, fails = None, False
        for b in members:
            assert isinstance(b, Bind) and isinstance(b.value, CallTIR)
            if not fails:  # an error names the first operator that has one, else the call is the last's
                fails = any(isinstance(s, Assert) for s in walk(self.programs[b.value.callee].body))
                span = b.value.span
            for leaf in leaves(b.value):
                if leaf not in inner and leaf not in args:
                    args[leaf] = Var(f"a{len(args)}", leaf.type)
            for d in (*expr_dims(b.value), *(d for leaf in leaves(b.value) for d in expr_dims(leaf))):
                for s in free_dims(d):
                    dims.setdefault(s)
            body.append(replace(b, value=replace(b.value, args=tuple(args.get(a, a) for a in b.value.args))))
        shape = ShapeExpr(tuple(sorted(dims, key=str)))
        params = (*args.values(), Var("sizes", shape.type))
        name = self.unique("fused_" + "_".join(self.short(b) for b in members)[:80])
        result = Body((BindingBlock(tuple(body), True, (root.var,)),), root.var)
        self.made[name] = Function(params, result, root.var.type, (), MappingProxyType({"primitive": True}))
        return Bind(root.var, FuncCall(name, (*args, shape), root.var.type, span))

    def short(self, b: Binding) -> str:
        assert isinstance(b, Bind) and isinstance(b.value, CallTIR)
        return str(self.programs[b.value.callee].attrs.get("op", b.value.callee))

    def unique(self, stem: str) -> str:
        return self.module.with_functions(self.made).unique_name(stem)


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
