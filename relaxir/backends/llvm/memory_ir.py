"""Memory of a generated library, as LLVM IR: blocks and the pool of result blocks.

Invariants:

1. Every block is 64-byte aligned, one of ``PAGED`` bytes or more to a page: a store and a later load whose addresses
   agree in their last twelve bits wait for each other, and arrays of NumPy begin a few bytes behind a page's start.
   Sizes are checked: a negative or absurd one (2^46 bytes or more) gives null, as
   does a failing allocator.
2. A block of the library's own carries a 64-byte header right in front; one from the caller's allocator carries none
   and is never pooled.
3. A free list changes by a single store, so a process forked in between finds a valid list (at worst one block is
   lost).
4. A bucket's list is ordered by time of return, latest first: what has not been used for ``KEEP`` allocations is a
   tail and is cut off.
5. Result blocks from ``SLABBED`` bytes up to ``HUGE`` are cut from slabs, several from one: on pages of 4 kB a copy of
   a megabyte takes more than twice the time it takes on huge ones. A slab is given back with the last of its blocks.
6. Sizes are rounded up to 4 to 8 classes an octave; large blocks are mapped, so the rounding costs addresses, not
   memory.
"""

from typing import Final

from relaxir.backends.llvm.ir_text import expand
from relaxir.backends.llvm.layout import FIELDS


def memory_text() -> str:
    """Return the block functions (they use the locks of the thread pool's text)."""
    return expand(_BLOCKS + _SLABS + _RESULTS, FIELDS)


_BLOCKS: Final = """\
declare ptr @aligned_alloc(i64, i64)
declare void @free(ptr)
declare ptr @mmap(ptr, i64, i32, i32, i32, i64)
declare i32 @munmap(ptr, i64)
declare i32 @madvise(ptr, i64, i32)
declare i64 @llvm.ctlz.i64(i64, i1 immarg)

; ---- one block of at least %bytes from the caller's allocator or the system; null on failure
define internal ptr @rx_block_new(ptr %ctx, i64 %bytes) nounwind {
entry:
  %sane = icmp ult i64 %bytes, $LIMIT
  br i1 %sane, label %whose, label %fail
whose:
  %alloc = get ptr %ctx CTX_ALLOC
  %own = icmp eq ptr %alloc, null
  br i1 %own, label %round, label %foreign
foreign:
  %user = get ptr %ctx CTX_USER
  %theirs = call ptr %alloc(ptr %user, i64 %bytes, i64 64)
  ret ptr %theirs
round:
  %bytes63 = add i64 %bytes, 63
  %size = and i64 %bytes63, -64
  %small = icmp ult i64 %size, $HUGE
  br i1 %small, label %heap, label %map
heap:
  %paged = icmp uge i64 %size, ${PAGED}
  %head = select i1 %paged, i64 4096, i64 64
  %total = add i64 %size, %head
  %raw = call ptr @aligned_alloc(i64 %head, i64 %total)
  %none = icmp eq ptr %raw, null
  br i1 %none, label %fail, label %heap_ok
heap_ok:
  %heap_block = getelementptr i8, ptr %raw, i64 %head
  put i64 0 %heap_block B_MAPPED
  put ptr %raw %heap_block B_BASE
  br label %ready
map:
  %length = add i64 %size, ${HUGE_PAGE}
  %pair = call { ptr, ptr } @rx_map(i64 %size, i64 %length)
  %area = extractvalue { ptr, ptr } %pair, 0
  %map_block = extractvalue { ptr, ptr } %pair, 1
  %failed = icmp eq ptr %area, null
  br i1 %failed, label %fail, label %map_ok
map_ok:
  put i64 %length %map_block B_MAPPED
  put ptr %area %map_block B_BASE
  br label %ready
ready:
  %block = phi ptr [ %heap_block, %heap_ok ], [ %map_block, %map_ok ]
  put i64 %size %block B_SIZE
  put ptr null %block B_NEXT
  ret ptr %block
fail:
  ret ptr null
}
define internal void @rx_block_delete(ptr %ctx, ptr %block) nounwind {
entry:
  %free = get ptr %ctx CTX_FREE
  %own = icmp eq ptr %free, null
  br i1 %own, label %mine, label %foreign
foreign:
  %user = get ptr %ctx CTX_USER
  call void %free(ptr %user, ptr %block)
  ret void
mine:
  %base = get ptr %block B_BASE
  %length = get i64 %block B_MAPPED
  %heap = icmp eq i64 %length, 0
  br i1 %heap, label %release, label %mapped
mapped:
  %part = icmp slt i64 %length, 0
  br i1 %part, label %leave, label %unmap
leave:
  call void @rx_slab_leave(ptr %base)
  ret void
release:
  call void @free(ptr %base)
  ret void
unmap:
  %rc = call i32 @munmap(ptr %base, i64 %length)
  ret void
}
; ---- delete a list of pooled blocks
define internal void @rx_block_list_delete(ptr %ctx, ptr %first) nounwind {
entry:
  br label %head
head:
  %block = phi ptr [ %first, %entry ], [ %next, %body ]
  %end = icmp eq ptr %block, null
  br i1 %end, label %done, label %body
body:
  %next = get ptr %block B_NEXT
  call void @rx_block_delete(ptr %ctx, ptr %block)
  br label %head
done:
  ret void
}
"""

