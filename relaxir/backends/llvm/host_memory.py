"""What host programs do with memory: frames, checked sizes, tensors of callers and callees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relaxir.backends.llvm import emit_instr as instr
from relaxir.backends.llvm import emit_linear as lin
from relaxir.backends.llvm.emit_linear import Linear
from relaxir.backends.llvm.emit_sites import SiteTable
from relaxir.backends.llvm.emit_stmt import Statements
from relaxir.backends.llvm.emit_value import Value, float_value, int_value
from relaxir.backends.llvm.emit_writer import ModuleText
from relaxir.backends.llvm.layout import DLTENSOR, DLTENSOR_BYTES
from relaxir.support.dtypes import info
from relaxir.sym import LARGEST, SHOWN, Dim, DimLike, fold, free_dims, max_, mul, product
from relaxir.tir.buffer import Buffer
from relaxir.tir.func import PrimFunc


class HostMemory(Statements):
    """Frames, sizes and tensors of one host program."""

    def __init__(self, module: ModuleText, sites: SiteTable, name: str, func: PrimFunc) -> None:
        super().__init__(module, sites)
        self.name = name
        self.func = func
        self.opened: list[Value] = []
        """Slots with the sizes of the frames opened here, -1 while closed, in program order."""
        self.rooms: dict[int, Value] = {}
        """Slots of the rooms: block and size."""

    # ---- frames

    def push(self, size: Value) -> Value:
        """Open a frame of ``size`` bytes."""
        slot = self.w.alloca("i64", 1, 8)
        self.w.allocas.append(f"store i64 -1, ptr {slot.text}, align 8")
        self.module.declare("rx_frame_push", "ptr", ["ptr", "i64"])
        self.module.declare("rx_frame_pop", "void", ["ptr", "i64"])
        frame = self.w.here(f"call ptr @rx_frame_push(ptr %ws, {size.typed})", "ptr")
        self.need(frame, size, "temporary memory")
        self.w.line(f"store {size.typed}, ptr {slot.text}, align 8")
        self.opened.append(slot)
        return frame

    def close_frame(self, slot: Value) -> None:
        """Pop a frame if it is open."""
        size = self.w.here(f"load i64, ptr {slot.text}, align 8", "i64")
        open_ = self.w.here(f"icmp sge i64 {size.text}, 0", "i1")

        def pop() -> None:
            self.w.effect("rx_frame_pop", ("ptr %ws", size.typed))
            self.w.line(f"store i64 -1, ptr {slot.text}, align 8")

        self.branches(open_, pop, None)

    # ---- rooms

    def room(self, number: int) -> Value:
        """Return the slot of a room, empty at the start of the function."""
        if number not in self.rooms:
            slot = self.rooms[number] = self.w.alloca("i64", 2, 8)
            self.w.allocas.append(f"store [2 x i64] zeroinitializer, ptr {slot.text}, align 8")
        return self.rooms[number]

    def grow(self, number: int, size: Value) -> None:
        """Give a room at least ``size`` bytes."""
        for name, kind, operands in (("rx_alloc", "ptr", ["ptr", "i64"]), ("rx_free", "void", ["ptr", "ptr"])):
            self.module.declare(name, kind, operands)
        self.module.declare("llvm.smax.i64", "i64", ["i64", "i64"])
        self.module.declare("llvm.memcpy.p0.p0.i64", "void", ["ptr", "ptr", "i64", "i1"])
        self.module.helpers.setdefault("rx.grow", _GROW)
        block = self.w.here(f"call ptr @rx.grow(ptr %ctx, {self.room(number).typed}, {size.typed})", "ptr")
        self.need(block, size, "memory that a loop fills")

    def room_block(self, number: int) -> Value:
        """Return the block of a room."""
        return self.w.here(f"load ptr, ptr {self.room(number).text}, align 8", "ptr")

    def swap_rooms(self, first: int, second: int) -> None:
        """Exchange two rooms."""
        slots = (self.room(first), self.room(second))
        old = [self.w.here(f"load [2 x i64], ptr {s.text}, align 8", "[2 x i64]") for s in slots]
        for slot, value in zip(slots, reversed(old), strict=True):
            self.w.line(f"store [2 x i64] {value.text}, ptr {slot.text}, align 8")

    def close_rooms(self) -> None:
        """Give back all rooms."""
        for number in self.rooms:
            self.w.effect("rx_free", ("ptr %ctx", self.room_block(number).typed))

    def need(self, pointer: Value, size: Value, what: str) -> None:
        """Fail where an allocation gave nothing."""
        message = f"{self.name}: {{}} bytes of {what} could not be allocated"
        code, site = self.sites.add("runtime-allocation", message, self.func.span)
        self.fail_unless(self.w.here(f"icmp ne ptr {pointer.text}, null", "i1"), code, site, [size])

    # ---- sizes

    def checked_size(self, size: DimLike, most: DimLike | None = None) -> Value:
        """Return a number of bytes; fail where it does not fit 64 bits, seen in floating point, which does not wrap.

        ``most`` is what must fit in its place.
        """
        value, seen = self.dim(size), size if most is None else most
        if not isinstance(seen, int):
            estimate = fold(seen, lambda n: float_value(float(n), "double"), self._dim_double, self._double_node)
            fits = instr.compare(self.w, "fcmp ole", estimate, float_value(float(LARGEST), "double"))
            shown = free_dims(seen)[:SHOWN]
            got = ", ".join(f"{d.name} is {{}}" for d in shown)
            message = f"{self.name}: a size in bytes does not fit 64 bits; {got}"
            code, site = self.sites.add("runtime-overflow", message, self.func.span)
            self.fail_unless(fits, code, site, [self.dim_symbol(d) for d in shown])
        return value

    def _dim_double(self, symbol_: Dim) -> Value:
        return instr.convert(self.w, "sitofp", self.dim_symbol(symbol_), "double")

    def _double_node(self, label: str, args: Sequence[Value]) -> Value:
        total = args[0]
        for arg in args[1:]:
            if label in ("add", "mul"):
                total = instr.op(self.w, f"f{label}", total, arg)
            elif label == "mod":
                total = arg  # never more than the divisor
            elif label in ("floordiv", "ceildiv"):
                total = instr.op(self.w, "fdiv", total, arg)
                total = self.w.intrinsic("ceil" if label == "ceildiv" else "floor", total)
            else:
                total = instr.float_extremum(self.w, total, arg, maximum=label != "min")
        return total

    def bytes_of(self, count: Linear, buffer: Buffer) -> Value:
        """Return the bytes of ``count`` elements."""
        return lin.scalar(self.w, count * lin.constant(info(buffer.dtype).bytes))

    def at(self, pointer: Value, offset: Value) -> Value:
        """Return an address some bytes further."""
        if offset.number == 0:
            return pointer
        return self.w.pure(f"getelementptr i8, {pointer.typed}, {offset.typed}", "ptr", 1, (pointer, offset))

    # ---- tensors

    def tensor(self, array: str, index: int) -> Value:
        """Return the address of a tensor in an array of them."""
        return self.at(Value(array, "ptr"), int_value(DLTENSOR_BYTES * index))

    def field(self, tensor: Value, name: str, kind: str) -> Value:
        """Return a field of a tensor."""
        pointer = self.at(tensor, int_value(DLTENSOR[name]))
        return self.w.pure(f"load {kind}, ptr {pointer.text}, align 4", kind, 1, (pointer,))

    def data_of(self, tensor: Value) -> Value:
        """Return the address of a tensor's first element."""
        return self.at(self.field(tensor, "DL_DATA", "ptr"), self.field(tensor, "DL_OFFSET", "i64"))

    def check_tensor(self, tensor: Value, buffer: Buffer) -> None:
        """Refuse arguments of another rank or type, or with gaps: everything after this trusts them."""
        rank = self.field(tensor, "DL_NDIM", "i32")
        same = instr.compare(self.w, "icmp eq", rank, int_value(len(buffer.shape), "i32"))
        message = f"{self.name}: argument `{buffer.name}` has {{}} axes, expected {len(buffer.shape)}"
        code, site = self.sites.add("argument-rank", message, self.func.span)
        self.fail_unless(same, code, site, [instr.convert(self.w, "sext", rank, "i64")])
        kind = self.field(tensor, "DL_DTYPE", "i32")
        same = instr.compare(self.w, "icmp eq", kind, int_value(_dlpack_type(buffer.dtype), "i32"))
        code, site = self.sites.add(
            "argument-dtype", f"{self.name}: argument `{buffer.name}` is not of type {buffer.dtype}", self.func.span
        )
        self.fail_unless(same, code, site, [])
        if buffer.shape:
            self.check_compact(tensor, f"{self.name}: argument `{buffer.name}` is not compact")

    def check_compact(self, tensor: Value, message: str) -> None:
        """Refuse a tensor with gaps between its elements."""
        self.module.helpers.setdefault("rx.compact", _COMPACT)
        compact = self.w.here(f"call i1 @rx.compact({tensor.typed})", "i1")
        code, site = self.sites.add("argument", message, self.func.span)
        self.fail_unless(compact, code, site, [])

    def tensors(self, buffers: Sequence[Buffer]) -> Value:
        """Build an array of tensors on the stack."""
        array = self.w.alloca("i8", DLTENSOR_BYTES * max(len(buffers), 1), 8)
        for i, buffer in enumerate(buffers):
            tensor = self.at(array, int_value(DLTENSOR_BYTES * i))
            shape = self.w.alloca("i64", len(buffer.shape), 8)
            for axis, d in enumerate(buffer.shape):
                self.w.line(f"store {self.dim(d).typed}, ptr {self.at(shape, int_value(8 * axis)).text}, align 8")
            fields = (
                ("DL_DATA", self.base(buffer).typed),
                ("DL_DEVICE", "i64 1"),
                ("DL_NDIM", f"i32 {len(buffer.shape)}"),
                ("DL_DTYPE", f"i32 {_dlpack_type(buffer.dtype)}"),
                ("DL_SHAPE", shape.typed),
                ("DL_STRIDES", "ptr null"),
                ("DL_OFFSET", "i64 0"),
            )
            for name, value in fields:
                self.w.line(f"store {value}, ptr {self.at(tensor, int_value(DLTENSOR[name])).text}, align 4")
        return array


