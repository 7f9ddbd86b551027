"""Reading of modules from text, by Python's own parser; nothing is executed."""

from __future__ import annotations

import ast
import re
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final

from relaxir.ir.expr import Array
from relaxir.ir.files import archive_path
from relaxir.ir.module import AnyFunc, IRModule
from relaxir.ir.op import Op
from relaxir.support.errors import LoadError, ParseError
from relaxir.text.archive import PathLike, open_arrays, read_text
from relaxir.text.graph import read_function, read_header
from relaxir.text.graph_values import ModuleContext
from relaxir.text.source import Source, member
from relaxir.text.tensor import read_prim_func
from relaxir.text.values import read_attributes

VERSION: Final = "0.1"


def parse(
    text: str,
    ops: Mapping[str, Op[Any]],
    constants: Mapping[str, Array] | PathLike | None = None,
    file: str = "<string>",
) -> IRModule:
    """The module that ``text`` denotes.

    Types are inferred again and held against the written ones, so edited text cannot lie.

    Args:
        text: a module as ``print(module)`` gives it, or written by hand (types of bindings may then be left out).
        ops: operators by name.
        constants: arrays of large constants by key, or the path of the ``.npz`` file that has them.
        file: label of the text in messages.

    Raises:
        ParseError: where the text is not a module; span and help say where and what to write.
        InferError: where a call has no type.
        LoadError: for another version of the text form, or an unreadable ``constants`` file.
    """
    version = re.match(r"# relaxir (\d[\w.]*)", text)
    if version is not None and version[1] != VERSION:
        raise LoadError(f"the text is of version {version[1]}, this is relaxir {VERSION}", code="load-version")
    source = Source(text, file)
    try:
        with open_arrays(constants) as arrays:
            return _module(source, ops, arrays)
    except RecursionError:
        raise ParseError("the text is nested too deeply", help="bind parts to names of their own") from None


def _module(source: Source, ops: Mapping[str, Op[Any]], arrays: Mapping[str, Array]) -> IRModule:
    tree = source.tree()
    if len(tree.body) != 1 or not isinstance(tree.body[0], ast.ClassDef):
        where = tree.body[1] if len(tree.body) > 1 else tree
        raise source.error("expected one module: @I.module, then class Module:", where)
    cls = tree.body[0]
    if cls.name != "Module":
        raise source.error(f"a module is called `Module`, not `{cls.name}`", cls, help="write `class Module:`")
    attrs = _module_attrs(cls, source, arrays)
    defs = _definitions(cls, source)
    headers = {n: read_header(d, source) for n, d in defs.items() if _kind(d, source) == "function"}
    signatures = {n: h.type for n, h in headers.items() if h.type is not None}
    context = ModuleContext(ops, arrays, tuple(defs), signatures, frozenset(headers) - frozenset(signatures))
    functions: dict[str, AnyFunc] = {}
    for name, node in defs.items():
        header = headers.get(name)
        if header is None:
            functions[name] = read_prim_func(node, source, context.functions)
        else:
            functions[name] = read_function(header, source, context)
    return IRModule(functions, MappingProxyType(attrs))


def save(module: IRModule, path: PathLike) -> None:
    """Write a module's text, and its large constants into an ``.npz`` file beside it; `load` reads both.

    Raises:
        LoadError: when a file cannot be written.
    """
    module.save(path)


def load(path: PathLike, ops: Mapping[str, Op[Any]]) -> IRModule:
    """The module that `save` wrote: the text file, and the ``.npz`` file beside it where there is one.

    Raises:
        LoadError: when a file cannot be read; ParseError and InferError as `parse`.
    """
    beside = archive_path(path)
    return parse(read_text(path), ops, beside if beside.exists() else None, str(path))


def _module_attrs(cls: ast.ClassDef, source: Source, arrays: Mapping[str, Array]) -> dict[str, object]:
    if len(cls.decorator_list) != 1 or member(cls.decorator_list[0], "I") != "module":
        raise source.error("a module is decorated with @I.module", cls)
    decorator = cls.decorator_list[0]
    keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
    return read_attributes(keywords, source, (), arrays)[1]


def _definitions(cls: ast.ClassDef, source: Source) -> dict[str, ast.FunctionDef]:
    """Functions by their global names."""
    found: dict[str, ast.FunctionDef] = {}
    for s in cls.body:
        if isinstance(s, ast.Pass) or (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)):
            continue
        if not isinstance(s, ast.FunctionDef):
            raise source.error("a module holds functions", s)
        _kind(s, source)
        decorator = s.decorator_list[0]
        keywords = decorator.keywords if isinstance(decorator, ast.Call) else []
        symbol = next((k.value for k in keywords if k.arg == "symbol"), None)
        name = s.name if symbol is None else source.string(symbol)
        if name in found:
            raise source.error(f"function `{name}` is defined twice", s, "parse-redefined")
        found[name] = s
    return found


def _kind(node: ast.FunctionDef, source: Source) -> str:
    """``function`` or ``prim_func``."""
    if len(node.decorator_list) == 1:
        decorator = node.decorator_list[0]
        if member(decorator, "R") == "function":
            kind = "function"
        elif member(decorator, "T") == "prim_func":
            kind = "prim_func"
        else:
            raise source.error("expected @R.function or @T.prim_func", decorator)
        a = node.args
        if a.posonlyargs or a.vararg or a.kwonlyargs or a.kwarg or a.defaults:
            raise source.error("parameters are plain names with types", node)
        return kind
    raise source.error(f"function `{node.name}` needs one decorator: @R.function or @T.prim_func", node)
