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
from relaxir.schedule import block_rows
from relaxir.support.dtypes import info
from relaxir.sym import Dim, free_dims, product
from relaxir.tir import Block, Buffer, Call, Load, PrimFunc, Store
from relaxir.tir import Expr as TExpr
from relaxir.tir import Var as TVar
from relaxir.tir.access import is_identity, variables_of
from relaxir.tir.classify import Pattern, stages
from relaxir.tir.visit import all_exprs, asserts_of, stores_of, walk

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
        self.groups: dict[int, tuple[_Group, ...]] = {}
        self.factors: set[int] = set()  # what contractions compute element by element, or is computed for that
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
            homes = self.homes(position) or (_Group(position),)
            for group in homes:
                group.heavy = group.heavy or self.pattern(position) not in INJECTIVE
                group.members.append(position)
            self.groups[position] = homes
        self.join_rows()
        unique = {id(g): g for homes in self.groups.values() for g in homes if len(g.members) > 1}
        return list(unique.values())

    def join_rows(self) -> None:
        """Contractions, with what follows them point by point, join the row operator that alone reads the result."""
        for group in dict.fromkeys(g for homes in self.groups.values() for g in homes):
            rows = self.rows_behind(group)
            if rows is not None:
                rows.members.extend(m for m in group.members if m not in rows.members)
                for m in group.members:
                    self.groups[m] = tuple(dict.fromkeys(rows if g is group else g for g in self.groups[m]))

    def rows_behind(self, group: _Group) -> _Group | None:
        """The group of the row operator that a contraction's group may join, or None."""
        root = self.bindings[group.root]
        assert isinstance(root, Bind)
        homes = {g for u in self.users.get(root.var, ()) for g in self.groups.get(u, ())}
        type_ = root.var.type
        if len(homes) != 1 or root.var in self.outside or not isinstance(type_, TensorType) or type_.rank < 2:
            return None
        (rows,) = homes
        heavy = [self.pattern(m) for g in (group, rows) for m in g.members if self.pattern(m) not in INJECTIVE]
        one_row = product(type_.shape[:-1]) == 1
        if heavy != [Pattern.CONTRACTION, Pattern.REDUCTION] or len(group.members) + len(rows.members) > MAX_MEMBERS:
            return None
        fits = not one_row and block_rows(type_.shape[-1], info(type_.dtype).bytes) is not None
        return rows if fits and self.reads_rows(root, rows) else None

    def reads_rows(self, maker: Bind, rows: _Group) -> bool:
        """Whether a group reads a value point by point up to its reduction, and that one row by row."""
        for user in self.users.get(maker.var, ()):
            if user not in rows.members:
                return False
            if self.pattern(user) is Pattern.REDUCTION:
                if not self.reads_own_rows(user, maker.var):
                    return False
                continue
            call = self.bindings[user]
            assert isinstance(call, Bind)
            plain = self.pattern(user) in POINTWISE and self.reads_at_own_point(user, maker.var)
            if not plain or not same_shape(call, maker):
                return False
            if user != rows.root and not self.reads_rows(call, rows):
                return False
        return True

    def reads_own_rows(self, position: int, var: Var) -> bool:
        """Whether every stage of a program reads ``var`` only in the row that it works on."""
        params = self.params_of(position, var)
        for stage in stages(self.program(position).body):
            axes = tuple(a.var for a in stage.axes) if isinstance(stage, Block) else ()
            for load in all_exprs(stage):
                if isinstance(load, Load) and load.buffer in params:
                    *row, last = load.indices
                    if not isinstance(last, TVar) or not is_identity(tuple(row), axes[: len(row)]):
                        return False
        return True

    def params_of(self, position: int, var: Var) -> set[Buffer]:
        """Parameters of a program for which a call passes ``var``."""
        call = self.call_at(position)
        assert call is not None
        tensors = [a for a in call.args if isinstance(a.type, TensorType)]
        return {p for p, a in zip(self.program(position).inputs, tensors, strict=True) if a is var}

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

    def homes(self, position: int) -> tuple[_Group, ...]:
        """The groups a producer joins: that of all its consumers, or each of theirs; none if it stays outside."""
        b = self.bindings[position]
        assert isinstance(b, Bind) and isinstance(b.value, CallTIR)
        users = self.users.get(b.var, [])
        if b.var in self.outside or not users or not isinstance(b.var.type, TensorType):
            return ()
        if any(u not in self.groups for u in users):
            return ()
        readers = {id(g): (g, [r for r in users if g in self.groups[r]]) for u in users for g in self.groups[u]}
        if len(readers) > 1 and not (self.pattern(position) in POINTWISE and repeatable(self.program(position))):
            return ()
        if not all(len(g.members) < MAX_MEMBERS and self.fits(position, own, g) for g, own in readers.values()):
            return ()
        if any(self.pattern(u) is Pattern.CONTRACTION or u in self.factors for u in users):
            self.factors.add(position)
        return tuple(g for g, _ in readers.values())

    def fits(self, position: int, users: Sequence[int], group: _Group) -> bool:
        """Whether fusing pays and keeps the kernel in a form that `Schedule` knows."""
        pattern = self.pattern(position)
        b = self.bindings[position]
        assert isinstance(b, Bind)
        same_point = all(self.reads_at_own_point(u, b.var) for u in users)
        if pattern in INJECTIVE:
            if group.heavy and single(b):
                return False  # made once, not at every step of the group's loops
            if any(u in self.factors for u in users) and pattern not in POINTWISE:
                return False  # products want their factors as they lie
            products = [u for u in users if self.pattern(u) is Pattern.CONTRACTION]
            if products:  # what they read several times would be recomputed in the inner loop
                return pattern in POINTWISE and all(self.reads_once(u, b.var) for u in products)
            if any(self.pattern(u) is Pattern.REDUCTION for u in users):
                return cheap(self.program(position)) and pattern in POINTWISE
            return same_point or cheap(self.program(position))
        # a reduction or contraction keeps its own loops: what follows must be at the same point of the result
        return (
            not group.heavy
            and same_point
            and all(self.pattern(m) in POINTWISE for m in group.members)
            and self.follows(b, group)
        )

    def follows(self, b: Bind, group: _Group) -> bool:
        """Whether what a group makes of a value has the value's shape; all else in it is cheap, and will be inlined."""
        made = {b.var}
        for m in sorted(group.members):
            member = self.bindings[m]
            assert isinstance(member, Bind) and isinstance(member.value, CallTIR)
            if made & set(used_vars(member.value)):
                made.add(member.var)
                if not same_shape(member, b):
                    return False
            elif not cheap(self.program(m)):
                return False
        return True

    def reads_at_own_point(self, position: int, var: Var) -> bool:
        """Whether a consumer reads ``var`` only at the indices at which it stores its result."""
        func = self.program(position)
        stores = stores_of(func.body)
        if len(stores) != 1 or not isinstance(func.body, Block):
            return False
        loads = self.loads(position, var)
        same = all(e.indices == stores[0].indices for e in loads)
        return same and all(e.buffer.shape == func.results[0].shape for e in loads)

    def reads_once(self, position: int, var: Var) -> bool:
        """Whether a consumer of one stage reads each element of ``var`` at one of its points: no axis is left out."""
        body = self.program(position).body
        loads = self.loads(position, var)
        return isinstance(body, Block) and len(loads) == 1 and not missing(body, loads[0])

    def loads(self, position: int, var: Var) -> list[Load]:
        """Where a consumer reads ``var``."""
        params = self.params_of(position, var)
        return [e for e in all_exprs(self.program(position).body) if isinstance(e, Load) and e.buffer in params]


