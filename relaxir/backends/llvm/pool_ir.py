"""The thread pool of a generated library, as LLVM IR: its regions; its threads are in ``pool_threads_ir``.

Protocol (invariants):

1. ``rx_job`` is one word, ``epoch(32) | back(16) | front(16)``: chunks from ``front`` up to ``back`` are free.
   Publishing a region stores a new word; a chunk is claimed at one of the ends by compare-and-swap. A successful claim
   proves that the region of that word was still open, so ``rx_fn``, ``rx_arg`` and ``rx_chunks``, read before it,
   belong to it. Workers of odd number claim from the back, the caller from the front: in region after region a
   thread meets the part of the data that its cache has.
2. A region ends when all its *chunks* are finished (``rx_done``), never by waiting for a thread that has not started.
3. ``rx_busy`` admits one region at a time. Whoever finds it taken (a nested or a concurrent caller) runs its chunks
   itself, as worker 0.
4. A waiting worker spins, then sleeps on the upper half of ``rx_job``; it counts itself in ``rx_sleepers`` *before*
   it looks at the word for the last time, and a publisher looks at ``rx_sleepers`` *after* it stored the word (both
   sequentially consistent): no wake-up is lost.
5. After ``fork`` the child has no workers: its handler empties the pool and raises ``rx_generation``, which frees
   every spin lock that a vanished thread held. Threads start again at the next region.
6. Stopping publishes a region of no chunks after setting ``rx_stop``. A worker may meet that word anywhere, also while
   it looks for chunks of the region before; so it looks at ``rx_stop`` whenever it has no more chunks.
7. A region steers the workers away from its caller's processor when that has changed since the last one: a woken thread
   goes back to the processor it slept on, and on a busy machine it would wait there behind the caller until the
   kernel's load balancer acts, which takes longer than most regions.
8. ``.fini_array`` stops and joins the workers and withdraws the fork handler, so the library can be closed.
"""

from string import Template
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm.pool_threads_ir import threads_text
from relaxir.backends.llvm.target import MADE_FOR, Target
from relaxir.support.errors import TargetError

MAX_CHUNKS: Final = 65535
"""A region of more chunks runs serially."""

_PAUSE: Final = MappingProxyType(
    {
        "x86_64": ("declare void @llvm.x86.sse2.pause()", "call void @llvm.x86.sse2.pause()"),
        "aarch64": ("declare void @llvm.aarch64.hint(i32 immarg)", "call void @llvm.aarch64.hint(i32 1)"),
        "riscv64": ("", "fence seq_cst"),
    }
)
_FUTEX: Final = MappingProxyType({"x86_64": 202, "aarch64": 98, "riscv64": 98})


def pool_text(target: Target, spin: int = 2000) -> str:
    """Return the pool for ``target``; a waiting thread executes ``spin`` pauses before it sleeps.

    Raises:
        TargetError: no Linux threads on this architecture.
    """
    if target.arch not in _PAUSE or "linux" not in target.triple:
        raise TargetError(
            f"a library cannot be made for {target.name}: it has no Linux threads",
            code="target-features",
            help=MADE_FOR,
        )
    declare, call = _PAUSE[target.arch]
    regions = _POOL.substitute(
        PAUSE_DECL=declare, PAUSE=call, FUTEX=_FUTEX[target.arch], SPIN=spin, CHUNKS=MAX_CHUNKS - 1
    )
    return regions + threads_text()


