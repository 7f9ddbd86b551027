"""Calls and messages of a generated library, as LLVM IR.

Invariants:

1. ``rx_call`` returns 0 or the code of the call's first error, and ``rx_last_error`` its text, until the next error in
   the same thread.
2. Messages are made by ``snprintf`` from the table of sites: Python and C callers read the same words.
3. A text belongs to the thread that made it (a ``pthread`` key, freed when the thread ends), so concurrent callers do
   not see each other's.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from relaxir.backends.llvm.ir_text import c_string, c_table, expand, symbol_text
from relaxir.backends.llvm.layout import FIELDS
from relaxir.backends.llvm.symbols import host_symbol, query_symbol

OK: Final = 0
ERROR_MEMORY: Final = 1
"""An allocation failed or a size is out of range."""
ERROR_ARGUMENT: Final = 2
"""``rx_call`` was given a wrong function number or count of tensors."""
ERROR_FROM_DATA: Final = 3
"""``rx_query`` cannot tell: the output shapes depend on data."""
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
    query: bool = False
    """Whether ``rx_query`` can tell output shapes from input shapes, by its query entry."""


def call_text(sites: Sequence[Site], functions: Sequence[HostFunction]) -> str:
    """Return the messages and ``rx_call``, ``rx_query`` and ``rx_last_error`` for these functions."""
    numbers = {
        "SITES": len(sites),
        "FUNCTIONS": len(functions),
        "MEMORY": ERROR_MEMORY,
        "ARGUMENT": ERROR_ARGUMENT,
        "FROM_DATA": ERROR_FROM_DATA,
    }
    parts = [c_table("@rx_site_formats", [site.format for site in sites])]
    parts += [c_string(f"@{name}", text) for name, text in _TEXTS.items()]
    rows = []
    for index, function in enumerate(functions):
        name = function.name.replace("%", "%%")
        message = f"'{name}' takes {function.inputs} inputs and {function.outputs} outputs, not %lld and %lld"
        host, query = symbol_text(host_symbol(function.name)), "null"
        parts.append(c_string(f"@rx_arity.{index}", message))
        parts.append(f"declare i32 {host}(ptr, ptr, ptr, ptr)\n")
        if function.query:
            query = symbol_text(query_symbol(function.name))
            parts.append(f"declare i32 {query}(ptr, ptr, ptr, ptr, ptr)\n")
        counts = f"i64 {function.inputs}, i64 {function.outputs}"
        rows.append(f"%rx.function {{ {counts}, ptr @rx_arity.{index}, ptr {host}, ptr {query} }}")
    parts.append("%rx.function = type { i64, i64, ptr, ptr, ptr }\n")
    table = f"[{', '.join(rows)}]" if rows else "zeroinitializer"
    parts.append(f"@rx_functions = internal constant [{max(1, len(rows))} x %rx.function] {table}\n")
    parts.append(expand(_MESSAGES + _CALLS, {**FIELDS, **numbers}))
    return "".join(parts)


_TEXTS: Final = MappingProxyType(
    {
        "rx_text_size": "out of memory or a size is out of range",
        "rx_text_function": "there is no function number %lld",
        "rx_text_code": "error %lld",
        "rx_text_from_data": "the output shapes of function number %lld depend on data",
    }
)

_MESSAGES: Final = """\
declare i32 @snprintf(ptr, i64, ptr, ...)
declare i64 @strlen(ptr)
declare ptr @pthread_getspecific(i32)
declare i32 @pthread_setspecific(i32, ptr)

define ptr @rx_last_error(ptr %ctx) nounwind {
entry:
  %key = load i32, ptr @rx_key
  %own = call ptr @pthread_getspecific(i32 %key)
  %none = icmp eq ptr %own, null
  %text = select i1 %none, ptr @rx_text_none, ptr %own
  ret ptr %text
}
; ---- make this thread's text
define internal void @rx_say(ptr %format, i64 %v0, i64 %v1, i64 %v2, i64 %v3) nounwind {
entry:
  %key = load i32, ptr @rx_key
  %own = call ptr @pthread_getspecific(i32 %key)
  %none = icmp eq ptr %own, null
  br i1 %none, label %make, label %write
make:
  %new = call ptr @aligned_alloc(i64 64, i64 ${TEXT_BYTES})
  %short = icmp eq ptr %new, null
  br i1 %short, label %done, label %keep
keep:
  %rc = call i32 @pthread_setspecific(i32 %key, ptr %new)
  br label %write
write:
  %text = phi ptr [ %own, %entry ], [ %new, %keep ]
  %n = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %text, i64 ${TEXT_BYTES}, ptr %format,
    i64 %v0, i64 %v1, i64 %v2, i64 %v3)
  br label %done
