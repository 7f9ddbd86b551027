"""Contexts of a generated library, as LLVM IR.

Invariants:

1. A context is immutable but for its pools; any number of calls may run on one context at a time.
2. ``rx_create`` returns null with a text in ``rx_create_error`` when the processor lacks a feature, the options are
   malformed, weights are needed and absent, or memory is short.
"""

from collections.abc import Sequence
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm.call_ir import HostFunction, Site, call_text
from relaxir.backends.llvm.cpu_ir import checks_cpu
from relaxir.backends.llvm.ir_text import c_string, c_table, expand
from relaxir.backends.llvm.layout import FIELDS
from relaxir.backends.llvm.target import Target


def api_text(
    target: Target,
    sites: Sequence[Site],
    functions: Sequence[HostFunction],
    metadata_json: str,
    weights_bytes: int,
    host_arch: str,
) -> str:
    """Return the interface for these functions. ``weights_bytes`` > 0 makes ``rx_create`` insist on weights."""
    checked = target.required if checks_cpu(target, host_arch) else ()
    missing = [f"this processor lacks {name}, which the library was built to use ({target.name})" for name in checked]
    parts = [
        c_string("@rx_metadata_text", metadata_json),
        c_table("@rx_missing_texts", missing),
        "".join(c_string(f"@{name}", text) for name, text in _TEXTS.items()),
    ]
    parts.append(expand(_CONTEXTS, {**FIELDS, "NEEDS_WEIGHTS": int(weights_bytes > 0)}))
    parts.append(call_text(sites, functions))
    return "".join(parts)


_TEXTS: Final = MappingProxyType(
    {
        "rx_text_none": "no error",
        "rx_text_options": "rx_options.size is too small: set it to sizeof(rx_options)",
        "rx_text_allocator": "rx_options needs both alloc and free or neither",
        "rx_text_weights": "this library carries no weights: pass rx_options.weights",
        "rx_text_memory": "out of memory",
    }
)

_CONTEXTS: Final = """\
@rx_weights = extern_weak global i8
@rx_create_text = internal global ptr @rx_text_none

define i32 @rx_abi_version() nounwind {
  ret i32 1
}
define ptr @rx_metadata() nounwind {
  ret ptr @rx_metadata_text
}
define ptr @rx_create_error() nounwind {
  %text = load atomic ptr, ptr @rx_create_text acquire, align 8
  ret ptr %text
}
define ptr @rx_create(ptr %options) nounwind {
entry:
  %cpu = call i32 @rx_check_cpu()
  %capable = icmp eq i32 %cpu, 0
  br i1 %capable, label %begin, label %incapable
incapable:
  %which = sub i32 %cpu, 1
  %missing_p = getelementptr ptr, ptr @rx_missing_texts, i32 %which
  %missing = load ptr, ptr %missing_p
  br label %refuse
begin:
  call void @rx_register()
  %plain = icmp eq ptr %options, null
  br i1 %plain, label %weights, label %sized
sized:
  %size = get i64 %options O_SIZE
  %whole = icmp uge i64 %size, ${O_BYTES}
  br i1 %whole, label %read, label %refuse
read:
  %their_weights = get ptr %options O_WEIGHTS
  %their_alloc = get ptr %options O_ALLOC
  %their_free = get ptr %options O_FREE
  %their_user = get ptr %options O_USER
  %no_alloc = icmp eq ptr %their_alloc, null
  %no_free = icmp eq ptr %their_free, null
  %odd = xor i1 %no_alloc, %no_free
  br i1 %odd, label %refuse, label %weights
weights:
  %given = phi ptr [ null, %begin ], [ %their_weights, %read ]
  %alloc = phi ptr [ null, %begin ], [ %their_alloc, %read ]
  %free = phi ptr [ null, %begin ], [ %their_free, %read ]
  %user = phi ptr [ null, %begin ], [ %their_user, %read ]
  %absent = icmp eq ptr %given, null
  %used = select i1 %absent, ptr @rx_weights, ptr %given
  %nothing = icmp eq ptr %used, null
  %lacking = and i1 %nothing, ${NEEDS_WEIGHTS}
  br i1 %lacking, label %refuse, label %make
make:
  %ctx = call ptr @aligned_alloc(i64 64, i64 ${CTX_BYTES})
  %short = icmp eq ptr %ctx, null
  br i1 %short, label %refuse, label %fill
fill:
  call void @llvm.memset.p0.i64(ptr align 64 %ctx, i8 0, i64 ${CTX_BYTES}, i1 false)
  put ptr %used %ctx CTX_WEIGHTS
  put ptr %alloc %ctx CTX_ALLOC
  put ptr %free %ctx CTX_FREE
  put ptr %user %ctx CTX_USER
  ret ptr %ctx
refuse:
  %text = phi ptr [ %missing, %incapable ], [ @rx_text_options, %sized ], [ @rx_text_allocator, %read ],
    [ @rx_text_weights, %weights ], [ @rx_text_memory, %make ]
  store atomic ptr %text, ptr @rx_create_text release, align 8
  ret ptr null
}
define void @rx_destroy(ptr %ctx) nounwind {
entry:
  %none = icmp eq ptr %ctx, null
  br i1 %none, label %done, label %some
some:
  call void @rx_trim(ptr %ctx)
  call void @free(ptr %ctx)
  br label %done
done:
  ret void
}
; ---- bytes pooled, blocks in the caller's hands, workspaces, bytes of idle frame stacks, worker threads
define void @rx_stats(ptr %ctx, ptr %out) nounwind {
entry:
  %pooled = get i64 %ctx CTX_POOLED
  %live = get i64 %ctx CTX_LIVE
  %count = get i64 %ctx CTX_WS_COUNT
  %created = load i64, ptr @rx_created
  store i64 %pooled, ptr %out
  %out1 = getelementptr i64, ptr %out, i64 1
  store i64 %live, ptr %out1
  %out2 = getelementptr i64, ptr %out, i64 2
  store i64 %count, ptr %out2
  %out4 = getelementptr i64, ptr %out, i64 4
  store i64 %created, ptr %out4
  %lock = at %ctx CTX_WS_LOCK
  call void @rx_lock(ptr %lock)
  %first = get ptr %ctx CTX_WS_LIST
  br label %head
head:
  %ws = phi ptr [ %first, %entry ], [ %next, %body ]
  %sum = phi i64 [ 0, %entry ], [ %sum1, %body ]
  %end = icmp eq ptr %ws, null
  br i1 %end, label %done, label %body
body:
  %capacity = get i64 %ws WS_CAPACITY
  %sum1 = add i64 %sum, %capacity
  %next = get ptr %ws WS_NEXT
  br label %head
done:
  call void @rx_unlock(ptr %lock)
  %out3 = getelementptr i64, ptr %out, i64 3
  store i64 %sum, ptr %out3
  ret void
}
"""
