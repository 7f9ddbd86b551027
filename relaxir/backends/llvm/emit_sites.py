"""Places in generated code that can fail: the numbers passed to ``rx_fail`` and the messages they stand for."""

from __future__ import annotations

from typing import Final

from relaxir.backends.llvm.call_ir import FIRST_SITE_CODE, Site
from relaxir.support.errors import codes
from relaxir.support.spans import Span

ERROR_CODES: Final = codes()
"""Codes of error classes; place ``i`` is the number ``FIRST_SITE_CODE + i`` in generated code."""


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


def format_of(message: str, span: Span | None) -> str:
    """What ``snprintf`` is given: a node of a model file is named, lines of a program stay out of the library."""
    place = f"; in {span}" if span is not None and span.note else ""
    return message.replace("%", "%%").replace("{}", "%lld") + place.replace("%", "%%")
