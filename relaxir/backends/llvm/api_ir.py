"""The C interface of a generated library, as LLVM IR: contexts, errors, and the call of a function by number.

Invariants:

1. A context is immutable but for its pools; any number of calls may run on one context at a time.
2. ``rx_call`` returns 0 or the code of the call's first error, whose text ``rx_last_error`` gives until the next
   error in that context.
3. ``rx_create`` returns null with a text in ``rx_create_error`` when the processor lacks a feature, the options are
   malformed, weights are needed and absent, or memory is short.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm.cpu_ir import checks_cpu
from relaxir.backends.llvm.ir_text import c_string, expand
from relaxir.backends.llvm.layout import FIELDS
from relaxir.backends.llvm.target import Target

OK: Final = 0
ERROR_MEMORY: Final = 1
"""An allocation failed or a size is out of range."""
ERROR_ARGUMENT: Final = 2
"""``rx_call`` was given a wrong function number or count of tensors."""
FIRST_SITE_CODE: Final = 16
"""Codes from here on are the code generator's own."""

_FORMAT: Final = re.compile(r"%(%|lld)")


@dataclass(frozen=True)
class Site:
    """A place in the program that can fail at run time."""

    code: int
    """The value ``rx_call`` returns, for reference (the generated code passes it to ``rx_fail``)."""
    format: str
    """The message, with ``%lld`` for up to four values and ``%%`` for a percent sign."""

    def __post_init__(self) -> None:
        """Refuse formats that would read other than the four values."""
        if self.format.count("%") != sum(
            len(m.group()) - (m.group() == "%lld") * 3 for m in _FORMAT.finditer(self.format)
        ):
            raise ValueError(f"only %lld and %% may stand in a message: {self.format!r}")
        if len([m for m in _FORMAT.finditer(self.format) if m.group() == "%lld"]) > 4:
            raise ValueError(f"a message shows at most four values: {self.format!r}")


@dataclass(frozen=True)
class HostFunction:
    """A function of the model that ``rx_call`` reaches by its place in the list."""

    name: str
    """The user's name for it."""
    inputs: int
    """Number of input tensors."""
    outputs: int
    """Number of output tensors."""

    @property
    def symbol(self) -> str:
        """The symbol of its host entry ``i32 (ptr ctx, ptr ws, ptr inputs, ptr outputs)``."""
        return f"host_{self.name}"


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
        _table("@rx_site_formats", [site.format for site in sites]),
        _table("@rx_missing_texts", missing),
        "".join(c_string(f"@{name}", text) for name, text in _TEXTS.items()),
    ]
    numbers = {
        "SITES": len(sites),
        "NEEDS_WEIGHTS": int(weights_bytes > 0),
        "MEMORY": ERROR_MEMORY,
        "ARGUMENT": ERROR_ARGUMENT,
    }
    parts.append(expand(_CONTEXTS + _ERRORS, {**FIELDS, **numbers}))
    parts.append(expand(_call_text(functions), {**FIELDS, **numbers}))
    return "".join(parts)


def _table(name: str, texts: Sequence[str]) -> str:
    """Return a constant array of pointers to ``texts`` (one null if there are none)."""
    strings = "".join(c_string(f"{name}.{index}", text) for index, text in enumerate(texts))
    items = ", ".join(f"ptr {name}.{index}" for index in range(len(texts))) or "ptr null"
    return f"{strings}{name} = internal constant [{max(1, len(texts))} x ptr] [{items}]\n"


def _symbol(name: str) -> str:
    """Return ``@name`` in LLVM's spelling."""
    return (
        f"@{name}"
        if re.fullmatch(r"[A-Za-z_.][\w.]*", name, re.ASCII)
        else '@"' + "".join(chr(b) if 32 <= b < 127 and b not in b'"\\' else f"\\{b:02X}" for b in name.encode()) + '"'
    )


def _call_text(functions: Sequence[HostFunction]) -> str:
    """Return ``rx_call``: check the counts, take a workspace, call the host entry, report."""
    escape = "$$"
    texts, blocks = [], []
    for index, function in enumerate(functions):
        name = function.name.replace("%", "%%")
        message = f"'{name}' takes {function.inputs} inputs and {function.outputs} outputs, not %lld and %lld"
        texts.append(c_string(f"@rx_arity.{index}", message).replace("$", escape))
        blocks.append(
            f"f{index}:\n"
            + f"  %in{index} = icmp eq i64 %nin, {function.inputs}\n"
            + f"  %out{index} = icmp eq i64 %nout, {function.outputs}\n"
            + f"  %fit{index} = and i1 %in{index}, %out{index}\n  br i1 %fit{index}, label %ws, label %arity\n"
        )
        texts.append(f"declare i32 {_symbol(function.symbol)}(ptr, ptr, ptr, ptr)\n".replace("$", escape))
    count = len(functions)
    cases = " ".join(f"i64 {index}, label %f{index}" for index in range(count))
    arity = "".join(f", [ @rx_arity.{index}, %f{index} ]" for index in range(count)).lstrip(", ")
    hosts = ", ".join(f"ptr {_symbol(function.symbol)}" for function in functions).replace("$", escape) or "ptr null"
    texts.append(f"@rx_hosts = internal constant [{max(1, count)} x ptr] [{hosts}]\n")
    head = _CALL_HEAD.replace("CASES", cases)
    arity_block = f"arity:\n  %message = phi ptr {arity}\n{_CALL_ARITY}" if count else ""
    ws_block = _CALL_WS if count else ""
    return "".join(texts) + head + "".join(blocks) + arity_block + ws_block + "}\n"


