"""Blocks, frames and workspaces of the runtime, called through ctypes."""

import ctypes
import os
import random
import signal
import threading
from collections.abc import Iterator
from itertools import pairwise

import pytest

from relaxir.backends.llvm.library import LoadedLibrary, RxOptions
from relaxir.backends.llvm.runtime_ir import RUNTIME_DECLARATIONS
from tests.backends.library_types import LoadLibrary

MB = 1 << 20

# n times: take two blocks, mark both, look at both, give them back; returns how often a mark was not ours
CHURN = (
    RUNTIME_DECLARATIONS
    + """
define i64 @churn(ptr %ctx, i64 %tag, i64 %n) {
entry:
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %i1, %loop ]
  %bad = phi i64 [ 0, %entry ], [ %bad2, %loop ]
  %p = call ptr @rx_alloc(ptr %ctx, i64 256)
  store atomic i64 %tag, ptr %p monotonic, align 8
  %q = call ptr @rx_alloc(ptr %ctx, i64 256)
  store atomic i64 %tag, ptr %q monotonic, align 8
  %a = load atomic i64, ptr %p monotonic, align 8
  %b = load atomic i64, ptr %q monotonic, align 8
  %wrong_a = icmp ne i64 %a, %tag
  %wrong_b = icmp ne i64 %b, %tag
  %one_a = zext i1 %wrong_a to i64
  %one_b = zext i1 %wrong_b to i64
  %bad1 = add i64 %bad, %one_a
  %bad2 = add i64 %bad1, %one_b
  call void @rx_free(ptr %ctx, ptr %p)
  call void @rx_free(ptr %ctx, ptr %q)
  %i1 = add i64 %i, 1
  %more = icmp slt i64 %i1, %n
  br i1 %more, label %loop, label %done
done:
  ret i64 %bad2
}
"""
)


class Runtime:
    """One context with Python's side of the runtime's internals."""

    def __init__(self, library: LoadedLibrary) -> None:
        self.cdll = library.cdll
        pointer, integer, code = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
        for name, result, arguments in (
            ("rx_ws_acquire", pointer, (pointer,)),
            ("rx_ws_release", None, (pointer, pointer)),
            ("rx_frame_push", pointer, (pointer, integer)),
            ("rx_frame_pop", None, (pointer, integer)),
            ("rx_fail", None, (pointer, code, code, integer, integer, integer, integer)),
        ):
            function = getattr(self.cdll, name)
            function.restype, function.argtypes = result, arguments
        self.cdll.churn.restype, self.cdll.churn.argtypes = integer, (pointer, integer, integer)
        self.library = library
        self.context = library.create()

    def alloc(self, size: int) -> int | None:
        address: int | None = self.cdll.rx_alloc(self.context, size)
        return address

    def free(self, block: int | None) -> None:
        self.cdll.rx_free(self.context, block)

    def acquire(self) -> int:
        return int(self.cdll.rx_ws_acquire(self.context))

    def release(self, space: int) -> None:
        self.cdll.rx_ws_release(self.context, space)

    def push(self, space: int, size: int) -> int | None:
        address: int | None = self.cdll.rx_frame_push(space, size)
        return address

    def pop(self, space: int, size: int) -> None:
        self.cdll.rx_frame_pop(space, size)

    @property
    def stats(self) -> dict[str, int]:
        numbers = (ctypes.c_int64 * 5)()
        self.cdll.rx_stats(self.context, ctypes.addressof(numbers))
        return dict(zip(("pooled", "live", "workspaces", "frames", "threads"), numbers, strict=True))


@pytest.fixture
def runtime(load: LoadLibrary) -> Iterator[Runtime]:
    made = Runtime(load([CHURN], extra=["churn"]))
    yield made
    made.cdll.rx_destroy(made.context)


def resident_pages() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1])


@pytest.mark.parametrize(
    "size", [0, 1, 63, 64, 65, 127, 128, 129, 4096, 100_000, 4 * MB - 1, 4 * MB, 4 * MB + 1, 33 * MB]
)
def test_blocks_are_aligned_writable_and_reused(runtime: Runtime, size: int) -> None:
    block = runtime.alloc(size)
    assert block is not None
    assert block % 64 == 0
    ctypes.memset(block, 1, size)
    assert runtime.stats["live"] == 1
    runtime.free(block)
    assert runtime.stats["live"] == 0
    assert runtime.stats["pooled"] >= size
    assert runtime.alloc(size) == block
    assert runtime.stats["pooled"] == 0
    runtime.free(block)


@pytest.mark.parametrize("size", [-1, -(1 << 63), 1 << 46, (1 << 63) - 1, (1 << 46) - 64])
def test_absurd_sizes_give_null(runtime: Runtime, size: int) -> None:
    assert runtime.alloc(size) is None
    space = runtime.acquire()
    assert runtime.push(space, size) is None
    frame = runtime.push(space, 8)
    assert frame is not None
    runtime.release(space)
    assert runtime.stats["live"] == 0


