"""The threads of a generated library's pool, as LLVM IR: how many, their start and stop, and where they run.

The regions that they work on are in ``pool_ir``, whose invariants 5 to 8 this file keeps.
"""

from string import Template
from typing import Final

MAX_THREADS: Final = 64
"""Worker numbers are below this, the caller's 0 included."""


def threads_text() -> str:
    """Return the part of the pool that manages its threads; the same for every architecture."""
    return _THREADS.substitute(MAX=MAX_THREADS)


_THREADS: Final = Template("""\
@rx_want = internal global i32 0, align 4
@rx_default = internal global i32 0, align 4
@rx_started = internal global i32 0, align 4
@rx_created = internal global i64 0
@rx_stop = internal global i32 0, align 4
@rx_registered = internal global i32 0, align 4
@rx_once = internal global i32 0, align 4
@rx_key = internal global i32 0, align 4
@rx_generation = internal global i32 1, align 4
@rx_handles = internal global [$MAX x i64] zeroinitializer
@rx_mask = internal global [128 x i64] zeroinitializer, align 16
@rx_avoided = internal global i32 -1, align 4
@rx_dso = internal global i64 0
@rx_env_name = private unnamed_addr constant [20 x i8] c"RELAXIR_NUM_THREADS\\00"
@rx_fini_entry = internal constant ptr @rx_fini, section ".fini_array"
@llvm.used = appending global [1 x ptr] [ptr @rx_fini_entry], section "llvm.metadata"
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_join(i64, ptr)
declare i32 @pthread_sigmask(i32, ptr, ptr)
declare i32 @pthread_setaffinity_np(i64, i64, ptr)
declare i32 @sched_getcpu()
declare i32 @sched_getaffinity(i32, i64, ptr)
declare ptr @getenv(ptr)
declare i64 @strtol(ptr, ptr, i32)
declare i32 @__register_atfork(ptr, ptr, ptr, ptr)
declare void @__cxa_finalize(ptr)
declare i32 @pthread_key_create(ptr, ptr)
declare i32 @pthread_key_delete(i32)
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare i64 @llvm.ctpop.i64(i64)

; ---- number of threads
define internal i32 @rx_count_cpus() nounwind {
entry:
  %mask = alloca [128 x i64], align 16
  %text = call ptr @getenv(ptr @rx_env_name)
  %unset = icmp eq ptr %text, null
  br i1 %unset, label %affinity, label %env
env:
  %value = call i64 @strtol(ptr %text, ptr null, i32 10)
  %valid = icmp sgt i64 %value, 0
  br i1 %valid, label %done, label %affinity
affinity:
  call void @llvm.memset.p0.i64(ptr align 16 %mask, i8 0, i64 1024, i1 false)
  %rc = call i32 @sched_getaffinity(i32 0, i64 1024, ptr %mask)
  br label %count
count:
  %i = phi i64 [ 0, %affinity ], [ %i1, %count ]
  %sum = phi i64 [ 0, %affinity ], [ %sum1, %count ]
  %word_p = getelementptr i64, ptr %mask, i64 %i
  %word = load i64, ptr %word_p
  %bits = call i64 @llvm.ctpop.i64(i64 %word)
  %sum1 = add i64 %sum, %bits
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, 128
  br i1 %more, label %count, label %done
done:
  %n = phi i64 [ %value, %env ], [ %sum1, %count ]
  %none = icmp slt i64 %n, 1
  %n1 = select i1 %none, i64 1, i64 %n
  %over = icmp sgt i64 %n1, $MAX
  %n2 = select i1 %over, i64 $MAX, i64 %n1
  %result = trunc i64 %n2 to i32
  ret i32 %result
}
define i32 @rx_threads() nounwind {
entry:
  %want = load atomic i32, ptr @rx_want monotonic, align 4
  %set = icmp ne i32 %want, 0
  br i1 %set, label %given, label %usual
given:
  ret i32 %want
usual:
  %known = load atomic i32, ptr @rx_default monotonic, align 4
  %have = icmp ne i32 %known, 0
  br i1 %have, label %old, label %ask
old:
  ret i32 %known
ask:
  %n = call i32 @rx_count_cpus()
  store atomic i32 %n, ptr @rx_default monotonic, align 4
  ret i32 %n
}
define void @rx_set_threads(i64 %n) nounwind {
  %negative = icmp slt i64 %n, 0
  %low = select i1 %negative, i64 0, i64 %n
  %over = icmp sgt i64 %low, $MAX
  %high = select i1 %over, i64 $MAX, i64 %low
  %want = trunc i64 %high to i32
  store atomic i32 %want, ptr @rx_want monotonic, align 4
  ret void
}

; ---- start and stop; both only while holding rx_busy
define internal void @rx_pool_stop() nounwind {
entry:
  %n = load i64, ptr @rx_created
  %none = icmp eq i64 %n, 0
  br i1 %none, label %clear, label %stop
stop:
  store atomic i32 1, ptr @rx_stop release, align 4
  %word = call i64 @rx_publish(i64 0, i32 2147483647)
  br label %join
join:
  %i = phi i64 [ 0, %stop ], [ %i1, %join ]
  %handle_p = getelementptr i64, ptr @rx_handles, i64 %i
  %handle = load i64, ptr %handle_p
  %rc = call i32 @pthread_join(i64 %handle, ptr null)
  %i1 = add i64 %i, 1
  %more = icmp ult i64 %i1, %n
  br i1 %more, label %join, label %clear
clear:
  store i64 0, ptr @rx_created
  store i32 0, ptr @rx_started
  store atomic i32 0, ptr @rx_stop release, align 4
  ret void
}
define internal void @rx_pool_start(i32 %threads) nounwind {
entry:
  %all = alloca [16 x i64], align 16
  %saved = alloca [16 x i64], align 16
  call void @rx_pool_stop()
  call void @rx_register()
  store i32 %threads, ptr @rx_started
  store i32 -1, ptr @rx_avoided
  call void @llvm.memset.p0.i64(ptr align 16 @rx_mask, i8 0, i64 1024, i1 false)
  %rc0 = call i32 @sched_getaffinity(i32 0, i64 1024, ptr @rx_mask)
  call void @llvm.memset.p0.i64(ptr align 16 %all, i8 -1, i64 128, i1 false)
  call void @llvm.memset.p0.i64(ptr align 16 %saved, i8 0, i64 128, i1 false)
  %m0 = call i32 @pthread_sigmask(i32 2, ptr %all, ptr %saved)
  %n = zext i32 %threads to i64
  br label %head
head:
  %id = phi i64 [ 1, %entry ], [ %id1, %made ]
  %more = icmp ult i64 %id, %n
  br i1 %more, label %make, label %done
make:
  %slot = sub i64 %id, 1
  %handle_p = getelementptr i64, ptr @rx_handles, i64 %slot
  %argument = inttoptr i64 %id to ptr
  %rc = call i32 @pthread_create(ptr %handle_p, ptr null, ptr @rx_worker, ptr %argument)
  %ok = icmp eq i32 %rc, 0
  br i1 %ok, label %made, label %done
made:
  store i64 %id, ptr @rx_created
  %id1 = add i64 %id, 1
  br label %head
done:
  %m1 = call i32 @pthread_sigmask(i32 2, ptr %saved, ptr null)
  ret void
}

; ---- keep the workers off the processor that the caller runs on; only while holding rx_busy
define internal void @rx_steer() nounwind {
entry:
  %cpu = call i32 @sched_getcpu()
  %avoided = load i32, ptr @rx_avoided
  %same = icmp eq i32 %cpu, %avoided
  %known = icmp ult i32 %cpu, 8192
  %keep = xor i1 %known, true
  %leave = or i1 %same, %keep
  br i1 %leave, label %done, label %change
change:
  store i32 %cpu, ptr @rx_avoided
  %n = load i64, ptr @rx_created
  %c = zext i32 %cpu to i64
  %at = lshr i64 %c, 6
  %shift = and i64 %c, 63
  %bit = shl i64 1, %shift
  %others = xor i64 %bit, -1
  %word_p = getelementptr i64, ptr @rx_mask, i64 %at
  %word = load i64, ptr %word_p
  %without = and i64 %word, %others
  store i64 %without, ptr %word_p
  br label %head
head:
  %i = phi i64 [ 0, %change ], [ %i1, %set ]
  %more = icmp ult i64 %i, %n
  br i1 %more, label %set, label %restore
set:
  %handle_p = getelementptr i64, ptr @rx_handles, i64 %i
  %handle = load i64, ptr %handle_p
  ; refused when no processor is left: the worker then stays where it was allowed to be
  %rc = call i32 @pthread_setaffinity_np(i64 %handle, i64 1024, ptr @rx_mask)
  %i1 = add i64 %i, 1
  br label %head
restore:
  store i64 %word, ptr %word_p
  br label %done
done:
  ret void
}

; ---- fork, the key of error texts, unloading
define internal void @rx_register() nounwind {
entry:
  %known = load atomic i32, ptr @rx_registered acquire, align 4
  %early = icmp eq i32 %known, 0
  br i1 %early, label %locked, label %done
locked:
  call void @rx_lock(ptr @rx_once)
  %again = load atomic i32, ptr @rx_registered acquire, align 4
  %first = icmp eq i32 %again, 0
  br i1 %first, label %register, label %unlock
register:
  %rc = call i32 @__register_atfork(ptr null, ptr null, ptr @rx_fork_child, ptr @rx_dso)
  %rc2 = call i32 @pthread_key_create(ptr @rx_key, ptr @free)
  store atomic i32 1, ptr @rx_registered release, align 4
  br label %unlock
unlock:
  call void @rx_unlock(ptr @rx_once)
  br label %done
done:
  ret void
}
define internal void @rx_fork_child() nounwind {
  store i64 0, ptr @rx_created
  store i32 0, ptr @rx_started
  store atomic i32 0, ptr @rx_stop monotonic, align 4
  store atomic i32 0, ptr @rx_sleepers monotonic, align 4
  store atomic i64 0, ptr @rx_done monotonic, align 8
  store atomic i64 0, ptr @rx_job monotonic, align 8
  store atomic i32 0, ptr @rx_busy monotonic, align 4
  %old = atomicrmw add ptr @rx_generation, i32 1 seq_cst
  ret void
}
define internal void @rx_fini() nounwind {
entry:
  %swap = cmpxchg ptr @rx_busy, i32 0, i32 1 acq_rel monotonic
  %won = extractvalue { i32, i1 } %swap, 1
  br i1 %won, label %stop, label %done
stop:
  call void @rx_pool_stop()
  br label %done
done:
  call void @__cxa_finalize(ptr @rx_dso)
  %registered = load atomic i32, ptr @rx_registered acquire, align 4
  %keyed = icmp ne i32 %registered, 0
  br i1 %keyed, label %unkey, label %end
unkey:
  %key = load i32, ptr @rx_key
  %text = call ptr @pthread_getspecific(i32 %key)
  %rc = call i32 @pthread_key_delete(i32 %key)
  call void @free(ptr %text)
  br label %end
end:
  ret void
}
""")
