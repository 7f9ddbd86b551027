"""Kernel calls side by side, as LLVM IR: the parallel regions that end several kernels become one.

A kernel that may run beside others takes a *group* as its last argument. With null it behaves as usual. With a group
it does all but its last parallel loop, and notes that one down: the loop's function, a copy of the record that it
reads, and how many chunks and operations it has. `rx_together` then runs all that was noted as one region.

- In front stand the first halves of all loops, loop after loop, behind them the second halves, the last loop first. A
  thread that claims from the front has the front of each loop in one piece, as it would have one region after the
  other; one that claims from the back likewise: a kernel that follows finds what it reads in the same caches. Where
  the calls that follow are taken whole, so are these: all chunks of a loop stand before those of the next.
- It is one region if one of the loops would have been, or if what can run beside the longest loop is worth a chunk.
- With one thread each loop is one piece.
"""

from string import Template
from typing import Final

RECORD_WORDS: Final = 62
"""Most words of a record; a loop that takes more from outside runs at once."""
GROUP_EMPTY: Final = (0, 0, 0, 0)
"""First words of an empty group: loops, chunks of all, operations of all, those of the longest."""
GROUP_HEAD: Final = 8 * len(GROUP_EMPTY) + 16
"""Bytes before the first slot; the word behind those is 1 if loops should be taken whole, then one is unused."""
SLOT_BYTES: Final = 16 + 8 * RECORD_WORDS
"""A loop: its function, its chunks (1 at least), its record."""


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
  %all_p = getelementptr i8, ptr %group, i64 8
  %work_p = getelementptr i8, ptr %group, i64 16
  %most_p = getelementptr i8, ptr %group, i64 24
  %number = load i64, ptr %group
  %number1 = add i64 %number, 1
  store i64 %number1, ptr %group
  %slot = call ptr @rx_slot(ptr %group, i64 %number)
  store ptr %fn, ptr %slot
  %some = icmp sgt i64 %chunks, 1
  %own = select i1 %some, i64 %chunks, i64 1
  %own_p = getelementptr i8, ptr %slot, i64 8
  store i64 %own, ptr %own_p
  %all = load i64, ptr %all_p
  %all1 = add i64 %all, %own
  store i64 %all1, ptr %all_p
  %sum = load i64, ptr %work_p
  %sum1 = add i64 %sum, %work
  store i64 %sum1, ptr %work_p
  %most = load i64, ptr %most_p
  %longer = icmp sgt i64 %work, %most
  %most1 = select i1 %longer, i64 %work, i64 %most
  store i64 %most1, ptr %most_p
  %to = getelementptr i8, ptr %slot, i64 16
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

; ---- the chunk of the region: first halves forwards, then second halves backwards
define internal void @rx_together_chunk(ptr %group, i64 %chunk, i64 %chunks, i64 %worker) nounwind {
entry:
  %count = load i64, ptr %group
  %whole_p = getelementptr i8, ptr %group, i64 32
  %whole_w = load i64, ptr %whole_p
  %whole = icmp ne i64 %whole_w, 0
  br label %forwards
forwards:
  %i = phi i64 [ 0, %entry ], [ %i1, %past ]
  %left = phi i64 [ %chunk, %entry ], [ %left1, %past ]
  %more = icmp slt i64 %i, %count
  br i1 %more, label %front, label %backwards
front:
  %slot_f = call ptr @rx_slot(ptr %group, i64 %i)
  %own_fp = getelementptr i8, ptr %slot_f, i64 8
  %own_f = load i64, ptr %own_fp
  %own_f1 = add i64 %own_f, 1
  %share_f = lshr i64 %own_f1, 1
  %half_f = select i1 %whole, i64 %own_f, i64 %share_f
  %in_f = icmp slt i64 %left, %half_f
  br i1 %in_f, label %run, label %past
past:
  %left1 = sub i64 %left, %half_f
  %i1 = add i64 %i, 1
  br label %forwards
backwards:
  %k = phi i64 [ %count, %forwards ], [ %k1, %back ]
  %over = phi i64 [ %left, %forwards ], [ %over1, %back ]
  %k1 = sub i64 %k, 1
  %slot_b = call ptr @rx_slot(ptr %group, i64 %k1)
  %own_bp = getelementptr i8, ptr %slot_b, i64 8
  %own_b = load i64, ptr %own_bp
  %own_b1 = add i64 %own_b, 1
  %half_b = lshr i64 %own_b1, 1
  %part_b = add i64 %half_b, %over
  %in_b = icmp slt i64 %part_b, %own_b
  br i1 %in_b, label %run, label %back
back:
  %over1 = sub i64 %part_b, %own_b
  br label %backwards
run:
  %slot = phi ptr [ %slot_f, %front ], [ %slot_b, %backwards ]
  %part = phi i64 [ %left, %front ], [ %part_b, %backwards ]
  %own = phi i64 [ %own_f, %front ], [ %own_b, %backwards ]
  %fn = load ptr, ptr %slot
  %record = getelementptr i8, ptr %slot, i64 16
  call void %fn(ptr %record, i64 %part, i64 %own, i64 %worker)
  ret void
}

; ---- run what was noted; %grain operations are worth a chunk
define void @rx_together(ptr %group, i64 %grain) nounwind {
entry:
  %all_p = getelementptr i8, ptr %group, i64 8
  %work_p = getelementptr i8, ptr %group, i64 16
  %most_p = getelementptr i8, ptr %group, i64 24
  %count = load i64, ptr %group
  %all = load i64, ptr %all_p
  %work = load i64, ptr %work_p
  %most = load i64, ptr %most_p
  %rest = sub i64 %work, %most
  %enough = icmp sge i64 %rest, %grain
  %cut = icmp sgt i64 %all, %count
  %some_pay = or i1 %enough, %cut
  %threads = call i32 @rx_threads()
  %many = icmp sgt i32 %threads, 1
  %pays = and i1 %some_pay, %many
  br i1 %pays, label %region, label %serial
region:
  call void @rx_parallel(ptr null, ptr @rx_together_chunk, ptr %group, i64 %all)
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
