"""Printing of modules and graph functions as valid Python; `relaxir.text` reads it back.

The text depends on the module alone, and printing what was read gives the same text again. Spans are not printed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import MISSING, Field, fields, is_dataclass
from typing import Any, Final

from relaxir.ir.attrs import attr_dims
from relaxir.ir.const_text import ConstantKeys, inline_text, is_inline, keyed_text
from relaxir.ir.expr import (
    Array,
    Bind,
    Binding,
    Body,
    CallDPS,
    CallTIR,
    Check,
    Constant,
    Expr,
    FuncCall,
    Function,
    If,
    Loop,
    MatchCast,
    OpCall,
    ShapeExpr,
    TupleExpr,
    TupleGetItem,
    Var,
)
from relaxir.ir.parts import bodies_of, operands, owned_dims
from relaxir.ir.types import AnyType, FuncType, PrimType, ShapeType, TensorType, TupleType, Type, free_dims_of_type
from relaxir.support.dtypes import short
from relaxir.sym import Dim, DimLike, Relation, free_dims
from relaxir.tir import PrimFunc
from relaxir.tir.literals import string_text, value_text
from relaxir.tir.names import DimNames, Names, identifier, is_plain, tuple_text
from relaxir.tir.printer import INDENT, attribute_options, global_text, prim_func_text, quoted_dim

HEADER: Final = "# relaxir 0.1"
"""First line of a module's text: the version of the text form."""
FUNCTION_KEYWORDS: Final = frozenset({"where", "pure", "symbol", "attrs"})
"""Keywords of ``@R.function`` that are not attributes."""
RESERVED_OPS: Final = frozenset(
    {
        "Any",
        "Func",
        "Prim",
        "Shape",
        "Tensor",
        "Tuple",
        "call_dps_packed",
        "call_tir",
        "check",
        "const",
        "dataflow",
        "dim",
    }
    | {"fresh_dim", "function", "loop", "loop_dim", "match_cast", "next", "op", "output", "shape"}
)
"""Names below ``R`` that are not operators."""


def module_text(
    functions: Mapping[str, object],
    attrs: Mapping[str, object],
    keys: ConstantKeys | None = None,
    canonical: bool = False,
) -> str:
    """Text of a module.

    ``keys`` collects the arrays of the large constants. ``canonical`` replaces local names by numbered ones.
    """
    keys = ConstantKeys() if keys is None else keys

    def constant(value: object) -> str:
        return constant_text(value, keys)

    options = ", ".join(attribute_options(attrs, (), constant))
    lines = [HEADER, f"@I.module({options})" if options else "@I.module", "class Module:"]
    for position, (name, func) in enumerate(functions.items()):
        if position:
            lines.append("")
        if isinstance(func, PrimFunc):
            lines.append(prim_func_text(name, func, 1, canonical))
        elif isinstance(func, Function):
            lines.append(function_text(name, func, 1, keys, canonical))
        else:
            raise TypeError(f"no text form for a module's {type(func).__name__}")
    return "\n".join(lines if functions else [*lines, f"{INDENT}pass"])


def function_text(
    name: str, func: Function, indent: int = 0, keys: ConstantKeys | None = None, canonical: bool = False
) -> str:
    """Text of a graph function, ``indent`` levels in."""
    printer = _GraphPrinter(func, ConstantKeys() if keys is None else keys, canonical)
    return "\n".join(f"{INDENT * indent}{line}" for line in printer.function(name, func))


def expr_text(expr: Expr) -> str:
    """Text of a graph-level value on its own (not of an `If`, `Loop` or `Body`, which are statements in text)."""
    return _GraphPrinter(None, ConstantKeys(), False).value(expr)


def module_arrays(functions: Mapping[str, object], attrs: Mapping[str, object]) -> dict[str, Array]:
    """Arrays of the large constants under the keys that the module's text uses."""
    keys = ConstantKeys()
    module_text(functions, attrs, keys)
    return keys.arrays


def constant_text(value: object, keys: ConstantKeys) -> str:
    """A constant: inline where it is small, else by its key."""
    if isinstance(value, Constant):
        return inline_text(value) if is_inline(value) else keyed_text(value, keys.key(value))
    raise TypeError(f"a value of type {type(value).__name__} has no text form")


def type_text(t: Type, dims: DimNames, quoted: bool = False) -> str:
    """A type; ``quoted`` writes symbolic dimensions as strings, as signatures need."""

    def shape(items: tuple[DimLike, ...]) -> str:
        return tuple_text(quoted_dim(d, dims) if quoted else dims.text(d) for d in items)

    if isinstance(t, AnyType):
        return "R.Any"
    if isinstance(t, PrimType):
        return f'R.Prim("{short(t.dtype)}")'
    if isinstance(t, ShapeType):
        return f"R.Shape({shape(t.dims)})"
    if isinstance(t, TensorType):
        return f'R.Tensor({shape(t.shape)}, "{short(t.dtype)}")'
    if isinstance(t, TupleType):
        return f"R.Tuple({', '.join(type_text(f, dims, quoted) for f in t.fields)})"
    if isinstance(t, FuncType):
        params = tuple_text(type_text(p, dims, True) for p in t.params)
        return f"R.Func({params}, {type_text(t.ret, dims, True)}{'' if t.pure else ', pure=False'})"
    raise TypeError(f"no text form for type {type(t).__name__}")