_SLABS: Final = """\
; ---- map %length bytes, a huge page more than %size: the area (null on failure), and the first huge page that begins
;      in it behind room for the head of a block: areas begin with a page, so that is at most a huge page further
define internal { ptr, ptr } @rx_map(i64 %size, i64 %length) nounwind {
entry:
  %area = call ptr @mmap(ptr null, i64 %length, i32 3, i32 34, i32 -1, i64 0)
  %failed = icmp eq ptr %area, inttoptr (i64 -1 to ptr)
  br i1 %failed, label %fail, label %done
done:
  %start = ptrtoint ptr %area to i64
  %behind = add i64 %start, 2097215
  %place = and i64 %behind, -2097152
  %skip = sub i64 %place, %start
  %page = getelementptr i8, ptr %area, i64 %skip
  %advice = call i32 @madvise(ptr %page, i64 %size, i32 14)
  %half = insertvalue { ptr, ptr } undef, ptr %area, 0
  %pair = insertvalue { ptr, ptr } %half, ptr %page, 1
  ret { ptr, ptr } %pair
fail:
  ret { ptr, ptr } zeroinitializer
}
; ---- a new slab of blocks of %size bytes: the first of them, the others in the pool; null on failure
define internal ptr @rx_slab_new(ptr %ctx, i64 %size, i64 %bucket) nounwind {
entry:
  %wide = icmp uge i64 %size, $WIDE
  %room = select i1 %wide, i64 ${WIDE_SLAB}, i64 $SLAB
  %length = add i64 %room, ${HUGE_PAGE}
  %pair = call { ptr, ptr } @rx_map(i64 %room, i64 %length)
  %area = extractvalue { ptr, ptr } %pair, 0
  %slab = extractvalue { ptr, ptr } %pair, 1
  %failed = icmp eq ptr %area, null
  br i1 %failed, label %fail, label %cut
cut:
  %stride = add i64 %size, 4096
  %count = udiv i64 %room, %stride
  put i64 %count %slab S_COUNT
  put ptr %area %slab S_AREA
  put i64 %length %slab S_LENGTH
  %live = at %ctx CTX_LIVE
  br label %block
block:
  %i = phi i64 [ %count, %cut ], [ %i1, %pool ]
  %i1 = sub i64 %i, 1
  %offset = mul i64 %i1, %stride
  %offset1 = add i64 %offset, 4096
  %new = getelementptr i8, ptr %slab, i64 %offset1
  put i64 %size %new B_SIZE
  put i64 %bucket %new B_BUCKET
  put ptr %slab %new B_BASE
  put i64 -1 %new B_MAPPED
  put ptr null %new B_NEXT
  %first = icmp eq i64 %i1, 0
  br i1 %first, label %done, label %pool
pool:
  %live0 = atomicrmw add ptr %live, i64 1 monotonic
  call void @rx_free(ptr %ctx, ptr %new)
  br label %block
done:
  ret ptr %new
fail:
  ret ptr null
}
; ---- one block of a slab less
define internal void @rx_slab_leave(ptr %slab) nounwind {
entry:
  %count = at %slab S_COUNT
  %before = atomicrmw sub ptr %count, i64 1 acq_rel
  %last = icmp eq i64 %before, 1
  br i1 %last, label %unmap, label %done
unmap:
  %area = get ptr %slab S_AREA
  %length = get i64 %slab S_LENGTH
  %rc = call i32 @munmap(ptr %area, i64 %length)
  br label %done
done:
  ret void
}
"""

