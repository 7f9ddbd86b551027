"""Source positions: where in the user's program, model or IR text a node came from."""

from __future__ import annotations

import linecache
import sys
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Span:
    """A place in a source text, or a named node of a model file.

    Lines and columns count from 1 (columns in characters, as an editor shows them); 0 means unknown.
    ``end_column`` is the column after the last one covered.

    >>> span = Span("model.py", 4, 7, 15, source="y = R.add(x, w)")
    >>> print(span)
    model.py:4:7
    >>> print(span.render())
     --> model.py:4:7
       |
     4 | y = R.add(x, w)
       |       ^^^^^^^^
    """

    file: str
    """Path or label (``<string>``, ``model.onnx``); empty when only ``note`` is known."""
    line: int
    column: int = 0
    end_column: int = 0
    source: str = ""
    """The text of the line; when empty it is read from ``file`` if that is a Python file which still exists."""
    note: str = ""
    """What a line number cannot say, such as the name of an ONNX node."""

    @classmethod
    def caller(cls, skip_packages: tuple[str, ...] = ("relaxir", "contextlib", "functools")) -> Span | None:
        """Return the innermost line outside the given top-level packages, or None where every frame is inside.

        Called for every node a user builds, so it looks at frames only: no source text, no column. The
        defaults hold the two standard modules whose frames stand between a user and a relaxir context manager
        or cached function.
        """
        frame = sys._getframe(1)
        while frame is not None:
            name = frame.f_globals.get("__name__", "")
            if name.partition(".")[0] not in skip_packages:
                return cls(frame.f_code.co_filename, frame.f_lineno)
            frame = frame.f_back  # type: ignore[assignment]  # f_back is None on the outermost frame
        return None

    def __str__(self) -> str:
        """Render as ``file:line:column (note)``, leaving out what is unknown."""
        place = self.file
        if self.line:
            place += f":{self.line}"
            if self.column:
                place += f":{self.column}"
        if self.note:
            place = f"{place} ({self.note})" if place else self.note
        return place or "<unknown>"

    def text(self) -> str:
        """Return the source line without its line end, or an empty string where it cannot be had."""
        return (self.source or (linecache.getline(self.file, self.line) if self.line else "")).rstrip()

    def render(self) -> str:
        """Render the place as an arrow line and, where the source is known, that line with a caret below."""
        arrow = f" --> {self}"
        text = self.text()
        if not text:
            return arrow
        number = str(self.line)
        bar = " " * (len(number) + 2) + "|"
        lines = [arrow, bar, f" {number} | {text}"]
        if 0 < self.column <= len(text):
            end = min(max(self.end_column, self.column + 1), len(text) + 1)
            # Tabs stay tabs, so that the caret stands under its character however wide a tab is shown.
            pad = "".join("\t" if c == "\t" else " " for c in text[: self.column - 1])
            lines.append(f"{bar} {pad}{'^' * (end - self.column)}")
        return "\n".join(lines)
