"""The runtime of a generated library: one LLVM module, emitted once per library.

It is ordinary generated code (pthread, futex and libc only): thread pool, memory, workspaces, errors, C interface.
Kernels and host entries are other modules that use it through :data:`RUNTIME_DECLARATIONS`; its own needs are the
host entries ``@host_<name>`` and, optionally, ``@rx_weights``.
"""

import platform
from collections.abc import Sequence
from typing import Final

from relaxir.backends.llvm.api_ir import api_text
from relaxir.backends.llvm.call_ir import HostFunction, Site
from relaxir.backends.llvm.cpu_ir import cpu_text
from relaxir.backends.llvm.memory_ir import memory_text
from relaxir.backends.llvm.pool_ir import pool_text
from relaxir.backends.llvm.python_ir import python_text
from relaxir.backends.llvm.target import Target
from relaxir.backends.llvm.together_ir import together_text
from relaxir.backends.llvm.workspace_ir import workspace_text

RUNTIME_DECLARATIONS: Final = """\
declare void @rx_parallel(ptr, ptr, ptr, i64)
declare void @rx_defer(ptr, ptr, ptr, i64, i64, i64)
declare void @rx_together(ptr, i64)
declare i32 @rx_threads()
declare ptr @rx_alloc(ptr, i64)
declare void @rx_free(ptr, ptr)
declare ptr @rx_frame_push(ptr, i64)
declare void @rx_frame_pop(ptr, i64)
declare void @rx_fail(ptr, i32, i32, i64, i64, i64, i64)
"""
"""What kernels and host entries may call.

- ``rx_parallel(ctx, body, arg, chunks)`` runs ``void body(ptr arg, i64 chunk, i64 chunks, i64 worker)`` once per
  chunk and waits; ``worker`` is below :data:`~relaxir.backends.llvm.pool_threads_ir.MAX_THREADS`, and two chunks
  running at a time have different ones. ``ctx`` may be null.
- ``rx_defer(group, body, arg, words, chunks, work)`` leaves that to the caller of the kernel, who then calls
  ``rx_together(group, grain)``; see `relaxir.backends.llvm.together_ir`.
- ``rx_threads()``: how many threads a region may use.
- ``rx_alloc(ctx, bytes)``: a result block, 64-byte aligned, or null. ``rx_free(ctx, block)`` gives it back.
- ``rx_frame_push(ws, bytes)``: a frame, 64-byte aligned, or null; popped in reverse order with the same size.
- ``rx_enter(ws, here)``: whether a host program may call another now; ``rx_leave(ws)`` after it.
- ``rx_fail(ws, code, site, v0, v1, v2, v3)`` records the call's first error; ``code`` must not be 0. The host entry
  then returns any code. ``rx_place(ws, site)``: which call of a kernel failed; its words are added to the message.

A context's first word is the address of the weights: ``load ptr, ptr %ctx``. A workspace's first word (i32) is the
error code so far.
"""

PUBLIC_SYMBOLS: Final = (
    "rx_abi_version",
    "rx_alloc",
    "rx_call",
    "rx_invoke",
    "rx_check_cpu",
    "rx_create",
    "rx_create_error",
    "rx_destroy",
    "rx_free",
    "rx_last_error",
    "rx_metadata",
    "rx_python",
    "rx_python_init",
    "rx_query",
    "rx_set_threads",
    "rx_stats",
    "rx_threads",
    "rx_trim",
)
"""What a library exports: the C interface."""


def runtime_text(
    target: Target,
    *,
    sites: Sequence[Site],
    functions: Sequence[HostFunction],
    metadata_json: str,
    weights_bytes: int = 0,
    host_arch: str | None = None,
) -> str:
    """Return the runtime's LLVM module.

    Args:
        target: what it runs on.
        sites: messages, by the number that generated code passes to ``rx_fail``.
        functions: what ``rx_call`` reaches, by number.
        metadata_json: the text ``rx_metadata`` returns.
        weights_bytes: size of the weights; if not 0, a context cannot be made without them.
        host_arch: architecture of the machine that compiles the text (default: this one); decides whether inline
            assembly is allowed.

    Raises:
        ValueError: no threads or files of this kind on the target, two functions of one name, or a text with a zero
            byte.
    """
    names = [function.name for function in functions]
    if len(set(names)) != len(names):
        raise ValueError(f"two functions of one name among {', '.join(names)}")
    host = platform.machine() if host_arch is None else host_arch
    return "\n".join(
        [
            "; the runtime of a relaxir library",
            pool_text(target),
            together_text(),
            memory_text(),
            workspace_text(),
            cpu_text(target, host),
            api_text(target, sites, functions, metadata_json, weights_bytes, host),
            python_text(),
        ]
    )
