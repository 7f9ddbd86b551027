"""The thread pool: every chunk exactly once, nested and concurrent callers, fork, unloading."""

import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest

from relaxir.backends.llvm.compile import Workers, compile_objects
from relaxir.backends.llvm.elf import link
from relaxir.backends.llvm.library import LoadedLibrary
from relaxir.backends.llvm.loader import load_memory, unload
from relaxir.backends.llvm.pool_ir import pool_text
from relaxir.backends.llvm.runtime_ir import RUNTIME_DECLARATIONS
from relaxir.backends.llvm.target import Target
from tests.backends.library_types import BuildLibrary, LoadLibrary

DRIVER = (
    RUNTIME_DECLARATIONS
    + """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
define internal void @mark(ptr %counts, i64 %chunk, i64 %chunks, i64 %worker) {
  %p = getelementptr i32, ptr %counts, i64 %chunk
  %old = atomicrmw add ptr %p, i32 1 monotonic
  ret void
}
define internal void @inner(ptr %sum, i64 %chunk, i64 %chunks, i64 %worker) {
  %old = atomicrmw add ptr %sum, i64 1 monotonic
  ret void
}
define internal void @outer(ptr %sum, i64 %chunk, i64 %chunks, i64 %worker) {
  call void @rx_parallel(ptr null, ptr @inner, ptr %sum, i64 5)
  ret void
}
; regions of sizes[i] chunks (below 48); returns how many counters were wrong after their region
define i64 @stress(i64 %regions, ptr %counts, ptr %sizes) {
entry:
  br label %region
region:
  %i = phi i64 [ 0, %entry ], [ %i1, %next ]
  %bad = phi i64 [ 0, %entry ], [ %bad1, %next ]
  %size_p = getelementptr i64, ptr %sizes, i64 %i
  %n = load i64, ptr %size_p
  call void @llvm.memset.p0.i64(ptr %counts, i8 0, i64 192, i1 false)
  fence seq_cst
  call void @rx_parallel(ptr null, ptr @mark, ptr %counts, i64 %n)
  br label %check
check:
  %j = phi i64 [ 0, %region ], [ %j1, %check ]
  %b = phi i64 [ %bad, %region ], [ %b1, %check ]
  %count_p = getelementptr i32, ptr %counts, i64 %j
  %count = load atomic i32, ptr %count_p monotonic, align 4
  %inside = icmp slt i64 %j, %n
  %expected = zext i1 %inside to i32
  %wrong = icmp ne i32 %count, %expected
  %one = zext i1 %wrong to i64
  %b1 = add i64 %b, %one
  %j1 = add i64 %j, 1
  %more = icmp slt i64 %j1, 48
  br i1 %more, label %check, label %next
next:
  %bad1 = phi i64 [ %b1, %check ]
  %i1 = add i64 %i, 1
  %again = icmp slt i64 %i1, %regions
  br i1 %again, label %region, label %done
done:
  ret i64 %bad1
}
declare void @rx_set_threads(i64)
; n regions, each after a change of the number of threads
define void @restart(i64 %n, ptr %counts) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %odd = and i64 %i, 1
  %threads = add i64 %odd, 2
  call void @rx_set_threads(i64 %threads)
  call void @rx_parallel(ptr null, ptr @mark, ptr %counts, i64 4)
  call void @rx_parallel(ptr null, ptr @mark, ptr %counts, i64 4)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %done
done:
  ret void
}
define void @mark_all(ptr %counts, i64 %chunks) {
  call void @rx_parallel(ptr null, ptr @mark, ptr %counts, i64 %chunks)
  ret void
}
define i64 @nested(i64 %chunks) {
  %sum = alloca i64
  store i64 0, ptr %sum
  call void @rx_parallel(ptr null, ptr @outer, ptr %sum, i64 %chunks)
  %v = load i64, ptr %sum
  ret i64 %v
}
"""
)

EXTRA = ("stress", "mark_all", "nested", "restart")