def byte_size(buffer: Buffer) -> DimLike:
    """Return the bytes of a buffer."""
    return mul(product(buffer.shape), info(buffer.dtype).bytes)


def stride_size(buffer: Buffer) -> DimLike:
    """Return the bytes of a buffer without its empty axes: what its strides reach, which callers compute too."""
    return mul(product(max_(d, 1) for d in buffer.shape), info(buffer.dtype).bytes)


def _dlpack_type(dtype: str) -> int:
    """Return a DLDataType as a little-endian word: code, bits, lanes."""
    row = info(dtype)
    return row.dlpack | row.bits << 8 | 1 << 16


_COMPACT: Final = """\
define internal i1 @rx.compact(ptr %tensor) nounwind {
entry:
  %strides_p = getelementptr i8, ptr %tensor, i64 32
  %strides = load ptr, ptr %strides_p, align 8
  %none = icmp eq ptr %strides, null
  br i1 %none, label %yes, label %look
look:
  %shape_p = getelementptr i8, ptr %tensor, i64 24
  %shape = load ptr, ptr %shape_p, align 8
  %rank_p = getelementptr i8, ptr %tensor, i64 16
  %rank32 = load i32, ptr %rank_p, align 8
  %rank = sext i32 %rank32 to i64
  br label %head
head:
  %axis = phi i64 [ %rank, %look ], [ %before, %next ]
  %step = phi i64 [ 1, %look ], [ %larger, %next ]
  %good = phi i1 [ true, %look ], [ %still, %next ]
  %empty = phi i1 [ false, %look ], [ %none_left, %next ]
  %end = icmp eq i64 %axis, 0
  br i1 %end, label %done, label %next
next:
  %before = sub i64 %axis, 1
  %size_p = getelementptr i64, ptr %shape, i64 %before
  %size = load i64, ptr %size_p, align 8
  %stride_p = getelementptr i64, ptr %strides, i64 %before
  %stride = load i64, ptr %stride_p, align 8
  %same = icmp eq i64 %stride, %step
  %one = icmp eq i64 %size, 1
  %fits = or i1 %same, %one
  %still = and i1 %good, %fits
  %zero = icmp eq i64 %size, 0
  %none_left = or i1 %empty, %zero
  %larger = mul i64 %step, %size
  br label %head
done:
  %either = or i1 %good, %empty
  ret i1 %either
yes:
  ret i1 true
}"""


_GROW: Final = """\
define internal ptr @rx.grow(ptr %ctx, ptr %room, i64 %bytes) nounwind {
entry:
  %old = load ptr, ptr %room, align 8
  %size_p = getelementptr i8, ptr %room, i64 8
  %size = load i64, ptr %size_p, align 8
  %least = call i64 @llvm.smax.i64(i64 %bytes, i64 64)
  %fits = icmp sge i64 %size, %least
  br i1 %fits, label %enough, label %more
more:
  %twice = shl i64 %size, 1
  %wanted = call i64 @llvm.smax.i64(i64 %twice, i64 %least)
  %new = call ptr @rx_alloc(ptr %ctx, i64 %wanted)
  %none = icmp eq ptr %new, null
  br i1 %none, label %failed, label %keep
keep:
  call void @llvm.memcpy.p0.p0.i64(ptr %new, ptr %old, i64 %size, i1 false)
  call void @rx_free(ptr %ctx, ptr %old)
  store ptr %new, ptr %room, align 8
  store i64 %wanted, ptr %size_p, align 8
  ret ptr %new
enough:
  ret ptr %old
failed:
  ret ptr null
}"""
