"""No passage of the package stands in it twice."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from tests.hygiene.source import Source, package, source

MAX_RUN = 15


def repeated(files: Iterable[Source], limit: int = MAX_RUN) -> Iterator[str]:
    """Places where more than ``limit`` lines equal earlier ones; blanks, comments and imports do not count."""
    first: dict[tuple[str, ...], tuple[str, int, int]] = {}
    for src in files:
        lines = _lines(src)
        position = 0
        while position + limit < len(lines):
            window = tuple(text for _, text in lines[position : position + limit + 1])
            path, line, index = first.setdefault(window, (src.path, lines[position][0], position))
            own = path == src.path and position - index <= limit  # itself, or overlapping with itself
            if not own:
                yield f"{src.path}:{lines[position][0]}: {limit + 1} or more lines as at {path}:{line}"
            position += 1 if own else limit + 1


def _lines(src: Source) -> list[tuple[int, str]]:
    imports = {
        number
        for node in ast.walk(src.tree)
        if isinstance(node, (ast.Import, ast.ImportFrom))
        for number in range(node.lineno, (node.end_lineno or node.lineno) + 1)
    }
    stripped = ((n, " ".join(line.split())) for n, line in enumerate(src.text.splitlines(), 1) if n not in imports)
    return [(n, line) for n, line in stripped if line and not line.startswith("#")]


def test_package() -> None:
    assert not list(repeated(package()))


def test_the_check_finds() -> None:
    passage = "".join(f"x{i} = {i}\n" for i in range(MAX_RUN + 1))
    assert list(repeated([source(passage, "a.py"), source("y = 0\n# note\n\n" + passage, "b.py")]))
    assert list(repeated([source(passage + "y = 0\n" + passage)]))


def test_the_check_passes() -> None:
    passage = "".join(f"x{i} = {i}\n" for i in range(MAX_RUN))
    assert not list(repeated([source(passage + "y = 0\n", "a.py"), source(passage + "y = 1\n", "b.py")]))
    assert not list(repeated([source("from m import (\n" + "    a,\n" * 40 + ")\n", p) for p in ("a.py", "b.py")]))
