"""Time stamps around the kernel calls of host programs, in profiling builds.

Two readings of the clock and a few stores for each call; nothing is locked, so calls in several threads are noted side
by side. The record is described in `relaxir.runtime.events`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from relaxir.backends.llvm.emit_value import Value, int_value
from relaxir.backends.llvm.host_memory import HostMemory
from relaxir.cost import work_attrs
from relaxir.runtime.events import HEAD, SYMBOL, Place
from relaxir.support.errors import InternalError
from relaxir.tir.func import PrimFunc

MOST_SIZES: Final = 125
"""Sizes of one event, so that what finds no room has somewhere to go."""


class Stamps:
    """Writes time stamps and remembers the places that have them."""

    def __init__(self) -> None:
        self.places: list[Place] = []

    def around(self, host: HostMemory, place: Place, sizes: Sequence[Value], call: Callable[[], None]) -> None:
        """Write a call between two readings of the clock, and a record of them with the sizes."""
        if len(sizes) > MOST_SIZES:
            raise InternalError(f"kernel `{place.kernel}` has {len(sizes)} sizes")
        host.module.helpers.setdefault(SYMBOL, HELPERS)
        begin = host.w.here(f"call i64 @{SYMBOL}_now()", "i64")
        call()
        end = host.w.here(f"call i64 @{SYMBOL}_now()", "i64")
        words = (int_value(len(self.places)), begin, end, *sizes)
        room = host.w.here(f"call ptr @{SYMBOL}_take(i64 {len(words)})", "ptr")
        for i, word in enumerate(words):
            host.w.line(f"store {word.typed}, ptr {host.at(room, int_value(8 * i)).text}, align 8")
        self.places.append(place)


def kernel_place(name: str, func: PrimFunc) -> Place:
    """The place of a kernel's call, with its cost as formulas in the kernel's own symbols."""
    texts = {**work_attrs(func), **func.attrs} if "flops" not in func.attrs else func.attrs
    return Place(name, tuple(d.name for d in func.dims), str(texts.get("flops", "0")), str(texts.get("bytes", "0")))


HELPERS: Final = f"""\
@{SYMBOL} = global [3 x i64] zeroinitializer, align 8
@{SYMBOL}_sink = internal global [{HEAD + MOST_SIZES} x i64] zeroinitializer, align 8
declare i32 @clock_gettime(i32, ptr)

define internal i64 @{SYMBOL}_now() nounwind {{
  %time = alloca [2 x i64], align 8
  %status = call i32 @clock_gettime(i32 1, ptr %time)
  %seconds = load i64, ptr %time, align 8
  %rest_p = getelementptr i8, ptr %time, i64 8
  %rest = load i64, ptr %rest_p, align 8
  %whole = mul i64 %seconds, 1000000000
  %now = add i64 %whole, %rest
  ret i64 %now
}}
define internal ptr @{SYMBOL}_take(i64 %words) nounwind {{
entry:
  %size_p = getelementptr i8, ptr @{SYMBOL}, i64 8
  %size = load i64, ptr %size_p, align 8
  %off = icmp eq i64 %size, 0
  br i1 %off, label %nowhere, label %ask
ask:
  %used_p = getelementptr i8, ptr @{SYMBOL}, i64 16
  %used = atomicrmw add ptr %used_p, i64 %words monotonic
  %end = add i64 %used, %words
  %fits = icmp sle i64 %end, %size
  br i1 %fits, label %here, label %nowhere
here:
  %room = load ptr, ptr @{SYMBOL}, align 8
  %place = getelementptr i64, ptr %room, i64 %used
  ret ptr %place
nowhere:
  ret ptr @{SYMBOL}_sink
}}
"""
