"""Rebuilding graph functions binding by binding: the base of most graph passes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from relaxir.ir.attrs import attr_dims, map_attrs
from relaxir.ir.expr import (
    Bind,
    Binding,
    BindingBlock,
    Body,
    CallDPS,
    CallTIR,
    Check,
    Expr,
    FuncCall,
    Function,
    If,
    Loop,
    OpCall,
    ShapeExpr,
    TupleExpr,
    TupleGetItem,
    Var,
)
from relaxir.ir.module import IRModule
from relaxir.ir.parts import bodies_of, operands, owned_dims, with_operands
from relaxir.ir.types import map_type, type_dims
from relaxir.sym import Dim, DimLike, Relation, free_dims


class Rewriter:
    """Rebuilds a function; subclasses override `binding` (one binding to any number) and leave the rest.

    ``env`` maps variables of the old function to what stands for them in the new one (unmapped: themselves).
    """

    def __init__(self) -> None:
        self.env: dict[Var, Expr] = {}

    def function(self, func: Function) -> Function:
        """Rebuild a function; the same object when nothing changed."""
        body = self.body(func.body)
        return func if body is func.body else replace(func, body=body)

    def body(self, body: Body) -> Body:
        """Rebuild blocks and result."""
        blocks = tuple(self.block(b) for b in body.blocks)
        result = self.expr(body.result)
        kept = tuple(b for b in blocks if b.bindings)
        same = len(kept) == len(body.blocks) and all(a is b for a, b in zip(kept, body.blocks, strict=True))
        return body if same and result is body.result else Body(kept, result)

    def block(self, block: BindingBlock) -> BindingBlock:
        """Rebuild one block."""
        out: list[Binding] = []
        for b in block.bindings:
            out.extend(self.binding(b))
        bound = {b.var for b in out if not isinstance(b, Check)}
        outputs = tuple(dict.fromkeys(v for o in block.outputs for v in used_vars(self.env.get(o, o)) if v in bound))
        same = len(out) == len(block.bindings) and all(a is b for a, b in zip(out, block.bindings, strict=True))
        return block if same else BindingBlock(tuple(out), block.dataflow, outputs)

    def binding(self, binding: Binding) -> Iterable[Binding]:
        """Bindings that replace one binding; the default rebuilds its operands."""
        if isinstance(binding, Check):
            return (binding,)
        value = self.expr(binding.value)
        return (binding,) if value is binding.value else (replace(binding, value=value),)

    def expr(self, expr: Expr) -> Expr:
        """Rebuild an expression with operands replaced by `env`."""
        if isinstance(expr, Var):
            return self.env.get(expr, expr)
        if isinstance(expr, TupleExpr):
            items = self._all(expr.fields)
            return expr if items is expr.fields else TupleExpr(items)
        if isinstance(expr, TupleGetItem):
            value = self.expr(expr.value)
            if isinstance(value, TupleExpr):
                return value.fields[expr.index]
            return expr if value is expr.value else TupleGetItem(value, expr.index)
        if isinstance(expr, OpCall | FuncCall | CallTIR | CallDPS):
            args = self._all(expr.args)
            return expr if args is expr.args else replace(expr, args=args)
        if isinstance(expr, If):
            cond, then, other = self.expr(expr.cond), self.body(expr.then), self.body(expr.other)
            same = cond is expr.cond and then is expr.then and other is expr.other
            return expr if same else replace(expr, cond=cond, then=then, other=other)
        if isinstance(expr, Loop):
            return self.loop(expr)
        return expr

    def loop(self, expr: Loop) -> Loop:
        """Rebuild a loop: operands, then the body."""
        given = self._all(operands(expr))
        body = self.body(expr.body)
        if body is expr.body and all(a is b for a, b in zip(given, operands(expr), strict=True)):
            return expr
        return replace(with_operands(expr, given), body=body)

    def _all(self, items: tuple[Expr, ...]) -> tuple[Expr, ...]:
        new = tuple(self.expr(i) for i in items)
        return items if all(a is b for a, b in zip(new, items, strict=True)) else new


def map_functions(module: IRModule, fn: Callable[[Function], Function]) -> IRModule:
    """Apply ``fn`` to every graph function; the same module when none changed."""
    changed = {k: new for k, f in module.graph_functions().items() if (new := fn(f)) is not f}
    return module.with_functions(changed) if changed else module


def leaves(expr: Expr) -> Iterator[Expr]:
    """The non-tuple operands below an expression, nested tuples flattened."""
    parts = operands(expr)
    if not parts and not isinstance(expr, TupleExpr | OpCall | FuncCall | CallTIR | CallDPS | Loop):
        yield expr
    for p in parts:
        yield from leaves(p)


def used_vars(expr: Expr) -> Iterator[Var]:
    """Every variable an expression reads, those captured by its bodies included."""
    for leaf in leaves(expr):
        if isinstance(leaf, Var):
            yield leaf
    for body in bodies_of(expr):
        yield from used_in_body(body)


def used_in_body(body: Body) -> Iterator[Var]:
    """Every variable read in a body (its own variables included)."""
    for b in body.bindings:
        if not isinstance(b, Check):
            yield from used_vars(b.value)
    yield from used_vars(body.result)


def all_bindings(body: Body) -> Iterator[Binding]:
    """Bindings of a body and of the bodies inside it; those inside come first."""
    for b in body.bindings:
        if isinstance(b, Bind):
            for inner in bodies_of(b.value):
                yield from all_bindings(inner)
        yield b


def expr_dims(expr: Expr) -> tuple[DimLike, ...]:
    """Dimension expressions an expression carries itself (attributes, explicit dims, its type)."""
    own: tuple[DimLike, ...] = ()
    if isinstance(expr, OpCall):
        own = attr_dims(expr.attrs)
    elif isinstance(expr, CallTIR | ShapeExpr):
        own = expr.dims
    elif isinstance(expr, Loop):
        own = tuple(d for p in expr.params for d in type_dims(p.type))
    return own + type_dims(expr.type)


def called_programs(func: Function) -> list[CallTIR]:
    """Every call of a tensor program in a function, those inside branches and loops included."""
    values = (b.value for b in all_bindings(func.body) if isinstance(b, Bind))
    return [value for value in values if isinstance(value, CallTIR)]


def function_dims(func: Function) -> tuple[Dim, ...]:
    """Every symbol of a function, parameters first, in order of appearance."""
    found: dict[Dim, None] = {}

    def add(dims: Iterable[DimLike]) -> None:
        for d in dims:
            for s in free_dims(d):
                found.setdefault(s)

    for p in func.params:
        add(type_dims(p.type))
    for r in func.where:
        add((r.left, r.right))
    for b in all_bindings(func.body):
        if isinstance(b, Check):
            continue
        add(owned_dims(b))
        add(type_dims(b.var.type))
        for e in (b.value, *leaves(b.value)):
            add(expr_dims(e))
    return tuple(found)


class DimSubstituter(Rewriter):
    """Replaces dimension expressions everywhere in a function (types, attributes, explicit dims, checks)."""

    def __init__(self, fn: Callable[[DimLike], DimLike]) -> None:
        super().__init__()
        self.fn = fn

    def var(self, var: Var) -> Var:
        """The variable at its new type, one new object per old one."""
        known = self.env.get(var)
        if isinstance(known, Var):
            return known
        new = Var(var.name, map_type(var.type, self.fn))
        self.env[var] = new
        return new

    def binding(self, binding: Binding) -> Iterable[Binding]:
        """Rebuild with rewritten types."""
        if isinstance(binding, Check):
            r = binding.relation
            relation = Relation(r.op, self.fn(r.left), self.fn(r.right))
            return (replace(binding, relation=relation, args=tuple(self.fn(a) for a in binding.args)),)
        value = self.expr(binding.value)
        return (replace(binding, var=self.var(binding.var), value=value),)

    def expr(self, expr: Expr) -> Expr:
        """Rebuild with rewritten dims."""
        if isinstance(expr, ShapeExpr):
            return ShapeExpr(tuple(self.fn(d) for d in expr.dims))
        out = super().expr(expr)
        if isinstance(out, OpCall):
            return replace(out, attrs=map_attrs(out.attrs, self.fn), type=map_type(out.type, self.fn))
        if isinstance(out, CallTIR):
            return replace(out, dims=tuple(self.fn(d) for d in out.dims), type=map_type(out.type, self.fn))
        if isinstance(out, FuncCall | CallDPS | If | Loop):
            return replace(out, type=map_type(out.type, self.fn))
        return out

    def loop(self, expr: Loop) -> Loop:
        """Rebuild with rewritten types of the parameters."""
        params = tuple(self.var(p) for p in expr.params)
        return replace(super().loop(expr), params=params)
