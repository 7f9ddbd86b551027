"""Compiling in worker processes: results, errors, death, reuse."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from relaxir.backends.llvm.cache import ObjectCache
from relaxir.backends.llvm.compile import WORKER, CompileOptions, Workers, compile_objects
from relaxir.backends.llvm.elf_read import read_object
from relaxir.backends.llvm.errors import InternalCompilerError
from relaxir.backends.llvm.target import Target


def constant(value: int) -> str:
    return f"define i64 @f{value}() {{\n  ret i64 {value}\n}}\n"


def pids(pool: Workers) -> set[int]:
    return {worker.process.pid for worker in pool._idle}


def test_results_keep_the_order_and_are_reproducible(workers: Workers, target: Target) -> None:
    texts = [constant(value) for value in range(7)]
    objects = compile_objects(texts, target, workers=workers)
    for value, data in enumerate(objects):
        assert any(symbol.name == f"f{value}" for symbol in read_object(data, "o").symbols)
    assert compile_objects(texts[::-1], target, workers=workers) == objects[::-1]


def test_workers_are_reused_and_equal_texts_compiled_once(target: Target) -> None:
    with Workers(2) as pool:
        compile_objects([constant(1), constant(2)], target, workers=pool)
        first = pids(pool)
        seen: list[tuple[int, int]] = []
        texts = [constant(3)] * 5 + [constant(4)]
        compile_objects(texts, target, workers=pool, progress=lambda done, total: seen.append((done, total)))
        assert seen == [(1, 2), (2, 2)]
        assert pids(pool) == first


@pytest.mark.parametrize("text", ["define i64 @f( {", "define i64 @f() {\n  ret i32 0\n}", "not LLVM at all"])
def test_bad_text_is_an_internal_error_and_the_pool_lives_on(text: str, target: Target, tmp_path: Path) -> None:
    with Workers(1, crash_dir=tmp_path) as pool:
        with pytest.raises(InternalCompilerError, match="LLVM refused generated code") as caught:
            compile_objects([text], target, workers=pool)
        assert caught.value.crash_file is not None
        assert caught.value.crash_file.read_text() == text
        assert compile_objects([constant(5)], target, workers=pool)


def test_aborting_llvm_costs_the_worker_only(target: Target, tmp_path: Path) -> None:
    aborts = 'target triple = "x86_64-unknown-linux-gnu"\ndefine void @f() {\n  call void asm "no such instruction", ""()\n  ret void\n}\n'
    with Workers(1, crash_dir=tmp_path) as pool:
        with pytest.raises(InternalCompilerError) as caught:
            compile_objects([aborts], target, workers=pool)
        assert caught.value.crash_file is not None
        assert compile_objects([constant(6)], target, workers=pool)


def test_a_worker_killed_while_idle_is_replaced(target: Target) -> None:
    with Workers(1) as pool:
        compile_objects([constant(7)], target, workers=pool)
        (pid,) = pids(pool)
        os.kill(pid, signal.SIGKILL)
        pool._idle[0].process.wait()
        assert compile_objects([constant(8)], target, workers=pool)
        assert pids(pool) != {pid}


def test_a_failure_leaves_no_stale_answer_behind(target: Target) -> None:
    with Workers(2) as pool:
        with pytest.raises(InternalCompilerError):
            compile_objects([*(constant(value) for value in range(20)), "bad"], target, workers=pool)
        (data,) = compile_objects([constant(99)], target, workers=pool)
        assert any(symbol.name == "f99" for symbol in read_object(data, "o").symbols)


def test_foreign_targets_and_assembly(workers: Workers) -> None:
    for name, machine in (("aarch64", 183), ("riscv64", 243), ("x86-64-v2", 62)):
        (data,) = compile_objects([constant(1)], Target.parse(name), workers=workers)
        assert int.from_bytes(data[18:20], "little") == machine
    (wasm,) = compile_objects([constant(1)], Target.parse("wasm32"), workers=workers)
    assert wasm[:4] == b"\0asm"
    (text,) = compile_objects(
        [constant(41)], Target.parse("x86-64-v3"), workers=workers, options=CompileOptions(output="assembly")
    )
    assert b"$41, %eax" in text


def test_sroa_turns_stack_slots_into_registers(workers: Workers) -> None:
    text = (
        "define i64 @f(i64 %x) {\n  %p = alloca i64\n  store i64 %x, ptr %p\n  %y = load i64, ptr %p\n  ret i64 %y\n}\n"
    )
    level = Target.parse("x86-64-v3")
    plain, light = (
        compile_objects([text], level, workers=workers, options=CompileOptions(passes=passes, output="assembly"))[0]
        for passes in ("none", "sroa")
    )
    assert b"(%rsp)" in plain
    assert b"(%rsp)" not in light


def test_a_forked_child_starts_its_own_workers(target: Target) -> None:
    with Workers(1) as pool:
        compile_objects([constant(1)], target, workers=pool)
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            try:
                compile_objects([constant(2)], target, workers=pool)
                pool.close()
                os._exit(0)
            finally:
                os._exit(1)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert compile_objects([constant(3)], target, workers=pool)


def test_closing_does_not_wait_for_a_child_that_holds_the_pipes(target: Target) -> None:
    pool = Workers(1)
    compile_objects([constant(1)], target, workers=pool)
    child = os.fork()
    if child == 0:
        time.sleep(30)
        os._exit(0)
    try:
        start = time.monotonic()
        pool.close()
        assert time.monotonic() - start < 10
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def test_the_worker_needs_nothing_of_relaxir() -> None:
    script = f"import runpy, sys; runpy.run_path({str(WORKER)!r}); print([m for m in sys.modules if m.startswith('relaxir')])"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd="/", check=True)
    assert result.stdout.strip() == "[]"


def test_cached_objects_need_no_worker(target: Target, tmp_path: Path) -> None:
    cache = ObjectCache(tmp_path)
    with Workers(1) as pool:
        first = compile_objects([constant(1), constant(2)], target, workers=pool, cache=cache)
        pool.close()
        assert compile_objects([constant(2), constant(1)], target, workers=pool, cache=cache) == first[::-1]
        assert pids(pool) == set()
