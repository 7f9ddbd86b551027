"""Workspaces of a generated library, as LLVM IR: the error record and the stack of frames that one call uses.

Invariants:

1. A workspace belongs to one call from ``rx_ws_acquire`` to ``rx_ws_release``. Frames are pushed and popped by the
   calling thread only; ``rx_fail`` may be called from any thread working for that call. The first failure wins.
2. A frame never moves. The stack is a list of chunks; a new chunk replaces only empty ones.
3. Frames are 64-byte aligned, and popped in reverse order with the size they were pushed with. A call that fails need
   not pop: release empties the stack.
4. Chunks are kept between calls. After ``CALM`` calls in a row that needed less than a quarter of what is kept, all
   are given back.
5. Host programs call each other between ``rx_enter``, which refuses when they are nested too deeply for the native
   stack, and ``rx_leave``. A call that fails need not leave: acquire starts at depth 0.
"""

from typing import Final

from relaxir.backends.llvm.ir_text import expand
from relaxir.backends.llvm.layout import FIELDS


def workspace_text() -> str:
    """Return the workspace functions (they use the locks, the block functions and the messages)."""
    return expand(_STACK + _WORKSPACES, FIELDS)


_STACK: Final = """\
; ---- delete a chunk and all behind it
define internal void @rx_chunks_delete(ptr %ws, ptr %first) nounwind {
entry:
  %ctx = get ptr %ws WS_CTX
  br label %head
head:
  %chunk = phi ptr [ %first, %entry ], [ %next, %body ]
  %end = icmp eq ptr %chunk, null
  br i1 %end, label %done, label %body
body:
  %next = get ptr %chunk C_NEXT
  %size = get i64 %chunk C_SIZE
  %capacity = get i64 %ws WS_CAPACITY
  %capacity1 = sub i64 %capacity, %size
  put i64 %capacity1 %ws WS_CAPACITY
  call void @rx_block_delete(ptr %ctx, ptr %chunk)
  br label %head
done:
  ret void
}
; ---- make a chunk with room for %bytes the current one; null on failure
define internal ptr @rx_chunk_grow(ptr %ws, i64 %bytes) nounwind {
entry:
  %ctx = get ptr %ws WS_CTX
  %cur = get ptr %ws WS_CUR
  %start = icmp eq ptr %cur, null
  br i1 %start, label %fresh, label %behind
behind:
  %next = get ptr %cur C_NEXT
  %last = icmp eq ptr %next, null
  br i1 %last, label %front, label %fits
fits:
  %next_size = get i64 %next C_SIZE
  %room = icmp uge i64 %next_size, %bytes
  br i1 %room, label %take, label %drop
take:
  put ptr %next %ws WS_CUR
  ret ptr %next
drop:
  put ptr null %cur C_NEXT
  call void @rx_chunks_delete(ptr %ws, ptr %next)
  br label %front
front:
  %used = get i64 %cur C_USED
  %idle = icmp eq i64 %used, 0
  br i1 %idle, label %replace, label %fresh
replace:
  %before = get ptr %cur C_PREV
  put ptr null %ws WS_CUR
  put ptr null %ws WS_FIRST
  call void @rx_chunks_delete(ptr %ws, ptr %cur)
  br label %fresh
fresh:
  %prev = phi ptr [ null, %entry ], [ %cur, %front ], [ %before, %replace ]
  %capacity = get i64 %ws WS_CAPACITY
  %huge = icmp ugt i64 %capacity, ${CHUNK_MAX}
  %spare = select i1 %huge, i64 ${CHUNK_MAX}, i64 %capacity
  %poor = icmp ult i64 %spare, ${CHUNK_MIN}
  %least = select i1 %poor, i64 ${CHUNK_MIN}, i64 %spare
  %large = icmp ugt i64 %bytes, %least
  %size = select i1 %large, i64 %bytes, i64 %least
  %total = add i64 %size, ${C_HEAD}
  %chunk = call ptr @rx_block_new(ptr %ctx, i64 %total)
  %none = icmp eq ptr %chunk, null
  br i1 %none, label %fail, label %made
made:
  put ptr %prev %chunk C_PREV
  put ptr null %chunk C_NEXT
  put i64 %size %chunk C_SIZE
  put i64 0 %chunk C_USED
  %capacity1 = get i64 %ws WS_CAPACITY
  %capacity2 = add i64 %capacity1, %size
  put i64 %capacity2 %ws WS_CAPACITY
  put ptr %chunk %ws WS_CUR
  %alone = icmp eq ptr %prev, null
  br i1 %alone, label %first, label %linked
first:
  put ptr %chunk %ws WS_FIRST
  ret ptr %chunk
linked:
  put ptr %chunk %prev C_NEXT
  ret ptr %chunk
fail:
  ret ptr null
}
define internal i64 @rx_frame_size(i64 %bytes) nounwind {
  %zero = icmp eq i64 %bytes, 0
  %some = select i1 %zero, i64 1, i64 %bytes
  %up = add i64 %some, 63
  %size = and i64 %up, -64
  ret i64 %size
}
define ptr @rx_frame_push(ptr %ws, i64 %bytes) nounwind {
entry:
  %sane = icmp ult i64 %bytes, $LIMIT
  br i1 %sane, label %round, label %fail
round:
  %size = call i64 @rx_frame_size(i64 %bytes)
  %cur = get ptr %ws WS_CUR
  %none = icmp eq ptr %cur, null
  br i1 %none, label %grow, label %look
look:
  %had = get i64 %cur C_USED
  %end = add i64 %had, %size
  %room = get i64 %cur C_SIZE
  %fits = icmp ule i64 %end, %room
  br i1 %fits, label %take, label %grow
grow:
  %new = call ptr @rx_chunk_grow(ptr %ws, i64 %size)
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %fail, label %take
take:
  %chunk = phi ptr [ %cur, %look ], [ %new, %grow ]
  %used = get i64 %chunk C_USED
  %used1 = add i64 %used, %size
  put i64 %used1 %chunk C_USED
  %live = get i64 %ws WS_LIVE
  %live1 = add i64 %live, %size
  put i64 %live1 %ws WS_LIVE
  %peak = get i64 %ws WS_PEAK
  %higher = icmp ugt i64 %live1, %peak
  %peak1 = select i1 %higher, i64 %live1, i64 %peak
  put i64 %peak1 %ws WS_PEAK
  %base = getelementptr i8, ptr %chunk, i64 ${C_HEAD}
  %frame = getelementptr i8, ptr %base, i64 %used
  ret ptr %frame
fail:
  ret ptr null
}
define void @rx_frame_pop(ptr %ws, i64 %bytes) nounwind {
entry:
  %size = call i64 @rx_frame_size(i64 %bytes)
  %cur = get ptr %ws WS_CUR
  %used = get i64 %cur C_USED
  %used1 = sub i64 %used, %size
  put i64 %used1 %cur C_USED
  %live = get i64 %ws WS_LIVE
  %live1 = sub i64 %live, %size
  put i64 %live1 %ws WS_LIVE
  %empty = icmp eq i64 %used1, 0
  br i1 %empty, label %back, label %done
back:
  %prev = get ptr %cur C_PREV
  %bottom = icmp eq ptr %prev, null
  br i1 %bottom, label %done, label %down
down:
  put ptr %prev %ws WS_CUR
  br label %done
done:
  ret void
}
"""

