"""Kernel calls side by side, as LLVM IR: the parallel regions that end several kernels become one.

A kernel that may run beside others takes a *group* as its last argument. With null it behaves as usual. With a group
it does all but its last parallel loop, and notes that one down: the loop's function, a copy of the record that it
reads, and how many chunks and operations it has. `rx_together` then runs all that was noted as one region.

- Every loop is cut into as many parts as the one with most chunks. In front stand the first halves of all loops, loop
  after loop, behind them the second halves, the last loop first. A thread that claims from the front has the front of
  each loop, in one piece, as it would have one region after the other; one that claims from the back likewise: a
  kernel that follows finds what it reads in the same caches. A part without iterations costs some ten nanoseconds.
- It is one region if one of the loops would have been, or if what can run beside the longest loop is worth a chunk.
- With one thread each loop is one piece.
"""

from string import Template
from typing import Final

RECORD_WORDS: Final = 62
"""Most words of a record; a loop that takes more from outside runs at once."""
GROUP_EMPTY: Final = (0, 1, 0, 0)
"""Words before the first slot, of an empty group: how many loops, the chunks of the one that has most, but at least 1,
operations of all, operations of the longest."""
GROUP_HEAD: Final = 8 * len(GROUP_EMPTY)
SLOT_BYTES: Final = 16 + 8 * RECORD_WORDS
"""A loop: its function, 8 unused bytes, its record."""
MOST_CALLS: Final = 8
"""Calls of a group, whose slots lie on the stack."""


def together_text() -> str:
    """Return the functions."""
    return _TEXT.substitute(HEAD=GROUP_HEAD, SLOT=SLOT_BYTES)


_TEXT: Final = Template("""\
define internal ptr @rx_slot(ptr %group, i64 %number) nounwind {
  %offset = mul i64 %number, $SLOT
  %after = add i64 %offset, $HEAD
  %slot = getelementptr i8, ptr %group, i64 %after
  ret ptr %slot
}

; ---- note a loop of %chunks chunks and %work operations, whose record has %words words
define void @rx_defer(ptr %group, ptr %fn, ptr %record, i64 %words, i64 %chunks, i64 %work) nounwind {
entry:
  %parts_p = getelementptr i8, ptr %group, i64 8
  %work_p = getelementptr i8, ptr %group, i64 16
  %most_p = getelementptr i8, ptr %group, i64 24
  %number = load i64, ptr %group
  %number1 = add i64 %number, 1
  store i64 %number1, ptr %group
  %slot = call ptr @rx_slot(ptr %group, i64 %number)
  store ptr %fn, ptr %slot
  %to = getelementptr i8, ptr %slot, i64 16
  %parts = load i64, ptr %parts_p
  %more = icmp sgt i64 %chunks, %parts
  %parts1 = select i1 %more, i64 %chunks, i64 %parts
  store i64 %parts1, ptr %parts_p
  %sum = load i64, ptr %work_p
  %sum1 = add i64 %sum, %work
  store i64 %sum1, ptr %work_p
  %most = load i64, ptr %most_p
  %longer = icmp sgt i64 %work, %most
  %most1 = select i1 %longer, i64 %work, i64 %most
  store i64 %most1, ptr %most_p
  br label %word
word:
  %i = phi i64 [ 0, %entry ], [ %i1, %copy ]
  %left = icmp slt i64 %i, %words
  br i1 %left, label %copy, label %done
copy:
  %from_p = getelementptr i64, ptr %record, i64 %i
  %to_p = getelementptr i64, ptr %to, i64 %i
  %value = load i64, ptr %from_p
  store i64 %value, ptr %to_p
  %i1 = add i64 %i, 1
  br label %word
done:
  ret void
}

define internal void @rx_together_chunk(ptr %group, i64 %chunk, i64 %chunks, i64 %worker) nounwind {
entry:
  %parts_p = getelementptr i8, ptr %group, i64 8
  %count = load i64, ptr %group
  %parts = load i64, ptr %parts_p
  %parts1 = add i64 %parts, 1
  %front = lshr i64 %parts1, 1
  %fronts = mul i64 %count, %front
  %ahead = icmp ult i64 %chunk, %fronts
  br i1 %ahead, label %first, label %second
first:
  %which_f = udiv i64 %chunk, %front
  %part_f = urem i64 %chunk, %front
  br label %run
second:
  %back = sub i64 %parts, %front
  %number = sub i64 %chunk, %fronts
  %turned = udiv i64 %number, %back
  %last = sub i64 %count, 1
  %which_b = sub i64 %last, %turned
  %rest = urem i64 %number, %back
  %part_b = add i64 %front, %rest
  br label %run
run:
  %which = phi i64 [ %which_f, %first ], [ %which_b, %second ]
  %part = phi i64 [ %part_f, %first ], [ %part_b, %second ]
  %slot = call ptr @rx_slot(ptr %group, i64 %which)
  %fn = load ptr, ptr %slot
  %record = getelementptr i8, ptr %slot, i64 16
  call void %fn(ptr %record, i64 %part, i64 %parts, i64 %worker)
  ret void
}

; ---- run what was noted; %grain operations are worth a chunk
define void @rx_together(ptr %group, i64 %grain) nounwind {
entry:
  %parts_p = getelementptr i8, ptr %group, i64 8
  %work_p = getelementptr i8, ptr %group, i64 16
  %most_p = getelementptr i8, ptr %group, i64 24
  %count = load i64, ptr %group
  %parts = load i64, ptr %parts_p
  %work = load i64, ptr %work_p
  %most = load i64, ptr %most_p
  %rest = sub i64 %work, %most
  %enough = icmp sge i64 %rest, %grain
  %cut = icmp sgt i64 %parts, 1
  %some_pay = or i1 %enough, %cut
  %threads = call i32 @rx_threads()
  %many = icmp sgt i32 %threads, 1
  %pays = and i1 %some_pay, %many
  br i1 %pays, label %region, label %serial
region:
  %chunks = mul i64 %count, %parts
  call void @rx_parallel(ptr null, ptr @rx_together_chunk, ptr %group, i64 %chunks)
  ret void
serial:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %loop, label %out
loop:
  %i = phi i64 [ 0, %serial ], [ %i1, %loop ]
  %slot = call ptr @rx_slot(ptr %group, i64 %i)
  %fn = load ptr, ptr %slot
  %record = getelementptr i8, ptr %slot, i64 16
  call void %fn(ptr %record, i64 0, i64 1, i64 0)
  %i1 = add i64 %i, 1
  %again = icmp slt i64 %i1, %count
  br i1 %again, label %loop, label %out
out:
  ret void
}
""")
