"""Places in generated code that can fail: the numbers passed to ``rx_fail`` and the messages they stand for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from relaxir.backends.llvm.call_ir import FIRST_SITE_CODE, Site
from relaxir.support.dtypes import info
from relaxir.support.errors import codes
from relaxir.support.spans import Span
from relaxir.sym import mul, product
from relaxir.tir.buffer import Scope
from relaxir.tir.stmt import Alloc, Assert, Stmt
from relaxir.tir.visit import walk

ERROR_CODES: Final = codes()
"""Codes of error classes; place ``i`` is the number ``FIRST_SITE_CODE + i`` in generated code."""

STACK_LIMIT: Final = 1 << 16
"""Temporaries of constant size up to this many bytes live on the stack whatever their scope says."""
NO_MEMORY: Final = ("runtime-allocation", "{} bytes of temporary memory could not be allocated")
"""Code and message where the C heap has no block for a temporary."""


def code_number(code: str) -> int:
    """Return the number that generated code uses for an error class's code.

    Raises:
        ValueError: no error class has this code.
    """
    return FIRST_SITE_CODE + ERROR_CODES.index(code)


def code_name(number: int) -> str:
    """Return the error class's code for a number that a generated function returned."""
    return ERROR_CODES[number - FIRST_SITE_CODE]


class SiteTable:
    """The sites of one library in the order of their numbers; equal sites share one."""

    def __init__(self) -> None:
        self._numbers: dict[tuple[str, str, Span | None], int] = {}

    def add(self, code: str, message: str, span: Span | None = None) -> tuple[int, int]:
        """Return the code's number and the site's number; ``message`` has ``{}`` where a value is shown."""
        key = (code, message, span)
        return code_number(code), self._numbers.setdefault(key, len(self._numbers))

    @property
    def sites(self) -> tuple[Site, ...]:
        """What the runtime needs to put an error into words."""
        return tuple(Site(code_number(code), format_of(message, span)) for code, message, span in self._numbers)


def failures(body: Stmt) -> Iterator[tuple[str, str, Span | None]]:
    """Codes, messages and places of what can fail in a kernel: its assertions, and temporaries from the C heap."""
    for s in walk(body):
        if isinstance(s, Assert):
            yield s.code, s.message, s.span
        elif isinstance(s, Alloc) and s.buffer.scope is not Scope.REGISTER:
            size = mul(product(s.buffer.shape), info(s.buffer.dtype).bytes)
            if not (isinstance(size, int) and size <= STACK_LIMIT):
                yield *NO_MEMORY, None


def format_of(message: str, span: Span | None) -> str:
    """What ``snprintf`` is given: a node of a model file is named, lines of a program stay out of the library."""
    place = f"; in {span}" if span is not None and span.note else ""
    return message.replace("%", "%%").replace("{}", "%lld") + place.replace("%", "%%")
