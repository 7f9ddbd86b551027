"""All problems of a program as one error."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from relaxir.support.errors import RelaxirError, UnsupportedError

MAX_SHOWN: Final = 40
"""Different problems listed in one report; the rest is counted."""


def report(problems: Sequence[RelaxirError]) -> RelaxirError:
    """One error about all problems, each kind once with its first place; malformed nodes weigh most."""
    if len(problems) == 1:
        return problems[0]
    groups: dict[str, list[RelaxirError]] = {}
    for p in problems:
        groups.setdefault(p.message, []).append(p)
    notes = [line(group) for group in groups.values()]
    if len(notes) > MAX_SHOWN:
        notes = [*notes[:MAX_SHOWN], f"... and {len(notes) - MAX_SHOWN} more"]
    broken = [p for p in problems if not isinstance(p, UnsupportedError)]
    if broken:
        message = f"the program has {len(problems)} problems, first: {broken[0].message}"
        return type(broken[0])(message, span=broken[0].span, notes=notes)
    message = f"the program has {len(problems)} nodes that cannot be imported"
    return UnsupportedError(message, code="import-unsupported", span=problems[0].span, notes=notes)


def line(group: Sequence[RelaxirError]) -> str:
    """One note: message, number of nodes, first place with its source line."""
    first = group[0]
    times = f" ({len(group)} nodes)" if len(group) > 1 else ""
    if first.span is None:
        return f"{first.message}{times}"
    source = first.span.text().strip()
    return f"{first.message}{times}, at {first.span.file}:{first.span.line}" + (f": {source}" if source else "")
