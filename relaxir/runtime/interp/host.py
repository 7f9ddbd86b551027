"""The interpreter of host programs: dims bound from arguments, frames, kernel and library calls, results."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from relaxir.ir.module import IRModule
from relaxir.runtime.interp.graph import NO_LIBRARIES, Libraries
from relaxir.runtime.interp.memory import Memory, allocate, of_array
from relaxir.runtime.interp.program import Machine, run_prim_func
from relaxir.support.dtypes import info
from relaxir.support.errors import ArgumentError, InternalError, RuntimeFailure, RuntimeShapeError, UnsupportedError
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
    PrimFunc,
    Stmt,
    SwapRooms,
    Together,
)
from relaxir.tir.idle import is_idle
from relaxir.tir.visit import walk

Array = NDArray[Any]


class _HostMachine(Machine):
    """One call of a host program."""

    def __init__(
        self,
        module: IRModule,
        func: PrimFunc,
        inputs: Mapping[Buffer, Array],
        constants: Sequence[Array],
        libraries: Libraries,
        given: Sequence[Array],
    ) -> None:
        super().__init__(func, (), {})
        self.arrays.update(inputs)
        self.module = module
        self.constants = constants
        self.libraries = libraries
        self.given = given
        self.frames: dict[int, Array] = {}
        self.outside: dict[Buffer, str] = {}
        self.results: dict[int, Memory] = {}
        self.rooms: dict[int, Array] = {}

    def other(self, stmt: Stmt) -> None:
        match stmt:
            case BindDim():
                self._bind_dim(stmt)
            case OpenFrame():
                self._open(stmt)
            case AllocFrame():
                self._place(stmt)
            case AllocOutput():
                self._output(stmt)
            case Alias():
                self._alias(stmt)
            case Grow():
                self._grow(stmt)
            case InRoom():
                self._in_room(stmt)
            case SwapRooms():
                a, b = (self.rooms.get(n, np.empty(0, np.uint8)) for n in (stmt.first, stmt.second))
                self.rooms[stmt.first], self.rooms[stmt.second] = b, a
            case Copy():
                target, source = self.memory(stmt.target).flat, self.memory(stmt.source).flat
                if target.nbytes != source.nbytes:
                    raise InternalError(f"copy of {source.nbytes} bytes to {target.nbytes}")
                target.view(np.uint8)[...] = source.view(np.uint8)
            case CallKernel():
                self._kernel(stmt)
            case Together():
                self._together(stmt)
            case CallHost():
                args = tuple(self.memory(b).array() for b in stmt.args)
                given = tuple(self.memory(b).array() for b in stmt.outputs)
                run_host(self.module, stmt.callee, args, self.constants, self.libraries, given)
            case CallLibrary():
                self._library(stmt)
            case ConstantData():
                self.memories[stmt.buffer] = self._constant(stmt)
            case _:
                super().other(stmt)

    def _shape(self, buffer: Buffer) -> tuple[int, ...]:
        return tuple(self.size(d) for d in buffer.shape)

    def _bind_dim(self, stmt: BindDim) -> None:
        value, least = self.number(stmt.value), stmt.dim.min
        if value < 0 <= least:  # what was read from data, or solved for
            raise RuntimeShapeError(f"{stmt.dim.name} is {value}, but must be at least {least}")
        self.set_dim(stmt.dim.name, value)

    def _open(self, stmt: OpenFrame) -> None:
        size = self.size(stmt.size)
        if size < 0:
            raise InternalError(f"frame {stmt.frame} has the negative size {size}")
        # all bits set: floats that nobody stored are NaN
        self.frames[stmt.frame] = np.full(size, 0xFF, np.uint8)

    def _place(self, stmt: AllocFrame) -> None:
        """Memory of a temporary; none if it lies outside its frame, as scratch memory that no kernel touches may."""
        self.memories.pop(stmt.buffer, None)
        shape, dtype = self._shape(stmt.buffer), info(stmt.buffer.dtype).numpy
        if stmt.offset is None:
            self.memories[stmt.buffer] = allocate(stmt.buffer.dtype, shape)
            return
        if stmt.frame not in self.frames:
            raise InternalError(f"buffer `{stmt.buffer.name}` is placed in frame {stmt.frame}, which is not open")
        frame = self.frames[stmt.frame]
        start = self.size(stmt.offset)
        stop = start + math.prod(shape) * dtype.itemsize
        if start < 0 or start % dtype.itemsize:
            raise InternalError(f"buffer `{stmt.buffer.name}` is placed at byte {start}")
        if stop <= frame.size:
            self.memories[stmt.buffer] = Memory(frame[start:stop].view(dtype), shape)
        else:
            self.outside[stmt.buffer] = f"at bytes {start} to {stop} lies outside its frame of {frame.size}"

    def memory(self, buffer: Buffer) -> Memory:
        """Memory of a buffer that is used.

        Raises:
            InternalError: the buffer lies outside its frame, or it is used outside its allocation.
        """
        if buffer not in self.memories and buffer in self.outside:
            raise InternalError(f"buffer `{buffer.name}` {self.outside[buffer]}")
        return super().memory(buffer)

    def _output(self, stmt: AllocOutput) -> None:
        shape = self._shape(stmt.buffer)
        memory = allocate(stmt.buffer.dtype, shape)
        if stmt.index < len(self.given):
            array = self.given[stmt.index]
            if array.size != memory.flat.size:
                raise RuntimeShapeError(f"result {stmt.index} has shape {shape}, the array given for it {array.shape}")
            memory = of_array(array, stmt.buffer.dtype, shape, f"result {stmt.index}")
        self.memories[stmt.buffer] = self.results[stmt.index] = memory

    def _alias(self, stmt: Alias) -> None:
        shape, source = self._shape(stmt.buffer), self.memory(stmt.source)
        start = self.size(stmt.offset)
        stop = start + math.prod(shape)
        if start < 0 or stop > source.flat.size:
            raise InternalError(f"alias `{stmt.buffer.name}` reaches outside `{stmt.source.name}`")
        self.memories[stmt.buffer] = Memory(source.flat[start:stop].view(info(stmt.buffer.dtype).numpy), shape)

    def _grow(self, stmt: Grow) -> None:
        size, old = self.size(stmt.size), self.rooms.get(stmt.room, np.empty(0, np.uint8))
        if size < 0:
            raise InternalError(f"room {stmt.room} would have the negative size {size}")
        if size > old.size:
            new = np.full(max(size, 2 * old.size), 0xFF, np.uint8)
            new[: old.size] = old
            self.rooms[stmt.room] = new

    def _in_room(self, stmt: InRoom) -> None:
        shape, kind = self._shape(stmt.buffer), info(stmt.buffer.dtype).numpy
        room = self.rooms.get(stmt.room, np.empty(0, np.uint8))
        start = self.size(stmt.offset) * kind.itemsize
        stop = start + math.prod(shape) * kind.itemsize
        if start < 0 or stop > room.size:
            raise InternalError(f"buffer `{stmt.buffer.name}` at bytes {start} to {stop} lies outside its room")
        self.memories[stmt.buffer] = Memory(room[start:stop].view(kind), shape)

    def _kernel(self, stmt: CallKernel) -> None:
        func = self.module.functions.get(stmt.callee)
        if not isinstance(func, PrimFunc):
            raise InternalError(f"the module has no tensor program `{stmt.callee}`")
        if len(func.dims) != len(stmt.dims):
            raise InternalError(f"`{stmt.callee}` takes {len(func.dims)} dims and was given {len(stmt.dims)}")
        dims = {d.name: self.size(value) for d, value in zip(func.dims, stmt.dims, strict=True)}
        if not is_idle(func, dims):
            run_prim_func(func, tuple(self.memory(b).array() for b in stmt.args), dims)

    def _together(self, stmt: Together) -> None:
        for call in stmt.calls:
            self._kernel(call)

    def _constant(self, stmt: ConstantData) -> Memory:
        if not 0 <= stmt.index < len(self.constants):
            raise InternalError(f"constant {stmt.index} of {len(self.constants)} is used")
        array = np.asarray(self.constants[stmt.index])
        return of_array(array, stmt.buffer.dtype, self._shape(stmt.buffer), f"constant {stmt.index}")

    def _library(self, stmt: CallLibrary) -> None:
        if stmt.symbol not in self.libraries:
            raise UnsupportedError(
                f"the interpreter has no implementation of the library function `{stmt.symbol}`",
                span=stmt.span,
                help="pass libraries={name: function of the input and output arrays}",
            )
        status = self.libraries[stmt.symbol](*(self.memory(b).array() for b in stmt.args))
        if isinstance(status, int) and status:
            raise RuntimeFailure(f"library function `{stmt.symbol}` failed with status {status}", span=stmt.span)


def host_inputs(func: PrimFunc) -> tuple[Buffer, ...]:
    """Parameters of a host program that callers provide: all but those that `AllocOutput` makes."""
    made = {s.buffer for s in walk(func.body) if isinstance(s, AllocOutput)}
    return tuple(p for p in func.params if p not in made)


def constants_of(module: IRModule) -> tuple[Array, ...]:
    """The module's constant table, which `LowerHost` leaves in its attribute ``constants``."""
    table = module.attrs.get("constants", ())
    assert isinstance(table, tuple)
    return tuple(c.data for c in table)