class Driver:
    """Python's side of the driver functions."""

    def __init__(self, library: LoadedLibrary) -> None:
        self.library = library
        self.cdll = library.cdll
        self.cdll.stress.restype = self.cdll.nested.restype = ctypes.c_int64
        self.cdll.stress.argtypes = [ctypes.c_int64, ctypes.c_void_p, ctypes.c_void_p]
        self.cdll.mark_all.argtypes = [ctypes.c_void_p, ctypes.c_int64]
        self.cdll.nested.argtypes = [ctypes.c_int64]

    def stress(self, regions: int, seed: int = 1) -> int:
        """Run regions of pseudo-random sizes 0 to 47; return the number of wrong counters."""
        random = Random(seed)
        sizes = (ctypes.c_int64 * regions)(*random.choices(range(48), k=regions))
        counts = (ctypes.c_int32 * 64)()
        return int(self.cdll.stress(regions, ctypes.addressof(counts), ctypes.addressof(sizes)))

    def mark_all(self, chunks: int) -> list[int]:
        counts = (ctypes.c_int32 * max(1, chunks))()
        self.cdll.mark_all(ctypes.addressof(counts), chunks)
        return list(counts)[: max(0, chunks)]

    def threads(self, count: int) -> None:
        self.cdll.rx_set_threads(count)


def tasks() -> int:
    return len(os.listdir("/proc/self/task"))


def wait_for_tasks(count: int) -> None:
    """A joined thread may show for a moment after its end."""
    for _ in range(200):
        if tasks() == count:
            return
        time.sleep(0.005)
    assert tasks() == count


@pytest.fixture
def driver(load: LoadLibrary) -> Driver:
    return Driver(load([DRIVER], extra=EXTRA))


@pytest.fixture
def child() -> Callable[[Callable[[], bool]], None]:
    """Run a function in a forked child, which must return true within ten seconds."""

    def run(body: Callable[[], bool]) -> None:
        pid = os.fork()
        if pid == 0:
            signal.alarm(10)
            try:
                os._exit(0 if body() else 3)
            finally:
                os._exit(4)
        assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0

    return run


@pytest.mark.parametrize("threads", [1, 2, 3, 4])
def test_every_chunk_runs_exactly_once(driver: Driver, threads: int) -> None:
    driver.threads(threads)
    assert driver.stress(8_000, seed=threads) == 0


@pytest.mark.parametrize("chunks", [-1, 0, 1, 2, 3, 64, 1000, 65534, 65535, 65536, 70_000])
def test_chunk_counts(driver: Driver, chunks: int) -> None:
    driver.threads(2)
    assert driver.mark_all(chunks) == [1] * max(0, chunks)


def test_nested_regions_run_serially(driver: Driver) -> None:
    driver.threads(3)
    for chunks in (0, 1, 2, 17):
        assert driver.cdll.nested(chunks) == 5 * chunks


def test_concurrent_callers(driver: Driver) -> None:
    driver.threads(2)
    results: list[int] = []
    callers = [
        threading.Thread(target=lambda seed=seed: results.append(driver.stress(8000, seed))) for seed in range(4)
    ]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert results == [0, 0, 0, 0]


def test_the_number_of_threads_may_change(driver: Driver) -> None:
    before = tasks()
    for count in (2, 4, 1, 3, 3, 2):
        driver.threads(count)
        assert driver.cdll.rx_threads() == count
        assert driver.stress(300) == 0
        if count > 1:
            wait_for_tasks(before + count - 1)
    driver.threads(10_000)
    assert driver.cdll.rx_threads() == 64
    driver.threads(0)
    assert driver.cdll.rx_threads() == min(64, len(os.sched_getaffinity(0)))


def test_workers_stop_whatever_they_are_doing(driver: Driver) -> None:
    """A worker may meet the word that stops the pool while it still looks for chunks of the region before."""
    counts = (ctypes.c_int32 * 64)()
    driver.cdll.restart(ctypes.c_int64(600), counts)
    assert list(counts)[:5] == [1200] * 4 + [0]