_WORKSPACES: Final = """\
define void @rx_fail(ptr %ws, i32 %code, i32 %site, i64 %v0, i64 %v1, i64 %v2, i64 %v3) nounwind {
entry:
  %swap = cmpxchg ptr %ws, i32 0, i32 %code acq_rel monotonic
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %record, label %done
record:
  put i32 %site %ws WS_SITE
  put i64 %v0 %ws WS_V0
  put i64 %v1 %ws WS_V1
  put i64 %v2 %ws WS_V2
  put i64 %v3 %ws WS_V3
  br label %done
done:
  ret void
}
; ---- which call of a kernel failed: a kernel may serve several nodes
define void @rx_place(ptr %ws, i32 %site) nounwind {
entry:
  %place = add i32 %site, 1
  put i32 %place %ws WS_PLACE
  ret void
}
define i1 @rx_enter(ptr %ws, ptr %here) nounwind {
entry:
  %depth = get i64 %ws WS_DEPTH
  %outer = icmp eq i64 %depth, 0
  br i1 %outer, label %first, label %check
first:
  put ptr %here %ws WS_STACK
  br label %check
check:
  %start = get ptr %ws WS_STACK
  %high = ptrtoint ptr %start to i64
  %low = ptrtoint ptr %here to i64
  %used = sub i64 %high, %low
  %depth1 = add i64 %depth, 1
  put i64 %depth1 %ws WS_DEPTH
  %few = icmp slt i64 %depth, $DEPTH
  %room = icmp slt i64 %used, $STACK
  %fine = and i1 %few, %room
  ret i1 %fine
}
define void @rx_leave(ptr %ws) nounwind {
entry:
  %depth = get i64 %ws WS_DEPTH
  %depth1 = sub i64 %depth, 1
  put i64 %depth1 %ws WS_DEPTH
  ret void
}
; ---- a workspace for a call; null and a text where there is no memory
define ptr @rx_ws_acquire(ptr %ctx) nounwind {
entry:
  %lock = at %ctx CTX_WS_LOCK
  call void @rx_lock(ptr %lock)
  %ws = get ptr %ctx CTX_WS_LIST
  %none = icmp eq ptr %ws, null
  br i1 %none, label %make, label %take
take:
  %next = get ptr %ws WS_NEXT
  put ptr %next %ctx CTX_WS_LIST
  call void @rx_unlock(ptr %lock)
  put i32 0 %ws WS_CODE
  put i32 0 %ws WS_PLACE
  put i64 0 %ws WS_PEAK
  put i64 0 %ws WS_DEPTH
  ret ptr %ws
make:
  call void @rx_unlock(ptr %lock)
  %new = call ptr @aligned_alloc(i64 64, i64 ${WS_BYTES})
  %failed = icmp eq ptr %new, null
  br i1 %failed, label %fail, label %made
made:
  call void @llvm.memset.p0.i64(ptr align 64 %new, i8 0, i64 ${WS_BYTES}, i1 false)
  put ptr %ctx %new WS_CTX
  %count = at %ctx CTX_WS_COUNT
  %old = atomicrmw add ptr %count, i64 1 monotonic
  ret ptr %new
fail:
  call void @rx_say(ptr @rx_text_size, i64 0, i64 0, i64 0, i64 0)
  ret ptr null
}
define void @rx_ws_release(ptr %ctx, ptr %ws) nounwind {
entry:
  %first = get ptr %ws WS_FIRST
  br label %head
head:
  %chunk = phi ptr [ %first, %entry ], [ %next, %body ]
  %end = icmp eq ptr %chunk, null
  br i1 %end, label %measure, label %body
body:
  put i64 0 %chunk C_USED
  %next = get ptr %chunk C_NEXT
  br label %head
measure:
  put ptr %first %ws WS_CUR
  put i64 0 %ws WS_LIVE
  %peak = get i64 %ws WS_PEAK
  %low = icmp ult i64 %peak, 65536
  %need = select i1 %low, i64 65536, i64 %peak
  %enough = shl i64 %need, 2
  %capacity = get i64 %ws WS_CAPACITY
  %roomy = icmp ugt i64 %capacity, %enough
  %calm = get i64 %ws WS_CALM
  %calm1 = add i64 %calm, 1
  %calm2 = select i1 %roomy, i64 %calm1, i64 0
  put i64 %calm2 %ws WS_CALM
  %due = icmp uge i64 %calm2, $CALM
  br i1 %due, label %trim, label %push
trim:
  call void @rx_ws_trim(ptr %ws)
  br label %push
push:
  %lock = at %ctx CTX_WS_LOCK
  call void @rx_lock(ptr %lock)
  %list = get ptr %ctx CTX_WS_LIST
  put ptr %list %ws WS_NEXT
  put ptr %ws %ctx CTX_WS_LIST
  call void @rx_unlock(ptr %lock)
  ret void
}
; ---- give back all chunks of an idle workspace
define internal void @rx_ws_trim(ptr %ws) nounwind {
  %first = get ptr %ws WS_FIRST
  put ptr null %ws WS_FIRST
  put ptr null %ws WS_CUR
  put i64 0 %ws WS_CALM
  call void @rx_chunks_delete(ptr %ws, ptr %first)
  ret void
}
; ---- take all idle workspaces out of the list
define internal ptr @rx_ws_take_all(ptr %ctx) nounwind {
  %lock = at %ctx CTX_WS_LOCK
  call void @rx_lock(ptr %lock)
  %list = get ptr %ctx CTX_WS_LIST
  put ptr null %ctx CTX_WS_LIST
  call void @rx_unlock(ptr %lock)
  ret ptr %list
}
; ---- give back everything that is not in use
define void @rx_trim(ptr %ctx) nounwind {
entry:
  call void @rx_pool_cut(ptr %ctx, i64 9223372036854775807)
  %list = call ptr @rx_ws_take_all(ptr %ctx)
  br label %head
head:
  %ws = phi ptr [ %list, %entry ], [ %next, %body ]
  %end = icmp eq ptr %ws, null
  br i1 %end, label %done, label %body
body:
  %next = get ptr %ws WS_NEXT
  %count = at %ctx CTX_WS_COUNT
  %old = atomicrmw sub ptr %count, i64 1 monotonic
  call void @rx_ws_trim(ptr %ws)
  call void @free(ptr %ws)
  br label %head
done:
  ret void
}
"""
