"""Host programs to LLVM IR text: ``i32 @host_name(ptr ctx, ptr ws, ptr inputs, ptr outputs)`` over arrays of DLTensor.

Invariants:

1. There is one way out, the block ``exit``; it pops every open frame, in reverse order, gives back the rooms, and
   returns the status.
2. What an arm of a branch defines (dimensions, memory) is kept in stack slots, so that it is known after the branch.
3. All memory counts as one: buffers may alias, and kernels write behind the emitter's back.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm import emit_linear as lin
from relaxir.backends.llvm.emit_linear import Linear
from relaxir.backends.llvm.emit_parallel import GRAIN
from relaxir.backends.llvm.emit_sites import SiteTable
from relaxir.backends.llvm.emit_value import Value, int_value
from relaxir.backends.llvm.emit_writer import ModuleText
from relaxir.backends.llvm.host_memory import HostMemory, byte_size, stride_size
from relaxir.backends.llvm.host_profile import Stamps, kernel_place
from relaxir.backends.llvm.ir_text import symbol_text
from relaxir.backends.llvm.layout import DLTENSOR, DLTENSOR_BYTES
from relaxir.backends.llvm.symbols import host_symbol, import_symbol, kernel_symbol
from relaxir.backends.llvm.together_ir import GROUP_EMPTY, GROUP_HEAD, SLOT_BYTES
from relaxir.support.errors import InternalError
from relaxir.support.spans import Span
from relaxir.sym import Dim
from relaxir.tir.buffer import Buffer
from relaxir.tir.expr import Expr
from relaxir.tir.func import PrimFunc
from relaxir.tir.host import (
    Alias,
    AllocFrame,
    AllocOutput,
    BindDim,
    CallHost,
    CallKernel,
    CallLibrary,
    ConstantData,
    Copy,
    Extent,
    Grow,
    InRoom,
    OpenFrame,
    SwapRooms,
    Together,
)
from relaxir.tir.stmt import For, If, Stmt, While
from relaxir.tir.visit import asserts_of, walk

MEMORY: Final = "memory"


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What the programs of a module meet outside of it."""

    constants: Sequence[int] = ()
    """Where each constant lies in the weights' segment (bytes)."""
    kernels: Mapping[str, PrimFunc] = field(default_factory=lambda: MappingProxyType({}))
    """Kernels of the other modules: calls are checked against them, a failure of one with assertions names the node it
    is called for, and a profile has their cost."""
    stamps: Stamps | None = None
    """In a profiling build, where the places with time stamps are noted."""
    together: frozenset[str] = frozenset()
    """Kernels that some host program of the library runs beside others."""