STEPS = {
    "read the region": "  %fn = load atomic ptr, ptr @rx_fn monotonic, align 8\n",
    "claim": "  %swap = cmpxchg ptr @rx_job, i64 %w, i64 %w1 acq_rel acquire\n",
    "count as done": "  %ignored = atomicrmw add ptr @rx_done, i64 1 release\n",
    "look again": "  %after = load atomic i64, ptr @rx_job acquire, align 8\n",
    "count as asleep": "  %s0 = atomicrmw add ptr @rx_sleepers, i32 1 seq_cst\n",
    "look for the last time": "  %word2 = load atomic i64, ptr @rx_job seq_cst, align 8\n",
    "wait": "  %expected = trunc i64 %last to i32\n",
    "count as awake": "  %s1 = atomicrmw sub ptr @rx_sleepers, i32 1 seq_cst\n",
    "look at stop": "  %stop = load atomic i32, ptr @rx_stop acquire, align 4\n",
    "publish": "  store atomic i64 %word, ptr @rx_job seq_cst, align 8\n",
    "look for sleepers": "  %sleepers = load atomic i32, ptr @rx_sleepers seq_cst, align 4\n",
    "leave the region": "  store atomic i32 0, ptr @rx_busy release, align 4\n",
}


@pytest.mark.parametrize("spin", [0, 2000])
@pytest.mark.parametrize("step", STEPS)
def test_a_thread_may_be_held_up_before_any_step(workers: Workers, target: Target, step: str, spin: int) -> None:
    """The protocol in slow motion: a pause of 40 us before one step shows races that a fast machine hides."""
    text = pool_text(target, spin=spin)
    assert text.count(STEPS[step]) == 1
    text = text.replace(STEPS[step], f"  %held.up = call i32 @usleep(i32 40)\n{STEPS[step]}")
    text += "declare i32 @usleep(i32)\ndeclare void @free(ptr)\ndeclare ptr @pthread_getspecific(i32)\n"
    cdll = load_memory(
        link(compile_objects([text, DRIVER], target, workers=workers), exports=[*EXTRA, "rx_set_threads"])
    )
    counts, sizes = (ctypes.c_int32 * 64)(), (ctypes.c_int64 * 150)(*Random(1).choices(range(9), k=150))
    cdll.rx_set_threads(ctypes.c_int64(3))
    assert cdll.stress(ctypes.c_int64(150), counts, sizes) == 0
    counts = (ctypes.c_int32 * 64)()
    cdll.restart(ctypes.c_int64(60), counts)
    assert list(counts)[:5] == [120] * 4 + [0]
    unload(cdll)


def test_sleeping_workers_wake(driver: Driver) -> None:
    driver.threads(2)
    for _ in range(20):
        assert driver.stress(5) == 0
        time.sleep(0.004)  # longer than a worker spins


def test_workers_keep_off_the_callers_processor(driver: Driver) -> None:
    """On a busy machine a woken worker must not wait behind its caller, wherever the caller has moved to."""
    allowed = os.sched_getaffinity(0)
    if len(allowed) < 2:
        pytest.skip("one processor")
    before = set(os.listdir("/proc/self/task"))
    driver.threads(3)
    assert driver.stress(5) == 0
    workers = [int(task) for task in set(os.listdir("/proc/self/task")) - before]
    assert len(workers) == 2
    try:
        for home in allowed:
            os.sched_setaffinity(0, {home})
            assert driver.stress(5) == 0
            assert all(os.sched_getaffinity(worker) == allowed - {home} for worker in workers)
    finally:
        os.sched_setaffinity(0, allowed)


def test_a_single_processor_serves_all_threads(driver: Driver) -> None:
    allowed = os.sched_getaffinity(0)
    try:
        os.sched_setaffinity(0, {min(allowed)})
        driver.threads(3)
        assert driver.stress(50) == 0
    finally:
        os.sched_setaffinity(0, allowed)


