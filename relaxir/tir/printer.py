"""Printing of tensor programs as valid Python; `relaxir.text` reads it back (forms: docs/reference/language.md)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from types import MappingProxyType
from typing import Final

from relaxir.support.dtypes import short
from relaxir.sym import DimLike
from relaxir.tir.buffer import Buffer, Scope
from relaxir.tir.expr import Expr
from relaxir.tir.expr_printer import ExprPrinter
from relaxir.tir.func import PrimFunc
from relaxir.tir.host import (
    Alias,
    AllocFrame,
    AllocOutput,
    BindDim,
    BufferDef,
    CallHost,
    CallKernel,
    CallLibrary,
    ConstantData,
    Copy,
    Grow,
    InRoom,
    OpenFrame,
    SwapRooms,
    Together,
)
from relaxir.tir.literals import string_text, value_text
from relaxir.tir.names import RESERVED, DimNames, Names, dim_ranges, identifier, is_plain, tuple_text
from relaxir.tir.stmt import (
    Alloc,
    Assert,
    AxisKind,
    Block,
    Combine,
    For,
    If,
    Let,
    Prefetch,
    Seq,
    Stmt,
    Store,
    Switch,
    While,
)
from relaxir.tir.visit import free_dims_of, walk

INDENT: Final = "    "
AUGMENTED: Final[Mapping[Combine, str]] = MappingProxyType(
    {Combine.SUM: "+=", Combine.PROD: "*=", Combine.AND: "&=", Combine.OR: "|="}
)
"""Combines that Python has an augmented assignment for; the others print as ``T.combine``."""
PRIM_FUNC_KEYWORDS: Final = frozenset({"outputs", "workspaces", "symbol", "attrs"})
"""Keywords of ``@T.prim_func`` that are not attributes."""


def prim_func_text(name: str, func: PrimFunc, indent: int = 0, canonical: bool = False) -> str:
    """Text of a tensor program (kernel or host function), ``indent`` levels in.

    ``canonical`` replaces local names by numbered ones: programs equal up to renaming get one text.
    """
    names = Names(canonical)
    bound = [s.dim for s in walk(func.body) if isinstance(s, Switch | BindDim)]
    dims = DimNames(names, (*func.dims, *bound, *free_dims_of(func.params, func.body)))
    printer = StmtPrinter(names, dims)
    params = ", ".join(_param(p, printer, func.is_host or not canonical) for p in func.params)
    options = [f"outputs={func.outputs}"] if func.outputs != 1 else []
    options += [f"workspaces={func.workspaces}"] if func.workspaces else []
    shown = identifier(name)
    options += [f"symbol={string_text(name)}"] if shown != name else []
    options += attribute_options(func.attrs, PRIM_FUNC_KEYWORDS)
    lines = [
        f"@T.prim_func({', '.join(options)})" if options else "@T.prim_func",
        f"def {shown}({params}):",
        *(f"{INDENT}{dims.add(d)} = T.dim({dims.declaration(d)})" for d in func.dims),
        *printer.suite(func.body, 1),
    ]
    return "\n".join(f"{INDENT * indent}{line}" for line in lines)


def stmt_text(stmt: Stmt, indent: int = 0) -> str:
    """Text of a statement on its own; free variables and buffers appear by their hints."""
    names = Names()
    return "\n".join(StmtPrinter(names, DimNames(names)).suite(stmt, indent))


def expr_text(expr: Expr) -> str:
    """Text of an expression on its own."""
    names = Names()
    return ExprPrinter(names, DimNames(names)).text(expr)


def attribute_options(
    attrs: Mapping[str, object], keywords: Iterable[str], other: Callable[[object], str] | None = None
) -> list[str]:
    """Attributes of a function as keyword arguments, sorted; names that cannot be keywords go into ``attrs={...}``."""
    taken = frozenset(keywords)
    plain = sorted(k for k in attrs if k.isidentifier() and is_plain(k) and k not in taken)
    options = [f"{k}={value_text(attrs[k], other=other)}" for k in plain]
    rest = {k: attrs[k] for k in sorted(attrs) if k not in plain}
    return [*options, f"attrs={value_text(rest, other=other)}"] if rest else options


def quoted_dim(expr: DimLike, dims: DimNames) -> str:
    """A dimension in a signature, where symbols are not in scope yet."""
    return str(expr) if isinstance(expr, int) else f'"{dims.text(expr)}"'


def global_text(name: str) -> str:
    """Reference to a function of the module."""
    return f"Module.{name}" if name.isidentifier() and name not in RESERVED else f"Module[{string_text(name)}]"


def _param(buffer: Buffer, printer: StmtPrinter, keep: bool) -> str:
    shown = printer.names.add(buffer, buffer.name, keep)
    shape = tuple_text(quoted_dim(d, printer.dims) for d in buffer.shape)
    extra = f', scope="{buffer.scope.value}"' if buffer.scope is not Scope.GLOBAL else ""
    extra += f", name={string_text(buffer.name)}" if keep and shown != buffer.name else ""
    return f'{shown}: T.Buffer({shape}, "{short(buffer.dtype)}"{extra})'


class StmtPrinter(ExprPrinter):
    """Prints statements in the names of one function."""

    def suite(self, stmt: Stmt, depth: int) -> Iterator[str]:
        """The lines of a suite; names defined in it are free again after it."""
        with self.names.scope():
            lines = list(self._suite(stmt, depth))
        yield from lines or (f"{INDENT * depth}pass",)

    def _suite(self, stmt: Stmt, depth: int) -> Iterator[str]:
        pad = INDENT * depth
        rest = list(reversed(_flatten(stmt)))
        while rest:
            s = rest.pop()
            if not isinstance(s, Let | Alloc):
                yield from self._stmt(s, depth)
            elif rest:  # it ends before the suite does
                yield f"{pad}with T.scope():"
                yield from self.suite(s, depth + 1)
            else:
                yield pad + self._definition(s)
                rest = list(reversed(_flatten(s.body)))

    def _definition(self, s: Let | Alloc) -> str:
        if isinstance(s, Let):
            value = self.text(s.value)
            return f"{self.names.add(s.var, s.var.name)} = T.let({value})"
        shape = self._typed(s.buffer, Scope.GLOBAL)
        return f"{self.names.add(s.buffer, s.buffer.name)} = T.alloc({shape})"

    def _typed(self, b: Buffer, default: Scope) -> str:
        shape = tuple_text(self.dims.text(d) for d in b.shape)
        scope = f', scope="{b.scope.value}"' if b.scope is not default else ""
        return f'{shape}, "{short(b.dtype)}"{scope}'

    def _stmt(self, s: Stmt, depth: int) -> Iterator[str]:
        pad = INDENT * depth
        if isinstance(s, Store):
            yield pad + self._store(s)
        elif isinstance(s, For):
            with self.names.scope():
                head = f"T.{s.kind.value}({self.text(s.extent, 'int64')}"
                head += f", unroll={s.unroll}" if s.unroll != 1 else ""
                yield f"{pad}for {self.names.add(s.var, s.var.name)} in {head}):"
                yield from self.suite(s.body, depth + 1)
        elif isinstance(s, Block):
            yield from self._block(s, depth)
        elif isinstance(s, If):
            yield f"{pad}if {self.text(s.cond, 'bool')}:"
            yield from self.suite(s.then, depth + 1)
            if s.other is not None:
                yield f"{pad}else:"
                yield from self.suite(s.other, depth + 1)
        elif isinstance(s, While):
            yield f"{pad}while {self.text(s.cond, 'bool')}:"
            yield from self.suite(s.body, depth + 1)
        elif isinstance(s, Switch):
            name = self.dims.add(s.dim)
            extra = [f'name="{s.dim.name}"'] if name != s.dim.name else []
            options = ", ".join([f"range({s.low}, {s.high})", *extra, *dim_ranges(s.dim, s.low, s.high - 1)])
            yield f"{pad}with T.switch({self.text(s.value, 'int64')}, {options}) as {name}:"
            yield from self.suite(s.body, depth + 1)
        elif isinstance(s, Together):
            yield f"{pad}with T.together({'whole=True' if s.whole else ''}):"
            yield from self.suite(Seq(s.calls), depth + 1)
        else:
            yield pad + self._leaf(s)

    def _block(self, s: Block, depth: int) -> Iterator[str]:
        pad = INDENT * depth
        with self.names.scope():
            parts = [string_text(s.name)]
            for axis in s.axes:
                extent = self.dims.text(axis.extent)
                shown = extent if axis.kind is AxisKind.SPATIAL else f"T.reduce({extent})"
                parts.append(f"{self.names.add(axis.var, axis.var.name)}={shown}")
            yield f"{pad}with T.block({', '.join(parts)}):"
            if s.init is not None:
                yield f"{pad}{INDENT}with T.init():"
                yield from self.suite(s.init, depth + 2)
            yield from self.suite(s.body, depth + 1)

    def _store(self, s: Store) -> str:
        target, value = self.element(s.buffer, s.indices), self.text(s.value, s.buffer.dtype)
        if s.combine is None:
            return f"{target} = {value}"
        if sign := AUGMENTED.get(s.combine):
            return f"{target} {sign} {value}"
        return f'{target} = T.combine("{s.combine.value}", {target}, {value})'

    def _leaf(self, s: Stmt) -> str:
        if isinstance(s, Assert):
            args = "".join(f", {self.text(a, 'int64')}" for a in s.args)
            return f"T.require({self.text(s.cond, 'bool')}, {string_text(s.code)}, {string_text(s.message)}{args})"
        if isinstance(s, Prefetch):
            extra = (f", level={s.level}" if s.level != 1 else "") + (", write=True" if s.write else "")
            return f"T.prefetch({self.element(s.buffer, s.indices)}{extra})"
        return self._host(s)

    def _host(self, s: Stmt) -> str:
        match s:
            case BindDim(dim=dim, value=value):
                parts = [string_text(dim.name), self.text(value, "int64"), *dim_ranges(dim)]
                return f"{self.dims.add(dim)} = T.bind_dim({', '.join(parts)})"
            case OpenFrame():
                return f"T.open_frame({s.frame}, {self.dims.text(s.size)})"
            case Grow():
                return f"T.grow({s.room}, {self.dims.text(s.size)})"
            case SwapRooms():
                return f"T.swap_rooms({s.first}, {s.second})"
            case Copy():
                return f"T.copy({self.buffer(s.target)}, {self.buffer(s.source)})"
            case CallKernel():
                dims = f", dims={tuple_text(map(self.dims.text, s.dims))}" if s.dims else ""
                return f"T.call_kernel({global_text(s.callee)}, {tuple_text(map(self.buffer, s.args))}{dims})"
            case CallHost():
                args, outputs = (tuple_text(map(self.buffer, buffers)) for buffers in (s.args, s.outputs))
                return f"T.call_host({global_text(s.callee)}, {args}, {outputs})"
            case CallLibrary():
                return f"T.call_library({string_text(s.symbol)}, {tuple_text(map(self.buffer, s.args))})"
            case AllocFrame() | AllocOutput() | ConstantData() | Alias() | InRoom():
                return self._buffer_def(s)
        raise TypeError(f"no text form for statement {type(s).__name__}")

    def _buffer_def(self, s: BufferDef) -> str:
        """Buffers of host programs are visible until the function ends; a second definition names the same buffer."""
        return f"{self.names.get_global(s.buffer, s.buffer.name)} = {self._memory(s)}"

    def _memory(self, s: BufferDef) -> str:
        typed = self._typed(s.buffer, Scope.FRAME if isinstance(s, AllocFrame) else Scope.GLOBAL)
        match s:
            case AllocFrame():
                extra = f", frame={s.frame}" if s.frame else ""
                extra += "" if s.offset is None else f", offset={self.dims.text(s.offset)}"
                return f"T.alloc_frame({typed}{extra})"
            case AllocOutput():
                return f"T.alloc_output({s.index}, {typed})"
            case ConstantData():
                return f"T.constant({s.index}, {typed})"
        offset = f", offset={self.dims.text(s.offset)}" if s.offset != 0 else ""
        if isinstance(s, Alias):
            return f"T.alias({self.buffer(s.source)}, {typed}{offset})"
        return f"T.in_room({s.room}, {typed}{offset})"


def _flatten(stmt: Stmt) -> tuple[Stmt, ...]:
    if not isinstance(stmt, Seq):
        return (stmt,)
    return tuple(inner for s in stmt.stmts for inner in _flatten(s))