_RESULTS: Final = """\
; ---- result blocks
define ptr @rx_alloc(ptr %ctx, i64 %bytes) nounwind {
entry:
  %sane = icmp ult i64 %bytes, $LIMIT
  br i1 %sane, label %whose, label %fail
whose:
  %live = at %ctx CTX_LIVE
  %alloc = get ptr %ctx CTX_ALLOC
  %own = icmp eq ptr %alloc, null
  br i1 %own, label %class, label %foreign
foreign:
  %theirs = call ptr @rx_block_new(ptr %ctx, i64 %bytes)
  %none0 = icmp eq ptr %theirs, null
  br i1 %none0, label %fail, label %foreign_ok
foreign_ok:
  %live0 = atomicrmw add ptr %live, i64 1 monotonic
  ret ptr %theirs
class:
  %tiny = icmp ult i64 %bytes, 64
  %n = select i1 %tiny, i64 64, i64 %bytes
  %n1 = sub i64 %n, 1
  %zeros = call i64 @llvm.ctlz.i64(i64 %n1, i1 true)
  %shift = sub i64 61, %zeros
  %lead = lshr i64 %n1, %shift
  %lead1 = add i64 %lead, 1
  %size = shl i64 %lead1, %shift
  %octave = shl i64 %shift, 2
  %part = sub i64 %lead, 4
  %bucket = add i64 %octave, %part
  %buckets = at %ctx CTX_BUCKETS
  %head_p = getelementptr ptr, ptr %buckets, i64 %bucket
  %lock = at %ctx CTX_LOCK
  call void @rx_lock(ptr %lock)
  %clock = get i64 %ctx CTX_CLOCK
  %clock1 = add i64 %clock, 1
  put i64 %clock1 %ctx CTX_CLOCK
  %head = load ptr, ptr %head_p
  %empty = icmp eq ptr %head, null
  br i1 %empty, label %unlock, label %pop
pop:
  %rest = get ptr %head B_NEXT
  %had = get i64 %head B_SIZE
  store ptr %rest, ptr %head_p
  %pooled = get i64 %ctx CTX_POOLED
  %pooled1 = sub i64 %pooled, %had
  put i64 %pooled1 %ctx CTX_POOLED
  br label %unlock
unlock:
  call void @rx_unlock(ptr %lock)
  %low = and i64 %clock1, 63
  %due = icmp eq i64 %low, 0
  br i1 %due, label %sweep, label %have
sweep:
  %old = sub i64 %clock1, $KEEP
  call void @rx_pool_cut(ptr %ctx, i64 %old)
  br label %have
have:
  br i1 %empty, label %fresh, label %ok
fresh:
  %beyond = sub i64 %size, $SLABBED
  %slabbed = icmp ult i64 %beyond, sub (i64 $HUGE, i64 $SLABBED)
  br i1 %slabbed, label %slab, label %single
slab:
  %cut = call ptr @rx_slab_new(ptr %ctx, i64 %size, i64 %bucket)
  br label %made
single:
  %one = call ptr @rx_block_new(ptr %ctx, i64 %size)
  br label %made
made:
  %new = phi ptr [ %cut, %slab ], [ %one, %single ]
  %none = icmp eq ptr %new, null
  br i1 %none, label %fail, label %fresh_ok
fresh_ok:
  put i64 %bucket %new B_BUCKET
  br label %ok
ok:
  %block = phi ptr [ %head, %have ], [ %new, %fresh_ok ]
  %live1 = atomicrmw add ptr %live, i64 1 monotonic
  ret ptr %block
fail:
  ret ptr null
}
define void @rx_free(ptr %ctx, ptr %block) nounwind {
entry:
  %nothing = icmp eq ptr %block, null
  br i1 %nothing, label %done, label %whose
whose:
  %live = at %ctx CTX_LIVE
  %live0 = atomicrmw sub ptr %live, i64 1 monotonic
  %free = get ptr %ctx CTX_FREE
  %own = icmp eq ptr %free, null
  br i1 %own, label %push, label %foreign
foreign:
  call void @rx_block_delete(ptr %ctx, ptr %block)
  br label %done
push:
  %bucket = get i64 %block B_BUCKET
  %size = get i64 %block B_SIZE
  %buckets = at %ctx CTX_BUCKETS
  %head_p = getelementptr ptr, ptr %buckets, i64 %bucket
  %lock = at %ctx CTX_LOCK
  call void @rx_lock(ptr %lock)
  %clock = get i64 %ctx CTX_CLOCK
  put i64 %clock %block B_STAMP
  %head = load ptr, ptr %head_p
  put ptr %head %block B_NEXT
  store ptr %block, ptr %head_p
  %pooled = get i64 %ctx CTX_POOLED
  %pooled1 = add i64 %pooled, %size
  put i64 %pooled1 %ctx CTX_POOLED
  call void @rx_unlock(ptr %lock)
  br label %done
done:
  ret void
}
; ---- give back pooled blocks returned before the time %old
define internal void @rx_pool_cut(ptr %ctx, i64 %old) nounwind {
entry:
  %buckets = at %ctx CTX_BUCKETS
  %lock = at %ctx CTX_LOCK
  br label %bucket
bucket:
  %i = phi i64 [ 0, %entry ], [ %i1, %next_bucket ]
  %head_p = getelementptr ptr, ptr %buckets, i64 %i
  %any = load atomic ptr, ptr %head_p monotonic, align 8
  %empty = icmp eq ptr %any, null
  br i1 %empty, label %next_bucket, label %locked
locked:
  call void @rx_lock(ptr %lock)
  br label %look
look:
  %link = phi ptr [ %head_p, %locked ], [ %next_p, %keep ]
  %block = load ptr, ptr %link
  %end = icmp eq ptr %block, null
  br i1 %end, label %unlock, label %age
age:
  %stamp = get i64 %block B_STAMP
  %stale = icmp slt i64 %stamp, %old
  br i1 %stale, label %cut, label %keep
keep:
  %next_p = at %block B_NEXT
  br label %look
cut:
  store ptr null, ptr %link
  %pooled = get i64 %ctx CTX_POOLED
  br label %sum
sum:
  %b = phi ptr [ %block, %cut ], [ %b1, %sum ]
  %left = phi i64 [ %pooled, %cut ], [ %left1, %sum ]
  %size = get i64 %b B_SIZE
  %left1 = sub i64 %left, %size
  %b1 = get ptr %b B_NEXT
  %last = icmp eq ptr %b1, null
  br i1 %last, label %summed, label %sum
summed:
  put i64 %left1 %ctx CTX_POOLED
  br label %unlock
unlock:
  %gone = phi ptr [ null, %look ], [ %block, %summed ]
  call void @rx_unlock(ptr %lock)
  call void @rx_block_list_delete(ptr %ctx, ptr %gone)
  br label %next_bucket
next_bucket:
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, $BUCKETS
  br i1 %more, label %bucket, label %done
done:
  ret void
}
"""