def test_fork(driver: Driver, child: Callable[[Callable[[], bool]], None]) -> None:
    driver.threads(3)
    assert driver.stress(500) == 0
    for _ in range(5):
        child(lambda: driver.stress(500) == 0 and tasks() == 3)
        assert driver.stress(500) == 0


def test_fork_of_a_fork_and_before_the_first_region(
    driver: Driver, child: Callable[[Callable[[], bool]], None]
) -> None:
    driver.threads(2)

    def inner() -> bool:
        assert driver.stress(100) == 0
        child(lambda: driver.stress(100) == 0)
        return driver.stress(100) == 0

    child(inner)


def test_fork_while_another_thread_is_in_a_region(driver: Driver, child: Callable[[Callable[[], bool]], None]) -> None:
    driver.threads(2)
    stop = threading.Event()
    results: list[int] = []

    def busy() -> None:
        while not stop.is_set():
            results.append(driver.stress(200))

    thread = threading.Thread(target=busy)
    thread.start()
    for _ in range(10):
        child(lambda: driver.stress(200) == 0)
    stop.set()
    thread.join()
    assert set(results) <= {0}


def test_unloading_joins_the_workers(build: BuildLibrary, child: Callable[[Callable[[], bool]], None]) -> None:
    library = build([DRIVER], extra=EXTRA)
    before = tasks()
    for _ in range(5):
        driver = Driver(library.load())
        driver.threads(4)
        assert driver.stress(200) == 0
        assert tasks() == before + 3
        driver.library.close()
        wait_for_tasks(before)
        child(lambda: True)  # the fork handler is gone with the code


def test_unloading_in_a_forked_child(
    driver: Driver, build: BuildLibrary, child: Callable[[Callable[[], bool]], None]
) -> None:
    other = Driver(build([DRIVER], extra=EXTRA).load())
    other.threads(3)
    assert other.stress(50) == 0

    def close() -> bool:
        other.library.close()
        return driver.stress(50) == 0

    child(close)
    other.library.close()


def test_threads_from_environment_and_affinity(build: BuildLibrary, tmp_path: Path) -> None:
    path = tmp_path / "m.so"
    build([DRIVER], extra=EXTRA).export(path)
    script = f"import ctypes, os; print(ctypes.CDLL({str(path)!r}).rx_threads())"
    pin = f"import os; os.sched_setaffinity(0, {{next(iter(os.sched_getaffinity(0)))}}); {script}"

    def run(text: str, value: str | None) -> int:
        environment = {key: text for key, text in os.environ.items() if key != "RELAXIR_NUM_THREADS"}
        if value is not None:
            environment["RELAXIR_NUM_THREADS"] = value
        return int(
            subprocess.run([sys.executable, "-I", "-c", text], env=environment, capture_output=True, check=True).stdout
        )

    assert run(script, "3") == 3
    assert run(script, "9999") == 64
    assert run(pin, None) == 1
    for nonsense in ("", "0", "-2", "many"):
        assert run(script, nonsense) == min(64, len(os.sched_getaffinity(0)))


def test_exit_with_sleeping_and_with_busy_workers(build: BuildLibrary, tmp_path: Path) -> None:
    path = tmp_path / "m.so"
    build([DRIVER], extra=EXTRA).export(path)
    script = (
        "import ctypes, sys, threading, time\n"
        f"lib = ctypes.CDLL({str(path)!r}); lib.rx_set_threads(ctypes.c_int64(3))\n"
        "counts = (ctypes.c_int32 * 64)(); sizes = (ctypes.c_int64 * 9000000)(*([7] * 1000))\n"
        "go = lambda n: lib.stress(ctypes.c_int64(n), counts, sizes)\n"
        "go(100)\n"
        "if sys.argv[1] == 'busy': threading.Thread(target=go, args=(9000000,), daemon=True).start()\n"
        "time.sleep(0.05)\n"
    )
    for mode in ("idle", "busy"):
        subprocess.run([sys.executable, "-I", "-c", script, mode], check=True, timeout=20)