class _GraphPrinter:
    def __init__(self, func: Function | None, keys: ConstantKeys, canonical: bool) -> None:
        self.names = Names(canonical)
        self.keys = keys
        self.declared, owned = function_dims(func) if func is not None else ((), ())
        self.dims = DimNames(self.names, (*self.declared, *owned))

    def function(self, name: str, func: Function) -> Iterator[str]:
        options = [f"where={string_text(', '.join(map(self.relation, func.where)))}"] if func.where else []
        options += [] if func.pure else ["pure=False"]
        shown = identifier(name)
        options += [f"symbol={string_text(name)}"] if shown != name else []
        options += attribute_options(func.attrs, FUNCTION_KEYWORDS)
        yield f"@R.function({', '.join(options)})" if options else "@R.function"
        params = ", ".join(self._param(p) for p in func.params)
        yield f"def {shown}({params}) -> {type_text(func.ret, self.dims, True)}:"
        for d in self.declared:
            yield f"{INDENT}{self.dims.add(d)} = R.dim({self.dims.declaration(d)})"
        yield from self._body(func.body, 1)
        yield f"{INDENT}return {self.value(func.body.result)}"

    def relation(self, r: Relation) -> str:
        return f"{self.dims.text(r.left)} {r.op} {self.dims.text(r.right)}"

    def _param(self, var: Var) -> str:
        shown = self.names.add(var, var.name, keep=True)
        text = type_text(var.type, self.dims, True)
        if shown == var.name:
            return f"{shown}: {text}"
        if text.endswith(")"):
            return f"{shown}: {text[:-1]}{'' if text.endswith('()') else ', '}name={string_text(var.name)})"
        return f"{shown}: {text}(name={string_text(var.name)})"  # R.Any

    def _body(self, body: Body, depth: int) -> Iterator[str]:
        for block in body.blocks:
            inner = depth
            if block.dataflow:
                yield f"{INDENT * depth}with R.dataflow():"
                inner = depth + 1
            for b in block.bindings:
                yield from self._binding(b, inner)
            if block.dataflow:
                yield f"{INDENT * inner}R.output({', '.join(self.var(v) for v in block.outputs)})"

    def _binding(self, b: Binding, depth: int) -> Iterator[str]:
        pad = INDENT * depth
        if isinstance(b, Check):
            args = "".join(f", {self.dims.text(a)}" for a in b.args)
            yield f"{pad}R.check({self.relation(b.relation)}, {string_text(b.code)}, {string_text(b.message)}{args})"
            return
        for d in b.defines:
            yield f"{pad}{self.dims.add(d)} = R.fresh_dim({self.dims.declaration(d)})"
        type_ = type_text(b.var.type, self.dims)
        if isinstance(b, Bind) and isinstance(b.value, If):
            yield from self._if(b.value, b.var, type_, depth)
            return
        if isinstance(b, Bind) and isinstance(b.value, Loop):
            yield from self._loop(b.value, b.var, type_, depth)
            return
        value = self.value(b.value)
        if isinstance(b, MatchCast):
            value = f"R.match_cast({value}, {type_})"
        yield f"{pad}{self.names.add(b.var, b.var.name)}: {type_} = {value}"

    def _if(self, value: If, var: Var, type_: str, depth: int) -> Iterator[str]:
        pad = INDENT * depth
        test = self.value(value.cond)
        name = self.names.add(var, var.name)
        for head, body in ((f"if {test}:", value.then), ("else:", value.other)):
            yield f"{pad}{head}"
            with self.names.scope():
                yield from self._body(body, depth + 1)
                yield f"{pad}{INDENT}{name}: {type_} = {self.value(body.result)}"

    def _loop(self, value: Loop, var: Var, type_: str, depth: int) -> Iterator[str]:
        pad = INDENT * depth
        for d in value.dims:
            yield f"{pad}{self.dims.add(d)} = R.loop_dim({self.dims.declaration(d)})"
        options = [("trips", value.trips), ("start", value.start)]
        given = "".join(f", {key}={self.value(e)}" for key, e in options if e is not None)
        types = tuple_text(type_text(p.type, self.dims) for p in value.params[1:])
        init = tuple_text(map(self.value, value.init))
        name = self.names.add(var, var.name)
        with self.names.scope():
            params = tuple_text(self.names.add(p, p.name) for p in value.params)
            yield f"{pad}with R.loop({init}, {types}{given}) as {params}:"
            yield from self._body(value.body, depth + 1)
            assert isinstance(value.body.result, TupleExpr)
            results = ", ".join(map(self.value, value.body.result.fields))
            yield f"{pad}{INDENT}{name}: {type_} = R.next({results})"

    def var(self, v: Var) -> str:
        return self.names.get(v, v.name)

    def value(self, e: Expr) -> str:
        if isinstance(e, Var):
            return self.var(e)
        if isinstance(e, Constant):
            return constant_text(e, self.keys)
        if isinstance(e, ShapeExpr):
            return f"R.shape({tuple_text(map(self.dims.text, e.dims))})"
        if isinstance(e, TupleExpr):
            return tuple_text(map(self.value, e.fields))
        if isinstance(e, TupleGetItem):
            return f"{self.value(e.value)}[{e.index}]"
        if isinstance(e, OpCall):
            return self._op_call(e)
        if isinstance(e, FuncCall):
            return f"{global_text(e.callee)}({', '.join(map(self.value, e.args))})"
        if isinstance(e, CallTIR):
            dims = f", dims={tuple_text(map(self.dims.text, e.dims))}" if e.dims else ""
            args = tuple_text(map(self.value, e.args))
            return f"R.call_tir({global_text(e.callee)}, {args}, out={type_text(e.type, self.dims)}{dims})"
        if isinstance(e, CallDPS):
            pure = "" if e.pure else ", pure=False"
            args = tuple_text(map(self.value, e.args))
            return f"R.call_dps_packed({string_text(e.symbol)}, {args}, out={type_text(e.type, self.dims)}{pure})"
        raise TypeError(f"no text form for {type(e).__name__} inside an expression")

    def _op_call(self, e: OpCall) -> str:
        name = e.op.name
        shown = f"{name}_" if name in RESERVED_OPS or not is_plain(name) else name
        parts = [*map(self.value, e.args), *self._attrs(e.attrs)]
        return f"R.{shown}({', '.join(parts)})"

    def _attrs(self, attrs: object) -> Iterator[str]:
        for f in fields(attrs) if is_dataclass(attrs) else ():
            text = value_text(getattr(attrs, f.name), self.dims.text)
            if text != _default_text(f):
                yield f"{f.name}={text}"