def run_host(
    module: IRModule,
    name: str,
    args: Sequence[Array],
    constants: Sequence[Array] | None = None,
    libraries: Libraries = NO_LIBRARIES,
    given: Sequence[Array] = (),
) -> tuple[Array, ...]:
    """Run a host program.

    Args:
        module: holds the program and the kernels it calls.
        name: the program.
        args: its inputs, flattened, in order.
        constants: the constant table, by default the module's own (its attribute ``constants``).
        libraries: Python implementations of library symbols.
        given: arrays for the first results, filled in place.

    Returns:
        The results in order of their index; they alias nothing but ``given``.

    Raises:
        ArgumentError: for arguments of another number, rank or dtype.
        RelaxirError: of the class of the first `Assert` that fails.
    """
    func = module.functions.get(name)
    if not isinstance(func, PrimFunc) or not func.is_host:
        raise ArgumentError(f"the module has no host program `{name}`", code="argument-name")
    inputs = host_inputs(func)
    if len(args) != len(inputs):
        raise ArgumentError(f"{name}: expected {len(inputs)} arguments, got {len(args)}", code="argument-count")
    for buffer, array in zip(inputs, args, strict=True):
        what = f"{name}: argument `{buffer.name}`"
        if array.dtype != info(buffer.dtype).numpy:
            raise ArgumentError(f"{what} must be {buffer.dtype}, got {array.dtype}", code="argument-dtype")
        if array.ndim != len(buffer.shape):
            raise ArgumentError(f"{what} must have rank {len(buffer.shape)}, got {array.ndim}", code="argument-rank")
    bound = {b: np.ascontiguousarray(a).reshape(a.shape) for b, a in zip(inputs, args, strict=True)}
    table = constants_of(module) if constants is None else constants
    machine = _HostMachine(module, func, bound, table, libraries, given)
    with np.errstate(all="ignore"):
        machine.run(func.body)
    if sorted(machine.results) != list(range(len(machine.results))):
        raise InternalError(f"{name}: results {sorted(machine.results)} were made, with gaps")
    return tuple(machine.results[i].array() for i in range(len(machine.results)))