class Host(HostMemory):
    """Writes one host program."""

    fail_return = "br label %exit"

    def __init__(
        self,
        module: ModuleText,
        sites: SiteTable,
        name: str,
        func: PrimFunc,
        around: Surroundings,
    ) -> None:
        super().__init__(module, sites, name, func)
        self.around = around
        self.group: Value | None = None
        self.workspace = Value("%ws", "ptr")
        self.frames: dict[int, Value] = {}
        self.slots: dict[object, Value] = {}
        self.depth = 0

    # ---- the function

    def write(self) -> str:
        """Return the definition."""
        self.begin()
        for i, buffer in enumerate(self.func.inputs):
            tensor = self.tensor("%inputs", i)
            self.check_tensor(tensor, buffer)
            self.bases[buffer] = self.data_of(tensor)
        self.emit(self.func.body)
        self.end()
        symbol = symbol_text(host_symbol(self.name))
        return (
            f"define i32 {symbol}(ptr %ctx, ptr %ws, ptr %inputs, ptr %outputs) nounwind {{\n"
            f"entry:\n{self.w.body()}\n}}"
        )

    def begin(self) -> None:
        """Write the status, which says that the call failed until it has not."""
        self.w.allocas.append("%status = alloca i32, align 4")
        self.w.line("store i32 1, ptr %status, align 4")

    def end(self) -> None:
        """Write the only way out."""
        self.w.line("store i32 0, ptr %status, align 4")
        self.w.line("br label %exit")
        self.w.start("exit")
        for slot in reversed(self.opened):
            self.close_frame(slot)
        self.close_rooms()
        status = self.w.here("load i32, ptr %status, align 4", "i32")
        self.w.line(f"ret i32 {status.text}")

    def memory(self, buffer: Buffer) -> object:
        """All buffers are one memory."""
        return MEMORY

    def stored(self, stmt: Stmt) -> frozenset[object]:
        """Every statement may write memory."""
        return frozenset({MEMORY})

    def parallel_loop(self, stmt: For) -> bool:
        """Host programs have no parallel loops."""
        return False

    # ---- names that outlive an arm

    def _keep(self, key: object, value: Value) -> None:
        """Remember a definition made inside an arm or a loop."""
        if self.depth:
            if key not in self.slots:
                self.slots[key] = self.w.alloca(value.type, 1, 8)
            self.w.line(f"store {value.typed}, ptr {self.slots[key].text}, align 8")

    def _recall(self, defined: set[object]) -> None:
        """Make definitions of arms known after them."""
        for key, slot in self.slots.items():
            if key not in defined:
                continue
            kind = "i64" if isinstance(key, Dim) else "ptr"
            value = self.w.here(
                f"load {kind}, ptr {slot.text}, align 8", kind, nonneg=isinstance(key, Dim) and key.min >= 0
            )
            self._define(key, value)

    def _define(self, key: object, value: Value) -> None:
        if isinstance(key, Dim):
            self.dims[key] = value
        elif isinstance(key, Buffer):
            self.bases[key] = value
        elif isinstance(key, int):
            self.frames[key] = value
        self.epoch += 1

    def set_name(self, key: object, value: Value) -> None:
        """Define a dimension, a buffer's memory or a frame (by number) from here on."""
        self._define(key, value)
        self._keep(key, value)

    @contextmanager
    def _arm(self) -> Iterator[set[object]]:
        """Write an arm of a branch, or a loop: its names mean nothing after it. The set gets them when it ends."""
        outer, known = (dict(self.dims), dict(self.bases), dict(self.frames)), self._known()
        self.depth += 1
        defined: set[object] = set()
        yield defined
        defined.update(self._known() - known)
        self.depth -= 1
        self.dims, self.bases, self.frames = outer

    def _known(self) -> set[object]:
        """Everything `set_name` gave a meaning to."""
        return {*self.dims, *self.bases, *self.frames}

    def _if(self, stmt: If) -> None:
        found: list[set[object]] = []

        def arm(body: Stmt) -> None:
            with self._arm() as defined:
                self.emit(body)
            found.append(defined)

        other = stmt.other
        cond = self.eval(stmt.cond)
        self.branches(cond, lambda: arm(stmt.then), None if other is None else lambda: arm(other))
        self.w.touch(MEMORY)
        self._recall(set().union(*found))

    def _while(self, stmt: While) -> None:
        with self._arm():
            super()._while(While(stmt.cond, _Closing(stmt.body, len(self.opened))))
        self.w.touch(MEMORY)

    def serial_loop(self, stmt: For) -> None:
        """Write a loop whose frames are closed at the end of each iteration."""
        with self._arm():
            super().serial_loop(For(stmt.var, stmt.extent, _Closing(stmt.body, len(self.opened))))
        self.w.touch(MEMORY)

    # ---- statements

    def other_stmt(self, stmt: Stmt) -> None:
        """Write a statement of host programs."""
        match stmt:
            case BindDim():
                self._bind_dim(stmt)
            case OpenFrame(frame=frame, size=size):
                self.set_name(frame, self.push(self.checked_size(size)))
            case AllocFrame():
                self._alloc_frame(stmt)
            case AllocOutput():
                self._alloc_output(stmt)
            case Alias(buffer=buffer, source=source, offset=offset):
                place = self.bytes_of(self.dim_linear(offset), source)
                self.set_name(buffer, self.at(self.base(source), place))
            case Grow(room=room, size=size):
                self.grow(room, self.checked_size(size))
            case InRoom(buffer=buffer, room=room, offset=offset):
                place = self.bytes_of(self.dim_linear(offset), buffer)
                self.set_name(buffer, self.at(self.room_block(room), place))
            case SwapRooms(first=first, second=second):
                self.swap_rooms(first, second)
            case ConstantData(buffer=buffer, index=index):
                weights = self.w.pure("load ptr, ptr %ctx, align 8", "ptr", 1, ())
                self.set_name(buffer, self.at(weights, int_value(self.around.constants[index])))
            case Copy(target=target, source=source):
                size = self.dim(byte_size(target)).typed
                operands = (self.base(target).typed, self.base(source).typed, size, "i1 false")
                self.w.effect("llvm.memcpy.p0.p0.i64", operands)
                self.w.touch(MEMORY)
            case _Closing():
                self._closing(stmt)
            case _:
                self._call(stmt)

    def _bind_dim(self, stmt: BindDim) -> None:
        """Define a dimension; one that is read from data is checked against its minimum, which all code relies on."""
        value = self.eval(stmt.value)
        least = stmt.dim.min
        if not value.nonneg and least >= 0:
            fits = instr.compare(self.w, "icmp sge", value, int_value(least))
            message = f"{self.name}: {stmt.dim.name} is {{}}, but must be at least {least}"
            code, site = self.sites.add("runtime-shape", message, stmt.span or self.func.span)
            self.fail_unless(fits, code, site, [value])
        self.set_name(stmt.dim, Value(value.text, "i64", 1, value.level, value.number, value.nonneg or least >= 0))

    def other_expr(self, expr: Expr) -> Value:
        """Write an extent of an argument."""
        if not isinstance(expr, Extent) or expr.buffer not in self.func.inputs:
            raise InternalError(f"expression {type(expr).__name__} in a host program")
        tensor = self.tensor("%inputs", self.func.inputs.index(expr.buffer))
        shape = self.field(tensor, "DL_SHAPE", "ptr")
        pointer = self.at(shape, int_value(8 * expr.axis))
        return self.w.pure(f"load i64, ptr {pointer.text}, align 8", "i64", 1, (pointer,), nonneg=True)

    def linear(self, expr: Expr) -> Linear:
        """Return an int64 expression as a polynomial."""
        return lin.of_value(self.other_expr(expr)) if isinstance(expr, Extent) else super().linear(expr)

    def _closing(self, stmt: _Closing) -> None:
        self.emit(stmt.body)
        for slot in reversed(self.opened[stmt.first :]):
            self.close_frame(slot)

    def _call(self, stmt: Stmt) -> None:
        match stmt:
            case CallKernel():
                self._call_kernel(stmt)
            case Together():
                self._together(stmt)
            case CallHost():
                self._call_host(stmt)
            case CallLibrary():
                self._call_library(stmt)
            case _:
                raise InternalError(f"statement {type(stmt).__name__} in a host program")

    def _call_host(self, stmt: CallHost) -> None:
        inputs, outputs = self.tensors(stmt.args), self.tensors(stmt.outputs)
        self.module.declare("rx_enter", "i1", ["ptr", "ptr"])
        self.module.declare("rx_leave", "void", ["ptr"])
        fits = self.w.here("call i1 @rx_enter(ptr %ws, ptr %status)", "i1")
        message = f"{self.name}: calls of `{stmt.callee}` are nested too deeply"
        code, site = self.sites.add("runtime-failure", message, stmt.span)
        self.fail_unless(fits, code, site, [])
        operands = ["ptr %ctx", "ptr %ws", inputs.typed, outputs.typed]
        self._call_status(symbol_text(host_symbol(stmt.callee)), operands)
        self.w.line("call void @rx_leave(ptr %ws)")

    def _call_library(self, stmt: CallLibrary) -> None:
        tensors = self.tensors(stmt.args)
        pointers = [self.at(tensors, int_value(DLTENSOR_BYTES * i)).typed for i in range(len(stmt.args))]
        function = self._imported(stmt.symbol, pointers)
        status = self.w.here(f"call i32 {function.text}({', '.join(pointers)})", "i32")
        self.w.touch(MEMORY)
        fine = instr.compare(self.w, "icmp eq", status, int_value(0, "i32"))
        message = f"library function `{stmt.symbol}` failed with code {{}}"
        code, site = self.sites.add("runtime-failure", message, stmt.span)
        self.fail_unless(fine, code, site, [instr.convert(self.w, "sext", status, "i64")])

    def _call_kernel(self, stmt: CallKernel, group: str = "ptr null") -> None:
        """Call a kernel; one that may run beside others is told with which."""
        kernel = self.around.kernels.get(stmt.callee)
        if kernel is not None:
            self._check_call(stmt, kernel)
        sizes = [self.dim(d) for d in stmt.dims]
        operands = ["ptr %ws", *(self.base(b).typed for b in stmt.args), *(d.typed for d in sizes)]
        if stmt.callee in self.around.together:
            operands.append(group)
        place = stmt.span if kernel is not None and asserts_of(kernel.body) else None
        run = partial(self._call_status, symbol_text(kernel_symbol(stmt.callee)), operands, place)
        stamps = self.around.stamps
        if stamps is None or kernel is None:
            run()
        else:
            stamps.around(self, kernel_place(stmt.callee, kernel), sizes, run)

    def _together(self, stmt: Together) -> None:
        """Kernels do what comes before their last loops; then all these loops run as one region.

        A profiling build runs one kernel after the other: each has a time of its own.
        """
        if self.around.stamps is not None:
            for call in stmt.calls:
                self._call_kernel(call)
            return
        group = self._group()
        for number, value in enumerate((*GROUP_EMPTY, int(stmt.whole))):
            self.w.line(f"store i64 {value}, ptr {self.at(group, int_value(8 * number)).text}, align 8")
        for call in stmt.calls:
            self._call_kernel(call, group.typed)
        self.w.effect("rx_together", [group.typed, f"i64 {2 * GRAIN}"])
        self.w.touch(MEMORY)
        self._leave_unless_fine(self.w.here("load i32, ptr %ws, align 4", "i32"))

    def _group(self) -> Value:
        """The memory of groups: one is done before the next begins."""
        if self.group is None:
            most = max(len(s.calls) for s in walk(self.func.body) if isinstance(s, Together))
            self.group = self.w.alloca("i8", GROUP_HEAD + SLOT_BYTES * most, 16)
        return self.group

    def _imported(self, name: str, pointers: Sequence[str]) -> Value:
        """Load the address of a foreign function: set by whoever loads the library, else what the process has."""
        slot, own = symbol_text(import_symbol(name)), symbol_text(name)
        self.module.declarations.setdefault(own, f"declare extern_weak i32 {own}({', '.join(['ptr'] * len(pointers))})")
        self.module.helpers.setdefault(slot, f"{slot} = global ptr {own}, align 8")
        function = self.w.here(f"load ptr, ptr {slot}, align 8", "ptr")
        found = self.w.here(f"icmp ne ptr {function.text}, null", "i1")
        message = f"{self.name}: library function `{name}` is not there: give it by libraries= or load its library"
        code, site = self.sites.add("runtime-failure", message, self.func.span)
        self.fail_unless(found, code, site, [])
        return function

    @staticmethod
    def _check_call(stmt: CallKernel, kernel: PrimFunc) -> None:
        if len(stmt.args) != len(kernel.params) or len(stmt.dims) != len(kernel.dims):
            raise InternalError(f"call of `{stmt.callee}` does not match its parameters")

    def _invoke(self, function: str, operands: Sequence[str]) -> Value:
        types = ", ".join(o.split(" ", maxsplit=1)[0] for o in operands)
        self.module.declarations.setdefault(function, f"declare i32 {function}({types}) nounwind")
        status = self.w.here(f"call i32 {function}({', '.join(operands)})", "i32")
        self.w.touch(MEMORY)
        return status

    def _call_status(self, function: str, operands: Sequence[str], place: Span | None = None) -> None:
        """Call, and leave where that fails; ``place`` is the node of a model that is then named."""
        self._leave_unless_fine(self._invoke(function, operands), place)

    def _leave_unless_fine(self, status: Value, place: Span | None = None) -> None:
        ok, bad = self.w.label("ok"), self.w.label("failed")
        fine = instr.compare(self.w, "icmp eq", status, int_value(0, "i32"))
        self.w.line(f"br i1 {fine.text}, label %{ok}, label %{bad}, !prof !4")
        self.w.start(bad)
        if place is not None and place.note:
            _, site = self.sites.add("runtime-failure", "", place)
            self.module.declare("rx_place", "void", ["ptr", "i32"])
            self.w.line(f"call void @rx_place(ptr %ws, i32 {site})")
        self.leave()
        self.w.start(ok)
        self.w.scope.guarded = True

    # ---- memory

    def _alloc_frame(self, stmt: AllocFrame) -> None:
        if stmt.offset is None:
            base = self.push(self.checked_size(byte_size(stmt.buffer)))
        else:
            base = self.at(self.frames[stmt.frame], self.dim(stmt.offset))
        self.set_name(stmt.buffer, base)

    def _alloc_output(self, stmt: AllocOutput) -> None:
        """Take the caller's array if there is one and it fits, else a block of the pool."""
        tensor = self.tensor("%outputs", stmt.index)
        extents = [self.dim(d) for d in stmt.buffer.shape]
        size = self.checked_size(byte_size(stmt.buffer), stride_size(stmt.buffer))
        data = self.at(tensor, int_value(DLTENSOR["DL_DATA"]))
        shape_field = self.at(tensor, int_value(DLTENSOR["DL_SHAPE"]))
        given = self.w.here(f"load ptr, ptr {data.text}, align 8", "ptr")
        shape = self.w.here(f"load ptr, ptr {shape_field.text}, align 8", "ptr")
        slot = self.w.alloca("ptr", 1, 8)

        def allocate() -> None:
            self.module.declare("rx_alloc", "ptr", ["ptr", "i64"])
            block = self.w.here(f"call ptr @rx_alloc(ptr %ctx, {size.typed})", "ptr")
            self.need(block, size, f"result {stmt.index}")
            self.w.line(f"store {block.typed}, ptr {data.text}, align 8")
            for axis, extent in enumerate(extents):
                self.w.line(f"store {extent.typed}, ptr {self.at(shape, int_value(8 * axis)).text}, align 8")
            for name, kind in (("DL_STRIDES", "ptr null"), ("DL_OFFSET", "i64 0")):
                self.w.line(f"store {kind}, ptr {self.at(tensor, int_value(DLTENSOR[name])).text}, align 8")
            self.w.line(f"store {block.typed}, ptr {slot.text}, align 8")

        def check() -> None:
            for axis, extent in enumerate(extents):
                place = self.at(shape, int_value(8 * axis))
                got = self.w.here(f"load i64, ptr {place.text}, align 8", "i64")
                same = instr.compare(self.w, "icmp eq", got, extent)
                message = f"{self.name}: result {stmt.index}, axis {axis}: the given array has size {{}}, expected {{}}"
                code, site = self.sites.add("runtime-shape", message, self.func.span)
                self.fail_unless(same, code, site, [got, extent])
            self.check_compact(tensor, f"{self.name}: result {stmt.index} is not compact")
            place = self.at(tensor, int_value(DLTENSOR["DL_OFFSET"]))
            offset = self.w.here(f"load i64, ptr {place.text}, align 8", "i64")
            mine = self.w.here(f"getelementptr i8, {given.typed}, {offset.typed}", "ptr")
            self.w.line(f"store {mine.typed}, ptr {slot.text}, align 8")

        self.branches(self.w.here(f"icmp eq ptr {given.text}, null", "i1"), allocate, check)
        self.set_name(stmt.buffer, self.w.here(f"load ptr, ptr {slot.text}, align 8", "ptr"))


@dataclass(frozen=True, slots=True, eq=False)
class _Closing(Stmt):
    """A loop body, after which the frames opened in it are closed; ``first`` is the number of frames opened before."""

    body: Stmt
    first: int