_POOL: Final = Template("""\
@rx_job = internal global { i64, [56 x i8] } zeroinitializer, align 64
@rx_done = internal global { i64, [56 x i8] } zeroinitializer, align 64
@rx_fn = internal global { ptr, [56 x i8] } zeroinitializer, align 64
@rx_arg = internal global ptr null
@rx_chunks = internal global i64 0
@rx_sleepers = internal global { i32, [60 x i8] } zeroinitializer, align 64
@rx_busy = internal global { i32, [60 x i8] } zeroinitializer, align 64
$PAUSE_DECL
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()

; ---- spin locks: 0 free, the generation held; a lock of an older generation belonged to a thread lost in fork
define internal void @rx_lock(ptr %lock) nounwind {
entry:
  %generation = load atomic i32, ptr @rx_generation monotonic, align 4
  br label %look
look:
  %k = phi i32 [ 0, %entry ], [ %k1, %wait ], [ 0, %yield ]
  %value = load atomic i32, ptr %lock monotonic, align 4
  %held = icmp eq i32 %value, %generation
  br i1 %held, label %wait, label %take
take:
  %swap = cmpxchg ptr %lock, i32 %value, i32 %generation acquire monotonic
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %done, label %wait
wait:
  $PAUSE
  %k1 = add i32 %k, 1
  %long = icmp ugt i32 %k1, 200
  br i1 %long, label %yield, label %look
yield:
  %ignored = call i32 @sched_yield()
  br label %look
done:
  ret void
}
define internal void @rx_unlock(ptr %lock) nounwind {
  store atomic i32 0, ptr %lock release, align 4
  ret void
}

; ---- claim and run chunks of the regions seen, starting from the word %first; returns the last epoch seen
define internal i64 @rx_claim(i64 %first, i64 %id) nounwind {
entry:
  %side = and i64 %id, 1
  %odd = icmp ne i64 %side, 0
  %change = select i1 %odd, i64 -65536, i64 1
  br label %region
region:
  %w0 = phi i64 [ %first, %entry ], [ %now, %next ]
  %epoch = lshr i64 %w0, 32
  %fn = load atomic ptr, ptr @rx_fn monotonic, align 8
  %arg = load atomic ptr, ptr @rx_arg monotonic, align 8
  %chunks = load atomic i64, ptr @rx_chunks monotonic, align 8
  br label %claim
claim:
  %w = phi i64 [ %w0, %region ], [ %now, %next ]
  %front = and i64 %w, 65535
  %shifted = lshr i64 %w, 16
  %back = and i64 %shifted, 65535
  %open = icmp ult i64 %front, %back
  br i1 %open, label %try, label %done
try:
  %behind = sub i64 %back, 1
  %chunk = select i1 %odd, i64 %behind, i64 %front
  %w1 = add i64 %w, %change
  %swap = cmpxchg ptr @rx_job, i64 %w, i64 %w1 acq_rel acquire
  %old = extractvalue { i64, i1 } %swap, 0
  %won = extractvalue { i64, i1 } %swap, 1
  br i1 %won, label %run, label %next
run:
  call void %fn(ptr %arg, i64 %chunk, i64 %chunks, i64 %id)
  %ignored = atomicrmw add ptr @rx_done, i64 1 release
  %after = load atomic i64, ptr @rx_job acquire, align 8
  br label %next
next:
  %now = phi i64 [ %old, %try ], [ %after, %run ]
  %now_epoch = lshr i64 %now, 32
  %same = icmp eq i64 %now_epoch, %epoch
  br i1 %same, label %claim, label %region
done:
  ret i64 %epoch
}

define internal ptr @rx_worker(ptr %argument) nounwind {
entry:
  %id = ptrtoint ptr %argument to i64
  %epoch_p = getelementptr i8, ptr @rx_job, i64 4
  br label %outer
outer:
  %last = phi i64 [ 0, %entry ], [ %seen, %work ]
  %stop = load atomic i32, ptr @rx_stop acquire, align 4
  %leave = icmp ne i32 %stop, 0
  br i1 %leave, label %exit, label %spin
spin:
  %i = phi i32 [ 0, %outer ], [ %i1, %again ]
  %word = load atomic i64, ptr @rx_job acquire, align 8
  %epoch = lshr i64 %word, 32
  %new = icmp ne i64 %epoch, %last
  br i1 %new, label %work, label %again
again:
  $PAUSE
  %i1 = add i32 %i, 1
  %long = icmp ugt i32 %i1, $SPIN
  br i1 %long, label %sleep, label %spin
sleep:
  %s0 = atomicrmw add ptr @rx_sleepers, i32 1 seq_cst
  br label %check
check:
  %word2 = load atomic i64, ptr @rx_job seq_cst, align 8
  %epoch2 = lshr i64 %word2, 32
  %new2 = icmp ne i64 %epoch2, %last
  br i1 %new2, label %awake, label %wait
wait:
  %expected = trunc i64 %last to i32
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %epoch_p, i32 128, i32 %expected, ptr null, ptr null, i32 0)
  br label %check
awake:
  %s1 = atomicrmw sub ptr @rx_sleepers, i32 1 seq_cst
  br label %work
work:
  %found = phi i64 [ %word, %spin ], [ %word2, %awake ]
  %seen = call i64 @rx_claim(i64 %found, i64 %id)
  br label %outer
exit:
  ret ptr null
}

; ---- publish a region of %chunks chunks and wake up to %wake sleepers; returns the word
define internal i64 @rx_publish(i64 %chunks, i32 %wake) nounwind {
entry:
  store atomic i64 0, ptr @rx_done monotonic, align 8
  %old = load atomic i64, ptr @rx_job monotonic, align 8
  %epoch = lshr i64 %old, 32
  %epoch1 = add i64 %epoch, 1
  %high = shl i64 %epoch1, 32
  %middle = shl i64 %chunks, 16
  %word = or i64 %high, %middle
  store atomic i64 %word, ptr @rx_job seq_cst, align 8
  %sleepers = load atomic i32, ptr @rx_sleepers seq_cst, align 4
  %any = icmp sgt i32 %sleepers, 0
  br i1 %any, label %wake_up, label %done
wake_up:
  %epoch_p = getelementptr i8, ptr @rx_job, i64 4
  %r = call i64 (i64, ...) @syscall(i64 $FUTEX, ptr %epoch_p, i32 129, i32 %wake, ptr null, ptr null, i32 0)
  br label %done
done:
  ret i64 %word
}

; ---- run body(arg, chunk, chunks, worker) for every chunk
define void @rx_parallel(ptr %ctx, ptr %body, ptr %arg, i64 %chunks) nounwind {
entry:
  %below = sub i64 %chunks, 2
  %fits = icmp ult i64 %below, ${CHUNKS}
  br i1 %fits, label %count, label %serial
count:
  %threads = call i32 @rx_threads()
  %many = icmp sgt i32 %threads, 1
  br i1 %many, label %try, label %serial
try:
  %swap = cmpxchg ptr @rx_busy, i32 0, i32 1 acquire monotonic
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %ready, label %serial
ready:
  %started = load i32, ptr @rx_started
  %same = icmp eq i32 %started, %threads
  br i1 %same, label %go, label %start
start:
  call void @rx_pool_start(i32 %threads)
  br label %go
go:
  call void @rx_steer()
  store atomic ptr %body, ptr @rx_fn monotonic, align 8
  store atomic ptr %arg, ptr @rx_arg monotonic, align 8
  store atomic i64 %chunks, ptr @rx_chunks monotonic, align 8
  %others = trunc i64 %chunks to i32
  %wake = sub i32 %others, 1
  %word = call i64 @rx_publish(i64 %chunks, i32 %wake)
  %epoch = call i64 @rx_claim(i64 %word, i64 0)
  br label %join
join:
  %k = phi i32 [ 0, %go ], [ %k1, %pause ], [ 0, %yield ]
  %done = load atomic i64, ptr @rx_done acquire, align 8
  %all = icmp eq i64 %done, %chunks
  br i1 %all, label %end, label %pause
pause:
  $PAUSE
  %k1 = add i32 %k, 1
  %long = icmp ugt i32 %k1, $SPIN
  br i1 %long, label %yield, label %join
yield:
  %ignored = call i32 @sched_yield()
  br label %join
end:
  store atomic i32 0, ptr @rx_busy release, align 4
  ret void
serial:
  %some = icmp sgt i64 %chunks, 0
  br i1 %some, label %loop, label %out
loop:
  %i = phi i64 [ 0, %serial ], [ %i1, %loop ]
  call void %body(ptr %arg, i64 %i, i64 %chunks, i64 0)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %chunks
  br i1 %more, label %loop, label %out
out:
  ret void
}
""")