done:
  ret void
}
; ---- add to this thread's text
define internal void @rx_add(ptr %format) nounwind {
entry:
  %key = load i32, ptr @rx_key
  %own = call ptr @pthread_getspecific(i32 %key)
  %none = icmp eq ptr %own, null
  br i1 %none, label %done, label %write
write:
  %length = call i64 @strlen(ptr %own)
  %end = getelementptr i8, ptr %own, i64 %length
  %left = sub i64 ${TEXT_BYTES}, %length
  %n = call i32 (ptr, i64, ptr, ...) @snprintf(ptr %end, i64 %left, ptr %format)
  br label %done
done:
  ret void
}
; ---- end a call: put its first error into words; returns its code (%status if only the entry reports one)
define internal i32 @rx_finish(ptr %ctx, ptr %ws, i32 %status) nounwind {
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
  call void @rx_say(ptr %format, i64 %v0, i64 %v1, i64 %v2, i64 %v3)
  %place = get i32 %ws WS_PLACE
  %placed = icmp ne i32 %place, 0
  br i1 %placed, label %name, label %done
name:
  %node = sub i32 %place, 1
  %node_p = getelementptr ptr, ptr @rx_site_formats, i32 %node
  %words = load ptr, ptr %node_p
  call void @rx_add(ptr %words)
  br label %done
generic:
  %value = phi i32 [ %status, %bare ], [ %code, %site ]
  %memory = icmp eq i32 %value, $MEMORY
  %text = select i1 %memory, ptr @rx_text_size, ptr @rx_text_code
  %wide = sext i32 %value to i64
  call void @rx_say(ptr %text, i64 %wide, i64 0, i64 0, i64 0)
  br label %done
done:
  %result = phi i32 [ 0, %bare ], [ %code, %look ], [ %code, %name ], [ %value, %generic ]
  call void @rx_ws_release(ptr %ctx, ptr %ws)
  ret i32 %result
}
"""

_CALLS: Final = """\
; ---- the row of a function if the counts fit, else null and a text; null too where there is no context
define internal ptr @rx_find(ptr %ctx, i64 %function, i64 %nin, i64 %nout) nounwind {
entry:
  %known = icmp ult i64 %function, $FUNCTIONS
  br i1 %known, label %counts, label %unknown
unknown:
  call void @rx_say(ptr @rx_text_function, i64 %function, i64 0, i64 0, i64 0)
  ret ptr null
counts:
  %row = getelementptr %rx.function, ptr @rx_functions, i64 %function
  %inputs = get i64 %row F_INPUTS
  %outputs = get i64 %row F_OUTPUTS
  %in_fits = icmp eq i64 %inputs, %nin
  %out_fits = icmp eq i64 %outputs, %nout
  %fits = and i1 %in_fits, %out_fits
  br i1 %fits, label %good, label %bad
bad:
  %format = get ptr %row F_TEXT
  call void @rx_say(ptr %format, i64 %nin, i64 %nout, i64 0, i64 0)
  ret ptr null
good:
  %no_ctx = icmp eq ptr %ctx, null
  %found = select i1 %no_ctx, ptr null, ptr %row
  ret ptr %found
}
define i32 @rx_call(ptr %ctx, i64 %function, ptr %inputs, i64 %nin, ptr %outputs, i64 %nout) nounwind {
entry:
  %row = call ptr @rx_find(ptr %ctx, i64 %function, i64 %nin, i64 %nout)
  %wrong = icmp eq ptr %row, null
  br i1 %wrong, label %refuse, label %space
refuse:
  ret i32 $ARGUMENT
space:
  %ws = call ptr @rx_ws_acquire(ptr %ctx)
  %short = icmp eq ptr %ws, null
  br i1 %short, label %memory, label %run
memory:
  ret i32 $MEMORY
run:
  %host = get ptr %row F_HOST
  %status = call i32 %host(ptr %ctx, ptr %ws, ptr %inputs, ptr %outputs)
  %result = call i32 @rx_finish(ptr %ctx, ptr %ws, i32 %status)
  ret i32 %result
}
define i32 @rx_invoke(ptr %call) nounwind {
  %ctx = load ptr, ptr %call, align 8
  %p1 = getelementptr i8, ptr %call, i64 8
  %function = load i64, ptr %p1, align 8
  %p2 = getelementptr i8, ptr %call, i64 16
  %inputs = load ptr, ptr %p2, align 8
  %p3 = getelementptr i8, ptr %call, i64 24
  %nin = load i64, ptr %p3, align 8
  %p4 = getelementptr i8, ptr %call, i64 32
  %outputs = load ptr, ptr %p4, align 8
  %p5 = getelementptr i8, ptr %call, i64 40
  %nout = load i64, ptr %p5, align 8
  %status = tail call i32 @rx_call(ptr %ctx, i64 %function, ptr %inputs, i64 %nin, ptr %outputs, i64 %nout)
  ret i32 %status
}

define i32 @rx_query(ptr %ctx, i64 %function, ptr %inputs, i64 %nin, ptr %outputs, i64 %nout, ptr %bytes) nounwind {
entry:
  %spare = alloca i64
  %row = call ptr @rx_find(ptr %ctx, i64 %function, i64 %nin, i64 %nout)
  %wrong = icmp eq ptr %row, null
  br i1 %wrong, label %refuse, label %look
refuse:
  ret i32 $ARGUMENT
look:
  %query = get ptr %row F_QUERY
  %cannot = icmp eq ptr %query, null
  br i1 %cannot, label %from_data, label %space
from_data:
  call void @rx_say(ptr @rx_text_from_data, i64 %function, i64 0, i64 0, i64 0)
  ret i32 $FROM_DATA
space:
  %ws = call ptr @rx_ws_acquire(ptr %ctx)
  %short = icmp eq ptr %ws, null
  br i1 %short, label %memory, label %run
memory:
  ret i32 $MEMORY
run:
  %unwanted = icmp eq ptr %bytes, null
  %to = select i1 %unwanted, ptr %spare, ptr %bytes
  store i64 0, ptr %to
  %status = call i32 %query(ptr %ctx, ptr %ws, ptr %inputs, ptr %outputs, ptr %to)
  %result = call i32 @rx_finish(ptr %ctx, ptr %ws, i32 %status)
  ret i32 %result
}
"""