def test_freeing_null_is_nothing(runtime: Runtime) -> None:
    runtime.free(None)
    assert runtime.stats["live"] == 0


def test_blocks_never_overlap(runtime: Runtime) -> None:
    pick = random.Random(3)
    live: dict[int, int] = {}
    for _ in range(4000):
        if live and pick.random() < 0.5:
            block = pick.choice(list(live))
            runtime.free(block)
            del live[block]
            continue
        size = int(2 ** pick.uniform(0, 17))
        made = runtime.alloc(size)
        assert made is not None
        live[made] = size
        if len(live) % 16 == 0:
            spans = sorted(live.items())
            assert all(start + size <= other for (start, size), (other, _) in pairwise(spans))
    for block in live:
        runtime.free(block)


@pytest.mark.parametrize("size", [128 << 10, 200_000, (512 << 10) - 1, 512 << 10, MB, 3 * MB])
def test_blocks_of_slabs(runtime: Runtime, size: int) -> None:
    """Neighbours do not touch each other, and a slab goes when its last block does."""
    before = resident_pages()
    blocks = [runtime.alloc(size) for _ in range(24)]
    assert len(set(blocks)) == 24
    for number, block in enumerate(blocks):
        assert block is not None
        assert block % 4096 == 0
        ctypes.memset(block, number, size)
    for number, block in enumerate(blocks):
        assert block is not None
        text = ctypes.string_at(block, size)
        assert text[:1] == text[-1:] == bytes([number]) and text.count(number) == size
    kept, *others = blocks
    for block in others:
        runtime.free(block)
    runtime.cdll.rx_trim(runtime.context)
    assert ctypes.string_at(kept, size) == bytes(size)
    runtime.free(kept)
    runtime.cdll.rx_trim(runtime.context)
    assert runtime.stats["pooled"] == runtime.stats["live"] == 0
    assert (resident_pages() - before) * os.sysconf("SC_PAGESIZE") < max(8 * MB, 12 * size), "half of the blocks"


def test_trim_gives_all_back(runtime: Runtime) -> None:
    before = resident_pages()
    blocks = [runtime.alloc(8 * MB) for _ in range(4)]
    for block in blocks:
        ctypes.memset(block, 1, 8 * MB)
        runtime.free(block)
    space = runtime.acquire()
    ctypes.memset(runtime.push(space, 16 * MB), 1, 16 * MB)
    runtime.release(space)
    assert runtime.stats["pooled"] >= 32 * MB
    assert runtime.stats["frames"] >= 16 * MB
    runtime.cdll.rx_trim(runtime.context)
    assert runtime.stats == {"pooled": 0, "live": 0, "workspaces": 0, "frames": 0, "threads": 0}
    assert resident_pages() - before < 4 * MB // os.sysconf("SC_PAGESIZE")


def test_blocks_unused_for_long_are_given_back(runtime: Runtime) -> None:
    large = [runtime.alloc(16 * MB) for _ in range(3)]
    for block in large:
        runtime.free(block)
    for _ in range(100):
        runtime.free(runtime.alloc(1000))
    assert runtime.stats["pooled"] >= 48 * MB
    for _ in range(300):
        runtime.free(runtime.alloc(1000))
    assert runtime.stats["pooled"] < 2000


def test_a_block_in_use_now_and_then_is_kept(runtime: Runtime) -> None:
    kept = runtime.alloc(16 * MB)
    runtime.free(kept)
    for _ in range(10):
        for _ in range(100):
            runtime.free(runtime.alloc(1000))
        assert runtime.alloc(16 * MB) == kept
        runtime.free(kept)


