"""Reading of the statements of host programs."""

from __future__ import annotations

import ast
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from relaxir.sym import Dim
from relaxir.text.source import Source
from relaxir.text.types import RANGES
from relaxir.tir import (
    Alias,
    AllocFrame,
    AllocOutput,
    BindDim,
    Buffer,
    CallHost,
    CallKernel,
    CallLibrary,
    ConstantData,
    Copy,
    Grow,
    InRoom,
    OpenFrame,
    Scope,
    Stmt,
    SwapRooms,
)

if TYPE_CHECKING:
    from relaxir.text.tensor import TensorReader

DEFINITIONS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = MappingProxyType(
    {
        "bind_dim": (("name", "value"), RANGES),
        "alloc_frame": (("shape", "dtype"), ("scope", "frame", "offset")),
        "alloc_output": (("index", "shape", "dtype"), ("scope",)),
        "constant": (("index", "shape", "dtype"), ("scope",)),
        "in_room": (("room", "shape", "dtype"), ("scope", "offset")),
        "alias": (("source", "shape", "dtype"), ("scope", "offset")),
    }
)
"""Forms ``name = T.<key>(...)`` with their required and optional arguments."""

EFFECTS: Final[Mapping[str, tuple[tuple[str, ...], tuple[str, ...]]]] = MappingProxyType(
    {
        "open_frame": (("frame", "size"), ()),
        "grow": (("room", "size"), ()),
        "swap_rooms": (("first", "second"), ()),
        "copy": (("target", "source"), ()),
        "call_kernel": (("callee", "args"), ("dims",)),
        "call_host": (("callee", "args", "outputs"), ()),
        "call_library": (("symbol", "args"), ()),
    }
)
"""Forms ``T.<key>(...)`` with their required and optional arguments."""


class HostReader:
    """Reads host statements with the names and expressions of a `TensorReader`."""

    def __init__(self, reader: TensorReader, functions: Sequence[str]) -> None:
        self._reader = reader
        self._functions = functions

    def definition(self, kind: str, target: ast.Name, call: ast.Call) -> Stmt:
        """``name = T.alloc_frame(...)`` and its like; the name is visible until the function ends."""
        r, source = self._reader, self._reader.source
        args = source.arguments(call, *DEFINITIONS[kind])
        if kind == "bind_dim":
            return BindDim(r.scope.find(target.id, Dim, "dimension", target), r.expr(args["value"], "int64"))
        default = Scope.FRAME if kind == "alloc_frame" else Scope.GLOBAL
        buffer = self._define(target, r.make_buffer(target.id, args, default))
        if kind == "alloc_frame":
            frame = source.integer(args["frame"]) if "frame" in args else 0
            return AllocFrame(buffer, frame, r.dim(args["offset"]) if "offset" in args else None)
        if kind == "alias":
            return Alias(buffer, r.buffer(args["source"]), r.dim(args["offset"]) if "offset" in args else 0)
        if kind == "in_room":
            return InRoom(buffer, source.integer(args["room"]), r.dim(args["offset"]) if "offset" in args else 0)
        index = source.integer(args["index"])
        return AllocOutput(buffer, index) if kind == "alloc_output" else ConstantData(buffer, index)

    def _define(self, target: ast.Name, buffer: Buffer) -> Buffer:
        """A second definition of the same type (in another branch, or of a parameter) means the same buffer."""
        old = self._reader.scope.get(target.id)
        if isinstance(old, Buffer) and (old.shape, old.dtype, old.scope) == (buffer.shape, buffer.dtype, buffer.scope):
            return old
        self._reader.scope.define(target.id, buffer, target, outermost=True)
        return buffer

    def effect(self, kind: str, call: ast.Call) -> Stmt:
        """``T.call_kernel(...)`` and its like."""
        r, source = self._reader, self._reader.source
        args = source.arguments(call, *EFFECTS[kind])
        if kind == "open_frame":
            return OpenFrame(source.integer(args["frame"]), r.dim(args["size"]))
        if kind == "grow":
            return Grow(source.integer(args["room"]), r.dim(args["size"]))
        if kind == "swap_rooms":
            return SwapRooms(source.integer(args["first"]), source.integer(args["second"]))
        if kind == "copy":
            return Copy(r.buffer(args["target"]), r.buffer(args["source"]))
        if kind == "call_host":
            callee = read_global(args["callee"], self._functions, source)
            return CallHost(callee, r.buffers(args["args"]), r.buffers(args["outputs"]), source.span(call))
        buffers = r.buffers(args["args"])
        if kind == "call_library":
            return CallLibrary(source.string(args["symbol"]), buffers, source.span(call))
        dims = r.shape(args["dims"]) if "dims" in args else ()
        return CallKernel(read_global(args["callee"], self._functions, source), buffers, dims, source.span(call))


def read_global(node: ast.expr, functions: Sequence[str], source: Source) -> str:
    """``Module.f`` or ``Module["f"]``: the name of a function of the module."""
    name = ""
    if isinstance(node, ast.Attribute) and is_module(node.value):
        name = node.attr
    elif isinstance(node, ast.Subscript) and is_module(node.value):
        name = source.string(node.slice)
    else:
        raise source.error("expected a function of the module, such as Module.f", node)
    if name not in functions:
        raise source.unknown("function", name, functions, node)
    return name


def is_module(node: ast.AST) -> bool:
    """Whether a node is the name of the module being read."""
    return isinstance(node, ast.Name) and node.id == "Module"
