"""Memory accesses of tensor programs: addresses, loads and stores, of an element or of one per lane."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm import emit_linear as lin
from relaxir.backends.llvm.emit_cast import from_memory, to_memory
from relaxir.backends.llvm.emit_env import Lane
from relaxir.backends.llvm.emit_index import Indices
from relaxir.backends.llvm.emit_linear import LANE, Linear
from relaxir.backends.llvm.emit_stream import alignment, store_past
from relaxir.backends.llvm.emit_value import MEMORY, REGISTER, Value, bool_value, int_value, mangled, vector_type
from relaxir.support.dtypes import info
from relaxir.support.errors import InternalError
from relaxir.tir.buffer import Buffer
from relaxir.tir.expr import Expr, Word


@dataclass(frozen=True, slots=True)
class Place:
    """Where an access goes: one address (``stride`` 0), adjacent elements (1), or an address per lane (None).

    Adjacent elements in falling order (-1) are those from ``pointer`` on, the last lane's first.
    """

    buffer: Buffer
    pointer: Value
    stride: int | None
    aligned: int = 0
    """Bytes of which the address is a multiple, where the store may go past the caches."""


class Accesses(Indices):
    """Writes loads and stores."""

    def memory(self, buffer: Buffer) -> object:
        """Return what stands for the memory of a buffer: loads of the same are ordered with its stores."""
        return buffer

    def place(self, buffer: Buffer, indices: Sequence[Expr]) -> Place:
        """Write the address of an element, or of one per lane."""
        private = self.lane is not None and buffer in self.lane.private
        offset = self.offset(buffer, indices)
        kind = self.memory_type(buffer)
        varying = offset.lane_terms()
        if private:
            if varying:
                raise InternalError(f"buffer `{buffer.name}` of one lane is indexed by the lane")
            kind = vector_type(kind, self._width())
        pointer = self._address(buffer, offset, kind)
        if private or varying == {(LANE,): 1}:
            streams = buffer in self.streamed
            aligned = alignment(offset, self.multiples, info(buffer.dtype).bytes) if streams else 0
            return Place(buffer, pointer, 1, aligned)
        if not varying:
            return Place(buffer, pointer, 0)
        if varying == {(LANE,): -1} and self.lane is not None and self.lane.mask is None:
            return Place(buffer, self._gep(kind, pointer, int_value(1 - self.lane.width)), -1)
        index = lin.vector(self.w, offset, self._width())
        return Place(buffer, self._gep(kind, pointer, index), None)

    def _address(self, buffer: Buffer, offset: Linear, kind: str) -> Value:
        """Write the address of an element, of the first lane's where it depends on lanes."""
        pointer = self.base(buffer)
        for part in lin.by_level(self.w, offset.uniform()):
            pointer = self._gep(kind, pointer, part)
        return self._gep(kind, pointer, int_value(offset.const)) if offset.const else pointer

    def word(self, expr: Word) -> Value:
        """Write a load of four bytes, or of four per lane."""
        buffer, lane = expr.buffer, self.lane
        offset = self.offset(buffer, expr.indices)
        pointer, varying = self._address(buffer, offset, "i8"), offset.lane_terms()
        if not varying and not (lane is not None and lane.guarded):
            return self.w.load(f"load i32, {pointer.typed}, align 1", "i32", 1, self.memory(buffer), (pointer,))
        if lane is None:
            raise InternalError("a vector access outside a vector loop")
        if varying == {(LANE,): 4} and lane.mask is None:
            full = vector_type("i32", lane.width)
            text = f"load {full}, {pointer.typed}, align 1"
            return self.w.load(text, "i32", lane.width, self.memory(buffer), (pointer,))
        if varying:
            pointer = self._gep("i8", pointer, lin.vector(self.w, offset, lane.width))
        return self._gather(Place(buffer, pointer, None), lane, "i32", 1)

    def offset(self, buffer: Buffer, indices: Sequence[Expr]) -> Linear:
        """Return the number of the element in memory."""
        total = lin.constant(0)
        for extent, index in zip(buffer.shape, indices, strict=True):
            total = total * self.dim_linear(extent) + self.linear(index) if total.terms else self.linear(index)
        return total

    def _gep(self, kind: str, pointer: Value, index: Value) -> Value:
        if index.number == 0:
            return pointer
        return self.w.pure(
            f"getelementptr {kind}, ptr {pointer.text}, {index.typed}", "ptr", index.width, (pointer, index)
        )

    def memory_type(self, buffer: Buffer) -> str:
        """Return how an element of this buffer is stored."""
        if self.is_private(buffer) and buffer.dtype != "bool":
            return REGISTER[buffer.dtype]
        return MEMORY[buffer.dtype]

    def is_private(self, buffer: Buffer) -> bool:
        """Whether every lane has this buffer for itself (its elements are vectors, never rounded to 16 bits)."""
        return self.lane is not None and buffer in self.lane.private

    def _align(self, buffer: Buffer) -> int:
        return 4 if self.is_private(buffer) and info(buffer.dtype).bytes < 4 else info(buffer.dtype).bytes

    def load(self, place: Place) -> Value:
        """Write a load; masked lanes read nothing and give zero."""
        buffer, kind = place.buffer, self.memory_type(place.buffer)
        align = self._align(buffer)
        lane = self.lane
        if place.stride == 0 and not (lane is not None and lane.guarded):
            raw = self.w.load(
                f"load {kind}, {place.pointer.typed}, align {align}", kind, 1, self.memory(buffer), (place.pointer,)
            )
        elif lane is None:
            raise InternalError("a vector access outside a vector loop")
        elif place.stride == -1 or (place.stride == 1 and (lane.mask is None or self.is_private(buffer))):
            text = f"load {vector_type(kind, lane.width)}, {place.pointer.typed}, align {align}"
            raw = self.w.load(text, kind, lane.width, self.memory(buffer), (place.pointer,))
            raw = raw if place.stride == 1 else self.w.reversed(raw)
        elif place.stride == 1 and lane.mask is not None:
            raw = self._masked_load(place, lane.mask, kind, align)
        else:
            raw = self._gather(place, lane, kind, align)
        return raw if self.is_private(buffer) and buffer.dtype != "bool" else from_memory(self.w, raw, buffer.dtype)

    def _masked_load(self, place: Place, mask: Value, kind: str, align: int) -> Value:
        full = vector_type(kind, mask.width)
        name = f"llvm.masked.load.{mangled(kind, mask.width)}.p0"
        self.module.declare(name, full, ["ptr", f"<{mask.width} x i1>", full])
        text = f"call {full} @{name}(ptr align {align} {place.pointer.text}, {mask.typed}, {full} zeroinitializer)"
        return self.w.load(text, kind, mask.width, self.memory(place.buffer), (place.pointer, mask))

    def _gather(self, place: Place, lane: Lane, kind: str, align: int) -> Value:
        width = lane.width
        pointers = self.w.splat(place.pointer, width)
        mask = self.w.splat(bool_value(True), width) if lane.mask is None else lane.mask
        full = vector_type(kind, width)
        name = f"llvm.masked.gather.{mangled(kind, width)}.{mangled('ptr', width)}"
        self.module.declare(name, full, [pointers.full_type, mask.full_type, full])
        where = f"{pointers.full_type} align {align} {pointers.text}"
        text = f"call {full} @{name}({where}, {mask.typed}, {full} zeroinitializer)"
        return self.w.load(text, kind, width, self.memory(place.buffer), (pointers, mask))

    def store(self, place: Place, value: Value) -> None:
        """Write a store of a register form; masked lanes write nothing."""
        buffer, kind = place.buffer, self.memory_type(place.buffer)
        raw = value if self.is_private(buffer) and buffer.dtype != "bool" else to_memory(self.w, value, buffer.dtype)
        align = self._align(buffer)
        lane = self.lane
        if place.stride == 0:
            self.w.line(f"store {raw.typed}, {place.pointer.typed}, align {align}")
        elif lane is None:
            raise InternalError("a vector access outside a vector loop")
        elif place.stride == -1:
            self.w.line(f"store {self.w.reversed(raw).typed}, {place.pointer.typed}, align {align}")
        elif place.stride == 1 and lane.mask is None:
            if place.aligned and store_past(self.w, raw, place.pointer, info(buffer.dtype).bytes, place.aligned):
                return
            self.w.line(f"store {raw.typed}, {place.pointer.typed}, align {align}")
        elif place.stride == 1 and lane.mask is not None:
            if self.is_private(buffer):
                old = self.w.here(f"load {raw.full_type}, {place.pointer.typed}, align {align}", kind, lane.width)
                mixed = instr.choose(self.w, lane.mask, raw, old)
                self.w.line(f"store {mixed.typed}, {place.pointer.typed}, align {align}")
            else:
                name = f"llvm.masked.store.{mangled(kind, lane.width)}.p0"
                self.w.effect(name, (raw.typed, f"ptr align {align} {place.pointer.text}", lane.mask.typed))
        else:
            mask = self.w.splat(bool_value(True), lane.width) if lane.mask is None else lane.mask
            name = f"llvm.masked.scatter.{mangled(kind, lane.width)}.{mangled('ptr', lane.width)}"
            self.w.effect(
                name, (raw.typed, f"{place.pointer.full_type} align {align} {place.pointer.text}", mask.typed)
            )
        self.w.touch(self.memory(buffer))