def _default_text(f: Field[Any]) -> str | None:
    """Text of a field's default; None for a field without one."""
    if f.default is not MISSING:
        return value_text(f.default)
    return value_text(f.default_factory()) if f.default_factory is not MISSING else None


def function_dims(func: Function) -> tuple[tuple[Dim, ...], tuple[Dim, ...]]:
    """Symbols that a function's text declares at its top, and symbols owned by its bindings, in order of appearance."""
    owned = dict.fromkeys(d for b in _all_bindings(func.body) for d in owned_dims(b))
    seen: dict[Dim, None] = {}
    for p in func.params:
        seen.update(dict.fromkeys(free_dims_of_type(p.type)))
    for r in func.where:
        seen.update(dict.fromkeys((*free_dims(r.left), *free_dims(r.right))))
    seen.update(dict.fromkeys(d for d in free_dims_of_type(func.ret) if d not in owned))
    for expr in body_dims(func.body):
        seen.update(dict.fromkeys(d for d in free_dims(expr) if d not in owned))
    return tuple(seen), tuple(d for d in owned if d not in seen)


def _all_bindings(body: Body) -> Iterator[Binding]:
    for b in body.bindings:
        yield b
        if isinstance(b, Bind):
            for inner in bodies_of(b.value):
                yield from _all_bindings(inner)


def body_dims(body: Body) -> Iterator[DimLike]:
    """Every dimension expression written in a body, in order."""
    for b in _all_bindings(body):
        if isinstance(b, Check):
            yield from (b.relation.left, b.relation.right, *b.args)
            continue
        yield from free_dims_of_type(b.var.type)
        yield from _value_dims(b.value)
    yield from _value_dims(body.result)


def _value_dims(e: Expr) -> Iterator[DimLike]:
    if isinstance(e, ShapeExpr):
        yield from e.dims
    elif isinstance(e, TupleExpr):
        for f in e.fields:
            yield from _value_dims(f)
    elif isinstance(e, OpCall):
        for arg in e.args:
            yield from _value_dims(arg)
        yield from attr_dims(e.attrs)
    elif isinstance(e, FuncCall | CallTIR | CallDPS):
        for arg in e.args:
            yield from _value_dims(arg)
        yield from e.dims if isinstance(e, CallTIR) else ()
        yield from free_dims_of_type(e.type)
    elif isinstance(e, Loop):
        for operand in operands(e):
            yield from _value_dims(operand)
        yield from (d for p in e.params for d in free_dims_of_type(p.type))