def same_shape(a: Binding, b: Binding) -> bool:
    """Whether two bindings give tensors of one shape."""
    assert not isinstance(a, Check) and not isinstance(b, Check)
    return (
        isinstance(a.var.type, TensorType)
        and isinstance(b.var.type, TensorType)
        and a.var.type.shape == b.var.type.shape
    )


def single(b: Bind) -> bool:
    """Whether a binding gives one element."""
    return isinstance(b.var.type, TensorType) and all(d == 1 for d in b.var.type.shape)


def missing(block: Block, load: Load) -> set[TVar]:
    """Axes of more than one point along which a load stays where it is."""
    return {a.var for a in block.axes if a.extent != 1} - {v for i in load.indices for v in variables_of(i)}


def repeatable(func: PrimFunc) -> bool:
    """Whether a cheap program had better be run by all its readers.

    That is one that reads tensors only that lack a whole axis of its result, or only moves what it reads.
    """
    body = func.body
    if not isinstance(body, Block) or not isinstance(body.body, Store) or not cheap(func):
        return False
    loads = [e for e in all_exprs(body) if isinstance(e, Load)]
    return isinstance(body.body.value, Load) or (bool(loads) and all(missing(body, e) for e in loads))


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
                fails = bool(asserts_of(self.programs[b.value.callee].body))
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