def test_blocks_from_many_threads(runtime: Runtime) -> None:
    wrong: list[int] = []

    def work(tag: int) -> None:
        wrong.append(runtime.cdll.churn(runtime.context, tag, 60_000))

    threads = [threading.Thread(target=work, args=(tag,)) for tag in range(1, 4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert wrong == [0, 0, 0]
    assert runtime.stats["live"] == 0
    assert runtime.stats["pooled"] <= 6 * 256


def test_frames_are_a_stack_that_never_moves(runtime: Runtime) -> None:
    pick = random.Random(5)
    space = runtime.acquire()
    stack: list[tuple[int, int, int]] = []
    for step in range(3000):
        if stack and pick.random() < 0.45:
            address, size, mark = stack.pop()
            assert ctypes.string_at(address, min(size, 64)) == bytes([mark]) * min(size, 64)
            runtime.pop(space, size)
            continue
        size = int(2 ** pick.uniform(0, 16)) - 1
        address = runtime.push(space, size)
        assert address is not None
        assert address % 64 == 0
        spans = [(start, start + max(1, length)) for start, length, _ in stack]
        assert all(address >= end or address + size <= start for start, end in spans)
        ctypes.memset(address, step % 251, size)
        stack.append((address, size, step % 251))
        if len(stack) > 60:
            while len(stack) > 5:
                _, size, _ = stack.pop()
                runtime.pop(space, size)
    runtime.release(space)


def test_steady_calls_use_the_same_frame(runtime: Runtime) -> None:
    addresses = set()
    for _ in range(50):
        space = runtime.acquire()
        addresses.add((space, runtime.push(space, 3 * MB)))
        runtime.pop(space, 3 * MB)
        runtime.release(space)
    assert len(addresses) == 1
    assert runtime.stats["workspaces"] == 1


def test_growing_frames_leave_no_small_chunks_behind(runtime: Runtime) -> None:
    for size in range(1, 40):
        space = runtime.acquire()
        runtime.push(space, size * MB)
        runtime.pop(space, size * MB)
        runtime.release(space)
    assert runtime.stats["frames"] < 60 * MB


def test_frames_are_trimmed_when_calls_need_far_less(runtime: Runtime) -> None:
    space = runtime.acquire()
    runtime.push(space, 64 * MB)
    runtime.release(space)  # as after an error: without pops
    assert runtime.stats["frames"] >= 64 * MB
    for _ in range(20):
        space = runtime.acquire()
        runtime.push(space, 1000)
        runtime.pop(space, 1000)
        runtime.release(space)
    assert runtime.stats["frames"] < MB


def test_each_call_has_its_own_workspace(runtime: Runtime) -> None:
    spaces = [runtime.acquire() for _ in range(5)]
    assert len(set(spaces)) == 5
    for space in spaces:
        runtime.release(space)
    assert set(spaces) == {runtime.acquire() for _ in range(5)}
    for space in spaces:
        runtime.release(space)
    assert runtime.stats["workspaces"] == 5


def test_a_forked_child_can_allocate_whatever_other_threads_did(runtime: Runtime) -> None:
    stop = threading.Event()

    def churn() -> None:
        while not stop.is_set():
            runtime.cdll.churn(runtime.context, 1, 1000)

    threads = [threading.Thread(target=churn) for _ in range(2)]
    for thread in threads:
        thread.start()
    try:
        for _ in range(40):
            child = os.fork()
            if child == 0:
                signal.alarm(5)  # a lock held by a thread that is not here any more would never open
                runtime.cdll.churn(runtime.context, 2, 100)
                os._exit(0)
            assert os.waitpid(child, 0)[1] == 0
    finally:
        stop.set()
        for thread in threads:
            thread.join()


def test_a_callers_allocator_is_used_for_everything_and_may_fail(runtime: Runtime) -> None:
    libc = ctypes.CDLL(None)
    libc.aligned_alloc.restype, libc.aligned_alloc.argtypes = ctypes.c_void_p, (ctypes.c_size_t, ctypes.c_size_t)
    libc.free.argtypes = (ctypes.c_void_p,)
    live: dict[int, int] = {}
    limit = [1 << 40]

    @ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_size_t)
    def allocate(user: int, size: int, alignment: int) -> int | None:
        assert (user, alignment) == (1234, 64)
        if size > limit[0]:
            return None
        block: int = libc.aligned_alloc(alignment, -(-size // 64) * 64 or 64)
        live[block] = size
        return block

    @ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p)
    def release(user: int, block: int) -> None:
        assert user == 1234
        del live[block]
        libc.free(block)

    as_pointer = ctypes.c_void_p
    options = RxOptions(40, None, ctypes.cast(allocate, as_pointer), ctypes.cast(release, as_pointer), 1234)
    context = runtime.cdll.rx_create(ctypes.byref(options))
    assert context
    block = runtime.cdll.rx_alloc(context, 1000)
    assert live == {block: 1000}
    space = runtime.cdll.rx_ws_acquire(context)
    assert runtime.push(space, 100) is not None
    assert len(live) == 2
    limit[0] = 0
    assert runtime.cdll.rx_alloc(context, 5000) is None
    assert runtime.push(space, MB) is None
    runtime.cdll.rx_free(context, block)
    runtime.cdll.rx_ws_release(context, space)
    runtime.cdll.rx_destroy(context)
    assert live == {}


def test_the_first_failure_wins(runtime: Runtime) -> None:
    space = runtime.acquire()
    threads = [threading.Thread(target=runtime.cdll.rx_fail, args=(space, 20 + k, k, k, k, k, k)) for k in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    code, site, *values = (*(ctypes.c_int32 * 2).from_address(space), *(ctypes.c_int64 * 4).from_address(space + 8))
    assert code == 20 + site
    assert values == [site] * 4
    runtime.release(space)
    again = runtime.acquire()
    assert again == space
    assert ctypes.c_int32.from_address(again).value == 0
    runtime.release(again)