_TEXTS: Final = MappingProxyType(
    {
        "rx_text_none": "no error",
        "rx_text_options": "rx_options.size is too small: set it to sizeof(rx_options)",
        "rx_text_allocator": "rx_options needs both alloc and free or neither",
        "rx_text_weights": "this library carries no weights: pass rx_options.weights",
        "rx_text_memory": "out of memory",
        "rx_text_size": "out of memory or a size is out of range",
        "rx_text_function": "there is no function number %lld",
        "rx_text_code": "error %lld",
    }
)

_CONTEXTS: Final = """\
@rx_weights = extern_weak global i8
@rx_create_text = internal global ptr @rx_text_none
declare i32 @snprintf(ptr, i64, ptr, ...)

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
define ptr @rx_last_error(ptr %ctx) nounwind {
  %text = at %ctx CTX_TEXT
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

_ERRORS: Final = """\
define internal void @rx_say(ptr %ctx, ptr %format, i64 %v0, i64 %v1, i64 %v2, i64 %v3) nounwind {
  %lock = at %ctx CTX_WS_LOCK
  %text = at %ctx CTX_TEXT
  call void @rx_lock(ptr %lock)
  %n = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %text, i64 ${TEXT_BYTES}, ptr %format,
    i64 %v0, i64 %v1, i64 %v2, i64 %v3)
  call void @rx_unlock(ptr %lock)
  ret void
}
; ---- put the call's first error into words; returns its code (%status if only the host entry reports one)
define i32 @rx_report(ptr %ctx, ptr %ws, i32 %status) nounwind {
entry:
  %code = get i32 %ws WS_CODE
  %recorded = icmp ne i32 %code, 0
  br i1 %recorded, label %site, label %bare
bare:
  %fine = icmp eq i32 %status, 0
  br i1 %fine, label %done, label %generic
site:
  %index = get i32 %ws WS_SITE
  %known = icmp ult i32 %index, $SITES
  br i1 %known, label %look, label %generic
look:
  %v0 = get i64 %ws WS_V0
  %v1 = get i64 %ws WS_V1
  %v2 = get i64 %ws WS_V2
  %v3 = get i64 %ws WS_V3
  %format_p = getelementptr ptr, ptr @rx_site_formats, i32 %index
  %format = load ptr, ptr %format_p
  call void @rx_say(ptr %ctx, ptr %format, i64 %v0, i64 %v1, i64 %v2, i64 %v3)
  ret i32 %code
generic:
  %value = phi i32 [ %status, %bare ], [ %code, %site ]
  %memory = icmp eq i32 %value, $MEMORY
  %text = select i1 %memory, ptr @rx_text_size, ptr @rx_text_code
  %wide = sext i32 %value to i64
  call void @rx_say(ptr %ctx, ptr %text, i64 %wide, i64 0, i64 0, i64 0)
  ret i32 %value
done:
  ret i32 0
}
"""

_CALL_HEAD: Final = """\
define i32 @rx_call(ptr %ctx, i64 %function, ptr %inputs, i64 %nin, ptr %outputs, i64 %nout) nounwind {
entry:
  %dead = icmp eq ptr %ctx, null
  br i1 %dead, label %nowhere, label %choose
nowhere:
  ret i32 $ARGUMENT
choose:
  switch i64 %function, label %unknown [ CASES ]
unknown:
  call void @rx_say(ptr %ctx, ptr @rx_text_function, i64 %function, i64 0, i64 0, i64 0)
  ret i32 $ARGUMENT
"""

_CALL_ARITY: Final = """\
  call void @rx_say(ptr %ctx, ptr %message, i64 %nin, i64 %nout, i64 0, i64 0)
  ret i32 $ARGUMENT
"""

_CALL_WS: Final = """\
ws:
  %space = call ptr @rx_ws_acquire(ptr %ctx)
  %short = icmp eq ptr %space, null
  br i1 %short, label %memory, label %run
memory:
  call void @rx_say(ptr %ctx, ptr @rx_text_memory, i64 0, i64 0, i64 0, i64 0)
  ret i32 $MEMORY
run:
  %host_p = getelementptr ptr, ptr @rx_hosts, i64 %function
  %host = load ptr, ptr %host_p
  %status = call i32 %host(ptr %ctx, ptr %space, ptr %inputs, ptr %outputs)
  %result = call i32 @rx_report(ptr %ctx, ptr %space, i32 %status)
  call void @rx_ws_release(ptr %ctx, ptr %space)
  ret i32 %result
"""
