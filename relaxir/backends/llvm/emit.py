"""Tensor programs to LLVM IR text.

A kernel is ``i32 @kernel_name(ptr ws, ptr p0, ..., i64 dim0, ...)``: its parameters, then its dimensions; it returns 0,
or non-zero after it recorded an error in the workspace. The text is meant for LLVM's code generator with at most SROA
before it: vectors, unrolling, code motion and common subexpressions are settled here.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace

from relaxir.backends.llvm.emit_analysis import has_parallel
from relaxir.backends.llvm.emit_parallel import Kernel, attributes
from relaxir.backends.llvm.emit_sites import SiteTable
from relaxir.backends.llvm.emit_value import Value
from relaxir.backends.llvm.emit_writer import ModuleText
from relaxir.backends.llvm.host_emit import Host, Surroundings
from relaxir.backends.llvm.host_query import Query, query_program
from relaxir.backends.llvm.ir_text import symbol_text
from relaxir.backends.llvm.symbols import host_symbol, kernel_symbol, query_symbol
from relaxir.backends.llvm.target import Target
from relaxir.tir.expr import Var, as_expr, const
from relaxir.tir.func import PrimFunc
from relaxir.tir.host import Together
from relaxir.tir.idle import without_idle_loops
from relaxir.tir.stmt import AxisKind, Block, For, ForKind, Seq, Stmt
from relaxir.tir.visit import last_loops, map_stmt, stores_of, walk


def emit_module(
    funcs: Mapping[str, PrimFunc],
    target: Target,
    sites: SiteTable,
    around: Surroundings | None = None,
) -> str:
    """Return an LLVM module with these programs.

    Args:
        funcs: programs by the name they are called by: kernels in loop form or in block form (which becomes plain
            serial loops), and host programs.
        target: what the code runs on.
        sites: collects the messages of assertions; share it between all modules of a library.
        around: what the programs meet outside of this module; all of it matters to host programs, to kernels only
            ``together`` (see `run_together`).

    Raises:
        InternalError: a program breaks a rule of loop form (an unrolled loop without constant extent, say).
    """
    around = around or Surroundings()
    module = ModuleText(target)
    for name, func in funcs.items():
        if func.is_host:
            module.define(symbol_text(host_symbol(name)), Host(module, sites, name, func, around).write())
            query = query_program(func)
            if query is not None:
                module.define(symbol_text(query_symbol(name)), Query(module, sites, name, query, around).write())
        else:
            write_kernel(module, name, func, sites, name in around.together)
    return module.text()


def run_together(hosts: Iterable[PrimFunc]) -> frozenset[str]:
    """The kernels that host programs run beside others: these take a group as their last argument, or null."""
    return frozenset(
        call.callee for host in hosts for s in walk(host.body) if isinstance(s, Together) for call in s.calls
    )


def write_kernel(module: ModuleText, name: str, func: PrimFunc, sites: SiteTable, together: bool = False) -> None:
    """Write one kernel into a module."""
    loops = map_stmt(func.body, on_stmt=lambda s: as_loops(s) if isinstance(s, Block) else s)
    func = replace(func, body=without_idle_loops(replace(func, body=loops)))
    kernel = Kernel(module, sites, name)
    kernel.workspace = Value("%ws", "ptr")
    if together:
        kernel.group = Value("%group", "ptr")
        if not has_parallel(func.body):  # all of it is one task
            func = replace(func, body=For(Var("task"), const(1), func.body, ForKind.PARALLEL))
        kernel.last = frozenset(last_loops(func.body))
    capture = "" if together else " nocapture"
    written = {s.buffer for s in stores_of(func.body)}
    donated = func.attrs.get("donated", ())
    parameters = [f"ptr{capture} %ws"]
    for i, buffer in enumerate(func.params):
        kernel.bases[buffer] = Value(f"%p{i}", "ptr")
        shared = isinstance(donated, tuple) and buffer.name in donated
        access = "" if buffer in written else " readonly"
        parameters.append(f"ptr{'' if shared else ' noalias'}{capture}{access} %p{i}")
    for i, dim in enumerate(func.dims):
        kernel.dims[dim] = Value(f"%d{i}", "i64", nonneg=dim.min >= 0)
        parameters.append(f"i64 %d{i}")
    if together:
        parameters.append("ptr %group")
    large = kernel.large_results(func)
    if large is None:
        kernel.emit(func.body)
    else:
        kernel.branches(large, lambda: kernel.emit_past(func), lambda: kernel.emit(func.body))
    kernel.w.line("ret i32 0")
    symbol = symbol_text(kernel_symbol(name))
    head = f"define i32 {symbol}({', '.join(parameters)}) {attributes(kernel)}"
    module.define(symbol, f"{head} {{\nentry:\n{kernel.w.body()}\n}}")


def as_loops(block: Block) -> Stmt:
    """Return a stage as plain nested loops: a correct form for any block."""
    body: Stmt = block.body
    for axis in reversed([a for a in block.axes if a.kind is AxisKind.REDUCE]):
        body = For(axis.var, as_expr(axis.extent), body)
    if block.init is not None:
        body = Seq((block.init, body))
    for axis in reversed([a for a in block.axes if a.kind is AxisKind.SPATIAL]):
        body = For(axis.var, as_expr(axis.extent), body)
    return body
